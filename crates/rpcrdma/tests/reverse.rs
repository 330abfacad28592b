//! Calls in both directions on one connection, with a virtual clock and the same xids in both. RFC
//! 8167 s4, s5

use rpcrdma::client::{self, Call, Client, Message};
use rpcrdma::connect::Agreed;
use rpcrdma::header::{Body, Chunks, Header, HeaderError, ReadSegment, Segment};
use rpcrdma::reverse::Misuse;
use rpcrdma::server::{self, Limits, Server};
use std::collections::{BTreeMap, VecDeque};
use xdr::{Reader, Writer};

const AGREED: Agreed = Agreed { send_bytes: 1024, receive_bytes: 1024, may_invalidate: false };
const CALL: u32 = 0;
const REPLY: u32 = 1;
const SEEDS: u64 = 100;
/// Calls in each direction.
const CALLS: u32 = 80;

fn message(xid: u32, kind: u32, says: u32) -> Vec<u8> {
    [xid, kind, says].into_iter().flat_map(u32::to_be_bytes).collect()
}

fn words(message: &[u8]) -> [u32; 3] {
    [0, 4, 8].map(|at| u32::from_be_bytes(message[at..at + 4].try_into().expect("four bytes")))
}

fn random(state: &mut u64, below: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % below
}

/// Both ends and what is under way between them.
struct Network {
    state: u64,
    client: Client,
    server: Server,
    to_server: VecDeque<Vec<u8>>,
    to_client: VecDeque<Vec<u8>>,
    /// Receives that are posted: the server's, the client's.
    receives: [i64; 2],
    /// Calls that the owner of each end has not answered yet.
    at_server: Vec<(server::RequestId, u32)>,
    at_client: Vec<u32>,
    /// Replies by xid, in each direction.
    forward: BTreeMap<u32, u32>,
    reverse: BTreeMap<u32, u32>,
    granted: usize,
    /// Whether the client answers no calls.
    is_silent: bool,
}

impl Network {
    fn new(seed: u64) -> Self {
        let mut state = seed;
        let mut credits = || 1 + u32::try_from(random(&mut state, 6)).expect("small");
        let mut client = Client::new(AGREED, credits());
        let mut server = Server::new(AGREED, Limits { credits: credits(), payload_bytes: 4096 });
        let (granted, wanted) = (credits(), credits());
        client.grant_calls(granted);
        server.allow_calls(wanted);
        let granted = usize::try_from(granted.min(wanted)).expect("small");
        let (to_server, to_client, at_server, at_client, forward, reverse) = Default::default();
        let receives = [0; 2];
        Self {
            state,
            client,
            server,
            to_server,
            to_client,
            receives,
            at_server,
            at_client,
            forward,
            reverse,
            granted,
            is_silent: false,
        }
    }

    fn drain(&mut self, received: &[u8]) {
        while let Some(output) = self.client.poll_output() {
            match output {
                client::Output::PostReceives(count) => self.receives[1] += i64::from(count),
                client::Output::Send { bytes, payload: None, .. } => self.to_server.push_back(bytes),
                client::Output::Reply { xid, message: Message::Received(range), landed: 0 } => {
                    let [_, kind, says] = words(&received[range]);
                    assert_eq!((kind, self.forward.insert(xid, says)), (REPLY, None));
                }
                client::Output::Reverse(range) => {
                    let [xid, kind, says] = words(&received[range]);
                    assert_eq!((kind, says), (CALL, !xid));
                    self.at_client.push(xid);
                    assert!(self.at_client.len() <= self.granted, "more calls than were granted");
                }
                other => panic!("{other:?}"),
            }
        }
        while let Some(output) = self.server.poll_output() {
            match output {
                server::Output::PostReceives(count) => self.receives[0] += i64::from(count),
                server::Output::Send { bytes, payload: None, .. } => self.to_client.push_back(bytes),
                server::Output::Call { request, xid, message: server::Message::Received(range), .. } => {
                    assert_eq!(words(&received[range]), [xid, CALL, xid]);
                    self.at_server.push((request, xid));
                }
                server::Output::Reverse(range) => {
                    let [xid, kind, says] = words(&received[range]);
                    assert_eq!((kind, self.reverse.insert(xid, says)), (REPLY, None));
                }
                other => panic!("{other:?}"),
            }
        }
    }

