//! Tests the addresses that a mount connects to and from: rpcbind, IPv6, reserved ports, and paths
//! below an export.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use client::{Error, Mount, MountError, OtherAddress, Settings};
use server::{Config, Server};

const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

fn serve(address: IpAddr) -> (Server, u16) {
    let server =
        Server::start(Config::quick(64 << 20, "/export/data", &[SocketAddr::new(address, 0)])).unwrap();
    let port = server.addresses()[0].port();
    (server, port)
}

/// Starts a service that answers each call with `answer`, which returns the words after the xid for
/// a program and version. The receiver gets the source port of each connection. The service ends
/// with the test program.
fn service(address: IpAddr, answer: fn(u32, u32, u16) -> Vec<u8>, word: u16) -> (u16, Receiver<u16>) {
    let listener = TcpListener::bind((address, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = sender.send(stream.peer_addr().unwrap().port());
            let mut mark = [0; 4];
            while stream.read_exact(&mut mark).is_ok() {
                let mut call = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
                stream.read_exact(&mut call).unwrap();
                let reply = [&call[..4], &reply(&call, answer, word)[..]].concat();
                let mark = 0x8000_0000 | reply.len() as u32;
                stream.write_all(&[&mark.to_be_bytes()[..], &reply].concat()).unwrap();
            }
        }
    });
    (port, receiver)
}

/// Forwards connections to `port`. The receiver gets the source port of each connection.
fn relay(port: u16) -> (u16, Receiver<u16>) {
    let listener = TcpListener::bind((V4, 0)).unwrap();
    let own = listener.local_addr().unwrap().port();
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let from = stream.unwrap();
            let _ = sender.send(from.peer_addr().unwrap().port());
            let to = TcpStream::connect((V4, port)).unwrap();
            for (mut from, mut to) in [(from.try_clone().unwrap(), to.try_clone().unwrap()), (to, from)] {
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Write);
                });
            }
        }
    });
    (own, receiver)
}

/// What follows the xid: the head of an accepted reply, and the result of `answer`. RFC 5531 s9
fn reply(call: &[u8], answer: fn(u32, u32, u16) -> Vec<u8>, word: u16) -> Vec<u8> {
    let at = |index: usize| u32::from_be_bytes(call[index * 4..index * 4 + 4].try_into().unwrap());
    let head = [1_u32, 0, 0, 0].map(u32::to_be_bytes).concat();
    [head, answer(at(3), at(4), word)].concat()
}

/// PROG_UNAVAIL, as a kernel server answers MOUNT calls on its NFS port.
fn unavailable(_: u32, _: u32, _: u16) -> Vec<u8> {
    1_u32.to_be_bytes().to_vec()
}

fn rpcbind(program: u32, version: u32, port: u16) -> Vec<u8> {
    assert_eq!(program, 100_000);
    let success = 0_u32.to_be_bytes().to_vec();
    if version == 2 {
        return [success, u32::from(port).to_be_bytes().to_vec()].concat();
    }
    let mut text = format!("::1.{}.{}", port >> 8, port & 255).into_bytes();
    let length = (text.len() as u32).to_be_bytes();
    text.resize(text.len().next_multiple_of(4), 0);
    [success, length.to_vec(), text].concat()
}

fn cause(result: Result<Mount, Error>) -> MountError {
    match result.unwrap_err() {
        Error::Mount { cause, .. } => cause,
        other => panic!("{other:?}"),
    }
}

#[test]
fn rpcbind_is_asked_for_mount_where_the_nfs_port_does_not_serve_it() {
    for address in [V4, V6] {
        let (_server, port) = serve(address);
        let (mount_port, _) = service(address, unavailable, 0);
        let (rpcbind_port, _) = service(address, rpcbind, port);
        let mut settings = Settings { mount_port, ..Settings::new(address, port, "/export/data") };
        assert!(matches!(cause(Mount::with_settings(settings.clone())), MountError::Protocol { .. }));
        settings.rpcbind_port = Some(rpcbind_port);
        let mount = Mount::with_settings(settings).unwrap();
        assert!(mount.attributes(mount.root()).is_ok(), "{address}");
    }
}

#[test]
fn an_rpcbind_that_answers_only_datagrams_is_sufficient() {
    let (_server, port) = serve(V4);
    let (mount_port, _) = service(V4, unavailable, 0);
    let socket = UdpSocket::bind((V4, 0)).unwrap();
    let rpcbind_port = socket.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut call = [0; 512];
        let (length, from) = socket.recv_from(&mut call).unwrap();
        let answer = [&call[..4], &reply(&call[..length], rpcbind, port)[..]].concat();
        socket.send_to(&answer, from).unwrap();
    });
    let rpcbind_port = Some(rpcbind_port);
    let settings = Settings { mount_port, rpcbind_port, ..Settings::new(V4, port, "/export/data") };
    Mount::with_settings(settings).unwrap();
}

