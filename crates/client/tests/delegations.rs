//! Tests read delegations of a mount of version 4: against our own server, with other mounts that
//! change what is delegated, and against a server that the test plays, with recalls that come
//! early, sessions that are lost, and delegations that are revoked. RFC 8881 s10.4

#[path = "support/fake4.rs"]
mod fake4;
#[path = "support/group.rs"]
mod group;

use std::io::Write;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake};
use std::time::{Duration, Instant};

use client::options::Version;
use client::{DelegationCounts, Mount, Recalled, Settings};
use fake4::{Fake, Request, TIMEOUT};
use fs::FileHandle;
use nfs4::cb::{self, Back, recall};
use nfs4::compound::{ReplyReader, RequestWriter};
use nfs4::op::open::{self, Delegation, NoDelegation, access};
use nfs4::op::sequence::flag;
use nfs4::op::{Args, Reply, getattr, handles};
use nfs4::{Ace, Array, Attributes, Bitmap, ChangeInfo, Fattr, Operation, SessionId, Stateid, Status};
use rpc::Xid;
use server::{Config, Server};
use testkit::Deadline;
use xdr::{Reader, Writer};

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

/// A mount that may have delegations, and what is recalled of them.
struct Holder {
    mount: Mount,
    recalled: Mutex<Receiver<Recalled>>,
}

impl Holder {
    fn new(settings: Settings) -> Self {
        let mount = Mount::with_settings(Settings { call_backs: true, ..settings }).unwrap();
        let (sender, recalled) = channel();
        mount.on_recall(move |one| _ = sender.send(one));
        Deadline::wait_until("a back channel", TIMEOUT, || mount.may_be_delegated().then_some(()));
        Self { mount, recalled: Mutex::new(recalled) }
    }

    /// Opens a file, which must be delegated. Returns the number of the delegation.
    fn have(&self, file: FileHandle) -> u64 {
        let open = || block_on(self.mount.operations(None).open_delegated(file)).unwrap().1;
        let delegation = Deadline::wait_until("a delegation", TIMEOUT, open);
        assert_eq!(self.mount.delegation(file), Some(delegation));
        delegation
    }

    fn next_recalled(&self) -> Recalled {
        self.recalled.lock().unwrap().recv_timeout(TIMEOUT).expect("a recall")
    }

    fn nothing_recalled(&self) -> bool {
        self.recalled.lock().unwrap().try_recv().is_err()
    }

    fn give_back(&self, recalled: Recalled) {
        block_on(self.mount.operations(None).return_delegation(recalled)).unwrap();
    }

    fn counts(&self) -> DelegationCounts {
        self.mount.statistics().delegations
    }
}

/// A server that delegates the files of its export.
fn serve(lease: Duration) -> (Server, Vec<IpAddr>, u16) {
    group::serve(1, |listens| {
        let mut config = Config::quick(64 << 20, "/export", listens);
        config.versions = "3,4.1,4.2".parse().unwrap();
        config.exports[0].delegations = true;
        config.lease = lease;
        config
    })
}

fn settings(addresses: &[IpAddr], port: u16, version: Version) -> Settings {
    Settings { version, nconnect: 2, ..Settings::new(addresses[0], port, "/export") }
}

/// Calls of all operations that a mount has made.
fn calls(mount: &Mount) -> u64 {
    mount.statistics().paths.iter().map(|path| path.counters.metadata.calls).sum()
}

#[test]
fn others_change_a_delegated_file_when_it_is_returned_and_not_before() {
    let (_server, addresses, port) = serve(Duration::from_secs(90));
    let holder = Holder::new(settings(&addresses, port, Version::V4(Some(2))));
    for version in [Version::V4(Some(1)), Version::V3] {
        let other = Mount::with_settings(settings(&addresses, port, version)).unwrap();
        other.create_file(b"f", 0o644).unwrap().write_all_at(b"old data", 0).unwrap();
        let file = holder.mount.lookup(holder.mount.root(), b"f").unwrap().0;
        holder.have(file);
        let before = calls(&holder.mount);
        (0..1000).for_each(|_| assert!(holder.mount.delegation(file).is_some()));
        assert_eq!(calls(&holder.mount), before, "that is known here");

        let (sender, written) = channel();
        let writer = std::thread::spawn(move || {
            other.open(b"f").unwrap().write_all_at(b"new", 0).unwrap();
            sender.send(()).unwrap();
        });
        let recalled = holder.next_recalled();
        assert_eq!((recalled.file, recalled.is_about_to_change), (file, true));
        assert_eq!(holder.mount.delegation(file), None, "it is not used from the recall on");
        // The file is as it was for as long as the delegation is not returned.
        let read = || {
            let mut data = [0; 8];
            let read = holder.mount.open(b"f").unwrap().read_all_at(&mut data, 0).unwrap();
            data[..read].to_vec()
        };
        assert_eq!(read(), b"old data");
        assert!(written.recv_timeout(Duration::from_millis(700)).is_err());
        assert_eq!(read(), b"old data");
        holder.give_back(recalled);
        written.recv_timeout(TIMEOUT).expect("the write is done");
        assert_eq!(read(), b"new data");
        writer.join().unwrap();
        holder.mount.remove(holder.mount.root(), b"f").unwrap();
    }
    assert_eq!(holder.counts(), DelegationCounts { held: 0, granted: 2, recalled: 2 });
}

