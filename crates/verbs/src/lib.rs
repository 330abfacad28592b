//! libibverbs and librdmacm, loaded when they are first needed: the same program runs where they
//! are missing and says how to get RDMA. `docs/decisions/0006-verbs.md` says why the binding is our
//! own.
//!
//! - [`devices`]: devices, ports, addresses, MTU, NUMA node;
//! - [`Domain`], [`Region`]: what peers may reach, and memory of ours in it;
//! - [`Window`]: a peer's right to a part of registered memory, which begins and ends with work;
//! - [`Queue`]: completions, waited for on a file descriptor;
//! - [`EventChannel`], [`Identifier`]: connecting both ways, and the queue pair of a connection
//!   with its work.
//!
//! Everything is freed when dropped, in the order that the libraries need: what is used is kept
//! alive by what uses it. [`alive`] counts. A registration that goes while work on it is posted
//! makes that work fail, no more: the memory goes back to the system only after the device has let
//! go of it.
//!
//! Left out: shared receive queues, unreliable and extended queue pairs.
#![allow(unsafe_code)]

mod abi;
mod count;
mod device;
mod error;
mod event;
mod identifier;
mod library;
mod memory;
mod queue;
mod window;
mod work;

pub use count::{Alive, alive};
pub use device::{Address, Device, Port, devices};
pub use error::Error;
pub use event::{Event, EventChannel, EventKind};
pub use identifier::{Capacity, Identifier, Terms};
pub use memory::{Access, Domain, Region, Registration};
pub use queue::{Completion, Queue};
pub use window::Window;
pub use work::{Slice, Work};

/// Whether both libraries are here.
///
/// # Errors
/// What is missing, and how to get it.
pub fn require() -> Result<(), Error> {
    library::library().map(|_| ())
}
