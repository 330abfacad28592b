//! Threads, sockets and queues: they deliver calls to [`crate::dispatch`] and send the replies back
//! to the clients.
//!
//! No code that serves a call depends on this module.

mod acknowledgement;
mod call_sink;
mod connection;
mod connection_address;
mod datagram;
mod event_loop;
mod held_memory;
mod listeners;
mod mailbox;
mod rdma_acceptor;
mod worker_pool;

#[cfg(test)]
pub(crate) use connection_address::address_of;
pub(crate) use datagram::{Datagrams, bind_datagrams};
pub(crate) use event_loop::EventLoop;
pub(crate) use listeners::{BoundListener, bind, bind_rdma};
#[cfg(test)]
pub(crate) use mailbox::RoutedReply;
pub(crate) use mailbox::{Mailboxes, Message};
pub(crate) use worker_pool::WorkerPool;
