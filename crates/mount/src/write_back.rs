//! Writing. With O_DIRECT, O_SYNC or `sync`, write(2) waits until the server has the data.
//! Otherwise the data are held here and sent later, and errors are reported at fsync(2), write(2)
//! and close(2).

use crate::caller::Credential;
use crate::core::Core;
use crate::dirty::{OutgoingExtent, Selection};
use crate::executor::Executor;
use crate::files::{IoFlags, OpenFile};
use crate::inode::{Inode, State, SyncWrite};
use crate::write_ranges::{AffectedPages, WriteGuard};
use client::{Done, Pending};
use fs::Change;
use fuser::Errno;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

/// The most bytes that a mount holds until the server has them, including those of writes that
/// programs wait for. Beyond that, write(2) waits.
const DIRTY_BYTES_MAX: usize = 64 << 20;
/// Data wait this long for more data that could be sent with them.
pub(crate) const DIRTY_AGE: Duration = Duration::from_secs(1);

/// The bytes that are held for the server, over all files.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    held: AtomicUsize,
    waiting: Mutex<Vec<Waker>>,
}

impl Budget {
    fn take(&self, bytes: usize) {
        self.held.fetch_add(bytes, Ordering::AcqRel);
    }

    fn give_back(&self, bytes: usize) {
        self.held.fetch_sub(bytes, Ordering::AcqRel);
        let waiting = std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        waiting.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn held(&self) -> usize {
        self.held.load(Ordering::Acquire)
    }

    /// Whether no more bytes may be held.
    pub(crate) fn is_full(&self) -> bool {
        self.held() >= DIRTY_BYTES_MAX
    }

    async fn wait_for_room(&self) {
        std::future::poll_fn(|context| {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            if !self.is_full() {
                return Poll::Ready(());
            }
            waiting.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

/// A WRITE whose bytes count as held until the server has answered it, even if the program that
/// waited for it is killed.
#[derive(Debug)]
pub(crate) struct ChargedWrite {
    pending: Option<Pending>,
    /// Kept until the answer: before it, attributes of the file may lack this write.
    sync_write: Option<SyncWrite>,
    /// Kept until the answer: before it, overlapping requests that arrived later wait.
    write_guard: Option<Arc<WriteGuard>>,
    bytes: usize,
    budget: Arc<Budget>,
    executor: Executor,
}

impl ChargedWrite {
    pub(crate) async fn done(mut self) -> Done {
        let done = match &mut self.pending {
            Some(pending) => pending.await,
            None => std::future::pending().await,
        };
        self.pending = None;
        if let Some(sync_write) = self.sync_write.take() {
            sync_write.record_own_change(done.change);
        }
        done
    }
}

impl Drop for ChargedWrite {
    fn drop(&mut self) {
        let bytes = self.bytes;
        let Some(pending) = self.pending.take() else { return self.budget.give_back(bytes) };
        let (budget, sync_write) = (Arc::clone(&self.budget), self.sync_write.take());
        let write_guard = self.write_guard.take();
        self.executor.spawn_short(async move {
            let done = pending.await;
            if let Some(sync_write) = sync_write {
                sync_write.record_late_change(done.change);
            }
            drop(write_guard);
            budget.give_back(bytes);
        });
    }
}

impl Core {
    /// Charges a submitted WRITE to the budget until it is answered.
    pub(crate) fn charge(
        &self,
        inode: &Arc<Inode>,
        bytes: usize,
        pending: Pending,
        write_guard: &Arc<WriteGuard>,
    ) -> ChargedWrite {
        self.budget.take(bytes);
        let (budget, executor) = (Arc::clone(&self.budget), self.executor.clone());
        let (sync_write, write_guard) = (Some(inode.begin_sync_write()), Some(Arc::clone(write_guard)));
        ChargedWrite { pending: Some(pending), sync_write, write_guard, bytes, budget, executor }
    }

    /// write(2), or the write-back of pages that a mapping has dirtied. With O_APPEND the data go
    /// to the end of the file as it is known here.
    pub(crate) async fn write(
        self: &Arc<Self>,
        file: &OpenFile,
        io_flags: IoFlags,
        (offset, from_mapping): (u64, bool),
        data: Vec<u8>,
    ) -> Result<u32, Errno> {
        let inode = &file.inode;
        if io_flags.appends && inode.lock().end_unknown {
            // An error is ignored: the write reports errors of its own.
            let _ = self.attributes(&file.caller, inode).await;
        }
        if io_flags.writes_through || self.policy.synchronous {
            return self.write_and_wait(file, io_flags, offset, data).await;
        }
        if self.budget.is_full() {
            let _ = inode.lock().dirty.make_all_due();
            self.send(inode, Selection::Due);
            self.budget.wait_for_room().await;
        }
        // On return its memory goes back to the pool.
        let data = self.buffers.own(data);
        // Wait for overlapping writes that arrived before: these data might reach the server first.
        let range = write_range(io_flags, &inode.lock(), offset, data.len());
        let held = inode.begin_change(range);
        held.wait_for_turn().await;
        self.buffer_data(file, io_flags, (offset, from_mapping), &data)
    }

    /// Handles a write that need not wait, with one copy; `None` if it has to wait.
    pub(crate) fn try_write_now(
        self: &Arc<Self>,
        file: &OpenFile,
        io_flags: IoFlags,
        place: (u64, bool),
        data: &[u8],
    ) -> Option<Result<u32, Errno>> {
        let waits = io_flags.writes_through || self.policy.synchronous || self.budget.is_full();
        let waits = waits || (io_flags.appends && file.inode.lock().end_unknown);
        let waits = waits || {
            let range = write_range(io_flags, &file.inode.lock(), place.0, data.len());
            file.inode.is_being_written(&range)
        };
        (!waits).then(|| self.buffer_data(file, io_flags, place, data))
    }

    /// Holds data for the server. Fails if the server had no room for earlier data and the program
    /// did not get that error yet.
    fn buffer_data(
        self: &Arc<Self>,
        file: &OpenFile,
        io_flags: IoFlags,
        (offset, from_mapping): (u64, bool),
        data: &[u8],
    ) -> Result<u32, Errno> {
        let inode = &file.inode;
        let mut state = inode.lock();
        if !from_mapping {
            state.refuse_write(&file.reported_errors)?;
        }
        let (at, end) = write_position(io_flags, &state, (offset, data.len()), self.file_bytes_max)?;
        let data = data.get(..(end - at) as usize).unwrap_or(data);
        let held = state.dirty.write(at, data, &file.caller, self.sizes.1, Instant::now());
        self.budget.take(held);
        state.record_write(at..end);
        drop(state);
        if !from_mapping {
            // The pages have what a mapping has dirtied; any other write may have missed pages.
            let found = inode.offer_to_fills(at, data);
            drop(StalePages { core: self, inode, found, written: true });
        }
        self.send(inode, Selection::Due);
        self.forget_privileges(inode);
        if at != offset {
            // The kernel has put these data into its pages at another offset, at the end that it
            // knew.
            self.invalidations.request(inode.ino);
        }
        Ok(u32::try_from(data.len()).unwrap_or(u32::MAX))
    }

    /// A write whose data are stable when it returns.
    async fn write_and_wait(
        self: &Arc<Self>,
        file: &OpenFile,
        io_flags: IoFlags,
        offset: u64,
        mut data: Vec<u8>,
    ) -> Result<u32, Errno> {
        let inode = &file.inode;
        let sync_write = inode.begin_sync_write();
        let (at, end_guard, growth_guard) = {
            let mut state = inode.lock();
            let (at, end) = write_position(io_flags, &state, (offset, data.len()), self.file_bytes_max)?;
            data.truncate((end - at) as usize);
            let growth_guard = if io_flags.is_direct { inode.begin_growth(&mut state, end) } else { None };
            let end_guard = (io_flags.appends || state.is_past_end(end)).then(|| EndGuard(inode));
            if io_flags.appends {
                // Reserve the range before waiting for anything: the kernel sends the parts of a
                // long write together, and the next append must begin behind this one.
                state.record_write(at..end);
            }
            (at, end_guard, growth_guard)
        };
        let count = u32::try_from(data.len()).unwrap_or(u32::MAX);
        let (write_guard, found) = inode.begin_write(at, &data);
        let has_suspect = found.suspect.is_some();
        let mut stale_pages = StalePages { core: self, inode, found, written: false };
        self.flush(inode).await;
        self.budget.wait_for_room().await;
        write_guard.wait_for_turn().await;
        let outcome = self.write_through(file, at, data, &write_guard).await;
        stale_pages.written = outcome.is_ok();
        drop((sync_write, write_guard, stale_pages, growth_guard));
        if has_suspect && io_flags.bypasses_pages {
            // After an asynchronous write the kernel keeps its attributes of the file. Without them
            // it asks for them before it gives out a page, and the reply waits until the suspect
            // pages are dropped. Do not wait for that here: the kernel may be reading such a page,
            // with a request that it sends only once one of many writes is answered.
            self.forget_attributes(inode);
        } else {
            self.forget_privileges(inode);
        }
        if outcome.is_ok()
            && let Some(end_guard) = end_guard
        {
            end_guard.commit();
        }
        if at != offset {
            // The kernel has put these data into its pages at another offset, at the end that it
            // knew.
            self.invalidations.request(inode.ino);
        }
        outcome.map(|()| count)
    }

    /// Sends the data in WRITEs of the maximum size, all at once. On return the data are stable.
    async fn write_through(
        &self,
        file: &OpenFile,
        offset: u64,
        data: Vec<u8>,
        write_guard: &Arc<WriteGuard>,
    ) -> Result<(), Errno> {
        let (inode, len) = (&file.inode, data.len() as u64);
        let max = self.sizes.1;
        let outcome = if data.len() <= max {
            self.call_write(file, offset, data, write_guard).await
        } else {
            let pieces = (0_u64..).zip(data.chunks(max)).map(|(index, chunk)| {
                let at = offset + index * max as u64;
                let op = client::Op::Write { file: file.file, offset: at, buffer: chunk.to_vec().into() };
                let pending = self.mount.submit_as(op, file.caller.clone());
                self.charge(inode, chunk.len(), pending, write_guard)
            });
            let pieces: Vec<ChargedWrite> = pieces.collect();
            let mut outcome = Ok(());
            for piece in pieces {
                let done =
                    piece.done().await.result.map(|_| ()).map_err(|error| crate::errno::of_error(&error));
                outcome = outcome.and(done);
            }
            outcome
        };
        let (mut state, range) = (inode.lock(), offset..offset + len);
        if outcome.is_ok() {
            state.stored(range.end);
            state.record_write(range);
        } else {
            state.record_write_end(range);
        }
        drop(state);
        outcome
    }

    /// Sends the extents of a file that may be sent now.
    pub(crate) fn send(self: &Arc<Self>, inode: &Arc<Inode>, selection: Selection) {
        let mut state = inode.lock();
        if state.dirty.is_clean() {
            return;
        }
        let Some(file) = inode.file_ref(&state) else { return };
        let all = state.dirty.take(selection);
        drop(state);
        for OutgoingExtent { offset, extent } in all {
            let (bytes, cost) = (extent.data.len(), extent.cost());
            let range = offset..offset + bytes as u64;
            let call = self.call_write_owned(extent.caller, file, offset, extent.data);
            let (core, inode) = (Arc::clone(self), Arc::clone(inode));
            self.executor.spawn_short(async move {
                let (outcome, change) = call.await;
                let mut state = inode.lock();
                state.record_own_change(change);
                let waiting = state.dirty.complete(offset);
                if let Err(error) = outcome {
                    tracing::warn!(file = inode.ino, offset, bytes, errno = error.code(), "data are lost");
                    state.record_error(error);
                    state.mark_end_unknown();
                    // The kernel's pages still have the data, and would give them to readers.
                    state.pages_version = None;
                    core.invalidations.request(inode.ino);
                } else {
                    state.stored(range.end);
                }
                state.record_write_end(range);
                drop(state);
                core.budget.give_back(cost);
                // Other extents may have waited for this one.
                core.send(&inode, Selection::Due);
                waiting.into_iter().for_each(Waker::wake);
            });
        }
    }

    fn call_write_owned(
        self: &Arc<Self>,
        caller: Credential,
        file: client::FileRef,
        offset: u64,
        data: Vec<u8>,
    ) -> impl Future<Output = (Result<(), Errno>, Change)> + Send + 'static {
        let op = client::Op::Write { file, offset, buffer: data.into() };
        let pending = self.mount.submit_as(op, caller);
        async move {
            let done = pending.await;
            (done.result.map(|_| ()).map_err(|error| crate::errno::of_error(&error)), done.change)
        }
    }

    /// Sends all data of a file, and waits until the server has what was written by now.
    pub(crate) async fn flush(self: &Arc<Self>, inode: &Arc<Inode>) {
        let sequence = {
            let mut state = inode.lock();
            if state.dirty.is_clean() {
                return;
            }
            state.dirty.make_all_due()
        };
        self.send(inode, Selection::Due);
        std::future::poll_fn(|context| {
            if inode.lock().dirty.is_flushed(sequence, context.waker()) {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }

    /// fsync(2): waits for the data, and reports an error that was not reported to this handle yet.
    pub(crate) async fn sync_and_report(self: &Arc<Self>, file: &OpenFile) -> Result<(), Errno> {
        self.flush(&file.inode).await;
        file.inode.lock().report_errors(&file.reported_errors)?;
        self.check_locks(file)
    }

    /// close(2): waits for the data, and reports an error to a handle that may write. The error is
    /// reported at fsync(2) all the same: each copy of a descriptor is closed separately, also
    /// copies that a child process has inherited and that exec(2) closes, and nobody looks at the
    /// result.
    pub(crate) async fn flush_and_report(self: &Arc<Self>, file: &OpenFile) -> Result<(), Errno> {
        self.flush(&file.inode).await;
        match file.inode.lock().unreported_error(&file.reported_errors) {
            Some(error) if file.may_write => Err(error),
            _ => Ok(()),
        }
    }

    /// Sends data that have waited for long enough; all data if the budget is used up.
    pub(crate) fn send_old(self: &Arc<Self>) {
        let now = Instant::now();
        let before = if self.budget.is_full() { Some(now) } else { now.checked_sub(DIRTY_AGE) };
        let Some(before) = before else { return };
        for inode in self.inodes.with_unsent_data() {
            self.send(&inode, Selection::OlderThan(before));
        }
    }
}

/// Where data go that the kernel sends for `offset`, and where they end. With O_APPEND that is the
/// end of the file. Data beyond the largest file are left out, and write(2) returns a shorter
/// length; except with O_DIRECT, where the kernel makes EIO of a shorter length.
fn write_position(
    io_flags: IoFlags,
    state: &State,
    (offset, len): (u64, usize),
    max: u64,
) -> Result<(u64, u64), Errno> {
    let at = if io_flags.appends { state.append_at(offset) } else { offset };
    let end = at.saturating_add(len as u64);
    if end > max && (at >= max || io_flags.is_direct) {
        return Err(Errno::EFBIG);
    }
    Ok((at, end.min(max)))
}

/// The range of data that the kernel sends for `offset`.
fn write_range(io_flags: IoFlags, state: &State, offset: u64, len: usize) -> Range<u64> {
    let at = if io_flags.appends { state.append_at(offset) } else { offset };
    at..at.saturating_add(len as u64)
}

/// What a write has found of the kernel's pages. Dropped when the write ends, also because its
/// program was killed. Then the kernel is to drop the pages that were filled before the write
/// arrived, because they may lack its data. If fills have taken in data that the server may never
/// get, the kernel is to drop all pages.
struct StalePages<'a> {
    core: &'a Core,
    inode: &'a Inode,
    found: AffectedPages,
    written: bool,
}

impl Drop for StalePages<'_> {
    fn drop(&mut self) {
        let Self { core, inode, found, written } = self;
        if found.has_patched && !*written {
            core.invalidations.request(inode.ino);
        } else if let Some(range) = found.suspect.take() {
            core.invalidations.request_range(inode.ino, range);
        }
    }
}

/// A write that makes the file longer. If this is dropped without [`EndGuard::commit`], because the
/// write failed or its program was killed, the server has to be asked where the file ends: the next
/// append begins there.
struct EndGuard<'a>(&'a Inode);

impl EndGuard<'_> {
    fn commit(self) {
        std::mem::forget(self);
    }
}

impl Drop for EndGuard<'_> {
    fn drop(&mut self) {
        self.0.lock().mark_end_unknown();
    }
}
