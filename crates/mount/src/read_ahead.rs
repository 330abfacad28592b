//! Read-ahead for programs that read sequentially.
//!
//! The kernel reads ahead 128 KiB by default, which is too little for a network. So each open file
//! asks for whole READs beyond what the program has read. The window grows as long as the program
//! reads sequentially, and reads most of what it passes. Data that were read ahead are given out
//! only if the file is not known to have been changed elsewhere since, the range was not written
//! from here since, and the data are not old.
//!
//! A kernel whose own read-ahead is long enough asks for whole READs, usually once for each. Then
//! the data of each READ wait in the pipe into which they were received, and go to the kernel from
//! there without passing through memory of this process.

mod piece;

use crate::core::Core;
use crate::files::OpenFile;
use crate::inode::State;
use crate::own_writes::{Moment, OwnWrites};
use crate::reads::{Bytes, Fresh};
use fuser::Errno;
pub(crate) use piece::ByteBudget;
use piece::{Content, Filling, Piece};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Sequential reads before anything is read ahead.
const STREAK_MIN: u32 = 2;
/// The first window. It doubles with each sequential read, up to the limit for one file.
const WINDOW_MIN: usize = 512 << 10;
/// A read this far from the expected offset still counts as sequential: the kernel sends the reads
/// of its own read-ahead in any order.
const SLACK: u64 = 256 << 10;
/// How far back a read may go if the program also writes the file. For each write the kernel drops
/// everything that it has read ahead, and asks for it again: twice 1 MiB, and twice as much for a
/// program that has announced sequential reads (posix_fadvise(2)).
const BACK_BYTES: u64 = 4 << 20;
/// The distance over which it is determined whether a program reads most of what it passes.
const DENSITY_BYTES: u64 = 8 << 20;
/// A shorter piece is not worth a pipe, of which there are few.
const PUT_BY_BYTES_MIN: usize = 512 << 10;
/// After this many whole READs in a row with the same phase, the kernel is assumed to keep the
/// phase. While the kernel's read-ahead grows, a few whole READs may have another phase.
const STEADY_MIN: u32 = 4;

/// The read-ahead of one open file.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    held: Arc<ByteBudget>,
    /// Data are given out for this long after they were requested.
    age_max: Duration,
    next: u64,
    streak: u32,
    window: usize,
    density: Density,
    /// When the current run of sequential reads began.
    began: Moment,
    /// Pieces begin at a multiple of their size plus this, as the kernel's whole READs do.
    phase: u64,
    /// The phase of the kernel's last whole READ, and how many in a row had that phase.
    seen: (u64, u32),
    /// Pieces that were read ahead, and pieces that were read again because their range was
    /// written; in no particular order.
    pieces: Vec<Arc<Piece>>,
}

/// What is known of the file when a program reads.
#[derive(Debug, Clone, Copy)]
struct Now<'a> {
    generation: u64,
    own_writes: &'a OwnWrites,
    file_end: u64,
}

impl<'a> Now<'a> {
    fn of(state: &'a State) -> Self {
        Self { generation: state.generation, own_writes: &state.own_writes, file_end: state.known_end() }
    }
}

/// A range of a piece.
#[derive(Debug)]
struct Part {
    piece: Arc<Piece>,
    range: Range<u64>,
}

impl Part {
    /// Whether the data are still valid: since the piece was requested, the range was not written
    /// here, and the file was changed in no other way either.
    fn is_good(&self, now: &Now<'_>) -> bool {
        self.piece.generation == now.generation
            && now.own_writes.untouched(self.range.clone(), self.piece.moment) == [self.range.clone()]
    }
}

/// Where a read is, compared with the reads before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    On,
    /// Where the kernel has read already, and has dropped its pages.
    Back,
    Elsewhere,
}

