//! NFS server: listeners, loops, dispatch, exports, group, statistics.

pub mod config;
pub mod handle;
pub mod identity;
pub mod statistics;
