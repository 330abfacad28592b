//! Tests many connections, and clients that do not read.

use crate::peer::{PATIENCE, Peer, config, credential, encoded, eventually, pattern, start};
use nfs3::{Procedure, proc};
use server::Server;
use server::statistics::ConnectionStatistics;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

#[test]
fn a_client_that_never_reads_holds_bounded_memory_and_delays_no_other() {
    let mut config = config();
    config.loops = Some(1);
    config.limits.queued_bytes_max = 4 << 20;
    let server = Server::start(config).unwrap();
    let address = server.addresses()[0];
    let mut peer = Peer::new(address);
    let root = peer.mnt(b"/export").unwrap();
    let file = peer.create(root, b"f").object.unwrap();
    peer.write(file, 0, &pattern(1 << 20, 3));

    let mut greedy = Peer::new(address);
    let args = crate::peer::encoded(&proc::read::Args { file, offset: 0, count: 1 << 20 });
    let calls: Vec<u8> = (0..200).flat_map(|xid| greedy.record(xid, nfs3::PROGRAM, 3, 6, &args)).collect();
    greedy.stream.write_all(&calls).unwrap();
    let queued = || {
        let statistics = server.statistics();
        statistics.nodes[0].connections.iter().map(|connection| connection.queued_bytes).max().unwrap()
    };
    eventually("the queue fills", || queued() > 2 << 20);
    for _ in 0..50 {
        assert!(peer.read(file, 0, 4096).is_ok());
        assert!(queued() <= (4 << 20) + (1 << 20) + 1024, "{}", queued());
    }
    // Once the client reads, all its calls are answered, in order.
    for xid in 0..200_u32 {
        let reply = greedy.receive();
        assert_eq!(reply[..4], xid.to_be_bytes());
        assert!(reply.len() > 1 << 20);
    }
}

#[test]
fn clients_that_never_read_stay_within_the_limit_together() {
    const CLIENTS: usize = 12;
    const BOUND: usize = 8 << 20;
    let mut config = config();
    config.loops = Some(1);
    config.limits.held_bytes_max = BOUND;
    let server = Server::start(config).unwrap();
    let address = server.addresses()[0];
    let mut peer = Peer::new(address);
    let root = peer.mnt(b"/export").unwrap();
    let file = peer.create(root, b"f").object.unwrap();
    peer.write(file, 0, &pattern(1 << 20, 3));

    let args = crate::peer::encoded(&proc::read::Args { file, offset: 0, count: 1 << 20 });
    let mut greedy: Vec<Peer> = (0..CLIENTS).map(|_| Peer::new(address)).collect();
    for client in &mut greedy {
        let calls: Vec<u8> = (0..20).flat_map(|xid| client.record(xid, nfs3::PROGRAM, 3, 6, &args)).collect();
        client.stream.write_all(&calls).unwrap();
    }
    let queued = || {
        let statistics = server.statistics();
        statistics.nodes[0].connections.iter().map(|connection| connection.queued_bytes).sum::<usize>()
    };
    // They have one address, which gets half of the memory.
    eventually("the bound is reached", || queued() >= BOUND / 4);
    for _ in 0..50 {
        assert!(peer.read(file, 0, 4096).is_ok(), "a client that holds little memory is served");
        // Each connection has a little of its own.
        assert!(queued() <= BOUND / 2 + CLIENTS * (16 << 10), "{}", queued());
    }
    for client in &mut greedy {
        for xid in 0..20_u32 {
            assert_eq!(client.receive()[..4], xid.to_be_bytes());
        }
    }
}

#[test]
fn records_that_never_end_stay_within_the_limit_together() {
    const BOUND: usize = 4 << 20;
    let mut config = config();
    config.loops = Some(1);
    config.limits.held_bytes_max = BOUND;
    // Much longer than a whole record takes on a busy machine.
    config.limits.partial_record_ms_max = 4000;
    let server = Server::start(config).unwrap();
    let address = server.addresses()[0];
    let mut peer = Peer::new(address);
    let root = peer.mnt(b"/export").unwrap();
    let file = peer.create(root, b"f").object.unwrap();
    let data = pattern(1 << 20, 3);
    let half = peer.record(9, nfs3::PROGRAM, 3, 7, &crate::peer::write_args(file, 0, &data));
    // Eight of these records would hold twice the limit. All their connections are closed in the
    // end, and the memory is free again.
    let greedy: Vec<Peer> = (0..8).map(|_| Peer::new(address)).collect();
    for client in &greedy {
        (&client.stream).write_all(&half[..half.len() / 4]).unwrap();
    }
    eventually("the connections were accepted and closed", || {
        let node = &server.statistics().nodes[0];
        node.accepted == 9 && node.connections.len() == 1
    });
    assert!(peer.write(file, 0, &data).into_result().is_ok());
}

