//! A queue over RDMA: capsules are messages, and a command names memory of the connection that the
//! controller reads or writes. Data are copied between there and the memory of requests.

use super::{Event, Memory, Payload, Slice};
use crate::error::Lost;
use nvme::host::{HostData, HostMisuse};
use nvme::rdma::{Accept, HostMemory, HostPlace, HostQueue, RECFMT, Reject, RejectStatus, Request};
use nvme::{Cqe, Sqe};
use std::collections::VecDeque;
use std::net::SocketAddr;
use transport::poll::Poller;
use transport::rdma::{Access, Buffer, Error, Heard, Lender, Room};

/// The most data in a capsule of an I/O queue: those of a 4 KiB write need no RDMA READ.
const CAPSULE_DATA_BYTES: u32 = 4096;

/// Memory of a connection for data of commands. Further commands wait for it.
const ADMIN_POOL_BYTES: usize = 1 << 20;
const IO_POOL_BYTES: usize = 32 << 20;

#[derive(Debug)]
struct Command {
    tag: u64,
    payload: Payload,
    /// The memory that the controller uses.
    buffer: Option<Buffer>,
}

#[derive(Debug)]
pub(crate) struct RdmaQueue {
    lender: Lender,
    /// With the commands that were sent.
    machine: HostQueue<Command>,
    is_ready: bool,
    entries: u16,
    capsule_data_bytes_max: u32,
    /// Commands that were not sent, in the order in which they are.
    waiting: VecDeque<(Sqe, u64, Payload)>,
}

impl RdmaQueue {
    /// Begins to connect.
    pub(crate) fn connect(address: SocketAddr, qid: u16, entries: u16) -> Result<Self, Lost> {
        let is_admin = qid == 0;
        let capsule_data_bytes_max = if is_admin { 0 } else { CAPSULE_DATA_BYTES };
        let room = Room {
            receives: entries.into(),
            receive_bytes: Cqe::BYTES as u32,
            sends: entries.into(),
            send_bytes: Sqe::BYTES as u32 + capsule_data_bytes_max,
            pool_bytes_max: if is_admin { ADMIN_POOL_BYTES } else { IO_POOL_BYTES },
        };
        let send_queue = entries.saturating_sub(1);
        let request = Request { recfmt: RECFMT, qid, receive_queue: entries, send_queue, cntlid: 0 };
        let lender = Lender::connect(address, &room, &request.encode()).map_err(Lost::Rdma)?;
        Ok(Self {
            lender,
            machine: HostQueue::new(entries),
            is_ready: false,
            entries,
            capsule_data_bytes_max,
            waiting: VecDeque::new(),
        })
    }

    pub(crate) fn register(&self, poller: &Poller, token: u64) -> std::io::Result<()> {
        self.lender.register(poller, token)
    }

    pub(crate) fn watch(&mut self, poller: &Poller, token: u64) -> std::io::Result<()> {
        self.lender.watch(poller, token)
    }

    pub(crate) const fn set_capsule_data_bytes(&mut self, bytes: u32) {
        let most = self.capsule_data_bytes_max;
        self.machine.set_capsule_data_bytes(if bytes < most { bytes } else { most });
    }

    pub(crate) fn room(&self) -> usize {
        let most = if self.is_ready { usize::from(self.entries).saturating_sub(1) } else { 0 };
        most.saturating_sub(self.outstanding())
    }

    pub(crate) fn outstanding(&self) -> usize {
        self.machine.len() + self.waiting.len()
    }

    /// What the connection holds is freed on a thread of its own: the system takes long for that.
    pub(crate) fn reset(self, poller: &Poller) {
        let remains = self.lender.end(poller);
        let builder = std::thread::Builder::new().name("initiator-rdma".to_owned());
        // Without a thread it was freed here.
        let _ = builder.spawn(move || drop(remains));
    }

