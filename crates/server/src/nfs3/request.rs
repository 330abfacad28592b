//! The context of a call besides its arguments: the caller, the objects of its handles, and whether
//! the call may wait.
//!
//! On a loop no call may wait. A handler that opens its handles by [`Request::open`] is stopped
//! right there if the store may block, and the call goes to a worker. A handler that opens its
//! handles by [`Request::open_nonblocking`] calls the store through [`Target`] for what is
//! available without waiting, and is stopped where that is not enough.

use super::status;
use crate::client::{CallSubject, Client};
use crate::export::{Export, OpenError};
use crate::identity::{Identity, SquashedCaller};
use crate::replies::Payload;
use crate::statistics::FileId;
use fs::{Attributes, Effect, Handle, Rights, Stability};
use nfs3::{Outcome, PostOpAttr, Status};
use rpc::auth::AuthStat;
use store::{Found, ObjectId, ReadEnd, ReceiveBuffer, Wait, WouldBlock, Written};

/// The context of one call.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    pub client: &'a Client,
    pub identity: &'a Identity,
    /// Whether this thread may wait for a store.
    pub wait: Wait<'a>,
}

/// The result of a store operation.
type StoreResult<T> = Result<T, fs::Status>;

/// Why a handler has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HandlerError {
    /// The credential is refused.
    Auth(AuthStat),
    /// The store would have to wait, and this thread may not. Nothing was done.
    WouldBlock,
}

impl From<WouldBlock> for HandlerError {
    fn from(_: WouldBlock) -> Self {
        Self::WouldBlock
    }
}

/// The object of a handle, and the caller as its export sees it.
pub(crate) struct Target<'a> {
    pub export: &'a Export,
    pub object: ObjectId,
    pub squashed: SquashedCaller<'a>,
    /// Refused where the store may block and this thread may not.
    wait: Wait<'a>,
}

/// Why a handle did not open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TargetError {
    /// The credential is too weak for the export.
    Auth(AuthStat),
    Status(Status),
    WouldBlock,
}

impl TargetError {
    /// Builds the reply: a status with `failure`, or a rejected call.
    pub fn reply<S, F>(self, failure: F) -> Result<Outcome<S, F>, HandlerError> {
        match self {
            Self::Auth(stat) => Err(HandlerError::Auth(stat)),
            Self::WouldBlock => Err(HandlerError::WouldBlock),
            Self::Status(status) => Ok(Outcome::Fail(status, failure)),
        }
    }
}

impl<'a> Request<'a> {
    /// Opens a handle for any operation of the store.
    #[inline]
    pub fn open<const MAX: usize>(&self, handle: &Handle<MAX>) -> Result<Target<'a>, TargetError> {
        let target = self.open_nonblocking(handle)?;
        if target.wait.is_allowed() { Ok(target) } else { Err(TargetError::WouldBlock) }
    }

    /// Opens a handle for the methods of the target only.
    #[inline]
    pub fn open_nonblocking<const MAX: usize>(
        &self,
        handle: &Handle<MAX>,
    ) -> Result<Target<'a>, TargetError> {
        let opened = self.client.exports.open(handle.as_slice(), &self.client.admitted);
        let (export, object) = opened.map_err(|error| {
            TargetError::Status(match error {
                OpenError::Handle(error) => status::of_handle(error),
                OpenError::NotAdmitted => Status::ACCES,
            })
        })?;
        let subject = &self.client.subject;
        let file = FileId { export: export.config.fsid, object };
        subject.set(CallSubject { file: Some(file), ..subject.get() });
        let squashed =
            self.identity.squashed_for(&export.config).ok_or(TargetError::Auth(AuthStat::TOOWEAK))?;
        let wait = if export.may_block { self.wait } else { Wait::Allowed };
        Ok(Target { export, object, squashed, wait })
    }

    /// Opens a handle of an object that is to be changed, for any operation of the store.
    #[inline]
    pub fn open_for_change<const MAX: usize>(&self, handle: &Handle<MAX>) -> Result<Target<'a>, TargetError> {
        let target = self.open_for_change_nonblocking(handle)?;
        if target.wait.is_allowed() { Ok(target) } else { Err(TargetError::WouldBlock) }
    }

    /// Opens a handle of an object that is to be changed, for the methods of the target only.
    #[inline]
    pub fn open_for_change_nonblocking<const MAX: usize>(
        &self,
        handle: &Handle<MAX>,
    ) -> Result<Target<'a>, TargetError> {
        let target = self.open_nonblocking(handle)?;
        if target.export.config.read_only { Err(TargetError::Status(Status::ROFS)) } else { Ok(target) }
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
    pub fn attributes(&self) -> Result<StoreResult<Attributes>, HandlerError> {
        Ok(self.export.store.attributes(self.object, self.wait)?)
    }

    /// LOOKUP.
    #[inline]
    pub fn lookup(&self, name: &[u8]) -> Result<(Option<Attributes>, StoreResult<Found>), HandlerError> {
        Ok(self.export.store.lookup(self.squashed.caller(), self.object, name, self.wait)?)
    }

    /// ACCESS.
    #[inline]
    pub fn access(&self, wanted: Rights) -> Result<StoreResult<(Rights, Attributes)>, HandlerError> {
        Ok(self.export.store.access(self.squashed.caller(), self.object, wanted, self.wait)?)
    }

    /// READ: appends to `out`.
    #[inline]
    pub fn read(
        &self,
        offset: u64,
        count: u32,
        out: &mut Payload,
    ) -> Result<StoreResult<ReadEnd>, HandlerError> {
        Ok(self.export.store.read(self.squashed.caller(), self.object, offset, count, out, self.wait)?)
    }

    /// WRITE of bytes that came in the record.
    #[inline]
    pub fn write(
        &self,
        offset: u64,
        data: &[u8],
        how: Stability,
    ) -> Result<(Effect, StoreResult<Written>), HandlerError> {
        Ok(self.export.store.write(self.squashed.caller(), self.object, offset, data, how, self.wait)?)
    }

    /// COMMIT.
    pub fn commit(&self, offset: u64, count: u32) -> Result<(Effect, StoreResult<u64>), HandlerError> {
        Ok(self.export.store.commit(self.object, offset, count, self.wait)?)
    }

    /// WRITE of bytes that were received in place. They stay in the buffer if the store must wait.
    #[inline]
    pub fn write_received(
        &self,
        receive_buffer: &mut Option<ReceiveBuffer>,
        how: Stability,
    ) -> Result<(Effect, StoreResult<Written>), HandlerError> {
        let caller = self.squashed.caller();
        Ok(self.export.store.write_received(caller, self.object, receive_buffer, how, self.wait)?)
    }
}