#[test]
fn more_calls_than_a_turn_takes_are_all_answered() {
    let (_server, address) = start();
    let mut peer = Peer::new(address);
    let calls: Vec<u8> = (0..3000).flat_map(|xid| peer.record(xid, nfs3::PROGRAM, 3, 0, &[])).collect();
    let mut sender = peer.stream.try_clone().unwrap();
    let sending = std::thread::spawn(move || sender.write_all(&calls).unwrap());
    for xid in 0..3000_u32 {
        assert_eq!(peer.receive()[..4], xid.to_be_bytes());
    }
    sending.join().unwrap();
}

#[test]
fn a_thousand_idle_connections_are_held_and_one_is_served() {
    let (server, address) = start();
    let idle: Vec<_> = (0..1000).map(|_| Peer::new(address)).collect();
    let mut peer = Peer::new(address);
    assert!(peer.mnt(b"/export").is_ok());
    eventually("all connections are accepted", || server.statistics().nodes[0].connections.len() == 1001);
    let statistics = server.statistics();
    let on_first =
        statistics.nodes[0].connections.iter().filter(|connection| connection.on_loop == 0).count();
    assert!((450..=550).contains(&on_first), "spread over the loops: {on_first}");
    drop(idle);
    eventually("the connections end", || server.statistics().nodes[0].connections.len() == 1);
}

/// The statistics of a connection, which may be moving between two loops when it is looked up.
fn of_address(server: &Server, peer: std::net::SocketAddr) -> ConnectionStatistics {
    eventually_some("the connection", || {
        let mut connections = server.statistics().nodes.swap_remove(0).connections;
        connections.retain(|connection| connection.peer == peer);
        connections.pop()
    })
}

fn connection_of(server: &Server, peer: &Peer) -> ConnectionStatistics {
    of_address(server, peer.stream.local_addr().unwrap())
}

fn eventually_some<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let mut found = None;
    eventually(what, || {
        found = look();
        found.is_some()
    });
    found.unwrap()
}

fn loop_of(server: &Server, peer: &Peer) -> usize {
    connection_of(server, peer).on_loop
}

/// Two connections on the first loop, and no others.
fn two_of_a_loop(server: &Server) -> [Peer; 2] {
    let address = server.addresses()[0];
    let mut peers: Vec<Peer> = (0..4).map(|_| Peer::new(address)).collect();
    let count = || server.statistics().nodes[0].connections.len();
    eventually("the connections", || count() == 4);
    peers.retain(|peer| loop_of(server, peer) == 0);
    eventually("the other connections have ended", || count() == 2);
    peers.try_into().map_err(|_| "two of four were on each loop").unwrap()
}

fn getattr(peer: &mut Peer, object: nfs3::FileHandle) {
    assert!(peer.getattr(object).into_result().is_ok());
}

#[test]
fn connections_that_call_for_files_are_spread_and_those_that_mount_are_not() {
    let (server, address) = start();
    let [mut one, mut other] = two_of_a_loop(&server);
    // Any number of idle connections on the loop does not count.
    let idle: Vec<Peer> = (0..6).map(|_| Peer::new(address)).collect();
    eventually("the idle connections are accepted", || server.statistics().nodes[0].connections.len() == 8);
    let root = one.mnt(b"/export").unwrap();
    assert!(other.mnt(b"/export").is_ok());
    assert_eq!([loop_of(&server, &one), loop_of(&server, &other)], [0, 0]);
    assert!(!connection_of(&server, &one).busy);
    let places = |one: &Peer, other: &Peer| [loop_of(&server, one), loop_of(&server, other)];
    // This happens at once, unless the machine pauses for so long that one connection is idle when
    // the other calls.
    eventually("each has a loop of its own", || {
        getattr(&mut one, root);
        getattr(&mut other, root);
        places(&one, &other)[0] != places(&one, &other)[1]
    });
    let before = places(&one, &other);
    drop(idle);
    for _ in 0..10 {
        getattr(&mut one, root);
        getattr(&mut other, root);
    }
    assert_eq!(places(&one, &other), before, "the connections stay there");
    eventually("all ten connections are counted, and none twice", || {
        server.statistics().nodes[0].accepted == 10
    });
}

