//! Block devices of the kernel that are served in user space: its driver ublk, as of
//! `linux/ublk_cmd.h` and Documentation/block/ublk.rst.
//!
//! A [`Device`] is made, taken over, started and removed by commands to `/dev/ublk-control`. Its
//! requests come to the thread of a [`Queue`], and are completed from any thread by a [`Handle`],
//! which also moves their data (`UBLK_F_USER_COPY`), so that no address of this process is ever
//! known to the driver.
//!
//! Invariants: one process at a time has a device number; the numbers of a request are valid until
//! it is completed. One queue for each device, and no zones. What is behind a device is not known
//! here.
#![deny(missing_docs)]

mod control;
mod device;
mod error;
mod mailbox;
mod queue;
mod sys;
mod wire;

pub use device::{Description, Device};
pub use error::Error;
pub use queue::{Handle, Kind, Queue, Request};
pub use sys::serve_io;
