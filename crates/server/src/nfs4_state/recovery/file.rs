//! The file of recovery records: what a server remembers of its clients over a restart.
//!
//! Lines of text, each with a checksum, in the state directory of an export:
//!
//! ```text
//! trunkline nfs4 clients 2
//! server IDENTITY EPOCH CHECKSUM
//! client EPOCH ID PRINCIPAL OWNER CHECKSUM
//! host EPOCH ID NAME CHECKSUM
//! gone ID CHECKSUM
//! ```
//!
//! A host is one that locks by NLM. Version 1 had none of them. Numbers are hexadecimal. A record
//! is one line at the end, on disk before its client may open. The file is written anew, and takes
//! the old one's name when it is on disk, at each start, at the end of a grace period, and when
//! most of its lines are void. So it holds two epochs at most: that of this start, and while a
//! grace period lasts, that of the clients that may reclaim. A server that ends within the grace
//! period leaves both, and the next start goes on with the older one: nobody who was not in it
//! could have got anything. RFC 8881 s8.4.2.1
//!
//! A last line without its end was cut off when the host went down: its client was not told.

use state::{ClientId, RecoveryRecord};
use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use std::fs::File;
use std::hash::Hasher;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags};
use siphasher::sip::SipHasher13;

const NAME: &str = "nfs4-clients";
const DRAFT: &str = "nfs4-clients.new";
const LOCK: &str = "nfs4-clients.lock";
const HEAD: &str = "trunkline nfs4 clients ";
const VERSION: &str = "2";
/// The version before, which is read too.
const VERSION_BEFORE: &str = "1";
/// Void lines that the file may have before it is written anew, beyond one for each valid line.
const VOID_LINES_MAX: usize = 256;
/// The largest file that is read: two epochs of all clients that there can be, and void lines.
const BYTES_MAX: u64 = 64 << 20;

/// Why recovery records cannot be kept.
#[derive(Debug, thiserror::Error)]
pub enum RecoveryError {
    /// Another process has the file.
    #[error("another server of the same directory has {} locked", path.display())]
    InUse {
        /// The lock file.
        path: PathBuf,
    },
    /// The file is not as it was written.
    #[error("line {line} of {} is damaged", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
    /// The file is of a later version of this program.
    #[error("{} has version {version}, and this program knows version {VERSION}", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: String,
    },
    /// The system refused.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        error: io::Error,
    },
}

impl RecoveryError {
    /// What to do about it.
    #[must_use]
    pub fn advice(&self) -> String {
        match self {
            Self::InUse { .. } => {
                "stop that server, or serve version 3 alone here, with `nlm = false`: two servers do not see each \
                 other's locks"
                    .to_owned()
            }
            Self::Damaged { path, .. } => format!(
                "mv {0} {0}.damaged        clients then lose the files that they had open before the restart",
                path.display()
            ),
            Self::Newer { .. } => "the later version of this program".to_owned(),
            Self::Io { .. } => {
                "a directory of this user's own with free space as `state`, or serve version 3 alone, with \
                 `nlm = false`"
                    .to_owned()
            }
        }
    }
}

/// What the file has said at the start.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Contents {
    identity: [u8; 16],
    epoch: u32,
    /// By the epoch in which they were written.
    clients: BTreeMap<u64, (u32, RecoveryRecord)>,
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct RecoveryFile {
    directory: PathBuf,
    file: File,
    contents: Contents,
    /// Lines of records that no longer count.
    void_lines: usize,
    /// A write failed, and may have left a part of a line.
    is_torn: bool,
    /// Locked while the process lives.
    _lock: OwnedFd,
}

impl RecoveryFile {
    /// Opens the file in a directory that belongs to this user, or makes it, and begins an epoch.
    pub fn open(directory: &Path) -> Result<Self, RecoveryError> {
        let at = |name: &str| directory.join(name);
        let lock = locked(&at(LOCK))?;
        let path = at(NAME);
        let system = |error: io::Error| RecoveryError::Io { path: path.clone(), error };
        let mut contents = match read(&path).map_err(system)? {
            Some(text) => parse(&text, &path)?,
            None => fresh().map_err(system)?,
        };
        contents.begin_epoch();
        let file = write_anew(directory, &contents).map_err(system)?;
        let directory = directory.to_owned();
        Ok(Self { directory, file, contents, void_lines: 0, is_torn: false, _lock: lock })
    }

