//! Tests what a mount of version 4 does with the slots of its session, against a server that the
//! test plays: lost replies, lost sessions, refused slots, and replies that make no sense.

#[path = "support/fake4.rs"]
mod fake4;

use std::time::Duration;

use client::{Error, Mount, Op, Replays, Settings};
use fake4::{Fake, Request, compound, root, root_attributes, success};
use fs::{CreateMode, FileHandle, SetAttributes};
use nfs4::op::create_session::ChannelAttributes;
use nfs4::op::{Args, Reply, getattr, handles, open, read, sequence};
use nfs4::{Bitmap, ChangeInfo, Fattr, Operation, SessionId, Stateid, Status};

const SLOTS: u32 = 16;

/// The results of a removal that succeeds.
fn removed() -> [Reply<'static>; 5] {
    let put = Reply::PutFh(Ok(()));
    [put, Reply::Lookup(Ok(())), Reply::NVerify(Ok(())), put, Reply::Remove(Ok(ChangeInfo::default()))]
}

/// Those of one that finds nothing.
fn nothing_found() -> [Reply<'static>; 2] {
    [Reply::PutFh(Ok(())), Reply::Lookup(Err(Status::NOENT))]
}

/// Removes a name while the test answers.
fn removing(fake: &Fake, mount: &Mount, answer: impl FnOnce(&Fake)) -> client::Result<()> {
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| mount.remove(mount.root(), b"name"));
        answer(fake);
        waiting.join().unwrap()
    })
}

fn answer_removal(request: &Request) {
    assert_eq!(request.operations.last(), Some(&Operation::Remove));
    request.reply(&removed());
}

fn object(fileid: u64) -> fs::Attributes {
    fs::Attributes { fsid: 7, fileid, ..fs::Attributes::of(fs::FileKind::Regular) }
}

/// GETATTR that tells about this object.
fn told<'a>(attributes: &'a nfs4::Attributes<'a>) -> Reply<'a> {
    Reply::GetAttr(Ok(getattr::Success { attributes: Fattr::all(attributes) }))
}

/// OPEN that has created a file.
fn opened() -> Reply<'static> {
    Reply::Open(Ok(open::Success {
        stateid: OPEN,
        directory: ChangeInfo::default(),
        flags: 0,
        set: Bitmap::EMPTY,
        delegation: open::Delegation::None,
    }))
}

const OPEN: Stateid = Stateid { seqid: 1, other: [9; 12] };
const BUSY: Status = Status::DELAY;

/// Creates a file while the test answers.
fn creating(fake: &Fake, mount: &Mount, mode: CreateMode, answer: impl FnOnce(&Fake)) -> Made {
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| mount.create(mount.root(), b"new", mode));
        answer(fake);
        let (handle, attributes) = waiting.join().unwrap()?;
        Ok((handle, attributes.fileid))
    })
}

/// A file that was created, and its number.
type Made = client::Result<(FileHandle, u64)>;

fn guarded() -> CreateMode {
    CreateMode::Guarded(SetAttributes::mode(0o600))
}

// RFC 8881 s2.10.6.1
#[test]
fn a_call_keeps_its_slot_and_its_bytes_on_another_connection() {
    let fake = Fake::start(2, SLOTS);
    let mount = fake.mount();
    let mut slot = None;
    for round in 0..3 {
        removing(&fake, &mount, |fake| {
            let original = fake.next();
            assert!(original.sequence.cache, "the server is to keep the reply");
            if let Some((slot, sequence)) = slot {
                assert_eq!((original.sequence.slot, original.sequence.sequence), (slot, sequence));
            }
            slot = Some((original.sequence.slot, original.sequence.sequence + 1));
            original.cut();
            let replay = fake.next();
            assert_eq!((replay.xid, &replay.args), (original.xid, &original.args), "round {round}");
            replay.reply(&removed());
        })
        .unwrap();
    }
    assert_eq!(mount.statistics().replays, Replays::default());
}

fn read(mount: &Mount) -> client::Pending {
    let file = mount.file_ref(fs::FileHandle::new(b"file").unwrap());
    mount.submit(Op::Read { file, offset: 0, buffer: vec![0; 5].into() })
}

