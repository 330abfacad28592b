//! What carries a connection: a TCP stream or an RDMA queue pair. Everything else of a connection
//! is the same over both.

use super::rdma::RdmaLink;
use crate::inbound::{Data, Inbound};
use crate::outbound::{Flushed, Outbound};
use memory::Buffer;
use nvme::digest::Digest;
use nvme::tcp::{Progress, Settings, TargetConnection, ToHost};
use nvme::{Cqe, Transport};
use rustix::net::Shutdown;
use smallvec::SmallVec;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};
use transport::rdma;
use volumes::{Payload, Segment};

/// See the module's documentation.
#[derive(Debug)]
pub(crate) enum Link {
    Tcp(Box<Stream>),
    Rdma(Box<RdmaLink>),
}

/// A TCP connection.
#[derive(Debug)]
pub(crate) struct Stream {
    /// `None` once it is closed.
    pub(super) socket: Option<OwnedFd>,
    pub(super) machine: TargetConnection,
    pub(super) inbound: Inbound,
    pub(super) outbound: Outbound,
}

impl Stream {
    /// A part of the data that were asked for under a tag is in their memory.
    pub(super) fn handle_data<'a>(
        &mut self,
        tag: u16,
        part: impl Iterator<Item = &'a [u8]>,
        data: &Data,
    ) -> Progress {
        let computed = digest_of(&self.machine, part);
        self.machine.handle_data(tag, computed, data.received_digest(), &mut self.outbound.heads)
    }
}

/// How sending ended.
pub(super) enum Sending {
    Flushed(Flushed),
    Failed(std::io::Error),
    Broke(rdma::Error),
}

impl Stream {
    pub(crate) fn new(socket: OwnedFd, now: Duration, settings: Settings) -> Self {
        Self {
            socket: Some(socket),
            machine: TargetConnection::new(now, settings),
            inbound: Inbound::new(),
            outbound: Outbound::default(),
        }
    }

    fn answer(&mut self, cqe: &Cqe, data: &[u8]) {
        let mut to_host = ToHost::new(cqe.cid, u32::try_from(data.len()).unwrap_or(u32::MAX));
        let sent = self.machine.send_data(&mut to_host, u32::MAX, cqe, &mut self.outbound.heads);
        self.outbound.heads.extend_from_slice(data);
        if sent.digest {
            self.outbound.heads.extend_from_slice(&nvme::digest::of(data).to_bytes());
        }
        if sent.respond {
            self.machine.respond(cqe, &mut self.outbound.heads);
        }
    }

    fn send(&mut self, cqe: &Cqe, bytes: u32, payload: Payload, reserved: usize) {
        let mut to_host = ToHost::new(cqe.cid, bytes);
        let sent = self.machine.send_data(&mut to_host, u32::MAX, cqe, &mut self.outbound.heads);
        let digest =
            if sent.digest { digest_of(&self.machine, payload.iter().map(Segment::as_bytes)) } else { None };
        self.outbound.push(payload, digest.map(Digest::to_bytes), reserved);
        if sent.respond {
            self.machine.respond(cqe, &mut self.outbound.heads);
        }
    }

    fn flush(&mut self, now: Instant, lingers: bool, freed: &mut usize) -> Sending {
        let Some(socket) = &self.socket else { return Sending::Flushed(Flushed::All) };
        let flushed = match self.outbound.flush(socket.as_fd(), now, freed) {
            Ok(flushed) => flushed,
            Err(error) => return Sending::Failed(error),
        };
        // The last words are with the system. The host closes when it has read them; a close of
        // ours would lose them if it has sent something that was not received.
        if flushed == Flushed::All && lingers && rustix::net::shutdown(socket, Shutdown::Write).is_err() {
            self.socket = None;
        }
        Sending::Flushed(flushed)
    }

    fn close(&mut self) -> usize {
        if let Some(socket) = self.socket.take() {
            // A connection that is gone already needs no reset.
            let _ = transport::socket::reset_on_close(socket.as_fd());
        }
        self.outbound.clear()
    }
}

impl Link {
    pub(super) const fn transport(&self) -> Transport {
        match self {
            Self::Tcp(_) => Transport::Tcp,
            Self::Rdma(_) => Transport::Rdma,
        }
    }

