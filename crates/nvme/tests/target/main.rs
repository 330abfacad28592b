//! The target's controllers, as hosts meet them: what they answer, what they refuse, and what a
//! driver is asked to do.

mod admin;
mod connect;
mod discovery;
mod ending;
mod fused;
mod io;
mod nodes;
mod rdma;
mod registers;
mod reservations;
mod resets;
#[allow(dead_code, reason = "each test program uses a part of it")]
mod support;
mod tcp;
