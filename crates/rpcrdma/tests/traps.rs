//! Tests what implementations of RPC-over-RDMA got wrong; each test drives one of the state
//! machines.

use rpcrdma::client::{self, Call, CallError, Client, Misuse, Sizes};
use rpcrdma::connect::{Agreed, Offer};
use rpcrdma::header::{Body, Chunk, Chunks, Header, HeaderError, ReadSegment, Segment};
use rpcrdma::server::{self, Limits, Message, Payload, ReadInto, RequestId, Server, Source};
use xdr::{Reader, Writer};

const INLINE: u32 = 1024;
const AGREED: Agreed = Agreed { send_bytes: INLINE, receive_bytes: INLINE, may_invalidate: false };
const LIMITS: Limits = Limits { credits: 4, payload_bytes: 1 << 20 };

fn segment(handle: u32, length: u32) -> Segment {
    Segment { handle, length, offset: 0x10_0000 }
}

fn chunk(segments: &[Segment]) -> Chunk {
    segments.iter().copied().collect()
}

/// The two words of an RPC message that matter here, and some arguments.
fn rpc(xid: u32, message_type: u32, bytes: usize) -> Vec<u8> {
    let mut message = [xid.to_be_bytes(), message_type.to_be_bytes()].concat();
    message.resize(bytes, 0xab);
    message
}

fn call(xid: u32) -> Call {
    Call {
        xid,
        message: rpc(xid, 0, 60),
        message_chunk: None,
        payload: None,
        receive_buffer: None,
        reply_chunk: None,
    }
}

fn encoded(xid: u32, credits: u32, body: Body, message: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    Header { xid, credits, body }.encode(&mut Writer::new(&mut bytes));
    bytes.extend_from_slice(message);
    bytes
}

fn decoded(bytes: &[u8]) -> (Header, &[u8]) {
    let mut reader = Reader::new(bytes);
    let header = Header::decode(&mut reader).expect("a header");
    (header, reader.rest())
}

fn reply(xid: u32, credits: u32) -> Vec<u8> {
    encoded(xid, credits, Body::Message(Chunks::default()), &rpc(xid, 1, 24))
}

fn drain(client: &mut Client) -> Vec<client::Output> {
    std::iter::from_fn(|| client.poll_output())
        .filter(|output| !matches!(output, client::Output::PostReceives(_)))
        .collect()
}

fn drain_server(server: &mut Server) -> Vec<server::Output> {
    std::iter::from_fn(|| server.poll_output())
        .filter(|output| !matches!(output, server::Output::PostReceives(_)))
        .collect()
}

fn sent(outputs: &[client::Output]) -> Vec<u32> {
    let sent = |output: &client::Output| match output {
        client::Output::Send { xid, .. } => Some(*xid),
        _ => None,
    };
    outputs.iter().filter_map(sent).collect()
}

/// The first call that a server delivers.
fn handed_out(outputs: &[server::Output]) -> (RequestId, Message, Option<Payload>) {
    let mut calls = outputs.iter().filter_map(|output| match output {
        server::Output::Call { request, message, payload, .. } => Some((*request, message.clone(), *payload)),
        _ => None,
    });
    calls.next().expect("a call")
}

/// The last output of a server, which must be a send.
fn send_of(outputs: &[server::Output]) -> (Header, Vec<u8>, Option<u32>) {
    match outputs.last() {
        Some(server::Output::Send { bytes, invalidate, .. }) => {
            let (header, message) = decoded(bytes);
            (header, message.to_vec(), *invalidate)
        }
        other => panic!("no answer: {other:?}"),
    }
}

/// A server that has received these bytes, and its outputs.
fn served(bytes: &[u8]) -> (Server, Vec<server::Output>) {
    let mut server = Server::new(AGREED, LIMITS);
    server.handle_receive(bytes);
    let outputs = drain_server(&mut server);
    (server, outputs)
}

