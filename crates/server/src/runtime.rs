//! Threads, sockets and queues: what brings calls to [`crate::service`], and their replies back to
//! the clients.
//!
//! Nothing that serves a call knows this module.

mod acknowledgement;
mod call_sink;
mod connection;
mod datagram;
mod event_loop;
mod listeners;
mod mailbox;
mod place;
mod rdma_acceptor;
mod wire;
mod worker_pool;

pub(crate) use datagram::{Datagrams, bind_datagrams};
pub(crate) use event_loop::EventLoop;
pub(crate) use listeners::{BoundListener, bind, bind_rdma};
#[cfg(test)]
pub(crate) use mailbox::Answer;
pub(crate) use mailbox::{Message, Peers};
#[cfg(test)]
pub(crate) use place::place_of;
pub(crate) use worker_pool::WorkerPool;
