//! Tests clients that violate the protocol, give false information about their memory or leave
//! early, each on its own connection: the error affects only that client, others are served
//! meanwhile, and nothing is left.

use crate::guest::{is_in_guest, passes_in};
use crate::pair::{GuestServer, TIMEOUT, alone, pair, wait_until_nothing_is_left};
use crate::raw_peer::{RawPeer, Received, null, read, segment, with_read, with_reply, with_write, write};
use client::Mount;
use nfs3::FileHandle;
use rpcrdma::header::{Body, Chunks, HeaderError, ReadSegment, Segment};
use testkit::Deadline;
use transport::rdma::Access;
use verbs::{Alive, alive};

const MIB: u32 = 1 << 20;
/// The content that the other client has written.
const RIGHT: u8 = 0xa5;
/// The content that bad clients send.
const WRONG: u8 = 0x5a;

#[test]
fn our_server_survives_clients_that_violate_the_protocol() {
    if is_in_guest() {
        return misbehave();
    }
    let _turn = alone();
    let served = GuestServer::start();
    passes_in(pair().client(), "bad_clients::our_server_survives_clients_that_violate_the_protocol");
    // The server still runs, and holds nothing of the bad clients.
    wait_until_nothing_is_left(pair().server());
    drop(served);
}

/// The name of a case, and its function.
type Case = (&'static str, fn(&Target));

/// What all cases use.
struct Target {
    others: Mount,
    /// The file of the other client.
    file: FileHandle,
    /// The file of the bad clients.
    theirs: FileHandle,
}

impl Target {
    /// Another client reads the right data, and finds nothing that a bad client sent.
    fn serves_others(&self) {
        let mut data = vec![0; MIB as usize];
        let count = self.others.open(b"/file").and_then(|file| file.read_all_at(&mut data, 0));
        assert_eq!(count.expect("others are served"), data.len());
        assert!(data.iter().all(|byte| *byte == RIGHT));
        let (_, theirs) = self.others.resolve(b"/theirs").expect("others are served");
        assert_eq!(theirs.size, 0);
    }
}

fn misbehave() {
    let options = "proto=rdma,mountport=2049,nconnect=1";
    let others = Mount::connect("10.77.1.2:/export", options).expect("the client mounts");
    others
        .create_file(b"/file", 0o666)
        .and_then(|file| file.write_all_at(&vec![RIGHT; MIB as usize], 0))
        .expect("written");
    others.create_file(b"/theirs", 0o666).expect("made");
    let resolve = |path: &[u8]| {
        let (handle, _) = others.resolve(path).expect("the name exists");
        FileHandle::new(handle.as_slice()).expect("a handle of version 3")
    };
    let (file, theirs) = (resolve(b"/file"), resolve(b"/theirs"));
    let target = Target { others, file, theirs };
    let cases: [Case; 10] = [
        ("headers that make no sense", senseless_headers),
        ("a version that nobody speaks", another_version),
        ("a wrong key", wrong_keys),
        ("chunks that are too small", small_chunks),
        ("chunks that lie about their length", lying_chunks),
        ("calls cut short", cut_calls),
        ("more calls than credits", too_many_calls),
        ("leaving while memory is read", leave_while_read),
        ("leaving while memory is written", leave_while_written),
        ("many who never call", never_call),
    ];
    for (name, case) in cases {
        println!("\n{name}");
        case(&target);
        target.serves_others();
    }
    drop(target);
    assert_eq!(alive(), Alive::default());
}

#[track_caller]
fn must_end(raw_peer: &mut RawPeer) {
    let heard = raw_peer.receive();
    assert!(matches!(&heard, Received::Ended(why) if !why.is_empty()), "{heard:?}");
}

/// The call is refused, and the connection remains.
#[track_caller]
fn must_be_refused(raw_peer: &mut RawPeer) {
    let heard = raw_peer.receive();
    assert!(matches!(heard, Received::Refused(HeaderError::Chunk)), "{heard:?}");
    must_be_served(raw_peer);
}

#[track_caller]
fn must_be_served(raw_peer: &mut RawPeer) {
    raw_peer.call(Body::Message(Chunks::default()), &null(99));
    let heard = raw_peer.receive();
    assert!(matches!(&heard, Received::Message(header) if header.xid == 99), "{heard:?}");
}

fn senseless_headers(_: &Target) {
    // RFC 8166 s4.5.2: a message that is not even a header has no xid to which an error could be
    // sent.
    let mut raw_peer = RawPeer::new();
    raw_peer.send(&[7; 9]);
    must_end(&mut raw_peer);
    // Lists that continue after the end of the message.
    let mut raw_peer = RawPeer::new();
    let words = [5_u32, 1, 32, 0, 1, 1, 1, 1, 1, 1, 1];
    raw_peer.send(&words.map(u32::to_be_bytes).concat());
    must_be_refused(&mut raw_peer);
}

// RFC 8166 s4.5.1
fn another_version(_: &Target) {
    let mut raw_peer = RawPeer::new();
    let words = [5_u32, 2, 32, 0, 0, 0, 0];
    raw_peer.send(&words.map(u32::to_be_bytes).concat());
    let heard = raw_peer.receive();
    assert!(matches!(heard, Received::Refused(HeaderError::Version { low: 1, high: 1 })), "{heard:?}");
    must_be_served(&mut raw_peer);
}

fn wrong_keys(target: &Target) {
    // The device refuses the access, and that ends the connection at both ends.
    let mut raw_peer = RawPeer::new();
    let source = raw_peer.memory(65536, Access::RemoteRead, WRONG);
    let call = write(1, target.theirs, 65536);
    let wrong = Segment { handle: source.region().remote_key() ^ 0x100, ..segment(&source, 65536) };
    raw_peer.call(Body::Message(with_read(call.len() as u32, wrong)), &call);
    must_end(&mut raw_peer);
    let mut raw_peer = RawPeer::new();
    // The memory may be read but not written.
    let receive_buffer = raw_peer.memory(65536, Access::RemoteRead, WRONG);
    let call = read(2, target.file, 65536);
    raw_peer.call(Body::Message(with_write(segment(&receive_buffer, 65536))), &call);
    must_end(&mut raw_peer);
    let mut first = [0; 1];
    receive_buffer.read(0, &mut first).expect("the memory is readable");
    assert_eq!(first, [WRONG]);
}

// RFC 8166 s4.5.3
fn small_chunks(target: &Target) {
    let mut raw_peer = RawPeer::new();
    let receive_buffer = raw_peer.memory(65536, Access::RemoteWrite, WRONG);
    let call = read(1, target.file, 65536);
    raw_peer.call(Body::Message(with_write(segment(&receive_buffer, 1000))), &call);
    must_be_refused(&mut raw_peer);
    let call = read(2, target.file, 65536);
    raw_peer.call(Body::Message(with_reply(segment(&receive_buffer, 100))), &call);
    must_be_refused(&mut raw_peer);
    let mut bytes = vec![0; 65536];
    receive_buffer.read(0, &mut bytes).expect("the memory is readable");
    assert!(bytes.iter().all(|byte| *byte == WRONG), "a reply is refused, never truncated");
}

fn lying_chunks(target: &Target) {
    let mut raw_peer = RawPeer::new();
    let source = raw_peer.memory(65536, Access::RemoteRead, WRONG);
    // More memory than is registered: the device refuses the access.
    let call = write(1, target.theirs, MIB);
    raw_peer.call(Body::Message(with_read(call.len() as u32, segment(&source, MIB))), &call);
    must_end(&mut raw_peer);
    // More than any server accepts.
    let mut raw_peer = RawPeer::new();
    let source = raw_peer.memory(65536, Access::RemoteRead, WRONG);
    let call = write(2, target.theirs, 65536);
    raw_peer.call(Body::Message(with_read(call.len() as u32, segment(&source, 1 << 30))), &call);
    must_be_refused(&mut raw_peer);
    // Less than the call itself says, so its arguments are invalid.
    let call = write(3, target.theirs, 65536);
    raw_peer.call(Body::Message(with_read(call.len() as u32, segment(&source, 4096))), &call);
    let heard = raw_peer.receive();
    assert!(!matches!(heard, Received::Refused(HeaderError::Version { .. })), "{heard:?}");
}

// RFC 8166 s3.5.3
fn cut_calls(target: &Target) {
    let mut raw_peer = RawPeer::new();
    let call = read(1, target.file, 4096);
    let source = raw_peer.memory(call.len(), Access::RemoteRead, 0);
    source.write(0, &call).expect("the call fits");
    // Not even an xid and a direction.
    raw_peer.call(Body::NoMessage(with_read(0, segment(&source, 4))), &1_u32.to_be_bytes());
    must_be_refused(&mut raw_peer);
    // Truncated within the header, and within the arguments.
    for bytes in [30, call.len() as u32 - 8] {
        let mut raw_peer = RawPeer::new();
        let source = raw_peer.memory(call.len(), Access::RemoteRead, 0);
        source.write(0, &call).expect("the call fits");
        raw_peer.call(Body::NoMessage(with_read(0, segment(&source, bytes))), &1_u32.to_be_bytes());
        let heard = raw_peer.receive();
        assert!(!matches!(heard, Received::Refused(HeaderError::Version { .. })), "{heard:?}");
    }
}

/// RFC 8166 s3.3.1: the replies are valid, or the connection ends; no other client is affected.
fn too_many_calls(target: &Target) {
    let mut raw_peer = RawPeer::new();
    let receive_buffer = raw_peer.memory(MIB as usize, Access::RemoteWrite, 0);
    for xid in 0..200 {
        let call = read(xid, target.file, MIB);
        raw_peer.call(Body::Message(with_write(segment(&receive_buffer, MIB))), &call);
    }
    target.serves_others();
    for _ in 0..200 {
        if let Received::Ended(_) = raw_peer.receive() {
            return;
        }
        raw_peer.endpoint.post_receives(1).expect("a receive is free");
    }
}

/// The connection ends while the server reads the data of a WRITE.
fn leave_while_read(target: &Target) {
    for xid in 1..=4 {
        let mut raw_peer = RawPeer::new();
        let source = raw_peer.memory(MIB as usize, Access::RemoteRead, WRONG);
        let call = write(xid, target.theirs, MIB);
        // The last part may not be read, so that nothing is written even if the rest was read in
        // time.
        let (whole, half) = (segment(&source, MIB), MIB / 2);
        let position = call.len() as u32;
        let mut chunks = with_read(position, Segment { length: half, ..whole });
        let forbidden =
            Segment { handle: whole.handle ^ 0x100, length: half, offset: whole.offset + u64::from(half) };
        chunks.reads.push(ReadSegment { position, segment: forbidden });
        raw_peer.call(Body::Message(chunks), &call);
        raw_peer.wait_until_sent();
        drop(raw_peer);
    }
}

/// The connection ends when the first byte of a READ has arrived.
fn leave_while_written(target: &Target) {
    for xid in 1..=4 {
        let mut raw_peer = RawPeer::new();
        let receive_buffer = raw_peer.memory(MIB as usize, Access::RemoteWrite, 0);
        let call = read(xid, target.file, MIB);
        raw_peer.call(Body::Message(with_write(segment(&receive_buffer, MIB))), &call);
        Deadline::wait_until("the first byte", TIMEOUT, || {
            let mut first = [0; 1];
            receive_buffer.read(0, &mut first).expect("the memory is readable");
            (first == [RIGHT]).then_some(())
        });
        drop(raw_peer);
        // No peer can access this memory any more.
        receive_buffer.write(0, &vec![WRONG; MIB as usize]).expect("the data fit");
        target.serves_others();
        let mut bytes = vec![0; MIB as usize];
        receive_buffer.read(0, &mut bytes).expect("the memory is readable");
        assert!(bytes.iter().all(|byte| *byte == WRONG), "memory was written after its connection had ended");
    }
}

fn never_call(target: &Target) {
    let strangers: Vec<RawPeer> = (0..24).map(|_| RawPeer::new()).collect();
    target.serves_others();
    drop(strangers);
}
