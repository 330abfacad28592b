//! Input of nobody's standard, and hosts that want too much.

use super::host::{COOKIE, Host, Services, bytes, config_of, decoded, encoded, start};
use crate::nfs4::client::start_with;
use crate::peer::PATIENCE;
use nlm::proc::lock;
use nlm::{Lock, NetObj, Procedure, Status, Text, nsm};
use rpc::auth::AuthStat;
use rpc::reply::{Accept, Body, Reject};
use std::net::UdpSocket;
use testkit::free_port;
use xdr::Writer;

#[test]
fn handles_ranges_and_names_are_checked() {
    let services = Services::start(false);
    let (_server, address) = start(&services);
    let mut host = Host::new(address, "host");
    let file = host.file("file");
    let root = host.peer.mnt(b"/export").unwrap();
    assert_eq!(host.lock(root.as_slice(), 1, bytes(0, 1)), Status::FAILED, "a directory");
    for forged in [&b""[..], &[1; 32], &[0xff; 64], &[7; 1024]] {
        assert_eq!(host.lock(forged, 1, bytes(0, 1)), Status::STALE_FH);
        assert_eq!(host.unlock(forged, 1, bytes(0, 1)), Status::STALE_FH);
        assert_eq!(host.cancel(forged, 1, bytes(0, 1)), Status::STALE_FH);
    }
    let mut flipped = file.clone();
    flipped[9] ^= 1;
    assert_eq!(host.lock(&flipped, 1, bytes(0, 1)), Status::STALE_FH);
    for (offset, length) in [(u64::MAX, 2), (2, u64::MAX - 1), (1, u64::MAX - 1)] {
        let status = host.lock(&file, 1, bytes(offset, length));
        assert!(matches!(status, Status::FBIG | Status::GRANTED), "{offset} {length}: {status}");
    }
    assert_eq!(host.lock(&file, 1, bytes(u64::MAX, 2)), Status::FBIG, "beyond the last byte");
    host.name = "x".repeat(1024);
    assert_eq!(host.lock(&file, 1, bytes(0, 1)), Status::FAILED, "a name that is too long to be kept");
    host.name.clear();
    assert_eq!(host.unlock(&file, -1, bytes(0, 1)), Status::GRANTED);
}

#[test]
fn a_file_that_is_gone_is_not_locked_and_its_locks_can_be_unlocked() {
    let services = Services::start(false);
    let (_server, address) = start(&services);
    let mut host = Host::new(address, "host");
    let file = host.file("file");
    assert_eq!(host.lock(&file, 1, bytes(0, 10)), Status::GRANTED);
    let directory = host.peer.mnt(b"/export").unwrap();
    let object = nfs3::DirOpArgs { directory, name: b"file" };
    host.peer.nfs(nfs3::Procedure::Remove, &nfs3::proc::remove::Args { object });
    assert_eq!(host.lock(&file, 1, bytes(20, 10)), Status::STALE_FH);
    assert_eq!(host.unlock(&file, 1, bytes(0, 10)), Status::GRANTED);
}

#[test]
fn what_does_not_decode_is_refused_and_does_no_harm() {
    let services = Services::start(false);
    let (_server, address) = start(&services);
    let mut host = Host::new(address, "host");
    let file = host.file("file");
    let args = host.lock_args(&file, 1, bytes(0, 10), true, false);
    let garbage = Body::Accepted(Accept::GarbageArgs);
    let lock = Procedure::Lock.number();
    for len in (0..args.len()).step_by(4) {
        assert_eq!(host.peer.call_any(nlm::PROGRAM, 4, lock, &args[..len]).0, garbage, "{len} bytes");
    }
    let longer = [&args[..], &[0; 4]].concat();
    assert_eq!(host.peer.call_any(nlm::PROGRAM, 4, lock, &longer).0, garbage);
    let unavailable = Body::Accepted(Accept::ProcUnavail);
    for number in [Procedure::Granted.number(), Procedure::GrantedMsg.number(), 16, 19, 24, u32::MAX] {
        assert_eq!(host.peer.call_any(nlm::PROGRAM, 4, number, &args).0, unavailable, "{number}");
    }
    let mismatch = Body::Accepted(Accept::ProgMismatch { low: 4, high: 4 });
    assert_eq!(host.peer.call_any(nlm::PROGRAM, 3, lock, &args).0, mismatch);
    assert_eq!(host.test(&file, 2, bytes(0, 0)), Ok(()), "nothing was locked");
}

