//! Tests writes with a server that the test plays: a caller gets its buffer back when its data are
//! stable and not before, whatever the server does in between.

#[path = "support/fake.rs"]
mod fake;

use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use client::{Answer, Error, Mount, Pending, Settings};
use fake::{Fake, Request, block_write, file};
use fs::{Change, Version};
use nfs3::proc::write::Stable::{self, FileSync, Unstable};
use nfs3::{Fattr3, FileType, NfsTime, Procedure, Status, WccAttr, WccData};
use testkit::Deadline;

const BLOCK: usize = 4096;
const COUNT: u32 = BLOCK as u32;

/// Submits this many blocks at once and receives the calls: the first asks for FILE_SYNC, the
/// others for UNSTABLE.
fn pipelined(fake: &Fake, mount: &Mount, blocks: u64) -> (Vec<Pending>, Vec<Request>) {
    let file = file(mount);
    let pending = (0..blocks).map(|block| mount.submit(block_write(file, block, BLOCK))).collect();
    let calls = fake.next_writes(usize::try_from(blocks).unwrap());
    let asked: Vec<Stable> = calls.iter().map(|call| call.write().stable).collect();
    assert_eq!(asked[0], FileSync);
    assert!(asked[1..].iter().all(|stable| *stable == Unstable), "{asked:?}");
    (pending, calls)
}

fn is_done(pending: &mut Pending) -> bool {
    matches!(Pin::new(pending).poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(_))
}

fn all_written(pending: Vec<Pending>) {
    for (block, pending) in pending.into_iter().enumerate() {
        let done = pending.wait();
        assert!(matches!(done.result, Ok(Answer::Written)), "block {block}: {:?}", done.result);
        assert_eq!(done.buffer, vec![block as u8 + 1; BLOCK]);
    }
}

#[test]
fn a_lone_write_asks_for_file_sync_and_needs_no_commit() {
    let fake = Fake::start(1);
    let mount = fake.mount();
    let file = file(&mount);
    for block in 0..3 {
        let pending = mount.submit(block_write(file, block, BLOCK));
        let call = fake.next();
        assert_eq!((call.write().stable, call.write().count), (FileSync, COUNT));
        assert_eq!(call.data(), vec![block as u8 + 1; BLOCK]);
        call.written_as_asked(1);
        assert!(pending.wait().result.is_ok());
    }
    fake.nothing_more();
}

#[test]
fn unstable_writes_are_held_until_their_commit_is_answered() {
    let fake = Fake::start(1);
    let mount = fake.mount();
    let (mut pending, calls) = pipelined(&fake, &mount, 4);
    let (early, late) = calls.split_at(2);
    early.iter().for_each(|call| call.written_as_asked(1));
    let commit = fake.next();
    assert_eq!(commit.procedure, Procedure::Commit);
    late.iter().for_each(|call| call.written_as_asked(1));
    assert!(pending[1..].iter_mut().all(|pending| !is_done(pending)));
    commit.committed(1);
    // WRITEs that were answered after the first COMMIT was sent need another COMMIT.
    fake.next().committed(1);
    all_written(pending);
    fake.nothing_more();
}

// RFC 1813 s2.6
#[test]
fn the_attributes_before_and_after_a_write_are_returned_also_for_unstable_and_short_writes() {
    let at = |seconds| NfsTime { seconds, nanoseconds: 0 };
    let before_it = |seconds| WccAttr { size: 9, mtime: at(seconds), ctime: at(seconds) };
    let version = |seconds| {
        let time = fs::Time::from_seconds(seconds);
        Version { size: 9, mtime: time, ctime: time, change: 0 }
    };
    let told = |before, after| {
        let after =
            Fattr3 { size: 9, mtime: at(after), ctime: at(after), ..fake::attributes(FileType::Regular) };
        WccData { before: Some(before_it(before)), after: Some(after) }
    };
    let fake = Fake::start(1);
    let mount = fake.mount();
    let (pending, calls) = pipelined(&fake, &mount, 3);
    let part = COUNT / 2;
    calls[0].written_with(told(1, 2), part, FileSync, 1);
    calls[1].written_with(told(3, 4), COUNT, Unstable, 1);
    calls[2].written_with(WccData::default(), COUNT, FileSync, 1);
    let mut left = [fake.next(), fake.next()];
    left.sort_by_key(|call| call.procedure == Procedure::Commit);
    left[0].written_with(told(2, 3), COUNT - part, FileSync, 1);
    left[1].committed(1);
    let changes: Vec<Change> = pending.into_iter().map(|pending| pending.wait().change).collect();
    let from_to = |before, after| Change { before: Some(version(before)), after: Some(version(after)) };
    assert_eq!(changes, [from_to(1, 3), from_to(3, 4), Change::default()]);
    fake.nothing_more();
}

