//! Unstable writes, until they are stable. RFC 1813 s3.3.7, s3.3.21
//!
//! A write that the server answers UNSTABLE keeps its buffer here until a COMMIT on the same node
//! has confirmed it; one COMMIT covers all writes answered before it was sent. If the verifier
//! changes or the node is gone, those data are written again. A single write asks for FILE_SYNC
//! instead, which saves a round trip.

use std::collections::HashMap;
use std::time::Duration;

use fs::{Stability, Verifier};
use paths::NodeId;
use smallvec::SmallVec;

use super::Core;
use crate::call::{Answer, Body, CallKey, FileRef, Owner};
use crate::error::Error;
use crate::protocol::Written;

/// Maximum number of unstable bytes held per loop and file before a COMMIT is sent regardless of
/// how many writes are in flight.
const UNSTABLE_BYTES_MAX: usize = 64 << 20;
/// Initial capacity of a list, so that it need not grow at usual depths.
const LIST_LEN: usize = 64;
/// Number of empty lists kept for the next COMMITs.
const SPARE_LISTS_MAX: usize = 16;
/// How often the data of a WRITE are written again because of the server's answers. Data are
/// written again with FILE_SYNC, so a server that restarts, however often, causes few rewrites; a
/// server that answers UNSTABLE nevertheless, and always with another verifier, has no end of them.
const REWRITES_MAX: u32 = 10;
/// The wait before the second rewrite; it doubles with each up to [`REWRITE_WAIT_MAX`].
const REWRITE_WAIT: Duration = Duration::from_millis(10);
const REWRITE_WAIT_MAX: Duration = Duration::from_secs(1);

/// Writes of one file that one node answered UNSTABLE.
#[derive(Debug)]
struct CommitGroup {
    node: NodeId,
    verifier: Verifier,
    held: Vec<CallKey>,
    held_bytes: usize,
    commit: Option<Commit>,
}

/// A COMMIT in flight. It covers only writes that were answered before it was sent, and only if the
/// server did not restart in between.
#[derive(Debug)]
struct Commit {
    /// Identifies the COMMIT: after a write was given up, an older COMMIT of the same group may
    /// still be answered.
    key: CallKey,
    /// The verifier in the replies to these writes; the group may have received a new verifier with
    /// a later write.
    verifier: Verifier,
    covers: Vec<CallKey>,
}

/// The unfinished writes of one file.
#[derive(Debug, Default)]
struct FileWrites {
    unfinished: usize,
    groups: SmallVec<[CommitGroup; 1]>,
}

impl FileWrites {
    /// Whether a COMMIT is to be sent now.
    fn due(&self) -> bool {
        let held: usize = self.groups.iter().map(|group| group.held.len()).sum();
        let covered = self.groups.iter().filter_map(|group| group.commit.as_ref());
        let committing: usize = covered.map(|commit| commit.covers.len()).sum();
        let in_flight = self.unfinished.saturating_sub(held + committing);
        let bytes: usize = self.groups.iter().map(|group| group.held_bytes).sum();
        // The threshold is half as many held writes as are in flight: commits overlap with writes,
        // and no write waits for long.
        held > 0 && (held * 2 >= in_flight || bytes >= UNSTABLE_BYTES_MAX)
    }
}

/// All files with unfinished writes.
#[derive(Debug, Default)]
pub(super) struct CommitGroups {
    files: HashMap<u64, FileWrites>,
    /// Files whose writes progressed in this round; at its end each is checked for a due COMMIT. A
    /// check after each reply would cover only the first few of many replies received together.
    touched: Vec<FileRef>,
    spare: Vec<Vec<CallKey>>,
}

impl CommitGroups {
    /// Starts a write. Returns the stability to ask for.
    pub(super) fn writing(&mut self, file: &FileRef) -> Stability {
        let writes = self.files.entry(file.number).or_default();
        writes.unfinished += 1;
        if writes.unfinished == 1 { Stability::FileSync } else { Stability::Unstable }
    }

    /// Records that a write has ended, successfully or not.
    pub(super) fn finished(&mut self, file: &FileRef) {
        let Some(writes) = self.files.get_mut(&file.number) else { return };
        writes.unfinished = writes.unfinished.saturating_sub(1);
        if writes.unfinished == 0
            && let Some(writes) = self.files.remove(&file.number)
        {
            for group in writes.groups {
                self.recycle(group.held);
            }
        }
    }

    /// Marks a file to be checked for a due COMMIT.
    pub(super) fn touch(&mut self, file: &FileRef) {
        if self.touched.last().is_none_or(|last| last.number != file.number) {
            self.touched.push(*file);
        }
    }

