//! An NFS client in user space that uses all paths at once.
//!
//! A [`Mount`] is created from a target and mount options, a [`File`] from a path. Reads and writes
//! take an offset and are blocking, or futures that own a buffer and return it. Every error says
//! which side is at fault and whether a retry can help. Work that must avoid context switches runs
//! on a loop as a [`Task`].
//!
//! Invariants: each loop is a thread, and the loops share only the placement of files; a caller's
//! buffer is returned only when nothing can read or write it any more, and after a write only when
//! the data are stable. This crate must not know how a path is chosen (`paths`) or how records are
//! carried (`transport`), nor, outside of `protocol`, the format of a file protocol: it speaks the
//! types of `fs`.

mod blocks;
mod bootstrap;
mod buffer;
mod call;
mod call_backs;
mod caller;
mod connector;
mod delegations;
mod engine;
mod error;
mod file;
mod listing;
mod locks;
mod mount;
mod nlm;
mod node_health;
mod offer;
mod operations;
pub mod options;
mod owners;
mod path_failures;
mod path_losses;
mod protocol;
mod route;
mod rpcbind;
mod seen_entries;
mod session;
mod settings;
mod shard;
mod slot;
mod statistics;
mod tree;
mod walk;

pub use blocks::{Block, Blocks};
pub use buffer::Buffer;
pub use call::{Answer, Caller, Done, FileRef, Op};
pub use delegations::{DelegationCounts, Recalled};
pub use error::{Error, MountError, Result, status_words};
pub use file::File;
pub use listing::{DIRECTORY_ENTRIES_MAX, Pages};
pub use locks::{Conflict, LockKind, LockOwner, LockRange};
pub use mount::Mount;
pub use offer::{Minor, Offer, Offered, mount_service, offers};
pub use operations::{Operations, Place, SetXattr, Sought, XATTR_BYTES_MAX};
pub use paths::{PathStatus, State as PathState};
pub use protocol::{Found, Operation, Protocol, Request};
pub use seen_entries::{GIVEN_NAMES_MAX, LISTING_RESTARTS_MAX, NameHasher};
pub use settings::{OtherAddress, Settings};
pub use shard::{ExternalDriver, Io, Task};
pub use slot::Pending;
pub use statistics::{Counter, OperationCounters, PathCounters, PathStatistics, Replays, Statistics};
pub use transport::descriptors::raise_limit as raise_descriptor_limit;
pub use transport::rdma::Error as RdmaError;
pub use transport::{Address, AddressError, Pipe, parse_with_port};
pub use verbs::Error as VerbsError;
pub use walk::names_a_directory;

/// A random number for identities, xids and seeds.
///
/// # Panics
/// Panics if the system has no random numbers, without which no mount is safe.
pub(crate) fn random_u64() -> u64 {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).expect("the system's random numbers");
    u64::from_ne_bytes(bytes)
}
