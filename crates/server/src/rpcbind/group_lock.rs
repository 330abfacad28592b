//! Decides which process of a group is registered: a host has one port 111, and its rpcbind has one
//! address for each program.
//!
//! The first process locks a file in the directory of the group, and keeps the lock until the
//! process ends. The lock ends with the process, so a killed process does not block the others. The
//! file lists what was registered with the host's rpcbind; a killed process could not remove its
//! entries, so the next process with the lock does.

use rpc::portmap::Entry;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// The file in the group's directory.
const NAME: &str = "rpcbind";
/// More than a line for each program and netid; a longer file is not ours.
const BYTES_MAX: u64 = 4096;

/// The held lock; dropping it releases it to the next process.
#[derive(Debug)]
pub(super) struct GroupLock {
    file: File,
    leftover: Vec<String>,
}

fn line(entry: &Entry) -> String {
    format!("{} {}", entry.program, entry.netid())
}

impl GroupLock {
    /// Takes the lock, unless another process has it.
    pub fn try_lock(directory: &Path) -> io::Result<Option<Self>> {
        let mut open = OpenOptions::new();
        let open = open.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = open.open(directory.join(NAME))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        }
        let mut text = String::new();
        (&file).take(BYTES_MAX).read_to_string(&mut text)?;
        let leftover = text.lines().map(str::to_owned).collect();
        Ok(Some(Self { file, leftover }))
    }

    /// Whether a process of the group registered this entry and could not remove it.
    pub fn was_left(&self, entry: &Entry) -> bool {
        let wanted = line(entry);
        self.leftover.contains(&wanted)
    }

    /// Notes the registered entries, in addition to entries that others left.
    pub fn note(&self, entries: &[Entry]) -> io::Result<()> {
        let mut lines = self.leftover.clone();
        lines.extend(entries.iter().map(line));
        lines.sort();
        lines.dedup();
        let text = lines.iter().map(|line| format!("{line}\n")).collect::<String>();
        self.file.write_all_at(text.as_bytes(), 0)?;
        self.file.set_len(text.len() as u64)
    }

    /// Notes that nothing is registered any more.
    pub fn clear(&self) {
        if let Err(error) = self.file.set_len(0) {
            tracing::debug!(%error, "the group's note of what is registered stays");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpc::portmap::Protocol;

    #[test]
    fn one_process_has_the_lock_and_the_next_knows_what_a_killed_one_left() {
        let directory = tempfile::tempdir().unwrap();
        let entry = |program, protocol| Entry {
            program,
            version: 3,
            protocol,
            address: "10.0.0.1:2049".parse().unwrap(),
        };
        let (nfs, mount) = (entry(nfs3::PROGRAM, Protocol::Tcp), entry(nfs3::mount::PROGRAM, Protocol::Udp));
        let first = GroupLock::try_lock(directory.path()).unwrap().unwrap();
        assert!(!first.was_left(&nfs));
        first.note(&[nfs]).unwrap();
        assert!(GroupLock::try_lock(directory.path()).unwrap().is_none());
        // As if killed by a signal: nothing is cleared.
        drop(first);
        let second = GroupLock::try_lock(directory.path()).unwrap().unwrap();
        assert!(second.was_left(&nfs) && !second.was_left(&mount));
        second.note(&[nfs, mount]).unwrap();
        drop(second);
        let third = GroupLock::try_lock(directory.path()).unwrap().unwrap();
        assert!(third.was_left(&nfs) && third.was_left(&mount));
        third.clear();
        drop(third);
        assert!(!GroupLock::try_lock(directory.path()).unwrap().unwrap().was_left(&nfs));
    }
}
