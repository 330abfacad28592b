//! Tests start, stop, drain, nodes that stop and start again, and pacing.

use crate::peer::{PATIENCE, Peer, config, pattern, start, write_args};
use nfs3::Procedure;
use server::{Error, NodeId, Server};
use std::time::{Duration, Instant};

#[test]
fn an_error_for_a_port_in_use_says_what_to_do() {
    let (_server, address) = start();
    let mut config = config();
    config.nodes[0].listen = vec![address];
    let text = Server::start(config).unwrap_err().to_string();
    assert!(text.starts_with(&format!("cannot listen on {address}\n  cause: ")), "{text}");
    assert!(text.contains("\n  try:   "), "{text}");
}

#[test]
fn an_error_for_an_unknown_congestion_control_names_the_available_ones() {
    let mut config = config();
    config.congestion = Some("warp".into());
    let text = Server::start(config).unwrap_err().to_string();
    assert!(text.contains("\"warp\"") && text.contains("on offer here: "), "{text}");
    assert!(!text.contains("No such file"), "{text}");
}

#[test]
fn an_export_that_is_larger_than_memory_or_empty_is_refused() {
    for (bytes, what) in [(0, "0 bytes"), (999 << 40, "999.0 TiB"), (u64::MAX, "more than this host has: ")] {
        let mut config = config();
        config.exports[0].store = server::StoreConfig::Mem { bytes, owner_uid: 0, owner_gid: 0 };
        let text = Server::start(config).unwrap_err().to_string();
        assert!(text.contains(what) && text.contains("\n  try:   "), "{text}");
    }
}

#[test]
fn a_drain_answers_received_calls_and_closes() {
    let (server, address) = start();
    let mut peer = Peer::new(address);
    let root = peer.mnt(b"/export").unwrap();
    let file = peer.create(root, b"f").object.unwrap();
    let data = pattern(300_000, 1);
    let calls: Vec<u8> = (0..8_u64)
        .flat_map(|at| {
            peer.record(at as u32 + 100, nfs3::PROGRAM, 3, 7, &write_args(file, at * 300_000, &data))
        })
        .collect();
    // The server's system has a short call once the call is sent; it may have only some of the long
    // calls.
    let null = peer.record(99, nfs3::PROGRAM, 3, 0, &[]);
    peer.send(&[null, calls].concat());
    server.drain(PATIENCE);
    let mut replies = 0;
    while peer.try_receive().is_ok() {
        replies += 1;
    }
    assert!(replies >= 1, "calls that had been received are answered");
    assert!(std::net::TcpStream::connect(address).is_err(), "the listener is closed");
}

#[test]
fn a_drain_with_idle_clients_does_not_wait_for_its_timeout() {
    let (server, address) = start();
    let mut peers: Vec<_> = (0..5).map(|_| Peer::new(address)).collect();
    peers.iter_mut().for_each(|peer| assert!(peer.mnt(b"/export").is_ok()));
    let (drained, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        server.drain(Duration::from_secs(3600));
        drained.send(()).unwrap();
    });
    ended.recv_timeout(PATIENCE).expect("the drain to end before its timeout");
    assert!(peers.iter_mut().all(Peer::is_closed));
}

#[test]
fn dropping_a_server_closes_its_connections_and_listeners() {
    let (server, address) = start();
    let mut peer = Peer::new(address);
    peer.mnt(b"/export").unwrap();
    drop(server);
    assert!(peer.is_closed());
    assert!(std::net::TcpStream::connect(address).is_err());
}

#[test]
fn a_stopped_node_refuses_connections_and_has_its_files_when_started_again() {
    let mut config = config();
    let mut second = config.nodes[0].clone();
    second.name = "second".into();
    config.nodes.push(second);
    // A fixed port, so that no connection of another test gets this port while the node is stopped.
    config.nodes[0].listen = vec![([127, 0, 0, 1], testkit::free_port()).into()];
    let server = Server::start(config).unwrap();
    let (first, second) = (server.addresses()[0], server.addresses()[1]);
    let mut on_first = Peer::new(first);
    let mut on_second = Peer::new(second);
    let root = on_first.mnt(b"/export").unwrap();
    on_first.create(root, b"f");
    on_second.mnt(b"/export").unwrap();

    server.stop_node(NodeId(0)).unwrap();
    assert!(on_first.is_closed());
    assert!(std::net::TcpStream::connect(first).is_err());
    assert!(on_second.lookup(root, b"f").into_result().is_ok(), "the other node has the same handles");

    server.start_node(NodeId(0)).unwrap();
    let mut again = Peer::new(first);
    assert!(again.lookup(root, b"f").into_result().is_ok());
    assert!(matches!(server.start_node(NodeId(0)), Err(Error::Listen { .. })), "the node is already running");
    assert!(matches!(server.stop_node(NodeId(7)), Err(Error::NoSuchNode(7))));
    assert_eq!(server.statistics().nodes[0].accepted, 2);
}

#[test]
fn loops_report_their_processor_time_and_threads_have_names() {
    let (server, address) = start();
    let mut peer = Peer::new(address);
    let has_schedstat = std::path::Path::new("/proc/self/schedstat").exists();
    crate::peer::eventually("both loops have woken up and used the processor", || {
        peer.nfs(Procedure::Null, &());
        let statistics = server.statistics();
        let woke_up = statistics.loops.iter().all(|one| one.thread > 0 && one.wakeups > 0);
        woke_up && (!has_schedstat || statistics.cpu_ns() > 0)
    });
    let statistics = server.statistics();
    assert_eq!(statistics.loops.len(), 2);
    let name =
        std::fs::read_to_string(format!("/proc/self/task/{}/comm", statistics.loops[1].thread)).unwrap();
    assert_eq!(name.trim(), "tl-serve-1");
}

#[test]
fn a_paced_node_sends_no_faster_over_several_connections() {
    let mut config = config();
    config.nodes[0].pace_bytes_per_s = Some(4 << 20);
    let server = Server::start(config).unwrap();
    let mut peers: Vec<_> = (0..4).map(|_| Peer::new(server.addresses()[0])).collect();
    let root = peers[0].mnt(b"/export").unwrap();
    let file = peers[0].create(root, b"f").object.unwrap();
    peers[0].write(file, 0, &pattern(1 << 20, 1));
    for peer in &mut peers {
        peer.mnt(b"/export").unwrap();
    }
    let started = Instant::now();
    std::thread::scope(|scope| {
        for peer in &mut peers {
            scope.spawn(move || assert!(peer.read(file, 0, 1 << 20).is_ok()));
        }
    });
    // 4 MiB at 4 MiB per second. The first burst is not paced, so only a part of the second is
    // certain.
    assert!(started.elapsed() > Duration::from_millis(400), "{:?}", started.elapsed());
}