fn answer_read(request: &Request) {
    assert_eq!(request.operations, [Operation::Sequence, Operation::PutFh, Operation::Read]);
    let head = Reply::Read(Ok(read::ReplyHead { eof: true, count: 5 }));
    let mut results =
        compound(&[Reply::Sequence(Ok(success(&request.sequence))), Reply::PutFh(Ok(())), head]);
    // The writer leaves room for the data after their length.
    results.truncate(nfs4::compound::shapes::READ_DATA_AT);
    results.extend(*b"hello\0\0\0");
    request.raw(&results);
}

// RFC 8881 s2.10.6.1.3
#[test]
fn a_read_whose_reply_is_not_kept_is_done_again_as_a_new_call() {
    let fake = Fake::start(1, SLOTS);
    let mount = fake.mount();
    let pending = read(&mount);
    let original = fake.next();
    assert!(!original.sequence.cache);
    original.cut();
    let replay = fake.next();
    assert_eq!(replay.args, original.args);
    replay.reply(&[Reply::PutFh(Err(Status::RETRY_UNCACHED_REP))]);
    let again = fake.next();
    let next = (original.sequence.slot, original.sequence.sequence + 1);
    assert_eq!((again.sequence.slot, again.sequence.sequence), next);
    answer_read(&again);
    let done = pending.wait();
    assert!(done.result.is_ok(), "{:?}", done.result);
    assert_eq!(&done.buffer[..], b"hello");
}

/// As some servers answer: the failure is that of SEQUENCE itself.
#[test]
fn a_call_whose_reply_is_not_kept_is_done_again_where_sequence_says_so() {
    let fake = Fake::start(1, SLOTS);
    let mount = fake.mount();
    let not_kept = |fake: &Fake| {
        let original = fake.next();
        original.cut();
        let replay = fake.next();
        assert_eq!(replay.args, original.args);
        replay.refuse(Status::RETRY_UNCACHED_REP);
        let again = fake.next();
        let next = (original.sequence.slot, original.sequence.sequence + 1);
        assert_eq!((again.sequence.slot, again.sequence.sequence), next);
        again
    };
    let pending = read(&mount);
    answer_read(&not_kept(&fake));
    assert_eq!(&pending.wait().buffer[..], b"hello");
    assert_eq!(mount.statistics().replays, Replays::default());

    // It may be what the removal did before.
    removing(&fake, &mount, |fake| not_kept(fake).reply(&nothing_found())).unwrap();
    let replays = mount.statistics().replays;
    assert_eq!((replays.reconciled, replays.undecided), (1, 0));
}

#[test]
fn a_change_is_done_although_what_it_made_is_not_told() {
    let fake = Fake::start(1, SLOTS);
    let mount = fake.mount();
    let handle = FileHandle::new(b"new").unwrap();
    let (put, got) = (Reply::PutFh(Ok(())), Reply::GetFh(Ok(handles::GetSuccess { handle })));
    let closed = Reply::Close(Ok(Stateid::INVALID));
    let (object, busy) = (object(8), Reply::GetAttr(Err(BUSY)));
    let attributes = nfs4::Attributes::of_object(&object);

    use Operation as Op;
    let made = creating(&fake, &mount, guarded(), |fake| {
        let request = fake.next();
        assert_eq!(request.operations[1..], [Op::PutFh, Op::Open, Op::GetFh, Op::Close, Op::GetAttr]);
        request.reply(&[put, opened(), got, closed, told(&attributes)]);
    });
    assert_eq!(made.unwrap(), (handle, 8));
    // What is missing is asked for; the server that the test plays has the number of its root.
    let made = creating(&fake, &mount, guarded(), |fake| {
        fake.next().reply(&[put, opened(), got, closed, busy]);
    });
    assert_eq!(made.unwrap(), (handle, 1));
    let made = creating(&fake, &mount, guarded(), |fake| {
        fake.next().reply(&[put, opened(), Reply::GetFh(Err(BUSY))]);
    });
    assert_eq!(made.unwrap(), (root(), 1));
    let failed = creating(&fake, &mount, guarded(), |fake| {
        fake.next().reply(&[put, Reply::Open(Err(Status::EXIST))]);
    });
    assert_eq!(failed.unwrap_err().status(), Some(fs::Status::Exists));
    fake.nothing_more();
}

