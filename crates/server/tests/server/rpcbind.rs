//! Tests registration by program number: over TCP and UDP, on this server or with the host's
//! rpcbind.

use crate::peer::{PATIENCE, Peer, config, credential};
use rpc::Xid;
use rpc::portmap;
use server::{Config, Server};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use testkit::{Deadline, free_port, temp_dir};
use xdr::{Reader, Writer};

const TCP: u32 = 6;
const UDP: u32 = 17;
const GETPORT: u32 = 3;

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn call(program: u32, version: u32, procedure: u32, args: &[u8]) -> Vec<u8> {
    let (mut out, credential) = (Vec::new(), credential(1, b"host", 0, 0));
    rpc::call::encode(&mut Writer::new(&mut out), Xid(5), program, version, procedure, &credential);
    out.extend_from_slice(args);
    out
}

/// Sends a datagram and returns the reply.
fn exchange(address: SocketAddr, call: &[u8]) -> Vec<u8> {
    let socket = UdpSocket::bind(if address.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" }).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.send_to(call, address).unwrap();
    let mut reply = vec![0; 10_000];
    let (len, from) = socket.recv_from(&mut reply).unwrap();
    assert_eq!((from, &reply[..4]), (address, &words(&[5])[..]));
    reply.truncate(len);
    reply
}

fn local(port: u16) -> SocketAddr {
    ([127, 0, 0, 1], port).into()
}

#[test]
fn ports_are_returned_over_udp_and_tcp_and_mount_answers_datagrams() {
    let mut config = config();
    let port = free_port();
    config.rpcbind = Some(port);
    let server = Server::start(config).unwrap();
    let address = server.addresses()[0];
    assert_eq!(server.addresses().len(), 1, "the port of rpcbind belongs to no node");
    let asked = |program, protocol| words(&[program, 3, protocol, 0]);
    for (program, protocol, expected) in [
        (nfs3::PROGRAM, TCP, address.port()),
        (nfs3::mount::PROGRAM, TCP, address.port()),
        (nfs3::mount::PROGRAM, UDP, address.port()),
        (nfs3::PROGRAM, UDP, 0),
        (nlm::PROGRAM, TCP, address.port()),
        (nlm::PROGRAM, UDP, address.port()),
        (nlm::nsm::PROGRAM, UDP, address.port()),
        (100_011, UDP, 0),
    ] {
        let args = asked(program, protocol);
        let reply = exchange(local(port), &call(portmap::PROGRAM, 2, GETPORT, &args));
        assert_eq!(reply[24..], words(&[expected.into()]), "{program} by {protocol}");
        let mut peer = Peer::new(local(port));
        let (_, results) = peer.call_any(portmap::PROGRAM, 2, GETPORT, &args);
        assert_eq!(results, words(&[expected.into()]), "{program} by {protocol}");
    }
    let mount =
        exchange(address, &call(nfs3::mount::PROGRAM, 3, 1, &[&words(&[7])[..], b"/export\0"].concat()));
    assert_eq!(mount[20..28], [0; 8], "accepted, and OK");
    let exports = exchange(address, &call(nfs3::mount::PROGRAM, 3, 5, &[]));
    assert!(exports.windows(7).any(|bytes| bytes == b"/export"));
    let nfs = exchange(address, &call(nfs3::PROGRAM, 3, 0, &[]));
    assert_eq!(nfs[20..24], words(&[1]), "PROG_UNAVAIL");
    // A datagram that is not a call gets no reply, and does no harm.
    UdpSocket::bind("127.0.0.1:0").unwrap().send_to(&[1; 7], address).unwrap();
    exchange(address, &call(nfs3::mount::PROGRAM, 3, 0, &[]));
}

#[test]
fn over_ipv6_versions_3_and_4_return_universal_addresses_and_mount_answers_datagrams() {
    let mut config = config();
    config.nodes[0].listen = vec!["[::1]:0".parse().unwrap()];
    config.exports[0].allow.push("::1/128".parse().unwrap());
    let port = free_port();
    config.rpcbind = Some(port);
    let server = Server::start(config).unwrap();
    let address = server.addresses()[0];
    let of = |port: u16| format!("::1.{}.{}", port >> 8, port & 255);
    let portmap_at = SocketAddr::new(address.ip(), port);
    let asked = |program, netid: &str| {
        let mut args = words(&[program, 3]);
        [netid, "", ""].iter().for_each(|text| Writer::new(&mut args).opaque(text.as_bytes()));
        args
    };
    let text =
        |results: &[u8]| String::from_utf8(Reader::new(results).opaque(100).unwrap().to_vec()).unwrap();
    for version in [3, 4] {
        for (program, netid, expected) in [
            (nfs3::PROGRAM, "tcp6", of(address.port())),
            (nfs3::mount::PROGRAM, "tcp6", of(address.port())),
            (nfs3::mount::PROGRAM, "udp6", of(address.port())),
            (portmap::PROGRAM, "udp6", of(port)),
            (nfs3::PROGRAM, "udp6", String::new()),
            (nfs3::PROGRAM, "tcp", String::new()),
            (nfs3::PROGRAM, "rdma6", String::new()),
            (nfs3::PROGRAM, "carrier pigeon", String::new()),
        ] {
            let call = call(portmap::PROGRAM, version, GETPORT, &asked(program, netid));
            assert_eq!(text(&exchange(portmap_at, &call)[24..]), expected, "{program} by {netid}");
        }
        let (_, listed) = Peer::new(portmap_at).call_any(portmap::PROGRAM, version, 4, &[]);
        let has = |text: &str| listed.windows(text.len()).any(|bytes| bytes == text.as_bytes());
        assert!(has("tcp6") && has("udp6") && has(&of(address.port())), "{listed:?}");
    }
    let path = [&words(&[7])[..], b"/export\0"].concat();
    assert_eq!(
        exchange(address, &call(nfs3::mount::PROGRAM, 3, 1, &path))[20..28],
        [0; 8],
        "accepted, and OK"
    );
    // A datagram that is not a call gets no reply, and does no harm.
    UdpSocket::bind("[::1]:0").unwrap().send_to(&[1; 7], portmap_at).unwrap();
    exchange(portmap_at, &call(portmap::PROGRAM, 4, 0, &[]));
}

#[test]
fn an_export_that_admits_no_client_refuses_datagrams_too() {
    let mut config = config();
    config.rpcbind = Some(free_port());
    config.exports[0].allow.clear();
    let server = Server::start(config).unwrap();
    let path = [&words(&[7])[..], b"/export\0"].concat();
    let mount = exchange(server.addresses()[0], &call(nfs3::mount::PROGRAM, 3, 1, &path));
    assert_eq!(mount[24..28], words(&[nfs3::Status::ACCES.0]));
}

/// The sender of a datagram may be forged: what is sent to it must not be more than it sent.
#[test]
fn an_address_that_no_export_admits_gets_no_datagram_longer_than_its_own() {
    const DUMP: u32 = 4;
    let mut config = config();
    let port = free_port();
    config.rpcbind = Some(port);
    config.exports[0].allow.clear();
    let server = Server::start(config).unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut reply = [0; 10_000];
    let exports = call(nfs3::mount::PROGRAM, 3, 5, &[]);
    for (at, longer) in
        [(local(port), call(portmap::PROGRAM, 2, DUMP, &[])), (server.addresses()[0], exports)]
    {
        socket.send_to(&longer, at).unwrap();
        let mut null = call(portmap::PROGRAM, 2, 0, &[]);
        null[..4].copy_from_slice(&words(&[6]));
        socket.send_to(&null, local(port)).unwrap();
        let (len, from) = socket.recv_from(&mut reply).unwrap();
        if len > longer.len() {
            panic!("{len} bytes from {from} for {}", longer.len());
        }
        // Datagrams are served in their order, so the first reply says what became of the list: a
        // short one may be answered, as that of no export is.
        if from == local(port) {
            assert_eq!(reply[..4], words(&[6]), "the list was not answered");
        }
    }
}

#[test]
fn without_rpcbind_the_port_mapper_program_is_not_served() {
    let server = Server::start(config()).unwrap();
    let mut peer = Peer::new(server.addresses()[0]);
    let (body, _) = peer.call_any(portmap::PROGRAM, 2, GETPORT, &words(&[nfs3::PROGRAM, 3, TCP, 0]));
    assert_eq!(body, rpc::reply::Body::Accepted(rpc::reply::Accept::ProgUnavail));
}

/// Starts the rpcbind of another program, which answers `yes` to all calls. Returns its port, and
/// the procedures and programs of the calls that it received.
fn host_rpcbind(yes: bool, asked: usize) -> (u16, std::thread::JoinHandle<Vec<(u32, u32)>>) {
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let socket = UdpSocket::bind(local(port)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let serve = move || {
        let _listener = listener;
        let (mut seen, mut last) = (Vec::new(), Vec::new());
        while seen.len() < asked {
            let mut bytes = [0; 1000];
            let (len, from) = socket.recv_from(&mut bytes).unwrap();
            let mut reader = Reader::new(&bytes[..len]);
            let header = rpc::call::decode(&mut reader).unwrap();
            assert_eq!((header.program, header.version), (portmap::PROGRAM, 2));
            // On a slow host the same call may be sent again.
            if bytes[..len] != last {
                seen.push((header.procedure, reader.u32().unwrap()));
                last = bytes[..len].to_vec();
            }
            let mut reply = Vec::new();
            rpc::reply::encode_success(&mut Writer::new(&mut reply), header.xid);
            reply.extend(words(&[yes.into()]));
            socket.send_to(&reply, from).unwrap();
        }
        seen
    };
    (port, std::thread::spawn(serve))
}

#[test]
fn programs_register_with_the_hosts_rpcbind_and_unregister_at_the_end() {
    let (port, host) = host_rpcbind(true, 8);
    let mut config = config();
    config.nlm = false;
    config.rpcbind = Some(port);
    let server = Server::start(config).unwrap();
    assert!(Peer::new(server.addresses()[0]).mnt(b"/export").is_ok());
    drop(server);
    // Versions 3 and 4, and MOUNT over TCP and UDP.
    let (nfs, mount) = (nfs3::PROGRAM, nfs3::mount::PROGRAM);
    let entries = [nfs, nfs, mount, mount];
    let of = |procedure| entries.map(|program| (procedure, program));
    let expected = [of(portmap::SET), of(portmap::UNSET)].concat();
    assert_eq!(host.join().unwrap(), expected);
}

#[test]
fn an_error_says_that_the_hosts_rpcbind_has_another_server() {
    let (port, host) = host_rpcbind(false, 1);
    let mut config = config();
    config.rpcbind = Some(port);
    let text = Server::start(config).unwrap_err().to_string();
    assert!(
        text.contains("cannot register with this host's rpcbind") && text.contains("program 100003 by tcp"),
        "{text}"
    );
    host.join().unwrap();
}

#[test]
fn one_process_of_a_group_is_registered_and_the_next_when_it_ends() {
    let (place, port) = (temp_dir("found"), free_port());
    std::fs::create_dir(place.path().join("served")).unwrap();
    let start = || {
        let (served, state) = (place.path().join("served"), place.path().join("state"));
        let mut config = Config::quick_dir(&served, Some(&state), "/export", &[local(0)]);
        config.group = Some(place.path().join("group"));
        config.rpcbind = Some(port);
        Server::start(config).unwrap()
    };
    let (first, second) = (start(), start());
    assert_eq!((first.is_registered(), second.is_registered()), (Some(true), Some(false)));
    let told = || {
        let args = words(&[nfs3::PROGRAM, 3, TCP, 0]);
        let reply = exchange(local(port), &call(portmap::PROGRAM, 2, GETPORT, &args));
        let (_, results) = Peer::new(local(port)).call_any(portmap::PROGRAM, 2, GETPORT, &args);
        assert_eq!(reply[24..], results);
        results
    };
    let port_of = |server: &Server| words(&[server.addresses()[0].port().into()]);
    assert_eq!(told(), port_of(&first));
    // The waiting server answers MOUNT over UDP at its own address, and has not replaced the
    // registration of the other server.
    exchange(second.addresses()[0], &call(nfs3::mount::PROGRAM, 3, 0, &[]));
    drop(first);
    Deadline::wait_until("the second to be found", PATIENCE, || second.is_registered()?.then_some(()));
    assert_eq!(told(), port_of(&second));
    // The next server takes over: an orderly end leaves nothing registered.
    second.drain(PATIENCE);
    let third = start();
    assert_eq!((third.is_registered(), told()), (Some(true), port_of(&third)));
}

#[test]
fn mount_answers_datagrams_in_the_place_of_a_process_that_has_ended() {
    let (place, port) = (temp_dir("in-its-place"), free_port());
    std::fs::create_dir(place.path().join("served")).unwrap();
    let start = |at: SocketAddr| {
        let (served, state) = (place.path().join("served"), place.path().join("state"));
        let mut config = Config::quick_dir(&served, Some(&state), "/export", &[at]);
        config.group = Some(place.path().join("group"));
        config.rpcbind = Some(port);
        Server::start(config).unwrap()
    };
    let address = local(free_port());
    let (first, second) = (start(address), start(local(0)));
    let null = call(nfs3::mount::PROGRAM, 3, 0, &[]);
    drop(first);
    Deadline::wait_until("the second to listen", PATIENCE, || TcpStream::connect(address).ok());
    exchange(address, &null);
    // Both sockets are free for the first again.
    let first = start(address);
    assert_eq!(first.addresses(), [address]);
    drop(second);
    exchange(address, &null);
}