#[test]
fn thousands_of_unstable_writes_do_not_exhaust_the_window() {
    const BYTES: usize = 512;
    let fake = Fake::start(1);
    let mount = fake.mount();
    let file = file(&mount);
    // The client sends a COMMIT once half of its writes are held. That would be only after more
    // replies than a client may run ahead by.
    let blocks = 4 * u64::from(drc::AHEAD_DONE_MAX);
    let mut pending: Vec<Pending> =
        (0..blocks).map(|block| mount.submit(block_write(file, block, BYTES))).collect();
    Deadline::wait_until("all data to be stable", fake::TIMEOUT, || {
        while let Some(call) = fake.next_within(Duration::from_millis(1)) {
            match call.procedure {
                Procedure::Commit => call.committed(1),
                _ => call.written_as_asked(1),
            }
        }
        pending.retain_mut(|pending| !is_done(pending));
        pending.is_empty().then_some(())
    });
    fake.nothing_more();
}

#[test]
fn another_verifier_at_commit_causes_a_rewrite() {
    let fake = Fake::start(1);
    let mount = fake.mount();
    let (pending, calls) = pipelined(&fake, &mount, 2);
    calls[1].written_as_asked(1);
    fake.next().committed(2);
    let again = fake.next();
    assert_eq!(again.write().offset, BLOCK as u64);
    assert_eq!(again.data(), vec![2; BLOCK]);
    assert_ne!(again.xid, calls[1].xid, "the server must execute the WRITE, so it is a new call");
    again.written_as_asked(2);
    calls[0].written_as_asked(2);
    all_written(pending);
    fake.nothing_more();
}

/// Answers writes and commits until all are done. Returns how often block 1 was written.
fn answer_all(
    fake: &Fake,
    pending: Vec<Pending>,
    answer: impl Fn(&Request, u32),
) -> (u32, Vec<client::Done>) {
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| pending.into_iter().map(Pending::wait).collect());
        let (mut answers, mut writes) = (0, 0);
        while !waiting.is_finished() {
            let Some(call) = fake.next_within(Duration::from_millis(20)) else { continue };
            answers += 1;
            if call.procedure == Procedure::Write && call.write().offset == BLOCK as u64 {
                writes += 1;
                assert!(writes <= 100, "the data are written again without end");
                assert_eq!(call.data(), vec![2; BLOCK]);
            }
            answer(&call, answers);
        }
        (writes, waiting.join().unwrap())
    })
}

#[test]
fn a_server_whose_verifier_changes_with_each_answer_is_an_error_after_a_few_rewrites() {
    // The server answers UNSTABLE to everything, with a new verifier each time; or it writes only
    // a part, unstably.
    for count in [COUNT, COUNT / 2] {
        let fake = Fake::start(1);
        let mount = fake.mount();
        let file = file(&mount);
        let pending = (0..3).map(|block| mount.submit(block_write(file, block, BLOCK))).collect();
        let (writes, done) = answer_all(&fake, pending, |call, answers| match call.procedure {
            Procedure::Commit => call.committed(answers as u8),
            _ => call.written(count, Unstable, answers as u8),
        });
        assert!((5..=20).contains(&writes), "{count}: {writes}");
        for done in done {
            assert_eq!(done.buffer.len(), BLOCK);
            let error = done.result.expect_err("the server never had the data on disk");
            assert!(error.to_string().contains("answers FILE_SYNC with UNSTABLE"), "{count}: {error}");
        }
    }
}

