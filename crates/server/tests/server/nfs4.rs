//! NFS version 4.1 and 4.2 on the wire: compounds of a client that follows the standard, and of
//! those that do not.

pub mod back;
mod bounds;
mod call_backs;
pub mod client;
mod copies;
pub mod delegations;
mod denials;
mod files;
mod group;
#[path = "../support/latched.rs"]
mod latched;
mod layouts;
mod locations;
mod locks;
mod mounts;
mod restart;
mod root;
mod security;
mod sessions;
mod space;
pub mod stores;
mod unlinked;
mod writes;
mod xattrs;