#[test]
fn rpcbind_is_asked_for_nfs_too_if_nothing_listens_at_the_usual_port() {
    let (_server, served) = serve(V4);
    let (rpcbind_port, _) = service(V4, rpcbind, served);
    let nobody = testkit::free_port();
    let settings = Settings { rpcbind_port: Some(rpcbind_port), ..Settings::new(V4, nobody, "/export/data") };
    let with_port = cause(Mount::with_settings(settings.clone()));
    assert!(
        matches!(&with_port, MountError::Connect { address, .. } if address.port() == nobody),
        "the user named the port: {with_port:?}"
    );
    let settings = Settings { nfs_rpcbind_port: Some(rpcbind_port), ..settings };
    let mount = Mount::with_settings(settings.clone()).unwrap();
    assert_eq!(mount.port(), served);
    // The port of one host is not taken for that of another.
    let elsewhere = client::Address::from(IpAddr::from([127, 0, 0, 77]));
    let remotes = vec![elsewhere.into(), V4.into()];
    let both = Mount::with_settings(Settings { remotes, nconnect: 2, ..settings }).unwrap();
    assert_eq!(both.port(), nobody);
    mount.create_file(b"/file", 0o644).unwrap();
}

#[test]
fn an_address_of_a_name_that_does_not_answer_is_followed_by_the_next() {
    let (_server, port) = serve(V4);
    let at = |text: &str| text.parse::<client::Address>().unwrap();
    let settings = |others: &[&str]| Settings {
        other_addresses: others
            .iter()
            .map(|other| OtherAddress { address: at(other), locals: Vec::new(), congestion: None })
            .collect(),
        ..Settings::new(at("127.0.0.9"), port, "/export/data")
    };
    let mount = Mount::with_settings(settings(&["::1", "127.0.0.1", "127.0.0.8"])).unwrap();
    assert_eq!(mount.addresses(), [at("127.0.0.1")]);
    assert_eq!(mount.name(), "127.0.0.1:/export/data");
    mount.create_file(b"/file", 0o644).unwrap();
    let error = cause(Mount::with_settings(settings(&["127.0.0.8"])));
    assert!(error.to_string().starts_with(&format!("127.0.0.9:{port} ")), "the first is named: {error}");
    // A refusal is an answer: the next address is not asked.
    let refused = Settings { server: at("127.0.0.1"), export: b"/nosuch".into(), ..settings(&["127.0.0.9"]) };
    let refused = Settings { remotes: vec![at("127.0.0.1").into()], ..refused };
    assert!(matches!(cause(Mount::with_settings(refused)), MountError::Refused { .. }));
}

#[test]
fn silent_addresses_are_not_waited_for_one_after_the_other() {
    let (_server, port) = serve(V4);
    // Each accepts one connection and never answers.
    let silent: Vec<TcpListener> =
        (1..=3).map(|last| TcpListener::bind((Ipv4Addr::new(127, 0, 3, last), port)).unwrap()).collect();
    let at = |text: &str| text.parse::<client::Address>().unwrap();
    let others = ["127.0.3.2", "127.0.3.3", "127.0.0.1"].map(|other| OtherAddress {
        address: at(other),
        locals: Vec::new(),
        congestion: None,
    });
    let settings =
        Settings { other_addresses: others.to_vec(), ..Settings::new(at("127.0.3.1"), port, "/export/data") };
    std::thread::scope(|scope| {
        let mounting = scope.spawn(|| Mount::with_settings(settings).unwrap());
        let mut accepted: Vec<TcpStream> =
            silent.iter().map(|listener| listener.accept().unwrap().0).collect();
        // The client gives up on none of them before it has asked the next: it has not closed the
        // first when it asks the last.
        let first = &mut accepted[0];
        first.set_nonblocking(true).unwrap();
        let mut call = [0; 4096];
        let end = std::iter::repeat_with(|| first.read(&mut call)).find(|read| !matches!(read, Ok(1..)));
        assert!(end.unwrap().is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock));
        assert_eq!(mounting.join().unwrap().addresses(), [at("127.0.0.1")]);
    });
}

#[test]
fn an_error_says_that_the_mount_program_was_not_found_and_what_rpcbind_answered() {
    let (_server, port) = serve(V4);
    let (mount_port, _) = service(V4, unavailable, 0);
    let (knows_nothing, _) = service(V4, rpcbind, 0);
    let nobody = testkit::free_port();
    for (rpcbind_port, needle) in [(knows_nothing, "knows no MOUNT"), (nobody, "rpcbind is not there")] {
        let rpcbind_port = Some(rpcbind_port);
        let settings = Settings { mount_port, rpcbind_port, ..Settings::new(V4, port, "/export/data") };
        let error = cause(Mount::with_settings(settings));
        assert!(matches!(error, MountError::NoMountProgram { .. }), "{error:?}");
        assert!(error.to_string().contains(needle), "{error}");
    }
}

