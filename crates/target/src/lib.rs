//! NVMe over Fabrics target over TCP: it serves [`volumes`] to hosts, by the state machines of
//! [`nvme`].
//!
//! ```text
//!  loop 0 ── accepts, keep-alive ──┐
//!  loop n: connections ── TargetConnection, IoQueue ── volumes::Queue ── drives
//!              │  Connect, admin commands                    ▲ writes: received into its buffers
//!              ▼                                             │ reads: sent from its segments
//!         Controllers (one, behind a lock) ── Close, View, Respond ──> the loop of the queue
//! ```
//!
//! - A connection is one queue of a controller and lives on one loop. I/O commands need nothing but
//!   that loop. What is rare (Connect, admin commands, time) goes to the [`Subsystem`], which is
//!   driven behind one lock; what it asks of a queue is posted to the loop of the queue.
//! - A WRITE that was asked for with R2T is received into the buffers that go to the drive. Data in
//!   a capsule, 8 KiB at most, are copied once, which costs less than a receive of their own. A READ
//!   is sent from the volume's segments, all that a turn has for a connection with one system call.
//! - Memory is bounded: data of commands by a budget of the loop, of which a connection gets a part
//!   only; data in capsules by what is set aside when a queue is connected; what a host does not
//!   read stops the receipt of its commands.
//! - A connection that ends executes nothing any more that had not begun. Its queue is reported as
//!   closed when what had begun is finished, and so its controller's identifier is free.
//!
//! Left out: RDMA, TLS, authentication, reservations, a second node.
//!
//! [`Subsystem`]: nvme::controller::Subsystem
#![forbid(unsafe_code)]

mod budget;
mod config;
mod connection;
mod controllers;
mod discovery;
mod error;
mod event_loop;
mod inbound;
mod mailbox;
mod outbound;
mod status;
mod target;

pub use config::{Config, Export, Hosts, Limits};
pub use drives::{Drive, Error as DriveError, How};
pub use error::Error;
pub use nvme::controller::{Access, Node};
pub use nvme::{HostId, Nqn, NqnError};
pub use target::{Target, Usage};
pub use volumes::{BlockSize, Error as VolumeError, Identity, Volume};
