//! The client's end of an RDMA connection: connects, frames calls, and receives replies. RFC 8166
//!
//! Nothing blocks: the endpoint's descriptors are in the owner's poller under one token, and
//! [`Requester::advance`] handles their events. Calls wait here, unframed, until a credit and
//! registered memory are free, so what a connection holds is bounded by its credits.
//!
//! Payload is copied through the endpoint's pool. The caller's own memory is never registered with
//! a device, and a dead connection can write only into its own pool, which is freed after its queue
//! pair: so a buffer may be returned to its owner at any time, and a call may move to another path
//! as soon as its connection is dropped.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

use rpcrdma::client::{Call, CallError, Client, CloseReason, Forms, Message, Output, Sizes};
use rpcrdma::header::{Chunk, Segment};
use verbs::Access;

use super::{Buffer, Counters, Endpoint, Error, Event, Offer, Options, SIGNALLED_EACH};
use crate::poll::{Interest, Poller};
use crate::{Address, Place, ReceiveBuffer, Received, Sink, Slices, SlicesMut, Source};

/// Maximum number of calls of one connection in flight. A server may grant fewer.
const CREDITS: u32 = 32;
/// Message size of a connection used only for probes: the smallest that a peer must accept. RFC
/// 8166 s3.3.2
const ASKING_BYTES: u32 = 1024;
/// Maximum size of a connection's registered memory for payload. Calls without room wait until
/// others return it.
const POOL_BYTES_MAX: usize = 64 << 20;

/// The options of a client's endpoint, which reads and writes no memory of the server.
fn options(credits: u32) -> Options {
    // A reply may be received before the device reports that the call has arrived, so more messages
    // are in flight than there are credits.
    let sends = (2 * credits).max(to_u32(SIGNALLED_EACH) + 1);
    Options {
        receives: credits,
        work: sends,
        sends,
        reads_made: 0,
        pool_bytes_max: POOL_BYTES_MAX,
        ..Options::default()
    }
}

/// What a call expects in reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expect {
    /// Maximum size of the directly placed payload.
    pub lands: u32,
    /// Maximum size of the reply without that payload.
    pub reply_max: u32,
}

/// A call that is not framed yet.
#[derive(Debug)]
struct Queued<K> {
    xid: u32,
    head: Vec<u8>,
    payload: K,
    payload_len: u32,
    expect: Expect,
}

/// Memory that a call in flight has offered to the server.
#[derive(Debug, Default)]
struct Offered {
    /// Memory that the server reads: the message, the payload.
    sources: [Option<Buffer>; 2],
    receive_buffer: Option<Buffer>,
    reply: Option<Buffer>,
}

/// See the module's documentation. `K` names a payload, as [`Source`] knows it.
#[derive(Debug)]
pub struct Requester<K> {
    /// First, so that the endpoint and its queue pair are dropped first.
    endpoint: Endpoint<()>,
    /// Maximum number of calls in flight.
    credits: u32,
    /// `None` until connected.
    client: Option<Client>,
    /// By xid.
    offered: HashMap<u32, Offered>,
    waiting: VecDeque<Queued<K>>,
    /// Calls that the server refused, until they are taken.
    refused: Vec<(u32, CallError)>,
    inbox: Vec<u8>,
    /// The poller waits for its completions.
    on_device: bool,
}

impl<K> Requester<K> {
    /// Starts to connect. The poller reports when to call [`Requester::advance`].
    ///
    /// # Errors
    /// Missing requirements of this machine, as far as they are known at once.
    pub fn connect(
        poller: &Poller,
        token: u64,
        local: Option<Address>,
        remote: SocketAddr,
    ) -> Result<Self, Error> {
        Self::with(poller, token, (local, remote), CREDITS, options(CREDITS))
    }

