//! Threads, sockets and queues: what brings calls to [`crate::service`], and their replies back to the clients.
//!
//! Nothing that serves a call knows this module.

mod acknowledgement;
mod connection;
mod datagram;
mod event_loop;
mod listeners;
mod mailbox;
mod rdma_acceptor;
mod wire;
mod worker_pool;

pub(crate) use datagram::{Datagrams, bind_datagrams};
pub(crate) use event_loop::EventLoop;
pub(crate) use listeners::{BoundListener, bind, bind_rdma};
pub(crate) use mailbox::{Answer, Message, Peers, Place};
pub(crate) use worker_pool::{InFlight, Task, WorkerPool};
