//! A piece: the data of one READ that was made ahead of the program, from the call until the data
//! are used or dropped.

use crate::buffers::{Buffer, Buffers};
use crate::own_writes::WriteSequence;
use crate::pipes::{PipePermit, Pipes};
use crate::reads::is_short;
use client::Pipe;
use fuser::Errno;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Instant;

/// The most that all files of a mount together may have read ahead, so that many programs at once
/// do not take all memory.
pub(super) const READ_AHEAD_BYTES_MAX: usize = 256 << 20;

/// The bytes that all files of a mount together have read ahead, or have requested.
#[derive(Debug, Default)]
pub(crate) struct ByteBudget {
    pub(super) bytes: AtomicUsize,
}

impl ByteBudget {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Acquire)
    }

    /// Reserves bytes; `None` if the budget does not have them.
    pub(super) fn take(self: &Arc<Self>, bytes: usize) -> Option<Reservation> {
        let more = |held: usize| held.checked_add(bytes).filter(|held| *held <= READ_AHEAD_BYTES_MAX);
        let taken = self.bytes.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        taken.ok().map(|_| Reservation { budget: Arc::clone(self), bytes })
    }
}

/// The bytes that a piece takes from the budget until it is dropped.
#[derive(Debug)]
pub(super) struct Reservation {
    budget: Arc<ByteBudget>,
    bytes: usize,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.bytes.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

/// One READ that was made before its data were wanted.
#[derive(Debug)]
pub(crate) struct Piece {
    pub offset: u64,
    pub len: usize,
    /// The generation and the write sequence of the file when the piece was requested.
    pub generation: u64,
    pub write_sequence: WriteSequence,
    pub at: Instant,
    /// The kernel asks for exactly such pieces, so the data need not pass through memory.
    pub matches_request: bool,
    pub _reservation: Reservation,
    pub state: Mutex<PieceState>,
}

#[derive(Debug, Default)]
pub(super) struct PieceState {
    pub outcome: Option<Result<Content, Errno>>,
    waiting: Vec<Waker>,
}

#[derive(Debug)]
pub(super) enum Content {
    Memory(Arc<Buffer>),
    Pipe {
        pipe: Pipe,
        _permit: PipePermit,
    },
    /// The data were received into a pipe, and have been used or lost since.
    Taken,
}

impl Content {
    /// Moves the data from a pipe to memory.
    fn from_pipe(mut pipe: Pipe, buffers: &Arc<Buffers>, pipes: &Pipes) -> Self {
        let mut bytes = buffers.own(buffers.take(pipe.len()));
        let read = pipe.read(&mut bytes);
        pipes.give_back(pipe);
        if read == Ok(bytes.len()) {
            Self::Memory(Arc::new(bytes))
        } else {
            tracing::error!(?read, "data cannot be read back from their pipe, and are read again");
            Self::Taken
        }
    }
}

impl Piece {
    pub(super) fn end(&self) -> u64 {
        self.offset + self.len as u64
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, PieceState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of bytes that the piece has if the file ends at `file_end`.
    pub(super) fn expected(&self, file_end: u64) -> u64 {
        self.end().min(file_end).saturating_sub(self.offset)
    }

    /// Whether it is better to read `len` bytes from the server again than to take them out of this
    /// piece.
    pub(super) fn is_costly_for(&self, len: usize, file_end: u64) -> bool {
        // Data in a pipe can only be taken out as a whole, and for a long piece that takes long.
        let is_much = is_short(len) && !is_short(self.expected(file_end) as usize);
        is_much && self.matches_request && !matches!(self.lock().outcome, Some(Ok(Content::Memory(_))))
    }

    /// Waits until the READ has ended.
    pub(super) async fn completed(&self) {
        std::future::poll_fn(|context| {
            let mut state = self.lock();
            if state.outcome.is_some() {
                return Poll::Ready(());
            }
            state.waiting.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Takes the pipe with all data of the piece. Returns `None` if the data are in memory, were
    /// used before, or are more than `len` bytes: the file may have grown beyond the end that
    /// the kernel knows.
    pub(super) fn take_pipe(&self, len: usize) -> Option<Pipe> {
        let mut state = self.lock();
        let Some(Ok(content)) = &mut state.outcome else { return None };
        match std::mem::replace(content, Content::Taken) {
            Content::Pipe { pipe, .. } if pipe.len() <= len => Some(pipe),
            other => {
                *content = other;
                None
            }
        }
    }

    /// Returns all data of the piece in memory; `None` if they were used before.
    pub(super) fn in_memory(
        &self,
        buffers: &Arc<Buffers>,
        pipes: &Pipes,
    ) -> Option<Result<Arc<Buffer>, Errno>> {
        let mut state = self.lock();
        let content = match state.outcome.as_mut()? {
            Ok(content) => content,
            Err(error) => return Some(Err(*error)),
        };
        *content = match std::mem::replace(content, Content::Taken) {
            Content::Pipe { pipe, .. } => Content::from_pipe(pipe, buffers, pipes),
            other => other,
        };
        match content {
            Content::Memory(buffer) => Some(Ok(Arc::clone(buffer))),
            Content::Pipe { .. } | Content::Taken => None,
        }
    }
}

/// A READ under way. Dropping this value gives the piece an outcome, even after a panic, because a
/// program may be waiting for the piece.
pub(super) struct PieceRead(pub Arc<Piece>);

impl PieceRead {
    pub(super) fn end(&self, outcome: Result<Content, Errno>) {
        let mut state = self.0.lock();
        state.outcome.get_or_insert(outcome);
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }
}

impl Drop for PieceRead {
    fn drop(&mut self) {
        self.end(Err(Errno::EIO));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: u64 = 64 << 20;
    /// Longer than what may be read on a thread that must not be busy for long.
    const LONG: usize = 128 << 10;

    /// A piece whose data are in a pipe.
    fn piped(data: &[u8], pipes: &Pipes) -> Piece {
        let mut pipe = pipes.take().unwrap();
        pipe.put(data).unwrap();
        let outcome = Some(Ok(Content::Pipe { pipe, _permit: pipes.read_ahead_permit().unwrap() }));
        let state = PieceState { outcome, ..PieceState::default() };
        let (len, at, state) = (data.len(), Instant::now(), state.into());
        let _reservation = Arc::new(ByteBudget::default()).take(len).unwrap();
        Piece {
            offset: 0,
            len,
            generation: 0,
            write_sequence: 0,
            at,
            matches_request: true,
            _reservation,
            state,
        }
    }

    #[test]
    fn data_in_a_pipe_are_used_once() {
        let pipes = Pipes::default();
        let piece = piped(b"data", &pipes);
        assert!(pipes.has_permits_out());
        assert!(piece.take_pipe(3).is_none(), "never more than was asked for");
        assert_eq!(piece.take_pipe(4).unwrap().len(), 4);
        assert!(!pipes.has_permits_out());
        assert!(piece.take_pipe(4).is_none());
        assert!(piece.in_memory(&Arc::default(), &pipes).is_none());
    }

    #[test]
    fn what_came_by_a_pipe_is_in_memory_once_a_part_of_it_is_wanted() {
        let pipes = Pipes::default();
        let piece = piped(b"data", &pipes);
        for _ in 0..2 {
            let data = piece.in_memory(&Arc::default(), &pipes).unwrap().unwrap();
            assert_eq!(**data, *b"data");
        }
        assert!(piece.take_pipe(4).is_none() && !pipes.has_permits_out());
    }

    #[test]
    fn much_is_not_moved_for_a_little() {
        let pipes = Pipes::default();
        let piece = piped(&[1; LONG], &pipes);
        assert!(piece.is_costly_for(4096, END));
        assert!(!piece.is_costly_for(LONG, END));
        assert!(!piece.is_costly_for(4096, 5000), "the file ends within it");
        assert!(piece.in_memory(&Arc::default(), &pipes).is_some());
        assert!(!piece.is_costly_for(1, END), "it is in memory");
    }
}
