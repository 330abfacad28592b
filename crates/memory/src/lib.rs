//! Memory for payload: mapped in areas that devices may be told of, so that RDMA moves payload
//! straight from and to where a store keeps it.
//!
//! - [`Area`] is mapped memory with its registrations. An area registers itself at first use with a
//!   [`Registrar`], which stands for the protection domain of a device, and ends its registrations
//!   before its memory is unmapped. A registrar ends the rest when it is dropped.
//! - [`Buffers`] is a pool of page-aligned [`Buffer`]s, which lie in areas.
//! - [`map_large_allocations`] keeps ordinary allocations of the process from holding memory that
//!   nobody uses any more.
//! - [`Piece`] is a part of a payload: its bytes and, where the area is registered, how a device
//!   addresses them.
//!
//! Invariants: a registration never outlives the mapping of its memory, nor its registrar; memory
//! is registered whole areas at a time, because each registration costs a system call and a place
//! in the device's tables.
//!
//! This crate knows no device: what a device returns for a registration is opaque here.
#![allow(unsafe_code)]

mod allocator;
mod area;
mod buffer;
mod piece;

pub use allocator::{MAPPED_BYTES_MIN, map_large_allocations};
pub use area::{Area, Device, Registrar, Registration};
pub use buffer::{Buffer, Buffers};
pub use piece::{Piece, Registered, Scatter};