    /// Goes on with the file of a process that has ended, whose state lives on: in its epoch.
    pub fn take_over(directory: &Path) -> Result<Self, RecoveryError> {
        let at = |name: &str| directory.join(name);
        let lock = locked(&at(LOCK))?;
        let path = at(NAME);
        let system = |error: io::Error| RecoveryError::Io { path: path.clone(), error };
        let text = read(&path).map_err(system)?;
        let contents = parse(&text.ok_or_else(|| system(io::ErrorKind::NotFound.into()))?, &path)?;
        // The last line may have been cut off.
        let file = write_anew(directory, &contents).map_err(system)?;
        let directory = directory.to_owned();
        Ok(Self { directory, file, contents, void_lines: 0, is_torn: false, _lock: lock })
    }

    pub const fn identity(&self) -> [u8; 16] {
        self.contents.identity
    }

    pub const fn epoch(&self) -> u32 {
        self.contents.epoch
    }

    pub fn path(&self) -> PathBuf {
        path_in(&self.directory)
    }

    /// The clients that may reclaim, each once. Of several records of one client the last counts.
    pub fn reclaimable(&self) -> Vec<RecoveryRecord> {
        let mut seen = HashSet::new();
        let earlier = self.contents.clients.values().rev().filter(|(epoch, _)| *epoch != self.contents.epoch);
        earlier
            .filter(|(_, record)| seen.insert((record.owner.clone(), record.principal, record.is_nlm)))
            .map(|(_, record)| record.clone())
            .collect()
    }

    /// Adds records and removes others. All of it is on disk afterwards.
    pub fn change(&mut self, added: &[RecoveryRecord], gone: &[ClientId]) -> io::Result<()> {
        let epoch = self.contents.epoch;
        let mut lines = String::new();
        for record in added {
            self.contents.clients.insert(record.client.0, (epoch, record.clone()));
            push_client(&mut lines, epoch, record);
        }
        for id in gone {
            if self.contents.clients.remove(&id.0).is_some() {
                push_line(&mut lines, &format!("gone {:x}", id.0));
                self.void_lines += 2;
            }
        }
        if self.is_torn || self.void_lines > self.contents.clients.len() + VOID_LINES_MAX {
            return self.write_anew();
        }
        let written = self.file.write_all(lines.as_bytes()).and_then(|()| match added {
            // A record that stays makes the next grace period longer, and nothing else.
            [] => Ok(()),
            _ => self.file.sync_data(),
        });
        self.is_torn = written.is_err();
        written
    }

    /// Drops the records of clients that have not reclaimed.
    pub fn end_grace(&mut self) -> io::Result<()> {
        let epoch = self.contents.epoch;
        self.contents.clients.retain(|_, (of, _)| *of == epoch);
        self.write_anew()
    }

    fn write_anew(&mut self) -> io::Result<()> {
        self.is_torn = true;
        self.file = write_anew(&self.directory, &self.contents)?;
        (self.is_torn, self.void_lines) = (false, 0);
        Ok(())
    }
}

impl Contents {
    /// Begins the epoch of a start. Clients of the last epoch may reclaim, or those of the one
    /// before, if the last start ended within its grace period.
    fn begin_epoch(&mut self) {
        let oldest = self.clients.values().map(|(epoch, _)| *epoch).find(|epoch| *epoch != self.epoch);
        let of = oldest.unwrap_or(self.epoch);
        self.clients.retain(|_, (epoch, _)| *epoch == of);
        // 0 and the highest number are not epochs.
        self.epoch = if self.epoch >= u32::MAX - 1 { 1 } else { self.epoch + 1 };
    }
}

/// Where the file is.
pub(super) fn path_in(directory: &Path) -> PathBuf {
    directory.join(NAME)
}

/// Locks the lock file until the process ends.
fn locked(path: &Path) -> Result<OwnedFd, RecoveryError> {
    let system = |error: io::Error| RecoveryError::Io { path: path.to_owned(), error };
    let how = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, how, Mode::RUSR | Mode::WUSR).map_err(|errno| system(errno.into()))?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(RecoveryError::InUse { path: path.to_owned() }),
        Err(errno) => Err(system(errno.into())),
    }
}

