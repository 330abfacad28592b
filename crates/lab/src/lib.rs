//! Hardware that isn't there: networks with slow, cut and silent links, on one Linux machine.
//!
//! [`net`] lays out network namespaces joined by shaped links. What a lab makes is named after the process
//! that owns it, removed when that process is done with it, and collected by the next lab should the owner
//! have been killed.
//!
//! Left out for now: virtual machines with Soft-RoCE.
#![forbid(unsafe_code)]

pub mod net;
