//! Calls by file, on one loop, while somebody asks for them.
//!
//! A loop counts by file from the first question on, and until the time for which it was asked is
//! over. Before and after, it has no table and does nothing here.
//!
//! The memory is bounded: when there are [`FILES_MAX`] files, the [`FILES_KEPT`] with most calls of
//! late stay, and what the rest did is counted with the others. Calls of late count more than older
//! ones, because each file's weight is halved again and again. Clients of one file are told apart
//! up to [`KINDS_MAX`] kinds of calls.

use super::clients::CallKind;
use super::{Counts, FileId};
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

/// The files of a loop when some must leave.
const FILES_MAX: usize = 1024;
/// The files that stay then, and that are reported.
const FILES_KEPT: usize = 256;
/// The kinds of calls of one file that have cells of their own; those of further clients are
/// counted with the others.
const KINDS_MAX: usize = 64;
/// How often weights are halved.
const HALVING_INTERVAL: Duration = Duration::from_secs(2);
/// A question cannot make a loop count for longer.
const WATCH_TIME_MAX: Duration = Duration::from_secs(2 * 3600 + 60);

/// Calls that one client made of a file, or of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileCall {
    pub node: usize,
    /// `None` for clients that are not told apart.
    pub network: Option<IpAddr>,
    pub kind: CallKind,
}

/// What calls did. They are few in a file, so that a search is fast.
#[derive(Debug, Default)]
struct Cells(Vec<(FileCall, Counts)>);

impl Cells {
    fn add(&mut self, call: FileCall, counts: &Counts) {
        let is_full = self.0.len() >= KINDS_MAX && !self.0.iter().any(|(other, _)| *other == call);
        let call = if is_full { FileCall { network: None, ..call } } else { call };
        match self.0.iter_mut().find(|(other, _)| *other == call) {
            Some((_, cell)) => cell.add(counts),
            None => self.0.push((call, *counts)),
        }
    }
}

#[derive(Debug, Default)]
struct File {
    weight: u64,
    cells: Cells,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct FileTable {
    since: Duration,
    until: Duration,
    halved: Duration,
    files: HashMap<FileId, File>,
    others: Cells,
}

/// What calls of one kind did to a file.
#[derive(Debug, Clone)]
pub(crate) struct FileReport {
    /// `None` for the files that are not told apart.
    pub file: Option<FileId>,
    pub call: FileCall,
    pub counts: Counts,
}

impl FileTable {
    pub fn new(now: Duration) -> Self {
        let (files, others) = (HashMap::new(), Cells::default());
        Self { since: now, until: now, halved: now, files, others }
    }

    /// Somebody asks, and will ask again within this time.
    pub fn watch(&mut self, now: Duration, time: Duration) {
        self.until = self.until.max(now + time.min(WATCH_TIME_MAX));
    }

    /// Whether nobody asks any more.
    pub fn is_over(&self, now: Duration) -> bool {
        now > self.until
    }

    /// For how long calls have been counted.
    pub fn age(&self, now: Duration) -> Duration {
        now.saturating_sub(self.since)
    }

    pub fn count(&mut self, file: FileId, call: FileCall, counts: &Counts) {
        if self.files.len() >= FILES_MAX && !self.files.contains_key(&file) {
            self.prune();
        }
        let file = self.files.entry(file).or_default();
        file.weight = file.weight.saturating_add(counts.count.saturating_mul(16));
        file.cells.add(call, counts);
    }

    /// Leaves the files with most calls of late.
    fn prune(&mut self) {
        let mut order: Vec<(u64, FileId)> = self.files.iter().map(|(id, file)| (file.weight, *id)).collect();
        if order.len() <= FILES_KEPT {
            return;
        }
        order.select_nth_unstable_by_key(FILES_KEPT, |(weight, _)| std::cmp::Reverse(*weight));
        for (_, id) in order.into_iter().skip(FILES_KEPT) {
            let Some(file) = self.files.remove(&id) else { continue };
            for (call, counts) in file.cells.0 {
                // The kinds of calls of all clients together are bounded.
                self.others.add(FileCall { network: None, ..call }, &counts);
            }
        }
    }

