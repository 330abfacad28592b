//! The kernel's side of a mount: its requests, and the replies to them.
//!
//! The FUSE crate negotiates the features of a mount with the kernel. After that, this module reads
//! and writes the device, because that is the data path (docs/decisions/0007-fuse.md). `request`
//! and `reply` know the layout of messages, and `device` moves them. Nothing here executes a
//! request.
//!
//! The layout is that of `include/uapi/linux/fuse.h` in Linux, as it has been since protocol 7.12.
//! Numbers have the machine's byte order.

mod device;
mod reply;
mod request;

pub(crate) use device::{Data, Device, Received, Receiver};
pub(crate) use reply::{DirentBuffer, Entry, Reply, StatFs};
pub(crate) use request::{Extension, Head, Operation, SetAttr, Write, parse};
