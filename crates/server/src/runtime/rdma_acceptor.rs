//! Makes and ends connections over RDMA, on a thread of its own.
//!
//! The system takes long to create queue pairs and to register memory. On a loop this would delay
//! the calls of all other connections. Clients would take the server for dead and connect again,
//! which would give it still more of that work.
//!
//! The thread starts with the first connection over RDMA. It executes no calls: finished
//! connections go to a loop, and connections that a loop has closed come back to be ended.

use super::call_sink::Responder;
use super::connection::STRANGER_RECORD_BYTES_MAX;
use super::mailbox::{Accepted, Link, Mailboxes, Message};
use crate::clock;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use transport::Remains;
use transport::rdma::{Error, Incoming};

/// Pending connections that may wait to be accepted: as many as the system lets wait before them.
/// Further connections are refused, and their clients connect again.
const WAITING_MAX: usize = 256;
/// The time between two checks whether the thread has ended.
const JOIN_POLL: Duration = Duration::from_millis(2);

/// A client that wants to connect.
#[derive(Debug)]
pub(super) struct PendingConnection {
    pub incoming: Box<Incoming>,
    /// The accepted connection, except for its link.
    pub accepted: Accepted<()>,
    pub on_loop: usize,
    /// Calls of the server that may be outstanding.
    pub reverse_credits: u32,
}

#[derive(Debug)]
enum Command {
    Accept(PendingConnection),
    Free(Remains),
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct RdmaAcceptor {
    commands: Sender<Command>,
    waiting: Arc<AtomicUsize>,
    thread: JoinHandle<()>,
}

impl RdmaAcceptor {
    pub fn start(mailboxes: Arc<Mailboxes>) -> std::io::Result<Self> {
        let (commands, receiver) = channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&waiting);
        let thread = std::thread::Builder::new()
            .name("tl-rdma_acceptor".to_owned())
            .spawn(move || run(&receiver, &counted, &mailboxes))?;
        Ok(Self { commands, waiting, thread })
    }

    /// Accepts a connection, or says why it was refused.
    pub fn accept(&self, pending: PendingConnection) -> Result<(), &'static str> {
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= WAITING_MAX {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            return Err("too many wait to be let in");
        }
        self.commands.send(Command::Accept(pending)).map_err(|_| "the thread that lets them in has ended")
    }

    /// Frees what is left of a connection later, on the thread.
    pub fn free(&self, remains: Remains) {
        // If the thread has ended, it is freed here.
        let _ = self.commands.send(Command::Free(remains));
    }

    /// Finishes the remaining work until `deadline`. A system that takes longer keeps the thread.
    pub fn stop(self, deadline: Duration) {
        let Self { commands, thread, .. } = self;
        drop(commands);
        while !thread.is_finished() && clock::now() < deadline {
            std::thread::sleep(JOIN_POLL);
        }
        if thread.is_finished() && thread.join().is_err() {
            tracing::error!("the thread that makes connections over RDMA ended by a panic");
        }
    }
}

fn run(commands: &Receiver<Command>, waiting: &AtomicUsize, mailboxes: &Mailboxes) {
    for command in commands {
        match command {
            Command::Accept(pending) => {
                let PendingConnection { incoming, accepted, on_loop, reverse_credits } = pending;
                let (peer, node, began) = (accepted.peer, accepted.node, clock::now());
                let made = Responder::accept(*incoming, STRANGER_RECORD_BYTES_MAX, reverse_credits);
                waiting.fetch_sub(1, Ordering::Relaxed);
                let took = clock::now().saturating_sub(began);
                let message = match made {
                    Ok(responder) => {
                        tracing::debug!(%peer, ?took, "connection over RDMA made");
                        Message::Accepted(accepted.with(Link::Rdma(Box::new(responder))))
                    }
                    Err(Error::Closed) => {
                        tracing::debug!(%peer, ?took, "gave up before it was let in over RDMA");
                        Message::Refused { node }
                    }
                    Err(error) => {
                        tracing::warn!(%peer, %error, "connection refused");
                        Message::Refused { node }
                    }
                };
                mailboxes.send(on_loop, message);
            }
            Command::Free(remains) => drop(remains),
        }
    }
}
