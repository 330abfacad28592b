//! What all requests for locks have: a caller, a file, an owner, and whether the request may wait.

use super::HandlerResult;
use super::status::{of_open, of_state, of_store};
use crate::client::Client;
use crate::export::Export;
use crate::nfs4_state::{FileName, Nfs4State, file_name};
use crate::nlm_hosts::{NlmHost, encode_owner};
use crate::program::Mode;
use crate::request::HandlerError;
use fs::FileKind;
use nlm::{Lock, Status};
use state::{NlmLock, NlmMonitor};
use std::time::Duration;
use store::{ObjectId, Wait};

/// The context of one call.
pub(super) struct NlmRequest<'a> {
    pub shared: &'a Nfs4State,
    client: &'a Client,
    pub now: Duration,
    wait: Wait<'a>,
}

/// A lock in the words of the state.
pub(super) struct Named {
    host: Vec<u8>,
    /// Whether the host is a client of ours.
    is_ours: bool,
    owner: Vec<u8>,
    file: FileName,
    offset: u64,
    length: u64,
    exclusive: bool,
}

impl Named {
    pub fn lock(&self) -> NlmLock<'_> {
        NlmLock {
            host: &self.host,
            owner: &self.owner,
            file: &self.file,
            offset: self.offset,
            length: self.length,
            exclusive: self.exclusive,
        }
    }
}

impl<'a> NlmRequest<'a> {
    pub fn new(shared: &'a Nfs4State, client: &'a Client, now: Duration, mode: Mode<'a>) -> Self {
        Self { shared, client, now, wait: mode.wait() }
    }

    /// The caller.
    pub fn host(&self, name: &[u8]) -> NlmHost {
        NlmHost::new(self.client.peer.ip(), self.client.local.ip(), name)
    }

    /// The file of a handle, in an export that admits the caller.
    fn find(&self, lock: &Lock<'_>) -> Result<(&'a Export, ObjectId), Status> {
        self.client.exports.open(lock.file.0, &self.client.admitted).map_err(of_open)
    }

    /// A lock in the words of the state. The file need not exist any more.
    pub fn named(&self, lock: &Lock<'_>, exclusive: bool) -> Result<Named, Status> {
        let (export, object) = self.find(lock)?;
        let host = self.host(lock.caller.0);
        Ok(Named {
            host: host.encode(),
            is_ours: host.is_ours(),
            owner: encode_owner(lock.svid, lock.owner.0),
            file: file_name(export, object),
            offset: lock.offset,
            // Up to the end of the file. RFC 1813 s6.1.4
            length: if lock.length == 0 { u64::MAX } else { lock.length },
            exclusive,
        })
    }

    /// The same for a file that exists: a regular one.
    pub fn named_file(&self, lock: &Lock<'_>, exclusive: bool) -> HandlerResult<Result<Named, Status>> {
        let (export, object) = match self.find(lock) {
            Ok(found) => found,
            Err(status) => return Ok(Err(status)),
        };
        let wait = if export.may_block { self.wait } else { Wait::Allowed };
        Ok(match export.store.attributes(object, wait)? {
            Ok(attributes) if attributes.kind == FileKind::Regular => self.named(lock, exclusive),
            Ok(_) => Err(Status::FAILED),
            Err(status) => Err(of_store(status)),
        })
    }

    /// Has the caller monitored, which may take a write to a disk.
    pub fn monitor(&self, named: &Named, reclaim: bool) -> HandlerResult<Result<(), Status>> {
        let host = NlmMonitor {
            name: &named.host,
            peer: Some(self.client.peer.ip()),
            reclaim,
            is_leased: named.is_ours,
        };
        match self.shared.nlm_monitor(self.now, host, self.wait.is_allowed()) {
            Ok(true) => Ok(Ok(())),
            Ok(false) if self.wait.is_allowed() => Ok(Err(Status::DENIED_NOLOCKS)),
            Ok(false) => Err(HandlerError::WouldBlock),
            Err(error) => Ok(Err(of_state(&error))),
        }
    }
}