/// Whether the file still ends at `at`, where the data of these parts end. Any write behind that
/// offset since the pieces were requested has made the file longer.
fn tells_end(parts: &[Part], at: u64, now: &Now<'_>) -> bool {
    let behind = at..u64::MAX;
    parts
        .iter()
        .all(|part| now.own_writes.untouched(behind.clone(), part.piece.moment).first() == Some(&behind))
}

/// How much a program has read of what lies behind it.
#[derive(Debug, Default)]
struct Density {
    start: u64,
    bytes: u64,
}

impl Density {
    fn begin(&mut self, offset: u64, len: usize) {
        *self = Self { start: offset, bytes: len as u64 };
    }

    /// The program has read `len` bytes, and is now at `next`.
    fn read(&mut self, len: usize, next: u64) {
        self.bytes = self.bytes.saturating_add(len as u64);
        if next.saturating_sub(self.start) > DENSITY_BYTES {
            self.start = next - DENSITY_BYTES / 2;
            self.bytes = self.bytes.min(DENSITY_BYTES) / 2;
        }
    }

    /// Whether the program has read most of what it passed, and so will probably read what lies
    /// ahead.
    fn is_high(&self, next: u64) -> bool {
        self.bytes.saturating_mul(2) > next.saturating_sub(self.start)
    }
}

impl Ahead {
    /// Data are given out for `age_max` after they were requested.
    pub(crate) fn new(age_max: Duration, held: Arc<ByteBudget>) -> Self {
        Self { age_max, held, ..Self::default() }
    }

    /// Handles a read of a program. Returns the pieces to request now, and the parts of pieces that
    /// make up the range, if the pieces cover all of it.
    fn advance(
        &mut self,
        (offset, len): (u64, usize),
        (piece_max, ahead_max): (usize, usize),
        now: &Now<'_>,
    ) -> (Vec<Arc<Piece>>, Option<Vec<Part>>) {
        let end = offset + len as u64;
        self.drop_useless(now);
        let way = self.go(offset, len, ahead_max, now);
        let writes_beside = self.writes_beside(now);
        // Writes cut ranges out of pieces, and make the kernel ask for parts of pieces again.
        let asks_for_whole = len == piece_max && !writes_beside;
        if asks_for_whole {
            self.follow(offset % piece_max as u64);
        }
        let mut asked = Vec::new();
        if way == Way::On && self.streak >= STREAK_MIN && self.density.is_high(self.next) {
            let until = (self.next + self.window as u64).min(now.file_end);
            let mut from = self.pieces.iter().map(|piece| piece.end()).max().unwrap_or(offset);
            while from < until {
                let boundary = next_boundary(from, self.phase, piece_max as u64);
                let is_as_asked = asks_for_whole && (boundary - from) as usize == piece_max;
                let Some(piece) = self.ask(from..boundary, is_as_asked, now) else { break };
                asked.push(piece);
                from = boundary;
            }
        }
        let (mut parts, gaps) = self.covering(offset..end, now);
        if way != Way::Elsewhere && writes_beside {
            // The kernel drops a file's pages when it learns of a new modification time, and asks
            // again for what it had.
            for gap in gaps.iter().filter(|gap| gap.start < now.file_end) {
                let Some(piece) = self.ask(gap.clone(), false, now) else { break };
                asked.push(piece);
            }
            parts = self.covering(offset..end, now).0;
        }
        let is_whole = parts.iter().map(|part| part.range.end - part.range.start).sum::<u64>() == len as u64;
        // What lies behind the reader is not wanted again, apart from reads that arrive out of
        // order.
        let back = if writes_beside { BACK_BYTES } else { SLACK };
        self.pieces.retain(|piece| piece.end() + back > offset);
        (asked, is_whole.then_some(parts))
    }

    /// Whether the program has written the file since the current run of sequential reads began.
    fn writes_beside(&self, now: &Now<'_>) -> bool {
        now.own_writes.now() > self.began
    }

