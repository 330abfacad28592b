//! Page fills: reads whose bytes stay in the kernel's pages. Pure: no calls, no clock.
//!
//! The server may do a write after the READ of a fill that overlaps the write, and the write may be
//! answered before the fill. The kernel's pages would then lack the data of a write that has
//! returned. So a fill takes in the data of each such write, and its reply has them in place of
//! what the READ has brought. The ranges of answered fills are remembered ([`FilledRanges`]): a
//! write that the kernel has sent before it had the fill may arrive here after the fill was
//! answered.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The most ranges that are remembered. Beyond that, everything from the first to the last counts
/// as filled.
const RANGES_MAX: usize = 1024;

/// Data of a write that arrived while a fill was under way.
#[derive(Debug)]
pub(crate) struct Patch {
    offset: u64,
    data: Vec<u8>,
}

/// Puts the patches over the bytes that were read at `offset`, for a request of `len` bytes. If a
/// patch begins behind the end of the file that the READ has found, the gap is filled with zeros:
/// the file has a hole there.
pub(crate) fn apply_patches(patches: &[Patch], bytes: &mut Vec<u8>, (offset, len): (u64, usize)) {
    for patch in patches {
        let end = offset.saturating_add(len as u64);
        let from = patch.offset.max(offset);
        let to = patch.offset.saturating_add(patch.data.len() as u64).min(end);
        let Some(count) = to.checked_sub(from).filter(|count| *count > 0) else { continue };
        let (at, count) = ((from - offset) as usize, count as usize);
        if bytes.len() < at + count {
            bytes.resize(at + count, 0);
        }
        let data = patch.data.get((from - patch.offset) as usize..).and_then(|data| data.get(..count));
        if let (Some(place), Some(data)) = (bytes.get_mut(at..at + count), data) {
            place.copy_from_slice(data);
        }
    }
}

/// A fill under way.
#[derive(Debug)]
pub(crate) struct Fill {
    range: Range<u64>,
    state: Mutex<FillState>,
}

#[derive(Debug, Default)]
struct FillState {
    patches: Vec<Patch>,
    answered: bool,
}

