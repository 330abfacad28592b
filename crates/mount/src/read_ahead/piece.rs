//! What is read ahead in one READ: from when it is asked for until it is given out or dropped.

use crate::buffers::{Buffer, Buffers};
use crate::own_writes::Moment;
use crate::pipes::{Pipes, PutBy};
use crate::reads::is_short;
use client::Pipe;
use fuser::Errno;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Instant;

/// What all files of a mount together have read ahead at most: many programs at once must not take
/// all memory.
pub(super) const HELD_BYTES_MAX: usize = 256 << 20;

/// What all files of a mount together have read ahead, or asked for.
#[derive(Debug, Default)]
pub(crate) struct ByteBudget {
    pub(super) bytes: AtomicUsize,
}

impl ByteBudget {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Acquire)
    }

    /// Reservation for so many bytes more, if there is.
    pub(super) fn take(self: &Arc<Self>, bytes: usize) -> Option<Reservation> {
        let more = |held: usize| held.checked_add(bytes).filter(|held| *held <= HELD_BYTES_MAX);
        let taken = self.bytes.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        taken.ok().map(|_| Reservation { held: Arc::clone(self), bytes })
    }
}

/// What a piece takes, until it is dropped.
#[derive(Debug)]
pub(super) struct Reservation {
    held: Arc<ByteBudget>,
    bytes: usize,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.held.bytes.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

/// One READ that was made before its data were wanted.
#[derive(Debug)]
pub(crate) struct Piece {
    pub offset: u64,
    pub len: usize,
    /// Of its file, when it was asked for.
    pub generation: u64,
    pub moment: Moment,
    pub at: Instant,
    /// The kernel asks for such pieces as a whole: what comes need not pass through memory.
    pub is_as_asked: bool,
    pub _room: Reservation,
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
    pub(super) fn end(&self) -> u64 {
        self.offset + self.len as u64
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, PieceState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that it will have in a file that ends there.
    pub(super) fn expected(&self, file_end: u64) -> u64 {
        self.end().min(file_end).saturating_sub(self.offset)
    }

    /// Whether so few bytes had better be read for themselves than be taken out of what is, or will
    /// be, in a pipe.
    pub(super) fn is_too_much_for(&self, len: usize, file_end: u64) -> bool {
        // Taking much out of a pipe takes long.
        let is_much = is_short(len) && !is_short(self.expected(file_end) as usize);
        is_much && self.is_as_asked && !matches!(self.lock().outcome, Some(Ok(Content::Memory(_))))
    }

    /// Waits until it is there.
    pub(super) async fn arrival(&self) {
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

    /// All of it out of the pipe that it came by; nothing where it is in memory, was given out
    /// before, or is more than `len` bytes: a file may have grown behind the end that the kernel
    /// knows.
    pub(super) fn take_pipe(&self, len: usize) -> Option<Pipe> {
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

/// Leaves no piece without an outcome: somebody may wait for it.
pub(super) struct Filling(pub Arc<Piece>);

impl Filling {
    pub(super) fn end(&self, outcome: Result<Content, Errno>) {
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

#[cfg(test)]
mod tests {
    use super::*;

    const END: u64 = 64 << 20;
    /// Longer than what is read where nothing may take long.
    const LONG: usize = 128 << 10;

    /// A piece that came by a pipe.
    fn piped(data: &[u8], pipes: &Pipes) -> Piece {
        let mut pipe = pipes.take().unwrap();
        pipe.put(data).unwrap();
        let outcome = Some(Ok(Content::Pipe { pipe, _put_by: pipes.put_by().unwrap() }));
        let state = PieceState { outcome, ..PieceState::default() };
        let (len, at, state) = (data.len(), Instant::now(), state.into());
        let _room = Arc::new(ByteBudget::default()).take(len).unwrap();
        Piece { offset: 0, len, generation: 0, moment: 0, at, is_as_asked: true, _room, state }
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
}
