//! Threads, sockets and queues: they deliver calls to [`crate::service`] and send the replies back
//! to the clients.
//!
//! No code that serves a call depends on this module.

mod acknowledgement;
mod call_sink;
mod connection;
mod datagram;
mod event_loop;
mod listeners;
mod mailbox;
mod place;
mod rdma_acceptor;
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
