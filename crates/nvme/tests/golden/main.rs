//! Conversations between the NVMe/TCP host and the target of the Linux kernel, byte by byte: what
//! our codecs make of them, and whether our machines speak with either end.
//!
//! The folders beside this file have the captures; `README.md` says how they were made.

mod answers;
mod bring_up;
mod capture;
mod codec;
mod commands;
mod kernel_host;
mod kernel_target;
mod our_target;
