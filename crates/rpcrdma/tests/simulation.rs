//! Simulates both state machines in a network with a virtual clock: thousands of calls of every
//! form, memory that checks each access, and connections that break. What arrives must be what was
//! sent, and no credit and no memory may be lost.
//!
//! The last seed that is printed is the one that failed; pass it to `run` to repeat the failure.

use rpcrdma::client::{Call, CallError, Client, Message as ReplyMessage, Output as ClientOutput, Sizes};
use rpcrdma::connect::{Agreed, INLINE_BYTES_DEFAULT, Offer};
use rpcrdma::header::{Chunk, Segment};
use rpcrdma::server::{Limits, Message, Output as ServerOutput, ReadInto, RequestId, Server, Source};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

const CALLS: u32 = 60;
const SEEDS: u64 = 150;

/// A small random number generator, the same on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)) % bound
    }

    fn length(&mut self, most: u64) -> usize {
        usize::try_from(self.below(most)).expect("small")
    }
}

/// Bytes that identify their call and their purpose.
fn stamp(xid: u32, salt: u32, length: usize) -> Vec<u8> {
    let word = |at: usize| (at as u32).wrapping_mul(31).wrapping_add(xid * 7 + salt);
    (0..length).map(|at| word(at).to_be_bytes()[3]).collect()
}

/// The sizes of a call and its reply, written in its message, so that the server can answer the
/// call.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Wish {
    xid: u32,
    message: usize,
    payload: Option<u32>,
    reply: usize,
    result: Option<u32>,
}

impl Wish {
    fn random(xid: u32, random: &mut Random) -> Self {
        let long = |random: &mut Random| if random.below(5) == 0 { 3000 } else { 100 };
        let (message, reply) = (long(random), long(random));
        let payload = (random.below(3) == 0).then(|| random.below(9000) as u32);
        let result = (random.below(3) == 0).then(|| random.below(9000) as u32);
        Self {
            xid,
            message: 32 + random.length(message) / 4 * 4,
            payload,
            reply: 24 + random.length(reply) / 4 * 4,
            result,
        }
    }

    fn call(&self) -> Vec<u8> {
        let absent = u32::MAX;
        let words = [
            self.xid,
            0,
            self.reply as u32,
            self.result.unwrap_or(absent),
            self.payload.unwrap_or(absent),
            self.message as u32,
        ];
        let mut message: Vec<u8> = words.into_iter().flat_map(u32::to_be_bytes).collect();
        message.extend(stamp(self.xid, 1, self.message - message.len()));
        message
    }

    fn of_call(message: &[u8]) -> Self {
        let word =
            |at: usize| u32::from_be_bytes(message[at * 4..at * 4 + 4].try_into().expect("four bytes"));
        let option = |word: u32| (word != u32::MAX).then_some(word);
        let wish = Self {
            xid: word(0),
            message: word(5) as usize,
            payload: option(word(4)),
            reply: word(2) as usize,
            result: option(word(3)),
        };
        assert_eq!(message[..wish.message], wish.call(), "the message is complete");
        wish
    }

    fn answer(&self) -> Vec<u8> {
        let mut message = [self.xid.to_be_bytes(), 1_u32.to_be_bytes()].concat();
        message.extend(stamp(self.xid, 2, self.reply - 8));
        message
    }
}

/// The registered memory of the client. An access after its release makes the test fail.
#[derive(Default)]
struct Memory {
    regions: BTreeMap<u32, Vec<u8>>,
    next: u32,
}

impl Memory {
    /// Registers content in up to two segments of odd sizes.
    fn register(&mut self, content: &[u8], random: &mut Random) -> Chunk {
        let mut chunk = Chunk::new();
        let mut rest = content;
        while !rest.is_empty() && chunk.len() < 2 {
            let take = if chunk.len() == 1 { rest.len() } else { 1 + random.length(rest.len() as u64) };
            let (here, after) = rest.split_at(take);
            self.next += 1;
            self.regions.insert(self.next, here.to_vec());
            chunk.push(Segment { handle: self.next, length: take as u32, offset: 0x1000 });
            rest = after;
        }
        chunk
    }

