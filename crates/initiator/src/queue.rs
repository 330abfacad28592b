//! One connection, which is one queue: what carries it, its protocol machine, and the payload of
//! commands.

mod rdma;
mod tcp;

use crate::error::Lost;
use nvme::host::{HostData, HostMisuse};
use nvme::pdu::Digests;
use nvme::{Address, Cqe, Sqe, Transport};
use rdma::RdmaQueue;
use std::sync::Arc;
use tcp::TcpQueue;
use transport::poll::Poller;

/// The largest transfer that a connection takes.
const TRANSFER_BYTES_MAX: u32 = 2 << 20;

/// Memory to send from.
#[derive(Debug, Clone)]
pub(crate) struct Slice {
    pub(crate) memory: Arc<Vec<u8>>,
    pub(crate) start: usize,
    pub(crate) bytes: usize,
}

impl Slice {
    fn part(&self, start: usize, bytes: usize) -> Self {
        let start_max = self.bytes.min(start);
        Self {
            memory: Arc::clone(&self.memory),
            start: self.start + start_max,
            bytes: bytes.min(self.bytes - start_max),
        }
    }

    fn bytes(&self) -> &[u8] {
        self.memory.get(self.start..self.start + self.bytes).unwrap_or_default()
    }
}

/// The data of a command.
#[derive(Debug, Clone)]
pub(crate) enum Payload {
    None,
    Send(Slice),
    /// This many bytes are received, into what [`Memory::room`] says.
    Receive(u32),
}

impl Payload {
    /// As the protocol machines know it.
    fn data(&self) -> HostData {
        match self {
            Self::Send(slice) if slice.bytes > 0 => {
                HostData::ToController(u32::try_from(slice.bytes).unwrap_or(u32::MAX))
            }
            Self::Receive(bytes) if *bytes > 0 => HostData::FromController(*bytes),
            _ => HostData::None,
        }
    }
}

/// Where received data of commands belong.
pub(crate) trait Memory {
    /// The room of the command with this tag.
    fn room(&mut self, tag: u64) -> Option<&mut [u8]>;
}

/// What has happened on a queue.
#[derive(Debug)]
pub(crate) enum Event {
    /// It takes commands.
    Ready,
    /// A command ended.
    Completed { tag: u64, cqe: Cqe },
}

/// A queue that is to be connected.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    pub(crate) address: Address,
    pub(crate) qid: u16,
    pub(crate) entries: u16,
    /// Over TCP. RDMA devices check what they carry.
    pub(crate) digests: Digests,
}

#[derive(Debug)]
pub(crate) enum Queue {
    Tcp(Box<TcpQueue>),
    Rdma(Box<RdmaQueue>),
}

/// Does the same on either.
macro_rules! on {
    ($queue:expr, $one:ident => $what:expr) => {
        match $queue {
            Self::Tcp($one) => $what,
            Self::Rdma($one) => $what,
        }
    };
}

impl Queue {
    /// Begins to connect.
    pub(crate) fn connect(settings: &Settings) -> Result<Self, Lost> {
        let Settings { address, qid, entries, digests } = *settings;
        match address.transport {
            Transport::Tcp => {
                let queue = TcpQueue::connect(address.socket, digests, entries, TRANSFER_BYTES_MAX);
                Ok(Self::Tcp(Box::new(queue.map_err(Lost::Connect)?)))
            }
            Transport::Rdma => Ok(Self::Rdma(Box::new(RdmaQueue::connect(address.socket, qid, entries)?))),
        }
    }

    /// Lets a poller wait for it.
    pub(crate) fn register(&self, poller: &Poller, token: u64) -> Result<(), Lost> {
        on!(self, queue => queue.register(poller, token)).map_err(Lost::Socket)
    }

    /// Tells the poller what is waited for now; to be called after all else.
    pub(crate) fn watch(&mut self, poller: &Poller, token: u64) -> Result<(), Lost> {
        on!(self, queue => queue.watch(poller, token)).map_err(Lost::Socket)
    }

    pub(crate) const fn set_capsule_data_bytes(&mut self, bytes: u32) {
        on!(self, queue => queue.set_capsule_data_bytes(bytes));
    }

    /// The number of commands that may be submitted now.
    pub(crate) fn room(&self) -> usize {
        on!(self, queue => queue.room())
    }

    /// Whether another command may be submitted so that the queue can still be asked whether it
    /// lives. One with a single place is not asked.
    pub(crate) fn has_room(&self) -> bool {
        let room = self.room();
        room > 1 || (room == 1 && self.outstanding() == 0)
    }

    /// The number of commands that were not completed.
    pub(crate) fn outstanding(&self) -> usize {
        on!(self, queue => queue.outstanding())
    }

    /// Ends the connection so that nothing of it is delivered any more.
    pub(crate) fn reset(self, poller: &Poller) {
        match self {
            Self::Tcp(queue) => queue.reset(),
            Self::Rdma(queue) => queue.reset(poller),
        }
    }

    /// The tags of the commands that were not completed.
    pub(crate) fn tags(&self) -> Vec<u64> {
        on!(self, queue => queue.tags().collect())
    }

    /// Queues a command; [`Queue::send`] sends it.
    pub(crate) fn submit(&mut self, sqe: &Sqe, tag: u64, payload: Payload) -> Result<(), HostMisuse> {
        on!(self, queue => queue.submit(sqe, tag, payload))
    }

    /// Sends what is queued, as far as there is room.
    pub(crate) fn send(&mut self) -> Result<(), Lost> {
        on!(self, queue => queue.send())
    }

    /// There is room to send.
    pub(crate) fn handle_writable(&mut self) -> Result<(), Lost> {
        match self {
            Self::Tcp(queue) => queue.handle_writable(),
            // Its device reports everything as readable.
            Self::Rdma(_) => Ok(()),
        }
    }

    /// Receives what is there. Returns whether anything was.
    pub(crate) fn receive(
        &mut self,
        memory: &mut dyn Memory,
        scratch: &mut [u8],
        events: &mut Vec<Event>,
    ) -> Result<bool, Lost> {
        match self {
            Self::Tcp(queue) => queue.receive(memory, scratch, events),
            Self::Rdma(queue) => queue.receive(memory, events),
        }
    }
}
