//! NVMe in-band authentication with DH-HMAC-CHAP: a host and a controller prove to each other that
//! they know a secret, before a queue does anything else. Pure: no socket, no clock, no source of
//! random numbers.
//!
//! Source: NVM Express Base Specification 2.0 ("NVMe Base"), "NVMe In-band Authentication" (8.13),
//! which came from TP 8006; RFC 7919 for the groups, RFC 2104 for HMAC.
//!
//! - [`secret`]: secrets as people write them (`DHHC-1:...`), and the keys that follow from them;
//! - [`hash`], [`group`], [`response`]: what is computed;
//! - [`message`], [`command`]: what is on the wire;
//! - [`controller`], [`host`]: both ends, one machine for each queue;
//! - [`gate`]: what passes no command of a queue on before its host is authenticated.
//!
//! Invariants: secrets, exponents and session keys are cleared when they are dropped, and no
//! `Debug` or error shows them; responses are compared in constant time; remote bytes never panic;
//! a transaction that has failed never leads to an authenticated queue.
//!
//! Left out: concatenation with TLS (SC_C), which is refused; other protocols than DH-HMAC-CHAP;
//! the bound on the time of a transaction, which is the caller's.
#![forbid(unsafe_code)]

pub mod command;
pub mod controller;
pub mod gate;
pub mod group;
pub mod hash;
pub mod host;
pub mod message;
pub mod response;
pub mod secret;

mod credentials;
mod entropy;
mod failure;

#[doc(hidden)]
pub mod fuzzing;

pub use controller::{Controller, NoRoom, Outcome};
pub use credentials::{Algorithms, Credentials, NoAlgorithm};
pub use entropy::{Entropy, Sequence};
pub use failure::{Cause, Failure};
pub use gate::{Admission, Gate};
pub use group::Group;
pub use hash::Hash;
pub use host::{Host, Next};
pub use message::Explanation;
pub use secret::{Secret, SecretError};
