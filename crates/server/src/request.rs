//! The context of a call besides its arguments: the caller, the objects of its handles, and whether
//! the call may wait.
//!
//! On a loop no call may wait. A handler that opens its handles by [`Request::open`] is stopped
//! right there if the store may block, and the call goes to a worker. A handler that opens its
//! handles by [`Request::open_nonblocking`] calls the store through [`Target`] for what is
//! available without waiting, and is stopped where that is not enough.
//!
//! This is the same for all versions of NFS; statuses are those of `fs`.

use crate::client::{CallSubject, Client};
use crate::export::{Export, OpenError};
use crate::group::Group;
use crate::handle::HandleError;
use crate::identity::{Identity, SquashedCaller};
use crate::nfs4_state::{HOST, Nfs4State, file_name};
use crate::program::{Answered, Handover, Mode};
use crate::replies::Payload;
use crate::statistics::FileId;
use fs::{Attributes, Effect, Handle, Rights, Stability, Status};
use rpc::auth::AuthStat;
use rpc::reply::Reject;
use std::time::Duration;
use store::{Found, ObjectId, ReadEnd, ReceiveBuffer, Wait, WouldBlock, Written};

/// The context of one call.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    pub client: &'a Client,
    pub identity: &'a Identity,
    /// Whether this thread may wait for a store.
    pub wait: Wait<'a>,
    /// What clients of version 4 deny to calls of others, which have no opens.
    pub denials: Option<Denials<'a>>,
}

/// The share reservations of NFS version 4, as they are met by calls of another version.
#[derive(Clone, Copy)]
pub(crate) struct Denials<'a> {
    state: &'a Nfs4State,
    now: Duration,
}

/// The result of a store operation.
type StoreResult<T> = Result<T, Status>;

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

impl From<HandlerError> for Answered {
    fn from(error: HandlerError) -> Self {
        match error {
            HandlerError::Auth(stat) => Self::Reject(Reject::Auth(stat)),
            HandlerError::WouldBlock => Self::WouldBlock(Handover::default()),
        }
    }
}

/// The context of a call, for its handler.
#[inline]
pub(crate) fn request<'a>(client: &'a Client, mode: Mode<'a>) -> Result<Request<'a>, Answered> {
    let identity = client.identities.current().ok_or(Answered::Reject(Reject::Auth(AuthStat::FAILED)))?;
    Ok(Request { client, identity, wait: mode.wait(), denials: None })
}

impl<'a> Request<'a> {
    /// A call of a version of NFS without opens.
    #[inline]
    pub fn without_opens(self, group: &'a Group, now: Duration) -> Self {
        Self { denials: group.nfs4.as_ref().map(|state| Denials { state, now }), ..self }
    }

    /// Whether an open denies this call to read or to write a file ([`state::READ`],
    /// [`state::WRITE`]). RFC 8881 s9.7
    ///
    /// # Errors
    /// [`Status::Access`]: to wait for the end of an open could take for ever. [`Status::Later`]
    /// where the wait has an end.
    #[inline]
    pub fn check_denials(&self, target: &Target<'_>, access: u8) -> StoreResult<()> {
        match self.denials {
            Some(denials) if self.meets_denials() => denials.check(target, access),
            _ => Ok(()),
        }
    }

    /// Whether any open denies this call anything.
    #[inline]
    pub fn meets_denials(&self) -> bool {
        self.denials.is_some_and(|denials| denials.state.state.denies_anything())
    }

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
        let (export, object) = self.find(handle)?;
        self.target(export, object)
    }

    /// The object of a handle, in an export that admits the client. Whether the caller may use it
    /// is not asked.
    #[inline]
    pub fn find<const MAX: usize>(
        &self,
        handle: &Handle<MAX>,
    ) -> Result<(&'a Export, ObjectId), TargetError> {
        let opened = self.client.exports.open(handle.as_slice(), &self.client.admitted);
        opened.map_err(|error| {
            TargetError::Status(match error {
                OpenError::Handle(HandleError::Bad) => Status::BadHandle,
                OpenError::Handle(HandleError::Stale) => Status::Stale,
                OpenError::NotAdmitted => Status::Access,
            })
        })
    }

    /// Whether the credential is enough for an export.
    pub fn is_enough_for(&self, export: &Export) -> bool {
        self.identity.squashed_for(&export.config).is_some()
    }

    /// An object of an export that admits the client.
    #[inline]
    pub fn target(&self, export: &'a Export, object: ObjectId) -> Result<Target<'a>, TargetError> {
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
        changeable(self.open_nonblocking(handle)?)
    }

    /// An object, which is to be changed, of an export that admits the client.
    pub fn target_for_change(&self, export: &'a Export, object: ObjectId) -> Result<Target<'a>, TargetError> {
        changeable(self.target(export, object)?)
    }
}

fn changeable(target: Target<'_>) -> Result<Target<'_>, TargetError> {
    if target.export.config.read_only { Err(TargetError::Status(Status::ReadOnly)) } else { Ok(target) }
}

impl Denials<'_> {
    #[cold]
    fn check(self, target: &Target<'_>, access: u8) -> StoreResult<()> {
        let file = file_name(target.export, target.object);
        self.state.state.check_io(&HOST, self.now, None, &file, access).map_err(|error| match error {
            state::Error::ShareDenied => Status::Access,
            _ => Status::Later,
        })
    }
}

impl Target<'_> {
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
