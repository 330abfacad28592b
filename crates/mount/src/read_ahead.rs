//! Reading: from what was read ahead of a program that reads on and on, or from the server.
//!
//! The kernel reads ahead 128 KiB by default, which is nothing for a network. So each open file asks for whole READs
//! beyond what was read, more and more of them as long as the program goes on. What was read ahead is given out only
//! if the file was not changed from here since, and not long after it was read.

use crate::buffers::Buffer;
use crate::core::Core;
use crate::files::OpenFile;
use crate::kernel::Reply;
use crate::pipes::Pipes;
use client::Pipe;
use fuser::Errno;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

/// Reads that follow each other before anything is read ahead.
const STREAK_MIN: u32 = 2;
/// The first window; it doubles with each READ that was of use.
const WINDOW_MIN: usize = 512 << 10;
/// Reads this far from the expected place still count as going on: the kernel sends its own in any order.
const SLACK: u64 = 256 << 10;
/// What was read is given out for this long: the least time for which attributes are believed by default.
const AGE_MAX: Duration = Duration::from_secs(3);

/// A shorter read costs less by way of memory: a pipe takes four system calls more.
const PIPED_BYTES_MIN: usize = 128 << 10;

/// What one open file has asked for in advance.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    next: u64,
    streak: u32,
    window: usize,
    pieces: VecDeque<Arc<Piece>>,
}

/// One READ that was made before its data were wanted.
#[derive(Debug)]
pub(crate) struct Piece {
    offset: u64,
    len: usize,
    version: u64,
    at: Instant,
    state: Mutex<PieceState>,
}

#[derive(Debug, Default)]
struct PieceState {
    outcome: Option<Result<Arc<Buffer>, Errno>>,
    waiting: Vec<Waker>,
}

impl Piece {
    fn end(&self) -> u64 {
        self.offset + self.len as u64
    }

