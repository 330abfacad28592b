//! Preserves hard links: the first name of a file is copied, the others are linked to the copy.
//!
//! A file is remembered until all of its names were seen. So the table holds only files that have
//! names not seen yet.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::backend::LinkSource;
use crate::job::Job;

/// The index of the source, the file system and the file.
type Key = (usize, (u64, u64));

#[derive(Debug)]
enum State {
    /// The file is being copied; these names wait for it.
    Copying(Vec<Job>),
    Copied(LinkSource),
}

#[derive(Debug)]
struct LinkedFile {
    state: State,
    /// The number of names that have not been seen yet.
    unseen_names: u32,
}

/// What to do with a name.
#[derive(Debug)]
pub(crate) enum LinkAction {
    /// The name is the file's first: copy it, then call [`Links::copied`].
    Copy(Job),
    /// Link the name to this copy.
    Link(Job, LinkSource),
    /// Nothing: the name waits until its file is copied.
    Wait,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Links {
    files: Mutex<HashMap<Key, LinkedFile>>,
}

impl Links {
    fn key(job: &Job) -> Key {
        (job.number, (job.entry.attributes.fsid, job.entry.attributes.fileid))
    }

    pub(crate) fn next_action(&self, job: Job) -> LinkAction {
        let key = Self::key(&job);
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(file) = files.get_mut(&key) else {
            let unseen_names = job.entry.attributes.nlink.saturating_sub(1);
            files.insert(key, LinkedFile { state: State::Copying(Vec::new()), unseen_names });
            return LinkAction::Copy(job);
        };
        file.unseen_names = file.unseen_names.saturating_sub(1);
        let is_last = file.unseen_names == 0;
        match &mut file.state {
            State::Copying(waiting) => {
                waiting.push(job);
                LinkAction::Wait
            }
            State::Copied(link_source) => {
                let link_source = link_source.clone();
                if is_last {
                    files.remove(&key);
                }
                LinkAction::Link(job, link_source)
            }
        }
    }

    /// Records that the first name was copied, or failed if there is no link source. Returns the
    /// names that waited. After a failure, the next name of the file is treated as the first.
    pub(crate) fn copied(&self, job: &Job, link_source: Option<LinkSource>) -> Vec<Job> {
        let key = Self::key(job);
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(file) = files.get_mut(&key) else { return Vec::new() };
        let State::Copying(waiting) = &mut file.state else { return Vec::new() };
        let waiting = std::mem::take(waiting);
        match link_source {
            Some(link_source) if file.unseen_names > 0 => file.state = State::Copied(link_source),
            _ => {
                files.remove(&key);
            }
        }
        waiting
    }
}