// RFC 8166 s3.3.3
#[test]
fn before_the_first_reply_one_call_is_outstanding() {
    let mut client = Client::new(AGREED, 8);
    for xid in 1..=3 {
        client.call(call(xid)).expect("taken");
    }
    assert_eq!(sent(&drain(&mut client)), [1]);
    client.handle_receive(&reply(1, 8));
    assert_eq!(sent(&drain(&mut client)), [2, 3]);
}

// RFC 8166 s3.3.1
#[test]
fn a_grant_of_0_permits_one_call() {
    let mut client = Client::new(AGREED, 8);
    for xid in 1..=3 {
        client.call(call(xid)).expect("taken");
    }
    client.handle_receive(&reply(1, 0));
    assert_eq!(client.credits(), 1);
    assert_eq!(sent(&drain(&mut client)), [1, 2], "only the next call is sent");
}

// RFC 8166 s3.3.1
#[test]
fn a_grant_above_the_posted_receives_is_limited_to_them() {
    let mut client = Client::new(AGREED, 2);
    for xid in 1..=4 {
        client.call(call(xid)).expect("taken");
    }
    client.handle_receive(&reply(1, 1_000_000));
    assert_eq!(client.credits(), 2);
    assert_eq!(sent(&drain(&mut client)), [1, 2, 3]);
}

// RFC 8166 s3.3.1
#[test]
fn a_server_grants_at_least_1_and_at_most_its_posted_receives() {
    for (asked, granted) in [(0, 1), (3, 3), (1_000_000, LIMITS.credits)] {
        let message = rpc(9, 0, 40);
        let (mut server, outputs) = served(&encoded(9, asked, Body::Message(Chunks::default()), &message));
        let (request, ..) = handed_out(&outputs);
        server.reply(request, rpc(9, 1, 24), None);
        assert_eq!(send_of(&drain_server(&mut server)).0.credits, granted);
    }
    let mut server = Server::new(AGREED, Limits { credits: 0, ..LIMITS });
    assert_eq!(server.poll_output(), Some(server::Output::PostReceives(1)));
}

#[test]
fn a_client_with_more_calls_than_granted_is_disconnected() {
    let mut server = Server::new(AGREED, LIMITS);
    for xid in 0..=LIMITS.credits {
        server.handle_receive(&encoded(xid, 4, Body::Message(Chunks::default()), &rpc(xid, 0, 40)));
    }
    let outputs = drain_server(&mut server);
    assert_eq!(outputs.last(), Some(&server::Output::Close(server::CloseReason::TooManyCalls)));
}

// RFC 8166 s3.5.3
#[test]
fn a_long_call_is_read_from_the_chunk_at_position_0() {
    let client = Client::new(AGREED, 8);
    let sizes = Sizes { message: 3000, payload: None, lands: false, reply_max: 100, segments: 1 };
    let forms = client.forms(&sizes);
    assert!(forms.message_chunk && !forms.payload_chunk && !forms.reply_chunk);

    let mut client = client;
    let long = Call {
        message: rpc(5, 0, 3000),
        message_chunk: Some(chunk(&[segment(1, 2000), segment(2, 1000)])),
        ..call(5)
    };
    client.call(long).expect("taken");
    let outputs = drain(&mut client);
    let Some(client::Output::Send { bytes, .. }) = outputs.last() else { panic!("{outputs:?}") };
    let (mut server, outputs) = served(bytes);
    let server::Output::Read { request, into: ReadInto::Message, chunk } = &outputs[0] else {
        panic!("{outputs:?}")
    };
    assert_eq!(chunk.as_slice(), [segment(1, 2000), segment(2, 1000)]);
    assert_eq!(outputs.len(), 1, "the call is not delivered before it has been read");
    server.handle_read_done(*request);
    let (_, message, payload) = handed_out(&drain_server(&mut server));
    assert_eq!((message, payload), (Message::Read(3000), None));
}

