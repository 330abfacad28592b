//! Makes and destroys connections over RDMA, on a thread of its own: the system takes long to
//! create and destroy queue pairs and to register memory, and on a loop that would delay the
//! commands of all other connections.

use crate::config::{QUEUE_CAPSULE_BYTES, QUEUE_ENTRIES, RDMA_CAPSULE_DATA_BYTES};
use crate::connection::Device;
use crate::mailbox::{Mailbox, Message, Place, Token};
use crate::target::Shared;
use nvme::controller::Node;
use nvme::fabrics::ConnectData;
use nvme::rdma::{Accept, RECFMT, Reject, RejectStatus, Request};
use nvme::{Cqe, Sqe};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use transport::Remains;
use transport::rdma::{Error, Incoming, Room};

/// Requests to connect that wait to be accepted. Further ones are refused, and their hosts try
/// again.
const WAITING_MAX: usize = 256;
/// Receives beyond the commands of a queue: a place is free only once its message was taken.
const SPARE_RECEIVES: u32 = 8;
/// Memory of a connection for data that have to be copied: those of admin commands, and of an I/O
/// queue where the system does not let the buffers of the volumes be registered.
const ADMIN_POOL_BYTES: usize = 256 << 10;
const IO_POOL_BYTES: usize = 2 << 20;

// The receives of an I/O queue and the data in its capsules fit what is set aside for it.
const _: () = assert!((2 * RDMA_CAPSULE_DATA_BYTES as usize * QUEUE_ENTRIES as usize) <= QUEUE_CAPSULE_BYTES);

/// A host that wants to connect.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) incoming: Box<Incoming>,
    pub(crate) request: Request,
    pub(crate) node: Node,
    pub(crate) on_loop: usize,
}

#[derive(Debug)]
pub(crate) enum Command {
    Accept(Pending),
    Destroy(Remains, Place),
    Stop,
}

/// Gives the thread work.
#[derive(Debug)]
pub(crate) struct RdmaAcceptor {
    commands: Sender<Command>,
    waiting: AtomicUsize,
}

impl RdmaAcceptor {
    pub(crate) fn new() -> (Self, Receiver<Command>) {
        let (commands, receiver) = channel();
        (Self { commands, waiting: AtomicUsize::new(0) }, receiver)
    }

    /// Accepts a host, or refuses it.
    pub(crate) fn accept(&self, pending: Pending) -> bool {
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= WAITING_MAX {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            refuse(*pending.incoming, RejectStatus::NO_RESOURCES);
            return false;
        }
        // A thread that has ended drops it, which refuses it.
        self.commands.send(Command::Accept(pending)).is_ok()
    }

    /// Destroys what is left of a connection, and tells its loop.
    pub(crate) fn destroy(&self, remains: Remains, place: Place) {
        // If the thread has ended, it is destroyed here.
        let _ = self.commands.send(Command::Destroy(remains, place));
    }

    pub(crate) fn stop(&self) {
        // A thread that has ended need not be told.
        let _ = self.commands.send(Command::Stop);
    }
}

/// Refuses a host, and says why.
pub(crate) fn refuse(incoming: Incoming, status: RejectStatus) {
    tracing::warn!(peer = %incoming.peer(), ?status, "a connection over RDMA is refused");
    incoming.refuse_with(&Reject { recfmt: RECFMT, status }.encode());
}

/// Starts the thread.
pub(crate) fn start(
    commands: Receiver<Command>,
    shared: &Arc<Shared>,
    mailboxes: Vec<Arc<Mailbox>>,
) -> std::io::Result<JoinHandle<()>> {
    let shared = Arc::clone(shared);
    let run = move || {
        for command in commands {
            match command {
                Command::Accept(pending) => accept(pending, &shared, &mailboxes),
                Command::Destroy(remains, Place { event_loop, token }) => {
                    drop(remains);
                    tell(&mailboxes, event_loop, token);
                }
                Command::Stop => return,
            }
        }
    };
    std::thread::Builder::new().name("target-rdma".to_owned()).spawn(run)
}

fn tell(mailboxes: &[Arc<Mailbox>], event_loop: usize, token: Token) {
    if let Some(mailbox) = mailboxes.get(event_loop) {
        mailbox.post(Message::Destroyed { token }, true);
    }
}

fn accept(pending: Pending, shared: &Shared, mailboxes: &[Arc<Mailbox>]) {
    let Pending { incoming, request, node, on_loop } = pending;
    let peer: SocketAddr = incoming.peer();
    let receive_queue = u16::try_from(request.commands()).unwrap_or(u16::MAX);
    let terms = Accept { recfmt: RECFMT, receive_queue }.encode();
    let made = Device::accept(*incoming, &room(&request), &terms);
    if let Some(acceptor) = &shared.rdma {
        acceptor.waiting.fetch_sub(1, Ordering::Relaxed);
    }
    match (made, mailboxes.get(on_loop)) {
        (Ok(device), Some(mailbox)) => {
            let device = Box::new(device);
            mailbox.post(Message::ConnectedRdma { device, request, peer, node }, true);
            return;
        }
        (Err(Error::Closed), _) => tracing::debug!(%peer, "gave up before it was let in over RDMA"),
        (Err(error), _) => tracing::warn!(%peer, %error, "a connection over RDMA is refused"),
        (Ok(_), None) => {}
    }
    forget(shared, on_loop, &request);
}

/// A connection that does not come to be counts no more.
pub(crate) fn forget(shared: &Shared, on_loop: usize, request: &Request) {
    if let Some(load) = shared.loads.get(on_loop) {
        load.fetch_sub(1, Ordering::Relaxed);
    }
    if !request.is_admin() {
        shared.release_capsules();
    }
}

/// What a queue needs: a receive for each command that the host may send, and a send for each
/// response.
fn room(request: &Request) -> Room {
    let data_bytes = if request.is_admin() { ConnectData::BYTES } else { RDMA_CAPSULE_DATA_BYTES as usize };
    Room {
        receives: request.commands() + SPARE_RECEIVES,
        receive_bytes: u32::try_from(Sqe::BYTES + data_bytes).unwrap_or(u32::MAX),
        sends: request.commands(),
        send_bytes: Cqe::BYTES as u32,
        pool_bytes_max: if request.is_admin() { ADMIN_POOL_BYTES } else { IO_POOL_BYTES },
    }
}
