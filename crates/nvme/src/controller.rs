//! The target's state machine: the controllers of one subsystem on one node, and their queues.
//!
//! [`Subsystem`] has all that is rare: connecting, properties, admin commands, keep-alive, events,
//! changes of namespaces and of their ANA states. It is driven from one place at a time.
//! [`IoQueue`] has what is frequent: it validates the I/O commands of one queue against a [`View`],
//! an immutable picture of what its host may see, so that queues on several loops share nothing. A
//! [`SubmissionQueue`] counts for both what is outstanding.
//!
//! ```text
//!  Connect, admin commands, time     Subsystem ──> Respond, Close, View, Released
//!                                        │ View
//!  I/O commands, completions          IoQueue  ──> which blocks of which volume, or a refusal
//! ```
//!
//! Payload stays with the driver: requests have tags, block ranges and lengths. The data of admin
//! commands are small, and pass through.
//!
//! Invariants, each with a test in `tests/traps.rs`:
//!
//! - A controller identifier is free again only when every queue of its controller was reported as
//!   closed ([`Subsystem::handle_queue_closed`]), that is, when no command of it can have an effect
//!   any more. RDY falls, a shutdown is complete, and an expired keep-alive ends only then.
//! - Everything is bounded: controllers, queues, events, outstanding commands.
//! - A namespace's ANA state is one function, [`state`], of its owner and of how the owner is
//!   reached.
//!
//! Left out: Verify, authentication. Identify says so.

mod admin;
mod ana;
mod association;
mod config;
mod discovery;
mod ending;
mod events;
mod features;
mod fused;
mod guests;
mod host_ids;
mod identify;
mod logs;
mod namespace;
mod queue;
mod report;
mod reservation_features;
mod reservations;
mod reset;
mod subsystem;

pub use ana::{Node, Reach, state};
pub use config::{Access, Config, Kind, Limits, Port};
pub use discovery::Record;
pub use ending::EndRequest;
pub use guests::GuestId;
pub use logs::IoCounts;
pub use namespace::{View, Volume, VolumeId, VolumeView};
pub use queue::{Action, IoQueue, Operation, Request, Reservation, SubmissionQueue, Tag, Violation};
pub use report::ControllerReport;
pub use reservations::Reserve;
pub use subsystem::{Accepted, CloseReason, Output, QueueId, Refusal, Subsystem, VolumeError};