    /// Where a read is, compared with the reads before it. A read elsewhere ends the run, and drops
    /// everything that was read ahead.
    fn go(&mut self, offset: u64, len: usize, ahead_max: usize, now: &Now<'_>) -> Way {
        let end = offset + len as u64;
        let goes_on = offset <= self.next.saturating_add(SLACK) && end.saturating_add(SLACK) >= self.next;
        let goes_back = offset <= self.next && end.saturating_add(BACK_BYTES) >= self.next;
        if !goes_on && goes_back && self.writes_beside(now) {
            return Way::Back;
        }
        if self.streak == 0 || !goes_on {
            self.began = now.own_writes.now();
        }
        if !goes_on {
            (self.streak, self.window, self.next) = (0, 0, end);
            self.density.begin(offset, len);
            self.pieces.clear();
            return Way::Elsewhere;
        }
        let is_further = end > self.next;
        self.next = self.next.max(end);
        self.density.read(len, self.next);
        if is_further {
            self.streak = self.streak.saturating_add(1);
            self.window = (self.window * 2).clamp(WINDOW_MIN, ahead_max.max(WINDOW_MIN));
        }
        Way::On
    }

    /// A new piece for a range; `None` if the budget is used up.
    fn ask(&mut self, range: Range<u64>, is_as_asked: bool, now: &Now<'_>) -> Option<Arc<Piece>> {
        let len = (range.end - range.start) as usize;
        let piece = Arc::new(Piece {
            offset: range.start,
            len,
            generation: now.generation,
            moment: now.own_writes.now(),
            at: Instant::now(),
            is_as_asked,
            _room: self.held.take(len)?,
            state: Mutex::default(),
        });
        self.pieces.push(Arc::clone(&piece));
        Some(piece)
    }

    /// Records the phase of a whole READ that the kernel has asked for.
    fn follow(&mut self, phase: u64) {
        let in_a_row = if self.seen.0 == phase { self.seen.1.saturating_add(1) } else { 1 };
        self.seen = (phase, in_a_row);
        if phase == 0 || in_a_row >= STEADY_MIN {
            self.phase = phase;
        }
    }

    /// Drops data that are not valid any more. A file that was changed other than by writes from
    /// here may be changed again, so the program first has to show again that it reads
    /// sequentially.
    fn drop_useless(&mut self, now: &Now<'_>) {
        let before = self.pieces.len();
        self.pieces.retain(|piece| piece.generation == now.generation);
        if self.pieces.len() < before {
            (self.streak, self.window) = (0, 0);
        }
        self.drop_old();
    }

    /// Drops data that are too old to be given out.
    fn drop_old(&mut self) {
        self.pieces.retain(|piece| piece.at.elapsed() < self.age_max);
    }

    /// The parts of pieces that make up a range, and the gaps between them.
    fn covering(&self, range: Range<u64>, now: &Now<'_>) -> (Vec<Part>, Vec<Range<u64>>) {
        let mut good = Vec::new();
        for piece in &self.pieces {
            let overlap = range.start.max(piece.offset)..range.end.min(piece.end());
            if !overlap.is_empty() && piece.generation == now.generation {
                let untouched = now.own_writes.untouched(overlap, piece.moment);
                good.extend(untouched.into_iter().map(|range| Part { piece: Arc::clone(piece), range }));
            }
        }
        // Of parts that begin at the same offset, the longest comes first.
        good.sort_by_key(|part| (part.range.start, std::cmp::Reverse(part.range.end)));
        let (mut at, mut parts, mut gaps) = (range.start, Vec::new(), Vec::new());
        for mut part in good {
            if part.range.end <= at {
                continue;
            }
            if part.range.start > at {
                gaps.push(at..part.range.start);
            }
            part.range.start = part.range.start.max(at);
            at = part.range.end;
            parts.push(part);
        }
        if at < range.end {
            gaps.push(at..range.end);
        }
        (parts, gaps)
    }
}

