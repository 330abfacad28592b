//! Tests the back channel of a mount of version 4 against a server that the test plays: which
//! connections carry call-backs, what is answered, and that no call of a server breaks the mount.
//! RFC 8881 s2.10.3.1, s18.34, s20

#[path = "support/fake4.rs"]
mod fake4;

use std::io::Write;
use std::net::TcpStream;
use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::task::{Context, Poll, Wake};

use client::{LockKind, LockOwner, LockRange, Mount, Settings};
use fake4::{Fake, TIMEOUT};
use nfs4::cb::{Args, Back, notify, recall, sequence};
use nfs4::compound::{ReplyReader, RequestWriter};
use nfs4::op::create_session::CONN_BACK_CHAN;
use nfs4::op::lock::LockType;
use nfs4::op::sequence::flag;
use nfs4::op::{self, Reply, lock, open};
use nfs4::{Array, Bitmap, ChangeInfo, ClientId, Operation, OwnerId, SessionId, StateOwner, Stateid, Status};
use rpc::Xid;
use rpc::reply::{Accept, Body};
use testkit::Deadline;
use xdr::{Reader, Writer};

const PROGRAM: u32 = 0x4000_0000;

/// A server that calls back, with so many addresses, and a mount of it.
fn mounted(nodes: u8) -> (Fake, Mount) {
    let server = Fake::start(nodes, 64);
    server.call_back();
    let mount = Mount::with_settings(settings(&server)).unwrap();
    await_back(&server, usize::from(nodes.min(4)));
    (server, mount)
}

fn settings(server: &Fake) -> Settings {
    Settings { call_backs: true, ..server.settings() }
}

/// Waits until connections were bound so many times.
fn await_back(server: &Fake, count: usize) {
    Deadline::wait_until("back connections", TIMEOUT, || (server.back().len() >= count).then_some(()));
}

fn record(body: &[u8]) -> Vec<u8> {
    let mark = rpc::record_marking::Mark { last: true, len: u32::try_from(body.len()).unwrap() };
    [&mark.encode(), body].concat()
}

fn call(xid: u32, program: u32, procedure: u32, args: &[u8]) -> Vec<u8> {
    let (mut none, mut out) = (Vec::new(), Vec::new());
    rpc::auth::encode_none(&mut Writer::new(&mut none));
    rpc::call::encode(&mut Writer::new(&mut out), Xid(xid), program, 1, procedure, &none);
    out.extend_from_slice(args);
    record(&out)
}

/// CB_SEQUENCE in slot 0, and one more operation.
fn compound(session: SessionId, number: u32, operation: &Args<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = RequestWriter::<Back>::new(&mut out, b"", 2, 0);
    let referring = Array::default();
    writer.push(&Args::Sequence(sequence::Args {
        session,
        sequence: number,
        slot: 0,
        highest_slot: 0,
        cache: false,
        referring,
    }));
    writer.push(operation);
    writer.finish();
    out
}

fn recall_of_nothing() -> Args<'static> {
    Args::Recall(recall::Args { delegation: Stateid::default(), truncate: false, file: fake4::root() })
}

/// How the client has accepted a call, and the status of its compound if it has one.
fn outcome(answer: &[u8]) -> (u32, Body, Option<Status>) {
    let mut reader = Reader::new(answer);
    let head = rpc::reply::decode(&mut reader).unwrap();
    let status = ReplyReader::<Back>::new(reader.rest()).ok().map(|results| results.status);
    (head.xid.0, head.body, status)
}