// RFC 8881 s18.2
#[test]
fn an_open_that_is_not_closed_in_its_call_is_closed_by_another() {
    let fake = Fake::start(1, SLOTS);
    let mount = fake.mount();
    let handle = FileHandle::new(b"new").unwrap();
    let (put, got) = (Reply::PutFh(Ok(())), Reply::GetFh(Ok(handles::GetSuccess { handle })));
    let made = creating(&fake, &mount, guarded(), |fake| {
        fake.next().reply(&[put, opened(), got, Reply::Close(Err(BUSY))]);
    });
    assert_eq!(made.unwrap().0, handle);
    for outcome in [Err(BUSY), Ok(Stateid::INVALID)] {
        let request = fake.next();
        assert_eq!(request.operations, [Operation::Sequence, Operation::PutFh, Operation::Close]);
        assert!(request.args.ends_with(&OPEN.other));
        request.reply(&[put, Reply::Close(outcome)]);
    }
    removing(&fake, &mount, |fake| answer_removal(&fake.next())).unwrap();
}

#[test]
fn a_call_that_a_lost_session_may_have_done_is_made_again_and_counted() {
    let fake = Fake::start(1, SLOTS);
    let mount = fake.mount();
    removing(&fake, &mount, |fake| {
        let original = fake.next();
        fake.lose_session();
        original.cut();
        let again = fake.next();
        assert_ne!(again.sequence.session, original.sequence.session);
        again.reply(&nothing_found());
    })
    .unwrap();
    let replays = mount.statistics().replays;
    assert_eq!((replays.reconciled, replays.undecided), (1, 0));

    let made = std::thread::scope(|scope| {
        let make = || mount.make_directory(mount.root(), b"lock", SetAttributes::default());
        let waiting = scope.spawn(make);
        let original = fake.next();
        fake.lose_session();
        original.cut();
        fake.next().reply(&[Reply::PutFh(Ok(())), Reply::Create(Err(Status::EXIST))]);
        waiting.join().unwrap()
    });
    assert_eq!(made.unwrap_err().status(), Some(fs::Status::Exists));
    assert_eq!(mount.statistics().replays.undecided, 1);
}

#[test]
fn a_call_that_a_lost_session_refused_is_not_in_doubt() {
    let fake = Fake::start(1, SLOTS);
    let mount = fake.mount();
    fake.lose_session();
    let gone = removing(&fake, &mount, |fake| fake.next().reply(&nothing_found()));
    assert_eq!(gone.unwrap_err().status(), Some(fs::Status::NotFound));
    assert_eq!(mount.statistics().replays, Replays::default());
}

// RFC 8881 s15.1.1.3
#[test]
fn a_server_that_is_busy_is_asked_again_in_the_same_slot_or_with_the_next_number() {
    let fake = Fake::start(1, SLOTS);
    let mount = fake.mount();
    removing(&fake, &mount, |fake| {
        let first = fake.next();
        first.refuse(Status::DELAY);
        let second = fake.next();
        assert_eq!(second.args, first.args, "SEQUENCE was not executed");
        second.reply(&[Reply::PutFh(Err(Status::DELAY))]);
        let third = fake.next();
        let number = |request: &Request| request.sequence.sequence;
        assert_eq!(number(&third), number(&first) + 1, "it is a new call");
        third.reply(&[Reply::PutFh(Err(Status::GRACE))]);
        answer_removal(&fake.next());
    })
    .unwrap();
}

#[test]
fn a_slot_whose_number_is_taken_otherwise_costs_the_session_and_not_the_call() {
    for status in [Status::SEQ_MISORDERED, Status::SEQ_FALSE_RETRY, Status::BADSLOT, Status::DEADSESSION] {
        let fake = Fake::start(1, SLOTS);
        let mount = fake.mount();
        removing(&fake, &mount, |fake| {
            let original = fake.next();
            original.refuse(status);
            let again = fake.next();
            assert_ne!(again.sequence.session, original.sequence.session, "{status}");
            answer_removal(&again);
        })
        .unwrap();
    }
}

