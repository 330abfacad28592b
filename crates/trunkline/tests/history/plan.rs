//! The plan of a round, drawn from its seed: how many processes and mounts, which options, and
//! which kinds of files. Workers draw the same plan from the same seed.

use crate::op::AccessMethod;
use fastrand::Rng;

/// The options of a mount.
const OPTIONS: [&str; 10] = [
    "nolock",
    "nolock,nconnect=2",
    "nolock,nconnect=4",
    "nconnect=2",
    "nconnect=4",
    "nolock,nconnect=2,noac",
    "nolock,nconnect=2,actimeo=0",
    "nolock,nconnect=2,sync",
    "nolock,nconnect=4,rsize=4096,wsize=4096",
    "nolock,nconnect=2,mdconnect=1",
];
const PAGE_BYTES: u64 = 4096;
/// The largest number of cells in one read or write.
pub const RANGE_CELLS_MAX: u32 = 32;
/// The largest number of records in one file, which bounds the checker's memory.
const RECORDS_MAX: u32 = 4096;

/// How the users of a file stay consistent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meeting {
    /// Files stay open, on one mount: a read sees each write that has returned.
    OneMount,
    /// Each read and write opens and closes the file, on several mounts: a write whose file was
    /// closed is visible after the next open.
    CloseToOpen,
    /// Like [`CloseToOpen`](Self::CloseToOpen), and a lock outside the mount allows one user at a
    /// time.
    UnderLock,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Plain,
    /// Also stores through a mapping. Stores have their own halves of pages: during a write(2) of
    /// another process to the same bytes, a mapped store has no guarantee.
    Mapped,
    /// Also truncations.
    Cut,
    /// Written only with O_APPEND.
    Appended,
    /// Each read and write holds a lock of fcntl(2).
    Locked,
}

/// A file that all workers share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePlan {
    pub kind: Kind,
    pub cell_bytes: u32,
    pub cells: u32,
    /// The offset of the first cell.
    pub shift: u64,
    pub writes: Vec<AccessMethod>,
    pub reads: Vec<AccessMethod>,
    /// Each block of this number of cells has one writer; 0 if all writers write everywhere.
    pub owned: u32,
    /// Three of four ranges begin below this cell.
    pub hot: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub seed: u64,
    pub processes: u8,
    pub threads: u8,
    pub mounts: usize,
    pub options: String,
    pub meeting: Meeting,
    pub files: Vec<FilePlan>,
}

/// Properties that differ between places.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Abilities {
    /// O_DIRECT takes any offset and length, as on a mount; otherwise multiples of 512.
    pub direct_anywhere: bool,
    /// Options that replace those that the seed draws.
    pub options: Option<String>,
    /// Whether to include operations with known findings.
    pub known_limits: bool,
}

impl Plan {
    pub fn of(seed: u64, abilities: &Abilities) -> Self {
        let random = &mut Rng::with_seed(seed);
        let meeting = match random.u32(..4) {
            0 => Meeting::CloseToOpen,
            1 => Meeting::UnderLock,
            _ => Meeting::OneMount,
        };
        let mounts = if meeting == Meeting::OneMount { 1 } else { random.usize(2..=3) };
        let drawn = OPTIONS[random.usize(..OPTIONS.len())];
        let options = abilities.options.clone().unwrap_or_else(|| drawn.to_owned());
        let locks = meeting == Meeting::OneMount && has_locks(&options);
        let (processes, threads) = (random.u8(2..=4), random.u8(1..=2));
        let files = (0..random.u32(1..=2)).map(|_| FilePlan::drawn(random, meeting, locks, abilities));
        Self { seed, processes, threads, mounts, options, files: files.collect(), meeting }
    }

    pub fn workers(&self) -> u8 {
        self.processes * self.threads
    }

    /// Writers are counted from 1.
    pub fn writer(&self, process: u8, thread: u8) -> u8 {
        process * self.threads + thread + 1
    }
}

fn has_locks(options: &str) -> bool {
    options.is_empty() || options.split(',').any(|option| option == "nolock")
}

impl FilePlan {
    fn drawn(random: &mut Rng, meeting: Meeting, locks: bool, abilities: &Abilities) -> Self {
        let &Abilities { direct_anywhere, known_limits, .. } = abilities;
        let kinds: &[Kind] = match meeting {
            Meeting::OneMount if locks => {
                &[Kind::Plain, Kind::Plain, Kind::Mapped, Kind::Cut, Kind::Appended, Kind::Locked]
            }
            Meeting::OneMount => &[Kind::Plain, Kind::Plain, Kind::Mapped, Kind::Cut, Kind::Appended],
            // While a process on a mount extends or truncates a file, the kernel takes over no size
            // that another mount has set.
            Meeting::CloseToOpen if !known_limits => &[Kind::Plain],
            Meeting::CloseToOpen => &[Kind::Plain, Kind::Cut],
            Meeting::UnderLock => &[Kind::Plain, Kind::Cut, Kind::Appended],
        };
        let kind = kinds[random.usize(..kinds.len())];
        let (mut writes, mut reads) = ways(kind);
        thin(random, &mut writes);
        thin(random, &mut reads);
        if meeting == Meeting::OneMount && !known_limits {
            keep_mapped_apart(&writes, &mut reads);
        }
        let direct = writes.iter().chain(&reads).any(|method| *method == AccessMethod::Direct);
        let mapped = reads.contains(&AccessMethod::Mapped);
        if kind == Kind::Appended {
            return Self::of_records(random, writes, reads, direct && !direct_anywhere);
        }
        let (aligned, mut cell_bytes) = (direct && !direct_anywhere, [8, 64, 512][random.usize(..3)]);
        let mut shift = [0, 0, 8, 2048, 1, 100][random.usize(..if mapped { 4 } else { 6 })];
        if aligned || kind == Kind::Mapped {
            shift = 0;
        }
        if aligned {
            cell_bytes = 512;
        }
        let pages = [1, 2, 4, 16][random.usize(..4)];
        let cells = pages * PAGE_BYTES as u32 / cell_bytes;
        let owned = if kind == Kind::Cut || random.bool() { 0 } else { random.u32(1..=8) };
        let hot = if random.bool() { cells } else { random.u32(1..=cells) };
        Self { kind, cell_bytes, cells, shift, writes, reads, owned, hot }
    }