    pub(crate) fn tags(&self) -> impl Iterator<Item = u64> + '_ {
        let sent = self.machine.outstanding().map(|command| command.tag);
        sent.chain(self.waiting.iter().map(|(_, tag, _)| *tag))
    }

    pub(crate) fn submit(&mut self, sqe: &Sqe, tag: u64, payload: Payload) -> Result<(), HostMisuse> {
        if !self.is_ready {
            return Err(HostMisuse::NotReady);
        }
        if self.room() == 0 {
            return Err(HostMisuse::Full);
        }
        // What needs no memory does not wait for it.
        match payload.data() {
            HostData::None => self.waiting.push_front((*sqe, tag, payload)),
            _ => self.waiting.push_back((*sqe, tag, payload)),
        }
        Ok(())
    }

    pub(crate) fn send(&mut self) -> Result<(), Lost> {
        while let Some((sqe, tag, payload)) = self.waiting.pop_front() {
            if let Some(payload) = self.begin(&sqe, tag, payload)? {
                self.waiting.push_front((sqe, tag, payload));
                break;
            }
        }
        Ok(())
    }

    /// Sends a command; gives its payload back if there is no memory for it now.
    fn begin(&mut self, sqe: &Sqe, tag: u64, payload: Payload) -> Result<Option<Payload>, Lost> {
        let data = payload.data();
        let (place, buffer) = match data {
            HostData::None => (HostPlace::None, None),
            HostData::ToController(bytes) if self.machine.is_in_capsule(data) => {
                (HostPlace::InCapsule(bytes), None)
            }
            HostData::ToController(bytes) | HostData::FromController(bytes) => {
                let is_read = matches!(data, HostData::FromController(_));
                let access = if is_read { Access::RemoteWrite } else { Access::RemoteRead };
                let buffer = self.lender.buffer(bytes as usize, access).map_err(Lost::Rdma)?;
                let Some(buffer) = buffer else { return Ok(Some(payload)) };
                let (address, key) = (buffer.region().address(), buffer.region().remote_key());
                (HostPlace::Memory(HostMemory { address, bytes, key, invalidate: false }), Some(buffer))
            }
        };
        let sent = match &payload {
            Payload::Send(slice) => Some(slice.clone()),
            Payload::None | Payload::Receive(_) => None,
        };
        let sent = sent.as_ref().map(Slice::bytes).unwrap_or_default();
        let in_capsule = match &buffer {
            Some(buffer) => {
                buffer.write(0, sent).map_err(Lost::Rdma)?;
                &[]
            }
            None => sent,
        };
        let command = Command { tag, payload, buffer };
        let sqe = self.machine.submit(sqe, place, command).map_err(|_| Lost::Misuse)?;
        self.lender.send(&[&sqe.encode(), in_capsule]).map_err(Lost::Rdma)?;
        Ok(None)
    }

    pub(crate) fn receive(&mut self, memory: &mut dyn Memory, events: &mut Vec<Event>) -> Result<bool, Lost> {
        self.lender.wake();
        let mut any = false;
        // No more than the queue has entries: nothing is sent meanwhile.
        loop {
            match self.lender.poll() {
                Ok(Some(Heard::Connected)) => self.connected(events),
                Ok(Some(Heard::Message)) => self.answered(memory, events)?,
                Ok(None) => return Ok(any),
                Err(error) => return Err(self.why(error)),
            }
            any = true;
        }
    }

    fn connected(&mut self, events: &mut Vec<Event>) {
        // Some targets take fewer commands at a time than they were asked for.
        if let Ok(Accept { receive_queue: most @ 2.., .. }) = Accept::decode(self.lender.peer_data()) {
            self.entries = self.entries.min(most);
        }
        self.is_ready = true;
        events.push(Event::Ready);
    }

    fn answered(&mut self, memory: &mut dyn Memory, events: &mut Vec<Event>) -> Result<(), Lost> {
        let (cqe, command) = self.machine.handle_response(self.lender.message()).map_err(Lost::Response)?;
        let Command { tag, payload, buffer } = command;
        if let (Payload::Receive(bytes), Some(buffer), true) = (payload, buffer, cqe.status.is_success())
            && let Some(room) = memory.room(tag).and_then(|room| room.get_mut(..bytes as usize))
        {
            buffer.read(0, room).map_err(Lost::Rdma)?;
        }
        events.push(Event::Completed { tag, cqe });
        Ok(())
    }

    /// A target that refuses says why.
    fn why(&self, error: Error) -> Lost {
        match error {
            Error::Closed => Lost::Closed,
            Error::Verbs(_) if !self.is_ready => match Reject::decode(self.lender.peer_data()) {
                // Padding is no reason: something else listens there.
                Ok(Reject { recfmt: RECFMT, status }) if status != RejectStatus(0) => Lost::Rejected(status),
                _ => Lost::Rdma(error),
            },
            _ => Lost::Rdma(error),
        }
    }
}