#[test]
fn no_more_calls_are_in_flight_than_there_are_slots() {
    let fake = Fake::start(1, 4);
    let mount = fake.mount();
    let pending: Vec<_> = (0..20).map(|_| read(&mount)).collect();
    let mut waiting: Vec<Request> = (0..3).map(|_| fake.next()).collect();
    for _ in 3..20 {
        fake.nothing_more();
        answer_read(&waiting.remove(0));
        waiting.push(fake.next());
        let mut slots: Vec<u32> = waiting.iter().map(|request| request.sequence.slot).collect();
        slots.sort_unstable();
        assert_eq!(slots, [1, 2, 3], "slot 0 is for validations");
    }
    waiting.iter().for_each(answer_read);
    assert!(pending.into_iter().all(|pending| pending.wait().result.is_ok()));
}

// RFC 8881 s2.10.6.1.3.1
#[test]
fn the_slot_of_a_call_that_was_given_up_is_used_again_when_its_outcome_is_known() {
    type Answer<'a> = &'a dyn Fn(&Request);
    let answers: [Answer<'_>; 5] = [
        &|probe| probe.refuse(Status::SEQ_FALSE_RETRY),
        &|probe| probe.refuse(Status::RETRY_UNCACHED_REP),
        &|probe| probe.reply(&[]),
        // What some servers do: the kept reply of the call that was given up.
        &|probe| probe.reply(&removed()),
        &|probe| probe.reply(&nothing_found()),
    ];
    for answer in answers {
        let fake = Fake::start(1, 2);
        let timeo = Duration::from_secs(1);
        let soft = Settings { soft: true, timeo, retrans: 1, ..fake.settings() };
        let mount = Mount::with_settings(soft).unwrap();
        let given_up = removing(&fake, &mount, |fake| drop(fake.next()));
        assert!(matches!(given_up, Err(Error::TimedOut { .. })), "{given_up:?}");
        // The call may have been sent more than once before it was given up. It had the only slot.
        let probe = std::iter::repeat_with(|| fake.next()).find(|call| call.operations.len() == 1).unwrap();
        assert_eq!((probe.operations.as_slice(), probe.sequence.slot), (&[Operation::Sequence][..], 1));
        assert_eq!(probe.sequence.sequence, 1, "the number of the call that was given up");
        answer(&probe);
        let removed = removing(&fake, &mount, |fake| {
            let next = fake.next();
            assert_eq!(next.sequence.sequence, 2);
            answer_removal(&next);
        });
        assert!(removed.is_ok(), "{removed:?}");
    }
}

#[test]
fn the_outcome_of_a_call_is_found_out_while_others_wait_for_its_slot() {
    let fake = Fake::start(1, 2);
    let mount = fake.mount();
    let (fails, waits) = (read(&mount), read(&mount));
    let first = fake.next();
    first.reply(&[Reply::PutFh(Ok(()))]);
    assert!(matches!(fails.wait().result, Err(Error::PeerMisbehaved { .. })));
    let probe = fake.next();
    assert_eq!((probe.operations.as_slice(), probe.sequence.sequence), (&[Operation::Sequence][..], 1));
    probe.reply(&[]);
    let next = fake.next();
    assert_eq!((next.sequence.slot, next.sequence.sequence), (1, 2));
    answer_read(&next);
    assert_eq!(&waits.wait().buffer[..], b"hello");
}

// RFC 8881 s2.10.3.1, s18.34
#[test]
fn connections_are_bound_to_the_session_where_the_server_wants_it() {
    let fake = Fake::start(2, SLOTS);
    let mount = fake.mount();
    assert!(!fake.log().contains(&Operation::BindConnToSession));
    fake.require_binding();
    for _ in 0..4 {
        removing(&fake, &mount, |fake| answer_removal(&fake.next())).unwrap();
    }
    assert!(fake.log().contains(&Operation::BindConnToSession));
}

// RFC 8881 s8.3, s18.37, s18.50
#[test]
fn an_idle_mount_renews_its_lease_and_its_end_ends_the_session() {
    let fake = Fake::start(1, SLOTS);
    fake.set_lease(1);
    let mount = fake.mount();
    for _ in 0..2 {
        let renewal = fake.next();
        assert_eq!(renewal.operations, [Operation::Sequence]);
        renewal.reply(&[]);
    }
    drop(mount);
    fake.await_log(Operation::DestroyClientId, 1);
    let log = fake.log();
    assert!(log.ends_with(&[Operation::DestroySession, Operation::DestroyClientId]), "{log:?}");
}

