//! Tests calls in the worker pool: other clients are served meanwhile, the limits hold, and no call
//! is executed twice or lost.

#[path = "support/latched.rs"]
mod latched;
#[path = "support/peer.rs"]
mod peer;

use latched::{BUG, Latch, Latched};
use nfs3::{FileHandle, Procedure, Wire, proc};
use peer::{Peer, SOON, create_args, encoded, getattr_args};
use server::{Config, NodeId, Server};
use std::net::SocketAddr;
use std::time::Duration;
use testkit::Deadline;
use xdr::Reader;

/// Calls of one connection that may be in the worker pool, as in
/// `crates/server/src/runtime/worker_pool.rs`.
const FLIGHT_CALLS_MAX: usize = 128;
const MEM: &str = "/mem";
const SLOW: &str = "/slow";
const OTHER: &str = "/other";

fn config(workers: usize, nodes: usize) -> Config {
    let listens: Vec<SocketAddr> = vec!["127.0.0.1:0".parse().unwrap(); nodes];
    let mut config = Config::quick(64 << 20, MEM, &listens);
    config.loops = Some(1);
    config.workers = workers;
    config.limits.stall_ms_max = 600_000;
    config.exports[0].root_squash = false;
    for (path, fsid) in [(SLOW, 2), (OTHER, 3)] {
        let mut export = config.exports[0].clone();
        (export.path, export.fsid) = (path.to_owned(), fsid);
        config.exports.push(export);
    }
    config
}

/// A server with one export in memory, one behind the latch `slow`, and one behind an open latch.
fn serve(config: Config, slow: &Latch) -> Server {
    let start = Server::start_with(config, |export| match export.path.as_str() {
        SLOW => Some(Latched::new(slow)),
        OTHER => Some(Latched::new(&Latch::default())),
        _ => None,
    });
    start.unwrap()
}

fn pool_calls(server: &Server) -> usize {
    let nodes = server.statistics().nodes;
    nodes.iter().flat_map(|node| &node.connections).map(|connection| connection.pool_calls).sum()
}

fn wait_until(what: &str, look: impl Fn() -> bool) {
    Deadline::wait_until(what, SOON, || look().then_some(()));
}

fn getattr_mode(results: &[u8]) -> u32 {
    let reply = proc::getattr::Reply::decode(&mut Reader::new(results)).unwrap();
    reply.into_result().unwrap().attributes.mode
}

#[test]
fn a_loop_serves_others_while_calls_wait_and_replies_may_be_reordered() {
    let latch = Latch::closed();
    let server = serve(config(2, 1), &latch);
    let address = server.addresses()[0];
    let mut waiting = Peer::of_ours(address, 7);
    let (slow, mem) = (waiting.mount(SLOW), waiting.mount(MEM));
    waiting.call(10, Procedure::GetAttr, &getattr_args(slow));
    waiting.call(11, Procedure::GetAttr, &getattr_args(mem));
    assert_eq!(waiting.receive().0, 11, "the next call does not wait");
    let mut other = Peer::foreign(address);
    let made = other.exchange(12, Procedure::Create, &create_args(mem, b"f"));
    assert_eq!(made[..4], [0; 4], "another connection of the loop is served");
    assert_eq!((pool_calls(&server), latch.done()), (1, 0));
    latch.open();
    let (xid, results) = waiting.receive();
    assert_eq!((xid, getattr_mode(&results) != 0), (10, true));
    wait_until("the call to have left the pool", || pool_calls(&server) == 0);
    let of_getattr = server.statistics().nodes[0].procedures.of("GETATTR").unwrap().clone();
    assert_eq!((of_getattr.count, of_getattr.latency_ns.len()), (2, 2));
}

#[test]
fn one_connection_does_not_occupy_all_workers() {
    let latch = Latch::closed();
    let server = serve(config(2, 1), &latch);
    let address = server.addresses()[0];
    let mut greedy = Peer::of_ours(address, 7);
    let slow = greedy.mount(SLOW);
    for xid in 10..30 {
        greedy.call(xid, Procedure::GetAttr, &getattr_args(slow));
    }
    wait_until("all its calls to be in the pool", || pool_calls(&server) == 20);
    let mut other = Peer::of_ours(address, 8);
    let elsewhere = other.mount(OTHER);
    other.exchange(40, Procedure::GetAttr, &getattr_args(elsewhere));
    assert_eq!(latch.waiting(), 1, "one worker is free for others");
    latch.open();
    let mut answered: Vec<u32> = (10..30).map(|_| greedy.receive().0).collect();
    answered.sort_unstable();
    assert_eq!(answered, (10..30).collect::<Vec<_>>());
}

