//! The union of all NFS replies except NULL's: a status, and content that depends on the status.

use crate::{Status, Wire};
use xdr::{Reader, Result, Writer};

/// A reply: `S` if the call succeeded, a status and `F` if it failed. RFC 1813 s3.3
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome<S, F> {
    /// The procedure succeeded.
    Ok(S),
    /// The procedure failed with this status, which is never [`Status::OK`]. `F` is the content of
    /// the failed reply.
    Fail(Status, F),
}

impl<S, F> Outcome<S, F> {
    /// The status on the wire.
    #[inline]
    pub const fn status(&self) -> Status {
        match self {
            Self::Ok(_) => Status::OK,
            Self::Fail(status, _) => *status,
        }
    }

    /// Converts to a `Result`, for `?`.
    ///
    /// # Errors
    /// The status and the content of a failed reply.
    pub fn into_result(self) -> std::result::Result<S, (Status, F)> {
        match self {
            Self::Ok(success) => Ok(success),
            Self::Fail(status, failure) => Err((status, failure)),
        }
    }
}

impl<'a, S: Wire<'a>, F: Wire<'a>> Wire<'a> for Outcome<S, F> {
    #[inline]
    fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        match Status::decode(reader)? {
            Status::OK => S::decode(reader).map(Self::Ok),
            status => F::decode(reader).map(|failure| Self::Fail(status, failure)),
        }
    }

    #[inline]
    fn encode(&self, writer: &mut Writer<'_>) {
        debug_assert!(!matches!(self, Self::Fail(Status::OK, _)), "a failure has a status of its own");
        self.status().encode(writer);
        match self {
            Self::Ok(success) => success.encode(writer),
            Self::Fail(_, failure) => failure.encode(writer),
        }
    }
}