// RFC 8166 s3.4.5.2
#[test]
fn a_payload_of_odd_length_in_several_segments_may_include_its_padding() {
    for (last, bytes) in [(501, 1501), (504, 1504)] {
        let message = rpc(6, 0, 200);
        let segments = [segment(1, 1000), segment(2, last)];
        let reads = segments.map(|segment| ReadSegment { position: 200, segment });
        let chunks = Chunks { reads: reads.into_iter().collect(), ..Chunks::default() };
        let (mut server, outputs) = served(&encoded(6, 4, Body::Message(chunks), &message));
        let server::Output::Read { request, into: ReadInto::Payload, chunk } = &outputs[0] else {
            panic!("{outputs:?}")
        };
        assert_eq!(chunk.as_slice(), segments);
        let payload = Payload { position: 200, bytes };
        assert_eq!(server.awaiting(*request), Some((message.as_slice(), payload)), "known before it is read");
        server.handle_read_done(*request);
        let (_, kept, payload) = handed_out(&drain_server(&mut server));
        assert_eq!(kept, Message::Buffered(message), "the receive buffer has been returned");
        assert_eq!(server.awaiting(*request), None);
        assert_eq!(payload, Some(Payload { position: 200, bytes }));
        assert!(rpcrdma::holds(bytes, 1501));
    }
}

// RFC 8166 s3.5.3
#[test]
fn a_long_call_may_also_have_a_payload_chunk() {
    let reads = [(0, segment(1, 2000)), (2000, segment(2, 4096))];
    let reads = reads.map(|(position, segment)| ReadSegment { position, segment });
    let chunks = Chunks { reads: reads.into_iter().collect(), ..Chunks::default() };
    let (mut server, outputs) = served(&encoded(6, 4, Body::NoMessage(chunks), &[]));
    let requests: Vec<_> = outputs
        .iter()
        .filter_map(|output| match output {
            server::Output::Read { request, .. } => Some(*request),
            _ => None,
        })
        .collect();
    assert_eq!(requests.len(), 2);
    assert_eq!(server.awaiting(requests[1]), None, "its message is still to be read");
    server.handle_read_done(requests[0]);
    assert_eq!(drain_server(&mut server), [], "one read is missing");
    server.handle_read_done(requests[1]);
    let (_, message, payload) = handed_out(&drain_server(&mut server));
    assert_eq!(message, Message::Read(2000));
    assert_eq!(payload, Some(Payload { position: 2000, bytes: 4096 }));
}

// RFC 8166 s4.3.3
#[test]
fn a_reply_that_may_not_fit_gets_a_chunk_and_one_that_fits_gets_none() {
    let client = Client::new(AGREED, 8);
    let of = |reply_max, lands| {
        client.forms(&Sizes { message: 100, payload: None, lands, reply_max, segments: 2 }).reply_chunk
    };
    assert!(!of(INLINE - 28, false));
    assert!(of(INLINE - 27, false));
    // The reply's write list takes room too: two lengths and two segments.
    assert!(!of(INLINE - 28 - 40, true));
    assert!(of(INLINE - 28 - 39, true));
}

fn answered_with(
    writes: Option<Chunk>,
    reply_chunk: Option<Chunk>,
    message: usize,
    payload: Option<u32>,
) -> Vec<server::Output> {
    let chunks = Chunks { writes: writes.into_iter().collect(), reply: reply_chunk, ..Chunks::default() };
    let (mut server, outputs) = served(&encoded(7, 4, Body::Message(chunks), &rpc(7, 0, 40)));
    let (request, ..) = handed_out(&outputs);
    server.reply(request, rpc(7, 1, message), payload);
    assert_eq!(server.outstanding(), 0);
    drain_server(&mut server)
}