    fn lock(&self) -> MutexGuard<'_, PieceState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn data(&self) -> Result<Arc<Buffer>, Errno> {
        std::future::poll_fn(|context| {
            let mut state = self.lock();
            match &state.outcome {
                Some(outcome) => Poll::Ready(outcome.clone()),
                None => {
                    state.waiting.push(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }
}

/// Bytes for a reader, without a copy where that can be.
#[derive(Debug)]
pub(crate) enum Bytes {
    Own(Buffer),
    Part(Arc<Buffer>, usize, usize),
    /// They never came to our memory.
    Piped(Pipe),
}

impl Bytes {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Own(bytes) => bytes.len(),
            Self::Part(_, from, to) => to - from,
            Self::Piped(pipe) => pipe.len(),
        }
    }

    /// Replies with them.
    pub(crate) fn give(self, reply: Reply, pipes: &Pipes) {
        match self {
            Self::Own(bytes) => reply.data(&bytes),
            Self::Part(bytes, from, to) => reply.data(bytes.get(from..to).unwrap_or_default()),
            Self::Piped(pipe) => reply.piped(pipe, pipes),
        }
    }
}

impl Ahead {
    /// A program reads a range: which READs are to be made now, and the pieces that have the range, if they do.
    fn advance(
        &mut self,
        (offset, len): (u64, usize),
        (piece_max, ahead_max): (usize, usize),
        version: u64,
        file_end: u64,
    ) -> (Vec<Arc<Piece>>, Option<Vec<Arc<Piece>>>) {
        let end = offset + len as u64;
        let goes_on = offset <= self.next.saturating_add(SLACK) && end.saturating_add(SLACK) >= self.next;
        if goes_on && end > self.next {
            self.streak = self.streak.saturating_add(1);
            self.window = (self.window * 2).clamp(WINDOW_MIN, ahead_max.max(WINDOW_MIN));
            self.next = end;
        } else if !goes_on {
            (self.streak, self.window, self.next) = (0, 0, end);
            self.pieces.clear();
        }
        self.pieces.retain(|piece| piece.version == version && piece.at.elapsed() < AGE_MAX);
        let mut asked = Vec::new();
        if self.streak >= STREAK_MIN {
            let until = (self.next + self.window as u64).min(file_end);
            let mut from = self.pieces.back().map_or(offset, |piece| piece.end());
            while from < until {
                // READs begin at multiples of their size, as far as that is possible.
                let boundary = (from / piece_max as u64 + 1) * piece_max as u64;
                let len = (boundary - from) as usize;
                let state = Mutex::default();
                let piece = Arc::new(Piece { offset: from, len, version, at: Instant::now(), state });
                self.pieces.push_back(Arc::clone(&piece));
                asked.push(piece);
                from = boundary;
            }
        }
        let covering = self.covering(offset, end);
        // What lies behind the reader is not wanted again; some of it may be, in another order.
        while self.pieces.front().is_some_and(|piece| piece.end() + SLACK <= offset) {
            self.pieces.pop_front();
        }
        (asked, covering)
    }

    /// The pieces that together have a range.
    fn covering(&self, offset: u64, end: u64) -> Option<Vec<Arc<Piece>>> {
        let (mut at, mut found) = (offset, Vec::new());
        for piece in &self.pieces {
            if at < end && piece.offset <= at && at < piece.end() {
                found.push(Arc::clone(piece));
                at = piece.end();
            }
        }
        (at >= end).then_some(found)
    }
}

impl Core {
    /// Reads from what was read ahead, or from the server; short only at the end of the file.
    pub(crate) async fn read_on(
        self: &Arc<Self>,
        file: &Arc<OpenFile>,
        offset: u64,
        len: usize,
    ) -> Result<Bytes, Errno> {
        if file.is_direct || !self.policy.reads_ahead() {
            return match self.read_piped(file, offset, len).await {
                Some(outcome) => outcome,
                None => Ok(Bytes::Own(self.read_now(file, offset, len).await?)),
            };
        }
        let version = file.inode.version.load(Ordering::Acquire);
        let file_end = file.inode.lock().known_end();
        let (asked, covering) = {
            let mut ahead = file.ahead.lock().unwrap_or_else(PoisonError::into_inner);
            ahead.advance((offset, len), (self.sizes.0, self.ahead_max), version, file_end)
        };
        for piece in asked {
            self.fill(file, piece);
        }
        let Some(pieces) = covering else {
            return Ok(Bytes::Own(self.read_now(file, offset, len).await?));
        };
        let mut all = Vec::new();
        for piece in &pieces {
            let data = piece.data().await?;
            let from = (offset + all.len() as u64).saturating_sub(piece.offset) as usize;
            let to = (from + len - all.len()).min(data.len());
            if pieces.len() == 1 {
                return Ok(Bytes::Part(data, from.min(to), to));
            }
            all.extend_from_slice(data.get(from..to).unwrap_or_default());
            if data.len() < piece.len {
                break;
            }
        }
        Ok(Bytes::Own(self.buffers.own(all)))
    }

    fn fill(self: &Arc<Self>, file: &Arc<OpenFile>, piece: Arc<Piece>) {
        let (core, file) = (Arc::clone(self), Arc::clone(file));
        self.executor.spawn_short(async move {
            let outcome = core.read_now(&file, piece.offset, piece.len).await.map(Arc::new);
            let mut state = piece.lock();
            state.outcome = Some(outcome);
            let waiting = std::mem::take(&mut state.waiting);
            drop(state);
            waiting.into_iter().for_each(Waker::wake);
        });
    }

    /// Reads from the server; short only at the end of the file.
    pub(crate) async fn read_now(&self, file: &OpenFile, offset: u64, len: usize) -> Result<Buffer, Errno> {
        let mut all = self.buffers.own(Vec::new());
        loop {
            let at = offset + all.len() as u64;
            let wanted = (len - all.len()).min(self.sizes.0);
            let (bytes, eof) = self.call_read(&file.caller, file.file, at, wanted).await?;
            let ended = eof || bytes.is_empty();
            if all.is_empty() {
                all = bytes;
            } else {
                all.extend_from_slice(&bytes);
            }
            if ended || all.len() >= len {
                return Ok(all);
            }
        }
    }

    /// The same without a copy, for a long read of which nothing is kept; nothing where that cannot be.
    async fn read_piped(&self, file: &OpenFile, offset: u64, len: usize) -> Option<Result<Bytes, Errno>> {
        if !(PIPED_BYTES_MIN..=self.sizes.0).contains(&len) || self.mount.uses_rdma() {
            return None;
        }
        let pipe = self.pipes.take_for_read()?;
        let outcome = self.call_read_piped(&file.caller, file.file, (offset, len), pipe).await;
        match outcome {
            Ok((Bytes::Own(bytes), _)) if bytes.len() == len => {
                // It did not fit.
                self.pipes.rest();
                Some(Ok(Bytes::Own(bytes)))
            }
            Ok((bytes, eof)) if eof || bytes.len() == len => Some(Ok(bytes)),
            Ok(_) => {
                // A server may give less than it is asked for: then all is read once more, by way of memory.
                self.pipes.rest();
                None
            }
            Err(error) => Some(Err(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const END: u64 = 64 * MIB;

    fn step(ahead: &mut Ahead, offset: u64, len: usize, version: u64) -> (usize, bool) {
        let (asked, covering) = ahead.advance((offset, len), (1 << 20, 8 << 20), version, END);
        (asked.len(), covering.is_some())
    }

    #[test]
    fn a_reader_that_goes_on_is_read_ahead_of_further_and_further() {
        let mut ahead = Ahead::default();
        let len = 128 << 10;
        let mut asked = 0;
        for at in 0..64_u64 {
            let (more, covered) = step(&mut ahead, at * len as u64, len, 0);
            asked += more;
            assert!(covered || at < u64::from(STREAK_MIN), "{at}");
        }
        // 8 MiB were read, and 8 MiB are under way.
        assert_eq!(asked, 16);
        assert!(ahead.pieces.len() <= 10, "what was read is let go");
    }

    #[test]
    fn a_reader_waits_for_the_pieces_that_it_reads_and_for_no_others() {
        let mut ahead = Ahead::default();
        (0..8).for_each(|at| {
            step(&mut ahead, at * 4096, 4096, 0);
        });
        assert!(ahead.pieces.len() > 1);
        assert_eq!(ahead.covering(8 * 4096, 9 * 4096).unwrap().len(), 1);
        assert_eq!(ahead.covering(MIB - 4096, MIB + 4096).unwrap().len(), 2);
        assert!(ahead.covering(END, END + 1).is_none());
    }

    #[test]
    fn random_reads_ask_for_nothing_in_advance() {
        let mut ahead = Ahead::default();
        for at in [7, 40, 3, 55, 21, 60, 2] {
            assert_eq!(step(&mut ahead, at * MIB, 4096, 0), (0, false));
        }
    }

    #[test]
    fn nothing_is_asked_for_beyond_the_end() {
        let mut ahead = Ahead::default();
        (0..4).for_each(|at| {
            step(&mut ahead, END - MIB + at * 1024, 1024, 0);
        });
        assert!(ahead.pieces.iter().all(|piece| piece.offset < END));
    }

    #[test]
    fn a_write_makes_what_was_read_ahead_useless() {
        let mut ahead = Ahead::default();
        (0..4).for_each(|at| {
            step(&mut ahead, at * 4096, 4096, 0);
        });
        assert!(!ahead.pieces.is_empty());
        let (asked, _) = step(&mut ahead, 4 * 4096, 4096, 1);
        assert!(asked > 0 && ahead.pieces.iter().all(|piece| piece.version == 1));
    }
}
