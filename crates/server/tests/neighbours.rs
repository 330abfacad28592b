//! Clients at one address whose xids start at 0 send the same calls. RFC 1813 s4.5: a retry is
//! answered from the reply cache, and a neighbour's call is executed. All calls here have the same
//! xid, credential and arguments.

#[path = "support/peer.rs"]
mod peer;

use nfs3::{DirOpArgs, FileHandle, Procedure, Sattr3, Status, Wire, proc};
use peer::{Peer, SOON, create_args, encoded, getattr_args};
use server::{Config, Server};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use testkit::Deadline;
use xdr::Reader;

const XID: u32 = 5;
const EXPORT: &str = "/export";

fn serve(loops: usize) -> (Server, SocketAddr) {
    let mut config = Config::quick(64 << 20, EXPORT, &["127.0.0.1:0".parse().unwrap()]);
    config.loops = Some(loops);
    config.limits.stall_ms_max = 600_000;
    config.exports[0].root_squash = false;
    let server = Server::start(config).unwrap();
    let address = server.addresses()[0];
    (server, address)
}

/// A client at an address or port other than the system would choose.
fn client_at(local: SocketAddr, server: SocketAddr) -> std::io::Result<Peer> {
    let stream = transport::socket::connect_within(Some(local), server, Duration::from_secs(60))?;
    Ok(Peer::over(stream, 7, b"elsewhere"))
}

fn replayed(server: &Server) -> u64 {
    let nodes = server.statistics().nodes;
    nodes.iter().flat_map(|node| node.procedures.iter().map(|(_, one)| one.replayed)).sum()
}

fn at(directory: FileHandle, name: &[u8]) -> DirOpArgs<'_> {
    DirOpArgs { directory, name }
}

fn status(results: &[u8]) -> Status {
    Status(u32::from_be_bytes(results[..4].try_into().unwrap()))
}

/// Creates a file, and returns its handle.
fn file(peer: &mut Peer, directory: FileHandle, name: &[u8]) -> FileHandle {
    peer.exchange(100, Procedure::Create, &create_args(directory, name));
    let results =
        peer.exchange(101, Procedure::Lookup, &encoded(&proc::lookup::Args { what: at(directory, name) }));
    proc::lookup::Reply::decode(&mut Reader::new(&results)).unwrap().into_result().unwrap().object
}

fn write_args(file: FileHandle, data: [u8; 4]) -> Vec<u8> {
    let stable = proc::write::Stable::FileSync;
    let head = proc::write::ArgsHead { file, offset: 0, count: 4, stable, data_len: 4 };
    [encoded(&head), data.to_vec()].concat()
}

fn data_of(peer: &mut Peer, file: FileHandle) -> Vec<u8> {
    let results =
        peer.exchange(102, Procedure::Read, &encoded(&proc::read::Args { file, offset: 0, count: 4 }));
    results[results.len() - 4..].to_vec()
}

/// A call that must not run twice for one client, and its result when it is executed after another
/// client has executed it.
struct Case {
    procedure: Procedure,
    args: Vec<u8>,
    executed_again: Status,
}

/// One case for each procedure, on objects with this number.
fn cases(peer: &mut Peer, root: FileHandle, number: u32) -> Vec<Case> {
    let name = |what: &str| format!("{what}{number}").into_bytes();
    let attributes = Sattr3::default();
    let case = |procedure, executed_again, args| Case { procedure, args, executed_again };
    let linked = file(peer, root, &name("linked"));
    let guarded = file(peer, root, &name("guarded"));
    let results = peer.exchange(103, Procedure::GetAttr, &getattr_args(guarded));
    let got = proc::getattr::Reply::decode(&mut Reader::new(&results)).unwrap().into_result().unwrap();
    let guard = Some(got.attributes.ctime);
    let new_attributes = Sattr3 { mode: Some(0o600), ..Sattr3::default() };
    for gone in ["removed", "from"] {
        file(peer, root, &name(gone));
    }
    let (gone, made, from, to) = (name("rmdir"), name("made"), name("from"), name("to"));
    peer.exchange(
        104,
        Procedure::MkDir,
        &encoded(&proc::mkdir::Args { location: at(root, &gone), attributes }),
    );
    let fifo = proc::mknod::What::Fifo(attributes);
    vec![
        case(Procedure::Create, Status::EXIST, create_args(root, &name("created"))),
        case(
            Procedure::MkDir,
            Status::EXIST,
            encoded(&proc::mkdir::Args { location: at(root, &made), attributes }),
        ),
        case(
            Procedure::SymLink,
            Status::EXIST,
            encoded(&proc::symlink::Args {
                location: at(root, &name("symlink")),
                attributes,
                target: b"there",
            }),
        ),
        case(
            Procedure::MkNod,
            Status::EXIST,
            encoded(&proc::mknod::Args { location: at(root, &name("fifo")), what: fifo }),
        ),
        case(
            Procedure::Remove,
            Status::NOENT,
            encoded(&proc::remove::Args { object: at(root, &name("removed")) }),
        ),
        case(Procedure::RmDir, Status::NOENT, encoded(&proc::rmdir::Args { object: at(root, &gone) })),
        case(
            Procedure::Rename,
            Status::NOENT,
            encoded(&proc::rename::Args { from: at(root, &from), to: at(root, &to) }),
        ),
        case(
            Procedure::Link,
            Status::EXIST,
            encoded(&proc::link::Args { file: linked, link: at(root, &name("link")) }),
        ),
        case(
            Procedure::SetAttr,
            Status::NOT_SYNC,
            encoded(&proc::setattr::Args { object: guarded, new_attributes, guard }),
        ),
    ]
}

