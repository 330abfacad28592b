//! Test networks and machines without hardware: slow, cut and silent links, on one Linux machine.
//!
//! [`net`] creates network namespaces joined by shaped links. Everything that a lab creates is
//! named after the process that owns the lab, and removed when that process is done with it. If the
//! owner is killed, the next lab removes what is left.
//!
//! [`vm`] boots one or two virtual machines with a stock kernel, this machine's files and Soft-RoCE
//! devices. They end with the process that owns them and leave nothing behind.
#![forbid(unsafe_code)]

pub mod net;
pub mod vm;