fn send(mut to: &TcpStream, bytes: &[u8]) {
    to.write_all(bytes).unwrap();
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let (mut context, mut future) = (Context::from_waker(&waker), pin!(future));
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// The mount works: the attributes of the root are found on each of its connections.
fn works(mount: &Mount) {
    for _ in 0..8 {
        let found = block_on(mount.operations(None).getattr(mount.root())).unwrap();
        assert_eq!(found.fileid, fake4::root_attributes().fileid);
    }
}

// RFC 8881 s18.36, s18.34
#[test]
fn some_of_the_connections_carry_call_backs_and_only_if_they_are_wanted() {
    let (server, mount) = mounted(6);
    assert_eq!(server.create_flags() & CONN_BACK_CHAN, CONN_BACK_CHAN);
    works(&mount);
    assert_eq!(server.back().len(), 4);
    drop(mount);

    let server = Fake::start(2, 64);
    server.call_back();
    let mount = server.mount();
    works(&mount);
    assert_eq!((server.create_flags(), server.back().len()), (0, 0));
    assert!(!server.log().contains(&Operation::BindConnToSession));
}

#[test]
fn a_server_that_sends_no_call_backs_is_of_use_without_them() {
    let server = Fake::start(2, 64);
    let mount = Mount::with_settings(settings(&server)).unwrap();
    works(&mount);
    server.await_log(Operation::BindConnToSession, 2);
    assert!(server.back().is_empty());
}

// RFC 8881 s20, RFC 5531 s9
#[test]
fn calls_are_answered_on_the_connection_that_they_came_on() {
    let (server, mount) = mounted(1);
    let back = &server.back()[0];
    send(back, &call(1, PROGRAM, 0, &[]));
    assert_eq!(outcome(&server.answer()), (1, Body::Accepted(Accept::Success), None));
    send(back, &call(2, PROGRAM + 1, 1, &[]));
    assert_eq!(outcome(&server.answer()), (2, Body::Accepted(Accept::ProgUnavail), None));
    send(back, &call(3, PROGRAM, 1, &compound(server.session(), 1, &recall_of_nothing())));
    let answer = server.answer();
    assert_eq!(outcome(&answer), (3, Body::Accepted(Accept::Success), Some(Status::BAD_STATEID)));
    // Sent again with another xid: the same answer from the slot.
    send(back, &call(4, PROGRAM, 1, &compound(server.session(), 1, &recall_of_nothing())));
    assert_eq!(server.answer()[4..], answer[4..]);
    works(&mount);
}

#[test]
fn a_connection_that_is_lost_is_bound_again_when_it_is_back() {
    let (server, mount) = mounted(2);
    server.back()[0].shutdown(std::net::Shutdown::Both).unwrap();
    await_back(&server, 3);
    send(&server.back()[2], &call(9, PROGRAM, 0, &[]));
    assert_eq!(outcome(&server.answer()).0, 9);
    works(&mount);
}

// RFC 8881 s18.46.3 (SEQ4_STATUS_CB_PATH_DOWN, SEQ4_STATUS_BACKCHANNEL_FAULT)
#[test]
fn connections_are_bound_again_when_the_server_says_that_it_reaches_nobody() {
    for flag in [flag::CB_PATH_DOWN, flag::CB_PATH_DOWN_SESSION, flag::BACKCHANNEL_FAULT] {
        let (server, mount) = mounted(1);
        server.set_flags(flag);
        works(&mount);
        await_back(&server, 2);
        server.set_flags(0);
        works(&mount);
    }
}

#[test]
fn connections_are_bound_to_the_next_session() {
    let (server, mount) = mounted(1);
    server.lose_session();
    works(&mount);
    await_back(&server, 2);
    let back = server.back().pop().unwrap();
    send(&back, &call(1, PROGRAM, 1, &compound(server.session(), 1, &recall_of_nothing())));
    assert_eq!(outcome(&server.answer()).2, Some(Status::BAD_STATEID), "a slot of the new session");
}

// RFC 8881 s20.8
#[test]
fn a_server_that_wants_slots_back_is_told_that_they_are_free() {
    let (server, mount) = mounted(1);
    works(&mount);
    assert_eq!(server.highest_slot(), 63);
    let recalled = Args::RecallSlot(recall::SlotArgs { target_highest_slot: 7 });
    send(&server.back()[0], &call(1, PROGRAM, 1, &compound(server.session(), 1, &recalled)));
    assert_eq!(outcome(&server.answer()).2, Some(Status::OK));
    let told = || (server.highest_slot() == 7).then_some(());
    Deadline::wait_until("the highest slot", TIMEOUT, told);
}

// RFC 8881 s20.11, s18.10.3
#[test]
fn a_lock_that_is_waited_for_is_announced_and_the_listener_is_told_when_it_may_be_free() {
    let (server, mount) = mounted(1);
    let (sender, told) = channel();
    mount.on_lock_available(move |file| sender.send(file).unwrap());
    let owner = LockOwner { number: 1, of_flock: false };
    let file = fake4::root();
    std::thread::scope(|scope| {
        let operations = || mount.operations(None);
        let locks = scope.spawn(move || {
            block_on(operations().lock_to_wait(file, owner, LockRange::ALL, LockKind::Exclusive)).unwrap()
        });
        let stateid = Stateid { seqid: 1, other: [3; 12] };
        let delegation = open::Delegation::None;
        let (directory, set) = (ChangeInfo { atomic: true, before: 1, after: 1 }, Bitmap::EMPTY);
        let opened = open::Success { stateid, directory, flags: 0, set, delegation };
        server.next().reply(&[Reply::PutFh(Ok(())), Reply::Open(Ok(opened))]);
        let request = server.next();
        let Some(op::Args::Lock(args)) = request.arguments(Operation::Lock) else { panic!() };
        assert_eq!(args.lock_type, LockType::WriteWait);
        let holder = StateOwner { client: ClientId(9), owner: OwnerId::new(b"other").unwrap() };
        let conflict = lock::Conflict { range: args.range, lock_type: LockType::Write, owner: holder };
        request.reply(&[Reply::PutFh(Ok(())), Reply::Lock(lock::Outcome::Denied(conflict))]);
        // Nothing is locked, so the file is closed.
        server.next().reply(&[Reply::PutFh(Ok(())), Reply::Close(Ok(Stateid::INVALID))]);
        assert!(!locks.join().unwrap());
    });
    let waiter = StateOwner { client: ClientId(7), owner: OwnerId::new(b"fcntl 1").unwrap() };
    let notify = Args::NotifyLock(notify::LockArgs { file, owner: waiter });
    send(&server.back()[0], &call(1, PROGRAM, 1, &compound(server.session(), 1, &notify)));
    assert_eq!(outcome(&server.answer()).2, Some(Status::OK));
    assert_eq!(told.recv_timeout(TIMEOUT), Ok(file));
}

#[test]
fn a_call_that_cannot_be_read_ends_its_connection_and_the_mount_goes_on() {
    let (server, mount) = mounted(2);
    let whole = call(1, PROGRAM, 0, &[]);
    for (round, len) in [8, 20, whole.len() - 9].into_iter().enumerate() {
        let backs = server.back().len();
        send(&server.back()[backs - 1], &record(&whole[4..4 + len]));
        await_back(&server, backs + 1);
        works(&mount);
        assert_eq!(server.back().len(), backs + 1, "round {round}");
    }
}

#[test]
fn a_server_that_calls_without_end_and_reads_no_answers_loses_its_connection() {
    let (server, mount) = mounted(2);
    let back = server.back().pop().unwrap();
    // In one record batch, beyond what may wait.
    let flood = call(1, PROGRAM, 0, &[]).repeat(4096);
    let _ = (&back).write_all(&flood);
    await_back(&server, 3);
    works(&mount);
}

#[test]
fn calls_over_their_bound_are_refused_and_change_nothing() {
    let (server, mount) = mounted(1);
    let mut long = compound(server.session(), 1, &recall_of_nothing());
    long.resize(1 << 19, 0);
    send(&server.back()[0], &call(1, PROGRAM, 1, &long));
    assert_eq!(outcome(&server.answer()).2, Some(Status::REQ_TOO_BIG));
    send(&server.back()[0], &call(2, PROGRAM, 1, &compound(server.session(), 1, &recall_of_nothing())));
    assert_eq!(outcome(&server.answer()).2, Some(Status::BAD_STATEID));
    // A record of which only the head ever comes takes no memory, and holds up only its connection.
    let endless = rpc::record_marking::Mark { last: true, len: 0x7fff_ffff }.encode();
    send(&server.back()[0], &endless);
    await_back(&server, 2);
    works(&mount);
}
