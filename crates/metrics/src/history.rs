//! What happened in each second of the last hour, in a bounded memory.
//!
//! A second is the difference of two snapshots, encoded as a few bytes for each key
//! (`history/second.rs`). Whatever is counted, a history takes no more than [`Limits::bytes`]:
//!
//! - A second takes at most [`Limits::second_bytes`]. Where more keys were active, the rarest are
//!   counted with the others (`history/fold.rs`).
//! - When all seconds together take too much, the oldest are folded to
//!   [`Limits::old_second_bytes`] each. Their totals stay exact.
//! - The names of keys are kept once, and take at most [`Limits::key_bytes`].
//!
//! The last snapshot is kept besides: it is as large as what the process counts anyway.

mod fold;
mod keys;
mod second;
mod sum;
mod view;

use crate::interval::{FileActivity, Interval};
use crate::key::{Dimension, Key};
use crate::operations::{Operations, Tally};
use crate::snapshot::Snapshot;
use fold::{BYTES_MIN, FOLDS, fit};
use keys::Keys;
use second::{Entries, Second};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
pub use view::{Condition, Group, Moved, PathHistory, Point, Query, Range, View};

/// How much a history may keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The number of seconds.
    pub seconds: usize,
    /// All memory, but for the last snapshot.
    pub bytes: usize,
    /// The memory of one second; 8 KiB at least, like the next.
    pub second_bytes: usize,
    /// The memory of one second once there is not enough for all.
    pub old_second_bytes: usize,
    /// The memory of the names of keys.
    pub key_bytes: usize,
}

impl Default for Limits {
    /// An hour in 64 MiB.
    fn default() -> Self {
        Self {
            seconds: 3600,
            bytes: 64 << 20,
            second_bytes: 64 << 10,
            old_second_bytes: 16 << 10,
            key_bytes: 4 << 20,
        }
    }
}

impl Limits {
    /// For operations by file, which have many keys and no latencies: an hour at most, and as much
    /// of it as 16 MiB hold.
    pub const FILES: Self = Self {
        seconds: 3600,
        bytes: 16 << 20,
        second_bytes: 8 << 10,
        old_second_bytes: 8 << 10,
        key_bytes: 4 << 20,
    };
}

/// However many files there are, these minutes of operations by file fit.
pub const FILES_MINUTES_MIN: usize = 20;
const _: () = assert!(
    60 * FILES_MINUTES_MIN * ((8 << 10) + second::OVERHEAD_BYTES) + (4 << 20) <= 16 << 20,
    "the limits of files do not fit together"
);

/// If each second is folded, the hour fits.
const _: () = assert!(
    3600 * ((16 << 10) + second::OVERHEAD_BYTES) + (4 << 20) + (64 << 10) <= 64 << 20,
    "the default limits do not fit together"
);

/// The paths that a history tells apart; a client has fewer. More are left out.
const PATHS_MAX: usize = 128;

/// How far two seconds may overlap: the clock of their ends and that of their lengths differ a
/// little.
const OVERLAP_MS_MAX: u64 = 100;

/// For how long a path has not been up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotUp {
    /// For this many milliseconds.
    For(u64),
    /// For this many milliseconds or longer: the history does not reach back to when it was up.
    AtLeast(u64),
}

/// See the module's documentation.
#[derive(Debug)]
pub struct History {
    limits: Limits,
    /// The oldest first.
    seconds: VecDeque<Second>,
    /// How many of the seconds, from the front, have been folded to make room.
    folded: usize,
    keys: Keys,
    /// The paths that there have been: name and node.
    paths: Vec<(Arc<str>, Arc<str>)>,
    path_numbers: BTreeMap<Arc<str>, usize>,
    last: Option<Arc<Snapshot>>,
    second_bytes: usize,
}

impl Default for History {
    fn default() -> Self {
        Self::new(Limits::default())
    }
}