    /// A copy of what is counted of the files with most calls, and of the others.
    pub fn report(&mut self, now: Duration) -> Vec<FileReport> {
        self.prune();
        while now.saturating_sub(self.halved) >= HALVING_INTERVAL {
            self.halved += HALVING_INTERVAL;
            self.files.values_mut().for_each(|file| file.weight /= 2);
        }
        let files = self.files.iter().map(|(id, file)| (Some(*id), &file.cells));
        let all = files.chain([(None, &self.others)]);
        let rows = all.flat_map(|(file, cells)| {
            let row =
                move |(call, counts): &(FileCall, Counts)| FileReport { file, call: *call, counts: *counts };
            cells.0.iter().map(row)
        });
        rows.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Slot;
    use super::*;
    use metrics::SizeClass;
    use store::ObjectId;

    fn file(fileid: u64) -> FileId {
        FileId { export: 7, object: ObjectId::new(fileid, 1) }
    }

    fn call(client: u32) -> FileCall {
        let slot = Slot::new(0, &["READ"], 0).unwrap();
        let kind = CallKind { slot, export: Some(7), size: SizeClass::To4K };
        FileCall { node: 0, network: Some(std::net::Ipv4Addr::from_bits(client).into()), kind }
    }

    fn calls(count: u64) -> Counts {
        Counts { count, ..Counts::default() }
    }

    fn of(rows: &[FileReport], file: Option<FileId>) -> u64 {
        rows.iter().filter(|row| row.file == file).map(|row| row.counts.count).sum()
    }

    #[test]
    fn the_busiest_files_are_told_apart_and_no_call_is_lost() {
        let mut table = FileTable::new(Duration::ZERO);
        for round in 0..20_000 {
            table.count(file(round % 10), call(1), &calls(1));
            table.count(file(1000 + round), call(1), &calls(1));
            assert!(table.files.len() <= FILES_MAX);
        }
        let rows = table.report(Duration::from_secs(1));
        assert!((0..10).all(|busy| of(&rows, Some(file(busy))) == 2000), "{rows:?}");
        assert_eq!(rows.iter().map(|row| row.counts.count).sum::<u64>(), 40_000);
        assert!(of(&rows, None) >= 20_000 - FILES_KEPT as u64);
        assert!(rows.len() <= FILES_KEPT + 1);
    }

    #[test]
    fn a_file_of_late_takes_the_place_of_one_that_was_busy_long_ago() {
        let mut table = FileTable::new(Duration::ZERO);
        (0..FILES_KEPT as u64).for_each(|old| table.count(file(old), call(1), &calls(1000)));
        for second in 1..60 {
            (0..FILES_KEPT as u64).for_each(|new| table.count(file(5000 + new), call(1), &calls(10)));
            table.report(Duration::from_secs(second));
        }
        let rows = table.report(Duration::from_secs(60));
        assert!(of(&rows, Some(file(5000))) > 0 && of(&rows, Some(file(0))) == 0);
    }

    #[test]
    fn clients_beyond_the_bound_are_counted_together() {
        let mut table = FileTable::new(Duration::ZERO);
        (0..1000).for_each(|client| table.count(file(1), call(client), &calls(1)));
        let rows = table.report(Duration::ZERO);
        assert_eq!(rows.len(), KINDS_MAX + 1);
        assert_eq!(of(&rows, Some(file(1))), 1000);
    }

    #[test]
    fn counting_ends_when_nobody_asks_any_more() {
        let mut table = FileTable::new(Duration::from_secs(5));
        table.watch(Duration::from_secs(5), Duration::from_secs(10));
        assert!(!table.is_over(Duration::from_secs(15)) && table.is_over(Duration::from_secs(16)));
        table.watch(Duration::from_secs(15), Duration::MAX);
        assert!(table.is_over(Duration::from_secs(16) + WATCH_TIME_MAX));
        assert_eq!(table.age(Duration::from_secs(15)), Duration::from_secs(10));
    }
}
