//! What a handler knows about a call besides its arguments: who asks, and what its handles open.

use crate::client::Client;
use crate::export::{Export, OpenError};
use crate::group::Group;
use crate::identity::{Identity, Who};
use crate::status;
use nfs3::{FileHandle, Outcome, PostOpAttr, Status};
use rpc::auth::AuthStat;
use store::{Attributes, Change, ObjectId};

/// One call's surroundings.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    pub group: &'a Group,
    pub client: &'a Client,
    pub identity: &'a Identity,
}

/// An object that a handle named, and the caller as its export sees it.
pub(crate) struct Target<'a> {
    pub export: &'a Export,
    pub object: ObjectId,
    pub who: Who<'a>,
}

/// Why a handle did not open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The credential is too weak for the export.
    Auth(AuthStat),
    Status(Status),
}

impl Stop {
    /// The reply that says so: a status with `failure`, or a rejected call.
    pub fn reply<S, F>(self, failure: F) -> Result<Outcome<S, F>, AuthStat> {
        match self {
            Self::Auth(stat) => Err(stat),
            Self::Status(status) => Ok(Outcome::Fail(status, failure)),
        }
    }
}

impl<'a> Request<'a> {
    /// Opens a handle.
    #[inline]
    pub fn open(&self, handle: &FileHandle) -> Result<Target<'a>, Stop> {
        let opened = self.group.exports.open(handle.as_slice(), &self.client.admitted);
        let (export, object) = opened.map_err(|error| {
            Stop::Status(match error {
                OpenError::Handle(error) => status::of_handle(error),
                OpenError::NotAdmitted => Status::ACCES,
            })
        })?;
        let who = self.identity.on(&export.config).ok_or(Stop::Auth(AuthStat::TOOWEAK))?;
        Ok(Target { export, object, who })
    }

    /// Opens a handle of something that is to be changed.
    #[inline]
    pub fn open_for_change(&self, handle: &FileHandle) -> Result<Target<'a>, Stop> {
        let target = self.open(handle)?;
        if target.export.config.read_only { Err(Stop::Status(Status::ROFS)) } else { Ok(target) }
    }
}

impl Target<'_> {
    /// Attributes on the wire.
    #[inline]
    pub fn fattr(&self, attributes: &Attributes) -> nfs3::Fattr3 {
        crate::attributes::fattr(self.export, attributes)
    }

    /// A change on the wire.
    #[inline]
    pub fn wcc(&self, change: &Change) -> nfs3::WccData {
        crate::attributes::wcc(self.export, change)
    }

    /// The object's attributes for a failure, where the store can still say.
    #[cold]
    pub fn post_op(&self) -> PostOpAttr {
        self.export.store.attributes(self.object).ok().map(|attributes| self.fattr(&attributes))
    }
}
