//! The table alone: what makes two calls one, and what goes when.

use super::*;
use crate::auth::AUTH_SYS;

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

fn key(xid: u32) -> CallKey {
    CallKey::new(&header(xid), 0)
}

fn run(table: &mut Table, xid: u32, now: Duration) {
    assert_eq!(table.begin(&key(xid), ORIGINAL, now), Begin::Run);
    assert_eq!(table.finish(&key(xid), Outcome::Reply(b"reply"), now), Answer::ORIGINAL);
}

fn stored() -> Begin {
    Begin::Replay(Stored::Reply(b"reply"[..].into()))
}

#[test]
fn calls_differ_by_xid_procedure_credential_and_arguments_but_not_by_address() {
    let mut table = Table::new(100);
    run(&mut table, 1, START);
    assert_eq!(table.begin(&key(1), REPLAY, START), stored());
    let others = [
        CallKey::new(&header(2), 0),
        CallKey::new(&CallHeader { procedure: 9, ..header(1) }, 0),
        CallKey::new(&CallHeader { program: 9, ..header(1) }, 0),
        CallKey::new(&CallHeader { version: 4, ..header(1) }, 0),
        CallKey::new(&CallHeader { credential_flavor: 0, ..header(1) }, 0),
        CallKey::new(&CallHeader { credential_body: b"somebody else", ..header(1) }, 0),
        CallKey::new(&header(1), args_hash(b"a", 1)),
        CallKey::new(&header(1), args_hash(b"a", 2)),
    ];
    for other in others {
        assert_eq!(table.begin(&other, ORIGINAL, START), Begin::Run);
    }
}

#[test]
fn a_replay_of_a_running_call_is_answered_on_the_newest_connection() {
    let mut table = Table::new(100);
    assert_eq!(table.begin(&key(1), ORIGINAL, START), Begin::Run);
    assert_eq!(table.begin(&key(1), REPLAY, START + 2 * TABLE_AGE_MAX), Begin::Attached);
    assert_eq!(table.begin(&key(1), Token(3), START), Begin::Attached);
    assert_eq!(table.finish(&key(1), Outcome::Done, START), Answer { to: Some(Token(3)) });
    assert_eq!(table.begin(&key(1), REPLAY, START), Begin::Replay(Stored::Done));
}

#[test]
fn a_dropped_call_may_run_again() {
    let mut table = Table::new(100);
    assert_eq!(table.begin(&key(1), ORIGINAL, START), Begin::Run);
    assert_eq!(table.finish(&key(1), Outcome::Dropped, START), Answer::ORIGINAL);
    assert!(table.is_empty());
    run(&mut table, 1, START);
    // The place of the dropped one goes first and takes nothing with it.
    run(&mut table, 2, START + Duration::from_secs(1));
    assert_eq!(table.begin(&key(1), REPLAY, START), stored());
}

#[test]
fn outcomes_are_kept_for_their_time_and_no_longer() {
    let mut table = Table::new(100);
    run(&mut table, 1, START);
    let nearly = START + TABLE_AGE_MAX - Duration::from_millis(1);
    assert_eq!(table.begin(&key(1), REPLAY, nearly), stored());
    run(&mut table, 1, START + TABLE_AGE_MAX);
    run(&mut table, 2, START + 2 * TABLE_AGE_MAX);
    assert_eq!(table.len(), 1, "what is aged went without being asked for");
}

#[test]
fn the_oldest_that_does_not_run_goes_when_the_table_is_full() {
    let mut table = Table::new(3);
    assert_eq!(table.begin(&key(1), ORIGINAL, START), Begin::Run);
    run(&mut table, 2, START);
    run(&mut table, 3, START);
    run(&mut table, 4, START);
    assert_eq!(table.begin(&key(1), REPLAY, START), Begin::Attached, "running calls stay");
    assert_eq!(table.begin(&key(3), REPLAY, START), stored());
    assert_eq!(table.begin(&key(4), REPLAY, START), stored());
    assert_eq!(table.len(), 3);
    assert_eq!(table.begin(&key(2), ORIGINAL, START), Begin::Run, "this one went");
}

#[test]
fn a_table_full_of_running_calls_takes_no_more() {
    let mut table = Table::new(3);
    for xid in 0..3 {
        assert_eq!(table.begin(&key(xid), ORIGINAL, START), Begin::Run);
    }
    assert_eq!(table.begin(&key(9), ORIGINAL, START), Begin::Refused(Refusal::TableFull));
    table.finish(&key(1), Outcome::Done, START);
    assert_eq!(table.begin(&key(9), ORIGINAL, START), Begin::Run);
}

#[test]
fn the_queue_stays_within_its_bound_whatever_is_dropped() {
    let mut table = Table::new(8);
    for xid in 0..1000 {
        assert_eq!(table.begin(&key(xid), ORIGINAL, START), Begin::Run);
        table.finish(&key(xid), if xid % 3 == 0 { Outcome::Done } else { Outcome::Dropped }, START);
        assert!(table.queue.len() <= 8 && table.len() <= table.queue.len());
    }
}

#[test]
fn shards_are_used_evenly_enough() {
    let mut counts = [0; 8];
    for xid in 0..8000 {
        counts[key(xid).shard(8)] += 1;
    }
    assert!(counts.iter().all(|count| (500..1500).contains(count)), "{counts:?}");
    assert_eq!(key(1).shard(0), 0);
}
