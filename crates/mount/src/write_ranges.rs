//! The reads and writes of a file that are under way. Reads and writes of the same bytes take
//! effect in the order in which they arrived.
//!
//! A write that a program waits for (O_DIRECT, O_SYNC, `sync`) or a truncation holds its range
//! until the server has done it, even if the program is killed. A buffered write that has to wait
//! holds its range until its data are in `Dirty`. Requests that arrive later and overlap the range
//! wait:
//!
//! - a read, because it would put the bytes from before the write into the kernel's pages after the
//!   write was answered;
//! - a write, because the server might execute the two in the wrong order.
//!
//! A write does not wait for reads, but gives its data to them (`page_fills.rs`). No request waits
//! for one that arrived later, so none waits for ever.

use crate::inode::Inode;
use crate::page_fills::{Fill, FilledRanges, Patch, intersection};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, MutexGuard};
use std::task::{Poll, Waker};

/// The requests under way in one file.
#[derive(Debug, Default)]
pub(crate) struct Ranges {
    /// The ticket of the request that arrived last: requests are numbered in the order of their
    /// arrival.
    ticket: u64,
    writes: BTreeMap<u64, Range<u64>>,
    fills: BTreeMap<u64, Arc<Fill>>,
    filled: FilledRanges,
    waiting: Vec<Waker>,
}

/// What a write found when it arrived.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct AffectedPages {
    /// A page fill under way has taken in data of the write.
    pub has_patched: bool,
    /// The range around the pages that were filled before the write arrived, and may lack its data.
    pub suspect: Option<Range<u64>>,
}

impl Ranges {
    fn next_ticket(&mut self) -> u64 {
        self.ticket += 1;
        self.ticket
    }

    /// Whether a write that arrived before this ticket overlaps the range.
    fn is_written_before(&self, ticket: u64, range: &Range<u64>) -> bool {
        self.writes.range(..ticket).any(|(_, written)| intersection(written, range).is_some())
    }

    /// Whether a page fill that arrived before this ticket overlaps the range.
    fn is_filled_before(&self, ticket: u64, range: &Range<u64>) -> bool {
        self.fills.range(..ticket).any(|(_, fill)| intersection(fill.range(), range).is_some())
    }

    /// Offers the data of a write that has arrived to the page fills under way, and finds the pages
    /// that were filled before.
    fn find_affected(&mut self, range: &Range<u64>, data: &[u8]) -> AffectedPages {
        let mut found = AffectedPages { has_patched: false, suspect: self.filled.take(range) };
        for fill in self.fills.values() {
            let Some(common) = intersection(fill.range(), range) else { continue };
            if fill.add_patch(range.start, data) {
                found.has_patched = true;
            } else {
                // The fill was answered, but `filled` does not have its range yet.
                let suspect = found.suspect.take().unwrap_or_else(|| common.clone());
                found.suspect = Some(suspect.start.min(common.start)..suspect.end.max(common.end));
            }
        }
        found
    }
}

/// A request in the order of arrival. It waits for the writes before it.
#[derive(Debug)]
struct QueuedRequest {
    inode: Arc<Inode>,
    ticket: u64,
    range: Range<u64>,
}

impl QueuedRequest {
    /// Waits for the overlapping writes that arrived before.
    async fn wait_for_turn(&self) {
        self.wait(Ranges::is_written_before).await;
    }