impl History {
    /// An empty history.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        let limits = Limits {
            second_bytes: limits.second_bytes.max(BYTES_MIN),
            old_second_bytes: limits.old_second_bytes.max(BYTES_MIN),
            ..limits
        };
        Self {
            limits,
            seconds: VecDeque::new(),
            folded: 0,
            keys: Keys::new(limits.key_bytes),
            paths: Vec::new(),
            path_numbers: BTreeMap::new(),
            last: None,
            second_bytes: 0,
        }
    }

    /// Takes what has happened since the snapshot before. The first snapshot only begins the
    /// history, and so does one of another process; one that is not later is left out.
    pub fn push(&mut self, snapshot: Arc<Snapshot>) {
        let Some(last) = self.last.as_ref() else {
            self.last = Some(snapshot);
            return;
        };
        let interval = match Interval::between(last, &snapshot) {
            Ok(interval) => interval,
            Err(crate::IntervalError::NotLater) => return,
            Err(crate::IntervalError::OtherProcess) => {
                *self = Self::new(self.limits);
                self.last = Some(snapshot);
                return;
            }
        };
        let second = Second {
            end_ms: snapshot.taken_unix_ms,
            ms: (interval.seconds * 1e3).round() as u32,
            cpu: interval.cpu.iter().sum::<f64>() as f32,
            is_folded: false,
            paths: self.encode_paths(&snapshot),
            entries: Entries::default(),
        };
        self.add(second, interval.operations);
        self.last = Some(snapshot);
    }

    /// Takes what has happened in this time, which ended in this millisecond since 1970: of
    /// operations that are not counted all the time, and of no path.
    pub fn push_activity(&mut self, end_ms: u64, activity: FileActivity) {
        let ms = (activity.seconds * 1e3).round() as u32;
        self.add(Second { end_ms, ms, ..Second::default() }, activity.operations);
    }

    fn add(&mut self, mut second: Second, operations: Operations) {
        self.make_way_for(second.end_ms.saturating_sub(second.ms.into()));
        let (rows, is_folded) = fit(operations.into_rows(), self.limits.second_bytes);
        second.is_folded = is_folded;
        self.encode(&mut second, rows);
        self.second_bytes += second.bytes();
        self.seconds.push_back(second);
        self.keep_within_limits();
    }

    /// Where the clock has been set back, moves the seconds that there are back as far, so that
    /// they end before this time and keep their order and distance. A clock that was set forward,
    /// and a host that slept, leave a gap.
    fn make_way_for(&mut self, begin_ms: u64) {
        let last_ms = self.seconds.back().map_or(0, |second| second.end_ms);
        let back_ms = last_ms.saturating_sub(begin_ms);
        if back_ms > OVERLAP_MS_MAX {
            for second in &mut self.seconds {
                second.end_ms = second.end_ms.saturating_sub(back_ms);
            }
        }
    }

    /// The last snapshot.
    #[must_use]
    pub fn last(&self) -> Option<&Arc<Snapshot>> {
        self.last.as_ref()
    }

    /// The number of seconds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.seconds.len()
    }

    /// Whether there is no second yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.seconds.is_empty()
    }

    /// The bytes that the history takes, without the last snapshot.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.second_bytes + self.keys.bytes()
    }

    /// From the begin of the oldest second to the end of the newest.
    #[must_use]
    pub fn range(&self) -> Option<Range> {
        let (first, last) = (self.seconds.front()?, self.seconds.back()?);
        Some(Range { from_ms: first.end_ms.saturating_sub(first.ms.into()), until_ms: last.end_ms })
    }

    /// The operations of a time that match every condition, told apart by these dimensions, without
    /// their latencies; and the length of the time in milliseconds.
    #[must_use]
    pub fn totals(&self, range: Range, by: &[Dimension], conditions: &[Condition]) -> (Operations, u64) {
        let (mut totals, mut ms) = (Operations::default(), 0);
        let matches = self.keys.all(|key| view::matches(key, conditions));
        for second in self.within(range) {
            ms += u64::from(second.ms);
            second.entries.for_each(|id, tally| {
                if matches.get(id).copied().unwrap_or(false)
                    && let Some(key) = self.keys.get(id)
                {
                    totals.add(key.only(by), &tally.counts());
                }
            });
        }
        (totals, ms)
    }

    /// The state of each path in the last second that ended by this time.
    #[must_use]
    pub fn path_states(&self, until_ms: u64) -> Vec<(Arc<str>, &'static str)> {
        let end = self.seconds.partition_point(|second| second.end_ms <= until_ms);
        let Some(second) = end.checked_sub(1).and_then(|last| self.seconds.get(last)) else {
            return Vec::new();
        };
        let states = second.path_states().filter_map(|(path, state)| {
            let (name, _) = self.paths.get(path)?;
            Some((Arc::clone(name), state))
        });
        states.collect()
    }

    /// For how long a path had not been up by this time; `None` if it was up, or is not known.
    #[must_use]
    pub fn not_up(&self, name: &str, until_ms: u64) -> Option<NotUp> {
        let number = *self.path_numbers.get(name)?;
        let end = self.seconds.partition_point(|second| second.end_ms <= until_ms);
        let is_up = |second: &Second| second.path_states().any(|path| path == (number, "up"));
        let since = |ms: u64| until_ms.saturating_sub(ms);
        let not_up = match self.seconds.range(..end).rev().find(|second| is_up(second)) {
            Some(last_up) => NotUp::For(since(last_up.end_ms)),
            None => NotUp::AtLeast(since(self.range()?.from_ms)),
        };
        Some(not_up).filter(|not_up| *not_up != NotUp::For(0))
    }

    /// The seconds that end within a time.
    fn within(&self, range: Range) -> impl Iterator<Item = &Second> {
        let first = self.seconds.partition_point(|second| second.end_ms <= range.from_ms);
        self.seconds.range(first..).take_while(move |second| second.end_ms <= range.until_ms)
    }

    fn encode(&mut self, second: &mut Second, rows: Vec<(Key, Tally)>) {
        for (key, tally) in rows {
            let id = self.keys.acquire(&key).or_else(|| {
                second.is_folded = true;
                FOLDS.iter().find_map(|fold| self.keys.acquire(&fold(&key)))
            });
            second.entries.push(id.unwrap_or(keys::UNKNOWN), &tally);
        }
        second.entries.shrink();
    }

    fn encode_paths(&mut self, snapshot: &Snapshot) -> Box<[u8]> {
        let mut bytes = Vec::new();
        for path in &snapshot.paths {
            let number = self.path_numbers.get(path.name.as_str()).copied();
            let number = number.or_else(|| self.add_path(&path.name, &path.node));
            if let Some(number) = number {
                second::write(&mut bytes, number as u64);
                second::write(&mut bytes, second::state_number(&path.state));
            }
        }
        bytes.into_boxed_slice()
    }

    fn add_path(&mut self, name: &str, node: &str) -> Option<usize> {
        let number = self.paths.len();
        (number < PATHS_MAX).then(|| {
            let name: Arc<str> = name.into();
            self.paths.push((Arc::clone(&name), node.into()));
            self.path_numbers.insert(name, number);
            number
        })
    }

    fn keep_within_limits(&mut self) {
        while self.seconds.len() > self.limits.seconds {
            self.drop_oldest();
        }
        while self.bytes() > self.limits.bytes {
            if self.folded < self.seconds.len() {
                self.fold_next();
            } else if self.seconds.len() > 1 {
                self.drop_oldest();
            } else {
                break;
            }
        }
    }

    fn drop_oldest(&mut self) {
        if let Some(second) = self.seconds.pop_front() {
            self.second_bytes -= second.bytes();
            self.folded = self.folded.saturating_sub(1);
            second.entries.for_each(|id, _| self.keys.release(id));
        }
    }

    /// Folds the oldest second that has not been folded to make room.
    fn fold_next(&mut self) {
        let number = self.folded;
        self.folded += 1;
        let Some(mut second) = self.seconds.get_mut(number).map(std::mem::take) else { return };
        self.second_bytes -= second.bytes();
        if second.entries.bytes() > self.limits.old_second_bytes {
            let mut rows = Operations::default();
            second.entries.for_each(|id, tally| {
                rows.add(self.keys.get(id).cloned().unwrap_or_default(), &tally.tally());
            });
            std::mem::take(&mut second.entries).for_each(|id, _| self.keys.release(id));
            let (rows, is_folded) = fit(rows.into_rows(), self.limits.old_second_bytes);
            second.is_folded |= is_folded;
            self.encode(&mut second, rows);
        }
        self.second_bytes += second.bytes();
        if let Some(place) = self.seconds.get_mut(number) {
            *place = second;
        }
    }
}

#[cfg(test)]
mod tests;