#[test]
fn a_server_that_restarts_often_and_answers_file_sync_as_asked_loses_no_write() {
    let fake = Fake::start(1);
    let mount = fake.mount();
    for _ in 0..20 {
        let file = file(&mount);
        let pending = (0..4).map(|block| mount.submit(block_write(file, block, BLOCK))).collect();
        let (_, done) = answer_all(&fake, pending, |call, answers| match call.procedure {
            Procedure::Commit => call.committed(answers as u8),
            _ => call.written_as_asked(answers as u8),
        });
        assert!(done.iter().all(|done| matches!(done.result, Ok(Answer::Written))), "{done:?}");
    }
}

#[test]
fn another_verifier_between_writes_causes_a_rewrite_of_the_earlier_ones() {
    let fake = Fake::start(1);
    let mount = fake.mount();
    let (pending, calls) = pipelined(&fake, &mount, 5);
    calls[1].written_as_asked(1);
    calls[2].written_as_asked(2);
    let again = fake.next();
    assert_eq!(again.write().offset, BLOCK as u64);
    again.written_as_asked(2);
    calls[3].written_as_asked(2);
    fake.next().committed(2);
    calls[4].written_as_asked(2);
    calls[0].written_as_asked(2);
    fake.next().committed(2);
    all_written(pending);
}

#[test]
fn a_commit_in_flight_counts_only_for_the_verifier_of_its_writes() {
    let fake = Fake::start(1);
    let mount = fake.mount();
    let (pending, calls) = pipelined(&fake, &mount, 3);
    calls[1].written_as_asked(1);
    let commit = fake.next();
    // The server restarts. It answers the next WRITE and the COMMIT after the restart, and has lost
    // block 1.
    calls[2].written_as_asked(2);
    commit.committed(2);
    let mut both = [fake.next(), fake.next()];
    both.sort_by_key(|call| call.procedure != Procedure::Write);
    let [again, commit] = both;
    assert_eq!(again.write().offset, BLOCK as u64);
    again.written_as_asked(2);
    commit.committed(2);
    calls[0].written_as_asked(2);
    all_written(pending);
}

#[test]
fn data_on_a_node_that_dies_are_written_again_elsewhere() {
    let fake = Fake::start(2);
    let mount = fake.mount();
    let (pending, calls) = pipelined(&fake, &mount, 2);
    let node = calls[1].node;
    calls[0].written_as_asked(1);
    calls[1].written_as_asked(1);
    let commit = fake.next();
    assert_eq!((commit.procedure, commit.node), (Procedure::Commit, node));
    fake.stop_node(node);
    let again = fake.next();
    assert_eq!((again.write().offset, again.node), (BLOCK as u64, 1 - node));
    assert_eq!(again.data(), vec![2; BLOCK]);
    again.written_as_asked(9);
    all_written(pending);
}

#[test]
fn a_commit_goes_to_the_node_of_its_writes_even_when_writes_are_spread() {
    let fake = Fake::start(3);
    let mount = Mount::with_settings(Settings { spread_writes: true, ..fake.settings(3) }).unwrap();
    for _ in 0..20 {
        let (pending, calls) = pipelined(&fake, &mount, 2);
        let node = calls[1].node;
        calls[0].written_as_asked(1);
        calls[1].written_as_asked(1);
        let commit = fake.next();
        assert_eq!((commit.procedure, commit.node), (Procedure::Commit, node));
        commit.committed(1);
        all_written(pending);
    }
    fake.nothing_more();
}

#[test]
fn a_short_stable_write_continues_and_a_short_unstable_one_starts_over() {
    let fake = Fake::start(1);
    let mount = fake.mount();
    let (pending, calls) = pipelined(&fake, &mount, 2);
    calls[0].written(1000, FileSync, 1);
    let rest = fake.next();
    assert_eq!((rest.write().offset, rest.write().count), (1000, COUNT - 1000));
    rest.written_as_asked(1);
    calls[1].written(1000, Unstable, 1);
    let over = fake.next();
    assert_eq!((over.write().offset, over.write().count), (u64::from(COUNT), COUNT));
    assert_eq!(over.write().stable, FileSync);
    over.written_as_asked(1);
    all_written(pending);
    fake.nothing_more();
}

