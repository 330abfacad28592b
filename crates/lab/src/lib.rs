//! Hardware that isn't there: networks with slow, cut and silent links, on one Linux machine.
//!
//! [`net`] lays out network namespaces joined by shaped links. What a lab makes is named after the
//! process that owns it, removed when that process is done with it, and collected by the next lab
//! should the owner have been killed.
//!
//! [`vm`] boots one or two virtual machines with a stock kernel, this machine's files and Soft-RoCE
//! devices. They end with the process that owns them and leave nothing behind.
#![forbid(unsafe_code)]

pub mod net;
pub mod vm;