#[test]
fn a_connection_at_its_limit_is_not_received_from_and_loses_no_call() {
    let latch = Latch::closed();
    let server = serve(config(4, 1), &latch);
    let address = server.addresses()[0];
    let mut peer = Peer::of_ours(address, 7);
    let slow = peer.mount(SLOW);
    let calls = 3 * u32::try_from(FLIGHT_CALLS_MAX).unwrap();
    for xid in 10..10 + calls {
        peer.call(xid, Procedure::GetAttr, &getattr_args(slow));
    }
    wait_until("the bound", || pool_calls(&server) == FLIGHT_CALLS_MAX);
    for _ in 0..20 {
        Peer::foreign(address).null();
        assert_eq!(pool_calls(&server), FLIGHT_CALLS_MAX, "no more calls are received");
    }
    latch.open();
    let mut answered: Vec<u32> = (0..calls).map(|_| peer.receive().0).collect();
    answered.sort_unstable();
    assert_eq!(answered, (10..10 + calls).collect::<Vec<_>>());
}

#[test]
fn the_size_of_read_replies_counts_against_the_limit_of_a_connection() {
    let latch = Latch::closed();
    let mut config = config(2, 1);
    config.limits.queued_bytes_max = 4 << 20;
    let server = serve(config, &latch);
    let mut peer = Peer::of_ours(server.addresses()[0], 7);
    let file = peer.mount(SLOW);
    for xid in 10..20 {
        peer.call(xid, Procedure::Read, &encoded(&proc::read::Args { file, offset: 0, count: 1 << 20 }));
    }
    wait_until("the bound", || pool_calls(&server) == 4);
    Peer::foreign(server.addresses()[0]).null();
    assert_eq!(pool_calls(&server), 4);
    latch.open();
    (10..20).for_each(|_| drop(peer.receive()));
}

/// Sends a call of a client, then the same call on another connection while the first waits.
fn replay_while_it_waits(peer: impl Fn(SocketAddr) -> Peer) {
    let latch = Latch::closed();
    let server = serve(config(4, 1), &latch);
    let address = server.addresses()[0];
    let (mut original, mut replay) = (peer(address), peer(address));
    let directory = original.mount(SLOW);
    let args = create_args(directory, b"once");
    original.call(0x8000_0001, Procedure::Create, &args);
    wait_until("the original to wait", || latch.waiting() == 1);
    replay.call(0x8000_0001, Procedure::Create, &args);
    replay.null();
    assert_eq!((latch.waiting(), pool_calls(&server)), (1, 1), "the replay is attached, not executed");
    latch.open();
    let (xid, results) = replay.receive();
    assert_eq!(
        (xid, &results[..4]),
        (0x8000_0001, &[0; 4][..]),
        "the reply goes to the connection of the replay"
    );
    original.null();
    assert_eq!(latch.done(), 1);
}

#[test]
fn a_replay_of_a_call_in_the_worker_pool_is_attached_and_not_executed() {
    replay_while_it_waits(|address| Peer::of_ours(address, 7));
}

#[test]
fn a_retry_after_a_reset_is_attached_to_its_call_in_the_worker_pool() {
    let latch = Latch::closed();
    let server = serve(config(4, 1), &latch);
    let address = server.addresses()[0];
    let (mut original, mut retry) = (Peer::foreign(address), Peer::foreign(address));
    let directory = original.mount(SLOW);
    let args = create_args(directory, b"once");
    original.call(1, Procedure::Create, &args);
    wait_until("the original to wait", || latch.waiting() == 1);
    original.reset();
    wait_until("the end of the connection to be noticed", || {
        server.statistics().nodes[0].connections.len() == 1
    });
    retry.call(1, Procedure::Create, &args);
    retry.null();
    assert_eq!(latch.waiting(), 1, "attached, not executed");
    latch.open();
    let (xid, results) = retry.receive();
    assert_eq!((xid, &results[..4], latch.done()), (1, &[0; 4][..], 1));
}

#[test]
fn a_neighbours_identical_call_waits_for_the_first_and_is_executed() {
    let latch = Latch::closed();
    let server = serve(config(4, 1), &latch);
    let address = server.addresses()[0];
    let (mut first, mut second) = (Peer::foreign(address), Peer::foreign(address));
    let directory = first.mount(SLOW);
    let args = create_args(directory, b"once");
    first.call(1, Procedure::Create, &args);
    wait_until("the first to wait", || latch.waiting() == 1);
    second.call(1, Procedure::Create, &args);
    second.null();
    latch.open();
    assert_eq!(first.receive().1[..4], [0; 4]);
    assert_eq!(second.receive().1[..4], nfs3::Status::EXIST.0.to_be_bytes());
    assert_eq!(latch.done(), 2);
}

