//! MOUNT's procedures. RFC 1813 s5.2

pub mod dump;
pub mod export;
pub mod mnt;
pub mod umnt;
pub mod umntall;
