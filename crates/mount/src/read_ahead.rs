//! Reading ahead of a program that reads on and on.
//!
//! The kernel reads ahead 128 KiB by default, which is nothing for a network. So each open file asks for whole READs
//! beyond what was read, more and more of them as long as the program goes on. What was read ahead is given out only
//! if the file was not changed from here since, and not long after it was read.
//!
//! A kernel that reads ahead so far itself asks for whole READs, mostly once for each. Then each waits in the pipe by
//! which it came and goes on from there, through no memory of ours.

use crate::buffers::{Buffer, Buffers};
use crate::core::Core;
use crate::files::OpenFile;
use crate::pipes::{Pipes, PutBy};
use crate::reads::{Bytes, Fresh, is_short};
use client::Pipe;
use fuser::Errno;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

/// Reads that follow each other before anything is read ahead.
const STREAK_MIN: u32 = 2;
/// The first window; it doubles with each READ that was of use.
const WINDOW_MIN: usize = 512 << 10;
/// Reads this far from the expected place still count as going on: the kernel sends its own in any order.
const SLACK: u64 = 256 << 10;
/// Less is not worth one of the few pipes.
const PUT_BY_BYTES_MIN: usize = 512 << 10;
/// So many whole READs in a row show that the kernel goes on so. While its own read-ahead grows some may lie elsewhere.
const STEADY_MIN: u32 = 4;

/// What all files of a mount together have read ahead at most: many programs at once must not take all memory.
const HELD_BYTES_MAX: usize = 256 << 20;

/// What all files of a mount together have read ahead, or asked for.
#[derive(Debug, Default)]
pub(crate) struct Held {
    bytes: AtomicUsize,
}

impl Held {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Acquire)
    }

    /// Room for so many bytes more, if there is.
    fn take(self: &Arc<Self>, bytes: usize) -> Option<Room> {
        let more = |held: usize| held.checked_add(bytes).filter(|held| *held <= HELD_BYTES_MAX);
        let taken = self.bytes.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        taken.ok().map(|_| Room { held: Arc::clone(self), bytes })
    }
}

/// What a piece takes, until it is dropped.
#[derive(Debug)]
struct Room {
    held: Arc<Held>,
    bytes: usize,
}

impl Drop for Room {
    fn drop(&mut self) {
        self.held.bytes.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

/// What one open file has asked for in advance.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    held: Arc<Held>,
    /// What was read is given out for this long.
    age_max: Duration,
    next: u64,
    streak: u32,
    window: usize,
    /// Where pieces begin, behind multiples of their size: where the kernel's whole READs do.
    phase: u64,
    /// The phase of its last whole READ, and how many had it in a row.
    seen: (u64, u32),
    pieces: VecDeque<Arc<Piece>>,
}

/// One READ that was made before its data were wanted.
#[derive(Debug)]
pub(crate) struct Piece {
    offset: u64,
    len: usize,
    version: u64,
    at: Instant,
    /// The kernel asks for such pieces as a whole: what comes need not pass through memory.
    is_as_asked: bool,
    _room: Room,
    state: Mutex<PieceState>,
}

#[derive(Debug, Default)]
struct PieceState {
    outcome: Option<Result<Content, Errno>>,
    waiting: Vec<Waker>,
}

#[derive(Debug)]
enum Content {
    Memory(Arc<Buffer>),
    Pipe {
        pipe: Pipe,
        _put_by: PutBy,
    },
    /// It came by a pipe, and is not there any more.
    Gone,
}

impl Content {
    /// What is in a pipe, in memory.
    fn out_of(mut pipe: Pipe, buffers: &Arc<Buffers>, pipes: &Pipes) -> Self {
        let mut bytes = buffers.own(buffers.take(pipe.len()));
        let read = pipe.read(&mut bytes);
        pipes.give_back(pipe);
        if read == Ok(bytes.len()) {
            Self::Memory(Arc::new(bytes))
        } else {
            tracing::error!(?read, "what was read ahead is lost in its pipe; it is read again");
            Self::Gone
        }
    }
}

impl Piece {
    fn end(&self) -> u64 {
        self.offset + self.len as u64
    }

