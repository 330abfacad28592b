//! The host's state machine: how a controller is brought up, kept alive and watched, and what a
//! failed command may be followed by.
//!
//! [`Initiator`] is one controller as a host sees it. Its outputs are admin commands, which the
//! driver sends on the admin queue's connection, and I/O queues to connect; its inputs are the
//! completions. It checks what a controller says of itself as the Linux kernel does, so that what
//! it accepts, others accept too.
//!
//! Whether a failed command may be sent on another path is [`retry`]'s to say. What is outstanding
//! on a connection that broke is another matter: a write among it may still be executed, so that it
//! waits in [`Fences`] until the old controller is known to be finished.
//!
//! Left out: authentication; which path a command takes, and when one is lost, which the driver
//! decides.

mod discovery;
mod fence;
mod initiator;
mod outcome;
mod queue;

pub use discovery::{DiscoveryError, DiscoveryReader, Reading};
pub use fence::{ANSWER, Ask, Candidate, FenceId, Fences, Lifted, Name, safe_time};
pub use initiator::{
    Command, CommandData, Failure, HostConfig, HostOutput, Initiator, Limits, Purpose, Role,
};
pub use outcome::{Retry, retry};
pub(crate) use queue::Outstanding;
pub use queue::{ENTRIES_MAX, HostData, HostMisuse};
