//! A host's end of NVMe over TCP and RDMA: volumes of a subsystem over several paths.
//!
//! [`Attachment`] is one thread that keeps a controller at each address, and sends each command on
//! the best path: by ANA state, then by what is outstanding. [`Volume`] is a namespace of it.
//!
//! Invariants:
//!
//! - A command that changes data is sent again only when the controller that had it is known to be
//!   finished: it has completed the command, its node has answered End Controller, or the time is
//!   over for which a target may go on without its host. Reads and flushes move at once.
//! - Changes of the same bytes are executed in the order in which they were submitted.
//! - An attachment does nothing before older controllers of the same host identifier are finished,
//!   as far as the target can say so; else it is told whether there may be any.
//! - What a number stands for does not change: a path with another volume under it is not used.
//!
//! A target that asks for it is told by [`chap`] who this host is, on each queue before anything
//! else; a host that has a secret of the controller uses no queue without its proof.
//!
//! Left out: TLS, authentication for discovery, reservations.
#![forbid(unsafe_code)]

mod attachment;
mod config;
mod discover;
mod engine;
mod error;
pub mod identity;
mod queue;
mod request;
pub mod secret_file;
mod shared;
mod task;

pub use attachment::{Attachment, Volume};
pub use chap::{Algorithms, Failure as AuthenticationFailure, Secret, SecretError};
pub use config::{Config, Secrets, Timing};
pub use discover::{Found, discover};
pub use error::{Error, Refusal};
pub use nvme::pdu::Digests;
pub use nvme::{Address, HostId, Nqn, NqnError, Status, Transport};
pub use request::{Completion, Operation};
pub use shared::{Namespace, PathCounters, PathState};
pub use task::{Io, Task};
