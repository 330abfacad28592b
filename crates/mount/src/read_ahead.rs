//! Read-ahead for programs that read sequentially.
//!
//! The kernel reads ahead 128 KiB by default, which is too little for a network. So each open file
//! asks for whole READs beyond what the program has read. The window grows as long as the program
//! reads sequentially, and reads most of what it passes. Data that were read ahead are used only if
//! the file is not known to have been changed by another client since, the range was not written
//! from here since, and the data are not old.
//!
//! A kernel whose own read-ahead is long enough asks for whole READs, usually once for each. Then
//! the data of each READ wait in the pipe into which they were received, and go to the kernel from
//! there without passing through memory of this process.

mod piece;

use crate::core::Core;
use crate::files::OpenFile;
use crate::inode::State;
use crate::own_writes::{OwnWrites, WriteSequence};
use crate::reads::{ReadData, ReplyData};
use fuser::Errno;
pub(crate) use piece::ByteBudget;
use piece::{Content, Piece, PieceRead};
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
const PIPE_BYTES_MIN: usize = 512 << 10;
/// After this many whole READs in a row with the same phase, the kernel is assumed to keep the
/// phase. While the kernel's read-ahead grows, a few whole READs may have another phase.
const PHASE_STREAK_MIN: u32 = 4;

/// The read-ahead of one open file.
#[derive(Debug, Default)]
pub(crate) struct ReadAhead {
    budget: Arc<ByteBudget>,
    /// Data are used for this long after they were requested.
    age_max: Duration,
    next: u64,
    streak: u32,
    window: usize,
    density: Density,
    /// When the current run of sequential reads began.
    run_began: WriteSequence,
    /// Pieces begin at a multiple of their size plus this, as the kernel's whole READs do.
    phase: u64,
    /// The phase of the kernel's last whole READ, and how many in a row had that phase.
    last_phase: (u64, u32),
    /// Pieces that were read ahead, and pieces that were read again because their range was
    /// written; in no particular order.
    pieces: Vec<Arc<Piece>>,
}

/// What is known of the file when a program reads.
#[derive(Debug, Clone, Copy)]
struct FileSnapshot<'a> {
    generation: u64,
    own_writes: &'a OwnWrites,
    file_end: u64,
}

impl<'a> FileSnapshot<'a> {
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
    fn is_valid(&self, now: &FileSnapshot<'_>) -> bool {
        self.piece.generation == now.generation
            && now.own_writes.unwritten_since(self.range.clone(), self.piece.write_sequence)
                == [self.range.clone()]
    }
}

/// Where a read is, compared with the reads before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Locality {
    Sequential,
    /// Where the kernel has read already, and has dropped its pages.
    Reread,
    Random,
}