    fn place(&mut self, segment: &Segment) -> &mut [u8] {
        let region = self.regions.get_mut(&segment.handle).expect("only registered memory is used");
        let start = (segment.offset - 0x1000) as usize;
        &mut region[start..start + segment.length as usize]
    }

    /// Withdraws the memory of a chunk from the server.
    fn release(&mut self, chunk: &Chunk) -> Vec<u8> {
        chunk
            .iter()
            .flat_map(|segment| self.regions.remove(&segment.handle).expect("the chunk was registered"))
            .collect()
    }
}

/// A message or completion in flight.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    ToServer(Vec<u8>),
    ToClient(Vec<u8>),
    ReadDone(RequestId),
    Answer(RequestId, Vec<u8>, Option<u32>),
}

struct Registered {
    wish: Wish,
    chunks: [Option<Chunk>; 4],
}

struct Network {
    random: Random,
    now: u64,
    count: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    /// The time of the last event in each direction: a queue pair preserves the order.
    last: [u64; 2],
    client: Client,
    server: Server,
    memory: Memory,
    calls: BTreeMap<u32, Registered>,
    /// What the server has read for each request: message and payload.
    read: BTreeMap<RequestId, [Vec<u8>; 2]>,
    /// The call of each request that the server is answering.
    xid_of: BTreeMap<RequestId, u32>,
    /// Posted receives, of the server and of the client.
    receives: [i64; 2],
    done: u32,
    failed: u32,
}

