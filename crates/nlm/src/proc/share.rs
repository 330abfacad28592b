//! SHARE and UNSHARE: reservations of a file by access and denial. RFC 1813 s6.3.14, s6.3.15

use crate::wire::{wire_enum, wire_fields};
use crate::{NetObj, Status, Text};

/// `fsh4_mode`: what is denied to others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Nothing.
    None,
    /// To read.
    Read,
    /// To write.
    Write,
    /// Both.
    Both,
}

wire_enum!(Mode { None = 0, Read = 1, Write = 2, Both = 3 });

/// `fsh4_access`: what the caller wants to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Nothing.
    None,
    /// To read.
    Read,
    /// To write.
    Write,
    /// Both.
    Both,
}

wire_enum!(Access { None = 0, Read = 1, Write = 2, Both = 3 });

/// `nlm4_share`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share<'a> {
    /// The host.
    pub caller: Text<'a>,
    /// The file: a handle of NFS.
    pub file: NetObj<'a>,
    /// The owner on that host.
    pub owner: NetObj<'a>,
    /// What is denied to others.
    pub mode: Mode,
    /// What the caller wants to do.
    pub access: Access,
}

wire_fields!(Share<'a> { caller, file, owner, mode, access });

/// `nlm4_shareargs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Args<'a> {
    /// Chosen by the caller, and returned.
    pub cookie: NetObj<'a>,
    /// The reservation.
    pub share: Share<'a>,
    /// Whether the caller had it before the server restarted.
    pub reclaim: bool,
}

wire_fields!(Args<'a> { cookie, share, reclaim });

/// `nlm4_shareres`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reply<'a> {
    /// The cookie of the request.
    pub cookie: NetObj<'a>,
    /// The outcome.
    pub status: Status,
    /// Not used by anybody.
    pub sequence: i32,
}

wire_fields!(Reply<'a> { cookie, status, sequence });