    /// Like [`Requester::connect`], but for one short call at a time, with hardly any memory: to
    /// see whether the server answers.
    ///
    /// # Errors
    /// As for [`Requester::connect`].
    pub fn connect_to_ask(
        poller: &Poller,
        token: u64,
        local: Option<Address>,
        remote: SocketAddr,
    ) -> Result<Self, Error> {
        let offer = Offer { send_bytes: ASKING_BYTES, receive_bytes: ASKING_BYTES, ..Offer::default() };
        Self::with(poller, token, (local, remote), 1, Options { offer, ..options(1) })
    }

    fn with(
        poller: &Poller,
        token: u64,
        (local, remote): (Option<Address>, SocketAddr),
        credits: u32,
        options: Options,
    ) -> Result<Self, Error> {
        let local = local.map(|address| address.with_port(0));
        let endpoint = Endpoint::connect(local, remote, &options)?;
        poller.add(endpoint.fds().0, token, Interest::READ)?;
        Ok(Self {
            endpoint,
            credits,
            client: None,
            offered: HashMap::new(),
            waiting: VecDeque::new(),
            refused: Vec::new(),
            inbox: Vec::new(),
            on_device: false,
        })
    }

    /// Whether the requester is connected.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.client.is_some()
    }

    /// A number that changes whenever the peer's device has completed something.
    #[must_use]
    pub const fn progress(&self) -> u64 {
        self.endpoint.counters().completions
    }

    /// The counters of the endpoint.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.endpoint.counters()
    }

    /// Takes the calls that the server refused since the last time, with their xids.
    pub fn take_refused(&mut self) -> Vec<(u32, CallError)> {
        std::mem::take(&mut self.refused)
    }

    /// Queues a call: the bytes that `head` appends, then the payload. [`Requester::flush`] sends
    /// it.
    pub fn push(
        &mut self,
        xid: u32,
        payload: K,
        payload_len: usize,
        expect: Expect,
        head: impl FnOnce(&mut Vec<u8>),
    ) {
        let mut bytes = Vec::new();
        head(&mut bytes);
        // One call moves at most 1 MiB.
        let payload_len = u32::try_from(payload_len).unwrap_or(u32::MAX);
        self.waiting.push_back(Queued { xid, head: bytes, payload, payload_len, expect });
    }

    /// Sends queued calls, as far as the server's credits and registered memory allow.
    ///
    /// # Errors
    /// The connection is finished.
    pub fn flush(&mut self, source: &impl Source<K>) -> Result<(), Error> {
        let Some(client) = &mut self.client else { return Ok(()) };
        while let Some(call) = self.waiting.front() {
            if client.in_flight().0 >= to_usize(client.credits()) {
                return Ok(());
            }
            let mut payload = Slices::new();
            source.slices(&call.payload, &mut payload);
            if payload.iter().map(|piece| piece.len()).sum::<usize>() != to_usize(call.payload_len) {
                // The missing bytes would be sent with the previous contents of the memory.
                return Err(Error::Misuse("the payload of a call is not as long as it said"));
            }
            let Some((framed, offered)) = frame(&self.endpoint, client, call, &payload)? else {
                return Ok(());
            };
            self.offered.insert(call.xid, offered);
            client.call(framed)?;
            while let Some(output) = client.poll_output() {
                if let Output::Send { bytes, payload: inline, .. } = output {
                    // With a completion of its own: the arrival of the call is a sign of life.
                    send(&mut self.endpoint, &bytes, inline.map(|(_, padding)| (&payload, padding)))?;
                }
            }
            drop(payload);
            self.waiting.pop_front();
        }
        Ok(())
    }

    /// Handles events: replies are passed to the sink, payload to the receive buffers of the sink.
    ///
    /// # Errors
    /// Why the connection could not be established, or has ended.
    pub fn advance<S: Sink>(&mut self, poller: &Poller, token: u64, sink: &mut S) -> Result<Received, Error> {
        let mut received = Received::default();
        self.endpoint.wake();
        while sink.wants_more() {
            let event = self.endpoint.poll(&mut self.inbox)?;
            if let (false, Some(completions)) = (self.on_device, self.endpoint.fds().1) {
                poller.add(completions, token, Interest::READ)?;
                self.on_device = true;
            }
            match event {
                None => break,
                Some(Event::Done(())) => {}
                Some(Event::Connected(agreed)) => {
                    self.client = Some(Client::new(agreed, self.credits));
                    self.carry_out(sink, &mut received)?;
                }
                Some(Event::Received) => {
                    received.bytes += self.inbox.len();
                    if let Some(client) = &mut self.client {
                        client.handle_receive(&self.inbox);
                    }
                    self.carry_out(sink, &mut received)?;
                }
            }
        }
        Ok(received)
    }

    /// Carries out the outputs of the state machine.
    fn carry_out<S: Sink>(&mut self, sink: &mut S, received: &mut Received) -> Result<(), Error> {
        while let Some(output) = self.client.as_mut().and_then(Client::poll_output) {
            match output {
                Output::PostReceives(count) => self.endpoint.post_receives(count)?,
                Output::Reply { xid, message, landed } => {
                    received.bytes += to_usize(landed);
                    self.deliver(xid, &message, landed, sink)?;
                }
                Output::Failed { xid, error } => {
                    self.offered.remove(&xid);
                    self.refused.push((xid, error));
                }
                Output::Close(reason) => return Err(reason.into()),
                // Calls are passed to the state machine only when they can be sent at once, and the
                // client serves no program to which a server could call back.
                Output::Send { .. } | Output::Reverse(_) => {}
            }
        }
        Ok(())
    }

    /// Hands over a reply and frees the memory that the call had offered.
    fn deliver<S: Sink>(
        &mut self,
        xid: u32,
        message: &Message,
        landed: u32,
        sink: &mut S,
    ) -> Result<(), Error> {
        let Some(offered) = self.offered.remove(&xid) else { return Ok(()) };
        let mut long = Vec::new();
        let head = match message {
            Message::Received(range) => self.inbox.get(range.clone()).unwrap_or_default(),
            Message::InChunk(bytes) => {
                long.resize(to_usize(*bytes), 0);
                if let Some(buffer) = &offered.reply {
                    buffer.read(0, &mut long)?;
                }
                // As with inline replies, a reply with another xid matches no call. RFC 8166 s4.2.1
                if long.first_chunk().copied().map(u32::from_be_bytes) != Some(xid) {
                    return Err(CloseReason::Protocol.into());
                }
                &long
            }
        };
        match offered.receive_buffer.as_ref().filter(|_| landed > 0) {
            None => sink.record(head),
            Some(buffer) => land(head, buffer, to_usize(landed), sink)?,
        }
        Ok(())
    }
}