// RFC 8166 s3.4.6
#[test]
fn the_reply_says_how_much_of_a_write_chunk_was_used() {
    let offered = chunk(&[segment(1, 4096), segment(2, 4096)]);
    for (payload, lengths) in [(Some(5001), [4096, 905]), (Some(0), [0, 0]), (None, [0, 0])] {
        let outputs = answered_with(Some(offered.clone()), None, 40, payload);
        let (header, ..) = send_of(&outputs);
        let Body::Message(chunks) = header.body else { panic!("{header:?}") };
        let said: Vec<_> = chunks.writes[0].iter().map(|segment| segment.length).collect();
        assert_eq!(said, lengths);
        let written: u32 = outputs
            .iter()
            .filter_map(|output| match output {
                server::Output::Write { pieces, .. } => {
                    Some(pieces.iter().map(|piece| piece.to.length).sum::<u32>())
                }
                _ => None,
            })
            .sum();
        assert_eq!(written, payload.unwrap_or(0), "the padding is not written");
    }
}

// RFC 8166 s4.5.3
#[test]
fn a_reply_without_room_is_an_error_and_never_truncated() {
    let too_small = [
        answered_with(Some(chunk(&[segment(1, 4096)])), None, 40, Some(4097)),
        answered_with(None, Some(chunk(&[segment(1, 1999)])), 2000, None),
        answered_with(None, None, 2000, None),
    ];
    for outputs in too_small {
        assert_eq!(outputs.len(), 1, "nothing is written: {outputs:?}");
        assert_eq!(send_of(&outputs).0.body, Body::Error(HeaderError::Chunk));
    }
}

// RFC 8166 s4.3.3
#[test]
fn a_long_reply_uses_its_chunk_and_a_short_one_is_sent_inline() {
    let outputs = answered_with(None, Some(chunk(&[segment(1, 1500), segment(2, 1500)])), 2000, Some(7));
    let server::Output::Write { message, pieces, .. } = &outputs[0] else { panic!("{outputs:?}") };
    assert_eq!(message.len(), 2000);
    let sources: Vec<_> = pieces.iter().map(|piece| (piece.source, piece.to.length)).collect();
    let expected =
        [(Source::Message, 1500), (Source::Message, 500), (Source::Payload, 7), (Source::Padding, 1)];
    assert_eq!(sources, expected);
    let (header, inline, _) = send_of(&outputs);
    let Body::NoMessage(chunks) = header.body else { panic!("{header:?}") };
    assert!(inline.is_empty());
    assert_eq!(chunks.reply.expect("the chunk was used")[1].length, 508);

    let outputs = answered_with(None, Some(chunk(&[segment(1, 4096)])), 40, None);
    let (header, inline, _) = send_of(&outputs);
    assert_eq!((header.body, inline.len()), (Body::Message(Chunks::default()), 40));
}

#[test]
fn a_payload_without_a_chunk_goes_inline_with_its_padding() {
    let outputs = answered_with(None, None, 40, Some(7));
    let server::Output::Send { payload, .. } = &outputs[0] else { panic!("{outputs:?}") };
    assert_eq!(*payload, Some((7, 1)));
}

#[test]
fn a_cached_reply_uses_the_chunks_of_the_repeated_call() {
    let kept = rpc(7, 1, 2000);
    let mut server = Server::new(AGREED, LIMITS);
    let mut answer = |reply_chunk: Chunk| {
        let chunks = Chunks { reply: Some(reply_chunk), ..Chunks::default() };
        server.handle_receive(&encoded(7, 4, Body::Message(chunks), &rpc(7, 0, 40)));
        let (request, ..) = handed_out(&drain_server(&mut server));
        server.reply(request, kept.clone(), None);
        let (header, ..) = send_of(&drain_server(&mut server));
        let Body::NoMessage(chunks) = header.body else { panic!("{header:?}") };
        chunks.reply.expect("a chunk")
    };
    assert_eq!(answer(chunk(&[segment(1, 2000)])).as_slice(), [segment(1, 2000)]);
    assert_eq!(
        answer(chunk(&[segment(8, 500), segment(9, 4000)])).as_slice(),
        [segment(8, 500), segment(9, 1500)]
    );
}

