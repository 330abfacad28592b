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
use crate::nfs4_state::{Change, Nfs4State, Opening, file_name};
use crate::program::{Answered, Handover, Mode};
use crate::replies::Payload;
use crate::statistics::FileId;
use drc::shared::PreOpState;
use fs::{Attributes, Effect, FileKind, Handle, Rights, SetAttributes, Stability, Status};
use rpc::auth::AuthStat;
use rpc::reply::Reject;
use siphasher::sip::SipHasher13;
use std::hash::Hasher;
use std::time::Duration;
use store::{Found, ObjectId, ReadEnd, ReceiveBuffer, Wait, WouldBlock, Written};

/// The context of one call.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    pub client: &'a Client,
    pub identity: &'a Identity,
    /// Whether this thread may wait for a store.
    pub wait: Wait<'a>,
    /// What clients of version 4 deny to calls of others, which have no opens, and what they have
    /// to give back first.
    pub denials: Option<Denials<'a>>,
}

/// The share reservations and delegations of NFS version 4, as they are met by calls of another
/// version.
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

    /// Makes sure that no client has a delegation of an object whose data, attributes, name or
    /// links are about to change, nor gets one before the change is dropped. RFC 8881 s10.4.1
    ///
    /// # Errors
    /// [`Status::Later`] until it is returned, or revoked.
    #[inline]
    pub fn begin_change(&self, target: &Target<'_>) -> StoreResult<Option<Change<'a>>> {
        self.denials.map_or(Ok(None), |denials| denials.begin_change(target.export, target.object))
    }

    /// As [`begin_change`](Self::begin_change), of data or of the size, which an open may deny.
    ///
    /// # Errors
    /// As [`check_denials`](Self::check_denials) and [`begin_change`](Self::begin_change).
    #[inline]
    pub fn begin_write(&self, target: &Target<'_>) -> StoreResult<Option<Change<'a>>> {
        self.check_denials(target, state::WRITE)?;
        self.begin_change(target)
    }

    /// As [`begin_change`](Self::begin_change), of what a name in a directory is.
    pub fn begin_change_named(&self, at: &Target<'_>, name: &[u8]) -> StoreResult<Option<Change<'a>>> {
        match self.denials {
            Some(denials) if denials.state.is_heeded_in(at.export) => {
                let found = at.find(name).and_then(|(_, found)| found);
                found.map_or(Ok(None), |found| denials.begin_change(at.export, found.object))
            }
            _ => Ok(None),
        }
    }

    /// Goes on with a change that a process has begun which has ended. Delegations are recalled,
    /// and not waited for.
    pub fn go_on_with_change(&self, at: &Target<'_>, object: ObjectId) -> StoreResult<Option<Change<'a>>> {
        self.denials.map_or(Ok(None), |denials| {
            let begun = denials.state.go_on_with_change(denials.now, None, at.export, object);
            denials.of_state(begun)
        })
    }

    /// Holds a file that somebody has open, before a name of it is taken away:
    /// [`Target::hold_if_open`].
    pub fn hold_if_open(&self, at: &Target<'_>, name: &[u8]) -> Option<Opening<'a>> {
        self.denials.and_then(|denials| at.hold_if_open(denials.state, denials.now, name))
    }

    /// Whether any open denies this call anything.
    #[inline]
    fn meets_denials(&self) -> bool {
        self.denials.is_some_and(|denials| denials.state.state.denies_anything())
    }

    /// Whether an operation on an export may be in the way of clients of version 4.
    #[inline]
    pub fn heeds_opens_in(&self, export: &Export) -> bool {
        self.denials.is_some_and(|denials| denials.state.is_heeded_in(export))
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

/// Memory of a store in which the data of a WRITE can be received. Errors of the call are left to
/// its execution, which reports them.
pub(crate) fn receive_buffer<const MAX: usize>(
    client: &Client,
    file: &Handle<MAX>,
    offset: u64,
    len: u32,
) -> Option<ReceiveBuffer> {
    let identity = client.identities.current()?;
    let request = Request { client, identity, wait: Wait::Refused(None), denials: None };
    let target = request.open_for_change_nonblocking(file).ok()?;
    target.export.store.receive_buffer(offset, len)
}

fn changeable(target: Target<'_>) -> Result<Target<'_>, TargetError> {
    if target.export.config.read_only { Err(TargetError::Status(Status::ReadOnly)) } else { Ok(target) }
}

impl<'a> Denials<'a> {
    #[cold]
    fn check(self, target: &Target<'_>, access: u8) -> StoreResult<()> {
        let file = file_name(target.export, target.object);
        self.of_state(self.state.state.check_io(self.state.host(), self.now, None, &file, access))
    }

    #[inline]
    fn begin_change(self, export: &Export, object: ObjectId) -> StoreResult<Option<Change<'a>>> {
        self.of_state(self.state.begin_change(self.now, None, export, object))
    }

    /// The holders of delegations in the way are told at once.
    #[inline]
    fn of_state<T>(self, done: Result<T, state::Error>) -> StoreResult<T> {
        done.map_err(|error| {
            self.state.call_back_if_needed(self.now);
            match error {
                state::Error::ShareDenied => Status::Access,
                _ => Status::Later,
            }
        })
    }
}

/// An object, as a call notes it before it changes its name.
fn pre_op_state_of(object: ObjectId) -> PreOpState {
    let mut hasher = SipHasher13::new();
    hasher.write(object.name());
    PreOpState::Object(object.fileid, hasher.finish())
}

impl Target<'_> {
    /// The present object of a name in this directory, and what a call notes of it. `None` if that
    /// is unknown.
    pub fn find(&self, name: &[u8]) -> Option<(PreOpState, Option<Found>)> {
        match self.lookup(name).ok()?.1 {
            Ok(found) => Some((pre_op_state_of(found.object), Some(found))),
            Err(Status::NotFound) => Some((PreOpState::Absent, None)),
            Err(_) => None,
        }
    }

    /// In a group, the process by way of which a file was opened may have ended, and its hold with
    /// it: holds the file of a name in this directory if somebody has it open, before that name is
    /// taken away. The hold lasts as long as anybody has it open.
    pub fn hold_if_open<'s>(&self, shared: &'s Nfs4State, now: Duration, name: &[u8]) -> Option<Opening<'s>> {
        if !shared.is_in_group() || shared.state.used(state::Kind::Open) == 0 {
            return None;
        }
        let found = self.find(name)?.1?;
        shared.hold_if_open(now, self.export, found.object)
    }

    /// Sets attributes of an object that a process may not have set after it created the object,
    /// because it ended. An attribute that cannot be set keeps its value. Until the change is
    /// begun, somebody may have got a delegation of the object.
    pub fn complete_attributes(
        &self,
        found: &Found,
        wanted: &SetAttributes,
        change: StoreResult<Option<Change<'_>>>,
    ) -> Attributes {
        let (is, mut set) = (found.attributes, *wanted);
        // Data that somebody has written since must not be truncated.
        set.size = set.size.filter(|size| is.size == 0 && *size > 0);
        set.mode = set.mode.filter(|mode| is.kind != FileKind::Symlink && *mode != is.mode);
        set.uid = set.uid.filter(|uid| *uid != is.uid);
        set.gid = set.gid.filter(|gid| *gid != is.gid);
        let store = &self.export.store;
        let done = change
            .and_then(|_change| store.set_attributes(self.squashed.caller(), found.object, &set, None).1);
        let now = store.attributes(found.object, Wait::Allowed);
        match done.and(now.unwrap_or(Err(Status::Later))) {
            Ok(now) => now,
            Err(status) => {
                tracing::warn!(
                    %status,
                    "an object that was made by a process that ended has not all attributes asked for"
                );
                is
            }
        }
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
