//! Tests locks of version 3 on a group whose nodes are killed: they are in the group's state, and
//! go on at any node.

use crate::fixtures::{Directories, EXPORT, Node, file, lookup};
use crate::peer::Peer;
use nfs3::{Procedure as Nfs, Wire as _, proc};
use nlm::proc::{lock, unlock};
use nlm::{Lock, NetObj, Procedure, Status, Text, Wire};
use std::io::Write;
use xdr::{Reader, Writer};

/// An exclusive lock of the whole file.
fn whole<'a>(host: &'a [u8], handle: &'a [u8]) -> Lock<'a> {
    Lock { caller: Text(host), file: NetObj(handle), owner: NetObj(b"owner"), svid: 1, offset: 0, length: 0 }
}

fn call<'a>(peer: &mut Peer, procedure: Procedure, args: &impl Wire<'a>) -> Status {
    let mut encoded = Vec::new();
    args.encode(&mut Writer::new(&mut encoded));
    let record = peer.record_of(9, (nlm::PROGRAM, nlm::VERSION), procedure.number(), &encoded);
    peer.stream.write_all(&record).expect("a connection");
    let (_, results) = peer.receive();
    nlm::proc::Reply::decode(&mut Reader::new(&results)).expect("a reply").status
}

fn locks(peer: &mut Peer, host: &[u8], handle: &[u8]) -> Status {
    let lock = whole(host, handle);
    let cookie = NetObj(b"1");
    let args = lock::Args { cookie, block: false, exclusive: true, lock, reclaim: false, state: 0 };
    call(peer, Procedure::Lock, &args)
}

#[test]
fn locks_of_version_3_outlive_the_node_by_which_they_were_made() {
    let directories = Directories::new("group-locked");
    let (mut first, mut second) = (Node::start(&directories, 1), Node::start(&directories, 2));
    file(&directories, "file", b"data");
    let mut here = first.connect(7);
    let root = here.mount(EXPORT);
    let found = here.exchange(3, Nfs::Lookup, &lookup(root, b"file"));
    let found = proc::lookup::Reply::decode(&mut Reader::new(&found)).expect("a reply");
    let handle = found.into_result().expect("the name exists").object;
    // A client of ours is one host, whatever addresses it uses.
    let ours = drc::machine_name(7);
    assert_eq!(locks(&mut here, &ours, handle.as_slice()), Status::GRANTED);
    first.kill();
    let mut there = second.connect(8);
    assert_eq!(locks(&mut there, b"another", handle.as_slice()), Status::DENIED);
    first.restart();
    second.kill();
    let mut here = first.connect(7);
    assert_eq!(locks(&mut here, b"another", handle.as_slice()), Status::DENIED);
    assert_eq!(locks(&mut here, &ours, handle.as_slice()), Status::GRANTED, "it has it");
    let args = unlock::Args { cookie: NetObj(b"1"), lock: whole(&ours, handle.as_slice()) };
    assert_eq!(call(&mut here, Procedure::Unlock, &args), Status::GRANTED);
    assert_eq!(locks(&mut here, b"another", handle.as_slice()), Status::GRANTED);
}