/// Offers memory for a call; `None` if there is none.
fn frame<K>(
    endpoint: &Endpoint<()>,
    client: &Client,
    call: &Queued<K>,
    payload: &Slices<'_>,
) -> Result<Option<(Call, Offered)>, Error> {
    let payload_len = (call.payload_len > 0).then_some(call.payload_len);
    let Expect { lands, reply_max } = call.expect;
    let forms = client.forms(&Sizes {
        message: call.head.len(),
        payload: payload_len,
        lands: lands > 0,
        reply_max,
        segments: 1,
    });
    let Some(offered) = offer(endpoint, forms, call)? else { return Ok(None) };
    let [message, data] = &offered.sources;
    if let Some(message) = message {
        message.write(0, &call.head)?;
    }
    if let Some(data) = data {
        let mut at = 0;
        for piece in payload {
            data.write(at, piece)?;
            at += piece.len();
        }
    }
    let chunk = |buffer: &Option<Buffer>, bytes: u32| buffer.as_ref().map(|buffer| segment(buffer, bytes));
    let framed = Call {
        xid: call.xid,
        message: call.head.clone(),
        message_chunk: chunk(message, u32::try_from(call.head.len()).unwrap_or(u32::MAX)),
        payload: payload_len.map(|bytes| (bytes, chunk(data, bytes))),
        receive_buffer: chunk(&offered.receive_buffer, lands),
        reply_chunk: chunk(&offered.reply, reply_max),
    };
    Ok(Some((framed, offered)))
}

