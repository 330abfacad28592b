//! Unstable writes, until they are stable. RFC 1813 s3.3.7, s3.3.21
//!
//! A write that the server answers UNSTABLE keeps its buffer here until a COMMIT on the same node has
//! confirmed it; one COMMIT covers all that came before it. A changed verifier, or a node that is gone,
//! means writing those data again. A lone write is asked for FILE_SYNC instead: one round trip, not two.

use std::collections::HashMap;

use nfs3::Verifier;
use nfs3::proc::write::{Stable, Success};
use paths::NodeId;
use smallvec::SmallVec;

use super::Core;
use crate::call::{Answer, Body, CallKey, FileRef, Owner};
use crate::error::Error;

/// Unstable bytes kept at most for each loop and file before a COMMIT is sent however many writes are
/// still in flight.
const UNSTABLE_BYTES_MAX: usize = 64 << 20;

/// Writes of one file that one node has answered UNSTABLE.
#[derive(Debug)]
struct Group {
    node: NodeId,
    verifier: Verifier,
    held: Vec<CallKey>,
    held_bytes: usize,
    /// Covered by the COMMIT under way.
    committing: Vec<CallKey>,
}

/// The writes of one file that are not finished.
#[derive(Debug, Default)]
struct FileWrites {
    unfinished: usize,
    groups: SmallVec<[Group; 1]>,
}

/// All files with unfinished writes.
#[derive(Debug, Default)]
pub(super) struct Groups(HashMap<u64, FileWrites>);

impl Groups {
    /// A write begins: how it is to be asked for.
    pub(super) fn writing(&mut self, file: &FileRef, _bytes: usize) -> Stable {
        let writes = self.0.entry(file.number).or_default();
        writes.unfinished += 1;
        if writes.unfinished == 1 { Stable::FileSync } else { Stable::Unstable }
    }

    /// A write has ended, well or not.
    pub(super) fn finished(&mut self, file: &FileRef, _bytes: usize, _unstable: bool) {
        if let Some(writes) = self.0.get_mut(&file.number) {
            writes.unfinished = writes.unfinished.saturating_sub(1);
            if writes.unfinished == 0 {
                self.0.remove(&file.number);
            }
        }
    }

    /// A write is given up: no COMMIT speaks for it any more.
    pub(super) fn forget(&mut self, file: &FileRef, key: CallKey) {
        for group in self.0.get_mut(&file.number).into_iter().flat_map(|writes| &mut writes.groups) {
            group.held.retain(|held| *held != key);
            group.committing.retain(|held| *held != key);
        }
    }
}

impl Core {
    /// The server has answered a WRITE.
    pub(super) fn written(
        &mut self,
        key: CallKey,
        success: &Success,
        node: Option<NodeId>,
    ) -> Result<(), String> {
        let Some(call) = self.calls.0.get_mut(key) else { return Ok(()) };
        let Body::Write { file, buffer, written, stable, .. } = &mut call.body else { return Ok(()) };
        let file = *file;
        let (asked, count) = (buffer.len() - *written, success.count as usize);
        if count > asked || (count == 0 && asked > 0) {
            return Err(format!("{count} bytes written of {asked}"));
        }
        let is_stable = success.committed != Stable::Unstable;
        if count < asked {
            // The rest follows as a write of its own. What is written so far must be safe before it is
            // forgotten, so a short unstable write starts over, synchronously.
            if is_stable {
                *written += count;
            }
            *stable = Stable::FileSync;
            self.renew(key);
            return Ok(());
        }
        let (Some(node), false) = (node, is_stable) else {
            self.finish(key, Ok(Answer::Written));
            self.commit_when_due(&file);
            return Ok(());
        };
        let bytes = buffer.len();
        let lost = self.hold(&file, node, key, bytes, success.verifier);
        self.rewrite(&lost);
        self.commit_when_due(&file);
        Ok(())
    }