fn read(path: &Path) -> io::Result<Option<String>> {
    match std::fs::metadata(path) {
        Ok(found) if found.len() > BYTES_MAX => Err(io::Error::other(format!(
            "the file has {} bytes, and at most {BYTES_MAX} are read",
            found.len()
        ))),
        // Whatever is not text fails its checksum.
        Ok(_) => std::fs::read(path).map(|bytes| Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// A server that has had no clients.
fn fresh() -> io::Result<Contents> {
    let (mut identity, mut epoch) = ([0; 16], [0; 4]);
    getrandom::fill(&mut identity).and_then(|()| getrandom::fill(&mut epoch)).map_err(io::Error::other)?;
    // Where a file was lost, what clients still have from before is of another epoch all the same.
    let epoch = u32::from_ne_bytes(epoch) / 2;
    Ok(Contents { identity, epoch, clients: BTreeMap::new() })
}

/// Writes the whole file, which then takes the place of the present one.
fn write_anew(directory: &Path, contents: &Contents) -> io::Result<File> {
    let mut text = format!("{HEAD}{VERSION}\n");
    let identity = u128::from_be_bytes(contents.identity);
    push_line(&mut text, &format!("server {identity:032x} {:x}", contents.epoch));
    for (epoch, record) in contents.clients.values() {
        push_client(&mut text, *epoch, record);
    }
    let draft = directory.join(DRAFT);
    let how = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(rustix::fs::open(&draft, how, Mode::RUSR | Mode::WUSR)?);
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&draft, directory.join(NAME))?;
    File::open(directory)?.sync_all()?;
    Ok(file)
}

fn checksum(line: &str) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(line.as_bytes());
    hasher.finish()
}

fn push_line(text: &mut String, line: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{line} {:016x}", checksum(line));
}

fn push_client(text: &mut String, epoch: u32, record: &RecoveryRecord) {
    let mut owner = String::with_capacity(2 * record.owner.len());
    for byte in &record.owner {
        let _ = write!(owner, "{byte:02x}");
    }
    let (id, principal) = (record.client.0, record.principal);
    push_line(
        text,
        &match record.is_nlm {
            true => format!("host {epoch:x} {id:x} {owner}"),
            false => format!("client {epoch:x} {id:x} {principal:x} {owner}"),
        },
    );
}

fn parse(text: &str, path: &Path) -> Result<Contents, RecoveryError> {
    let path = || path.to_owned();
    let version = text.lines().next().and_then(|head| head.strip_prefix(HEAD));
    match version {
        Some(VERSION | VERSION_BEFORE) => {}
        Some(version) if version.parse::<u32>().is_ok() => {
            return Err(RecoveryError::Newer { path: path(), version: version.to_owned() });
        }
        _ => return Err(RecoveryError::Damaged { path: path(), line: 1 }),
    }
    let mut contents = None;
    for (number, line) in (1..).zip(text.split_inclusive('\n')).skip(1) {
        // Only the last line can be without its end.
        let Some(line) = line.strip_suffix('\n') else { break };
        let taken = line
            .rsplit_once(' ')
            .filter(|(words, sum)| u64::from_str_radix(sum, 16).is_ok_and(|sum| sum == checksum(words)));
        if taken.and_then(|(words, _)| take(&mut contents, words)).is_none() {
            return Err(RecoveryError::Damaged { path: path(), line: number });
        }
    }
    contents.ok_or_else(|| RecoveryError::Damaged { path: path(), line: 2 })
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

/// Takes in a line; `None` if it makes no sense there.
fn take(contents: &mut Option<Contents>, line: &str) -> Option<()> {
    let words: Vec<&str> = line.split(' ').collect();
    let number = |word: &str| u64::from_str_radix(word, 16).ok();
    match (contents, words.as_slice()) {
        (contents @ None, ["server", identity, epoch]) => {
            let identity = u128::from_str_radix(identity, 16).ok()?.to_be_bytes();
            let epoch = u32::from_str_radix(epoch, 16).ok()?;
            *contents = Some(Contents { identity, epoch, clients: BTreeMap::new() });
        }
        (Some(contents), ["client", epoch, id, principal, owner]) => {
            let (id, principal) = (number(id)?, number(principal)?);
            let record =
                RecoveryRecord { client: ClientId(id), owner: unhex(owner)?, principal, is_nlm: false };
            contents.clients.insert(id, (u32::from_str_radix(epoch, 16).ok()?, record));
        }
        (Some(contents), ["host", epoch, id, name]) => {
            let id = number(id)?;
            let record =
                RecoveryRecord { client: ClientId(id), owner: unhex(name)?, principal: 0, is_nlm: true };
            contents.clients.insert(id, (u32::from_str_radix(epoch, 16).ok()?, record));
        }
        (Some(contents), ["gone", id]) => _ = contents.clients.remove(&number(id)?),
        _ => return None,
    }
    Some(())
}

#[cfg(test)]
mod tests;