/// Makes calls on a connection without a pause until it is stopped.
struct Worker {
    connection: std::net::SocketAddr,
    stop: TcpStream,
    thread: std::thread::JoinHandle<()>,
}

impl Worker {
    fn start(peer: Peer, object: nfs3::FileHandle) -> Self {
        let calls =
            peer.record(9, nfs3::PROGRAM, 3, 1, &encoded(&proc::getattr::Args { object })).repeat(100);
        let (connection, stop) = (peer.stream.local_addr().unwrap(), peer.stream.try_clone().unwrap());
        let work = move || {
            let mut peer = peer;
            while peer.stream.write_all(&calls).is_ok() && (0..100).all(|_| peer.try_receive().is_ok()) {}
        };
        Self { connection, stop, thread: std::thread::spawn(work) }
    }

    fn on_loop(&self, server: &Server) -> usize {
        of_address(server, self.connection).on_loop
    }

    fn stop(self) {
        self.stop.shutdown(std::net::Shutdown::Both).unwrap();
        self.thread.join().unwrap();
    }
}

#[test]
fn a_connection_that_was_idle_moves_to_the_loop_with_less_load() {
    let (server, _) = start();
    // This happens at once, unless the machine pauses for so long that the worker is idle too when
    // the sleeper calls.
    eventually("the connection moves to the other loop", || {
        eventually("all connections have ended", || server.statistics().nodes[0].connections.is_empty());
        let [mut sleeper, beside] = two_of_a_loop(&server);
        let root = sleeper.mnt(b"/export").unwrap();
        getattr(&mut sleeper, root);
        eventually("the sleeper is idle", || !connection_of(&server, &sleeper).busy);
        let worker = Worker::start(beside, root);
        eventually("the worker works", || of_address(&server, worker.connection).busy);
        let (before, there) = (connection_of(&server, &sleeper), worker.on_loop(&server));
        getattr(&mut sleeper, root);
        let after = connection_of(&server, &sleeper);
        worker.stop();
        // The identity and the counters of the connection move along.
        assert!(after.age >= before.age && after.id == before.id);
        assert_eq!(after.procedures.iter().find(|(name, _)| *name == "GETATTR").unwrap().1.count, 2);
        there == before.on_loop && after.on_loop != before.on_loop
    });
}

#[test]
fn busy_connections_are_balanced_between_the_loops() {
    let (server, address) = start();
    let root = Peer::new(address).mnt(b"/export").unwrap();
    let mut workers: Vec<Worker> = (0..3).map(|_| Worker::start(Peer::new(address), root)).collect();
    // Two connections share a loop. The third disconnects, so the two stay on one loop.
    let alone = eventually_some("all workers are busy", || {
        let all = server.statistics().nodes[0].connections.iter().filter(|one| one.busy).count() == 3;
        let places: Vec<usize> =
            if all { workers.iter().map(|one| one.on_loop(&server)).collect() } else { vec![] };
        (0..3).find(|at| all && places.iter().filter(|place| **place == places[*at]).count() == 1)
    });
    workers.remove(alone).stop();
    eventually("each has a loop of its own", || workers[0].on_loop(&server) != workers[1].on_loop(&server));
    workers.into_iter().for_each(Worker::stop);
}

#[test]
fn a_busy_connection_does_not_displace_idle_ones() {
    let mut config = config();
    config.limits.connections_max = 20;
    let server = Server::start(config).unwrap();
    let address = server.addresses()[0];
    let mut worker = Peer::new(address);
    let root = worker.mnt(b"/export").unwrap();
    let mut idle: Vec<Peer> = Vec::new();
    for count in 2..=20 {
        getattr(&mut worker, root);
        idle.push(Peer::new(address));
        eventually("the connection is accepted", || server.statistics().nodes[0].connections.len() == count);
    }
    getattr(&mut worker, root);
    idle.iter_mut().for_each(|peer| getattr(peer, root));
}

