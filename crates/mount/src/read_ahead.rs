//! Reading ahead of a program that reads on and on.
//!
//! The kernel reads ahead 128 KiB by default, which is nothing for a network. So each open file asks for whole READs
//! beyond what was read, more and more of them as long as the program goes on. What was read ahead is given out only
//! if the file was not changed from here since, and not long after it was read.
//!
//! A kernel that reads ahead so far itself asks for whole READs, mostly once for each. Then each waits in the pipe by
//! which it came and goes on from there, through no memory of ours.

mod piece;

use crate::core::Core;
use crate::files::OpenFile;
use crate::reads::{Bytes, Fresh};
use fuser::Errno;
pub(crate) use piece::Held;
use piece::{Content, Filling, Piece};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
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
    use super::piece::HELD_BYTES_MAX;
    use super::*;

    const MIB: u64 = 1 << 20;
    const END: u64 = 64 * MIB;

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
