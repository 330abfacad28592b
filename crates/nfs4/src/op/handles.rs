//! PUTFH, PUTPUBFH, PUTROOTFH, GETFH, SAVEFH, RESTOREFH: the current and the saved handle.
//! RFC 8881 s18.8, s18.19 to s18.21, s18.27, s18.28

use crate::Status;
use crate::wire::wire_fields;
use fs::FileHandle;

/// `PUTFH4args`. RFC 8881 s18.19
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PutArgs {
    /// The handle that becomes the current one.
    pub handle: FileHandle,
}

wire_fields!(PutArgs { handle });

/// `GETFH4resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GetSuccess {
    /// The current handle.
    pub handle: FileHandle,
}

wire_fields!(GetSuccess { handle });

/// `GETFH4res`.
pub type GetReply = Result<GetSuccess, Status>;

/// `PUTFH4res`, `PUTPUBFH4res`, `PUTROOTFH4res`, `SAVEFH4res`, `RESTOREFH4res`.
pub type Reply = Result<(), Status>;
