//! A local rpcbind that follows the protocol, and others that do not.

use super::*;
use rpc::portmap::Protocol;
use std::os::unix::net::UnixListener;
use std::thread::JoinHandle;

fn entry(program: u32, protocol: Protocol, address: &str) -> Entry {
    Entry { program, version: 3, protocol, address: address.parse().unwrap() }
}

fn entries() -> Vec<Entry> {
    vec![
        entry(nfs3::PROGRAM, Protocol::Tcp, "0.0.0.0:2049"),
        entry(nfs3::PROGRAM, Protocol::Tcp, "[::]:2049"),
        entry(nfs3::PROGRAM, Protocol::Tcp, "[fd00::2]:2050"),
        entry(nfs3::mount::PROGRAM, Protocol::Udp, "[::]:2049"),
        entry(nfs3::PROGRAM, Protocol::Rdma, "10.0.0.1:20049"),
    ]
}

/// A received call: the procedure, and its arguments.
type Asked = (u32, u32, String, String);

/// Answers `calls` calls with the result of `answer` for the call's xid and its index.
fn local_rpcbind(
    calls: usize,
    answer: impl Fn(Xid, usize) -> Vec<u8> + Send + 'static,
) -> (tempfile::TempDir, RpcbindAddress, JoinHandle<Vec<Asked>>) {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("rpcbind.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let serve = move || {
        let mut asked = Vec::new();
        for index in 0..calls {
            let mut stream = listener.accept().unwrap().0;
            let mut mark = [0; MARK_BYTES];
            stream.read_exact(&mut mark).unwrap();
            let mut call = vec![0; Mark::decode(mark).len as usize];
            stream.read_exact(&mut call).unwrap();
            let mut reader = Reader::new(&call);
            let header = rpc::call::decode(&mut reader).unwrap();
            assert_eq!((header.program, header.version), (portmap::PROGRAM, 4));
            let (program, version) = (reader.u32().unwrap(), reader.u32().unwrap());
            let mut text = || String::from_utf8(reader.opaque(100).unwrap().to_vec()).unwrap();
            assert_eq!(version, 3);
            asked.push((header.procedure, program, text(), text()));
            assert_eq!(text(), "");
            reader.finish().unwrap();
            // A peer that closed early may be gone.
            let _ = stream.write_all(&answer(header.xid, index));
        }
        asked
    };
    (dir, RpcbindAddress::Local(socket), std::thread::spawn(serve))
}

fn says(yes: bool, xid: Xid) -> Vec<u8> {
    let mut reply = Vec::new();
    rpc::reply::encode_success(&mut Writer::new(&mut reply), xid);
    reply.extend(u32::from(yes).to_be_bytes());
    [&Mark::whole(reply.len()).unwrap().encode()[..], &reply].concat()
}

#[test]
fn each_netid_is_registered_once_and_removed_at_the_end() {
    let (_dir, rpcbind, asked) = local_rpcbind(8, |xid, _| says(true, xid));
    drop(Registered::register_by(rpcbind, &entries(), None).unwrap());
    let expected = [
        (nfs3::PROGRAM, "tcp", "0.0.0.0.8.1"),
        (nfs3::PROGRAM, "tcp6", "::.8.1"),
        (nfs3::mount::PROGRAM, "udp6", "::.8.1"),
        (nfs3::PROGRAM, "rdma", "10.0.0.1.78.81"),
    ];
    let expected = [portmap::SET, portmap::UNSET].into_iter().flat_map(|procedure| {
        expected.map(|(program, netid, at)| (procedure, program, netid.to_owned(), at.to_owned()))
    });
    assert_eq!(asked.join().unwrap(), expected.collect::<Vec<_>>());
}

#[test]
fn what_was_registered_is_taken_back_when_another_server_has_a_netid() {
    let (_dir, rpcbind, asked) = local_rpcbind(5, |xid, index| says(index != 2, xid));
    let text = Registered::register_by(rpcbind, &entries(), None).unwrap_err().to_string();
    assert!(text.contains("another server for program 100005 by udp6"), "{text}");
    let asked: Vec<_> =
        asked.join().unwrap().into_iter().map(|(procedure, _, netid, _)| (procedure, netid)).collect();
    let expected = [(1, "tcp"), (1, "tcp6"), (1, "udp6"), (2, "tcp"), (2, "tcp6")];
    assert_eq!(asked, expected.map(|(procedure, netid)| (procedure, netid.to_owned())));
}

#[test]
fn answers_that_are_none_are_errors_and_cost_nothing() {
    let answers: [fn(Xid) -> Vec<u8>; 6] = [
        |_| Vec::new(),
        |xid| says(true, Xid(xid.0 ^ 1)),
        // A mark of 2 GiB without a record.
        |_| vec![0xff; 4],
        |xid| says(true, xid)[..10].to_vec(),
        // The boolean is missing or invalid.
        |xid| {
            let mut reply = says(true, xid);
            reply.truncate(28);
            reply[3] = 24;
            reply
        },
        |xid| {
            let mut reply = says(true, xid);
            *reply.last_mut().unwrap() = 2;
            reply
        },
    ];
    for answer in answers {
        let (_dir, rpcbind, asked) = local_rpcbind(1, move |xid, _| answer(xid));
        let text = Registered::register_by(rpcbind, &entries(), None).unwrap_err().to_string();
        assert!(text.starts_with("cannot register with this host's rpcbind"), "{text}");
        assert_eq!(asked.join().unwrap().len(), 1);
    }
}

#[test]
fn loopback_has_words_for_ipv4_alone() {
    let rpcbind = RpcbindAddress::Loopback(([127, 0, 0, 1], 1).into());
    let known: Vec<_> = entries().iter().map(|entry| rpcbind.can_express(entry)).collect();
    assert_eq!(known, [true, false, false, false, false]);
}

#[test]
fn what_a_killed_process_of_the_group_left_gives_way_and_another_servers_does_not() {
    let directory = tempfile::tempdir().unwrap();
    let first = GroupLock::try_lock(directory.path()).unwrap().unwrap();
    first.note(&entries()[..1]).unwrap();
    drop(first);
    let second = GroupLock::try_lock(directory.path()).unwrap().unwrap();
    // Refused, removed, set; the next entry is refused, and the first is removed again.
    let (_dir, rpcbind, asked) = local_rpcbind(5, |xid, index| says(!matches!(index, 0 | 3), xid));
    let text = Registered::register_by(rpcbind, &entries(), Some(&second)).unwrap_err().to_string();
    assert!(text.contains("another server for program 100003 by tcp6"), "{text}");
    let asked: Vec<_> =
        asked.join().unwrap().into_iter().map(|(procedure, _, netid, _)| (procedure, netid)).collect();
    let expected = [(1, "tcp"), (2, "tcp"), (1, "tcp"), (1, "tcp6"), (2, "tcp")];
    assert_eq!(asked, expected.map(|(procedure, netid)| (procedure, netid.to_owned())));
}
