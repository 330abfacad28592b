//! The table alone: what makes two calls one, and what goes when.

use super::*;
use crate::ConnectionId;
use crate::connections::tests::context;
use crate::shared::SingleProcess;
use rpc::auth::AUTH_SYS;

const START: Duration = Duration::from_secs(1000);
const ORIGINAL: Token = Token(1);
const REPLAY: Token = Token(2);

fn header(xid: u32) -> CallHeader<'static> {
    CallHeader {
        xid: Xid(xid),
        program: 100_003,
        version: 3,
        procedure: 8,
        credential_flavor: AUTH_SYS,
        credential_body: b"somebody",
    }
}

const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

/// A call that always comes over the same path.
fn over_one_path(key: CallKey) -> ForeignCall {
    ForeignCall { key, origin: Origin { connection: ConnectionId::NONE, path: 1 } }
}

fn of(header: &CallHeader<'_>, args_hash: u64) -> ForeignCall {
    over_one_path(CallKey::new(header, args_hash, ADDRESS))
}

fn call(xid: u32) -> ForeignCall {
    of(&header(xid), 0)
}

fn at(now: Duration) -> LookupContext<'static> {
    context(&[], &SingleProcess, now)
}

fn run(table: &mut Table, xid: u32, now: Duration) {
    assert_eq!(table.begin(&call(xid), ORIGINAL, &at(now)), Begin::Run);
    assert_eq!(table.finish(&call(xid), Outcome::Reply(b"reply"), now), ReplyTo::ORIGINAL);
}

fn stored() -> Begin {
    Begin::Replay(Stored::Reply(b"reply"[..].into()))
}

#[test]
fn calls_differ_by_address_xid_procedure_credential_and_arguments() {
    let mut table = Table::new(100);
    run(&mut table, 1, START);
    assert_eq!(table.begin(&call(1), REPLAY, &at(START)), stored());
    let others = [
        of(&header(2), 0),
        of(&CallHeader { procedure: 9, ..header(1) }, 0),
        of(&CallHeader { program: 9, ..header(1) }, 0),
        of(&CallHeader { version: 4, ..header(1) }, 0),
        of(&CallHeader { credential_flavor: 0, ..header(1) }, 0),
        of(&CallHeader { credential_body: b"somebody else", ..header(1) }, 0),
        of(&header(1), args_hash(b"a", 1)),
        of(&header(1), args_hash(b"a", 2)),
        over_one_path(CallKey::new(&header(1), 0, [192, 0, 2, 2].into())),
    ];
    for other in others {
        assert_eq!(table.begin(&other, ORIGINAL, &at(START)), Begin::Run);
    }
}

#[test]
fn a_replay_of_a_running_call_is_answered_on_the_newest_connection() {
    let mut table = Table::new(100);
    assert_eq!(table.begin(&call(1), ORIGINAL, &at(START)), Begin::Run);
    assert_eq!(table.begin(&call(1), REPLAY, &at(START + 2 * TABLE_AGE_MAX)), Begin::Attached);
    assert_eq!(table.begin(&call(1), Token(3), &at(START)), Begin::Attached);
    assert_eq!(table.finish(&call(1), Outcome::Done, START), ReplyTo { waiter: Some(Token(3)) });
    assert_eq!(table.begin(&call(1), REPLAY, &at(START)), Begin::Replay(Stored::Done));
}

#[test]
fn a_dropped_call_may_run_again() {
    let mut table = Table::new(100);
    assert_eq!(table.begin(&call(1), ORIGINAL, &at(START)), Begin::Run);
    assert_eq!(table.finish(&call(1), Outcome::Dropped, START), ReplyTo::ORIGINAL);
    assert!(table.is_empty());
    run(&mut table, 1, START);
    // The queue entry of the dropped one goes first and takes nothing with it.
    run(&mut table, 2, START + Duration::from_secs(1));
    assert_eq!(table.begin(&call(1), REPLAY, &at(START)), stored());
}

#[test]
fn outcomes_are_kept_for_their_time_and_no_longer() {
    let mut table = Table::new(100);
    run(&mut table, 1, START);
    let nearly = START + TABLE_AGE_MAX - Duration::from_millis(1);
    assert_eq!(table.begin(&call(1), REPLAY, &at(nearly)), stored());
    run(&mut table, 1, START + TABLE_AGE_MAX);
    run(&mut table, 2, START + 2 * TABLE_AGE_MAX);
    assert_eq!(table.len(), 1, "what is aged went without being asked for");
}

#[test]
fn the_oldest_that_does_not_run_goes_when_the_table_is_full() {
    let mut table = Table::new(3);
    assert_eq!(table.begin(&call(1), ORIGINAL, &at(START)), Begin::Run);
    run(&mut table, 2, START);
    run(&mut table, 3, START);
    run(&mut table, 4, START);
    assert_eq!(table.begin(&call(1), REPLAY, &at(START)), Begin::Attached, "running calls stay");
    assert_eq!(table.begin(&call(3), REPLAY, &at(START)), stored());
    assert_eq!(table.begin(&call(4), REPLAY, &at(START)), stored());
    assert_eq!(table.len(), 3);
    assert_eq!(table.begin(&call(2), ORIGINAL, &at(START)), Begin::Run, "this one went");
}

#[test]
fn a_table_full_of_running_calls_takes_no_more() {
    let mut table = Table::new(3);
    for xid in 0..3 {
        assert_eq!(table.begin(&call(xid), ORIGINAL, &at(START)), Begin::Run);
    }
    assert_eq!(table.begin(&call(9), ORIGINAL, &at(START)), Begin::Refused(Refusal::TableFull));
    table.finish(&call(1), Outcome::Done, START);
    assert_eq!(table.begin(&call(9), ORIGINAL, &at(START)), Begin::Run);
}

#[test]
fn the_queue_stays_within_its_bound_whatever_is_dropped() {
    let mut table = Table::new(8);
    for xid in 0..1000 {
        assert_eq!(table.begin(&call(xid), ORIGINAL, &at(START)), Begin::Run);
        table.finish(&call(xid), if xid % 3 == 0 { Outcome::Done } else { Outcome::Dropped }, START);
        assert!(table.queue.len() <= 8 && table.len() <= table.queue.len());
    }
}

#[test]
fn shards_are_used_evenly_enough() {
    let mut counts = [0; 8];
    for xid in 0..8000 {
        counts[call(xid).key.shard(8)] += 1;
    }
    assert!(counts.iter().all(|count| (500..1500).contains(count)), "{counts:?}");
    assert_eq!(call(1).key.shard(0), 0);
}