    /// One thing that may happen; whether it did.
    fn step(&mut self) -> bool {
        match random(&mut self.state, 4) {
            0 => {
                let Some(bytes) = self.to_server.pop_front() else { return false };
                self.receives[0] -= 1;
                assert!(self.receives[0] >= 0, "the server has a receive for each message");
                self.server.handle_receive(&bytes);
                self.drain(&bytes);
            }
            1 => {
                let Some(bytes) = self.to_client.pop_front() else { return false };
                self.receives[1] -= 1;
                assert!(self.receives[1] >= 0, "the client has a receive for each message");
                self.client.handle_receive(&bytes);
                self.drain(&bytes);
            }
            2 if !self.at_server.is_empty() => {
                let at = random(&mut self.state, self.at_server.len() as u64) as usize;
                let (request, xid) = self.at_server.swap_remove(at);
                self.server.reply(request, message(xid, REPLY, xid + 1), None);
                self.drain(&[]);
            }
            3 if !self.at_client.is_empty() && !self.is_silent => {
                let at = random(&mut self.state, self.at_client.len() as u64) as usize;
                let xid = self.at_client.swap_remove(at);
                self.client.answer(&message(xid, REPLY, xid + 2)).expect("it was called");
                self.drain(&[]);
            }
            _ => return false,
        }
        true
    }
}

fn call(xid: u32) -> Call {
    let (message_chunk, payload, receive_buffer, reply_chunk) = Default::default();
    Call { xid, message: message(xid, CALL, xid), message_chunk, payload, receive_buffer, reply_chunk }
}

// RFC 8167 s4
#[test]
fn calls_of_both_directions_are_answered_within_the_credits_of_each() {
    for seed in 0..SEEDS {
        println!("seed {seed}");
        let mut network = Network::new(seed);
        network.drain(&[]);
        let (mut forward, mut reverse) = (0, 0);
        let all = usize::try_from(CALLS).expect("small");
        let mut steps = 0;
        while (network.forward.len(), network.reverse.len()) != (all, all) {
            steps += 1;
            assert!(steps < 1_000_000, "a call is never answered");
            match random(&mut network.state, 3) {
                0 if forward < CALLS => {
                    network.client.call(call(forward)).expect("taken");
                    forward += 1;
                }
                1 if reverse < CALLS => {
                    network.server.call(message(reverse, CALL, !reverse)).expect("taken");
                    reverse += 1;
                }
                _ => drop(network.step()),
            }
            network.drain(&[]);
        }
        assert!(network.forward.iter().all(|(xid, says)| *says == xid + 1));
        assert!(network.reverse.iter().all(|(xid, says)| *says == xid + 2));
        assert_eq!((network.client.in_flight(), network.server.outstanding()), ((0, 0), 0));
        assert_eq!(network.server.calls(), (0, 0));
    }
}

// RFC 8167 s4
#[test]
fn a_client_that_answers_no_calls_is_served_all_the_same_and_may_answer_late() {
    /// More than any client here grants.
    const CALLED: u32 = 20;
    for seed in 0..SEEDS {
        println!("seed {seed}");
        let mut network = Network::new(seed);
        network.is_silent = true;
        network.drain(&[]);
        for xid in 0..CALLED {
            network.server.call(message(xid, CALL, !xid)).expect("taken");
        }
        let (mut forward, mut steps) = (0, 0);
        while network.forward.len() < usize::try_from(CALLS).expect("small") {
            steps += 1;
            assert!(steps < 1_000_000, "a request is never answered");
            if forward < CALLS && random(&mut network.state, 3) == 0 {
                network.client.call(call(forward)).expect("taken");
                forward += 1;
            }
            network.step();
            network.drain(&[]);
        }
        assert!(network.reverse.is_empty());
        let (outstanding, waiting) = network.server.calls();
        assert_eq!(outstanding + waiting, usize::try_from(CALLED).expect("small"), "none is lost");
        network.is_silent = false;
        while network.reverse.len() < usize::try_from(CALLED).expect("small") {
            steps += 1;
            assert!(steps < 2_000_000, "a call is never answered");
            network.step();
            network.drain(&[]);
        }
        assert_eq!(network.server.calls(), (0, 0));
    }
}

fn sent(client: &mut Client) -> Vec<Vec<u8>> {
    let outputs = std::iter::from_fn(|| client.poll_output());
    outputs
        .filter_map(|output| match output {
            client::Output::Send { bytes, .. } => Some(bytes),
            _ => None,
        })
        .collect()
}