/// The first offset greater than `from` that is a multiple of `size` plus `phase`.
const fn next_boundary(from: u64, phase: u64, size: u64) -> u64 {
    let shift = (size - phase) % size;
    ((from + shift) / size + 1) * size - shift
}

impl Core {
    /// Drops data that are too old to be given out, of all open files: a program that has paused
    /// does not do it.
    pub(crate) fn drop_old_ahead(&self) {
        for file in self.files.all() {
            file.ahead.lock().unwrap_or_else(PoisonError::into_inner).drop_old();
        }
    }

    /// Reads from data that were read ahead, and reads further ahead. Returns `None` if the range
    /// has to be read from the server.
    pub(crate) async fn read_what_is_ahead(
        self: &Arc<Self>,
        file: &Arc<OpenFile>,
        offset: u64,
        len: usize,
    ) -> Option<Result<Bytes, Errno>> {
        let (asked, parts, file_end) = {
            let state = file.inode.lock();
            let now = Now::of(&state);
            let mut ahead = file.ahead.lock().unwrap_or_else(PoisonError::into_inner);
            let (asked, parts) = ahead.advance((offset, len), (self.sizes.0, self.ahead_max), &now);
            (asked, parts, now.file_end)
        };
        for piece in asked {
            self.fill(file, piece);
        }
        let parts = parts?;
        if parts.iter().any(|part| part.piece.is_too_much_for(len, file_end)) {
            return None;
        }
        for part in &parts {
            part.piece.arrival().await;
        }
        let state = file.inode.lock();
        let now = Now::of(&state);
        let are_good = parts.iter().all(|part| part.is_good(&now));
        drop(state);
        // The file may have been changed during the wait.
        if !are_good {
            return None;
        }
        let outcome = self.join(&parts, len, file_end)?;
        if let Ok(bytes) = &outcome
            && bytes.len() < len
            && !tells_end(&parts, offset + bytes.len() as u64, &Now::of(&file.inode.lock()))
        {
            return None;
        }
        Some(outcome)
    }