#[test]
fn who_ignores_a_recall_blocks_others_for_a_lease_and_is_not_trusted_with_the_file_any_more() {
    let (_server, addresses, port) = serve(Duration::from_secs(5));
    let holder = Holder::new(settings(&addresses, port, Version::V4(Some(2))));
    let other = Mount::with_settings(settings(&addresses, port, Version::V3)).unwrap();
    let written = other.create_file(b"f", 0o644).unwrap();
    written.write_all_at(b"old", 0).unwrap();
    let file = holder.mount.lookup(holder.mount.root(), b"f").unwrap().0;
    holder.have(file);
    let started = Instant::now();
    written.write_all_at(b"new", 0).unwrap();
    assert!(started.elapsed() < TIMEOUT);
    let ignored = holder.next_recalled();
    assert_eq!(holder.mount.delegation(file), None);
    // The server says that it has revoked something, until that is acknowledged.
    Deadline::wait_until("the revocation to be known", TIMEOUT, || {
        block_on(holder.mount.operations(None).getattr(file)).unwrap();
        (!holder.mount.may_be_delegated()).then_some(())
    });
    holder.give_back(ignored);
    Deadline::wait_until("the revocation to be done with", TIMEOUT, || {
        block_on(holder.mount.operations(None).getattr(file)).unwrap();
        holder.mount.may_be_delegated().then_some(())
    });
    holder.have(file);
}

#[test]
fn own_changes_recall_nothing_and_are_seen() {
    let (_server, addresses, port) = serve(Duration::from_secs(90));
    let holder = Holder::new(settings(&addresses, port, Version::V4(Some(2))));
    let own = holder.mount.create_file(b"f", 0o644).unwrap();
    let file = holder.mount.lookup(holder.mount.root(), b"f").unwrap().0;
    let delegation = holder.have(file);
    own.write_all_at(b"data", 0).unwrap();
    let mode = fs::SetAttributes::mode(0o600);
    block_on(holder.mount.operations(None).setattr(file, mode, None)).unwrap();
    let seen = block_on(holder.mount.operations(None).getattr(file)).unwrap();
    assert_eq!((seen.size, seen.mode), (4, 0o600));
    assert_eq!(holder.mount.delegation(file), Some(delegation));
    assert!(holder.nothing_recalled());
    holder.mount.give_up_delegation(file);
    let given_up = holder.next_recalled();
    assert!(!given_up.is_about_to_change);
    holder.give_back(given_up);
    assert_ne!(holder.have(file), delegation);
}

#[test]
fn a_mount_that_changes_nothing_has_delegations_too() {
    let (_server, addresses, port) = serve(Duration::from_secs(90));
    let other = Mount::with_settings(settings(&addresses, port, Version::V3)).unwrap();
    other.create_file(b"f", 0o644).unwrap();
    let read_only = Settings { read_only: true, ..settings(&addresses, port, Version::V4(Some(2))) };
    let holder = Holder::new(read_only);
    let file = holder.mount.lookup(holder.mount.root(), b"f").unwrap().0;
    holder.have(file);
    holder.mount.give_up_delegation(file);
    holder.give_back(holder.next_recalled());
}

const STATEID: Stateid = Stateid { seqid: 1, other: [9; 12] };

fn file() -> FileHandle {
    FileHandle::new(b"file").unwrap()
}

/// A mount of a server that the test plays.
fn played() -> (Fake, Holder) {
    let server = Fake::start(1, 64);
    server.call_back();
    let holder = Holder::new(server.settings());
    (server, holder)
}