fn from_server(xid: u32, chunks: Chunks) -> Vec<u8> {
    let mut bytes = Vec::new();
    Header { xid, credits: 4, body: Body::Message(chunks) }.encode(&mut Writer::new(&mut bytes));
    bytes.extend(message(xid, CALL, 0));
    bytes
}

// RFC 8167 s4
#[test]
fn more_calls_than_the_client_grants_end_the_connection() {
    let mut client = Client::new(AGREED, 4);
    client.grant_calls(2);
    for xid in 0..3 {
        client.handle_receive(&from_server(xid, Chunks::default()));
    }
    let outputs: Vec<_> = std::iter::from_fn(|| client.poll_output()).collect();
    assert_eq!(outputs.last(), Some(&client::Output::Close(client::CloseReason::Protocol)));
    assert_eq!(client.answer(&message(0, REPLY, 0)), Err(Misuse::Closed));
}

// RFC 8167 s5
#[test]
fn a_call_to_the_client_that_offers_chunks_is_refused_and_the_server_learns_of_it() {
    let mut client = Client::new(AGREED, 4);
    client.grant_calls(2);
    let segment = Segment { handle: 1, length: 8, offset: 0 };
    let chunks =
        Chunks { reads: [ReadSegment { position: 8, segment }].into_iter().collect(), ..Chunks::default() };
    client.handle_receive(&from_server(7, chunks));
    let refusal = sent(&mut client).pop().expect("an answer");
    let header = Header::decode(&mut Reader::new(&refusal)).expect("a header");
    assert_eq!((header.xid, header.body), (7, Body::Error(HeaderError::Chunk)));

    let mut server = Server::new(AGREED, Limits { credits: 4, payload_bytes: 4096 });
    server.allow_calls(1);
    server.call(message(7, CALL, 0)).expect("taken");
    server.call(message(8, CALL, 0)).expect("taken");
    assert_eq!(server.calls(), (1, 1));
    server.handle_receive(&refusal);
    let outputs: Vec<_> = std::iter::from_fn(|| server.poll_output()).collect();
    assert!(outputs.contains(&server::Output::ReverseRefused(7)));
    assert_eq!(server.calls(), (1, 0), "its credit is free for the next call");
}

// RFC 8167 s5
#[test]
fn what_cannot_be_sent_in_the_other_direction_is_refused_here() {
    let mut server = Server::new(AGREED, Limits { credits: 4, payload_bytes: 4096 });
    assert_eq!(server.call(message(1, CALL, 0)), Err(Misuse::NotAllowed));
    server.allow_calls(1);
    assert_eq!(server.call(message(1, REPLY, 0)), Err(Misuse::Message));
    assert_eq!(server.call([message(1, CALL, 0), vec![0; 1024]].concat()), Err(Misuse::TooLong(1)));
    server.call(message(1, CALL, 0)).expect("taken");
    assert_eq!(server.call(message(1, CALL, 0)), Err(Misuse::Outstanding(1)));

    let mut client = Client::new(AGREED, 4);
    client.grant_calls(1);
    assert_eq!(client.answer(&message(1, REPLY, 0)), Err(Misuse::NoCall(1)));
    client.handle_receive(&from_server(1, Chunks::default()));
    let long = [message(1, REPLY, 0), vec![0; 1024]].concat();
    assert_eq!(client.answer(&long), Err(Misuse::TooLong(1)));
    assert_eq!(client.answer(&message(1, CALL, 0)), Err(Misuse::Message));
    assert_eq!(client.answer(&message(1, REPLY, 0)), Ok(()));
    assert_eq!(sent(&mut client).len(), 1);
}

#[test]
fn a_client_that_grants_no_calls_hands_them_out_and_owes_nothing() {
    let mut client = Client::new(AGREED, 4);
    for xid in [7, 7, 8] {
        client.handle_receive(&from_server(xid, Chunks::default()));
    }
    let outputs: Vec<_> = std::iter::from_fn(|| client.poll_output()).collect();
    let reverse = outputs.iter().filter(|output| matches!(output, client::Output::Reverse(_)));
    assert_eq!(reverse.count(), 3);
    assert_eq!(client.answer(&message(7, REPLY, 0)), Err(Misuse::NoCall(7)));
}