#[test]
fn a_mount_that_fails_leaves_no_session() {
    type Limit = fn(&mut ChannelAttributes);
    let limits: [(Limit, &str); 5] = [
        (|fore| fore.requests_max = 1, "1 calls at a time; 2 are needed"),
        (|fore| fore.operations_max = 3, "3 operations in a call"),
        (|fore| fore.request_max = 1024, "bytes of data in a request; 1024 are needed"),
        (|fore| fore.reply_max = 1024, "bytes of data in a reply; 1024 are needed"),
        (|fore| fore.cached_reply_max = 512, "512 bytes in a reply that is kept"),
    ];
    for (limit, why) in limits {
        let fake = Fake::start(1, SLOTS);
        fake.limit(limit);
        let error = Mount::with_settings(fake.settings()).unwrap_err();
        let Error::Mount { cause, .. } = error else { panic!("{error}") };
        assert!(cause.to_string().contains(why), "{cause}");
        let log = fake.log();
        assert!(log.ends_with(&[Operation::DestroySession, Operation::DestroyClientId]), "{log:?}");
    }
}

/// Which sessions were made and ended, since the log had this many calls.
fn changes(fake: &Fake, since: usize) -> Vec<Operation> {
    let changes = [Operation::CreateSession, Operation::DestroySession, Operation::BindConnToSession];
    fake.log().into_iter().skip(since).filter(|operation| changes.contains(operation)).collect()
}

// RFC 8881 s18.37
#[test]
fn a_new_session_is_made_only_when_the_old_one_has_ended() {
    const CREATE: Operation = Operation::CreateSession;
    const DESTROY: Operation = Operation::DestroySession;
    let cases: [(&[Status], &[Operation]); 6] = [
        (&[Status::DELAY, Status::DELAY], &[DESTROY, DESTROY, DESTROY, CREATE]),
        (&[Status::CONN_NOT_BOUND_TO_SESSION], &[DESTROY, Operation::BindConnToSession, DESTROY, CREATE]),
        (&[Status::BADSESSION], &[DESTROY, CREATE]),
        (&[Status::DEADSESSION], &[DESTROY, CREATE]),
        (&[Status::STALE_CLIENTID], &[DESTROY, CREATE]),
        (&[Status::SERVERFAULT], &[DESTROY, DESTROY, CREATE]),
    ];
    for (failures, expected) in cases {
        let fake = Fake::start(1, SLOTS);
        let mount = fake.mount();
        removing(&fake, &mount, |fake| {
            let original = fake.next();
            let since = fake.log().len();
            fake.fail_destroy(failures);
            original.refuse(Status::DEADSESSION);
            let again = fake.next();
            assert_eq!(changes(fake, since), expected, "{failures:?}");
            answer_removal(&again);
        })
        .unwrap();
    }
}

#[test]
fn the_end_of_a_mount_waits_for_calls_that_still_run_in_its_session() {
    let fake = Fake::start(1, SLOTS);
    let mount = fake.mount();
    fake.fail_destroy(&[Status::DELAY, Status::CONN_NOT_BOUND_TO_SESSION]);
    drop(mount);
    fake.await_log(Operation::DestroyClientId, 1);
    use Operation as Op;
    let end = [Op::DestroySession, Op::DestroySession, Op::BindConnToSession, Op::DestroySession];
    let log = fake.log();
    assert!(log.ends_with(&[&end[..], &[Op::DestroyClientId]].concat()), "{log:?}");
}

#[test]
fn a_new_session_that_allows_less_than_the_mount_uses_is_not_taken() {
    let limits: [fn(&mut ChannelAttributes); 3] =
        [|fore| fore.requests_max = 3, |fore| fore.request_max = 65536, |fore| fore.reply_max = 65536];
    for limit in limits {
        let fake = Fake::start(2, SLOTS);
        let mount = Mount::with_settings(Settings { loops: 2, ..fake.settings() }).unwrap();
        removing(&fake, &mount, |fake| {
            let original = fake.next();
            fake.limit(limit);
            original.refuse(Status::BADSESSION);
            fake.await_log(Operation::CreateSession, 3);
            fake.nothing_more();
            fake.limit(|_| {});
            answer_removal(&fake.next());
        })
        .unwrap();
    }
}

