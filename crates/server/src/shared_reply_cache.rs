//! The reply cache of a group whose nodes are processes: a file that all of them map, and that
//! outlives each process.
//!
//! [`drc::shared`] implements the cache itself. This module provides what it needs from the system:
//! the file and its checks ([`file`]), memory ([`mapping`]), the live processes ([`members`]) and
//! where they listen ([`addresses`]), and the windows of clients ([`clients`]). Values read from
//! the file are not trusted to be more than numbers.
//!
//! `docs/decisions/0008-group.md` has the reasons.

mod addresses;
mod arena;
mod clients;
mod error;
mod file;
mod layout;
mod mapping;
mod members;

pub(crate) use addresses::{AddressDirectory, AddressFile};
pub(crate) use arena::{ArenaWords, GroupHost, ServerWord};
pub(crate) use clients::SharedClient;
pub use error::GroupError;
pub(crate) use file::GroupFile;

use clients::Clients;
use drc::ConnectionTable;
use drc::shared::SharedTable;
use layout::Form;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How often a process notes which clients it still serves, and checks that the file is still the
/// group's. Far less than the time after which [`clients`] considers a window free.
pub(crate) const UPKEEP: Duration = Duration::from_secs(5);

/// An export, with the values on which the processes of a group must agree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExportIdentity {
    pub fsid: u32,
    /// A hash of the path and the key of the handles: if it agrees, a handle of one process is
    /// valid in all.
    pub fingerprint: u64,
    pub path: String,
    /// The current write verifier.
    pub verifier: u64,
}

/// The part of a process in a group.
#[derive(Debug)]
pub(crate) struct SharedReplyCache {
    file: Arc<GroupFile>,
    clients: Clients,
}

impl SharedReplyCache {
    /// Joins the group in `directory`, or creates it. The exports of the group must be the same. If
    /// NFS version 4 is served, `arena_words` is the length of its arena.
    pub fn join(
        directory: &Path,
        exports: &[ExportIdentity],
        arena_words: Option<usize>,
    ) -> Result<Self, GroupError> {
        let form = arena_words.map_or(Form::PLAIN, Form::with_arena);
        let file = Arc::new(GroupFile::join(directory, exports, form)?);
        Ok(Self { clients: Clients::new(Arc::clone(&file)), file })
    }

    /// The file, in which the state of clients of NFS version 4 is too.
    pub fn file(&self) -> Arc<GroupFile> {
        Arc::clone(&self.file)
    }

    /// Agrees with the other processes on one more export.
    pub fn add_export(&self, export: &ExportIdentity) -> Result<(), GroupError> {
        self.file.add_export(export)
    }

    /// The write verifier that an export had when the reply cache began to remember its calls.
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

    /// The connections on which those calls arrived.
    pub fn connections(&self) -> ConnectionTable<'_> {
        ConnectionTable::new(self.file.connections(), &*self.file)
    }

    /// The host functions that the cache calls.
    pub fn host(&self) -> &GroupFile {
        &self.file
    }

    /// Called about every [`UPKEEP`].
    pub fn upkeep(&self, now: Duration) {
        self.clients.touch(now);
        self.file.check_path();
    }
}

#[cfg(test)]
mod tests;