/// The results of the OPEN, with this delegation.
fn opened(request: &Request, delegation: Delegation<'_>) {
    use Operation as Op;
    let expected = [Op::Sequence, Op::PutFh, Op::Open, Op::GetFh, Op::Close, Op::GetAttr];
    assert_eq!(request.operations, expected);
    let Some(Args::Open(asked)) = request.arguments(Op::Open) else { panic!() };
    assert_eq!((asked.access, asked.deny), (access::READ | access::WANT_READ, 0));
    assert_eq!((asked.claim, asked.how), (open::Claim::Current, open::How::NoCreate));
    let object = fs::Attributes { fileid: 5, ..fs::Attributes::of(fs::FileKind::Regular) };
    let told = Attributes::of_object(&object);
    request.reply(&[
        Reply::PutFh(Ok(())),
        Reply::Open(Ok(open::Success {
            stateid: Stateid { seqid: 1, other: [3; 12] },
            directory: ChangeInfo { atomic: true, before: 1, after: 1 },
            flags: 0,
            set: Bitmap::EMPTY,
            delegation,
        })),
        Reply::GetFh(Ok(handles::GetSuccess { handle: file() })),
        Reply::Close(Ok(Stateid::INVALID)),
        Reply::GetAttr(Ok(getattr::Success { attributes: Fattr::all(&told) })),
    ]);
}

fn delegated(recall: bool) -> Delegation<'static> {
    let permissions = Ace { kind: 0, flags: 0, mask: 0, who: b"" };
    Delegation::Read { stateid: STATEID, recall, permissions, with_times: false }
}

/// Has the server answer the next OPEN, and returns the number of the delegation.
fn open_with(server: &Fake, holder: &Holder, answer: impl FnOnce(&Request)) -> Option<u64> {
    std::thread::scope(|scope| {
        let opens = scope.spawn(|| block_on(holder.mount.operations(None).open_delegated(file())).unwrap().1);
        answer(&server.next());
        opens.join().unwrap()
    })
}

/// The server recalls the delegation of a file. Returns what the client answers.
fn recall(server: &Fake, session: SessionId, number: u32, delegation: Stateid) -> Status {
    let mut out = vec![0; 4];
    let mut none = Vec::new();
    rpc::auth::encode_none(&mut Writer::new(&mut none));
    rpc::call::encode(&mut Writer::new(&mut out), Xid(number), 0x4000_0000, 1, 1, &none);
    let mut writer = RequestWriter::<Back>::new(&mut out, b"", 2, 0);
    // The calls that it refers to: those whose replies may not have come. RFC 8881 s2.10.6.3
    let calls = [cb::sequence::ReferringCall { sequence: 1, slot: 1 }];
    let referring = [cb::sequence::ReferringCalls { session, calls: Array::from(&calls) }];
    writer.push(&cb::Args::Sequence(cb::sequence::Args {
        session,
        sequence: number,
        slot: 0,
        highest_slot: 0,
        cache: false,
        referring: Array::from(&referring),
    }));
    writer.push(&cb::Args::Recall(recall::Args { delegation, truncate: false, file: file() }));
    writer.finish();
    let mark = rpc::record_marking::Mark { last: true, len: u32::try_from(out.len() - 4).unwrap() };
    out[..4].copy_from_slice(&mark.encode());
    (&server.back()[0]).write_all(&out).unwrap();
    let answer = server.answer();
    let mut reader = Reader::new(&answer);
    rpc::reply::decode(&mut reader).unwrap();
    ReplyReader::<Back>::new(reader.rest()).unwrap().status
}

/// The holder returns a delegation, to the server's satisfaction.
fn returned(server: &Fake, holder: &Holder, recalled: Recalled) {
    std::thread::scope(|scope| {
        let returns = scope.spawn(|| holder.give_back(recalled));
        let request = server.next();
        let Some(Args::DelegReturn(args)) = request.arguments(Operation::DelegReturn) else { panic!() };
        assert_eq!(args.delegation, STATEID);
        request.reply(&[Reply::PutFh(Ok(())), Reply::DelegReturn(Ok(()))]);
        returns.join().unwrap();
    });
}

// RFC 8881 s2.10.6.3
#[test]
fn a_recall_that_comes_before_the_reply_with_its_delegation_is_heeded() {
    let (server, holder) = played();
    let early = open_with(&server, &holder, |request| {
        assert_eq!(recall(&server, server.session(), 1, STATEID), Status::OK);
        assert!(holder.nothing_recalled());
        opened(request, delegated(false));
    });
    assert_eq!((early, holder.mount.delegation(file())), (None, None));
    returned(&server, &holder, holder.next_recalled());
    // The next one is not concerned.
    assert!(open_with(&server, &holder, |request| opened(request, delegated(false))).is_some());
    assert!(holder.mount.delegation(file()).is_some());
    assert_eq!(recall(&server, server.session(), 2, STATEID), Status::OK);
    returned(&server, &holder, holder.next_recalled());
    server.nothing_more();
}