#[test]
fn two_connections_over_ipv6_carry_a_file() {
    let (_server, port) = serve(V6);
    let target = format!("nfs://[::1]:{port}/export/data?nconnect=2&proto=tcp6&localports=::1");
    let mount = Mount::connect(&target, "").unwrap();
    let data: Vec<u8> = (0..5_000_000_u32).map(|at| (at / 3) as u8).collect();
    let file = mount.create_file(b"/six", 0o644).unwrap();
    file.write_all_at(&data, 0).unwrap();
    let mut back = vec![0; data.len()];
    assert_eq!(file.read_all_at(&mut back, 0).unwrap(), data.len());
    assert!(back == data);
    let path = &mount.statistics().paths[0];
    assert_eq!(path.name, format!("::1 to [::1]:{port}"));
}

#[test]
fn the_path_below_an_export_is_separated_from_the_export() {
    let (_server, port) = serve(V4);
    let url = |path: &str| format!("nfs://127.0.0.1:{port}{path}");
    for (path, below) in [
        ("/export/data", ""),
        ("/export/data/", "/"),
        ("/export/data/a/b", "/a/b"),
        ("/export/data//a", "//a"),
    ] {
        let (mount, found) = Mount::connect_below(&url(path), "").unwrap();
        assert_eq!((mount.name().as_str(), found.as_slice()), ("127.0.0.1:/export/data", below.as_bytes()));
    }
    for path in ["/", "/export", "/export/database", "/other"] {
        let error = cause(Mount::connect_below(&url(path), "").map(|found| found.0));
        assert!(
            matches!(&error, MountError::NoExport { exports, .. } if exports == "/export/data"),
            "{error:?}"
        );
    }
}

/// Forwards calls to `port`, but answers EXPORT of MOUNT with PROC_UNAVAIL. RFC 5531 s9
fn without_exports(port: u16) -> u16 {
    let listener = TcpListener::bind((V4, 0)).unwrap();
    let own = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (mut client, mut server) = (client.unwrap(), TcpStream::connect((V4, port)).unwrap());
            while let Some(call) = record(&mut client) {
                let is_export = call[12..16] == 100_005_u32.to_be_bytes() && call[20..24] == [0, 0, 0, 5];
                if is_export {
                    let rest = [1_u32, 0, 0, 0, 3].map(u32::to_be_bytes).concat();
                    send(&mut client, &[&call[..4], &rest].concat());
                    continue;
                }
                send(&mut server, &call);
                let Some(reply) = record(&mut server) else { break };
                send(&mut client, &reply);
            }
        }
    });
    own
}

fn record(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut mark = [0; 4];
    stream.read_exact(&mut mark).ok()?;
    let mut record = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
    stream.read_exact(&mut record).ok()?;
    Some(record)
}

fn send(stream: &mut TcpStream, record: &[u8]) {
    let mark = 0x8000_0000 | record.len() as u32;
    let _ = stream.write_all(&[&mark.to_be_bytes()[..], record].concat());
}

#[test]
fn without_a_list_of_exports_the_whole_path_and_its_beginnings_are_tried() {
    let (_server, port) = serve(V4);
    let mount = Mount::with_settings(Settings::new(V4, port, "/export/data")).unwrap();
    mount.create_file(b"/file", 0o644).unwrap();
    let options = format!("mountport={}", without_exports(port));
    let target = format!("nfs://127.0.0.1:{port}/export/data/file");
    let (mount, below) = Mount::connect_below(&target, &options).unwrap();
    assert_eq!((mount.name().as_str(), below.as_slice()), ("127.0.0.1:/export/data", b"/file".as_slice()));
}

#[test]
fn resvport_binds_a_reserved_port_or_says_why_not() {
    let (port, from) = service(V4, unavailable, 0);
    let settings = Settings { reserved_port: Some(true), ..Settings::new(V4, port, "/export") };
    let error = cause(Mount::with_settings(settings.clone()));
    if !rustix::process::geteuid().is_root() {
        assert!(
            matches!(&error, MountError::Connect { source, .. }
            if source.kind() == std::io::ErrorKind::PermissionDenied),
            "{error:?}"
        );
        return;
    }
    assert!(matches!(error, MountError::Protocol { .. }), "{error:?}");
    assert!(matches!(from.recv(), Ok(665..=1023)));
    // The connections of the mount itself have reserved ports too.
    let (_server, port) = serve(V4);
    let (port, from) = relay(port);
    let mount = Mount::with_settings(Settings {
        port,
        mount_port: port,
        export: b"/export/data".into(),
        nconnect: 3,
        ..settings
    })
    .unwrap();
    assert!(mount.attributes(mount.root()).is_ok());
    // The connection of the MOUNT call, and three of the mount.
    for _ in 0..4 {
        let port = from.recv_timeout(Duration::from_secs(60)).expect("four connections");
        assert!((665..=1023).contains(&port), "{port}");
    }
}
