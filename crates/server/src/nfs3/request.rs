//! The context of a call besides its arguments: the caller, the objects of its handles, and whether
//! the call may wait.
//!
//! On a loop no call may wait. A handler that opens its handles by [`Request::open`] is stopped
//! right there if the store may block, and the call goes to a worker. A handler that opens its
//! handles by [`Request::open_at_once`] calls the store through [`Target`] for what is available
//! without waiting, and is stopped where that is not enough.

use super::status;
use crate::client::Client;
use crate::export::{Export, OpenError};
use crate::identity::{Identity, Who};
use crate::replies::Payload;
use fs::{Attributes, Effect, Rights, Stability};
use nfs3::{FileHandle, Outcome, PostOpAttr, Status};
use rpc::auth::AuthStat;
use store::{Found, ObjectId, ReadEnd, ReceiveBuffer, Wait, WouldWait, Written};

/// The context of one call.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    pub client: &'a Client,
    pub identity: &'a Identity,
    /// Whether this thread may wait for a store.
    pub wait: Wait<'a>,
}

/// The result of a store operation.
type Stored<T> = Result<T, fs::Status>;

/// Why a handler has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// The credential is refused.
    Auth(AuthStat),
    /// The store would have to wait, and this thread may not. Nothing was done.
    MustWait,
}

impl From<WouldWait> for Unanswered {
    fn from(_: WouldWait) -> Self {
        Self::MustWait
    }
}

/// The object of a handle, and the caller as its export sees it.
pub(crate) struct Target<'a> {
    pub export: &'a Export,
    pub object: ObjectId,
    pub who: Who<'a>,
    /// Refused where the store may block and this thread may not.
    wait: Wait<'a>,
}

/// Why a handle did not open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The credential is too weak for the export.
    Auth(AuthStat),
    Status(Status),
    MustWait,
}

impl Stop {
    /// Builds the reply: a status with `failure`, or a rejected call.
    pub fn reply<S, F>(self, failure: F) -> Result<Outcome<S, F>, Unanswered> {
        match self {
            Self::Auth(stat) => Err(Unanswered::Auth(stat)),
            Self::MustWait => Err(Unanswered::MustWait),
            Self::Status(status) => Ok(Outcome::Fail(status, failure)),
        }
    }
}

impl<'a> Request<'a> {
    /// Opens a handle for any operation of the store.
    #[inline]
    pub fn open(&self, handle: &FileHandle) -> Result<Target<'a>, Stop> {
        let target = self.open_at_once(handle)?;
        if target.wait.is_allowed() { Ok(target) } else { Err(Stop::MustWait) }
    }

    /// Opens a handle for the methods of the target only.
    #[inline]
    pub fn open_at_once(&self, handle: &FileHandle) -> Result<Target<'a>, Stop> {
        let opened = self.client.exports.open(handle.as_slice(), &self.client.admitted);
        let (export, object) = opened.map_err(|error| {
            Stop::Status(match error {
                OpenError::Handle(error) => status::of_handle(error),
                OpenError::NotAdmitted => Status::ACCES,
            })
        })?;
        let who = self.identity.on(&export.config).ok_or(Stop::Auth(AuthStat::TOOWEAK))?;
        let wait = if export.may_block { self.wait } else { Wait::Allowed };
        Ok(Target { export, object, who, wait })
    }

    /// Opens a handle of an object that is to be changed, for any operation of the store.
    #[inline]
    pub fn open_for_change(&self, handle: &FileHandle) -> Result<Target<'a>, Stop> {
        let target = self.open_for_change_at_once(handle)?;
        if target.wait.is_allowed() { Ok(target) } else { Err(Stop::MustWait) }
    }

    /// Opens a handle of an object that is to be changed, for the methods of the target only.
    #[inline]
    pub fn open_for_change_at_once(&self, handle: &FileHandle) -> Result<Target<'a>, Stop> {
        let target = self.open_at_once(handle)?;
        if target.export.config.read_only { Err(Stop::Status(Status::ROFS)) } else { Ok(target) }
    }
}

impl Target<'_> {
    /// Converts attributes to the wire.
    #[inline]
    pub fn fattr(&self, attributes: &Attributes) -> nfs3::Fattr3 {
        super::attributes::fattr(self.export, attributes)
    }

    /// Converts an effect to the wire.
    #[inline]
    pub fn wcc(&self, effect: &Effect) -> nfs3::WccData {
        super::attributes::wcc(self.export, effect)
    }

    /// The attributes of the object for a failure, if the store can still provide them.
    #[cold]
    pub fn post_op(&self) -> PostOpAttr {
        self.attributes().ok()?.ok().map(|attributes| self.fattr(&attributes))
    }

    /// GETATTR.
    #[inline]
    pub fn attributes(&self) -> Result<Stored<Attributes>, Unanswered> {
        Ok(self.export.store.attributes(self.object, self.wait)?)
    }

    /// LOOKUP.
    #[inline]
    pub fn lookup(&self, name: &[u8]) -> Result<(Option<Attributes>, Stored<Found>), Unanswered> {
        Ok(self.export.store.lookup(self.who.caller(), self.object, name, self.wait)?)
    }

    /// ACCESS.
    #[inline]
    pub fn access(&self, wanted: Rights) -> Result<Stored<(Rights, Attributes)>, Unanswered> {
        Ok(self.export.store.access(self.who.caller(), self.object, wanted, self.wait)?)
    }

    /// READ: appends to `out`.
    #[inline]
    pub fn read(&self, offset: u64, count: u32, out: &mut Payload) -> Result<Stored<ReadEnd>, Unanswered> {
        Ok(self.export.store.read(self.who.caller(), self.object, offset, count, out, self.wait)?)
    }

    /// WRITE of bytes that came in the record.
    #[inline]
    pub fn write(
        &self,
        offset: u64,
        data: &[u8],
        how: Stability,
    ) -> Result<(Effect, Stored<Written>), Unanswered> {
        Ok(self.export.store.write(self.who.caller(), self.object, offset, data, how, self.wait)?)
    }

    /// COMMIT.
    pub fn commit(&self, offset: u64, count: u32) -> Result<(Effect, Stored<u64>), Unanswered> {
        Ok(self.export.store.commit(self.object, offset, count, self.wait)?)
    }

    /// WRITE of bytes that were received in place. They stay in the buffer if the store must wait.
    #[inline]
    pub fn write_received(
        &self,
        receive_buffer: &mut Option<ReceiveBuffer>,
        how: Stability,
    ) -> Result<(Effect, Stored<Written>), Unanswered> {
        let caller = self.who.caller();
        Ok(self.export.store.write_received(caller, self.object, receive_buffer, how, self.wait)?)
    }
}
