//! The reply cache of a group whose nodes are processes: a file that all of them map, and that
//! outlives each.
//!
//! What the cache itself does is [`drc::shared`]'s. Here is what that needs of the system: the file
//! and its checks ([`file`]), memory ([`mapping`]), which processes live ([`members`]), and which
//! client has which window ([`clients`]). Nothing that is read from the file is trusted further
//! than to be a number.
//!
//! `docs/decisions/0008-group.md` has the reasons.

mod clients;
mod error;
mod file;
mod layout;
mod mapping;
mod members;

pub(crate) use clients::SharedClient;
pub use error::GroupError;

use clients::Clients;
use drc::ConnectionTable;
use drc::shared::SharedTable;
use file::GroupFile;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How often a process says which clients it still serves, and looks whether the file is still the
/// group's. Far less than [`clients`] takes for a sign that a window is free.
pub(crate) const UPKEEP: Duration = Duration::from_secs(5);

/// An export, as the processes of a group must agree on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExportMark {
    pub fsid: u32,
    /// Of its path and the key of its handles: where those agree, a handle of one process is good
    /// in all.
    pub fingerprint: u64,
    pub path: String,
    /// The write verifier now.
    pub verifier: u64,
}

/// A process's part in a group.
#[derive(Debug)]
pub(crate) struct SharedReplyCache {
    file: Arc<GroupFile>,
    clients: Clients,
}

impl SharedReplyCache {
    /// Joins the group in `directory`, or begins it. The group's exports must be these.
    pub fn join(directory: &Path, exports: &[ExportMark]) -> Result<Self, GroupError> {
        let file = Arc::new(GroupFile::join(directory, exports)?);
        Ok(Self { clients: Clients::new(Arc::clone(&file)), file })
    }

    /// Agrees with the other processes on one more export.
    pub fn add_export(&self, export: &ExportMark) -> Result<(), GroupError> {
        self.file.add_export(export)
    }

    /// The write verifier that an export had when the cache's memory of it began.
    pub fn first_verifier(&self, fsid: u32) -> Option<u64> {
        self.file.first_verifier(fsid)
    }

    /// The windows of one of our clients; `None` when there are too many of them.
    pub fn client(&self, id: u64, from: IpAddr, now: Duration) -> Option<Arc<SharedClient>> {
        self.clients.client(id, from, now)
    }

    /// The table of other clients' calls.
    pub fn table(&self) -> SharedTable<'_> {
        SharedTable::new(self.file.table(), self.file.seed())
    }

    /// The connections on which those came.
    pub fn connections(&self) -> ConnectionTable<'_> {
        ConnectionTable::new(self.file.connections(), &*self.file)
    }

    /// What the cache asks of this process.
    pub fn host(&self) -> &GroupFile {
        &self.file
    }

    /// To be called about every [`UPKEEP`].
    pub fn upkeep(&self, now: Duration) {
        self.clients.touch(now);
        self.file.check_place();
    }
}

#[cfg(test)]
mod tests;