// RFC 8881 s18.36.4
#[test]
fn a_session_is_made_again_with_the_number_that_the_server_counts_on() {
    let fake = Fake::start(1, SLOTS);
    let mount = fake.mount();
    let again = |fake: &Fake| {
        let original = fake.next();
        original.refuse(Status::BADSESSION);
        let again = fake.next();
        assert_ne!(again.sequence.session, original.sequence.session);
        answer_removal(&again);
    };
    removing(&fake, &mount, again).unwrap();
    let since = fake.log().len();
    fake.count_from(41);
    removing(&fake, &mount, again).unwrap();
    let expected = [Operation::DestroySession, Operation::CreateSession, Operation::CreateSession];
    assert_eq!(changes(&fake, since), expected, "the first number is one more than the last");
}

#[test]
fn a_new_session_that_is_the_old_one_is_not_taken() {
    let fake = Fake::start(1, SLOTS);
    let mount = fake.mount();
    removing(&fake, &mount, |fake| {
        let original = fake.next();
        fake.repeat_session();
        original.refuse(Status::BADSESSION);
        let again = fake.next();
        assert_ne!(again.sequence.session, original.sequence.session);
        answer_removal(&again);
    })
    .unwrap();
}

// RFC 8881 s18.36.3
#[test]
fn transfers_and_pages_of_directories_are_no_longer_than_the_session_allows() {
    let fake = Fake::start(1, SLOTS);
    fake.limit(|fore| (fore.request_max, fore.reply_max) = (10_000, 8192));
    let mount = fake.mount();
    let (read, write) = mount.transfer_sizes();
    assert!((4096..8192).contains(&read) && (4096..10_000).contains(&write), "{read}, {write}");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| mount.read_directory(mount.root()));
        let request = fake.next();
        let Some(Args::ReadDir(args)) = request.arguments(Operation::ReadDir) else { panic!("{request:?}") };
        assert!((4096..8192).contains(&args.maxcount), "{}", args.maxcount);
        request.reply(&[Reply::PutFh(Err(Status::ACCESS))]);
        assert_eq!(waiting.join().unwrap().unwrap_err().status(), Some(fs::Status::Access));
    });
}