// RFC 8797 s3.2
#[test]
fn a_reply_invalidates_only_offered_memory_and_only_if_the_peer_allows_it() {
    for (allowed, offers, invalidated) in [(true, true, Some(3)), (true, false, None), (false, true, None)] {
        let agreed = Offer::default().agree(&Offer { invalidation: allowed, ..Offer::default() });
        let mut server = Server::new(agreed, LIMITS);
        let writes = offers.then(|| chunk(&[segment(3, 4096)]));
        let chunks = Chunks { writes: writes.into_iter().collect(), ..Chunks::default() };
        server.handle_receive(&encoded(7, 4, Body::Message(chunks), &rpc(7, 0, 40)));
        let (request, ..) = handed_out(&drain_server(&mut server));
        server.reply(request, rpc(7, 1, 24), None);
        assert_eq!(send_of(&drain_server(&mut server)).2, invalidated);
    }
    assert!(!Offer::default().invalidation, "not offered by default");
}

#[test]
fn an_unmatched_reply_is_dropped_and_the_connection_stays() {
    let mut client = Client::new(AGREED, 8);
    client.call(call(1)).expect("taken");
    drain(&mut client);
    client.handle_receive(&reply(99, 8));
    // The header and the message name different calls.
    let body = Body::Message(Chunks::default());
    client.handle_receive(&encoded(1, 8, body, &rpc(2, 1, 24)));
    assert_eq!((drain(&mut client), client.unmatched()), (vec![], 2));
    client.handle_receive(&reply(1, 8));
    assert!(matches!(drain(&mut client)[..], [client::Output::Reply { xid: 1, .. }]));
}

#[test]
fn an_abandoned_call_keeps_its_credit_until_its_reply_is_discarded() {
    let mut client = Client::new(AGREED, 8);
    for xid in 1..=3 {
        client.call(call(xid)).expect("taken");
    }
    drain(&mut client);
    assert!(client.abandon(1), "the call was sent, so its memory must be fenced");
    assert!(!client.abandon(2), "the call was not sent");
    assert_eq!(client.in_flight(), (1, 1));
    client.handle_receive(&reply(1, 1));
    assert_eq!(sent(&drain(&mut client)), [3]);
    assert_eq!(client.unmatched(), 0);
}

#[test]
fn a_reply_with_false_segments_ends_the_connection() {
    let offered = segment(1, 4096);
    let lies = [segment(1, 4097), segment(2, 10), Segment { offset: 7, ..offered }];
    for lie in lies {
        let mut client = Client::new(AGREED, 8);
        client.call(Call { receive_buffer: Some(chunk(&[offered])), ..call(1) }).expect("taken");
        drain(&mut client);
        let chunks = Chunks { writes: [chunk(&[lie])].into_iter().collect(), ..Chunks::default() };
        client.handle_receive(&encoded(1, 8, Body::Message(chunks), &rpc(1, 1, 24)));
        let outputs = drain(&mut client);
        let failed = client::Output::Failed { xid: 1, error: CallError::Misused };
        assert_eq!(outputs, [failed, client::Output::Close(client::CloseReason::Protocol)], "{lie:?}");
    }
}

#[test]
fn a_reply_in_a_chunk_that_was_not_offered_ends_the_connection() {
    let mut client = Client::new(AGREED, 8);
    client.call(call(1)).expect("taken");
    drain(&mut client);
    let chunks = Chunks { reply: Some(chunk(&[segment(1, 10)])), ..Chunks::default() };
    client.handle_receive(&encoded(1, 8, Body::NoMessage(chunks), &[]));
    assert!(matches!(drain(&mut client).last(), Some(client::Output::Close(_))));
}

