//! The host's end: what it refuses of a controller, and how it brings one up.

mod connection;
mod initiator;