#[test]
fn an_error_goes_to_the_caller_of_its_write_and_held_writes_are_committed_after_the_last() {
    let fake = Fake::start(1);
    let mount = fake.mount();
    let (pending, calls) = pipelined(&fake, &mount, 4);
    // The reply is held. Three WRITEs are in flight, so there is no COMMIT yet.
    calls[1].written_as_asked(1);
    let full = Some((Status::NOSPC, fs::Status::NoSpace));
    let refused = [full, None, Some((Status::DQUOT, fs::Status::Quota)), full];
    for (call, status) in calls.iter().zip(refused) {
        status.into_iter().for_each(|(sent, _)| call.failed(sent));
    }
    fake.next().committed(1);
    for (at, (pending, status)) in pending.into_iter().zip(refused).enumerate() {
        let done = pending.wait();
        assert_eq!(done.buffer.len(), BLOCK);
        match done.result {
            Ok(_) => assert_eq!(status, None, "{at}"),
            Err(error) => {
                let told = status.map(|(_, told)| told);
                assert!(told.is_some() && error.status() == told, "{at}: {error}");
            }
        }
    }
}

#[test]
fn a_commit_that_fails_fails_its_writes() {
    let fake = Fake::start(1);
    let mount = fake.mount();
    for malformed in [false, true] {
        let (mut pending, calls) = pipelined(&fake, &mount, 2);
        calls[0].written_as_asked(1);
        calls[1].written_as_asked(1);
        let commit = fake.next();
        if malformed {
            commit.reply(&[0, 0, 0, 0, 9, 9]);
        } else {
            commit.failed(Status::IO);
        }
        let done = pending.remove(1).wait();
        match done.result.unwrap_err() {
            Error::Status { status, .. } => assert!(status == fs::Status::Io && !malformed),
            Error::PeerMisbehaved { .. } => assert!(malformed),
            other => panic!("{other}"),
        }
        all_written(pending);
    }
}

#[test]
fn a_call_answered_with_jukebox_is_sent_later_as_a_new_call() {
    let fake = Fake::start(1);
    let mount = fake.mount();
    let (pending, calls) = pipelined(&fake, &mount, 2);
    calls[0].failed(Status::JUKEBOX);
    calls[1].written_as_asked(1);
    let commit = fake.next();
    commit.failed(Status::JUKEBOX);
    let mut later = [fake.next(), fake.next()];
    later.sort_by_key(|call| call.procedure != Procedure::Write);
    assert_eq!(later[0].write().offset, 0);
    assert_ne!(later[0].xid, calls[0].xid);
    assert_ne!(later[1].xid, commit.xid);
    later[0].written_as_asked(1);
    later[1].committed(1);
    all_written(pending);
}

/// A write whose COMMIT is not answered within `timeo`, and writes after it. False if the limit
/// passed before the COMMIT was sent.
fn given_up_after(timeo: Duration) -> bool {
    let fake = Fake::start(1);
    let soft = Settings { soft: true, timeo, retrans: 0, ..fake.settings(1) };
    let Ok(mount) = Mount::with_settings(soft) else { return false };
    let file = file(&mount);
    let submit = |block| mount.submit(block_write(file, block, BLOCK));
    let pending = [submit(0), submit(1)];
    let calls: Vec<Request> = (0..2).map_while(|_| fake.next_within(timeo)).collect();
    calls.iter().for_each(|call| call.written_as_asked(1));
    let Some(commit) = fake.next_within(timeo).filter(|call| call.procedure == Procedure::Commit) else {
        return false;
    };
    let [first, second] = pending.map(Pending::wait);
    assert_eq!((first.buffer.len(), second.buffer.len()), (BLOCK, BLOCK));
    if calls.len() < 2 || first.result.is_err() {
        return false;
    }
    assert!(second.result.is_err(), "{:?}", second.result);
    // Later writes have their own COMMIT, and the late reply does not count for them.
    commit.committed(1);
    let written = || {
        let pending = submit(0);
        // The unanswered COMMIT ended its connection. It is not sent again, because no write waits
        // for it.
        if let Some(call) = fake.next_within(timeo) {
            assert_eq!(call.procedure, Procedure::Write);
            call.written_as_asked(1);
        }
        pending.wait().result.ok()
    };
    Deadline::wait_until("a write", fake::TIMEOUT, written);
    true
}

#[test]
fn the_commit_of_a_write_that_timed_out_does_not_count_for_later_writes() {
    // A busier machine needs a longer limit.
    let mut timeout = [100, 1000, 10_000, 100_000].map(Duration::from_millis).into_iter();
    assert!(timeout.any(given_up_after));
}
