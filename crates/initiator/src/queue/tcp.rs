//! A queue over TCP: a socket and its protocol machine.
//!
//! Payload to send is shared with the request and gathered into the send; payload that is received
//! goes to the request's own memory, from the socket directly where it is long.

use super::{Event, Memory, Payload, Slice};
use crate::error::Lost;
use nvme::digest::{self, DIGEST_BYTES};
use nvme::host::{ENTRIES_MAX, HostMisuse};
use nvme::pdu::{Digests, HEADER_BYTES_MIN, Layout};
use nvme::tcp::{HostConnection, HostReceived, HostSettings};
use nvme::{Cqe, Sqe};
use std::collections::VecDeque;
use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use transport::poll::{Interest, Poller};
use transport::socket;

/// Data shorter than this are copied from the scratch memory.
const DIRECT_BYTES_MIN: usize = 16 << 10;

/// What is received into scratch memory where data that go to their place may follow: enough for
/// the headers before and after them.
const BESIDE_DATA_BYTES: usize = 2 << 10;

/// How often one call receives, so that other queues have their turn.
const RECEIVES_MAX: usize = 32;

/// Pieces of one gathered send.
const PIECES_MAX: usize = 64;

#[derive(Debug)]
enum Piece {
    Head(Vec<u8>),
    Payload(Slice),
}

impl Piece {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Head(bytes) => bytes,
            Self::Payload(slice) => slice.bytes(),
        }
    }
}

#[derive(Debug)]
struct Command {
    tag: u64,
    payload: Payload,
}

impl Command {
    /// Whether data are received that go to their place without a copy.
    const fn is_long_read(&self) -> bool {
        matches!(self.payload, Payload::Receive(bytes) if bytes as usize >= DIRECT_BYTES_MIN)
    }
}

/// Data that are being received.
#[derive(Debug)]
struct Data {
    /// The command, its tag, and where the data begin; `None` for data that are dropped.
    place: Option<(u16, u64, usize)>,
    bytes: usize,
    filled: usize,
    trailer: Vec<u8>,
    trailer_bytes: usize,
}

#[derive(Debug)]
pub(crate) struct TcpQueue {
    stream: TcpStream,
    /// What the poller waits for.
    interest: Interest,
    machine: HostConnection,
    is_connected: bool,
    is_ready: bool,
    commands: Vec<Option<Command>>,
    outstanding: usize,
    /// Those of them whose data go to their place.
    long_reads: usize,
    entries: u16,
    pieces: VecDeque<Piece>,
    /// How much of the first piece was sent.
    sent: usize,
    head: Vec<u8>,
    layout: Option<Layout>,
    data: Option<Data>,
}

impl TcpQueue {
    /// Begins to connect.
    pub(crate) fn connect(
        address: SocketAddr,
        digests: Digests,
        entries: u16,
        transfer_bytes: u32,
    ) -> std::io::Result<Self> {
        let stream = TcpStream::from(socket::connect_start(None, address)?);
        let mut head = Vec::new();
        let entries = entries.clamp(2, ENTRIES_MAX);
        let machine = HostConnection::new(HostSettings { digests, entries, transfer_bytes }, &mut head);
        Ok(Self {
            stream,
            interest: Interest::BOTH,
            machine,
            is_connected: false,
            is_ready: false,
            commands: (0..entries).map(|_| None).collect(),
            outstanding: 0,
            long_reads: 0,
            entries,
            pieces: VecDeque::from([Piece::Head(head)]),
            sent: 0,
            head: Vec::new(),
            layout: None,
            data: None,
        })
    }

    pub(crate) fn register(&self, poller: &Poller, token: u64) -> std::io::Result<()> {
        poller.add(self.stream.as_fd(), token, self.interest)
    }

    /// Lets the poller wait for room if there is something to send.
    pub(crate) fn watch(&mut self, poller: &Poller, token: u64) -> std::io::Result<()> {
        let interest = if self.pieces.is_empty() { Interest::READ } else { Interest::BOTH };
        if interest != self.interest {
            self.interest = interest;
            poller.modify(self.stream.as_fd(), token, interest)?;
        }
        Ok(())
    }

    pub(crate) const fn set_capsule_data_bytes(&mut self, bytes: u32) {
        self.machine.set_capsule_data_bytes(bytes);
    }

    /// The number of commands that may be submitted now.
    pub(crate) fn room(&self) -> usize {
        let most = if self.is_ready { usize::from(self.entries).saturating_sub(1) } else { 0 };
        most.saturating_sub(self.outstanding)
    }

    /// The number of commands that were not completed.
    pub(crate) const fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// Ends the connection so that nothing of it is delivered any more.
    pub(crate) fn reset(self) {
        // The socket closes in any case; then its end is less certain to come first.
        let _ = socket::reset_on_close(self.stream.as_fd());
    }

