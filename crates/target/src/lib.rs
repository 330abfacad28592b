//! NVMe over Fabrics target over TCP and RDMA: it serves [`volumes`] to hosts, by the state machines of
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
//! - Over RDMA the device does both, from and to the same memory. What carries a connection is one
//!   of its parts; everything else is the same over both. A queue pair is destroyed, on a thread of
//!   its own, before memory that it had is used again and its queue is reported as closed.
//! - Memory is bounded: data of commands by a budget of the loop, of which a connection gets a part
//!   only; data in capsules by what is set aside when a queue is connected; what a host does not
//!   read stops the receipt of its commands.
//! - A connection that ends executes nothing any more that had not begun. Its queue is reported as
//!   closed when what had begun is finished, and so its controller's identifier is free.
//!
//! - One process may be two nodes: their ports differ in the identifiers of their controllers and in
//!   the ANA states that they report. Loops, volumes and the order of commands are shared.
//! - A command of reservations goes to the [`Subsystem`] as well. What it changes is in the views of
//!   the queues, so that I/O commands are checked without a lock. It is answered when what is to
//!   persist was saved, by a thread of its own, and when no loop executes a command any more that
//!   the new views do not allow.
//! - Where the nodes are two processes, [`pair`] takes and gives backings, and a target is one of the
//!   nodes ([`Target::start_node`]): it knows all volumes and has the backings of some. A volume
//!   whose backing goes is a change of the views first; each loop then drops its volume when
//!   nothing is executed there any more.
//!
//! - A host with a secret is authenticated on each of its queues, by [`chap`], before any command of
//!   the queue is served but those of authentication. What takes long of it is computed on a thread
//!   of its own. Discovery asks for nothing, as that of Linux: hosts authenticate to what they find.
//!
//! Left out: TLS, and so any protection of what is sent after authentication.
//!
//! [`Subsystem`]: nvme::controller::Subsystem
#![forbid(unsafe_code)]

mod authenticator;
mod budget;
mod config;
mod connection;
mod controllers;
mod discovery;
mod error;
mod event_loop;
mod forward;
mod inbound;
mod mailbox;
mod namespace;
mod outbound;
pub mod pair;
mod rdma_acceptor;
mod report;
mod reservations;
mod shares;
mod status;
mod target;

pub use chap::{Algorithms, Group, Hash, NoAlgorithm, Secret, SecretError};
pub use config::{CAPSULE_DATA_BYTES, Config, Export, HostSecret, Hosts, Limits, Listen};
pub use drives::{Drive, Error as DriveError, How};
pub use error::Error;
pub use namespace::{Facts, Namespace};
pub use nvme::controller::{Access, ControllerReport, Node, Reach};
pub use nvme::reservation::{Registrant, Report, ReservationType, RestoreError};
pub use nvme::{Address, AddressError, HostId, Nqn, NqnError, Transport};
pub use report::{ControllerState, Overview, VolumeState, Watcher};
pub use reservations::ReservationStore;
pub use target::{Target, Usage};
pub use volumes::{BlockSize, Error as VolumeError, Identity, Volume};
