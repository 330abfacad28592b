//! BACKCHANNEL_CTL and BIND_CONN_TO_SESSION: what callbacks use, and which connections a session
//! has. RFC 8881 s18.33, s18.34

use super::create_session::CallbackSecurity;
use crate::array::Array;
use crate::wire::{wire_enum, wire_fields};
use crate::{SessionId, Status};

/// `BACKCHANNEL_CTL4args`. RFC 8881 s18.33
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackchannelCtlArgs<'a> {
    /// The program number of callbacks (`bca_cb_program`).
    pub program: u32,
    /// The credentials that callbacks may have (`bca_sec_parms`).
    pub security: Array<'a, CallbackSecurity<'a>>,
}

wire_fields!(BackchannelCtlArgs<'a> { program, security });

/// `BACKCHANNEL_CTL4res`.
pub type BackchannelCtlReply = Result<(), Status>;

/// `channel_dir_from_client4`: which channels the connection is to carry. RFC 8881 s18.34
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WantedChannels {
    /// CDFC4_FORE.
    Fore,
    /// CDFC4_BACK.
    Back,
    /// CDFC4_FORE_OR_BOTH: the fore channel, and the back channel if the server likes.
    ForeOrBoth,
    /// CDFC4_BACK_OR_BOTH: the back channel, and the fore channel if the server likes.
    BackOrBoth,
}

wire_enum!(WantedChannels { Fore = 1, Back = 2, ForeOrBoth = 3, BackOrBoth = 7 });

/// `channel_dir_from_server4`: which channels the connection carries. RFC 8881 s18.34
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Channels {
    /// CDFS4_FORE.
    Fore,
    /// CDFS4_BACK.
    Back,
    /// CDFS4_BOTH.
    Both,
}

wire_enum!(Channels { Fore = 1, Back = 2, Both = 3 });

/// `BIND_CONN_TO_SESSION4args`. RFC 8881 s18.34
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BindArgs {
    /// The session.
    pub session: SessionId,
    /// The channels.
    pub channels: WantedChannels,
    /// Whether the connection is to change to RDMA mode (`bctsa_use_conn_in_rdma_mode`).
    pub rdma_mode: bool,
}

wire_fields!(BindArgs { session, channels, rdma_mode });

/// `BIND_CONN_TO_SESSION4resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BindSuccess {
    /// The session.
    pub session: SessionId,
    /// The channels.
    pub channels: Channels,
    /// Whether the connection changes to RDMA mode.
    pub rdma_mode: bool,
}

wire_fields!(BindSuccess { session, channels, rdma_mode });

/// `BIND_CONN_TO_SESSION4res`.
pub type BindReply = Result<BindSuccess, Status>;