    async fn wait(&self, for_what: impl Fn(&Ranges, u64, &Range<u64>) -> bool) {
        std::future::poll_fn(|context| {
            let mut ranges = self.inode.ranges();
            if !for_what(&ranges, self.ticket, &self.range) {
                return Poll::Ready(());
            }
            ranges.waiting.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

/// A write or a truncation. Until this value is dropped, overlapping requests that arrived later
/// wait for it.
#[derive(Debug)]
pub(crate) struct WriteGuard(QueuedRequest);

impl WriteGuard {
    /// Waits for the overlapping writes that arrived before.
    pub(crate) async fn wait_for_turn(&self) {
        self.0.wait_for_turn().await;
    }
}

impl Drop for WriteGuard {
    fn drop(&mut self) {
        let QueuedRequest { inode, ticket, range } = &self.0;
        // Data that were read ahead while the write was under way may be from before it.
        inode.lock().own_writes.record(range.clone());
        let mut ranges = inode.ranges();
        ranges.writes.remove(ticket);
        let waiting = std::mem::take(&mut ranges.waiting);
        drop(ranges);
        waiting.into_iter().for_each(Waker::wake);
    }
}

/// A page fill under way.
#[derive(Debug)]
pub(crate) struct FillGuard {
    queued: QueuedRequest,
    fill: Arc<Fill>,
}

impl FillGuard {
    /// Waits for the overlapping writes that arrived before.
    pub(crate) async fn wait_for_turn(&self) {
        self.queued.wait_for_turn().await;
    }

    /// Calls `send` with the data of the writes that arrived while the fill was under way; `send`
    /// sends the reply.
    pub(crate) fn answer(self, send: impl FnOnce(&[Patch])) {
        self.fill.answer(send);
    }
}

impl Drop for FillGuard {
    fn drop(&mut self) {
        let mut ranges = self.queued.inode.ranges();
        ranges.fills.remove(&self.queued.ticket);
        if self.fill.is_answered() {
            ranges.filled.add(self.fill.range());
        }
        let waiting = std::mem::take(&mut ranges.waiting);
        drop(ranges);
        waiting.into_iter().for_each(Waker::wake);
    }
}

impl Inode {
    fn enqueue(self: &Arc<Self>, ranges: &mut MutexGuard<'_, Ranges>, range: Range<u64>) -> QueuedRequest {
        QueuedRequest { inode: Arc::clone(self), ticket: ranges.next_ticket(), range }
    }

    /// Registers a page fill that has arrived.
    pub(crate) fn begin_fill(self: &Arc<Self>, range: Range<u64>) -> FillGuard {
        let mut ranges = self.ranges();
        let queued = self.enqueue(&mut ranges, range.clone());
        let fill = Arc::new(Fill::new(range));
        ranges.fills.insert(queued.ticket, Arc::clone(&fill));
        FillGuard { queued, fill }
    }

    /// Waits for the writes of a range that have arrived by now.
    pub(crate) async fn wait_for_earlier_writes(self: &Arc<Self>, range: Range<u64>) {
        let queued = self.enqueue(&mut self.ranges(), range);
        queued.wait_for_turn().await;
    }

    /// Waits for the writes and the page fills of a range that have arrived by now.
    pub(crate) async fn wait_for_earlier_requests(self: &Arc<Self>, range: Range<u64>) {
        let queued = self.enqueue(&mut self.ranges(), range);
        let is_active = |ranges: &Ranges, ticket: u64, range: &Range<u64>| {
            ranges.is_written_before(ticket, range) || ranges.is_filled_before(ticket, range)
        };
        queued.wait(is_active).await;
    }

    /// Registers a write that has arrived. The server must have its data when the write is
    /// answered.
    pub(crate) fn begin_write(
        self: &Arc<Self>,
        offset: u64,
        data: &[u8],
    ) -> (Arc<WriteGuard>, AffectedPages) {
        let range = offset..offset.saturating_add(data.len() as u64);
        let mut ranges = self.ranges();
        let found = ranges.find_affected(&range, data);
        let queued = self.enqueue(&mut ranges, range.clone());
        ranges.writes.insert(queued.ticket, range);
        (Arc::new(WriteGuard(queued)), found)
    }

    /// Registers a truncation, or a write whose data are added to `Dirty` later.
    pub(crate) fn begin_change(self: &Arc<Self>, range: Range<u64>) -> WriteGuard {
        let mut ranges = self.ranges();
        let queued = self.enqueue(&mut ranges, range.clone());
        ranges.writes.insert(queued.ticket, range);
        WriteGuard(queued)
    }

    /// Offers data that were just added to `Dirty` to the page fills under way. A fill that arrives
    /// later sends the data to the server first.
    pub(crate) fn offer_to_fills(&self, offset: u64, data: &[u8]) -> AffectedPages {
        self.ranges().find_affected(&(offset..offset.saturating_add(data.len() as u64)), data)
    }

    /// Whether a write or a truncation that holds its range overlaps this range.
    pub(crate) fn is_being_written(&self, range: &Range<u64>) -> bool {
        self.ranges().is_written_before(u64::MAX, range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a write finds that arrives now and does not hold its range.
    fn found(ranges: &mut Ranges, offset: u64, data: &[u8]) -> AffectedPages {
        ranges.find_affected(&(offset..offset + data.len() as u64), data)
    }

    fn write(ranges: &mut Ranges, range: Range<u64>) -> u64 {
        let ticket = ranges.next_ticket();
        ranges.writes.insert(ticket, range);
        ticket
    }

    #[test]
    fn what_overlaps_a_write_waits_if_it_came_later_and_nothing_else_does() {
        let mut ranges = Ranges::default();
        let early = ranges.next_ticket();
        let first = write(&mut ranges, 10..20);
        let second = write(&mut ranges, 15..30);
        assert!(!ranges.is_written_before(early, &(0..100)) && !ranges.is_written_before(first, &(10..20)));
        assert!(ranges.is_written_before(second, &(15..30)));
        let late = ranges.next_ticket();
        assert!(ranges.is_written_before(late, &(19..20)) && !ranges.is_written_before(late, &(0..10)));
        ranges.writes.remove(&first);
        assert!(!ranges.is_written_before(second, &(15..30)) && !ranges.is_written_before(late, &(10..15)));
        assert!(ranges.is_written_before(late, &(0..100)) && !ranges.is_written_before(late, &(30..40)));
    }

    #[test]
    fn a_write_gives_its_data_to_a_fill_under_way_and_suspects_what_was_filled_before() {
        let mut ranges = Ranges::default();
        assert_eq!(found(&mut ranges, 0, b"data"), AffectedPages::default());
        ranges.filled.add(&(0..4096));
        let (ticket, fill) = (ranges.next_ticket(), Arc::new(Fill::new(4096..8192)));
        ranges.fills.insert(ticket, Arc::clone(&fill));
        assert_eq!(
            found(&mut ranges, 4090, &[1; 16]),
            AffectedPages { has_patched: true, suspect: Some(4090..4096) }
        );
        // A suspect range is removed when it is reported. The rest stays.
        assert_eq!(
            found(&mut ranges, 4089, &[1; 7]),
            AffectedPages { has_patched: false, suspect: Some(4089..4090) }
        );
        let mut bytes = vec![0; 8];
        fill.answer(|patches| crate::page_fills::apply_patches(patches, &mut bytes, (4096, 4096)));
        assert_eq!(bytes, [1; 10]);
        assert_eq!(
            found(&mut ranges, 5000, b"late"),
            AffectedPages { has_patched: false, suspect: Some(5000..5004) }
        );
        assert!(
            ranges.is_filled_before(ticket + 1, &(8000..9000))
                && !ranges.is_filled_before(ticket, &(8000..9000))
        );
    }
}