    /// Joins parts to the bytes of one reply. Returns `None` if the data of a part are gone.
    fn join(&self, parts: &[Part], len: usize, file_end: u64) -> Option<Result<Bytes, Errno>> {
        if let [Part { piece, range }] = parts
            && piece.offset == range.start
            && len as u64 >= piece.expected(file_end)
            && let Some(pipe) = piece.take_pipe(len)
        {
            return Some(Ok(Bytes::Fresh(Fresh::Pipe(pipe))));
        }
        let mut all = Vec::new();
        for Part { piece, range } in parts {
            let data = match piece.in_memory(&self.buffers, &self.pipes)? {
                Ok(data) => data,
                Err(error) => return Some(Err(error)),
            };
            let within = |at: u64| ((at - piece.offset) as usize).min(data.len());
            let (from, to) = (within(range.start), within(range.end));
            if parts.len() == 1 {
                return Some(Ok(Bytes::Part(data, from, to)));
            }
            let is_short = range.end - piece.offset > data.len() as u64;
            all.extend_from_slice(data.get(from..to).unwrap_or_default());
            if is_short {
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
#[expect(clippy::single_range_in_vec_init, reason = "ranges are what is compared")]
mod tests {
    use super::piece::HELD_BYTES_MAX;
    use super::*;
    use std::sync::LazyLock;
    use std::sync::atomic::Ordering;

    const MIB: u64 = 1 << 20;
    const END: u64 = 64 * MIB;
    const SIZES: (usize, usize) = (1 << 20, 8 << 20);

    static NOTHING_WRITTEN: LazyLock<OwnWrites> = LazyLock::new(OwnWrites::default);

    /// A file that was never written here.
    fn unwritten() -> Now<'static> {
        Now { generation: 0, own_writes: &NOTHING_WRITTEN, file_end: END }
    }

    fn advance(ahead: &mut Ahead, offset: u64, len: usize) -> (Vec<Arc<Piece>>, Option<Vec<Part>>) {
        ahead.advance((offset, len), SIZES, &unwritten())
    }

    #[test]
    fn a_piece_whose_read_panics_is_an_error_to_who_waits_for_it() {
        let mut ahead = Ahead::new(Duration::MAX, Arc::default());
        let piece = (0..4).flat_map(|at| advance(&mut ahead, at * MIB, 1 << 20).0).next();
        let piece = piece.unwrap();
        drop(Filling(Arc::clone(&piece)));
        assert!(matches!(piece.lock().outcome, Some(Err(_))));
    }

    #[test]
    fn pieces_stay_in_pipes_only_while_the_kernel_asks_for_whole_ones() {
        let mut ahead = Ahead::new(Duration::MAX, Arc::default());
        let mut ask = |offset, len| advance(&mut ahead, offset, len).0;
        let whole: Vec<_> = (0..5).flat_map(|at| ask(at * MIB, 1 << 20)).collect();
        assert!(!whole.is_empty() && whole.iter().all(|piece| piece.is_as_asked));
        let parts: Vec<_> = (40..50).flat_map(|at| ask(at * MIB / 8, 128 << 10)).collect();
        assert!(!parts.is_empty() && parts.iter().all(|piece| !piece.is_as_asked));
    }

    /// How many of the kernel's whole READs are exactly one piece.
    fn as_asked(growing: &[(u64, usize)], steady_from: u64) -> usize {
        let steady = (0..30).map(|at| (steady_from + at * MIB, 1 << 20));
        let mut ahead = Ahead::new(Duration::MAX, Arc::default());
        let asked = growing.iter().copied().chain(steady);
        asked.fold(0, |count, (offset, len)| {
            let (_, covering) = advance(&mut ahead, offset, len);
            let Some([Part { piece, .. }]) = covering.as_deref() else { return count };
            count + usize::from(piece.is_as_asked && (piece.offset, piece.len) == (offset, len))
        })
    }

    #[test]
    fn whole_pieces_lie_as_the_kernel_asks_for_them() {
        const KIB: u64 = 1 << 10;
        // The kernel's read-ahead doubles, and continues from where it reached its full size.
        assert!(as_asked(&[(0, 256 << 10), (256 * KIB, 512 << 10)], 768 * KIB) > 15);
        assert!(as_asked(&[(0, 16 << 10), (16 * KIB, 64 << 10), (80 * KIB, 512 << 10)], 592 * KIB) > 15);
        // Or it returns to multiples of its size after some whole READs.
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

    fn step(ahead: &mut Ahead, offset: u64, len: usize) -> (usize, bool) {
        let (asked, covering) = advance(ahead, offset, len);
        (asked.len(), covering.is_some())
    }

    /// The parts of a range, if they cover all of it.
    fn covering(ahead: &Ahead, range: Range<u64>) -> Option<Vec<Part>> {
        let (parts, gaps) = ahead.covering(range, &unwritten());
        gaps.is_empty().then_some(parts)
    }

    #[test]
    fn a_reader_that_goes_on_is_read_ahead_of_further_and_further() {
        let mut ahead = Ahead::new(Duration::MAX, Arc::default());
        let len = 128 << 10;
        let mut asked = 0;
        for at in 0..64_u64 {
            let (more, covered) = step(&mut ahead, at * len as u64, len);
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
            step(&mut ahead, at * 4096, 4096);
        });
        assert!(ahead.pieces.len() > 1);
        assert_eq!(covering(&ahead, 8 * 4096..9 * 4096).unwrap().len(), 1);
        assert_eq!(covering(&ahead, MIB - 4096..MIB + 4096).unwrap().len(), 2);
        assert!(covering(&ahead, END..END + 1).is_none());
    }

    #[test]
    fn random_reads_ask_for_nothing_in_advance() {
        let mut ahead = Ahead::new(Duration::MAX, Arc::default());
        for at in [7, 40, 3, 55, 21, 60, 2] {
            assert_eq!(step(&mut ahead, at * MIB, 4096), (0, false));
        }
    }

    #[test]
    fn nothing_is_asked_for_beyond_the_end() {
        let mut ahead = Ahead::new(Duration::MAX, Arc::default());
        (0..4).for_each(|at| {
            step(&mut ahead, END - MIB + at * 1024, 1024);
        });
        assert!(ahead.pieces.iter().all(|piece| piece.offset < END));
    }

    #[test]
    fn what_is_too_old_is_not_given_out() {
        for (age_max, is_given_out) in [(Duration::MAX, true), (Duration::ZERO, false)] {
            let mut ahead = Ahead::new(age_max, Arc::default());
            (0..4).for_each(|at| {
                step(&mut ahead, at * 4096, 4096);
            });
            let given_out: Vec<_> = covering(&ahead, 4 * 4096..5 * 4096).into_iter().flatten().collect();
            let (_, covering) = advance(&mut ahead, 4 * 4096, 4096);
            let again = covering.is_some_and(|pieces| Arc::ptr_eq(&pieces[0].piece, &given_out[0].piece));
            assert_eq!(again, is_given_out, "{age_max:?}");
            ahead.drop_old();
            assert_eq!(!ahead.pieces.is_empty(), is_given_out, "{age_max:?}");
        }
    }

    #[test]
    fn all_files_together_read_so_far_ahead_and_a_reader_that_pauses_makes_room() {
        let held = Arc::new(ByteBudget::default());
        let mut files: Vec<_> = (0..60).map(|_| Ahead::new(Duration::MAX, Arc::clone(&held))).collect();
        for ahead in &mut files {
            (0..8).for_each(|at| {
                step(ahead, at * MIB, 1 << 20);
            });
        }
        assert_eq!(held.bytes.load(Ordering::Relaxed), HELD_BYTES_MAX);
        assert!(files[59].pieces.is_empty() && step(&mut files[59], 8 * MIB, 1 << 20) == (0, false));
        files.truncate(1);
        files[0].age_max = Duration::ZERO;
        files[0].drop_old();
        assert_eq!(held.bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_change_elsewhere_makes_what_was_read_ahead_useless_and_reading_on_is_to_be_proven_anew() {
        let mut ahead = Ahead::new(Duration::MAX, Arc::default());
        (0..4).for_each(|at| {
            step(&mut ahead, at * 4096, 4096);
        });
        assert!(!ahead.pieces.is_empty());
        let changed = |at: u64| Now { generation: 1 + at / 100, ..unwritten() };
        for at in 4..4 + u64::from(STREAK_MIN) - 1 {
            let (asked, covering) = ahead.advance((at * 4096, 4096), SIZES, &changed(at));
            assert!(asked.is_empty() && covering.is_none() && ahead.pieces.is_empty());
        }
        let at = 4 + u64::from(STREAK_MIN);
        assert!(!ahead.advance((at * 4096, 4096), SIZES, &changed(at)).0.is_empty());
    }

    #[test]
    fn a_write_cuts_its_range_out_of_what_was_read_ahead_and_no_more() {
        let mut ahead = Ahead::new(Duration::MAX, Arc::default());
        let mut writes = OwnWrites::default();
        let read = |ahead: &mut Ahead, writes: &OwnWrites, at: u64| {
            let now = Now { own_writes: writes, ..unwritten() };
            let (asked, covering) = ahead.advance((at * 4096, 8192), SIZES, &now);
            let parts = covering.into_iter().flatten().map(|part| part.range).collect::<Vec<_>>();
            (asked.iter().map(|piece| piece.offset..piece.end()).collect::<Vec<_>>(), parts)
        };
        (0..4).for_each(|at| {
            read(&mut ahead, &writes, at);
        });
        writes.note(5 * 4096..6 * 4096);
        let (asked, parts) = read(&mut ahead, &writes, 4);
        assert!(asked.contains(&(5 * 4096..6 * 4096)), "{asked:?}");
        assert_eq!(parts, [4 * 4096..5 * 4096, 5 * 4096..6 * 4096]);
        assert_eq!(read(&mut ahead, &writes, 4).0, [], "it was read again");
        // The write has reached the server: data that were requested earlier may be from before it.
        writes.note(5 * 4096..6 * 4096);
        assert_eq!(read(&mut ahead, &writes, 4).0, [5 * 4096..6 * 4096]);
    }

    /// How much is fetched for a kernel that asks for some whole READs, and asks for them again
    /// after each block that the program writes back.
    #[test]
    fn what_the_kernel_asks_for_again_after_each_write_is_fetched_once() {
        const BLOCK: u64 = 4096;
        let size = 16 * MIB;
        for whole_reads in [1, 2, 4] {
            let (mut ahead, mut writes) = (Ahead::new(Duration::MAX, Arc::default()), OwnWrites::default());
            let mut fetched = 0;
            for at in (0..size).step_by(BLOCK as usize) {
                for read in 0..whole_reads {
                    let (from, to) = (at + read * MIB, (at + (read + 1) * MIB).min(size));
                    if from >= to {
                        continue;
                    }
                    let now = Now { own_writes: &writes, file_end: size, ..unwritten() };
                    let (asked, covering) = ahead.advance((from, (to - from) as usize), SIZES, &now);
                    fetched += asked.iter().map(|piece| piece.end().min(size) - piece.offset).sum::<u64>();
                    fetched += if covering.is_none() { to - from } else { 0 };
                }
                writes.note(at..at + BLOCK);
                writes.note(at..at + BLOCK);
            }
            let more = fetched.saturating_sub(size);
            assert!(more <= 2 * whole_reads * MIB, "{fetched} with {whole_reads} at once");
        }
    }

    #[test]
    fn a_part_that_is_written_while_it_is_waited_for_is_not_good() {
        let mut ahead = Ahead::new(Duration::MAX, Arc::default());
        (0..4).for_each(|at| {
            step(&mut ahead, at * 4096, 4096);
        });
        let parts = advance(&mut ahead, 4 * 4096, 4096).1.unwrap();
        assert!(parts.iter().all(|part| part.is_good(&unwritten())));
        let mut writes = OwnWrites::default();
        writes.note(0..4096);
        assert!(parts[0].is_good(&Now { own_writes: &writes, ..unwritten() }), "elsewhere");
        writes.note(4 * 4096..4 * 4096 + 1);
        assert!(!parts[0].is_good(&Now { own_writes: &writes, ..unwritten() }));
        assert!(!parts[0].is_good(&Now { generation: 1, ..unwritten() }));
    }

    #[test]
    fn a_piece_that_ended_with_the_file_does_not_tell_its_end_once_it_was_made_longer() {
        let mut ahead = Ahead::new(Duration::MAX, Arc::default());
        (0..4).for_each(|at| {
            step(&mut ahead, at * 4096, 4096);
        });
        let parts = advance(&mut ahead, 4 * 4096, 4096).1.unwrap();
        let ends_at = 4 * 4096 + 100;
        let mut writes = OwnWrites::default();
        writes.note(0..ends_at);
        assert!(tells_end(&parts, ends_at, &Now { own_writes: &writes, ..unwritten() }), "before it");
        // Behind what is asked for. Between the end of the piece and the write there is a hole now,
        // not the end of the file.
        writes.note(10 * MIB..10 * MIB + 1);
        assert!(!tells_end(&parts, ends_at, &Now { own_writes: &writes, ..unwritten() }));
    }

    #[test]
    fn a_program_that_leaves_out_most_is_not_read_ahead_of() {
        let mut ahead = Ahead::new(Duration::MAX, Arc::default());
        let asked: usize = (0..100).map(|at| step(&mut ahead, at * 65_536, 4096).0).sum();
        assert_eq!(asked, 0);
    }
}