    /// Gives up a write: no COMMIT covers it any more. Returns the COMMIT that covered only this
    /// write and now covers none.
    pub(super) fn forget(&mut self, file: &FileRef, key: CallKey, bytes: usize) -> Option<CallKey> {
        let mut idle = None;
        for group in self.files.get_mut(&file.number).into_iter().flat_map(|writes| &mut writes.groups) {
            let before = group.held.len();
            group.held.retain(|held| *held != key);
            if group.held.len() < before {
                group.held_bytes = group.held_bytes.saturating_sub(bytes);
            }
            if let Some(commit) = &mut group.commit {
                commit.covers.retain(|covered| *covered != key);
            }
            if let Some(commit) = group.commit.take_if(|commit| commit.covers.is_empty()) {
                idle = Some(commit.key);
            }
        }
        idle
    }

    fn recycle(&mut self, mut list: Vec<CallKey>) {
        if list.capacity() > 0 && self.spare.len() < SPARE_LISTS_MAX {
            list.clear();
            self.spare.push(list);
        }
    }
}

fn spare_list(spare: &mut Vec<Vec<CallKey>>) -> Vec<CallKey> {
    spare.pop().unwrap_or_else(|| Vec::with_capacity(LIST_LEN))
}

impl Core {
    /// Handles the reply to a WRITE.
    pub(super) fn written(
        &mut self,
        key: CallKey,
        told: &Written,
        node: Option<NodeId>,
    ) -> Result<(), String> {
        let Some(call) = self.calls.0.get_mut(key) else { return Ok(()) };
        let Body::Write { file, buffer, written, stability, change, .. } = &mut call.body else {
            return Ok(());
        };
        let file = *file;
        let (asked, count) = (buffer.len() - *written, told.count as usize);
        if count > asked || (count == 0 && asked > 0) {
            return Err(format!("{count} bytes written of {asked}"));
        }
        *change = change.then(told.change);
        let is_stable = told.stability != Stability::Unstable;
        if count < asked {
            // The rest follows as a separate write. The bytes written so far must be stable before
            // their progress counts, so a short unstable write starts over, synchronously.
            if is_stable {
                *written += count;
                *stability = Stability::FileSync;
                self.renew(key);
            } else {
                self.rewrite_lost(key);
            }
            return Ok(());
        }
        let (Some(node), false) = (node, is_stable) else {
            self.finish(key, Ok(Answer::Written));
            return Ok(());
        };
        let bytes = buffer.len();
        // The call was answered. If its xid stayed outstanding, as many held writes as fit the
        // window would leave no xid for calls that wait for one, and no COMMIT would be sent before
        // those calls.
        self.forget_xid(key);
        let lost = self.hold(&file, node, key, bytes, told.verifier);
        self.rewrite_all_lost(lost);
        self.groups.touch(&file);
        Ok(())
    }

    /// Holds an unstable write. Returns the writes that the server has lost in a restart.
    fn hold(
        &mut self,
        file: &FileRef,
        node: NodeId,
        key: CallKey,
        bytes: usize,
        verifier: Verifier,
    ) -> Vec<CallKey> {
        let CommitGroups { files, spare, .. } = &mut self.groups;
        let writes = files.entry(file.number).or_default();
        let at = writes.groups.iter().position(|group| group.node == node).unwrap_or_else(|| {
            let held = spare_list(spare);
            writes.groups.push(CommitGroup { node, verifier, held, held_bytes: 0, commit: None });
            writes.groups.len() - 1
        });
        let Some(group) = writes.groups.get_mut(at) else { return Vec::new() };
        let mut lost = Vec::new();
        if group.verifier != verifier {
            lost = std::mem::take(&mut group.held);
            group.held_bytes = 0;
            group.verifier = verifier;
        }
        group.held.push(key);
        group.held_bytes += bytes;
        lost
    }

    /// Sends a COMMIT for each file touched in this round for which one is due.
    pub(super) fn commit_touched(&mut self) {
        for at in 0..self.groups.touched.len() {
            if let Some(file) = self.groups.touched.get(at).copied() {
                self.commit_when_due(&file);
            }
        }
        self.groups.touched.clear();
    }

