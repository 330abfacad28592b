//! Bodies shared by property tests and fuzz targets. Each takes arbitrary bytes and asserts
//! invariants; no input may cause any other panic.

use crate::client::{Call, Client, Output as ClientOutput};
use crate::connect::{Agreed, Offer};
use crate::header::{Body, DecodeError, Header, SEGMENTS_MAX, Segment, bytes_of};
use crate::server::{Limits, Output as ServerOutput, Server};
use smallvec::smallvec;
use xdr::{Reader, Writer};

const AGREED: Agreed = Agreed { send_bytes: 1024, receive_bytes: 1024, may_invalidate: true };

/// Decodes a header: a valid one encodes to the same bytes, an invalid one yields enough to answer
/// it.
pub fn header(bytes: &[u8]) {
    let mut reader = Reader::new(bytes);
    match Header::decode(&mut reader) {
        Ok(header) => {
            let mut written = Vec::new();
            header.encode(&mut Writer::new(&mut written));
            let consumed = bytes.len() - reader.remaining();
            assert_eq!(bytes.get(..consumed), Some(written.as_slice()));
            assert_eq!(header.encoded_bytes(), consumed);
            if let Body::Message(chunks) | Body::NoMessage(chunks) = &header.body {
                let written = chunks.writes.iter().map(|chunk| chunk.len()).sum::<usize>();
                let reply = chunks.reply.as_ref().map_or(0, |chunk| chunk.len());
                assert!(chunks.reads.len() + written + reply <= SEGMENTS_MAX);
            }
        }
        Err(DecodeError::Version { xid, .. } | DecodeError::Chunks { xid }) => {
            assert_eq!(bytes.get(..4), Some(&xid.to_be_bytes()[..]), "the answer bears the call's number");
        }
        Err(DecodeError::Done) => {}
        Err(DecodeError::Short(length)) => assert!(length < 16),
    }
    let offer = Offer::decode(bytes);
    assert_eq!(Offer::decode(&offer.encode()), offer);
}

/// Feeds bytes to a server as a client's messages. For any input, the server asks only for memory
/// that the messages offer, within its limits, and answers each call once.
pub fn to_a_server(bytes: &[u8]) {
    let limits = Limits { credits: 2, payload_bytes: 4096 };
    let mut server = Server::new(AGREED, limits);
    // Twice, so that a call is outstanding when the second one is received.
    for _ in 0..2 {
        server.handle_receive(bytes);
    }
    let (mut calls, mut answers) = (0, 0);
    while let Some(output) = server.poll_output() {
        match output {
            ServerOutput::Read { request, chunk, .. } => {
                assert!(bytes_of(&chunk) <= u64::from(limits.payload_bytes));
                server.handle_read_done(request);
            }
            ServerOutput::Call { request, room, .. } => {
                calls += 1;
                let payload = room.map(|room| u32::try_from(room.min(100)).expect("at most 100"));
                server.reply(request, vec![0; 24], payload);
            }
            ServerOutput::Send { request: Some(_), bytes, .. } => {
                assert!(bytes.len() <= 1024, "it fits into what the client can receive");
                answers += 1;
            }
            ServerOutput::Write { pieces, .. } => {
                let written: u64 = pieces.iter().map(|piece| u64::from(piece.to.length)).sum();
                assert!(written <= 100 + 24 + 3);
            }
            _ => {}
        }
    }
    assert_eq!(calls, answers);
    assert_eq!(server.outstanding(), 0);
}

/// Feeds bytes to a client as a server's messages. The client has one call that offers memory both
/// for its result and for the whole reply: the call ends at most once, and never with more than was
/// offered.
pub fn to_a_client(bytes: &[u8]) {
    let mut client = Client::new(AGREED, 8);
    let segment = |handle| Segment { handle, length: 64, offset: 4096 };
    let call = Call {
        xid: 7,
        message: vec![0; 40],
        message_chunk: None,
        payload: None,
        receive_buffer: Some(smallvec![segment(1), segment(2)]),
        reply_chunk: Some(smallvec![segment(3)]),
    };
    client.call(call).expect("it fits");
    client.handle_receive(bytes);
    client.handle_disconnected();
    let mut ends = 0;
    while let Some(output) = client.poll_output() {
        match output {
            ClientOutput::Reply { xid, landed, .. } => {
                assert_eq!(xid, 7);
                assert!(landed <= 128);
                ends += 1;
            }
            ClientOutput::Failed { xid: 7, .. } => ends += 1,
            _ => {}
        }
    }
    assert_eq!(ends, 1);
    assert!((1..=8).contains(&client.credits()));
}
