//! Names of one file: the first that is met is copied, the others are linked to it.
//!
//! A file is remembered until all of its names were seen, so the table holds only files with names
//! outside of what has been copied so far.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::backend::Anchor;
use crate::job::Job;

/// Which source, file system and file.
type Key = (usize, (u64, u64));

#[derive(Debug)]
enum State {
    /// It is being copied; these names wait for it.
    Copying(Vec<Job>),
    Copied(Anchor),
}

#[derive(Debug)]
struct Known {
    state: State,
    /// Names that have not been seen yet.
    left: u32,
}

/// What to do with a name.
#[derive(Debug)]
pub(crate) enum Turn {
    /// It is the first: copy it, then say so.
    Copy(Job),
    /// Link it to this.
    Link(Job, Anchor),
    /// It is kept until its file is copied.
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

    /// The first name is copied, or has failed without an anchor; gives the names that waited.
    /// After a failure the next name that comes is the first again.
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
