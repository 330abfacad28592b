//! The file protocol of a mount: how operations are encoded, and what their results mean.
//!
//! This module is the only part of the client that knows a wire format: everything outside of it
//! uses the types of [`fs`]. The engine asks this module for what depends on the protocol: the
//! bytes of a call, the meaning of a reply, whether a procedure may run twice, and how long its
//! reply may be.
//!
//! There is one protocol, NFS version 3. Another protocol would become a module beside [`nfs3`],
//! and [`Protocol`] a choice between the two. Of NFS version 4 there is the question for its minor
//! versions only.

mod nfs3;
pub(crate) mod nfs4;

use fs::{Attributes, Change, FileHandle, Stability, Status, Verifier};

pub use self::nfs3::Protocol;
#[cfg(test)]
pub(crate) use self::nfs3::root_reply;
pub(crate) use self::nfs3::{
    COMMIT, GETATTR, MOUNT_PROGRAM, NFS, Procedure, READ, WRITE, decode_commit, decode_read, decode_root,
    decode_write, describe, encode_call, encode_commit, encode_null, encode_read, encode_root, encode_write,
    exports, may_undo, mnt, reconcile, reply_bytes_max, sends_data, status_of, xid_class,
};
use crate::call::Op;
use crate::error::{Error, Result};

/// An operation other than READ and WRITE, encoded for the wire.
#[derive(Debug)]
pub struct Request {
    procedure: Procedure,
    args: Vec<u8>,
}

impl Request {
    pub(crate) const fn new(procedure: Procedure, args: Vec<u8>) -> Self {
        Self { procedure, args }
    }

    pub(crate) const fn procedure(&self) -> Procedure {
        self.procedure
    }

    pub(crate) fn args(&self) -> &[u8] {
        &self.args
    }

    /// Takes the memory of the arguments once they are no longer needed.
    pub(crate) fn take_memory(&mut self) -> Vec<u8> {
        let mut memory = std::mem::take(&mut self.args);
        memory.clear();
        memory
    }

    /// Copies the request into existing memory, such as that of the last results.
    #[must_use]
    pub fn again(&self, mut memory: Vec<u8>) -> Self {
        memory.clear();
        memory.extend_from_slice(&self.args);
        Self { procedure: self.procedure, args: memory }
    }
}

/// Decodes the results of a successful call, which follow the status.
type Decode<T> = fn(&mut xdr::Reader<'_>) -> xdr::Result<T>;

/// An operation, and how its results are decoded.
#[derive(Debug)]
pub struct Operation<T> {
    request: Request,
    reading: Reading<T>,
}

/// How the results of an operation are decoded.
#[derive(Debug)]
pub(crate) struct Reading<T> {
    procedure: Procedure,
    decode: Decode<T>,
}

impl<T> Operation<T> {
    pub(crate) const fn new(procedure: Procedure, args: Vec<u8>, decode: Decode<T>) -> Self {
        let reading = Reading { procedure, decode };
        Self { request: Request::new(procedure, args), reading }
    }

    pub(crate) fn into_parts(self) -> (Request, Reading<T>) {
        (self.request, self.reading)
    }

    /// The request alone, for a caller that needs to know only whether it succeeded.
    #[must_use]
    pub fn into_request(self) -> Request {
        self.request
    }
}

impl<T> From<Operation<T>> for Op {
    fn from(operation: Operation<T>) -> Self {
        Self::Call(operation.request)
    }
}

impl<T> Reading<T> {
    /// Decodes the results of a call, starting with the status.
    pub(crate) fn read(&self, results: &[u8]) -> Result<T> {
        let operation = self.procedure.name();
        if let Some(status) = status_of(results) {
            return Err(Error::Status { operation, status });
        }
        // Results too short for a status are refused like any that are too short.
        let mut reader = xdr::Reader::new(results);
        let decoded = reader.u32().and_then(|_| (self.decode)(&mut reader));
        decoded.map_err(|error| Error::PeerMisbehaved { operation, reason: error.to_string() })
    }
}

/// A newly created object, as far as the server describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// The handle. A server need not return the handle of a new object. RFC 1813 s3.3.8
    pub handle: Option<FileHandle>,
    /// The attributes.
    pub attributes: Option<Attributes>,
}

/// The head of the reply to a READ; the data follow.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadHead {
    pub count: u32,
    pub eof: bool,
}

/// The reply to a WRITE.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Written {
    pub change: Change,
    pub count: u32,
    pub stability: Stability,
    pub verifier: Verifier,
}

/// A decoded reply: its contents, or the server's error.
pub(crate) type Answered<T> = xdr::Result<std::result::Result<T, Status>>;
