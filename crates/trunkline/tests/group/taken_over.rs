//! Tests the addresses of nodes that have ended: another node listens there, for clients that know
//! only that address, until the node is back.

use crate::fixtures::{Directories, EXPORT, Node, exists, file, remove, trunkline};
use crate::peer::{Peer, SOON};
use crate::session::{Session, after_sequence, call, put, status};
use nfs3::Procedure;
use nfs4::op::{self, Args, kind};
use nfs4::{Attributes, Fattr, Status};
use rustix::process::Signal;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use testkit::{Deadline, Process, Stream};

const XID: u32 = 77;

fn three(directories: &Directories) -> [Node; 3] {
    [1, 2, 3].map(|number| Node::start(directories, number))
}

/// A foreign client, which tries again until somebody listens.
fn connect(address: SocketAddr) -> Peer {
    let stream = Deadline::wait_until("somebody to listen", SOON, || TcpStream::connect(address).ok());
    Peer::over(stream, 7, b"elsewhere")
}

/// The file in which the group has an address.
fn record(directories: &Directories, address: SocketAddr) -> PathBuf {
    directories.group().join("addresses").join(address.to_string())
}

fn replayed(nodes: &[Node]) -> u64 {
    nodes.iter().map(|node| node.replayed("REMOVE")).sum()
}

#[test]
fn a_client_that_knows_only_the_address_of_a_killed_node_goes_on_and_the_node_gets_it_back() {
    let directories = Directories::new("group-address");
    let [mut first, others @ ..] = three(&directories);
    file(&directories, "gone", b"");
    let mut peer = Peer::foreign(first.address);
    let root = peer.mount(EXPORT);
    let answer = peer.exchange(XID, Procedure::Remove, &remove(root, b"gone"));
    assert_eq!(answer[..4], [0; 4]);
    first.kill();
    // A second execution would be seen.
    file(&directories, "gone", b"another's");
    let mut there = connect(first.address);
    assert_eq!(there.exchange(XID, Procedure::Remove, &remove(root, b"gone")), answer);
    let again = there.exchange(XID + 1, Procedure::Remove, &remove(root, b"missing"));
    assert_eq!(again[..4], [0, 0, 0, 2], "NFS3ERR_NOENT");
    assert_eq!(replayed(&others), 1);
    let listening = || others.iter().filter(|node| node.listens_for(first.address)).count();
    Deadline::wait_until("one to say that it listens", SOON, || (listening() > 0).then_some(()));
    assert_eq!(listening(), 1, "one listens");

    first.restart();
    // What was sent before is answered, and then the connection ends.
    assert!(there.try_receive().is_none(), "the client is sent to the node that has the address");
    let mut back = connect(first.address);
    assert_eq!(back.exchange(XID, Procedure::Remove, &remove(root, b"gone")), answer);
    assert_eq!((first.replayed("REMOVE"), replayed(&others)), (1, 1), "answered by the node itself");
    assert!(exists(&directories, "gone"));
    // It can be killed once more.
    first.kill();
    connect(first.address).null();
}

#[test]
fn a_session_goes_on_at_the_address_of_a_killed_node() {
    let directories = Directories::with_versions("group-address-4", "3,4.1,4.2");
    let [mut first, _second, _third] = three(&directories);
    let mut peer = Peer::foreign(first.address);
    let mut session = Session::new(&mut peer);
    let export = session.export;
    file(&directories, "held", b"");
    let open = session.open(b"held", op::open::How::NoCreate);
    let stateid = Deadline::wait_until("the client may open", SOON, || {
        let request = session.next(&|to| _ = to.push(&put(export)).push(&open));
        let results = call(&mut peer, &request);
        let mut reader = after_sequence(&results);
        reader.expect::<kind::PutFh>().expect("a result").expect("the export");
        reader.expect::<kind::Open>().expect("a result").ok().map(|opened| opened.stateid)
    });
    let mode = Attributes { mode: Some(0o750), ..Attributes::default() };
    let what = op::create::What::Directory;
    let create = Args::Create(op::create::Args { what, name: b"made", attributes: Fattr::all(&mode) });
    let request = session.next(&|to| _ = to.push(&put(export)).push(&create));
    let answer = call(&mut peer, &request);
    assert_eq!(status(&answer), Status::OK);
    first.kill();

    let mut there = connect(first.address);
    assert_eq!(call(&mut there, &request), answer, "the request that is sent again is not executed again");
    let close = Args::Close(op::close::Args { seqid: 0, open: stateid });
    let lookup = Args::Lookup(op::lookup::Args { name: b"held" });
    let request = session.next(&|to| _ = to.push(&put(export)).push(&lookup).push(&close));
    assert_eq!(status(&call(&mut there, &request)), Status::OK, "the file is still open");
}