#[test]
fn at_the_limit_the_longest_idle_connection_is_closed_for_a_new_one() {
    let mut config = config();
    config.loops = Some(1);
    config.limits.connections_max = 3;
    let server = Server::start(config).unwrap();
    let address = server.addresses()[0];
    let begun = Instant::now();
    let mut oldest = Peer::new(address);
    oldest.mnt(b"/export").unwrap();
    let mut others = [Peer::new(address), Peer::new(address)];
    others.iter_mut().for_each(|peer| assert!(peer.mnt(b"/export").is_ok()));
    // No connection has been idle for a second yet, so the new connection is refused, unless this
    // took longer.
    let mut one_more = Peer::new(address);
    let null = one_more.record(1, nfs3::PROGRAM, 3, 0, &[]);
    let served = one_more.stream.write_all(&null).is_ok() && one_more.try_receive().is_ok();
    assert!(!served || begun.elapsed().as_millis() >= 1000, "there was no room for another connection");
    drop(one_more);
    eventually("the oldest has been idle", || {
        others.iter_mut().for_each(|peer| drop(peer.nfs(Procedure::Null, &())));
        let statistics = server.statistics();
        statistics.nodes[0].connections.iter().any(|connection| connection.idle.as_millis() > 1100)
    });
    assert!(Peer::new(address).mnt(b"/export").is_ok());
    assert!(oldest.is_closed());
    others.iter_mut().for_each(|peer| assert!(peer.mnt(b"/export").is_ok()));
}

/// A connection from another address of this host.
fn connect_from(source: [u8; 4], to: SocketAddr) -> Peer {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((source, 0)).into()).unwrap();
    socket.connect(&to.into()).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    Peer { stream: socket.into(), credential: credential(1, b"test", 0, 0), next_xid: 1 }
}

fn null(peer: &mut Peer) -> bool {
    let call = peer.record(77, nfs3::PROGRAM, 3, 0, &[]);
    std::io::Write::write_all(&mut peer.stream, &call).is_ok() && peer.try_receive().is_ok()
}

#[test]
fn strangers_shut_out_no_client_and_end_no_connection_of_one() {
    const CONNECTIONS: usize = 16;
    let mut config = config();
    (config.loops, config.limits.connections_max) = (Some(1), CONNECTIONS);
    config.exports[0].allow = vec!["127.0.0.1".parse().unwrap()];
    let server = Server::start(config).unwrap();
    let address = server.addresses()[0];
    let mut client = Peer::new(address);
    let root = client.mnt(b"/export").unwrap();
    // All strangers work all the time, so that none is idle.
    let mut strangers: Vec<Peer> = Vec::new();
    for _ in 0..4 * CONNECTIONS {
        strangers.push(connect_from([127, 0, 0, 2], address));
        strangers.iter_mut().rev().take(4).for_each(|stranger| {
            let _ = null(stranger);
        });
        assert!(client.getattr(root).into_result().is_ok());
    }
    let mut others: Vec<Peer> = Vec::new();
    for _ in 1..CONNECTIONS {
        let mut other = Peer::new(address);
        assert_eq!(other.mnt(b"/export"), Ok(root));
        others.push(other);
    }
    assert!(others.iter_mut().all(null) && null(&mut client), "all clients are still connected");
}

#[test]
fn an_address_with_more_than_half_of_the_connections_gives_way_to_others() {
    const CONNECTIONS: usize = 16;
    let mut config = config();
    (config.loops, config.limits.connections_max) = (Some(1), CONNECTIONS);
    config.exports[0].allow = vec!["127.0.0.0/8".parse().unwrap()];
    let server = Server::start(config).unwrap();
    let address = server.addresses()[0];
    let mut greedy: Vec<Peer> = (0..CONNECTIONS).map(|_| connect_from([127, 0, 0, 2], address)).collect();
    assert!(greedy.iter_mut().all(null));
    let mut others: Vec<Peer> = (0..CONNECTIONS / 2 - 1)
        .map(|_| {
            // None of them is idle for the second after which a connection may give way.
            let mut other = connect_from([127, 0, 0, 3], address);
            assert!(null(&mut other));
            other
        })
        .collect();
    assert!(others.iter_mut().all(null));
    assert_eq!(greedy.iter_mut().filter_map(|peer| null(peer).then_some(())).count(), CONNECTIONS / 2 + 1);
}

#[test]
fn several_addresses_with_all_connections_do_not_shut_out_another() {
    const CONNECTIONS: usize = 16;
    let mut config = config();
    (config.loops, config.limits.connections_max) = (Some(1), CONNECTIONS);
    let server = Server::start(config).unwrap();
    let address = server.addresses()[0];
    let mut greedy: Vec<Peer> =
        (0..CONNECTIONS).map(|at| connect_from([127, 0, 0, 2 + (at % 2) as u8], address)).collect();
    // Each holds half, and none is idle for the second after which a connection may give way.
    assert!(greedy.iter_mut().all(null));
    let mut others: Vec<Peer> = (0..3).map(|_| connect_from([127, 0, 0, 9], address)).collect();
    assert!(others.iter_mut().all(null));
    let kept = greedy.iter_mut().filter_map(|peer| null(peer).then_some(())).count();
    assert_eq!(kept, CONNECTIONS - 3, "each newcomer took one place");
}