// RFC 8166 s4.5
#[test]
fn a_header_error_from_the_server_reaches_its_call() {
    let errors = [
        (HeaderError::Chunk, CallError::Chunk, false),
        (HeaderError::Version { low: 2, high: 3 }, CallError::Version { low: 2, high: 3 }, true),
        (HeaderError::Other(9), CallError::Unknown(9), false),
    ];
    for (said, error, closes) in errors {
        let mut client = Client::new(AGREED, 8);
        client.call(call(1)).expect("taken");
        drain(&mut client);
        client.handle_receive(&encoded(1, 8, Body::Error(said), &[]));
        let outputs = drain(&mut client);
        assert_eq!(outputs[0], client::Output::Failed { xid: 1, error });
        assert_eq!(outputs.len() == 2, closes, "{outputs:?}");
    }
}

// RFC 8166 s4.5.1
#[test]
fn another_version_is_answered_with_our_range_of_versions() {
    let mut bytes = encoded(7, 4, Body::Message(Chunks::default()), &rpc(7, 0, 40));
    bytes[7] = 2;
    let (_, outputs) = served(&bytes);
    let (header, ..) = send_of(&outputs);
    assert_eq!((header.xid, header.body), (7, Body::Error(HeaderError::Version { low: 1, high: 1 })));
}

// RFC 8166 s4.5.2, s4.6.1
#[test]
fn invalid_chunks_are_answered_with_a_chunk_error() {
    let read = |position, length| ReadSegment { position, segment: segment(1, length) };
    let with = |reads: &[ReadSegment]| Chunks { reads: reads.iter().copied().collect(), ..Chunks::default() };
    let message = rpc(7, 0, 40);
    let mut cut = encoded(7, 4, Body::Message(with(&[read(40, 8)])), &[]);
    cut.truncate(30);
    let mut procedure_2 = encoded(7, 4, Body::Message(Chunks::default()), &message);
    procedure_2[15] = 2;
    let wrong = [
        cut,
        procedure_2,
        encoded(7, 4, Body::Message(with(&[read(0, 100)])), &message),
        encoded(7, 4, Body::NoMessage(with(&[read(40, 100)])), &[]),
        encoded(7, 4, Body::NoMessage(with(&[read(0, 4)])), &[]),
        encoded(7, 4, Body::NoMessage(Chunks::default()), &[]),
        encoded(7, 4, Body::Message(with(&[read(44, 100)])), &message),
        encoded(7, 4, Body::Message(with(&[read(38, 100)])), &message),
        encoded(7, 4, Body::Message(with(&[read(40, 100), read(36, 100)])), &message),
        encoded(7, 4, Body::Message(with(&[read(40, 1 << 20), read(40, 1)])), &message),
        encoded(7, 4, Body::Message(with(&[read(40, u32::MAX), read(40, u32::MAX)])), &message),
        encoded(7, 4, Body::Message(Chunks::default()), &rpc(8, 0, 40)),
        encoded(7, 4, Body::Message(with(&[read(40, 1); 600])), &message),
    ];
    for (number, bytes) in wrong.iter().enumerate() {
        let (_, outputs) = served(bytes);
        assert_eq!(outputs.len(), 1, "{number}: {outputs:?}");
        assert_eq!(send_of(&outputs).0.body, Body::Error(HeaderError::Chunk), "{number}");
    }
}

// RFC 8166 s4.6.2
#[test]
fn an_obsolete_message_type_is_ignored() {
    let mut done = encoded(7, 4, Body::Message(Chunks::default()), &[]);
    done[15] = 3;
    assert_eq!(served(&done).1, []);
}

#[test]
fn bytes_that_are_no_header_end_the_connection() {
    let (_, outputs) = served(&[0; 15]);
    assert_eq!(outputs, [server::Output::Close(server::CloseReason::NoHeader)]);
    let mut client = Client::new(AGREED, 8);
    client.handle_receive(&[]);
    assert_eq!(drain(&mut client), [client::Output::Close(client::CloseReason::NoHeader)]);
    assert_eq!(client.call(call(1)), Err(Misuse::Closed));
}

