//! The context of a call in the terms of NFS version 3: what is sent of an object, and how a handle
//! that does not open is answered.

use super::status;
pub(crate) use crate::request::{HandlerError, Request, Target, TargetError};
use fs::{Attributes, Effect};
use nfs3::{Outcome, PostOpAttr};

impl TargetError {
    /// Builds the reply: a status with `failure`, or a rejected call.
    pub fn reply<S, F>(self, failure: F) -> Result<Outcome<S, F>, HandlerError> {
        match self {
            Self::Auth(stat) => Err(HandlerError::Auth(stat)),
            Self::WouldBlock => Err(HandlerError::WouldBlock),
            Self::Status(status) => Ok(Outcome::Fail(status::of_store(status), failure)),
        }
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
}
