//! Which bytes of a file are being written and read at this moment: reads and writes of the same
//! bytes follow each other in the order in which they came.
//!
//! A write that is waited for has its range until the server has done it, also where its program
//! was killed. What comes later and overlaps it waits: a read, as it would bring the bytes from
//! before the write into the kernel's pages after the write has been answered; a write, as the two
//! might change places on their way. A write waits for no read, but gives its data to it
//! (`page_fills.rs`). So each waits only for what came before it, and none for ever.

use crate::inode::Inode;
use crate::page_fills::{Fill, Filled, Patch, common};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, MutexGuard};
use std::task::{Poll, Waker};

/// What is under way in one file.
#[derive(Debug, Default)]
pub(crate) struct Ranges {
    /// Counts whatever comes.
    turn: u64,
    writes: BTreeMap<u64, Range<u64>>,
    fills: BTreeMap<u64, Arc<Fill>>,
    filled: Filled,
    waiting: Vec<Waker>,
}

/// What a write has found when it came.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    /// A fill under way has taken its data.
    pub has_patched: bool,
    /// Where pages were filled before it came, which may lack its data.
    pub suspect: Option<Range<u64>>,
}

impl Ranges {
    fn next_turn(&mut self) -> u64 {
        self.turn += 1;
        self.turn
    }

    /// Whether a write that came before this turn has any of a range.
    fn is_written_before(&self, turn: u64, range: &Range<u64>) -> bool {
        self.writes.range(..turn).any(|(_, written)| common(written, range).is_some())
    }

    /// The same of page fills.
    fn is_filled_before(&self, turn: u64, range: &Range<u64>) -> bool {
        self.fills.range(..turn).any(|(_, fill)| common(fill.range(), range).is_some())
    }

    /// A write has come.
    fn find(&mut self, range: &Range<u64>, data: &[u8]) -> Found {
        let mut found = Found { has_patched: false, suspect: self.filled.take(range) };
        for fill in self.fills.values() {
            let Some(common) = common(fill.range(), range) else { continue };
            if fill.take_in(range.start, data) {
                found.has_patched = true;
            } else {
                // It is about to be counted as filled.
                let suspect = found.suspect.take().unwrap_or_else(|| common.clone());
                found.suspect = Some(suspect.start.min(common.start)..suspect.end.max(common.end));
            }
        }
        found
    }
}

/// Who has to wait for writes that came before.
#[derive(Debug)]
struct Place {
    inode: Arc<Inode>,
    turn: u64,
    range: Range<u64>,
}

impl Place {
    /// Waits for the writes that came before.
    async fn turn(&self) {
        self.wait(Ranges::is_written_before).await;
    }