// RFC 8881 s18.16.4
#[test]
fn what_is_granted_and_is_not_what_was_wanted_is_returned_at_once() {
    let (server, holder) = played();
    assert_eq!(open_with(&server, &holder, |request| opened(request, delegated(true))), None);
    returned(&server, &holder, holder.next_recalled());
    let writes = Delegation::Write {
        stateid: STATEID,
        recall: false,
        limit: open::SpaceLimit::Size(0),
        permissions: Ace { kind: 0, flags: 0, mask: 0, who: b"" },
        with_times: false,
    };
    assert_eq!(open_with(&server, &holder, |request| opened(request, writes)), None);
    returned(&server, &holder, holder.next_recalled());
    assert_eq!(holder.counts().held, 0);
}

#[test]
fn what_is_recalled_although_its_grant_was_lost_is_returned() {
    let (server, holder) = played();
    assert_eq!(recall(&server, server.session(), 1, STATEID), Status::OK);
    returned(&server, &holder, holder.next_recalled());
}

#[test]
fn a_server_that_grants_none_is_not_asked_with_each_open() {
    let (server, holder) = played();
    let mut asked = 0;
    while holder.mount.may_be_delegated() {
        let none = Delegation::NoneBecause(NoDelegation::NOT_SUPPORTED);
        assert_eq!(open_with(&server, &holder, |request| opened(request, none)), None);
        asked += 1;
        assert!(asked < 100);
    }
}

#[test]
fn a_server_that_wants_to_be_asked_later_is_not_waited_for() {
    let (server, holder) = played();
    std::thread::scope(|scope| {
        for status in [Status::GRACE, Status::DELAY] {
            let opens = scope.spawn(|| block_on(holder.mount.operations(None).open_delegated(file())));
            server.next().reply(&[Reply::PutFh(Ok(())), Reply::Open(Err(status))]);
            assert!(opens.join().unwrap().is_err());
        }
    });
}

#[test]
fn a_session_that_is_lost_takes_its_delegations_along() {
    let (server, holder) = played();
    assert!(open_with(&server, &holder, |request| opened(request, delegated(false))).is_some());
    server.lose_session();
    block_on(holder.mount.operations(None).getattr(fake4::root())).unwrap();
    let dropped = holder.next_recalled();
    assert!(dropped.is_about_to_change && holder.mount.delegation(file()).is_none());
    // A server that knows it after all gets it back.
    returned(&server, &holder, dropped);
}

// RFC 8881 s18.46.3 (SEQ4_STATUS_RECALLABLE_STATE_REVOKED), s18.38
#[test]
fn delegations_are_not_trusted_while_the_server_says_that_it_has_revoked_some() {
    let (server, holder) = played();
    assert!(open_with(&server, &holder, |request| opened(request, delegated(false))).is_some());
    server.set_flags(flag::RECALLABLE_STATE_REVOKED);
    block_on(holder.mount.operations(None).getattr(fake4::root())).unwrap();
    assert_eq!(holder.mount.delegation(file()), None);
    let revoked = holder.next_recalled();
    std::thread::scope(|scope| {
        let returns = scope.spawn(|| holder.give_back(revoked));
        let request = server.next();
        request.reply(&[Reply::PutFh(Ok(())), Reply::DelegReturn(Err(Status::DELEG_REVOKED))]);
        let request = server.next();
        assert_eq!(request.operations, [Operation::Sequence, Operation::FreeStateid]);
        request.reply(&[Reply::FreeStateid(Ok(()))]);
        returns.join().unwrap();
    });
}

// RFC 8881 s20.6
#[test]
fn a_server_without_room_gets_delegations_back() {
    let (server, holder) = played();
    assert!(open_with(&server, &holder, |request| opened(request, delegated(false))).is_some());
    let session = server.session();
    let mut out = vec![0; 4];
    let mut none = Vec::new();
    rpc::auth::encode_none(&mut Writer::new(&mut none));
    rpc::call::encode(&mut Writer::new(&mut out), Xid(1), 0x4000_0000, 1, 1, &none);
    let mut writer = RequestWriter::<Back>::new(&mut out, b"", 2, 0);
    let (cache, referring) = (false, Array::default());
    let slot = cb::sequence::Args { session, sequence: 1, slot: 0, highest_slot: 0, cache, referring };
    writer.push(&cb::Args::Sequence(slot));
    let kinds = Bitmap::of(&[recall::any::READ_DELEGATIONS]);
    writer.push(&cb::Args::RecallAny(recall::AnyArgs { keep: 0, kinds }));
    writer.finish();
    let mark = rpc::record_marking::Mark { last: true, len: u32::try_from(out.len() - 4).unwrap() };
    out[..4].copy_from_slice(&mark.encode());
    (&server.back()[0]).write_all(&out).unwrap();
    let recalled = holder.next_recalled();
    assert!(!recalled.is_about_to_change, "the file is as it was");
    returned(&server, &holder, recalled);
    assert_eq!(holder.counts().held, 0);
}