    /// The tags of the commands that were not completed.
    pub(crate) fn tags(&self) -> impl Iterator<Item = u64> + '_ {
        self.commands.iter().flatten().map(|command| command.tag)
    }

    fn head_piece(&mut self) -> Vec<u8> {
        match self.pieces.pop_back() {
            // What was sent in part keeps its place.
            Some(Piece::Head(head)) => head,
            Some(other) => {
                self.pieces.push_back(other);
                Vec::new()
            }
            None => Vec::new(),
        }
    }

    /// Queues a command; [`Queue::send`] sends it.
    pub(crate) fn submit(&mut self, sqe: &Sqe, tag: u64, payload: Payload) -> Result<(), HostMisuse> {
        let data = payload.data();
        let mut head = self.head_piece();
        let submitted = self.machine.submit(sqe, data, &mut head);
        self.pieces.push_back(Piece::Head(head));
        let submitted = submitted?;
        if let (Payload::Send(slice), 1..) = (&payload, submitted.in_capsule) {
            let part = slice.part(0, submitted.in_capsule as usize);
            self.push_payload(part, submitted.digest);
        }
        let at = usize::from(submitted.cid & (ENTRIES_MAX - 1));
        if let Some(place) = self.commands.get_mut(at) {
            self.outstanding += 1;
            let command = Command { tag, payload };
            self.long_reads += usize::from(command.is_long_read());
            *place = Some(command);
        }
        Ok(())
    }

    fn push_payload(&mut self, part: Slice, with_digest: bool) {
        let digest = with_digest.then(|| digest::of(part.bytes()).to_bytes().to_vec());
        self.pieces.push_back(Piece::Payload(part));
        self.pieces.extend(digest.map(Piece::Head));
    }

    /// Sends what is queued, as far as the socket takes it.
    pub(crate) fn send(&mut self) -> Result<(), Lost> {
        if !self.is_connected {
            return Ok(());
        }
        while !self.pieces.is_empty() {
            let mut skip = self.sent;
            let slices: Vec<IoSlice<'_>> = self
                .pieces
                .iter()
                .take(PIECES_MAX)
                .map(|piece| IoSlice::new(piece.bytes().get(std::mem::take(&mut skip)..).unwrap_or_default()))
                .collect();
            match self.stream.write_vectored(&slices) {
                Ok(0) if slices.iter().any(|slice| !slice.is_empty()) => return Err(Lost::Closed),
                Ok(bytes) => self.advance(bytes),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Lost::Socket(error)),
            }
        }
        Ok(())
    }

    fn advance(&mut self, bytes: usize) {
        self.sent += bytes;
        while let Some(first) = self.pieces.front().map(|piece| piece.bytes().len()) {
            if self.sent < first {
                return;
            }
            self.sent -= first;
            self.pieces.pop_front();
        }
    }

    /// The socket is writable.
    pub(crate) fn handle_writable(&mut self) -> Result<(), Lost> {
        if !self.is_connected {
            socket::connect_result(self.stream.as_fd()).map_err(Lost::Connect)?;
            self.is_connected = true;
        }
        self.send()
    }

    /// Receives what is there. Returns whether anything was.
    pub(crate) fn receive(
        &mut self,
        memory: &mut dyn Memory,
        scratch: &mut [u8],
        events: &mut Vec<Event>,
    ) -> Result<bool, Lost> {
        let mut any = false;
        for _ in 0..RECEIVES_MAX {
            let direct = self.data.as_ref().filter(|data| data.bytes - data.filled >= DIRECT_BYTES_MIN);
            let place = direct.and_then(|data| data.place.map(|(_, tag, start)| (tag, start + data.filled)));
            let missing = direct.map_or(0, |data| data.bytes - data.filled);
            let room = place.and_then(|(tag, at)| memory.room(tag)?.get_mut(at..at + missing));
            let room = room.unwrap_or_default();
            let direct = room.len();
            let beside = if self.long_reads > 0 { BESIDE_DATA_BYTES } else { scratch.len() };
            let beside = scratch.get_mut(..beside).unwrap_or_default();
            let wanted = direct + beside.len();
            let mut slices = [IoSliceMut::new(room), IoSliceMut::new(beside)];
            // An empty piece is none.
            let slices = if direct > 0 { &mut slices[..] } else { &mut slices[1..] };
            match self.stream.read_vectored(slices) {
                Ok(0) => return Err(Lost::Closed),
                Ok(bytes) => {
                    any = true;
                    let placed = bytes.min(direct);
                    if placed > 0 {
                        self.data.iter_mut().for_each(|data| data.filled += placed);
                        self.finish_data(memory, events);
                    }
                    self.take(scratch.get(..bytes - placed).unwrap_or_default(), memory, events)?;
                    if bytes < wanted {
                        // There was no more. What has come meanwhile is the next event.
                        return Ok(any);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(any),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Lost::Socket(error)),
            }
        }
        Ok(any)
    }

    fn take(
        &mut self,
        mut bytes: &[u8],
        memory: &mut dyn Memory,
        events: &mut Vec<Event>,
    ) -> Result<(), Lost> {
        while !bytes.is_empty() {
            bytes = if self.data.is_some() {
                self.take_data(bytes, memory, events)
            } else {
                self.take_head(bytes, events)?
            };
        }
        Ok(())
    }

    fn take_head<'a>(&mut self, bytes: &'a [u8], events: &mut Vec<Event>) -> Result<&'a [u8], Lost> {
        let wanted = self.layout.map_or(HEADER_BYTES_MIN, |layout| layout.data_offset.into());
        let (now, rest) = bytes.split_at(bytes.len().min(wanted.saturating_sub(self.head.len())));
        self.head.extend_from_slice(now);
        if self.head.len() < wanted {
            return Ok(rest);
        }
        let Some(layout) = self.layout else {
            let first = self.head.first_chunk().copied().unwrap_or_default();
            let layout = self.machine.layout(&first).map_err(Lost::Malformed)?;
            self.layout = Some(layout);
            return Ok(rest);
        };
        self.layout = None;
        let head = std::mem::take(&mut self.head);
        let header = head.get(..layout.header_bytes()).unwrap_or_default();
        let received = self.machine.handle_header(&layout, header).map_err(Lost::Malformed)?;
        let place = self.act(received, events)?;
        if layout.data_bytes > 0 {
            let trailer_bytes = if layout.has_data_digest { DIGEST_BYTES } else { 0 };
            let bytes = layout.data_bytes as usize;
            self.data = Some(Data { place, bytes, filled: 0, trailer: Vec::new(), trailer_bytes });
        }
        self.head = head;
        self.head.clear();
        Ok(rest)
    }

    fn act(
        &mut self,
        received: HostReceived,
        events: &mut Vec<Event>,
    ) -> Result<Option<(u16, u64, usize)>, Lost> {
        match received {
            HostReceived::Ready => {
                self.is_ready = true;
                events.push(Event::Ready);
            }
            HostReceived::Data { cid, offset, .. } => {
                let tag = self.command(cid).map(|command| command.tag);
                return Ok(tag.map(|tag| (cid, tag, offset as usize)));
            }
            HostReceived::Asked { cid } => self.send_asked(cid),
            HostReceived::Completed(cqe) => self.complete(cqe, events),
            HostReceived::Terminated(term) => return Err(Lost::Terminated(term.error)),
        }
        Ok(None)
    }

    fn command(&self, cid: u16) -> Option<&Command> {
        self.commands.get(usize::from(cid & (ENTRIES_MAX - 1)))?.as_ref()
    }

    fn send_asked(&mut self, cid: u16) {
        let Some(Command { payload: Payload::Send(slice), .. }) = self.command(cid) else { return };
        let slice = slice.clone();
        loop {
            let mut head = self.head_piece();
            let sent = self.machine.send_data(cid, &mut head);
            self.pieces.push_back(Piece::Head(head));
            let Some(sent) = sent else { return };
            self.push_payload(slice.part(sent.offset as usize, sent.length as usize), sent.digest);
        }
    }

    fn complete(&mut self, cqe: Cqe, events: &mut Vec<Event>) {
        let place = self.commands.get_mut(usize::from(cqe.cid & (ENTRIES_MAX - 1)));
        if let Some(command) = place.and_then(Option::take) {
            self.outstanding -= 1;
            self.long_reads -= usize::from(command.is_long_read());
            events.push(Event::Completed { tag: command.tag, cqe });
        }
    }

    fn take_data<'a>(
        &mut self,
        bytes: &'a [u8],
        memory: &mut dyn Memory,
        events: &mut Vec<Event>,
    ) -> &'a [u8] {
        let Some(data) = &mut self.data else { return bytes };
        let (now, rest) = bytes.split_at(bytes.len().min(data.bytes - data.filled));
        if let Some((_, tag, start)) = data.place {
            let at = start + data.filled;
            let room = memory.room(tag).and_then(|room| room.get_mut(at..at + now.len()));
            if let Some(room) = room {
                room.copy_from_slice(now);
            }
        }
        data.filled += now.len();
        let missing = if data.filled == data.bytes { data.trailer_bytes - data.trailer.len() } else { 0 };
        let (trailer, rest) = rest.split_at(rest.len().min(missing));
        data.trailer.extend_from_slice(trailer);
        self.finish_data(memory, events);
        rest
    }

    fn finish_data(&mut self, memory: &mut dyn Memory, events: &mut Vec<Event>) {
        let whole = |data: &mut Data| data.filled == data.bytes && data.trailer.len() == data.trailer_bytes;
        let Some(data) = self.data.take_if(whole) else { return };
        let Some((cid, tag, start)) = data.place else { return };
        let computed = (data.trailer_bytes > 0).then(|| {
            let room = memory.room(tag).and_then(|room| room.get(start..start + data.bytes));
            digest::of(room.unwrap_or_default())
        });
        if let Some(cqe) = self.machine.handle_data(cid, computed, &data.trailer) {
            self.complete(cqe, events);
        }
    }
}