    async fn wait(&self, for_what: impl Fn(&Ranges, u64, &Range<u64>) -> bool) {
        std::future::poll_fn(|context| {
            let mut ranges = self.inode.ranges();
            if !for_what(&ranges, self.turn, &self.range) {
                return Poll::Ready(());
            }
            ranges.waiting.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

/// A write that is waited for: nothing that came after it passes it until this is dropped.
#[derive(Debug)]
pub(crate) struct Writing(Place);

impl Writing {
    /// Waits for the writes that came before.
    pub(crate) async fn turn(&self) {
        self.0.turn().await;
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        let Place { inode, turn, range } = &self.0;
        // What was read ahead meanwhile may be from before it.
        inode.lock().own_writes.note(range.clone());
        let mut ranges = inode.ranges();
        ranges.writes.remove(turn);
        let waiting = std::mem::take(&mut ranges.waiting);
        drop(ranges);
        waiting.into_iter().for_each(Waker::wake);
    }
}

/// A page fill under way.
#[derive(Debug)]
pub(crate) struct Filling {
    place: Place,
    fill: Arc<Fill>,
}

impl Filling {
    /// Waits for the writes that came before.
    pub(crate) async fn turn(&self) {
        self.place.turn().await;
    }

    /// Gives the answer, with what was written meanwhile.
    pub(crate) fn answer(self, give: impl FnOnce(&[Patch])) {
        self.fill.answer(give);
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        let mut ranges = self.place.inode.ranges();
        ranges.fills.remove(&self.place.turn);
        if self.fill.is_answered() {
            ranges.filled.add(self.fill.range());
        }
        let waiting = std::mem::take(&mut ranges.waiting);
        drop(ranges);
        waiting.into_iter().for_each(Waker::wake);
    }
}

impl Inode {
    fn queue(self: &Arc<Self>, ranges: &mut MutexGuard<'_, Ranges>, range: Range<u64>) -> Place {
        Place { inode: Arc::clone(self), turn: ranges.next_turn(), range }
    }

    /// A page fill has come.
    pub(crate) fn begin_fill(self: &Arc<Self>, range: Range<u64>) -> Filling {
        let mut ranges = self.ranges();
        let place = self.queue(&mut ranges, range.clone());
        let fill = Arc::new(Fill::new(range));
        ranges.fills.insert(place.turn, Arc::clone(&fill));
        Filling { place, fill }
    }

    /// Waits for the writes of a range that have come.
    pub(crate) async fn written_by_now(self: &Arc<Self>, range: Range<u64>) {
        let place = self.queue(&mut self.ranges(), range);
        place.turn().await;
    }

    /// Waits for all of a range that has come.
    pub(crate) async fn done_by_now(self: &Arc<Self>, range: Range<u64>) {
        let place = self.queue(&mut self.ranges(), range);
        let is_under_way = |ranges: &Ranges, turn: u64, range: &Range<u64>| {
            ranges.is_written_before(turn, range) || ranges.is_filled_before(turn, range)
        };
        place.wait(is_under_way).await;
    }

    /// A write has come whose data the server shall have when it is answered.
    pub(crate) fn begin_write(self: &Arc<Self>, offset: u64, data: &[u8]) -> (Arc<Writing>, Found) {
        let range = offset..offset.saturating_add(data.len() as u64);
        let mut ranges = self.ranges();
        let found = ranges.find(&range, data);
        let place = self.queue(&mut ranges, range.clone());
        ranges.writes.insert(place.turn, range);
        (Arc::new(Writing(place)), found)
    }

    /// The same for a change without data, or whose data are held later.
    pub(crate) fn begin_change(self: &Arc<Self>, range: Range<u64>) -> Writing {
        let mut ranges = self.ranges();
        let place = self.queue(&mut ranges, range.clone());
        ranges.writes.insert(place.turn, range);
        Writing(place)
    }

    /// Data are held for the server: whoever looks for them from now on finds them there.
    pub(crate) fn held(&self, offset: u64, data: &[u8]) -> Found {
        self.ranges().find(&(offset..offset.saturating_add(data.len() as u64)), data)
    }

    /// Whether any of a range is being written by who waits for it.
    pub(crate) fn is_being_written(&self, range: &Range<u64>) -> bool {
        self.ranges().is_written_before(u64::MAX, range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a write has found that comes now and has no turn of its own.
    fn found(ranges: &mut Ranges, offset: u64, data: &[u8]) -> Found {
        ranges.find(&(offset..offset + data.len() as u64), data)
    }

    fn write(ranges: &mut Ranges, range: Range<u64>) -> u64 {
        let turn = ranges.next_turn();
        ranges.writes.insert(turn, range);
        turn
    }

    #[test]
    fn what_overlaps_a_write_waits_if_it_came_later_and_nothing_else_does() {
        let mut ranges = Ranges::default();
        let early = ranges.next_turn();
        let first = write(&mut ranges, 10..20);
        let second = write(&mut ranges, 15..30);
        assert!(!ranges.is_written_before(early, &(0..100)) && !ranges.is_written_before(first, &(10..20)));
        assert!(ranges.is_written_before(second, &(15..30)));
        let late = ranges.next_turn();
        assert!(ranges.is_written_before(late, &(19..20)) && !ranges.is_written_before(late, &(0..10)));
        ranges.writes.remove(&first);
        assert!(!ranges.is_written_before(second, &(15..30)) && !ranges.is_written_before(late, &(10..15)));
        assert!(ranges.is_written_before(late, &(0..100)) && !ranges.is_written_before(late, &(30..40)));
    }

    #[test]
    fn a_write_gives_its_data_to_a_fill_under_way_and_suspects_what_was_filled_before() {
        let mut ranges = Ranges::default();
        assert_eq!(found(&mut ranges, 0, b"data"), Found::default());
        ranges.filled.add(&(0..4096));
        let (turn, fill) = (ranges.next_turn(), Arc::new(Fill::new(4096..8192)));
        ranges.fills.insert(turn, Arc::clone(&fill));
        assert_eq!(
            found(&mut ranges, 4090, &[1; 16]),
            Found { has_patched: true, suspect: Some(4090..4096) }
        );
        // What was suspect is dropped; the rest is not.
        assert_eq!(
            found(&mut ranges, 4089, &[1; 7]),
            Found { has_patched: false, suspect: Some(4089..4090) }
        );
        let mut bytes = vec![0; 8];
        fill.answer(|patches| crate::page_fills::apply(patches, &mut bytes, (4096, 4096)));
        assert_eq!(bytes, [1; 10]);
        assert_eq!(
            found(&mut ranges, 5000, b"late"),
            Found { has_patched: false, suspect: Some(5000..5004) }
        );
        assert!(
            ranges.is_filled_before(turn + 1, &(8000..9000)) && !ranges.is_filled_before(turn, &(8000..9000))
        );
    }
}
