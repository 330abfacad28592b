//! Preserves hard links: the first name of a file is copied, the others are linked to the copy.
//!
//! A file is remembered until all of its names were seen. So the table holds only files that have
//! names not seen yet.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::backend::Anchor;
use crate::job::Job;

/// The index of the source, the file system and the file.
type Key = (usize, (u64, u64));

#[derive(Debug)]
enum State {
    /// The file is being copied; these names wait for it.
    Copying(Vec<Job>),
    Copied(Anchor),
}

#[derive(Debug)]
struct Known {
    state: State,
    /// The number of names that have not been seen yet.
    left: u32,
}

/// What to do with a name.
#[derive(Debug)]
pub(crate) enum Turn {
    /// The name is the file's first: copy it, then call [`Links::copied`].
    Copy(Job),
    /// Link the name to this copy.
    Link(Job, Anchor),
    /// Nothing: the name waits until its file is copied.
    Kept,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Links {
    known: Mutex<HashMap<Key, Known>>,
}

impl Links {
    fn key(job: &Job) -> Key {
        (job.number, (job.entry.attributes.fsid, job.entry.attributes.fileid))
    }

    pub(crate) fn turn(&self, job: Job) -> Turn {
        let key = Self::key(&job);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(file) = known.get_mut(&key) else {
            let left = job.entry.attributes.nlink.saturating_sub(1);
            known.insert(key, Known { state: State::Copying(Vec::new()), left });
            return Turn::Copy(job);
        };
        file.left = file.left.saturating_sub(1);
        let is_last = file.left == 0;
        match &mut file.state {
            State::Copying(waiting) => {
                waiting.push(job);
                Turn::Kept
            }
            State::Copied(anchor) => {
                let anchor = anchor.clone();
                if is_last {
                    known.remove(&key);
                }
                Turn::Link(job, anchor)
            }
        }
    }

    /// Records that the first name was copied, or failed if there is no anchor. Returns the names
    /// that waited. After a failure, the next name of the file is treated as the first.
    pub(crate) fn copied(&self, job: &Job, anchor: Option<Anchor>) -> Vec<Job> {
        let key = Self::key(job);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(file) = known.get_mut(&key) else { return Vec::new() };
        let State::Copying(waiting) = &mut file.state else { return Vec::new() };
        let waiting = std::mem::take(waiting);
        match anchor {
            Some(anchor) if file.left > 0 => file.state = State::Copied(anchor),
            _ => {
                known.remove(&key);
            }
        }
        waiting
    }
}