/// A reply that the protocol does not allow fails its call, and no other.
#[test]
fn a_reply_that_makes_no_sense_fails_its_call_and_no_other() {
    let other_slot = |request: &Request, change: &dyn Fn(&mut sequence::Success)| {
        let mut told = success(&request.sequence);
        change(&mut told);
        request.reply_with(&told, &removed());
    };
    type Answer<'a> = &'a dyn Fn(&Request);
    let answers: [(&str, Answer<'_>); 6] = [
        ("slot", &|request| other_slot(request, &|told| told.slot += 1)),
        ("sequence", &|request| other_slot(request, &|told| told.sequence += 1)),
        ("session", &|request| other_slot(request, &|told| told.session = SessionId([99; 16]))),
        ("results", &|request| request.reply(&removed()[..4])),
        ("nfs_opnum4", &|request| {
            let mut results = removed();
            results[1] = Reply::Verify(Ok(()));
            request.reply(&results);
        }),
        ("ends early", &|request| request.raw(&[0, 0, 0, 0, 0, 0])),
    ];
    for (what, answer) in answers {
        let fake = Fake::start(1, SLOTS);
        let mount = fake.mount();
        let outcome = removing(&fake, &mount, |fake| answer(&fake.next()));
        let Err(Error::PeerMisbehaved { operation: "REMOVE", reason }) = &outcome else {
            panic!("{what}: {outcome:?}")
        };
        assert!(reason.contains(what), "{what}: {reason}");
        let next = removing(&fake, &mount, |fake| {
            let request = fake.next();
            // The slot of the failed call may be probed first.
            if request.operations == [Operation::Sequence] {
                request.reply(&[]);
                answer_removal(&fake.next());
            } else {
                answer_removal(&request);
            }
        });
        assert!(next.is_ok(), "{what}: {next:?}");
    }
}

fn is_validation(request: &Request) -> bool {
    request.operations == [Operation::Sequence, Operation::PutFh, Operation::GetAttr]
}

fn validate(request: &Request) {
    assert!(is_validation(request), "{:?}", request.operations);
    request.reply(&[Reply::PutFh(Ok(())), told(&nfs4::Attributes::of_object(&root_attributes()))]);
}

fn count(fake: &Fake, operation: Operation) -> usize {
    fake.log().iter().filter(|logged| **logged == operation).count()
}

#[test]
fn what_a_connection_hears_about_an_earlier_session_does_not_end_the_session() {
    let fake = Fake::start(2, SLOTS);
    let mount = fake.mount();
    let are_up = || {
        let paths = mount.statistics().paths;
        paths.iter().all(|path| path.state() == Some(client::PathState::Up)).then_some(())
    };
    testkit::Deadline::wait_until("both connections", fake4::TIMEOUT, are_up);
    fake.hold_validations(true);
    removing(&fake, &mount, |fake| {
        fake.next().cut();
        let (one, other) = (fake.next(), fake.next());
        let (asked, replay) = if is_validation(&one) { (one, other) } else { (other, one) };
        fake.lose_session();
        replay.refuse(Status::BADSESSION);
        let again = fake.next();
        assert_ne!(again.sequence.session, asked.sequence.session);
        answer_removal(&again);
        asked.refuse(Status::BADSESSION);
        let asked = fake.next();
        assert_eq!(asked.sequence.session, again.sequence.session);
        validate(&asked);
    })
    .unwrap();
    fake.hold_validations(false);
    for _ in 0..4 {
        removing(&fake, &mount, |fake| answer_removal(&fake.next())).unwrap();
    }
    assert_eq!(count(&fake, Operation::CreateSession), 2);
}

#[test]
fn a_connection_that_is_never_validated_is_made_again() {
    type Answer<'a> = &'a dyn Fn(&Request);
    let answers: [Answer<'_>; 3] = [
        &|request| request.reply(&[Reply::PutFh(Err(Status::RETRY_UNCACHED_REP))]),
        &|request| request.refuse(Status::RETRY_UNCACHED_REP),
        &|request| request.refuse(Status::CONN_NOT_BOUND_TO_SESSION),
    ];
    for answer in answers {
        let fake = Fake::start(1, SLOTS);
        let mount = fake.mount();
        fake.hold_validations(true);
        let mut asked = 0;
        removing(&fake, &mount, |fake| {
            fake.next().cut();
            let before = count(fake, Operation::ExchangeId);
            while asked < 30 && count(fake, Operation::ExchangeId) < before + 2 {
                let request = fake.next();
                assert!(is_validation(&request));
                answer(&request);
                asked += 1;
            }
            fake.hold_validations(false);
            let mut request = fake.next();
            while is_validation(&request) {
                validate(&request);
                request = fake.next();
            }
            answer_removal(&request);
        })
        .unwrap();
        assert!(asked < 30, "the same connection is asked again and again");
    }
}

// RFC 8881 s8.4.2.1
#[test]
fn a_server_in_its_grace_period_is_mounted_when_it_answers() {
    let fake = Fake::start(1, SLOTS);
    fake.hold_validations(true);
    let settings = fake.settings();
    std::thread::scope(|scope| {
        let mounting = scope.spawn(|| Mount::with_settings(settings).map(drop));
        for status in [Status::GRACE, Status::DELAY] {
            let request = fake.next();
            assert!(is_validation(&request));
            request.reply(&[Reply::PutFh(Ok(())), Reply::GetAttr(Err(status))]);
        }
        validate(&fake.next());
        mounting.join().unwrap().unwrap();
    });
}

#[test]
fn a_file_that_exists_and_may_not_be_written_is_found_as_with_version_3() {
    let fake = Fake::start(1, SLOTS);
    let mount = fake.mount();
    let denied = |fake: &Fake| {
        fake.next().reply(&[Reply::PutFh(Ok(())), Reply::Open(Err(Status::ACCESS))]);
    };
    let unchecked = |size| CreateMode::Unchecked(SetAttributes { size, ..SetAttributes::mode(0o600) });
    // The name leads to a directory, so the directory that it is in may not be written.
    let made = creating(&fake, &mount, unchecked(None), denied);
    assert_eq!(made.unwrap_err().status(), Some(fs::Status::Access));
    fake.set_found(object(8));
    assert_eq!(creating(&fake, &mount, unchecked(None), denied).unwrap(), (root(), 8));
    for mode in [unchecked(Some(0)), guarded()] {
        let made = creating(&fake, &mount, mode, denied);
        assert_eq!(made.unwrap_err().status(), Some(fs::Status::Access));
    }
}
