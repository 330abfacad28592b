//! Locks as they are asked for, and as they are held. RFC 1813 s6.1.4 (`nlm4_lock`, `nlm4_holder`)

use crate::wire::wire_fields;
use crate::{NetObj, Text};

/// `nlm4_lock`: whose lock, and of which bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lock<'a> {
    /// The host that locks (`caller_name`), as it names itself to NSM too.
    pub caller: Text<'a>,
    /// The file: a handle of NFS.
    pub file: NetObj<'a>,
    /// With `svid`, the owner on that host (`oh`).
    pub owner: NetObj<'a>,
    /// The process, or what stands for it.
    pub svid: i32,
    /// The first byte.
    pub offset: u64,
    /// How many bytes; 0 to the end of the file, however long it grows.
    pub length: u64,
}

wire_fields!(Lock<'a> { caller, file, owner, svid, offset, length });

/// `nlm4_holder`: a lock that is in the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder<'a> {
    /// Whether nobody else may lock the bytes at all.
    pub exclusive: bool,
    /// The process on its host.
    pub svid: i32,
    /// The owner on its host.
    pub owner: NetObj<'a>,
    /// The first byte.
    pub offset: u64,
    /// How many bytes; 0 to the end of the file.
    pub length: u64,
}

wire_fields!(Holder<'a> { exclusive, svid, owner, offset, length });