#[test]
fn an_address_with_many_connections_takes_no_idle_one_of_another() {
    const CONNECTIONS: usize = 8;
    let mut config = config();
    (config.loops, config.limits.connections_max) = (Some(1), CONNECTIONS);
    let server = Server::start(config).unwrap();
    let address = server.addresses()[0];
    let mut client = connect_from([127, 0, 0, 9], address);
    assert!(null(&mut client));
    let mut greedy: Vec<Peer> =
        (1..CONNECTIONS).map(|at| connect_from([127, 0, 0, 2 + (at % 2) as u8], address)).collect();
    eventually("the client is idle, and the others are not", || {
        assert!(greedy.iter_mut().all(null));
        connection_of(&server, &client).idle > std::time::Duration::from_millis(1100)
    });
    for _ in 0..CONNECTIONS {
        let mut refused = connect_from([127, 0, 0, 2], address);
        // The last of the others may be idle on a busy machine, and gives way then.
        let _ = null(&mut refused);
    }
    assert!(null(&mut client), "the client is still connected");
}

#[test]
fn a_flood_of_short_calls_whose_replies_are_not_read_queues_a_bounded_number() {
    let mut config = config();
    config.loops = Some(1);
    let server = Server::start(config).unwrap();
    let address = server.addresses()[0];
    let mut failure_reporter = Peer::new(address);
    let root = failure_reporter.mnt(b"/export").unwrap();
    let flood = Peer::new(address);
    let calls: Vec<u8> = (0..500).flat_map(|xid| flood.record(xid, nfs3::PROGRAM, 3, 0, &[])).collect();
    flood.stream.set_nonblocking(true).unwrap();
    let mut stream = &flood.stream;
    let mut sent = 0;
    // Sends until the server receives no more; then its own buffers and the system's are full.
    let mut held = || {
        while let Ok(bytes) = stream.write(&calls[sent..]) {
            sent = (sent + bytes) % calls.len();
        }
        let statistics = server.statistics();
        let all = &statistics.nodes[0].connections;
        all.iter().map(|connection| connection.queued_bytes).max().unwrap()
    };
    let mut rounds = 0;
    eventually("the flood stops", || {
        let (before, after) = (held(), held());
        rounds = if before == after && before > 0 { rounds + 1 } else { 0 };
        rounds > 100
    });
    // A reply to NULL is 28 bytes, and 4,096 of them may wait.
    assert!(held() <= 4096 * 28, "{}", held());
    assert!(failure_reporter.getattr(root).into_result().is_ok());
}

#[test]
fn a_flood_of_calls_gets_one_turn_for_each_round_of_the_loop() {
    let mut config = config();
    config.loops = Some(1);
    let server = Server::start(config).unwrap();
    let address = server.addresses()[0];
    let done = std::sync::atomic::AtomicBool::new(false);
    let mut failure_reporter = Peer::new(address);
    let root = failure_reporter.mnt(b"/export").unwrap();
    std::thread::scope(|scope| {
        let peer = Peer::new(address);
        let calls: Vec<u8> = (0..4000).flat_map(|xid| peer.record(xid, nfs3::PROGRAM, 3, 0, &[])).collect();
        let (done, reader, stop) =
            (&done, peer.stream.try_clone().unwrap(), peer.stream.try_clone().unwrap());
        scope.spawn(move || {
            let mut room = vec![0; 1 << 20];
            while std::io::Read::read(&mut &reader, &mut room).is_ok_and(|count| count > 0) {}
        });
        scope.spawn(move || {
            while !done.load(std::sync::atomic::Ordering::Relaxed) && (&peer.stream).write_all(&calls).is_ok()
            {
            }
        });
        eventually("the flood has begun", || server.statistics().nodes[0].connections.len() == 2);
        for _ in 0..300 {
            assert!(failure_reporter.getattr(root).into_result().is_ok());
        }
        // In each round of the loop the flood has at most one turn, which is 512 calls.
        let statistics = server.statistics();
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        stop.shutdown(std::net::Shutdown::Both).unwrap();
        let calls: u64 = statistics.nodes[0].procedures.iter().map(|(_, slot)| slot.count).sum();
        let wakeups = statistics.loops[0].wakeups;
        assert!(calls <= 513 * (wakeups + 2), "{calls} calls in {wakeups} rounds");
    });
}