/// Whether the file still ends at `at`, where the data of these parts end. Any write behind that
/// offset since the pieces were requested has made the file longer.
fn ends_file(parts: &[Part], at: u64, now: &FileSnapshot<'_>) -> bool {
    let behind = at..u64::MAX;
    parts.iter().all(|part| {
        now.own_writes.unwritten_since(behind.clone(), part.piece.write_sequence).first() == Some(&behind)
    })
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

impl ReadAhead {
    /// Data are used for `age_max` after they were requested.
    pub(crate) fn new(age_max: Duration, budget: Arc<ByteBudget>) -> Self {
        Self { age_max, budget, ..Self::default() }
    }

    /// Handles a read of a program. Returns the pieces to request now, and the parts of pieces that
    /// make up the range, if the pieces cover all of it.
    fn advance(
        &mut self,
        (offset, len): (u64, usize),
        (piece_max, window_max): (usize, usize),
        now: &FileSnapshot<'_>,
    ) -> (Vec<Arc<Piece>>, Option<Vec<Part>>) {
        let end = offset + len as u64;
        self.drop_stale(now);
        let locality = self.classify(offset, len, window_max, now);
        let is_writing = self.is_writing(now);
        // Writes cut ranges out of pieces, and make the kernel ask for parts of pieces again.
        let is_full_size = len == piece_max && !is_writing;
        if is_full_size {
            self.record_phase(offset % piece_max as u64);
        }
        let mut requested = Vec::new();
        if locality == Locality::Sequential && self.streak >= STREAK_MIN && self.density.is_high(self.next) {
            let until = (self.next + self.window as u64).min(now.file_end);
            let mut from = self.pieces.iter().map(|piece| piece.end()).max().unwrap_or(offset);
            while from < until {
                let boundary = next_boundary(from, self.phase, piece_max as u64);
                let matches_request = is_full_size && (boundary - from) as usize == piece_max;
                let Some(piece) = self.request_piece(from..boundary, matches_request, now) else { break };
                requested.push(piece);
                from = boundary;
            }
        }
        let (mut parts, gaps) = self.covering(offset..end, now);
        if locality != Locality::Random && is_writing {
            // The kernel drops a file's pages when it learns of a new modification time, and asks
            // again for what it had.
            for gap in gaps.iter().filter(|gap| gap.start < now.file_end) {
                let Some(piece) = self.request_piece(gap.clone(), false, now) else { break };
                requested.push(piece);
            }
            parts = self.covering(offset..end, now).0;
        }
        let is_whole = parts.iter().map(|part| part.range.end - part.range.start).sum::<u64>() == len as u64;
        // What lies behind the reader is not wanted again, apart from reads that arrive out of
        // order.
        let back = if is_writing { BACK_BYTES } else { SLACK };
        self.pieces.retain(|piece| piece.end() + back > offset);
        (requested, is_whole.then_some(parts))
    }

    /// Whether the program has written the file since the current run of sequential reads began.
    fn is_writing(&self, now: &FileSnapshot<'_>) -> bool {
        now.own_writes.current() > self.run_began
    }

    /// Where a read is, compared with the reads before it. A random read ends the run, and drops
    /// everything that was read ahead.
    fn classify(&mut self, offset: u64, len: usize, window_max: usize, now: &FileSnapshot<'_>) -> Locality {
        let end = offset + len as u64;
        let is_sequential =
            offset <= self.next.saturating_add(SLACK) && end.saturating_add(SLACK) >= self.next;
        let is_reread = offset <= self.next && end.saturating_add(BACK_BYTES) >= self.next;
        if !is_sequential && is_reread && self.is_writing(now) {
            return Locality::Reread;
        }
        if self.streak == 0 || !is_sequential {
            self.run_began = now.own_writes.current();
        }
        if !is_sequential {
            (self.streak, self.window, self.next) = (0, 0, end);
            self.density.begin(offset, len);
            self.pieces.clear();
            return Locality::Random;
        }
        let is_further = end > self.next;
        self.next = self.next.max(end);
        self.density.read(len, self.next);
        if is_further {
            self.streak = self.streak.saturating_add(1);
            self.window = (self.window * 2).clamp(WINDOW_MIN, window_max.max(WINDOW_MIN));
        }
        Locality::Sequential
    }

    /// A new piece for a range; `None` if the budget is used up.
    fn request_piece(
        &mut self,
        range: Range<u64>,
        matches_request: bool,
        now: &FileSnapshot<'_>,
    ) -> Option<Arc<Piece>> {
        let len = (range.end - range.start) as usize;
        let piece = Arc::new(Piece {
            offset: range.start,
            len,
            generation: now.generation,
            write_sequence: now.own_writes.current(),
            at: Instant::now(),
            matches_request,
            _reservation: self.budget.take(len)?,
            state: Mutex::default(),
        });
        self.pieces.push(Arc::clone(&piece));
        Some(piece)
    }

    /// Records the phase of a whole READ that the kernel has asked for.
    fn record_phase(&mut self, phase: u64) {
        let in_a_row = if self.last_phase.0 == phase { self.last_phase.1.saturating_add(1) } else { 1 };
        self.last_phase = (phase, in_a_row);
        if phase == 0 || in_a_row >= PHASE_STREAK_MIN {
            self.phase = phase;
        }
    }

    /// Drops data that are not valid any more. A file that was changed other than by writes from
    /// here may be changed again, so the program first has to show again that it reads
    /// sequentially.
    fn drop_stale(&mut self, now: &FileSnapshot<'_>) {
        let before = self.pieces.len();
        self.pieces.retain(|piece| piece.generation == now.generation);
        if self.pieces.len() < before {
            (self.streak, self.window) = (0, 0);
        }
        self.drop_expired();
    }

    /// Drops data that are too old to be used.
    fn drop_expired(&mut self) {
        self.pieces.retain(|piece| piece.at.elapsed() < self.age_max);
    }

    /// The parts of pieces that make up a range, and the gaps between them.
    fn covering(&self, range: Range<u64>, now: &FileSnapshot<'_>) -> (Vec<Part>, Vec<Range<u64>>) {
        let mut valid = Vec::new();
        for piece in &self.pieces {
            let overlap = range.start.max(piece.offset)..range.end.min(piece.end());
            if !overlap.is_empty() && piece.generation == now.generation {
                let unwritten_since = now.own_writes.unwritten_since(overlap, piece.write_sequence);
                valid.extend(
                    unwritten_since.into_iter().map(|range| Part { piece: Arc::clone(piece), range }),
                );
            }
        }
        // Of parts that begin at the same offset, the longest comes first.
        valid.sort_by_key(|part| (part.range.start, std::cmp::Reverse(part.range.end)));
        let (mut at, mut parts, mut gaps) = (range.start, Vec::new(), Vec::new());
        for mut part in valid {
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
    /// Drops data that are too old to be used, of all open files: a program that has paused
    /// does not do it.
    pub(crate) fn drop_expired_read_ahead(&self) {
        for file in self.files.all() {
            file.read_ahead.lock().unwrap_or_else(PoisonError::into_inner).drop_expired();
        }
    }

    /// Reads from data that were read ahead, and reads further ahead. Returns `None` if the range
    /// has to be read from the server.
    pub(crate) async fn read_from_read_ahead(
        self: &Arc<Self>,
        file: &Arc<OpenFile>,
        offset: u64,
        len: usize,
    ) -> Option<Result<ReplyData, Errno>> {
        let (requested, parts, file_end) = {
            let state = file.inode.lock();
            let now = FileSnapshot::of(&state);
            let mut read_ahead = file.read_ahead.lock().unwrap_or_else(PoisonError::into_inner);
            let (requested, parts) =
                read_ahead.advance((offset, len), (self.sizes.0, self.read_ahead_max), &now);
            (requested, parts, now.file_end)
        };
        for piece in requested {
            self.fill(file, piece);
        }
        let parts = parts?;
        if parts.iter().any(|part| part.piece.is_costly_for(len, file_end)) {
            return None;
        }
        for part in &parts {
            part.piece.completed().await;
        }
        let state = file.inode.lock();
        let now = FileSnapshot::of(&state);
        let are_valid = parts.iter().all(|part| part.is_valid(&now));
        drop(state);
        // The file may have been changed during the wait.
        if !are_valid {
            return None;
        }
        let outcome = self.join(&parts, len, file_end)?;
        if let Ok(bytes) = &outcome
            && bytes.len() < len
            && !ends_file(&parts, offset + bytes.len() as u64, &FileSnapshot::of(&file.inode.lock()))
        {
            return None;
        }
        Some(outcome)
    }

    /// Joins parts to the bytes of one reply. Returns `None` if the data of a part are gone.
    fn join(&self, parts: &[Part], len: usize, file_end: u64) -> Option<Result<ReplyData, Errno>> {
        if let [Part { piece, range }] = parts
            && piece.offset == range.start
            && len as u64 >= piece.expected(file_end)
            && let Some(pipe) = piece.take_pipe(len)
        {
            return Some(Ok(ReplyData::Whole(ReadData::Pipe(pipe))));
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
                return Some(Ok(ReplyData::Part(data, from, to)));
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
            let piece_read = PieceRead(Arc::clone(&piece));
            let permit = if piece.matches_request && piece.len >= PIPE_BYTES_MIN {
                core.pipes.read_ahead_permit()
            } else {
                None
            };
            let piped = match permit {
                Some(permit) => {
                    let data = core.read_piped(&file, piece.offset, piece.len).await;
                    data.map(|data| (data, permit))
                }
                None => None,
            };
            piece_read.end(match piped {
                Some((Ok(ReadData::Pipe(pipe)), permit)) => Ok(Content::Pipe { pipe, _permit: permit }),
                Some((Ok(ReadData::Memory(buffer)), _)) => Ok(Content::Memory(Arc::new(buffer))),
                Some((Err(error), _)) => Err(error),
                None => {
                    let read = core.read_to_memory(&file, piece.offset, piece.len).await;
                    read.map(|buffer| Content::Memory(Arc::new(buffer)))
                }
            });
        });
    }
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "ranges are what is compared")]
mod tests {
    use super::piece::READ_AHEAD_BYTES_MAX;
    use super::*;
    use std::sync::LazyLock;
    use std::sync::atomic::Ordering;

    const MIB: u64 = 1 << 20;
    const END: u64 = 64 * MIB;
    const SIZES: (usize, usize) = (1 << 20, 8 << 20);

    static NOTHING_WRITTEN: LazyLock<OwnWrites> = LazyLock::new(OwnWrites::default);

    /// A file that was never written here.
    fn unwritten_file() -> FileSnapshot<'static> {
        FileSnapshot { generation: 0, own_writes: &NOTHING_WRITTEN, file_end: END }
    }

    fn advance(read_ahead: &mut ReadAhead, offset: u64, len: usize) -> (Vec<Arc<Piece>>, Option<Vec<Part>>) {
        read_ahead.advance((offset, len), SIZES, &unwritten_file())
    }

    #[test]
    fn a_piece_whose_read_panics_is_an_error_to_who_waits_for_it() {
        let mut read_ahead = ReadAhead::new(Duration::MAX, Arc::default());
        let piece = (0..4).flat_map(|at| advance(&mut read_ahead, at * MIB, 1 << 20).0).next();
        let piece = piece.unwrap();
        drop(PieceRead(Arc::clone(&piece)));
        assert!(matches!(piece.lock().outcome, Some(Err(_))));
    }

    #[test]
    fn pieces_stay_in_pipes_only_while_the_kernel_asks_for_whole_ones() {
        let mut read_ahead = ReadAhead::new(Duration::MAX, Arc::default());
        let mut request_piece = |offset, len| advance(&mut read_ahead, offset, len).0;
        let whole: Vec<_> = (0..5).flat_map(|at| request_piece(at * MIB, 1 << 20)).collect();
        assert!(!whole.is_empty() && whole.iter().all(|piece| piece.matches_request));
        let parts: Vec<_> = (40..50).flat_map(|at| request_piece(at * MIB / 8, 128 << 10)).collect();
        assert!(!parts.is_empty() && parts.iter().all(|piece| !piece.matches_request));
    }

    /// How many of the kernel's whole READs are exactly one piece.
    fn count_matching(growth: &[(u64, usize)], steady_from: u64) -> usize {
        let steady = (0..30).map(|at| (steady_from + at * MIB, 1 << 20));
        let mut read_ahead = ReadAhead::new(Duration::MAX, Arc::default());
        let requested = growth.iter().copied().chain(steady);
        requested.fold(0, |count, (offset, len)| {
            let (_, covering) = advance(&mut read_ahead, offset, len);
            let Some([Part { piece, .. }]) = covering.as_deref() else { return count };
            count + usize::from(piece.matches_request && (piece.offset, piece.len) == (offset, len))
        })
    }

    #[test]
    fn whole_pieces_lie_as_the_kernel_asks_for_them() {
        const KIB: u64 = 1 << 10;
        // The kernel's read-ahead doubles, and continues from where it reached its full size.
        assert!(count_matching(&[(0, 256 << 10), (256 * KIB, 512 << 10)], 768 * KIB) > 15);
        assert!(
            count_matching(&[(0, 16 << 10), (16 * KIB, 64 << 10), (80 * KIB, 512 << 10)], 592 * KIB) > 15
        );
        // Or it returns to multiples of its size after some whole READs.
        let growth = [
            (0, 256 << 10),
            (256 * KIB, 512 << 10),
            (768 * KIB, 1 << 20),
            (1792 * KIB, 1 << 20),
            (2816 * KIB, 256 << 10),
        ];
        assert!(count_matching(&growth, 3 * MIB) > 20);
    }

    #[test]
    fn the_next_boundary_is_greater_than_the_offset() {
        assert_eq!([0, 1, 99, 100].map(|from| next_boundary(from, 0, 100)), [100, 100, 100, 200]);
        assert_eq!([0, 29, 30, 130].map(|from| next_boundary(from, 30, 100)), [30, 30, 130, 230]);
    }

    fn step(read_ahead: &mut ReadAhead, offset: u64, len: usize) -> (usize, bool) {
        let (requested, covering) = advance(read_ahead, offset, len);
        (requested.len(), covering.is_some())
    }

    /// The parts of a range, if they cover all of it.
    fn covering(read_ahead: &ReadAhead, range: Range<u64>) -> Option<Vec<Part>> {
        let (parts, gaps) = read_ahead.covering(range, &unwritten_file());
        gaps.is_empty().then_some(parts)
    }

    #[test]
    fn the_window_of_a_sequential_reader_grows() {
        let mut read_ahead = ReadAhead::new(Duration::MAX, Arc::default());
        let len = 128 << 10;
        let mut requested = 0;
        for at in 0..64_u64 {
            let (more, covered) = step(&mut read_ahead, at * len as u64, len);
            requested += more;
            assert!(covered || at < u64::from(STREAK_MIN), "{at}");
        }
        // 8 MiB were read, and 8 MiB are under way.
        assert_eq!(requested, 16);
        assert!(read_ahead.pieces.len() <= 10, "what was read is let go");
    }

    #[test]
    fn a_reader_waits_for_the_pieces_that_it_reads_and_for_no_others() {
        let mut read_ahead = ReadAhead::new(Duration::MAX, Arc::default());
        (0..8).for_each(|at| {
            step(&mut read_ahead, at * 4096, 4096);
        });
        assert!(read_ahead.pieces.len() > 1);
        assert_eq!(covering(&read_ahead, 8 * 4096..9 * 4096).unwrap().len(), 1);
        assert_eq!(covering(&read_ahead, MIB - 4096..MIB + 4096).unwrap().len(), 2);
        assert!(covering(&read_ahead, END..END + 1).is_none());
    }

    #[test]
    fn random_reads_ask_for_nothing_in_advance() {
        let mut read_ahead = ReadAhead::new(Duration::MAX, Arc::default());
        for at in [7, 40, 3, 55, 21, 60, 2] {
            assert_eq!(step(&mut read_ahead, at * MIB, 4096), (0, false));
        }
    }

    #[test]
    fn nothing_is_asked_for_beyond_the_end() {
        let mut read_ahead = ReadAhead::new(Duration::MAX, Arc::default());
        (0..4).for_each(|at| {
            step(&mut read_ahead, END - MIB + at * 1024, 1024);
        });
        assert!(read_ahead.pieces.iter().all(|piece| piece.offset < END));
    }

    #[test]
    fn data_that_are_too_old_are_not_used() {
        for (age_max, is_valid) in [(Duration::MAX, true), (Duration::ZERO, false)] {
            let mut read_ahead = ReadAhead::new(age_max, Arc::default());
            (0..4).for_each(|at| {
                step(&mut read_ahead, at * 4096, 4096);
            });
            let cached: Vec<_> = covering(&read_ahead, 4 * 4096..5 * 4096).into_iter().flatten().collect();
            let (_, covering) = advance(&mut read_ahead, 4 * 4096, 4096);
            let again = covering.is_some_and(|pieces| Arc::ptr_eq(&pieces[0].piece, &cached[0].piece));
            assert_eq!(again, is_valid, "{age_max:?}");
            read_ahead.drop_expired();
            assert_eq!(!read_ahead.pieces.is_empty(), is_valid, "{age_max:?}");
        }
    }

    #[test]
    fn all_files_together_read_so_far_ahead_and_a_reader_that_pauses_makes_room() {
        let budget = Arc::new(ByteBudget::default());
        let mut files: Vec<_> = (0..60).map(|_| ReadAhead::new(Duration::MAX, Arc::clone(&budget))).collect();
        for read_ahead in &mut files {
            (0..8).for_each(|at| {
                step(read_ahead, at * MIB, 1 << 20);
            });
        }
        assert_eq!(budget.bytes.load(Ordering::Relaxed), READ_AHEAD_BYTES_MAX);
        assert!(files[59].pieces.is_empty() && step(&mut files[59], 8 * MIB, 1 << 20) == (0, false));
        files.truncate(1);
        files[0].age_max = Duration::ZERO;
        files[0].drop_expired();
        assert_eq!(budget.bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_change_by_another_client_drops_what_was_read_ahead_and_ends_the_sequential_run() {
        let mut read_ahead = ReadAhead::new(Duration::MAX, Arc::default());
        (0..4).for_each(|at| {
            step(&mut read_ahead, at * 4096, 4096);
        });
        assert!(!read_ahead.pieces.is_empty());
        let changed = |at: u64| FileSnapshot { generation: 1 + at / 100, ..unwritten_file() };
        for at in 4..4 + u64::from(STREAK_MIN) - 1 {
            let (requested, covering) = read_ahead.advance((at * 4096, 4096), SIZES, &changed(at));
            assert!(requested.is_empty() && covering.is_none() && read_ahead.pieces.is_empty());
        }
        let at = 4 + u64::from(STREAK_MIN);
        assert!(!read_ahead.advance((at * 4096, 4096), SIZES, &changed(at)).0.is_empty());
    }

    #[test]
    fn a_write_cuts_its_range_out_of_what_was_read_ahead_and_no_more() {
        let mut read_ahead = ReadAhead::new(Duration::MAX, Arc::default());
        let mut writes = OwnWrites::default();
        let read = |read_ahead: &mut ReadAhead, writes: &OwnWrites, at: u64| {
            let now = FileSnapshot { own_writes: writes, ..unwritten_file() };
            let (requested, covering) = read_ahead.advance((at * 4096, 8192), SIZES, &now);
            let parts = covering.into_iter().flatten().map(|part| part.range).collect::<Vec<_>>();
            (requested.iter().map(|piece| piece.offset..piece.end()).collect::<Vec<_>>(), parts)
        };
        (0..4).for_each(|at| {
            read(&mut read_ahead, &writes, at);
        });
        writes.record(5 * 4096..6 * 4096);
        let (requested, parts) = read(&mut read_ahead, &writes, 4);
        assert!(requested.contains(&(5 * 4096..6 * 4096)), "{requested:?}");
        assert_eq!(parts, [4 * 4096..5 * 4096, 5 * 4096..6 * 4096]);
        assert_eq!(read(&mut read_ahead, &writes, 4).0, [], "it was read again");
        // The write has reached the server: data that were requested earlier may be from before it.
        writes.record(5 * 4096..6 * 4096);
        assert_eq!(read(&mut read_ahead, &writes, 4).0, [5 * 4096..6 * 4096]);
    }

    /// How much is fetched for a kernel that asks for some whole READs, and asks for them again
    /// after each block that the program writes back.
    #[test]
    fn what_the_kernel_asks_for_again_after_each_write_is_fetched_once() {
        const BLOCK: u64 = 4096;
        let size = 16 * MIB;
        for whole_reads in [1, 2, 4] {
            let (mut read_ahead, mut writes) =
                (ReadAhead::new(Duration::MAX, Arc::default()), OwnWrites::default());
            let mut fetched = 0;
            for at in (0..size).step_by(BLOCK as usize) {
                for read in 0..whole_reads {
                    let (from, to) = (at + read * MIB, (at + (read + 1) * MIB).min(size));
                    if from >= to {
                        continue;
                    }
                    let now = FileSnapshot { own_writes: &writes, file_end: size, ..unwritten_file() };
                    let (requested, covering) = read_ahead.advance((from, (to - from) as usize), SIZES, &now);
                    fetched +=
                        requested.iter().map(|piece| piece.end().min(size) - piece.offset).sum::<u64>();
                    fetched += if covering.is_none() { to - from } else { 0 };
                }
                writes.record(at..at + BLOCK);
                writes.record(at..at + BLOCK);
            }
            let more = fetched.saturating_sub(size);
            assert!(more <= 2 * whole_reads * MIB, "{fetched} with {whole_reads} at once");
        }
    }

    #[test]
    fn a_part_that_is_written_while_it_is_waited_for_is_not_valid() {
        let mut read_ahead = ReadAhead::new(Duration::MAX, Arc::default());
        (0..4).for_each(|at| {
            step(&mut read_ahead, at * 4096, 4096);
        });
        let parts = advance(&mut read_ahead, 4 * 4096, 4096).1.unwrap();
        assert!(parts.iter().all(|part| part.is_valid(&unwritten_file())));
        let mut writes = OwnWrites::default();
        writes.record(0..4096);
        assert!(parts[0].is_valid(&FileSnapshot { own_writes: &writes, ..unwritten_file() }), "elsewhere");
        writes.record(4 * 4096..4 * 4096 + 1);
        assert!(!parts[0].is_valid(&FileSnapshot { own_writes: &writes, ..unwritten_file() }));
        assert!(!parts[0].is_valid(&FileSnapshot { generation: 1, ..unwritten_file() }));
    }

    #[test]
    fn a_piece_that_ended_with_the_file_does_not_tell_its_end_once_it_was_made_longer() {
        let mut read_ahead = ReadAhead::new(Duration::MAX, Arc::default());
        (0..4).for_each(|at| {
            step(&mut read_ahead, at * 4096, 4096);
        });
        let parts = advance(&mut read_ahead, 4 * 4096, 4096).1.unwrap();
        let ends_at = 4 * 4096 + 100;
        let mut writes = OwnWrites::default();
        writes.record(0..ends_at);
        assert!(
            ends_file(&parts, ends_at, &FileSnapshot { own_writes: &writes, ..unwritten_file() }),
            "before it"
        );
        // Behind what is asked for. Between the end of the piece and the write there is a hole now,
        // not the end of the file.
        writes.record(10 * MIB..10 * MIB + 1);
        assert!(!ends_file(&parts, ends_at, &FileSnapshot { own_writes: &writes, ..unwritten_file() }));
    }

    #[test]
    fn a_program_that_leaves_out_most_is_not_read_ahead_of() {
        let mut read_ahead = ReadAhead::new(Duration::MAX, Arc::default());
        let requested: usize = (0..100).map(|at| step(&mut read_ahead, at * 65_536, 4096).0).sum();
        assert_eq!(requested, 0);
    }
}
