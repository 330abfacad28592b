//! Tests nodes of a group that are killed: calls that had been executed are answered from the cache
//! by the other node, and by the same node after a restart.

use crate::fixtures::{
    Directories, EXPORT, Node, create_exclusive, exists, file, link, lookup, mkdir, remove, rename, symlink,
    write,
};
use crate::peer::{Peer, getattr_args};
use nfs3::{FileHandle, Procedure, Wire, proc};
use xdr::Reader;

/// The first xid of the calls whose whole reply is cached, and of those for which the cache has
/// only that they were done.
const WHOLE: u32 = 0x8000_0001;
const DONE: u32 = 0x4000_0001;
const CLIENT: u64 = 7;

fn verifier(results: &[u8]) -> [u8; 8] {
    let reply = proc::write::Reply::decode(&mut Reader::new(results)).expect("a reply");
    reply.into_result().expect("written").verifier
}

fn found(peer: &mut Peer, root: FileHandle, name: &[u8]) -> FileHandle {
    let results = peer.exchange(3, Procedure::Lookup, &lookup(root, name));
    let reply = proc::lookup::Reply::decode(&mut Reader::new(&results)).expect("a reply");
    reply.into_result().expect("the name exists").object
}

#[test]
fn calls_of_a_killed_node_are_answered_by_its_neighbour_and_after_a_restart() {
    let directories = Directories::new("group-killed");
    let (mut first, second) = (Node::start(&directories, 1), Node::start(&directories, 2));
    file(&directories, "gone", b"");
    file(&directories, "from", b"moved");
    file(&directories, "written", b"");
    let mut peer = first.connect(CLIENT);
    let root = peer.mount(EXPORT);
    let written = found(&mut peer, root, b"written");
    let calls = [
        (WHOLE, Procedure::Remove, remove(root, b"gone")),
        (WHOLE + 1, Procedure::Rename, rename(root, b"from", b"to")),
        (WHOLE + 2, Procedure::Create, create_exclusive(root, b"made", [9; 8])),
        (WHOLE + 3, Procedure::MkDir, mkdir(root, b"directory")),
    ];
    // The client gets these replies, and then behaves as if the node had died before.
    let answers = calls.each_ref().map(|(xid, procedure, args)| peer.exchange(*xid, *procedure, args));
    let before = verifier(&peer.exchange(DONE, Procedure::Write, &write(written, b"data")));
    assert!(answers.iter().all(|answer| answer[..4] == [0; 4]), "{answers:?}");
    first.kill();

    // Another client works on, so that a second execution would be seen.
    file(&directories, "gone", b"another's");
    file(&directories, "from", b"another's");
    let mut there = second.connect(CLIENT);
    for ((xid, procedure, args), answer) in calls.iter().zip(&answers) {
        assert_eq!(there.exchange(*xid, *procedure, args), *answer, "{procedure:?} at the neighbour");
    }
    file(&directories, "written", b"another's");
    assert_eq!(verifier(&there.exchange(DONE, Procedure::Write, &write(written, b"data"))), before);
    first.restart();
    let mut again = first.connect(CLIENT);
    for ((xid, procedure, args), answer) in calls.iter().zip(&answers) {
        assert_eq!(again.exchange(*xid, *procedure, args), *answer, "{procedure:?} at the node itself");
    }
    assert_eq!(verifier(&again.exchange(DONE, Procedure::Write, &write(written, b"data"))), before);
    // A handle of one node is valid at the other, and new WRITEs return the same verifier.
    assert_eq!(again.exchange(4, Procedure::GetAttr, &getattr_args(written))[..4], [0; 4]);
    assert_eq!(verifier(&again.exchange(DONE + 1, Procedure::Write, &write(written, b"more"))), before);
    assert!(exists(&directories, "gone") && exists(&directories, "from") && exists(&directories, "to"));
    assert_eq!(second.replayed("REMOVE"), 1);
}

#[test]
fn the_calls_of_a_foreign_client_are_cached_too() {
    let directories = Directories::new("group-foreign");
    let (mut first, second) = (Node::start(&directories, 1), Node::start(&directories, 2));
    file(&directories, "gone", b"");
    let mut peer = Peer::foreign(first.address);
    let root = peer.mount(EXPORT);
    let answer = peer.exchange(77, Procedure::Remove, &remove(root, b"gone"));
    assert_eq!(answer[..4], [0; 4]);
    first.kill();
    let mut there = Peer::foreign(second.address);
    assert_eq!(there.exchange(77, Procedure::Remove, &remove(root, b"gone")), answer);
    let noent = there.exchange(78, Procedure::Remove, &remove(root, b"gone"));
    assert_eq!(noent[..4], [0, 0, 0, 2], "another xid is another call");
}

/// A call of the campaign.
fn call_of(round: u32, index: u32, root: FileHandle, linked: FileHandle) -> (Procedure, Vec<u8>) {
    let name = |what: &str| format!("{what}-{round}-{index}").into_bytes();
    match index % 6 {
        0 => (Procedure::Remove, remove(root, &name("old"))),
        1 => (Procedure::Rename, rename(root, &name("old"), &name("renamed"))),
        2 => (Procedure::MkDir, mkdir(root, &name("dir"))),
        3 => (Procedure::Create, create_exclusive(root, &name("new"), [3; 8])),
        4 => (Procedure::Link, link(root, linked, &name("link"))),
        _ => (Procedure::SymLink, symlink(root, &name("symlink"))),
    }
}

#[test]
fn calls_in_flight_when_a_node_is_killed_are_done_once_and_succeed() {
    const CALLS: u32 = 96;
    let directories = Directories::new("group-flight");
    let (mut first, second) = (Node::start(&directories, 1), Node::start(&directories, 2));
    file(&directories, "linked", b"");
    for round in 0..6 {
        let mut peer = first.connect(CLIENT + u64::from(round));
        let root = peer.mount(EXPORT);
        let linked = found(&mut peer, root, b"linked");
        for index in (0..CALLS).filter(|index| index % 6 < 2) {
            file(&directories, &format!("old-{round}-{index}"), b"");
        }
        for index in 0..CALLS {
            let (procedure, args) = call_of(round, index, root, linked);
            peer.call(WHOLE + index, procedure, &args);
        }
        // Some calls are answered. The others are queued, running, or done without a reply.
        for _ in 0..3 + 7 * round {
            peer.receive();
        }
        first.kill();
        let mut there = second.connect(CLIENT + u64::from(round));
        for index in 0..CALLS {
            let (procedure, args) = call_of(round, index, root, linked);
            let answer = there.exchange(WHOLE + index, procedure, &args);
            assert_eq!(answer[..4], [0; 4], "round {round}: {procedure:?} number {index}");
        }
        for index in 0..CALLS {
            let is_there = |what: &str| {
                directories.served().join(format!("{what}-{round}-{index}")).symlink_metadata().is_ok()
            };
            let want = ["", "renamed", "dir", "new", "link", "symlink"][index as usize % 6];
            assert!(!is_there("old"), "round {round}: {index}");
            assert!(want.is_empty() || is_there(want), "round {round}: {want} {index}");
        }
        first.restart();
    }
}