    /// Sends a COMMIT if enough writes wait for one.
    fn commit_when_due(&mut self, file: &FileRef) {
        if !self.groups.files.get(&file.number).is_some_and(FileWrites::due) {
            return;
        }
        let groups = self.groups.files.get(&file.number).map_or(0, |writes| writes.groups.len());
        for at in 0..groups {
            let spare = &mut self.groups.spare;
            let Some(group) =
                self.groups.files.get_mut(&file.number).and_then(|writes| writes.groups.get_mut(at))
            else {
                return;
            };
            if group.commit.is_some() || group.held.is_empty() {
                continue;
            }
            let covers = std::mem::replace(&mut group.held, spare_list(spare));
            group.held_bytes = 0;
            let (node, verifier) = (group.node, group.verifier);
            // A user who wrote the data may surely commit them.
            let writer = covers.first().and_then(|key| self.calls.0.get(*key));
            let caller = writer.and_then(|call| call.caller.clone());
            let key = self.insert(Body::Commit { file: *file, node }, Owner::Engine);
            if let Some(call) = self.calls.0.get_mut(key) {
                call.caller = caller;
            }
            self.queues.push(key);
            let writes = self.groups.files.get_mut(&file.number);
            if let Some(group) = writes.and_then(|writes| writes.groups.get_mut(at)) {
                group.commit = Some(Commit { key, verifier, covers });
            }
        }
    }

    /// Ends a COMMIT. Returns the file and the COMMIT, or `None` if all its writes were given up
    /// before.
    fn end_commit(&mut self, key: CallKey) -> Option<(FileRef, Commit)> {
        let Body::Commit { file, .. } = &self.calls.0.get(key)?.body else { return None };
        let file = *file;
        self.finish(key, Ok(Answer::Written));
        let writes = self.groups.files.get_mut(&file.number)?;
        let ours = |group: &&mut CommitGroup| group.commit.as_ref().is_some_and(|commit| commit.key == key);
        let commit = writes.groups.iter_mut().find(ours)?.commit.take()?;
        Some((file, commit))
    }

    /// Handles the reply to a COMMIT.
    pub(super) fn committed(&mut self, key: CallKey, verifier: Verifier) {
        let Some((file, mut commit)) = self.end_commit(key) else { return };
        if verifier == commit.verifier {
            for key in commit.covers.drain(..) {
                self.finish(key, Ok(Answer::Written));
            }
            self.groups.recycle(commit.covers);
        } else {
            tracing::warn!("the server has lost unstable data (it restarted); writing them again");
            self.rewrite_all_lost(commit.covers);
        }
        self.groups.touch(&file);
    }

    /// Handles a failed COMMIT: the writes that it covers fail too.
    pub(super) fn fail_group(&mut self, key: CallKey, error: &Error) {
        let Some((file, commit)) = self.end_commit(key) else { return };
        for key in commit.covers {
            self.finish(key, Err(error.again()));
        }
        self.groups.touch(&file);
    }

    /// Handles the loss of the node that a COMMIT must go to.
    pub(super) fn rewrite_group(&mut self, key: CallKey) {
        let Some((file, commit)) = self.end_commit(key) else { return };
        self.rewrite(commit.covers);
        self.groups.touch(&file);
    }

    /// Writes data again whose node is gone, as new calls.
    fn rewrite(&mut self, mut keys: Vec<CallKey>) {
        for key in keys.drain(..) {
            self.start_over(key);
            self.renew(key);
        }
        self.groups.recycle(keys);
    }

    /// Lets a WRITE begin again with its first byte. Synchronously: this is rare, and the server
    /// must not be able to lose the data again.
    fn start_over(&mut self, key: CallKey) {
        if let Some(call) = self.calls.0.get_mut(key)
            && let Body::Write { written, stability, .. } = &mut call.body
        {
            *written = 0;
            *stability = Stability::FileSync;
        }
    }

    fn rewrite_all_lost(&mut self, mut keys: Vec<CallKey>) {
        for key in keys.drain(..) {
            self.rewrite_lost(key);
        }
        self.groups.recycle(keys);
    }

    /// Writes data again that the server has lost by its own account: at once the first time, then
    /// with back-off, and at last not any more.
    fn rewrite_lost(&mut self, key: CallKey) {
        let Some(call) = self.calls.0.get_mut(key) else { return };
        let rewrites = call.rewrites;
        call.rewrites += 1;
        if rewrites == REWRITES_MAX {
            let reason = format!(
                "the server answers FILE_SYNC with UNSTABLE, and lost the data {} times",
                call.rewrites
            );
            tracing::warn!(server = %self.server, "{} fails: {reason}", call.description());
            let error = call.misbehaved(reason);
            self.finish(key, Err(error));
            return;
        }
        self.start_over(key);
        if rewrites == 0 {
            self.renew(key);
            return;
        }
        self.forget_xid(key);
        let wait = (REWRITE_WAIT * (1 << (rewrites - 1))).min(REWRITE_WAIT_MAX);
        self.queues.delay(self.now + wait, key);
    }
}
