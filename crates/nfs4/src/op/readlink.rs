//! READLINK: the text of the current symbolic link. RFC 8881 s18.24

use crate::Status;
use crate::wire::wire_fields;

/// `READLINK4resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Success<'a> {
    /// The text. Over RDMA it may travel in a chunk of its own.
    pub text: &'a [u8],
}

wire_fields!(Success<'a> { text });

/// `READLINK4res`.
pub type Reply<'a> = Result<Success<'a>, Status>;