#[test]
fn a_call_of_a_closed_connection_is_in_the_reply_cache() {
    let latch = Latch::closed();
    let server = serve(config(4, 1), &latch);
    let address = server.addresses()[0];
    let mut gone = Peer::of_ours(address, 7);
    let directory = gone.mount(SLOW);
    let args = create_args(directory, b"once");
    gone.call(0x8000_0001, Procedure::Create, &args);
    wait_until("the call to wait", || latch.waiting() == 1);
    drop(gone);
    latch.open();
    wait_until("the call to be done", || latch.done() == 1);
    let mut again = Peer::of_ours(address, 7);
    let results = again.exchange(0x8000_0001, Procedure::Create, &args);
    assert_eq!(results[..4], [0; 4], "not EXIST: the call did not run twice");
    assert_eq!(latch.done(), 1);
}

#[test]
fn a_stopped_node_executes_no_more_calls_and_they_run_on_the_node_that_gets_them_next() {
    let latch = Latch::closed();
    let server = serve(config(2, 2), &latch);
    let (first, second) = (server.node_addresses(NodeId(0))[0], server.node_addresses(NodeId(1))[0]);
    let mut peer = Peer::of_ours(first, 7);
    let directory = peer.mount(SLOW);
    for (xid, name) in [(0x8000_0001, b"a"), (0x8000_0002, b"b"), (0x8000_0003, b"c")] {
        peer.call(xid, Procedure::Create, &create_args(directory, name));
    }
    wait_until("its calls to be in the pool", || pool_calls(&server) == 3 && latch.waiting() == 1);
    server.stop_node(NodeId(0)).unwrap();
    assert!(peer.try_receive().is_none(), "the connection is reset");
    latch.open();
    let mut elsewhere = Peer::of_ours(second, 7);
    for (xid, name) in [(0x8000_0001, b"a"), (0x8000_0002, b"b"), (0x8000_0003, b"c")] {
        let results = elsewhere.exchange(xid, Procedure::Create, &create_args(directory, name));
        assert_eq!(results[..4], [0; 4], "{xid:#x}");
    }
    assert_eq!(latch.done(), 3, "each call runs once");
}

#[test]
fn calls_of_a_connection_that_its_client_reset_are_not_begun_and_the_reply_cache_forgets_them() {
    let latch = Latch::closed();
    let server = serve(config(2, 1), &latch);
    let address = server.addresses()[0];
    let mut peer = Peer::of_ours(address, 7);
    let directory = peer.mount(SLOW);
    let calls = [(0x8000_0001, b"a"), (0x8000_0002, b"b"), (0x8000_0003, b"c")];
    for (xid, name) in calls {
        peer.call(xid, Procedure::Create, &create_args(directory, name));
    }
    wait_until("its calls to be in the pool", || pool_calls(&server) == 3 && latch.waiting() == 1);
    peer.reset();
    wait_until("the end of the connection to be noticed", || {
        server.statistics().nodes[0].connections.is_empty()
    });
    let mut again = Peer::of_ours(address, 7);
    for (xid, name) in calls {
        again.call(xid, Procedure::Create, &create_args(directory, name));
    }
    wait_until("the first to be attached, and the others to begin anew", || pool_calls(&server) == 2);
    latch.open();
    for _ in calls {
        assert_eq!(again.receive().1[..4], [0; 4]);
    }
    assert_eq!(latch.done(), 3, "each call runs once");
}

#[test]
fn a_drain_waits_for_calls_in_the_worker_pool() {
    let latch = Latch::closed();
    let server = serve(config(2, 1), &latch);
    let address = server.addresses()[0];
    let mut peer = Peer::of_ours(address, 7);
    let directory = peer.mount(SLOW);
    for (xid, name) in [(0x8000_0001, b"a"), (0x8000_0002, b"b")] {
        peer.call(xid, Procedure::Create, &create_args(directory, name));
    }
    wait_until("its calls to be in the pool", || pool_calls(&server) == 2);
    let draining = std::thread::spawn(move || server.drain(SOON));
    wait_until("the drain to begin", || std::net::TcpStream::connect(address).is_err());
    latch.open();
    let mut answered = [peer.receive().0, peer.receive().0];
    answered.sort_unstable();
    assert_eq!(answered, [0x8000_0001, 0x8000_0002]);
    assert!(peer.try_receive().is_none());
    draining.join().unwrap();
}