    /// Keeps an unstable write; gives the writes that an earlier life of the server has lost.
    fn hold(
        &mut self,
        file: &FileRef,
        node: NodeId,
        key: CallKey,
        bytes: usize,
        verifier: Verifier,
    ) -> Vec<CallKey> {
        let writes = self.groups.0.entry(file.number).or_default();
        let at = writes.groups.iter().position(|group| group.node == node).unwrap_or_else(|| {
            let (held, committing) = (Vec::new(), Vec::new());
            writes.groups.push(Group { node, verifier, held, held_bytes: 0, committing });
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

    /// Sends a COMMIT where enough writes wait for one.
    fn commit_when_due(&mut self, file: &FileRef) {
        let Some(writes) = self.groups.0.get_mut(&file.number) else { return };
        let held: usize = writes.groups.iter().map(|group| group.held.len()).sum();
        let committing: usize = writes.groups.iter().map(|group| group.committing.len()).sum();
        let in_flight = writes.unfinished.saturating_sub(held + committing);
        let bytes: usize = writes.groups.iter().map(|group| group.held_bytes).sum();
        // Half as many wait as are in flight: commits overlap with writes, and no write waits for long.
        if held == 0 || (held * 2 < in_flight && bytes < UNSTABLE_BYTES_MAX) {
            return;
        }
        let mut nodes: SmallVec<[NodeId; 4]> = SmallVec::new();
        for group in &mut writes.groups {
            if group.committing.is_empty() && !group.held.is_empty() {
                group.committing = std::mem::take(&mut group.held);
                group.held_bytes = 0;
                nodes.push(group.node);
            }
        }
        for node in nodes {
            let key = self.insert(Body::Commit { file: *file, node }, Owner::Engine);
            self.again.push(key);
        }
    }

    /// The writes that a COMMIT speaks for, and the verifier they were answered with.
    fn take_committing(&mut self, key: CallKey) -> Option<(FileRef, Verifier, Vec<CallKey>)> {
        let call = self.calls.0.get(key)?;
        let Body::Commit { file, node } = &call.body else { return None };
        let (file, node) = (*file, *node);
        let group =
            self.groups.0.get_mut(&file.number)?.groups.iter_mut().find(|group| group.node == node)?;
        Some((file, group.verifier, std::mem::take(&mut group.committing)))
    }

    /// A COMMIT was answered.
    pub(super) fn committed(&mut self, key: CallKey, verifier: Verifier) {
        let taken = self.take_committing(key);
        self.finish(key, Ok(Answer::Written));
        let Some((file, wanted, keys)) = taken else { return };
        if verifier == wanted {
            for key in keys {
                self.finish(key, Ok(Answer::Written));
            }
        } else {
            tracing::warn!("the server has lost unstable data (it restarted); writing them again");
            self.rewrite(&keys);
        }
        self.commit_when_due(&file);
    }

    /// A COMMIT failed: so have the writes that it spoke for.
    pub(super) fn fail_group(&mut self, key: CallKey, error: &Error) {
        let taken = self.take_committing(key);
        self.finish(key, Ok(Answer::Written));
        let Some((file, _, keys)) = taken else { return };
        for key in keys {
            self.finish(key, Err(error.again()));
        }
        self.commit_when_due(&file);
    }

    /// The node that a COMMIT must go to is gone.
    pub(super) fn rewrite_group(&mut self, key: CallKey) {
        let taken = self.take_committing(key);
        self.finish(key, Ok(Answer::Written));
        if let Some((_, _, keys)) = taken {
            self.rewrite(&keys);
        }
    }

    /// Writes data again that may be lost, as new calls.
    fn rewrite(&mut self, keys: &[CallKey]) {
        for &key in keys {
            if let Some(call) = self.calls.0.get_mut(key)
                && let Body::Write { written, .. } = &mut call.body
            {
                *written = 0;
            }
            self.renew(key);
        }
    }
}
