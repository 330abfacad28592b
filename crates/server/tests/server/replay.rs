//! Tests that a call that is sent twice is executed once, whichever connection and node it arrives
//! on.

use crate::peer::{PATIENCE, Peer, config, credential, decoded, encoded, own_credential, write_args};
use nfs3::{DirOpArgs, FileHandle, Procedure, Sattr3, Status, proc};
use rpc::reply::{Accept, Body};
use server::{Server, Statistics};

fn group() -> Server {
    let mut config = config();
    let mut second = config.nodes[0].clone();
    second.name = "second".into();
    config.nodes.push(second);
    Server::start(config).unwrap()
}

fn remove(directory: FileHandle, name: &[u8]) -> Vec<u8> {
    encoded(&proc::remove::Args { object: DirOpArgs { directory, name } })
}

fn exchange(peer: &mut Peer, record: &[u8]) -> Vec<u8> {
    peer.send(record);
    peer.receive()
}

fn results(reply: &[u8]) -> (Body, Vec<u8>) {
    let mut reader = xdr::Reader::new(reply);
    let reply = rpc::reply::decode(&mut reader).unwrap();
    (reply.body, reader.rest().to_vec())
}

fn replayed(statistics: &Statistics, procedure: &str) -> u64 {
    statistics.nodes.iter().filter_map(|node| node.procedures.of(procedure)).map(|one| one.replayed).sum()
}

#[test]
fn a_replay_on_another_node_is_answered_from_the_cache() {
    let server = group();
    let addresses = server.addresses();
    // A foreign client whose connection was reset, and one of our own clients with an xid of the
    // class for whole replies.
    for (credential, xid, is_ours) in
        [(credential(5, b"other", 0, 0), 0x8765_4321, false), (own_credential(99), 0x8000_0007, true)]
    {
        let mut first = Peer::with_credential(addresses[0], credential.clone());
        let mut second = Peer::with_credential(addresses[1], credential);
        let root = first.mnt(b"/export").unwrap();
        first.create(root, b"victim");
        let record =
            first.record(xid, nfs3::PROGRAM, 3, Procedure::Remove.number(), &remove(root, b"victim"));
        let original = exchange(&mut first, &record);
        assert_eq!(results(&original).0, Body::Accepted(Accept::Success));
        assert_eq!(decoded::<proc::remove::Reply>(&results(&original).1).status(), Status::OK);
        if !is_ours {
            first.reset();
        }
        assert_eq!(exchange(&mut second, &record), original, "not NOENT");

        let how = proc::create::How::Guarded(Sattr3::default());
        let args =
            encoded(&proc::create::Args { location: DirOpArgs { directory: root, name: b"new" }, how });
        let record = first.record(xid + 1, nfs3::PROGRAM, 3, Procedure::Create.number(), &args);
        let original = exchange(&mut second, &record);
        assert_eq!(decoded::<proc::create::Reply>(&results(&original).1).status(), Status::OK);
        if !is_ours {
            second.reset();
        }
        assert_eq!(exchange(&mut first, &record), original, "not EXIST");
        first.nfs(
            Procedure::Remove,
            &proc::remove::Args { object: DirOpArgs { directory: root, name: b"new" } },
        );
    }
    assert_eq!(replayed(&server.statistics(), "REMOVE"), 2);
    assert_eq!(replayed(&server.statistics(), "CREATE"), 2);
}

/// Identities of two loops that share as many bits as those of older and newer clients may. Older
/// clients number the loops of a mount in the last 8 bits. Newer clients have random identities,
/// whose last 8 bits or stamps may be equal.
const LOOPS_ALIKE: [[u64; 2]; 3] = [
    [0x0123_4567_89ab_cd01, 0x0123_4567_89ab_cd02],
    [0x0123_4567_89ab_cd01, 0xfedc_ba98_7654_3201],
    [0x0123_4567_89ab_cd01, 0xfedc_ba98_89ab_cd01],
];

#[test]
fn two_loops_of_an_older_or_a_newer_client_never_share_a_window() {
    let server = group();
    for (pair, loops) in (0..).zip(LOOPS_ALIKE) {
        let mut peers = loops.map(|id| Peer::with_credential(server.addresses()[0], own_credential(id)));
        let root = peers[0].mnt(b"/export").unwrap();
        // Each loop has its own xid space, so the same xid is a different call.
        let records = [0, 1].map(|index| {
            let name = format!("{pair}-{index}");
            let location = DirOpArgs { directory: root, name: name.as_bytes() };
            let how = proc::create::How::Guarded(Sattr3::default());
            let args = encoded(&proc::create::Args { location, how });
            peers[index].record(0x8000_0001 + pair, nfs3::PROGRAM, 3, Procedure::Create.number(), &args)
        });
        let replies = [0, 1].map(|index| exchange(&mut peers[index], &records[index]));
        let handles = replies.each_ref().map(|reply| {
            let created = decoded::<proc::create::Reply>(&results(reply).1).into_result().unwrap();
            created.object.unwrap()
        });
        assert_ne!(handles[0], handles[1], "{loops:x?}: each loop has created its own file");
        for index in [0, 1] {
            assert_eq!(exchange(&mut peers[index], &records[index]), replies[index], "{loops:x?}");
        }
    }
    assert_eq!(replayed(&server.statistics(), "CREATE"), 2 * LOOPS_ALIKE.len() as u64);
}