    /// A file of appended records.
    fn of_records(
        random: &mut Rng,
        mut writes: Vec<AccessMethod>,
        mut reads: Vec<AccessMethod>,
        aligned: bool,
    ) -> Self {
        if aligned {
            writes.retain(|method| *method != AccessMethod::Direct);
            reads.retain(|method| *method != AccessMethod::Direct);
            writes.push(AccessMethod::Buffered);
            reads.push(AccessMethod::Buffered);
        }
        let cell_bytes = [24, 104, 1000, 4096][random.usize(..4)];
        let (kind, shift, owned, hot) = (Kind::Appended, 0, 0, RECORDS_MAX);
        Self { kind, cell_bytes, cells: RECORDS_MAX, shift, writes, reads, owned, hot }
    }

    pub fn offset(&self, cell: u32) -> u64 {
        self.shift + u64::from(cell) * u64::from(self.cell_bytes)
    }

    /// The length of the file when all its cells exist.
    pub fn bytes(&self) -> u64 {
        self.offset(self.cells)
    }

    /// Whether a cell is written through mappings.
    fn is_mapped(&self, cell: u32) -> bool {
        self.kind == Kind::Mapped && self.offset(cell) % PAGE_BYTES >= PAGE_BYTES / 2
    }

    fn may_write(&self, writer: u8, writers: u8, method: AccessMethod, cell: u32) -> bool {
        let owner = cell.checked_div(self.owned).map(|block| block % u32::from(writers) + 1);
        self.is_mapped(cell) == (method == AccessMethod::Mapped)
            && owner.is_none_or(|owner| owner == u32::from(writer))
    }

    /// Cells to read: the first and the count.
    pub fn range(&self, random: &mut Rng) -> (u32, u32) {
        let first = if random.u32(..4) > 0 { random.u32(..self.hot) } else { random.u32(..self.cells) };
        (first, random.u32(1..=RANGE_CELLS_MAX).min(self.cells - first))
    }

    /// Cells to write; `None` if the random draws hit none that this writer may write.
    pub fn range_of(
        &self,
        random: &mut Rng,
        writer: u8,
        writers: u8,
        method: AccessMethod,
    ) -> Option<(u32, u32)> {
        let may = |cell: &u32| self.may_write(writer, writers, method, *cell);
        let (first, cells) = (0..64).map(|_| self.range(random)).find(|(first, _)| may(first))?;
        Some((first, (first..first + cells).take_while(may).count() as u32))
    }
}

/// All ways to write and to read files of a kind.
fn ways(kind: Kind) -> (Vec<AccessMethod>, Vec<AccessMethod>) {
    use AccessMethod::{Buffered, Copied, Cut, Direct, Dsync, Mapped, Sync};
    match kind {
        Kind::Plain => (vec![Buffered, Sync, Dsync, Direct, Copied], vec![Buffered, Direct, Mapped]),
        Kind::Mapped => (vec![Mapped, Buffered, Sync, Dsync, Copied], vec![Buffered, Mapped]),
        Kind::Cut => (vec![Cut, Buffered, Sync, Dsync, Direct, Copied], vec![Buffered, Direct]),
        Kind::Appended => (vec![Buffered, Sync, Dsync, Direct], vec![Buffered, Direct]),
        Kind::Locked => (vec![Buffered, Sync], vec![Buffered, Direct]),
    }
}

/// A read through a mapping sends no request to the file system, so it may see an old page for a
/// moment after a write has returned.
fn keep_mapped_apart(writes: &[AccessMethod], reads: &mut Vec<AccessMethod>) {
    if writes.iter().any(|method| *method != AccessMethod::Mapped) {
        reads.retain(|method| *method != AccessMethod::Mapped);
    }
    if reads.is_empty() {
        reads.push(AccessMethod::Buffered);
    }
}

/// Leaves some ways out, so that each way also occurs alone.
fn thin(random: &mut Rng, ways: &mut Vec<AccessMethod>) {
    let keep = random.usize(1..=ways.len());
    random.shuffle(&mut ways[..]);
    ways.truncate(keep);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_always_draws_the_same_plan_and_writes_stay_within_the_file() {
        for seed in 0..2000 {
            let abilities = Abilities { direct_anywhere: seed % 2 == 0, options: None, known_limits: false };
            let plan = Plan::of(seed, &abilities);
            assert_eq!(plan, Plan::of(seed, &abilities));
            let random = &mut Rng::with_seed(seed);
            for file in &plan.files {
                assert!(file.cells <= u32::from(u16::MAX) && file.cell_bytes % 8 == 0);
                for (method, writer) in file.writes.iter().zip(1..) {
                    let Some((first, cells)) = file.range_of(random, writer, plan.workers(), *method) else {
                        continue;
                    };
                    assert!(cells > 0 && first + cells <= file.cells, "{file:?}");
                }
            }
        }
    }
}
