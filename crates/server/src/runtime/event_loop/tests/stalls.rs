//! Tests which connections are reset after a loop did not run.

use super::*;
use crate::runtime::mailbox::MovingConnection;

const STALL_MAX: Duration = Duration::from_millis(20);

fn getattr() -> Vec<u8> {
    nfs(Procedure::GetAttr, &proc::getattr::Args { object: FileHandle::new(&[1; 32]).unwrap() })
}

/// Sends bytes, and waits until they are older than [`STALL_MAX`].
fn send_and_age(connection: &Connection, mut client: &TcpStream, bytes: &[u8]) {
    client.write_all(bytes).unwrap();
    let deadline = clock::now() + Duration::from_secs(120);
    while !(connection.stream.may_hold_records() && connection.stream.since_data().unwrap() > STALL_MAX) {
        assert!(clock::now() < deadline, "the data arrive, and age");
        std::thread::yield_now();
    }
}

#[test]
fn after_a_stall_only_connections_with_calls_that_waited_too_long_are_reset() {
    let (_mailboxes, mut loops, clients) = two_loops_of(group_with_stall(STALL_MAX), 3);
    let [first, _] = &mut loops;
    let keys = |of: &EventLoop| of.keys(|_| true);
    // One connection has received nothing, and one has received half a call.
    (&clients[2]).write_all(&getattr()[..50]).unwrap();
    let deadline = clock::now() + Duration::from_secs(120);
    while !first.connections[2].stream.within_record() {
        assert!(clock::now() < deadline, "half a call is received");
        first.alive = clock::now();
        first.serve(2);
    }
    send_and_age(&first.connections[0], &clients[0], &getattr());
    let before = first.statistics.stalls;
    first.alive = clock::now().saturating_sub(Duration::from_secs(1));
    first.notice_stall();
    assert_eq!(first.statistics.stalls, before + 1);
    assert_eq!(keys(first), [1, 2], "a call waited on the first connection");
    let reset = (&clients[0]).read(&mut [0]).unwrap_err();
    assert_eq!(reset.kind(), std::io::ErrorKind::ConnectionReset);
}

#[test]
fn a_call_is_stale_only_if_its_client_has_sent_nothing_since() {
    let mut single = Single::new();
    let connection = &single.connection;
    assert!(!connection.may_hold_stale_call(Duration::ZERO), "nothing was received");
    send_and_age(connection, &single.client, &getattr());
    assert!(connection.may_hold_stale_call(STALL_MAX));
    assert!(!connection.may_hold_stale_call(Duration::from_secs(3600)));
    single.turn(false);
    assert!(!single.connection.may_hold_stale_call(STALL_MAX), "the call was executed");
}

#[test]
fn a_connection_may_wait_for_a_loop_with_much_to_do_but_not_for_one_that_sleeps() {
    let (_mailboxes, mut loops, clients) = two_loops_of(group_with_stall(STALL_MAX), 2);
    let [first, second] = &mut loops;
    send_and_age(&first.connections[0], &clients[0], &getattr());
    let now = clock::now();
    let since = now.saturating_sub(Duration::from_secs(1));
    (second.alive, second.runs_since) = (now, since);
    let mut stale = |runs_since| {
        second.runs_since = runs_since;
        [0, 1].map(|key| second.slept_while_moving(&first.connections[key], since))
    };
    assert_eq!(stale(since), [false, false], "the loop ran meanwhile");
    assert_eq!(stale(now), [true, false], "the second connection has received nothing");
    assert!(!second.slept_while_moving(&first.connections[0], now), "it has only just left");
}

#[test]
fn a_sleep_that_ends_with_a_connection_from_another_loop_is_noticed_for_all_others() {
    let (_mailboxes, mut loops, clients) = two_loops_of(group_with_stall(STALL_MAX), 2);
    let [first, _] = &mut loops;
    send_and_age(&first.connections[0], &clients[0], &getattr());
    let connection = Box::new(first.connections.remove(1));
    first.poller.remove(connection.socket().unwrap()).unwrap();
    let since = clock::now();
    first.alive = since.saturating_sub(Duration::from_secs(1));
    first.adopt_moved(MovingConnection { connection, since });
    assert_eq!(ids(first), [1], "a call waited on the first connection");
}

#[test]
fn a_sleep_without_events_counts_if_a_paused_connection_holds_a_call() {
    let (_mailboxes, mut loops, clients) = two_loops_of(group_with_stall(STALL_MAX), 2);
    let [first, _] = &mut loops;
    send_and_age(&first.connections[0], &clients[0], &getattr());
    let sleep = |of: &mut EventLoop| {
        of.alive = clock::now().saturating_sub(Duration::from_secs(1));
        of.notice_stall_after_wait(false);
        ids(of)
    };
    assert_eq!(sleep(first), [0, 1], "an event will announce the call");
    first.connections[0].paused = true;
    assert_eq!(sleep(first), [1], "the connection waited, for example for memory");
}