    fn lock(&self) -> MutexGuard<'_, PieceState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that it will have in a file that ends there.
    fn expected(&self, file_end: u64) -> u64 {
        self.end().min(file_end).saturating_sub(self.offset)
    }

    /// Whether so few bytes had better be read for themselves than be taken out of what is, or will be, in a pipe.
    fn is_too_much_for(&self, len: usize, file_end: u64) -> bool {
        // Taking much out of a pipe takes long.
        let is_much = is_short(len) && !is_short(self.expected(file_end) as usize);
        is_much && self.is_as_asked && !matches!(self.lock().outcome, Some(Ok(Content::Memory(_))))
    }

    /// Waits until it is there.
    async fn arrival(&self) {
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

    /// All of it out of the pipe that it came by; nothing where it is in memory, was given out before, or is more than `len`
    /// bytes: a file may have grown behind the end that the kernel knows.
    fn take_pipe(&self, len: usize) -> Option<Pipe> {
        let mut state = self.lock();
        let Some(Ok(content)) = &mut state.outcome else { return None };
        match std::mem::replace(content, Content::Gone) {
            Content::Pipe { pipe, .. } if pipe.len() <= len => Some(pipe),
            other => {
                *content = other;
                None
            }
        }
    }

    /// All of it in memory; nothing where it was given out before.
    fn in_memory(&self, buffers: &Arc<Buffers>, pipes: &Pipes) -> Option<Result<Arc<Buffer>, Errno>> {
        let mut state = self.lock();
        let content = match state.outcome.as_mut()? {
            Ok(content) => content,
            Err(error) => return Some(Err(*error)),
        };
        *content = match std::mem::replace(content, Content::Gone) {
            Content::Pipe { pipe, .. } => Content::out_of(pipe, buffers, pipes),
            other => other,
        };
        match content {
            Content::Memory(buffer) => Some(Ok(Arc::clone(buffer))),
            Content::Pipe { .. } | Content::Gone => None,
        }
    }
}

impl Ahead {
    /// Gives out what was read for so long.
    pub(crate) fn new(age_max: Duration, held: Arc<Held>) -> Self {
        Self { age_max, held, ..Self::default() }
    }

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
        self.pieces.retain(|piece| piece.version == version && piece.at.elapsed() < self.age_max);
        let asks_for_whole = len == piece_max;
        if asks_for_whole {
            self.follow(offset % piece_max as u64);
        }
        let mut asked = Vec::new();
        if self.streak >= STREAK_MIN {
            let until = (self.next + self.window as u64).min(file_end);
            let mut from = self.pieces.back().map_or(offset, |piece| piece.end());
            while from < until {
                let boundary = next_boundary(from, self.phase, piece_max as u64);
                let len = (boundary - from) as usize;
                let Some(_room) = self.held.take(len) else { break };
                let is_as_asked = asks_for_whole && len == piece_max;
                let (at, state) = (Instant::now(), Mutex::default());
                let piece = Arc::new(Piece { offset: from, len, version, at, is_as_asked, _room, state });
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

    /// The kernel's whole READs lie so by now.
    fn follow(&mut self, phase: u64) {
        let in_a_row = if self.seen.0 == phase { self.seen.1.saturating_add(1) } else { 1 };
        self.seen = (phase, in_a_row);
        if phase == 0 || in_a_row >= STEADY_MIN {
            self.phase = phase;
        }
    }

    /// What will not be given out any more need not be kept.
    fn drop_old(&mut self) {
        self.pieces.retain(|piece| piece.at.elapsed() < self.age_max);
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

/// The first place behind `from` that is `phase` behind a multiple of `size`.
const fn next_boundary(from: u64, phase: u64, size: u64) -> u64 {
    let shift = (size - phase) % size;
    ((from + shift) / size + 1) * size - shift
}

/// Leaves no piece without an outcome: somebody may wait for it.
struct Filling(Arc<Piece>);

impl Filling {
    fn end(&self, outcome: Result<Content, Errno>) {
        let mut state = self.0.lock();
        state.outcome.get_or_insert(outcome);
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        self.end(Err(Errno::EIO));
    }
}

impl Core {
    /// Lets go of what was read ahead in files whose programs have paused.
    pub(crate) fn drop_old_ahead(&self) {
        for file in self.files.all() {
            file.ahead.lock().unwrap_or_else(PoisonError::into_inner).drop_old();
        }
    }

    /// Gives what was read ahead of a program, and reads further ahead; nothing where it is not at hand.
    pub(crate) async fn read_what_is_ahead(
        self: &Arc<Self>,
        file: &Arc<OpenFile>,
        offset: u64,
        len: usize,
    ) -> Option<Result<Bytes, Errno>> {
        let version = file.inode.version.load(Ordering::Acquire);
        let file_end = file.inode.lock().known_end();
        let (asked, covering) = {
            let mut ahead = file.ahead.lock().unwrap_or_else(PoisonError::into_inner);
            ahead.advance((offset, len), (self.sizes.0, self.ahead_max), version, file_end)
        };
        for piece in asked {
            self.fill(file, piece);
        }
        let pieces = covering?;
        if pieces.iter().any(|piece| piece.is_too_much_for(len, file_end)) {
            return None;
        }
        for piece in &pieces {
            piece.arrival().await;
        }
        if let [piece] = &pieces[..]
            && piece.offset == offset
            && len as u64 >= piece.expected(file_end)
            && let Some(pipe) = piece.take_pipe(len)
        {
            return Some(Ok(Bytes::Fresh(Fresh::Pipe(pipe))));
        }
        let mut all = Vec::new();
        for piece in &pieces {
            let data = match piece.in_memory(&self.buffers, &self.pipes)? {
                Ok(data) => data,
                Err(error) => return Some(Err(error)),
            };
            let from = (offset + all.len() as u64).saturating_sub(piece.offset) as usize;
            let to = (from + len - all.len()).min(data.len());
            if pieces.len() == 1 {
                return Some(Ok(Bytes::Part(data, from.min(to), to)));
            }
            all.extend_from_slice(data.get(from..to).unwrap_or_default());
            if data.len() < piece.len {
                break;
            }
        }
        Some(Ok(self.buffers.own(all).into()))
    }

    fn fill(self: &Arc<Self>, file: &Arc<OpenFile>, piece: Arc<Piece>) {
        let (core, file) = (Arc::clone(self), Arc::clone(file));
        self.executor.spawn_short(async move {
            let filling = Filling(Arc::clone(&piece));
            let put_by =
                if piece.is_as_asked && piece.len >= PUT_BY_BYTES_MIN { core.pipes.put_by() } else { None };
            let piped = match put_by {
                Some(put_by) => {
                    let fresh = core.read_piped(&file, piece.offset, piece.len).await;
                    fresh.map(|fresh| (fresh, put_by))
                }
                None => None,
            };
            filling.end(match piped {
                Some((Ok(Fresh::Pipe(pipe)), put_by)) => Ok(Content::Pipe { pipe, _put_by: put_by }),
                Some((Ok(Fresh::Memory(buffer)), _)) => Ok(Content::Memory(Arc::new(buffer))),
                Some((Err(error), _)) => Err(error),
                None => {
                    let read = core.read_now(&file, piece.offset, piece.len).await;
                    read.map(|buffer| Content::Memory(Arc::new(buffer)))
                }
            });
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const END: u64 = 64 * MIB;
    /// Longer than what is read where nothing may take long.
    const LONG: usize = 128 << 10;

    /// A piece that came by a pipe.
    fn piped(data: &[u8], pipes: &Pipes) -> Piece {
        let mut pipe = pipes.take().unwrap();
        pipe.put(data).unwrap();
        let outcome = Some(Ok(Content::Pipe { pipe, _put_by: pipes.put_by().unwrap() }));
        let state = PieceState { outcome, ..PieceState::default() };
        let (len, at, state) = (data.len(), Instant::now(), state.into());
        let _room = Arc::new(Held::default()).take(len).unwrap();
        Piece { offset: 0, len, version: 0, at, is_as_asked: true, _room, state }
    }

    #[test]
    fn what_came_by_a_pipe_is_given_out_once() {
        let pipes = Pipes::default();
        let piece = piped(b"data", &pipes);
        assert!(pipes.are_put_by());
        assert!(piece.take_pipe(3).is_none(), "never more than was asked for");
        assert_eq!(piece.take_pipe(4).unwrap().len(), 4);
        assert!(!pipes.are_put_by());
        assert!(piece.take_pipe(4).is_none());
        assert!(piece.in_memory(&Arc::default(), &pipes).is_none());
    }

    #[test]
    fn what_came_by_a_pipe_is_in_memory_once_a_part_of_it_is_wanted() {
        let pipes = Pipes::default();
        let piece = piped(b"data", &pipes);
        for _ in 0..2 {
            let data = piece.in_memory(&Arc::default(), &pipes).unwrap().unwrap();
            assert_eq!(**data, b"data");
        }
        assert!(piece.take_pipe(4).is_none() && !pipes.are_put_by());
    }

    #[test]
    fn much_is_not_moved_for_a_little() {
        let pipes = Pipes::default();
        let piece = piped(&[1; LONG], &pipes);
        assert!(piece.is_too_much_for(4096, END));
        assert!(!piece.is_too_much_for(LONG, END));
        assert!(!piece.is_too_much_for(4096, 5000), "the file ends within it");
        assert!(piece.in_memory(&Arc::default(), &pipes).is_some());
        assert!(!piece.is_too_much_for(1, END), "it is in memory");
    }

    #[test]
    fn a_piece_whose_read_panics_is_an_error_to_who_waits_for_it() {
        let mut ahead = Ahead::new(Duration::MAX, Arc::default());
        let piece =
            (0..4).flat_map(|at| ahead.advance((at * MIB, 1 << 20), (1 << 20, 8 << 20), 0, END).0).next();
        let piece = piece.unwrap();
        drop(Filling(Arc::clone(&piece)));
        assert!(matches!(piece.lock().outcome, Some(Err(_))));
    }

    #[test]
    fn pieces_stay_in_pipes_only_while_the_kernel_asks_for_whole_ones() {
        let mut ahead = Ahead::new(Duration::MAX, Arc::default());
        let mut ask = |offset, len| ahead.advance((offset, len), (1 << 20, 8 << 20), 0, END).0;
        let whole: Vec<_> = (0..5).flat_map(|at| ask(at * MIB, 1 << 20)).collect();
        assert!(!whole.is_empty() && whole.iter().all(|piece| piece.is_as_asked));
        let parts: Vec<_> = (40..50).flat_map(|at| ask(at * MIB / 8, 128 << 10)).collect();
        assert!(!parts.is_empty() && parts.iter().all(|piece| !piece.is_as_asked));
    }

    /// How many of the whole READs that a kernel asks for are pieces as they are.
    fn as_asked(growing: &[(u64, usize)], steady_from: u64) -> usize {
        let steady = (0..30).map(|at| (steady_from + at * MIB, 1 << 20));
        let mut ahead = Ahead::new(Duration::MAX, Arc::default());
        let asked = growing.iter().copied().chain(steady);
        asked.fold(0, |count, (offset, len)| {
            let (_, covering) = ahead.advance((offset, len), (1 << 20, 8 << 20), 0, END);
            let Some([piece]) = covering.as_deref() else { return count };
            count + usize::from(piece.is_as_asked && (piece.offset, piece.len) == (offset, len))
        })
    }

    #[test]
    fn whole_pieces_lie_as_the_kernel_asks_for_them() {
        const KIB: u64 = 1 << 10;
        // Its own read-ahead doubles, and goes on from where it has reached its size.
        assert!(as_asked(&[(0, 256 << 10), (256 * KIB, 512 << 10)], 768 * KIB) > 15);
        assert!(as_asked(&[(0, 16 << 10), (16 * KIB, 64 << 10), (80 * KIB, 512 << 10)], 592 * KIB) > 15);
        // Or it is led back to multiples of its size, some whole READs later.
        let growing = [
            (0, 256 << 10),
            (256 * KIB, 512 << 10),
            (768 * KIB, 1 << 20),
            (1792 * KIB, 1 << 20),
            (2816 * KIB, 256 << 10),
        ];
        assert!(as_asked(&growing, 3 * MIB) > 20);
    }

    #[test]
    fn boundaries_are_behind_where_one_is() {
        assert_eq!([0, 1, 99, 100].map(|from| next_boundary(from, 0, 100)), [100, 100, 100, 200]);
        assert_eq!([0, 29, 30, 130].map(|from| next_boundary(from, 30, 100)), [30, 30, 130, 230]);
    }

    fn step(ahead: &mut Ahead, offset: u64, len: usize, version: u64) -> (usize, bool) {
        let (asked, covering) = ahead.advance((offset, len), (1 << 20, 8 << 20), version, END);
        (asked.len(), covering.is_some())
    }

    #[test]
    fn a_reader_that_goes_on_is_read_ahead_of_further_and_further() {
        let mut ahead = Ahead::new(Duration::MAX, Arc::default());
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
        let mut ahead = Ahead::new(Duration::MAX, Arc::default());
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
        let mut ahead = Ahead::new(Duration::MAX, Arc::default());
        for at in [7, 40, 3, 55, 21, 60, 2] {
            assert_eq!(step(&mut ahead, at * MIB, 4096, 0), (0, false));
        }
    }

    #[test]
    fn nothing_is_asked_for_beyond_the_end() {
        let mut ahead = Ahead::new(Duration::MAX, Arc::default());
        (0..4).for_each(|at| {
            step(&mut ahead, END - MIB + at * 1024, 1024, 0);
        });
        assert!(ahead.pieces.iter().all(|piece| piece.offset < END));
    }

    #[test]
    fn what_is_too_old_is_not_given_out() {
        for (age_max, is_given_out) in [(Duration::MAX, true), (Duration::ZERO, false)] {
            let mut ahead = Ahead::new(age_max, Arc::default());
            (0..4).for_each(|at| {
                step(&mut ahead, at * 4096, 4096, 0);
            });
            let given_out: Vec<_> = ahead.covering(4 * 4096, 5 * 4096).into_iter().flatten().collect();
            let (_, covering) = ahead.advance((4 * 4096, 4096), (1 << 20, 8 << 20), 0, END);
            let again = covering.is_some_and(|pieces| Arc::ptr_eq(&pieces[0], &given_out[0]));
            assert_eq!(again, is_given_out, "{age_max:?}");
            ahead.drop_old();
            assert_eq!(!ahead.pieces.is_empty(), is_given_out, "{age_max:?}");
        }
    }

    #[test]
    fn all_files_together_read_so_far_ahead_and_a_reader_that_pauses_makes_room() {
        let held = Arc::new(Held::default());
        let mut files: Vec<_> = (0..60).map(|_| Ahead::new(Duration::MAX, Arc::clone(&held))).collect();
        for ahead in &mut files {
            (0..8).for_each(|at| {
                step(ahead, at * MIB, 1 << 20, 0);
            });
        }
        assert_eq!(held.bytes.load(Ordering::Relaxed), HELD_BYTES_MAX);
        assert!(files[59].pieces.is_empty() && step(&mut files[59], 8 * MIB, 1 << 20, 0) == (0, false));
        files.truncate(1);
        files[0].age_max = Duration::ZERO;
        files[0].drop_old();
        assert_eq!(held.bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_write_makes_what_was_read_ahead_useless() {
        let mut ahead = Ahead::new(Duration::MAX, Arc::default());
        (0..4).for_each(|at| {
            step(&mut ahead, at * 4096, 4096, 0);
        });
        assert!(!ahead.pieces.is_empty());
        let (asked, _) = step(&mut ahead, 4 * 4096, 4096, 1);
        assert!(asked > 0 && ahead.pieces.iter().all(|piece| piece.version == 1));
    }
}