    /// The socket of a TCP connection that is not closed.
    pub(super) fn socket(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Tcp(stream) => stream.socket.as_ref().map(AsFd::as_fd),
            Self::Rdma(_) => None,
        }
    }

    /// Whether nothing is sent or received any more.
    pub(super) const fn is_closed(&self) -> bool {
        match self {
            Self::Tcp(stream) => stream.socket.is_none(),
            Self::Rdma(link) => link.is_closed(),
        }
    }

    /// Whether nothing that it has begun can have an effect any more, here or in the host's memory,
    /// once it ends. What was received over TCP is in nobody else's hands.
    pub(super) const fn is_released(&self) -> bool {
        match self {
            Self::Tcp(_) => true,
            Self::Rdma(link) => link.is_released(),
        }
    }

    pub(super) fn has_output(&self) -> bool {
        match self {
            Self::Tcp(stream) => stream.socket.is_some() && !stream.outbound.is_empty(),
            Self::Rdma(link) => !link.is_closed(),
        }
    }

    /// Responses that the host has not read, in bytes. Over RDMA it can send no further commands
    /// then.
    pub(super) const fn unread_bytes(&self) -> usize {
        match self {
            Self::Tcp(stream) => stream.outbound.head_bytes(),
            Self::Rdma(_) => 0,
        }
    }

    /// Answers a command.
    pub(super) fn respond(&mut self, cqe: &Cqe) {
        match self {
            Self::Tcp(stream) => stream.machine.respond(cqe, &mut stream.outbound.heads),
            Self::Rdma(link) => link.respond(cqe),
        }
    }

    /// Answers Connect: the connection is a queue.
    pub(super) fn accept(&mut self, is_admin: bool, flow_control: bool, cqe: &Cqe) {
        match self {
            Self::Tcp(stream) => {
                stream.machine.accept(is_admin, flow_control, cqe, &mut stream.outbound.heads);
            }
            Self::Rdma(link) => link.accept(cqe),
        }
    }

    /// Answers an admin command with its data, if it has any.
    pub(super) fn answer(&mut self, cqe: &Cqe, data: &[u8]) {
        match self {
            _ if data.is_empty() => self.respond(cqe),
            Self::Tcp(stream) => stream.answer(cqe, data),
            Self::Rdma(link) => link.answer(cqe, data),
        }
    }

    /// A command ends without an answer.
    pub(super) fn forget(&mut self, cid: u16) {
        if let Self::Rdma(link) = self {
            link.forget(cid);
        }
    }

    /// Answers a command with data from where the volume has them; memory is given back when they
    /// are sent.
    pub(super) fn send(&mut self, cqe: &Cqe, bytes: u32, payload: Payload, reserved: usize) {
        match self {
            Self::Tcp(stream) => stream.send(cqe, bytes, payload, reserved),
            Self::Rdma(link) => link.send(cqe, payload, reserved),
        }
    }

    /// Asks for the data of an I/O command. Buffers that a device fills are taken until it has.
    pub(super) fn ask(&mut self, tag: u16, cid: u16, bytes: u32, buffers: &mut SmallVec<[Buffer; 1]>) {
        match self {
            Self::Tcp(stream) => stream.machine.ask(tag, cid, bytes, &mut stream.outbound.heads),
            Self::Rdma(link) => link.fetch_buffers(tag, cid, std::mem::take(buffers)),
        }
    }

    /// Asks for the data of an admin command. Memory that a device fills is taken until it has.
    pub(super) fn ask_for_admin(&mut self, tag: u16, cid: u16, bytes: u32, memory: &mut Vec<u8>) {
        match self {
            Self::Tcp(stream) => stream.machine.ask(tag, cid, bytes, &mut stream.outbound.heads),
            Self::Rdma(link) => link.fetch_bytes(tag, cid, std::mem::take(memory)),
        }
    }

    /// Sends what is queued. One that lingers and has nothing more to say says so to the host.
    pub(super) fn flush(&mut self, now: Instant, lingers: bool, freed: &mut usize) -> Sending {
        match self {
            Self::Tcp(stream) => stream.flush(now, lingers, freed),
            Self::Rdma(link) => match link.flush(now, lingers) {
                Ok(()) => Sending::Flushed(Flushed::All),
                Err(error) => Sending::Broke(error),
            },
        }
    }

    /// Nothing is received any more; what was received in part is dropped.
    pub(super) fn stop_receiving(&mut self) {
        if let Self::Tcp(stream) = self {
            stream.inbound = Inbound::new();
        }
    }

    /// Closes it; nothing that is queued is delivered. Returns memory that is free with it.
    pub(super) fn close(&mut self) -> usize {
        match self {
            Self::Tcp(stream) => stream.close(),
            Self::Rdma(link) => {
                link.close();
                0
            }
        }
    }

    /// Whether the host has waited too long with its Connect.
    pub(super) fn handle_timeout(&mut self, now: Duration) -> bool {
        match self {
            Self::Tcp(stream) => stream.machine.handle_timeout(now),
            Self::Rdma(link) => link.handle_timeout(now),
        }
    }

    /// Since when the host has not taken what is first, or not sent the rest of something.
    pub(super) fn waits_since(&self) -> [Option<Instant>; 2] {
        match self {
            Self::Tcp(stream) => [stream.outbound.since(), stream.inbound.since],
            Self::Rdma(link) => [link.since(), None],
        }
    }

    /// Whether the peer is still connected, as far as the system knows now.
    pub(super) fn is_established(&self) -> bool {
        match self {
            Self::Tcp(stream) => stream.socket.as_ref().is_some_and(|fd| {
                transport::socket::tcp_info(fd.as_fd()).is_ok_and(|info| info.is_established)
            }),
            Self::Rdma(link) => link.is_established(),
        }
    }
}

/// The digest of data in pieces, if the connection has digests.
pub(super) fn digest_of<'a>(
    machine: &TargetConnection,
    pieces: impl Iterator<Item = &'a [u8]>,
) -> Option<Digest> {
    machine.digests().data.then(|| {
        let mut digest = Digest::new();
        pieces.for_each(|piece| digest.update(piece));
        digest
    })
}