#[test]
fn hosts_that_no_export_admits_lock_nothing_and_free_nothing() {
    let services = Services::start(false);
    let mut config = config_of(&services);
    config.exports[0].allow = vec!["127.0.0.1/32".parse().unwrap()];
    config.nodes[0].listen = vec!["0.0.0.0:0".parse().unwrap()];
    let (server, _) = start_with(config);
    let port = server.addresses()[0].port();
    let mut host = Host::new(([127, 0, 0, 1], port).into(), "host");
    let file = host.file("file");
    assert_eq!(host.lock(&file, 1, bytes(0, 10)), Status::GRANTED);
    // The address by which the peer calls is the one that it calls: all of this host.
    let mut stranger = Host::new(([127, 0, 0, 2], port).into(), "host");
    stranger.peer.stream = {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.bind(&std::net::SocketAddr::from(([127, 0, 0, 2], 0)).into()).unwrap();
        socket.connect(&std::net::SocketAddr::from(([127, 0, 0, 1], port)).into()).unwrap();
        let stream: std::net::TcpStream = socket.into();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    };
    let args = stranger.lock_args(&file, 2, bytes(20, 10), false, false);
    let refused = Body::Rejected(Reject::Auth(AuthStat::TOOWEAK));
    assert_eq!(stranger.peer.call_any(nlm::PROGRAM, 4, Procedure::Lock.number(), &args).0, refused);
    stranger.notify("host");
    assert_eq!(
        host.test(&file, 2, bytes(0, 10)),
        Err((1, 0, 10)),
        "a stranger of that name has not freed it"
    );
}

#[test]
fn a_host_that_waits_for_too_much_is_told_so() {
    let services = Services::start(false);
    let (_server, address) = start(&services);
    let mut host = Host::new(address, "host");
    let file = host.file("file");
    assert_eq!(host.lock(&file, 0, bytes(0, 1)), Status::GRANTED);
    let mut waiting = 0;
    while host.wait(&file, waiting + 1, bytes(0, 1)) == Status::BLOCKED {
        waiting += 1;
        assert!(waiting < 10_000, "there is no bound");
    }
    assert_eq!(waiting, 256, "the requests of one file");
    assert_eq!(host.wait(&file, waiting + 1, bytes(0, 1)), Status::DENIED_NOLOCKS);
    host.notify("host");
    assert_eq!(host.lock(&file, 0, bytes(0, 1)), Status::GRANTED);
}

#[test]
fn the_status_monitor_monitors_for_no_other_program() {
    let services = Services::start(false);
    let (_server, address) = start(&services);
    let mut host = Host::new(address, "host");
    let mut ask = |procedure: nsm::Procedure, args: &[u8]| {
        let (body, results) = host.peer.call_any(nsm::PROGRAM, 1, procedure.number(), args);
        assert_eq!(body, Body::Accepted(Accept::Success), "{procedure:?}");
        results
    };
    let caller = nsm::monitor::Caller { name: Text(b"me"), program: 7, version: 1, procedure: 1 };
    let id = nsm::monitor::Id { host: Text(b"other"), caller };
    let mon = ask(nsm::Procedure::Mon, &encoded(&nsm::monitor::Args { id, private: [1; 16] }));
    let refused: nsm::stat::Reply = decoded(&mon);
    assert_eq!(refused.answer, nsm::stat::Answer::Failure);
    let stat = ask(nsm::Procedure::Stat, &encoded(&nsm::stat::Args { name: Text(b"other") }));
    assert_eq!(decoded::<nsm::stat::Reply>(&stat), refused);
    let unmon = ask(nsm::Procedure::Unmon, &encoded(&id));
    assert_eq!(decoded::<nsm::State>(&unmon).state, refused.state);
    let unmon = ask(nsm::Procedure::UnmonAll, &encoded(&caller));
    assert_eq!(decoded::<nsm::State>(&unmon).state, refused.state);
    assert!(ask(nsm::Procedure::SimuCrash, &[]).is_empty());
}

#[test]
fn datagrams_lock_too() {
    let services = Services::start(false);
    let mut config = config_of(&services);
    config.rpcbind = Some(free_port());
    let (_server, address) = start_with(config);
    let mut host = Host::new(address, "host");
    let file = host.file("file");
    let (caller, owner) = (Text(b"by datagram"), NetObj(b"an owner"));
    let wanted = Lock { caller, file: NetObj(&file), owner, svid: 9, offset: 0, length: 5 };
    let args = lock::Args {
        cookie: NetObj(COOKIE),
        block: false,
        exclusive: true,
        lock: wanted,
        reclaim: false,
        state: 1,
    };
    let mut call = Vec::new();
    let writer = &mut Writer::new(&mut call);
    rpc::call::encode(writer, rpc::Xid(5), nlm::PROGRAM, 4, Procedure::Lock.number(), &[0; 8]);
    writer.bytes(&encoded(&args));
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.send_to(&call, address).unwrap();
    let mut reply = [0; 1000];
    let len = socket.recv(&mut reply).unwrap();
    let reply: nlm::proc::Reply<'_> = decoded(&reply[rpc::reply::SUCCESS_BYTES..len]);
    assert_eq!(reply.status, Status::GRANTED);
    assert_eq!(host.test(&file, 1, bytes(0, 0)), Err((9, 0, 5)));
}
