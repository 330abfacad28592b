//! NVMe/TCP connections, above the PDUs. NVMe/TCP Transport 1.0.
//!
//! [`TargetConnection`] is the controller's end of one connection, which is one queue. It knows
//! what a PDU means for the connection: who may send it now, whether its data were asked for, where
//! they belong. It does not know what a command does: commands go to
//! [`Subsystem`](crate::controller::Subsystem) or [`IoQueue`](crate::controller::IoQueue).
//!
//! ```text
//!  first 8 bytes ── layout ──> how long, where are the data
//!  header ── handle_header ──> Received: a command; data for a transfer; the end
//!  data, placed by the driver ── handle_data ──> Progress: more to come, complete
//! ```
//!
//! What is to be sent is appended to a buffer of the driver, so that a warm loop allocates nothing.
//! Data are named by offset and length; the driver sends them behind the head that was appended,
//! and behind them their digest if it was told so.
//!
//! Left out: TLS.

mod host;
mod target;

pub use host::{HostConnection, HostReceived, HostSettings, Submitted};
pub use target::{
    ADMIN_CAPSULE_DATA_BYTES, Incoming, Progress, Received, Sent, Settings, TargetConnection, ToHost,
};
