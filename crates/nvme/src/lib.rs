//! NVMe over Fabrics, both ends: what stands on the wire, and the state machines that speak it.
//! Pure: no socket, no device, no clock, no payload.
//!
//! Sources: NVM Express Base Specification 2.0 and 2.1 ("NVMe Base"), which contains NVMe over
//! Fabrics; NVM Command Set Specification 1.0; NVMe/TCP Transport Specification 1.0; NVMe RDMA
//! Transport Specification 1.0. Revisions number their sections differently, so sections are cited
//! by their titles.
//!
//! The wire, all little-endian and of fixed offsets (`layout`):
//!
//! - [`command`], [`sgl`], [`status`]: a command, where its data are, how it ended;
//! - [`fabrics`], [`register`], [`nqn`]: connecting, the properties of a controller, names;
//! - [`identify`], [`log_page`], [`feature`]: the data of admin commands;
//! - [`io`], [`reservation`]: the NVM command set;
//! - [`cross_reset`], and [`end_controller`], a command of our own: they make moving a write safe
//!   and fast;
//! - [`pdu`], [`digest`]: the PDUs of NVMe/TCP; [`rdma`]: over RDMA, what is exchanged to
//!   connect, and capsules.
//!
//! The state machines, which take inputs and the time and give outputs:
//!
//! - [`controller`]: the target's controllers of a subsystem, and their I/O queues;
//! - [`host`]: how a host brings a controller up, watches it, and reads a discovery log;
//! - [`reservation::Reservations`]: registrations and the reservation of a volume;
//! - [`tcp`]: both ends of an NVMe/TCP connection;
//! - [`pair`]: which of two nodes owns a volume.
//!
//! Invariants: unknown numbers survive as numbers; lengths are checked against their bounds before
//! anything is taken; nothing panics on remote bytes; payload never passes through here.
//!
//! Left out: zoned and key-value command sets, metadata and protection information, namespace
//! management, firmware, sanitize, streams; authentication beyond its headers, which is the crate
//! `chap`; the log page and the event of Cross-Controller Resets (TP8028) that take longer than
//! their commands.
#![forbid(unsafe_code)]

mod address;
pub mod command;
pub mod controller;
pub mod cross_reset;
pub mod digest;
pub mod end_controller;
pub mod fabrics;
pub mod feature;
pub mod host;
pub mod identify;
pub mod io;
pub mod log_page;
pub mod nqn;
pub mod pair;
pub mod pdu;
pub mod rdma;
pub mod register;
pub mod reservation;
pub mod sgl;
pub mod status;
pub mod tcp;

mod layout;

#[doc(hidden)]
pub mod fuzzing;

pub use address::{Address, AddressError, Transport};
pub use command::{AdminOpcode, Cqe, Direction, IoOpcode, NSID_ALL, Sqe};
pub use layout::Short;
pub use nqn::{HostId, Nqn, NqnError};
pub use sgl::Sgl;
pub use status::Status;
