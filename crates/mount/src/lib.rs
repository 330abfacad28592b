//! Makes an export appear as an ordinary directory: FUSE in front of the client.
//!
//! One thread receives the kernel's requests (`kernel`, `file_system`). Each becomes a task
//! (`executor`), which makes NFS calls as futures (`calls`) and replies. What programs may rely on
//! is in `docs/SEMANTICS.md`, with the tests that check it.
//!
//! Invariants:
//!
//! - a thread that receives requests never waits for the server;
//! - no lock is held during a call;
//! - written data are kept until the server has them, or their loss is recorded for fsync(2) and
//!   close(2).
//!
//! This crate must not know connections, paths or retries. For this crate, a call is made once and
//! answered at some time.

mod attach;
mod attributes;
mod buffers;
mod caller;
mod calls;
mod copying;
mod core;
mod delegations;
mod directory;
mod dirty;
mod errno;
mod executor;
mod file_system;
mod files;
mod fusermount;
mod gauges;
mod growth;
mod inode;
mod interrupts;
mod invalidations;
mod kernel;
mod kernel_cache;
mod listing;
mod locks;
mod mount_table;
mod names;
mod own_mount;
mod own_writes;
mod page_fills;
mod pipes;
mod policy;
mod read_ahead;
mod reads;
mod session;
mod silly_names;
mod space;
mod unsupported;
mod version_history;
mod write_back;
mod write_ranges;
mod xattrs;

pub use attach::resolve_mount_point;
pub use gauges::Gauges;
pub use mount_table::{FILE_SYSTEM, resolved_path};
pub use own_mount::{ListedMount, MountId, list_mounts, mounted_type, unmount, unmount_dead, uppermost};
pub use policy::{LocalLocks, Policy};
pub use session::{Error, Mounted, Request, Unmounter, settings};