/// Allocates the memory for a call; `None` if some of it must be returned first.
fn offer<K>(endpoint: &Endpoint<()>, forms: Forms, call: &Queued<K>) -> Result<Option<Offered>, Error> {
    let Expect { lands, reply_max } = call.expect;
    let mut offered = Offered::default();
    let [message, data] = &mut offered.sources;
    let wanted = [
        (forms.message_chunk, call.head.len(), Access::RemoteRead, message),
        (forms.payload_chunk, to_usize(call.payload_len), Access::RemoteRead, data),
        (lands > 0, to_usize(lands), Access::RemoteWrite, &mut offered.receive_buffer),
        (forms.reply_chunk, to_usize(reply_max), Access::RemoteWrite, &mut offered.reply),
    ];
    for (needed, bytes, access, place) in wanted {
        if needed {
            *place = endpoint.buffer(bytes, access)?;
            if place.is_none() {
                return Ok(None);
            }
        }
    }
    Ok(Some(offered))
}

/// Sends a message, followed by the payload and its padding if that is inline.
fn send(
    endpoint: &mut Endpoint<()>,
    bytes: &[u8],
    payload: Option<(&Slices<'_>, usize)>,
) -> Result<(), Error> {
    let mut pieces = vec![bytes];
    if let Some((payload, padding)) = payload {
        pieces.extend(payload.iter().map(|piece| &**piece));
        pieces.push(&[0; 3][..padding.min(3)]);
    }
    endpoint.send(&pieces, None, Some(()))
}

/// Copies directly placed payload to where the sink wants it.
fn land<S: Sink>(head: &[u8], region: &Buffer, landed: usize, sink: &mut S) -> Result<(), Error> {
    let padding = landed.wrapping_neg() % 4;
    let length = head.len() + landed + padding;
    match sink.place(head, length) {
        Some(Place { at, len, mut receive_buffer }) if at == head.len() && len == landed => {
            let mut pieces = SlicesMut::new();
            receive_buffer.unfilled(0, &mut pieces);
            let mut from = 0;
            for piece in &mut pieces {
                region.read(from, piece)?;
                from += piece.len();
            }
            drop(pieces);
            sink.received(head, receive_buffer, &[]);
        }
        place => {
            // A reply whose length differs from the bytes placed: as on a stream, the reply's own
            // length counts.
            let mut record = head.to_vec();
            record.resize(length, 0);
            if let Some(payload) = record.get_mut(head.len()..head.len() + landed) {
                region.read(0, payload)?;
            }
            match place {
                None => sink.record(&record),
                Some(Place { at, len, mut receive_buffer }) => {
                    let mut from = at;
                    let mut pieces = SlicesMut::new();
                    receive_buffer.unfilled(0, &mut pieces);
                    for piece in &mut pieces {
                        if let Some(bytes) = record.get(from..from + piece.len()) {
                            piece.copy_from_slice(bytes);
                        }
                        from += piece.len();
                    }
                    drop(pieces);
                    sink.received(
                        record.get(..at).unwrap_or_default(),
                        receive_buffer,
                        record.get(at + len..).unwrap_or_default(),
                    );
                }
            }
        }
    }
    Ok(())
}

fn segment(buffer: &Buffer, bytes: u32) -> Chunk {
    let region = buffer.region();
    Chunk::from_slice(&[Segment { handle: region.remote_key(), length: bytes, offset: region.address() }])
}

fn to_u32(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn to_usize(bytes: u32) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