#[test]
fn the_address_of_a_stopped_node_is_not_taken_until_it_is_killed() {
    let directories = Directories::new("group-address-stopped");
    let [mut first, second, mut third] = three(&directories);
    first.process().signal(Signal::STOP);
    third.kill();
    // The second node looks at all addresses at once.
    connect(third.address).null();
    let mut waiting = connect(first.address);
    waiting.call(XID, Procedure::Null, &[]);
    third.restart();
    third.kill();
    connect(third.address).null();
    assert!(!second.listens_for(first.address));
    first.process().signal(Signal::CONT);
    assert_eq!(waiting.receive().0, XID, "the node answers what it held");
    first.process().signal(Signal::STOP);
    first.kill();
    connect(first.address).null();
    Deadline::wait_until("it to say that it listens", SOON, || {
        second.listens_for(first.address).then_some(())
    });
}

#[test]
fn two_nodes_die_one_after_another_and_the_last_listens_for_both() {
    let directories = Directories::new("group-address-two");
    let mut nodes = Vec::from(three(&directories));
    let mut first = nodes.remove(0);
    first.kill();
    connect(first.address).null();
    let taker = Deadline::wait_until("one to say that it listens", SOON, || {
        nodes.iter().position(|node| node.listens_for(first.address))
    });
    let mut taker = nodes.remove(taker);
    taker.kill();
    let last = &nodes[0];
    for address in [first.address, taker.address, last.address] {
        connect(address).null();
    }
    Deadline::wait_until("the last to say that it listens for both", SOON, || {
        (last.listens_for(first.address) && last.listens_for(taker.address)).then_some(())
    });
    // Both come back.
    for node in [&mut first, &mut taker] {
        node.restart();
    }
    file(&directories, "gone", b"");
    for node in [&first, &taker] {
        let mut peer = connect(node.address);
        let root = peer.mount(EXPORT);
        peer.exchange(XID, Procedure::Remove, &remove(root, b"gone"));
        peer.exchange(XID, Procedure::Remove, &remove(root, b"gone"));
        assert_eq!(node.replayed("REMOVE"), 1);
    }
}

/// So a group is restarted node by node without a break.
#[test]
fn a_node_that_ends_in_order_is_replaced_too_until_its_address_is_given_up() {
    let directories = Directories::new("group-address-term");
    let [mut first, mut second, mut third] = three(&directories);
    first.end(Signal::TERM);
    connect(first.address).null();
    std::fs::remove_file(record(&directories, first.address)).expect("the address is recorded");
    Deadline::wait_until("nobody to listen", SOON, || TcpStream::connect(first.address).err().map(drop));
    // The address is its own again when it starts.
    first.restart();
    connect(first.address).null();
    assert!(record(&directories, first.address).exists());
    // A group that begins anew may have other addresses.
    for node in [&mut first, &mut second, &mut third] {
        node.kill();
    }
    second.restart();
    let recorded = |node: &Node| record(&directories, node.address).exists();
    assert_eq!([&first, &second, &third].map(recorded), [false, true, false]);
}

#[test]
fn a_node_does_not_start_on_an_address_that_another_one_has() {
    let directories = Directories::new("group-address-twice");
    let [mut first, second, mut third] = three(&directories);
    let fails = |address: SocketAddr, cause: &str| {
        let arguments = directories.arguments(address);
        let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let mut process = Process::spawn(trunkline(&words));
        let status = process.wait(SOON);
        let error = process.output(Stream::Err);
        assert_eq!(status.code(), Some(1), "{error}");
        assert!(error.contains(cause) && error.contains("\n  try:   "), "{error}");
    };
    fails(second.address, "another program listens there");
    // One that listens for another and is stopped does not give the address back.
    third.kill();
    first.kill();
    connect(first.address).null();
    second.process().signal(Signal::STOP);
    fails(first.address, "does not give it back");
    second.process().signal(Signal::CONT);
    first.restart();
    connect(first.address).null();
}

#[test]
fn an_address_that_cannot_be_listened_on_is_said_once_and_keeps_nobody_from_another() {
    const SAID: &str = "does not get its address";
    let directories = Directories::new("group-address-nowhere");
    let [first, second, mut third] = three(&directories);
    // An address that no host has. RFC 5737 s3
    let nowhere = record(&directories, SocketAddr::from(([192, 0, 2, 1], 2049)));
    std::fs::write(nowhere, "gone\n").expect("a file");
    let said = |node: &Node| {
        node.process().wait_for_line(SAID, SOON);
        node.process().output(Stream::Err).lines().filter(|line| line.contains(SAID)).count()
    };
    assert_eq!((said(&first), said(&second)), (1, 1));
    for _ in 0..2 {
        third.kill();
        connect(third.address).null();
        third.restart();
    }
    assert_eq!((said(&first), said(&second)), (1, 1), "they go on trying, in silence");
}