#[test]
fn a_late_write_does_not_undo_a_newer_one() {
    let server = group();
    let addresses = server.addresses();
    for (credential, xid, is_ours) in
        [(credential(5, b"other", 0, 0), 0x1234_0000, false), (own_credential(98), 0x4000_0100, true)]
    {
        let mut first = Peer::with_credential(addresses[0], credential.clone());
        let mut second = Peer::with_credential(addresses[1], credential);
        let root = first.mnt(b"/export").unwrap();
        let file = first.create(root, b"f").object.unwrap();
        // A short WRITE, and one whose data are received in place.
        for (step, len) in [(0, 100_usize), (10, 50_000)] {
            let old = first.record(xid + step, nfs3::PROGRAM, 3, 7, &write_args(file, 0, &vec![1; len]));
            let new = first.record(xid + step + 1, nfs3::PROGRAM, 3, 7, &write_args(file, 0, &vec![2; len]));
            let reply = exchange(&mut first, &old);
            let written = decoded::<proc::write::Reply>(&results(&reply).1).into_result().unwrap();
            exchange(&mut first, &new);
            if !is_ours {
                first.reset();
            }
            let late = exchange(&mut second, &old);
            let late = decoded::<proc::write::Reply>(&results(&late).1).into_result().unwrap();
            assert_eq!((late.count, late.verifier), (written.count, written.verifier));
            assert!(second.read(file, 0, len as u32).unwrap().0 == vec![2; len], "{len}");
        }
    }
    assert_eq!(replayed(&server.statistics(), "WRITE"), 4);
}

#[test]
fn a_replayed_failure_has_the_same_status() {
    let server = group();
    let addresses = server.addresses();
    let mut first = Peer::with_credential(addresses[0], own_credential(97));
    let mut second = Peer::with_credential(addresses[1], own_credential(97));
    let root = first.mnt(b"/export").unwrap();
    let new_attributes = Sattr3 { size: Some(5), ..Sattr3::default() };
    let args = encoded(&proc::setattr::Args { object: root, new_attributes, guard: None });
    let record = first.record(0x4000_0001, nfs3::PROGRAM, 3, Procedure::SetAttr.number(), &args);
    let original = decoded::<proc::setattr::Reply>(&results(&exchange(&mut first, &record)).1).status();
    assert_ne!(original, Status::OK);
    let late = exchange(&mut second, &record);
    assert_eq!(decoded::<proc::setattr::Reply>(&results(&late).1).status(), original);
}

#[test]
fn a_call_below_the_window_is_refused_and_not_executed() {
    let server = group();
    let mut peer = Peer::with_credential(server.addresses()[0], own_credential(96));
    let root = peer.mnt(b"/export").unwrap();
    peer.create(root, b"precious");
    let far = peer.record(0x8000_0000 + 5000, nfs3::PROGRAM, 3, 12, &remove(root, b"none"));
    exchange(&mut peer, &far);
    let stale = peer.record(0x8000_0001, nfs3::PROGRAM, 3, 12, &remove(root, b"precious"));
    let (body, _) = results(&exchange(&mut peer, &stale));
    assert_eq!(body, Body::Accepted(Accept::SystemErr));
    assert_eq!(peer.lookup(root, b"precious").status(), Status::OK);
}

#[test]
fn a_client_beyond_the_limit_gets_jukebox_until_another_has_gone() {
    let server = group();
    let address = server.addresses()[0];
    let client = |number: usize| Peer::with_credential(address, own_credential(1000 + number as u64));
    let root = client(0).mnt(b"/export").unwrap();
    let removed = |peer: &mut Peer, xid: u32| {
        let record = peer.record(0x8000_0000 + xid, nfs3::PROGRAM, 3, 12, &remove(root, b"none"));
        decoded::<proc::remove::Reply>(&results(&exchange(peer, &record)).1).status()
    };
    let mut all: Vec<Peer> = (0..drc::ADDRESS_WINDOWS_MAX).map(client).collect();
    for peer in &mut all {
        assert_eq!(removed(peer, 1), Status::NOENT);
    }
    let mut newcomer = client(all.len());
    assert_eq!(removed(&mut newcomer, 1), Status::JUKEBOX);
    assert_eq!(
        newcomer.lookup(root, b"none").status(),
        Status::NOENT,
        "calls that change nothing are served"
    );
    drop(all.pop());
    let mut xid = 1;
    testkit::Deadline::wait_until("the window of the last client to be free", PATIENCE, || {
        xid += 1;
        (removed(&mut newcomer, xid) == Status::NOENT).then_some(())
    });
}

#[test]
fn the_same_xid_of_another_caller_is_another_call() {
    let server = group();
    let mut first = Peer::new(server.addresses()[0]);
    let mut second = Peer::with_credential(server.addresses()[0], credential(2, b"test", 0, 0));
    let root = first.mnt(b"/export").unwrap();
    first.create(root, b"f");
    let record = first.record(77, nfs3::PROGRAM, 3, 12, &remove(root, b"f"));
    exchange(&mut first, &record);
    let record = second.record(77, nfs3::PROGRAM, 3, 12, &remove(root, b"f"));
    let (_, results) = results(&exchange(&mut second, &record));
    assert_eq!(decoded::<proc::remove::Reply>(&results).status(), Status::NOENT);
}