#[test]
fn a_half_closed_connection_still_gets_its_replies() {
    let latch = Latch::closed();
    let server = serve(config(2, 1), &latch);
    let mut peer = Peer::of_ours(server.addresses()[0], 7);
    let slow = peer.mount(SLOW);
    peer.call(10, Procedure::GetAttr, &getattr_args(slow));
    wait_until("the call to wait", || latch.waiting() == 1);
    peer.stream.shutdown(std::net::Shutdown::Write).unwrap();
    Peer::foreign(server.addresses()[0]).null();
    latch.open();
    assert_eq!(peer.receive().0, 10);
    assert!(peer.try_receive().is_none());
}

#[test]
fn a_drain_without_time_does_not_wait_for_a_store_that_hangs() {
    let latch = Latch::closed();
    let server = serve(config(2, 1), &latch);
    let mut peer = Peer::of_ours(server.addresses()[0], 7);
    let slow = peer.mount(SLOW);
    peer.call(10, Procedure::GetAttr, &getattr_args(slow));
    wait_until("the call to wait", || latch.waiting() == 1);
    server.drain(Duration::ZERO);
    assert!(peer.try_receive().is_none());
    latch.open();
}

#[test]
fn a_panic_in_a_worker_ends_its_connection_and_no_other() {
    let latch = Latch::default();
    let server = serve(config(2, 1), &latch);
    let address = server.addresses()[0];
    let (mut unlucky, mut other) = (Peer::of_ours(address, 7), Peer::of_ours(address, 8));
    let directory = unlucky.mount(SLOW);
    for id in 0..4 {
        unlucky.call(0x8000_0001, Procedure::Create, &create_args(directory, BUG));
        assert!(unlucky.try_receive().is_none(), "the connection ends");
        other.exchange(10 + id, Procedure::GetAttr, &getattr_args(directory));
        // There are more bugs than workers: each worker survives.
        unlucky = Peer::of_ours(address, 100 + u64::from(id));
    }
    assert_eq!(server.statistics().loops[0].bugs, 4);
    let mut again = Peer::of_ours(address, 7);
    let results = again.exchange(0x8000_0001, Procedure::Create, &create_args(directory, BUG));
    assert_eq!(
        results[..4],
        nfs3::Status::SERVERFAULT.0.to_be_bytes(),
        "the effect of the call is not known"
    );
}

fn write_and_read_back(peer: &mut Peer, file: FileHandle) {
    let mut xid = 0x4000_0000;
    // Lengths below and above the one from which data are received in place.
    for (offset, len) in [(0, 4096), (4096, 64 << 10), (70_000, 1 << 20)] {
        let data: Vec<u8> = (0..len).map(|at: u32| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let stable = proc::write::Stable::Unstable;
        let head = proc::write::Args { file, offset, count: len, stable, data_len: len };
        xid += 1;
        let results = peer.exchange(xid, Procedure::Write, &[encoded(&head), data.clone()].concat());
        let written = proc::write::Reply::decode(&mut Reader::new(&results)).unwrap().into_result().unwrap();
        assert_eq!(written.count, len);
        let results =
            peer.exchange(5, Procedure::Read, &encoded(&proc::read::Args { file, offset, count: len }));
        assert_eq!(results[..4], [0; 4]);
        assert!(results.ends_with(&data), "{len} bytes at {offset}");
    }
}

fn create(peer: &mut Peer, directory: FileHandle, name: &[u8]) -> FileHandle {
    let results = peer.exchange(0x8000_0009, Procedure::Create, &create_args(directory, name));
    let made = proc::create::Reply::decode(&mut Reader::new(&results)).unwrap();
    made.into_result().unwrap().object.unwrap()
}

#[test]
fn data_are_written_and_read_by_workers_or_by_the_loop_itself() {
    let latch = Latch::default();
    let start = Server::start_with(config(2, 1), |export| match export.path.as_str() {
        SLOW => Some(Latched::new(&latch)),
        OTHER => Some(Latched::warm(&latch)),
        _ => None,
    });
    let server = start.unwrap();
    let address = server.addresses()[0];
    for (mut peer, name) in [(Peer::of_ours(address, 7), b"f"), (Peer::foreign(address), b"g")] {
        let directory = peer.mount(SLOW);
        let file = create(&mut peer, directory, name);
        write_and_read_back(&mut peer, file);
    }
    assert_eq!(latch.done(), 14, "each client: a create, three writes and three reads");
    let mut peer = Peer::of_ours(address, 8);
    let directory = peer.mount(OTHER);
    let file = create(&mut peer, directory, b"f");
    latch.close();
    write_and_read_back(&mut peer, file);
    peer.exchange(6, Procedure::GetAttr, &getattr_args(file));
    assert_eq!((latch.waiting(), latch.done()), (0, 15), "only the create passed the latch");
    latch.open();
}