#[test]
fn a_nonidempotent_call_is_executed_for_each_of_two_neighbours() {
    let (server, address) = serve(2);
    let (mut first, mut second) = (Peer::foreign(address), Peer::foreign(address));
    let root = first.mount(EXPORT);
    for case in cases(&mut first, root, 0) {
        let Case { procedure, args, executed_again } = case;
        assert_eq!(status(&first.exchange(XID, procedure, &args)), Status::OK, "{procedure:?}");
        assert_eq!(status(&second.exchange(XID, procedure, &args)), executed_again, "{procedure:?}");
        // Each client gets its own reply to its own retry.
        assert_eq!(status(&first.exchange(XID, procedure, &args)), Status::OK, "{procedure:?} again");
        assert_eq!(status(&second.exchange(XID, procedure, &args)), executed_again, "{procedure:?} again");
    }
    assert_eq!(replayed(&server), 2 * 9);
}

#[test]
fn a_nonidempotent_call_repeated_after_a_reset_is_answered_from_the_cache() {
    let (server, address) = serve(2);
    let mut setup = Peer::foreign(address);
    let root = setup.mount(EXPORT);
    for case in cases(&mut setup, root, 0) {
        let Case { procedure, args, .. } = case;
        let mut first = Peer::foreign(address);
        let answer = first.exchange(XID, procedure, &args);
        assert_eq!(status(&answer), Status::OK, "{procedure:?}");
        first.reset();
        assert_eq!(Peer::foreign(address).exchange(XID, procedure, &args), answer, "{procedure:?}");
    }
    assert_eq!(replayed(&server), 9);
}

#[test]
fn after_a_reset_with_an_unread_reply_the_same_call_is_a_retry() {
    let (server, address) = serve(2);
    let mut setup = Peer::foreign(address);
    let root = setup.mount(EXPORT);
    for round in 0..20 {
        let args = create_args(root, format!("f{round}").as_bytes());
        let mut first = Peer::foreign(address);
        first.call(XID, Procedure::Create, &args);
        // The call is executed before the retry arrives.
        let mut byte = [0];
        assert_eq!(first.stream.peek(&mut byte).unwrap(), 1);
        // The system resets a connection that is closed with an unread reply.
        drop(first);
        assert_eq!(status(&Peer::foreign(address).exchange(XID, Procedure::Create, &args)), Status::OK);
    }
    assert_eq!(replayed(&server), 20);
}

#[test]
fn an_exclusive_create_and_a_write_of_a_neighbour_are_executed() {
    let (server, address) = serve(2);
    let (mut first, mut second) = (Peer::foreign(address), Peer::foreign(address));
    let root = first.mount(EXPORT);
    let how = proc::create::How::Exclusive([9; 8]);
    let exclusive = encoded(&proc::create::Args { location: at(root, b"exclusive"), how });
    let file = file(&mut first, root, b"written");
    let data = write_args(file, *b"same");
    for (step, procedure, args) in [(1, Procedure::Create, &exclusive), (2, Procedure::Write, &data)] {
        assert_eq!(status(&first.exchange(XID, procedure, args)), Status::OK);
        let between = write_args(file, *b"else");
        assert_eq!(status(&first.exchange(XID + step, Procedure::Write, &between)), Status::OK);
        assert_eq!(status(&second.exchange(XID, procedure, args)), Status::OK);
    }
    assert_eq!((replayed(&server), data_of(&mut first, file)), (0, b"same".to_vec()));
    // A retry of the first client changes nothing: its newer write counts.
    second.reset();
    let mut again = Peer::foreign(address);
    assert_eq!(status(&again.exchange(XID + 3, Procedure::Write, &write_args(file, *b"newe"))), Status::OK);
    assert_eq!(status(&again.exchange(XID, Procedure::Write, &data)), Status::OK);
    assert_eq!((replayed(&server), data_of(&mut first, file)), (1, b"newe".to_vec()));
}