impl Fill {
    pub(crate) fn new(range: Range<u64>) -> Self {
        Self { range, state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, FillState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn range(&self) -> &Range<u64> {
        &self.range
    }

    /// Takes in the data of a write that arrives now. Returns false if the fill is answered
    /// already.
    pub(crate) fn add_patch(&self, offset: u64, data: &[u8]) -> bool {
        let mut state = self.lock();
        if state.answered {
            return false;
        }
        let common = intersection(&self.range, &(offset..offset.saturating_add(data.len() as u64)));
        if let Some(common) = common
            && let Some(data) = data.get((common.start - offset) as usize..(common.end - offset) as usize)
        {
            state.patches.push(Patch { offset: common.start, data: data.to_vec() });
        }
        true
    }

    /// Calls `send` with the patches; `send` sends the reply. A write that arrives meanwhile waits
    /// for the lock, and is then too late for this fill.
    pub(crate) fn answer(&self, send: impl FnOnce(&[Patch])) {
        let mut state = self.lock();
        send(&state.patches);
        state.answered = true;
    }

    pub(crate) fn is_answered(&self) -> bool {
        self.lock().answered
    }
}

/// The intersection of two ranges; `None` if it is empty.
pub(crate) fn intersection(one: &Range<u64>, other: &Range<u64>) -> Option<Range<u64>> {
    let (start, end) = (one.start.max(other.start), one.end.min(other.end));
    (start < end).then_some(start..end)
}

/// The ranges in which the kernel may have pages that were filled, from start to end. They neither
/// overlap nor touch.
#[derive(Debug, Default)]
pub(crate) struct FilledRanges {
    ranges: BTreeMap<u64, u64>,
}

impl FilledRanges {
    pub(crate) fn add(&mut self, range: &Range<u64>) {
        let (mut start, mut end) = (range.start, range.end);
        // Ranges that overlap or touch the new one are merged with it.
        while let Some((&from, &to)) = self.ranges.range(..=end).next_back().filter(|(_, to)| **to >= start) {
            self.ranges.remove(&from);
            (start, end) = (start.min(from), end.max(to));
        }
        self.ranges.insert(start, end);
        if self.ranges.len() > RANGES_MAX
            && let (Some((&first, _)), Some((_, &last))) =
                (self.ranges.first_key_value(), self.ranges.last_key_value())
        {
            self.ranges = BTreeMap::from([(first, last)]);
        }
    }

    /// Removes the filled parts of a range. Returns the range from the beginning of the first part
    /// to the end of the last.
    pub(crate) fn take(&mut self, range: &Range<u64>) -> Option<Range<u64>> {
        let mut taken: Option<Range<u64>> = None;
        while let Some((&from, &to)) =
            self.ranges.range(..range.end).next_back().filter(|(_, to)| **to > range.start)
        {
            self.ranges.remove(&from);
            if from < range.start {
                self.ranges.insert(from, range.start);
            }
            if to > range.end {
                self.ranges.insert(range.end, to);
            }
            let (from, to) = (from.max(range.start), to.min(range.end));
            taken = Some(from..taken.map_or(to, |later| later.end));
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The reply to a fill for ten bytes at 100 whose READ has brought `bytes`.
    fn answered(fill: &Fill, bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        fill.answer(|patches| apply_patches(patches, &mut bytes, (100, 10)));
        bytes
    }

    #[test]
    fn a_fill_has_the_data_of_each_write_that_came_while_it_was_under_way() {
        let fill = Fill::new(100..110);
        // Over the beginning, over the end, within, and over an earlier patch.
        for (offset, data) in [(98, b"abcd"), (108, b"efgh"), (103, b"ijkl"), (104, b"mnop")] {
            assert!(fill.add_patch(offset, data));
        }
        assert_eq!(answered(&fill, b"0123456789"), b"cd2imnopef");
        assert!(fill.is_answered() && !fill.add_patch(100, b"late"));
    }

    #[test]
    fn a_write_behind_the_end_that_a_fill_has_found_makes_the_file_longer() {
        let fill = Fill::new(100..110);
        assert!(fill.add_patch(105, b"new") && fill.add_patch(0, b"elsewhere"));
        assert_eq!(answered(&fill, b"01"), b"01\0\0\0new");
        let fill = Fill::new(100..110);
        assert!(fill.add_patch(0, &[7; 1000]));
        assert_eq!(answered(&fill, b""), [7; 10]);
    }

    #[test]
    fn too_many_ranges_become_one() {
        let mut filled = FilledRanges::default();
        for at in 0..=RANGES_MAX as u64 {
            filled.add(&(at * 10..at * 10 + 1));
        }
        assert_eq!(filled.ranges.len(), 1);
        assert_eq!(filled.take(&(5..7)), Some(5..7));
    }

    proptest! {
        #[test]
        fn what_is_filled_is_what_was_added_and_not_taken_since(
            steps in prop::collection::vec((any::<bool>(), 0_u64..60, 1_u64..20), 1..60)
        ) {
            let (mut filled, mut model) = (FilledRanges::default(), [false; 80]);
            for (adds, start, len) in steps {
                let (range, places) = (start..start + len, start as usize..(start + len) as usize);
                if adds {
                    filled.add(&range);
                } else {
                    let first = places.clone().find(|at| model[*at]);
                    let last = places.clone().rfind(|at| model[*at]);
                    let both = first.zip(last).map(|(first, last)| first as u64..last as u64 + 1);
                    prop_assert_eq!(filled.take(&range), both);
                }
                model[places].fill(adds);
                let mut seen = [false; 80];
                for (from, to) in &filled.ranges {
                    seen[*from as usize..*to as usize].fill(true);
                }
                prop_assert_eq!(seen, model);
            }
        }
    }
}