// RFC 8167 s4
#[test]
fn calls_and_replies_of_the_reverse_direction_are_recognized() {
    let body = || Body::Message(Chunks::default());
    let mut client = Client::new(AGREED, 8);
    client.call(call(1)).expect("taken");
    drain(&mut client);
    client.handle_receive(&encoded(1, 0, body(), &rpc(1, 0, 40)));
    assert_eq!(drain(&mut client), [client::Output::Reverse(28..68)]);
    let (mut server, outputs) = served(&encoded(1, 4, body(), &rpc(1, 1, 40)));
    assert_eq!(outputs, [], "it answers no call");
    server.allow_calls(2);
    server.call(rpc(1, 0, 40)).expect("taken");
    drain_server(&mut server);
    server.handle_receive(&encoded(1, 4, body(), &rpc(1, 1, 40)));
    assert_eq!(drain_server(&mut server), [server::Output::Reverse(28..68)]);
}

#[test]
fn a_late_completion_of_an_earlier_request_is_ignored() {
    let reads = [ReadSegment { position: 40, segment: segment(1, 100) }];
    let chunks = Chunks { reads: reads.into_iter().collect(), ..Chunks::default() };
    let bytes = encoded(7, 4, Body::Message(chunks), &rpc(7, 0, 40));
    let (mut server, outputs) = served(&bytes);
    let server::Output::Read { request: earlier, .. } = outputs[0] else { panic!("{outputs:?}") };
    server.forget(earlier);
    server.handle_receive(&bytes);
    drain_server(&mut server);
    assert_eq!(server.awaiting(earlier), None);
    server.handle_read_done(earlier);
    server.reply(earlier, rpc(7, 1, 24), None);
    assert_eq!((drain_server(&mut server), server.outstanding()), (vec![], 1));
}

#[test]
fn a_call_that_does_not_fit_its_chunks_is_refused() {
    let mut client = Client::new(AGREED, 8);
    let too_long = Call { message: rpc(1, 0, 2000), ..call(1) };
    assert_eq!(client.call(too_long), Err(Misuse::Forms(1)));
    let too_small = Call { payload: Some((100, Some(chunk(&[segment(1, 99)])))), ..call(1) };
    assert_eq!(client.call(too_small), Err(Misuse::Forms(1)));
    client.call(call(1)).expect("taken");
    assert_eq!(client.call(call(1)), Err(Misuse::Outstanding(1)));
}

#[test]
fn a_connection_that_ends_fails_each_call_once() {
    let mut client = Client::new(AGREED, 8);
    for xid in 1..=3 {
        client.call(call(xid)).expect("taken");
    }
    drain(&mut client);
    client.handle_disconnected();
    client.handle_disconnected();
    let failed = |xid| client::Output::Failed { xid, error: CallError::Disconnected };
    assert_eq!(drain(&mut client), [failed(1), failed(2), failed(3)]);
}

/// Messages to this client take 1024 bytes. A reply that repeats all offered chunks would be
/// longer, so the server sends an error that fits.
#[test]
fn a_reply_with_more_chunks_than_fit_becomes_an_error_that_fits() {
    let writes = (0..2).map(|handle| chunk(&[segment(handle, 4); 40])).collect();
    let offered = Chunks { writes, reply: Some(chunk(&[segment(99, 4096)])), ..Chunks::default() };
    let mut server = Server::new(AGREED, LIMITS);
    server.handle_receive(&encoded(7, 4, Body::Message(offered), &rpc(7, 0, 60)));
    let (mut calls, mut answers) = (0, Vec::new());
    while let Some(output) = server.poll_output() {
        match output {
            server::Output::Call { request, .. } => {
                calls += 1;
                server.reply(request, rpc(7, 1, 24), None);
            }
            server::Output::Send { bytes, .. } => answers.push(bytes),
            server::Output::Write { .. } => panic!("nothing is written for an answer that is not sent"),
            _ => {}
        }
    }
    assert_eq!(calls, 1);
    assert!(answers.len() == 1 && answers[0].len() <= 1024, "{answers:?}");
    assert_eq!(decoded(&answers[0]).0.body, Body::Error(HeaderError::Chunk));
}