#[test]
fn after_an_orderly_close_the_same_call_is_no_retry() {
    let (server, address) = serve(2);
    let mut setup = Peer::foreign(address);
    let root = setup.mount(EXPORT);
    let args = create_args(root, b"f");
    let mut first = Peer::foreign(address);
    assert_eq!(status(&first.exchange(XID, Procedure::Create, &args)), Status::OK);
    drop(first);
    assert_eq!(status(&Peer::foreign(address).exchange(XID, Procedure::Create, &args)), Status::EXIST);
    // This client closes its sending side first. The server's system learns only after the close
    // what the client has received.
    let args = create_args(root, b"g");
    let mut first = Peer::foreign(address);
    first.call(XID, Procedure::Create, &args);
    first.stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(status(&first.receive().1), Status::OK);
    assert!(first.try_receive().is_none(), "the server then closes too");
    assert_eq!(status(&Peer::foreign(address).exchange(XID, Procedure::Create, &args)), Status::EXIST);
    assert_eq!(replayed(&server), 0);
}

#[test]
fn the_same_call_from_another_address_is_no_retry() {
    let (server, address) = serve(2);
    let other: IpAddr = [127, 0, 0, 2].into();
    let mut setup = Peer::foreign(address);
    let root = setup.mount(EXPORT);
    for (name, is_reset) in [(b"f", false), (b"g", true)] {
        let args = create_args(root, name);
        let mut first = Peer::foreign(address);
        assert_eq!(status(&first.exchange(XID, Procedure::Create, &args)), Status::OK);
        let kept = if is_reset {
            first.reset();
            None
        } else {
            Some(first)
        };
        let mut elsewhere = client_at(SocketAddr::new(other, 0), address).unwrap();
        assert_eq!(status(&elsewhere.exchange(XID, Procedure::Create, &args)), Status::EXIST);
        drop(kept);
    }
    assert_eq!(replayed(&server), 0);
}

#[test]
fn a_client_that_reads_no_reply_retries_on_another_connection() {
    let (server, address) = serve(2);
    let mut first = Peer::foreign(address);
    let root = first.mount(EXPORT);
    let long = file(&mut first, root, b"long");
    let size = Sattr3 { size: Some(4 << 20), ..Sattr3::default() };
    let args = encoded(&proc::setattr::Args { object: long, new_attributes: size, guard: None });
    assert_eq!(status(&first.exchange(105, Procedure::SetAttr, &args)), Status::OK);
    // More data than the systems buffer, and less than the server queues.
    for _ in 0..7 {
        first.call(
            106,
            Procedure::Read,
            &encoded(&proc::read::Args { file: long, offset: 0, count: 1 << 20 }),
        );
    }
    let args = create_args(root, b"f");
    first.call(XID, Procedure::Create, &args);
    let mut second = Peer::foreign(address);
    let lookup = encoded(&proc::lookup::Args { what: at(root, b"f") });
    Deadline::wait_until("it to be made", SOON, || {
        (status(&second.exchange(107, Procedure::Lookup, &lookup)) == Status::OK).then_some(())
    });
    assert_eq!(status(&second.exchange(XID, Procedure::Create, &args)), Status::OK, "not EXIST");
    assert_eq!(replayed(&server), 1);
}

#[test]
fn many_neighbours_in_step_each_get_their_own_replies() {
    const CLIENTS: usize = 8;
    const CALLS: u32 = 6;
    let (server, address) = serve(2);
    let root = Peer::foreign(address).mount(EXPORT);
    let mut clients: Vec<Peer> = (0..CLIENTS).map(|_| Peer::foreign(address)).collect();
    for xid in 0..CALLS {
        let args = create_args(root, format!("f{xid}").as_bytes());
        for client in &mut clients {
            client.call(xid, Procedure::Create, &args);
        }
        let made =
            clients.iter_mut().filter_map(|client| (status(&client.receive().1) == Status::OK).then_some(()));
        assert_eq!(made.count(), 1, "one of the clients creates the file");
    }
    assert_eq!(replayed(&server), 0);
}