impl Network {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let sizes = [INLINE_BYTES_DEFAULT, 2048, 4096];
        let offer = |random: &mut Random| Offer {
            send_bytes: sizes[random.length(3)],
            receive_bytes: sizes[random.length(3)],
            invalidation: false,
        };
        let (ours, theirs) = (offer(&mut random), offer(&mut random));
        let agreed: Agreed = ours.agree(&theirs);
        let limits = Limits { credits: 1 + random.below(8) as u32, payload_bytes: 16384 };
        let client = Client::new(agreed, 1 + random.below(12) as u32);
        let server = Server::new(theirs.agree(&ours), limits);
        let (events, memory, calls, read, xid_of) = Default::default();
        let mut network = Self {
            random,
            now: 0,
            count: 0,
            events,
            last: [0; 2],
            client,
            server,
            memory,
            calls,
            read,
            xid_of,
            receives: [0; 2],
            done: 0,
            failed: 0,
        };
        network.drain(&[]);
        network
    }

    /// Schedules an event. Events with the `way` 0 or 1 keep their order; those with 2 do not.
    fn after_a_while(&mut self, way: usize, event: Event) {
        let mut at = self.now + 1 + self.random.below(50);
        if let Some(last) = self.last.get_mut(way) {
            at = at.max(*last);
            *last = at;
        }
        self.count += 1;
        self.events.push(Reverse((at, self.count, event)));
    }

    fn make_call(&mut self, xid: u32) {
        let wish = Wish::random(xid, &mut self.random);
        let lands = wish.result.is_some() && self.random.below(4) > 0;
        let result_inline = if lands { 0 } else { wish.result.unwrap_or(0).next_multiple_of(4) };
        let reply_max = wish.reply as u32 + result_inline;
        let sizes = Sizes { message: wish.message, payload: wish.payload, lands, reply_max, segments: 2 };
        let forms = self.client.forms(&sizes);
        let message = wish.call();
        let payload = wish.payload.map(|bytes| stamp(xid, 3, bytes as usize));
        let register = |memory: &mut Memory, random: &mut Random, wanted: bool, content: &[u8]| {
            wanted.then(|| memory.register(content, random))
        };
        let (memory, random) = (&mut self.memory, &mut self.random);
        let message_chunk = register(memory, random, forms.message_chunk, &message);
        let payload_chunk =
            register(memory, random, forms.payload_chunk, payload.as_deref().unwrap_or_default());
        let receive_buffer = register(memory, random, lands, &vec![0; wish.result.unwrap_or(0) as usize + 5]);
        let reply_chunk = register(memory, random, forms.reply_chunk, &vec![0; reply_max as usize]);
        let call = Call {
            xid,
            message,
            message_chunk: message_chunk.clone(),
            payload: wish.payload.map(|bytes| (bytes, payload_chunk.clone())),
            receive_buffer: receive_buffer.clone(),
            reply_chunk: reply_chunk.clone(),
        };
        self.calls.insert(
            xid,
            Registered { wish, chunks: [message_chunk, payload_chunk, receive_buffer, reply_chunk] },
        );
        self.client.call(call).expect("what `forms` asked for fits");
        self.drain(&[]);
    }

    fn drain(&mut self, received: &[u8]) {
        while let Some(output) = self.client.poll_output() {
            self.do_for_client(output, received);
        }
        while let Some(output) = self.server.poll_output() {
            self.do_for_server(output, received);
        }
    }

    /// Processes the next event; false when nothing is in flight.
    fn step(&mut self) -> bool {
        let Some(Reverse((at, _, event))) = self.events.pop() else { return false };
        self.now = at;
        match event {
            Event::ToServer(bytes) => {
                self.receives[0] -= 1;
                assert!(self.receives[0] >= 0, "the server has a receive posted for each call");
                self.server.handle_receive(&bytes);
                self.drain(&bytes);
            }
            Event::ToClient(bytes) => {
                self.receives[1] -= 1;
                assert!(self.receives[1] >= 0, "the client has a receive posted for each reply");
                self.client.handle_receive(&bytes);
                self.drain(&bytes);
            }
            Event::ReadDone(request) => {
                self.server.handle_read_done(request);
                self.drain(&[]);
            }
            Event::Answer(request, message, result) => {
                self.server.reply(request, message, result);
                self.drain(&[]);
            }
        }
        true
    }

    fn do_for_client(&mut self, output: ClientOutput, received: &[u8]) {
        match output {
            ClientOutput::PostReceives(count) => self.receives[1] += i64::from(count),
            ClientOutput::Send { xid, mut bytes, payload } => {
                if let Some((length, padding)) = payload {
                    bytes.extend(stamp(xid, 3, length as usize));
                    bytes.resize(bytes.len() + padding, 0);
                }
                self.after_a_while(0, Event::ToServer(bytes));
            }
            ClientOutput::Reply { xid, message, landed } => {
                let Registered { wish, chunks } = self.calls.remove(&xid).expect("answered once");
                let [call, payload, receive_buffer, reply] = chunks;
                let _ =
                    [call, payload].into_iter().flatten().map(|chunk| self.memory.release(&chunk)).count();
                let in_chunk = reply.map(|chunk| self.memory.release(&chunk));
                let bytes = match message {
                    ReplyMessage::Received(range) => received[range].to_vec(),
                    ReplyMessage::InChunk(length) => {
                        in_chunk.expect("the chunk was offered")[..length as usize].to_vec()
                    }
                };
                let receive_buffer = receive_buffer.map(|chunk| self.memory.release(&chunk));
                self.compare(&wish, &bytes, receive_buffer.as_deref(), landed as usize);
                self.done += 1;
            }
            ClientOutput::Failed { xid, error } => {
                assert_eq!(error, CallError::Disconnected);
                let Registered { chunks, .. } = self.calls.remove(&xid).expect("failed once");
                let _ = chunks.into_iter().flatten().map(|chunk| self.memory.release(&chunk)).count();
                self.failed += 1;
            }
            ClientOutput::Reverse(_) | ClientOutput::Close(_) => panic!("{output:?}"),
        }
    }

    /// Compares a reply with what the server sent.
    fn compare(&self, wish: &Wish, message: &[u8], receive_buffer: Option<&[u8]>, landed: usize) {
        assert_eq!(message[..wish.reply], wish.answer());
        let result = wish.result.map(|length| stamp(wish.xid, 4, length as usize)).unwrap_or_default();
        match receive_buffer {
            Some(receive_buffer) => {
                assert_eq!(
                    (landed, &receive_buffer[..landed], message.len()),
                    (result.len(), &result[..], wish.reply)
                );
                assert!(
                    receive_buffer[landed..].iter().all(|byte| *byte == 0),
                    "nothing is written after the result"
                );
            }
            None => assert_eq!(message[wish.reply..wish.reply + result.len()], result),
        }
    }

    fn do_for_server(&mut self, output: ServerOutput, received: &[u8]) {
        match output {
            ServerOutput::PostReceives(count) => self.receives[0] += i64::from(count),
            ServerOutput::Read { request, into, chunk } => {
                let bytes: Vec<u8> =
                    chunk.iter().flat_map(|segment| self.memory.place(segment).to_vec()).collect();
                let slot = usize::from(into == ReadInto::Payload);
                self.read.entry(request).or_default()[slot] = bytes;
                self.after_a_while(2, Event::ReadDone(request));
            }
            ServerOutput::Call { request, message, payload, .. } => {
                let [long, chunked] = self.read.remove(&request).unwrap_or_default();
                let bytes = match message {
                    Message::Received(range) => received[range].to_vec(),
                    Message::Buffered(bytes) => bytes,
                    Message::Read(length) => long[..length as usize].to_vec(),
                };
                let wish = Wish::of_call(&bytes);
                self.xid_of.insert(request, wish.xid);
                if let Some(length) = wish.payload {
                    let expected = stamp(wish.xid, 3, length as usize);
                    match payload {
                        Some(payload) => {
                            assert_eq!((payload.position as usize, payload.bytes), (wish.message, length));
                            assert_eq!(chunked, expected);
                        }
                        None => assert_eq!(bytes[wish.message..wish.message + length as usize], expected),
                    }
                }
                self.after_a_while(2, Event::Answer(request, wish.answer(), wish.result));
            }
            ServerOutput::Write { message, pieces, request } => {
                for piece in pieces {
                    let (start, length) = (piece.start as usize, piece.to.length as usize);
                    let xid = self.xid_of[&request];
                    let bytes = match piece.source {
                        Source::Message => message[start..start + length].to_vec(),
                        Source::Payload => stamp(xid, 4, start + length)[start..].to_vec(),
                        Source::Padding => vec![0; length],
                    };
                    self.memory.place(&piece.to).copy_from_slice(&bytes);
                }
            }
            ServerOutput::Send { request, mut bytes, payload, invalidate } => {
                assert_eq!(invalidate, None);
                if let Some((length, padding)) = payload {
                    let xid = self.xid_of[&request.expect("an answer to a call")];
                    bytes.extend(stamp(xid, 4, length as usize));
                    bytes.resize(bytes.len() + padding, 0);
                }
                self.after_a_while(1, Event::ToClient(bytes));
            }
            ServerOutput::Reverse(_) | ServerOutput::ReverseRefused(_) | ServerOutput::Close(_) => {
                panic!("{output:?}")
            }
        }
    }
}

fn run(seed: u64, breaks: bool) {
    println!("seed {seed}");
    let mut network = Network::new(seed);
    let mut made = 0;
    let break_at = if breaks { Some(u64::from(CALLS) + network.random.below(800)) } else { None };
    loop {
        if made < CALLS && network.random.below(3) == 0 {
            made += 1;
            network.make_call(made);
        } else if !network.step() && made == CALLS {
            break;
        }
        if break_at.is_some_and(|at| network.count > at) {
            network.client.handle_disconnected();
            network.drain(&[]);
            break;
        }
    }
    assert_eq!(network.done + network.failed, made, "each call ends once");
    assert!(breaks || network.failed == 0);
    assert!(network.memory.regions.is_empty(), "no registration is lost");
    if network.events.is_empty() {
        let (outstanding, waiting) = network.client.in_flight();
        assert_eq!((outstanding, waiting, network.server.outstanding()), (0, 0, 0));
    }
}

#[test]
fn calls_of_every_form_arrive_complete_and_nothing_is_lost() {
    (0..SEEDS).for_each(|seed| run(seed, false));
}

#[test]
fn a_connection_that_breaks_ends_every_call_once() {
    (0..SEEDS).for_each(|seed| run(seed, true));
}
