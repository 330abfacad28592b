//! Disks for programs of this host: an NBD server on a UNIX socket, or a block device of the kernel
//! (ublk), in front of a volume of an attachment or a file of an NFS mount.
//!
//! Each connection, and each device, has a thread that receives and one that replies. A write's
//! data are received into the memory from which they are sent on; a read's data are replied from
//! the memory into which they were received.
//!
//! Invariants: a client's requests in flight are bounded, in number and in bytes; a client that
//! breaks the protocol or does not read ends its own connection only.
#![forbid(unsafe_code)]

mod connection;
mod disk;
mod file;
mod server;
mod ublk_server;
mod volume;

pub use disk::{Disk, Operation, Outcome};
pub use file::{FileDisk, FileError};
pub use server::{Earlier, Error, Server, Socket};
pub use ublk::{Device, Error as UblkError, serve_io};
pub use ublk_server::UblkServer;
pub use volume::VolumeDisk;
