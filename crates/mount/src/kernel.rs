//! The kernel's side of a mount: its requests, and the replies to them.
//!
//! The FUSE crate negotiates what both can; from then on the device is read and written here,
//! because that is the data path (docs/decisions/0007-fuse.md). `request` and `reply` know how
//! things lie in memory, `device` moves them. Nothing here acts on a request.
//!
//! Shapes: `include/uapi/linux/fuse.h` of Linux, as they have been since protocol 7.12; numbers are
//! in the machine's own order.

mod device;
mod reply;
mod request;

pub(crate) use device::{Data, Device, Received, Receiver};
pub(crate) use reply::{Entry, Names, Reply, Space};
pub(crate) use request::{Head, Operation, SetAttr, Write, parse};
