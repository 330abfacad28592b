//! Tests of the table's rules, one at a time. `tests/simulation.rs` combines all of them.

mod failback;

use super::pick::{CALL_COST, OTHER_DIRECTION};
use super::*;
use crate::{Class, ConnSpec, NodeId, PathSpec};
use proptest::prelude::*;
use std::collections::BTreeSet;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn config(nodes: u16, connections: u16) -> Config {
    let on = |i: u16| ConnSpec { path: PathId(i % nodes), node: NodeId(i % nodes), metadata: false };
    Config {
        paths: (0..nodes).map(|node| PathSpec { node: NodeId(node) }).collect(),
        connections: (0..connections).map(on).collect(),
        metadata_apart: false,
        spread_reads: false,
        spread_writes: false,
        timing: Timing::default(),
        seed: 1,
    }
}

fn outputs(table: &mut Table) -> Vec<Output> {
    std::iter::from_fn(|| table.poll_output())
        .filter(|output| !matches!(output, Output::StateChanged { .. }))
        .collect()
}

fn connected(config: Config) -> Table {
    let mut table = Table::new(config, ms(0));
    for output in outputs(&mut table) {
        let Output::Connect(conn) = output else { panic!("{output:?}") };
        table.connected(ms(0), conn);
    }
    assert_eq!(outputs(&mut table), []);
    table
}

/// Two connections on two paths that each took `connect_time` to establish, as over RDMA, where
/// that matters.
fn connected_in(connect_time: Duration) -> Table {
    let mut config = config(2, 2);
    config.timing = Timing { probe_per_connect_time: 3, connect_timeout: ms(4000), ..config.timing };
    let mut table = Table::new(config, ms(0));
    assert_eq!(outputs(&mut table).len(), 2);
    for conn in [0, 1].map(ConnId) {
        table.reached(connect_time, conn);
        table.connected(connect_time, conn);
    }
    table
}

fn state(table: &Table, path: u16) -> State {
    table.path(PathId(path)).unwrap().state
}

/// Runs the timers up to and including `until`, collecting outputs.
fn run(table: &mut Table, until: Duration) -> Vec<(Duration, Output)> {
    let mut seen = Vec::new();
    while let Some(wake) = table.next_wake().filter(|&wake| wake <= until) {
        table.advance(wake);
        seen.extend(outputs(table).into_iter().map(|output| (wake, output)));
        assert!(table.next_wake().is_none_or(|next| next > wake), "a wake in the past at {wake:?}");
    }
    seen
}

/// Takes path 0 (connection 0) down by silence: a call at 0 ms becomes overdue, and the probe is
/// missed.
fn die_silently(table: &mut Table, now: Duration) -> Vec<Output> {
    table.sent(now, ConnId(0), Class::Read, 0);
    table.tick(now + ms(250), ConnId(0), Some(now), false);
    assert_eq!(outputs(table), [Output::Probe(PathId(0))]);
    table.advance(now + ms(550));
    outputs(table)
}

#[test]
fn a_connection_that_is_reset_for_its_replies_connects_at_once_however_often_and_its_path_did_not_fail() {
    let mut table = connected(config(2, 2));
    for round in 1..20 {
        table.sent(ms(round), ConnId(0), Class::Read, 0);
        table.reset(ms(round), ConnId(0));
        assert_eq!(outputs(&mut table), [Output::Move(ConnId(0)), Output::Connect(ConnId(0))]);
        table.reached(ms(round), ConnId(0));
        table.connected(ms(round), ConnId(0));
        assert_eq!(outputs(&mut table), []);
        assert_eq!(state(&table, 0), State::Up);
        let status = table.path(PathId(0)).unwrap();
        assert_eq!((status.deaths, status.suspicions), (0, 0));
    }
    table.reset(ms(20), ConnId(0));
    outputs(&mut table);
    table.disconnected(ms(21), ConnId(0));
    assert_eq!(state(&table, 0), State::Down, "the path does not connect again");
}

/// Breaks connection 0 again and again as soon as it is validated; the times from each break to the
/// next connect.
fn gaps(table: &mut Table, breaks: impl Fn(&mut Table, Duration)) -> Vec<Duration> {
    let mut now = ms(10);
    let connects = |table: &mut Table, now: Duration| {
        let outputs = outputs(table);
        for output in &outputs {
            if let Output::Probe(path) = output {
                table.probe_answered(now, *path);
            }
        }
        outputs.contains(&Output::Connect(ConnId(0)))
    };
    let gaps = (0..8).map(|_| {
        breaks(table, now);
        let broken_at = now;
        let mut connected = connects(table, now);
        for _ in 0..1000 {
            if connected {
                break;
            }
            now = table.next_wake().expect("it connects again");
            table.advance(now);
            connected = connects(table, now);
        }
        table.reached(now, ConnId(0));
        table.connected(now, ConnId(0));
        now - broken_at
    });
    gaps.collect()
}

#[test]
fn a_connection_that_breaks_again_and_again_waits_longer_each_time_up_to_a_bound() {
    let reset: fn(&mut Table, Duration) = |table, now| table.reset_with_back_off(now, ConnId(0));
    let broken: fn(&mut Table, Duration) = |table, now| table.disconnected(now, ConnId(0));
    for (connections, breaks) in [(1, reset), (2, reset), (2, broken)] {
        let mut table = connected(config(1, connections));
        let seen = gaps(&mut table, breaks);
        assert_eq!(seen[0], ms(0), "once is no pattern");
        for (gap, wanted) in seen[1..].iter().zip([200, 400, 800, 1600, 1600, 1600, 1600]) {
            assert!((ms(wanted * 3 / 4)..=ms(wanted * 5 / 4)).contains(gap), "{wanted}: {seen:?}");
        }
        // Once it has lasted, it is as good as new.
        let now = ms(60_000);
        breaks(&mut table, now);
        assert!(outputs(&mut table).contains(&Output::Connect(ConnId(0))));
    }
    // Alone on its path, it takes the path down: the path is held down as one that flaps.
    let seen = gaps(&mut connected(config(1, 1)), broken);
    assert!(seen[0] == ms(0) && seen[1] >= ms(75) && seen[4] > seen[1], "{seen:?}");
}

#[test]
fn the_least_loaded_connection_takes_the_call_and_ties_go_round() {
    let mut table = connected(config(1, 4));
    for _ in 0..40 {
        let conn = table.pick(Class::Read, None, 1 << 20).unwrap();
        table.sent(ms(0), conn, Class::Read, 1 << 20);
    }
    let loads: BTreeSet<u64> = (0..4).map(|conn| table.load(ConnId(conn))).collect();
    assert_eq!(loads.len(), 1);
    table.answered(ms(1), ConnId(2), Class::Read, 1 << 20, ms(1));
    assert_eq!(table.pick(Class::Read, None, 0), Some(ConnId(2)));
    assert_eq!(table.pick(Class::Write, None, 4096), Some(ConnId(2)), "not sent yet, so still the least");
}

#[test]
fn a_file_is_read_on_its_node_unless_reads_are_spread() {
    let mut table = connected(config(4, 8));
    for _ in 0..20 {
        let conn = table.pick(Class::Read, Some(NodeId(2)), 4096).unwrap();
        table.sent(ms(0), conn, Class::Read, 4096);
        assert_eq!(table.path_of(conn), Some(PathId(2)));
    }
    let mut table = connected(Config { spread_reads: true, ..config(4, 8) });
    let mut used = BTreeSet::new();
    for _ in 0..8 {
        let conn = table.pick(Class::Read, Some(NodeId(2)), 4096).unwrap();
        table.sent(ms(0), conn, Class::Read, 4096);
        used.insert(conn);
        let write = table.pick(Class::Write, Some(NodeId(1)), 0).unwrap();
        assert_eq!(table.path_of(write), Some(PathId(1)));
    }
    assert_eq!(used.len(), 8);
}

#[test]
fn metadata_keeps_off_the_bulk_connections_while_its_own_live() {
    let mut config = config(2, 4);
    config.metadata_apart = true;
    config.connections[3].metadata = true;
    let mut table = connected(config);
    for _ in 0..9 {
        let conn = table.pick(Class::Metadata, Some(NodeId(0)), 0).unwrap();
        table.sent(ms(0), conn, Class::Read, 0);
        assert_eq!(conn, ConnId(3));
        assert_ne!(table.pick(Class::Write, None, 1 << 20), Some(ConnId(3)));
    }
    table.disconnected(ms(1), ConnId(3));
    assert!(table.pick(Class::Metadata, None, 0).is_some());
}

#[test]
fn calls_leave_a_broken_connection_at_once() {
    let mut table = connected(config(2, 2));
    table.sent(ms(10), ConnId(0), Class::Read, 1 << 20);
    table.disconnected(ms(20), ConnId(0));
    assert_eq!(outputs(&mut table), [Output::Move(ConnId(0)), Output::Connect(ConnId(0))]);
    assert_eq!(state(&table, 0), State::Down);
    assert_eq!(table.pick(Class::Read, Some(NodeId(0)), 0), Some(ConnId(1)));
    assert_eq!(table.load(ConnId(0)), 0);
    let status = table.path(PathId(0)).unwrap();
    assert_eq!((status.failovers, status.moved_calls, status.gap_worst), (1, 1, ms(0)));
    table.connected(ms(21), ConnId(0));
    assert_eq!(state(&table, 0), State::Up);
}

proptest! {
    /// The search may stop early and must still find the same connection as a full search.
    #[test]
    fn the_best_connection_is_the_first_of_those_with_the_least_to_do(
        loads in prop::collection::vec((0_u64..3, 0_u64..3, 0_u64..3), 2..100),
        last in 0_u16..100,
        writes in any::<bool>(),
    ) {
        let count = loads.len() as u16;
        let mut table = connected(config(1, count));
        for (index, &(towards, away, slower)) in loads.iter().enumerate() {
            table.choice.load[index] = [towards * CALL_COST, away * CALL_COST];
            table.choice.weight[index] = WEIGHT_ONE + slower * WEIGHT_ONE;
        }
        table.choice.last = ConnId(last % count);
        let (class, ours) = if writes { (Class::Write, 1) } else { (Class::Read, 0) };
        let score = |conn: &u16| {
            let index = usize::from(*conn);
            let load = table.choice.load[index];
            (load[ours] + load[1 - ours] / OTHER_DIRECTION + CALL_COST) * table.choice.weight[index]
        };
        let next = table.choice.last.0 + 1;
        let best = (next..count).chain(0..next).min_by_key(score);
        prop_assert_eq!(table.pick(class, None, 0).map(|conn| conn.0), best);
    }
}

#[test]
fn more_connections_than_a_word_has_bits_are_used_like_a_few() {
    let mut table = connected(config(2, 150));
    for _ in 0..2 {
        let mut taken = BTreeSet::new();
        for _ in 0..150 {
            let conn = table.pick(Class::Read, None, 4096).unwrap();
            table.sent(ms(0), conn, Class::Read, 4096);
            taken.insert(conn);
        }
        assert_eq!(taken.len(), 150);
    }
    let here = table.path_of(ConnId(149)).unwrap();
    for conn in (0..149).map(ConnId) {
        if table.path_of(conn) == Some(here) {
            table.disconnected(ms(1), conn);
        }
    }
    let said = outputs(&mut table);
    assert_eq!(said.iter().filter(|output| matches!(output, Output::Move(_))).count(), 74);
    table.probe_answered(ms(2), here);
    assert_eq!(table.pick(Class::Read, Some(NodeId(here.0)), 4096), Some(ConnId(149)));
}

#[test]
fn a_silent_path_is_probed_then_fenced_before_its_calls_move() {
    let mut table = connected(config(2, 2));
    table.sent(ms(0), ConnId(0), Class::Read, 0);
    table.tick(ms(199), ConnId(0), Some(ms(0)), false);
    assert_eq!((outputs(&mut table), state(&table, 0)), (vec![], State::Up));
    table.tick(ms(201), ConnId(0), Some(ms(0)), false);
    assert_eq!((outputs(&mut table), state(&table, 0)), (vec![Output::Probe(PathId(0))], State::Suspect));
    assert_eq!(table.pick(Class::Read, Some(NodeId(0)), 0), Some(ConnId(1)), "up before suspect");
    let seen = run(&mut table, ms(600));
    assert_eq!(seen, [(ms(501), Output::Abort(ConnId(0))), (ms(501), Output::Move(ConnId(0)))]);
    assert_eq!(state(&table, 0), State::Down);
    assert_eq!(table.path(PathId(0)).unwrap().gap_last, ms(501));
}

#[test]
fn any_byte_is_a_sign_of_life() {
    let mut table = connected(config(2, 4));
    table.sent(ms(0), ConnId(0), Class::Read, 1 << 20);
    for tick in 1..100 {
        table.tick(ms(50 * tick), ConnId(0), Some(ms(0)), true);
    }
    assert_eq!(outputs(&mut table), []);
    // A silent connection is avoided, but its path is not suspected while another connection of the
    // path shows signs of life.
    table.sent(ms(5000), ConnId(2), Class::Read, 0);
    table.alive(ms(5190), ConnId(0));
    table.tick(ms(5250), ConnId(2), Some(ms(5000)), false);
    assert_eq!((outputs(&mut table), state(&table, 0)), (vec![], State::Up));
    for _ in 0..9 {
        assert_eq!(table.pick(Class::Read, Some(NodeId(0)), 0), Some(ConnId(0)));
    }
    table.alive(ms(5260), ConnId(2));
    let picks: BTreeSet<_> = (0..9).filter_map(|_| table.pick(Class::Read, Some(NodeId(0)), 0)).collect();
    assert!(picks.contains(&ConnId(2)));
}

#[test]
fn an_answered_probe_clears_the_suspicion() {
    let mut table = connected(config(2, 2));
    table.sent(ms(0), ConnId(0), Class::Read, 0);
    table.tick(ms(250), ConnId(0), Some(ms(0)), false);
    table.probe_answered(ms(251), PathId(0));
    assert_eq!(state(&table, 0), State::Up);
    assert_eq!(outputs(&mut table), [Output::Probe(PathId(0))]);
    assert_eq!(table.next_wake(), None);
    assert_eq!(table.pick(Class::Read, Some(NodeId(0)), 0), Some(ConnId(1)), "its call is overdue still");
    table.answered(ms(300), ConnId(0), Class::Read, 0, ms(300));
    assert_eq!(table.pick(Class::Read, Some(NodeId(0)), 0), Some(ConnId(0)));
}

#[test]
fn the_only_path_is_given_up_late() {
    let mut table = connected(config(1, 1));
    table.sent(ms(0), ConnId(0), Class::Read, 0);
    table.tick(ms(250), ConnId(0), Some(ms(0)), false);
    let seen = run(&mut table, ms(4999));
    assert!(seen.iter().all(|(_, output)| *output == Output::Probe(PathId(0))), "{seen:?}");
    assert_eq!(table.pick(Class::Read, None, 0), Some(ConnId(0)));
    let seen = run(&mut table, ms(5500));
    assert!(seen.iter().any(|(_, output)| *output == Output::Move(ConnId(0))), "{seen:?}");
    assert_eq!(table.pick(Class::Read, None, 0), None, "calls wait");
}

#[test]
fn a_silent_connection_is_given_up_after_timeo_though_its_path_lives() {
    let mut config = config(2, 2);
    config.timing.silent_max = ms(3000);
    let mut table = connected(config);
    table.sent(ms(0), ConnId(0), Class::Read, 0);
    for tick in 1..=60 {
        let now = ms(50 * tick);
        table.tick(now, ConnId(0), Some(ms(0)), false);
        if outputs(&mut table).contains(&Output::Probe(PathId(0))) {
            table.probe_answered(now, PathId(0));
        }
        assert_eq!(outputs(&mut table), []);
    }
    table.tick(ms(3001), ConnId(0), Some(ms(0)), false);
    let expected = [Output::Abort(ConnId(0)), Output::Move(ConnId(0)), Output::Connect(ConnId(0))];
    assert_eq!(outputs(&mut table), expected);
}

#[test]
fn a_dead_path_is_tried_with_back_off_until_it_answers() {
    let mut table = connected(config(2, 2));
    assert_eq!(die_silently(&mut table, ms(0)), [Output::Abort(ConnId(0)), Output::Move(ConnId(0))]);
    let probes = run(&mut table, ms(60_000));
    assert!(probes.iter().all(|(_, output)| *output == Output::Probe(PathId(0))));
    let gaps: Vec<_> = probes.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
    assert!(gaps.iter().all(|&gap| gap >= ms(300) && gap <= ms(2400)), "{gaps:?}");
    assert!(probes.len() > 25 && probes.len() < 60, "{}", probes.len());
    table.probe_answered(ms(60_001), PathId(0));
    assert_eq!(outputs(&mut table), [Output::Connect(ConnId(0))]);
    assert_eq!(state(&table, 0), State::Probing);
    table.connected(ms(60_002), ConnId(0));
    assert_eq!(state(&table, 0), State::Up);
}

#[test]
fn a_connect_gives_up_after_a_second_and_tries_again() {
    let mut table = Table::new(config(1, 1), ms(0));
    assert_eq!(outputs(&mut table), [Output::Connect(ConnId(0))]);
    let seen = run(&mut table, ms(1300));
    assert_eq!(seen[0], (ms(1000), Output::Abort(ConnId(0))));
    assert_eq!(seen[1].1, Output::Probe(PathId(0)));
    table.probe_answered(ms(1300), PathId(0));
    assert_eq!(outputs(&mut table), [Output::Connect(ConnId(0))]);
}

#[test]
fn a_returning_path_ramps_up() {
    let mut table = connected(config(2, 2));
    die_silently(&mut table, ms(0));
    run(&mut table, ms(2000));
    table.probe_answered(ms(2000), PathId(0));
    table.connected(ms(2000), ConnId(0));
    let mut taken = 0;
    for now in [2000, 2500, 3100] {
        for _ in 0..500 {
            let conn = table.pick(Class::Read, Some(NodeId(0)), 4096).unwrap();
            table.sent(ms(now), conn, Class::Read, 4096);
            taken += u32::from(conn == ConnId(0));
        }
        table.tick(ms(now), ConnId(0), None, true);
        match now {
            2000 => assert_eq!(taken, 1),
            2500 => assert!(taken <= 16, "{taken}"),
            _ => assert!(taken >= 200, "{taken}"),
        }
        table.tick(ms(now + 499), ConnId(0), None, true);
    }
}

#[test]
fn a_flapping_path_is_held_down_longer_each_time() {
    let mut table = connected(config(2, 2));
    let (mut now, mut held) = (ms(0), Vec::new());
    for _ in 0..9 {
        table.disconnected(now, ConnId(0));
        let died = now;
        loop {
            if outputs(&mut table).iter().any(|output| matches!(output, Output::Connect(ConnId(0)))) {
                table.connected(now, ConnId(0));
                outputs(&mut table);
                break;
            }
            now = table.next_wake().unwrap();
            table.advance(now);
            if state(&table, 0) == State::Probing {
                table.probe_answered(now, PathId(0));
            }
        }
        held.push((now - died).as_secs());
        now += ms(100);
    }
    assert_eq!(held, [0, 1, 2, 4, 8, 16, 30, 30, 30]);
    // If there is no alternative, any path is better than none.
    now += ms(100);
    table.disconnected(now, ConnId(1));
    table.disconnected(now, ConnId(0));
    outputs(&mut table);
    assert!(table.next_wake().unwrap() < now + ms(2500), "{:?} {now:?}", table.next_wake());
}

#[test]
fn a_table_whose_paths_are_down_fails_over_and_fails_back() {
    let mut config = config(4, 4);
    for (conn, path) in [(0, 0), (1, 0), (2, 1), (3, 1)] {
        config.connections[conn].path = PathId(path);
        config.connections[conn].node = NodeId(path);
    }
    let mut table = connected(config);
    for conn in 0..4 {
        table.sent(ms(0), ConnId(conn), Class::Read, 0);
        table.tick(ms(250), ConnId(conn), Some(ms(0)), false);
    }
    table.advance(ms(550));
    let failed_over: Vec<_> = outputs(&mut table)
        .into_iter()
        .filter_map(|output| match output {
            Output::FailOver { conn, to } => Some((conn, to)),
            _ => None,
        })
        .collect();
    assert_eq!(failed_over.len(), 4, "{failed_over:?}");
    let paths: BTreeSet<_> = failed_over.iter().map(|(_, to)| *to).collect();
    assert_eq!(paths, BTreeSet::from([PathId(2), PathId(3)]));
    for (conn, _) in &failed_over {
        table.connected(ms(551), *conn);
    }
    let seen = run(&mut table, ms(2000));
    assert!(seen.iter().any(|(_, output)| *output == Output::Probe(PathId(0))), "{seen:?}");
    let carried = table.pick(Class::Read, Some(NodeId(0)), 0).unwrap();
    table.sent(ms(2000), ConnId(0), Class::Read, 0);
    assert!(table.path_of(carried).unwrap() >= PathId(2));

    table.probe_answered(ms(2001), PathId(0));
    assert_eq!(outputs(&mut table), [], "connection 0 drains first");
    assert!((0..20).all(|_| table.pick(Class::Read, None, 0) != Some(ConnId(0))));
    table.answered(ms(2002), ConnId(0), Class::Read, 0, ms(2));
    assert_eq!(outputs(&mut table), [Output::FailOver { conn: ConnId(0), to: PathId(0) }]);
    table.connected(ms(2003), ConnId(0));
    assert_eq!(outputs(&mut table), [Output::FailOver { conn: ConnId(1), to: PathId(0) }]);
    table.connected(ms(2004), ConnId(1));
    assert_eq!(outputs(&mut table), [], "path 1 has not answered yet");
    assert_eq!(table.path_of(ConnId(2)).map(|path| path >= PathId(2)), Some(true));
}

#[test]
fn a_connection_that_never_drains_stays_failed_over() {
    let mut config = config(2, 1);
    config.timing.alone_max = ms(0);
    let mut table = connected(config);
    die_silently(&mut table, ms(0));
    table.connected(ms(560), ConnId(0));
    table.sent(ms(600), ConnId(0), Class::Read, 0);
    run(&mut table, ms(1100));
    table.probe_answered(ms(1100), PathId(0));
    assert_eq!(table.pick(Class::Read, None, 0), None, "it drains");
    assert_eq!(run(&mut table, ms(1600)), []);
    assert_eq!(table.pick(Class::Read, None, 0), Some(ConnId(0)), "it gave up draining for now");
    table.answered(ms(3000), ConnId(0), Class::Read, 0, ms(2400));
    let seen = run(&mut table, ms(7000));
    assert_eq!(seen.last().unwrap().1, Output::FailOver { conn: ConnId(0), to: PathId(0) });
}

#[test]
fn a_slow_path_is_used_less_but_not_cut() {
    let mut table = connected(Config { spread_reads: true, ..config(2, 2) });
    let mut slow = 0;
    for i in 0..6400_u64 {
        let now = ms(i * 10);
        let conn = table.pick(Class::Read, None, 4096).unwrap();
        table.sent(now, conn, Class::Read, 4096);
        slow += u32::from(conn == ConnId(0));
        let latency = if conn == ConnId(0) { ms(5) } else { Duration::from_micros(500) };
        table.answered(now + latency, conn, Class::Read, 4096, latency);
        table.tick(now + latency, conn, None, false);
    }
    assert!(
        slow > 20 && slow < 200,
        "{slow} of 6400 calls, one at a time, on the path of ten times the latency"
    );
}

#[test]
fn a_probe_that_was_accepted_has_more_time_for_its_answer() {
    let mut table = connected(config(2, 2));
    table.sent(ms(0), ConnId(0), Class::Read, 0);
    table.tick(ms(250), ConnId(0), Some(ms(0)), false);
    assert_eq!(outputs(&mut table), [Output::Probe(PathId(0))]);
    table.probe_reached(ms(251), PathId(0));
    let seen = run(&mut table, ms(1000));
    assert_eq!(seen[0], (ms(251) + Timing::default().probe_answer, Output::Abort(ConnId(0))));
}

#[test]
fn where_connections_are_expensive_a_probe_is_sent_later_and_may_take_longer() {
    let mut table = connected_in(ms(400));
    table.sent(ms(9000), ConnId(0), Class::Read, 0);
    // A silence shorter than the time to establish a connection causes no probe, but calls already
    // use other paths.
    table.tick(ms(9400), ConnId(0), Some(ms(9000)), false);
    assert_eq!((outputs(&mut table), state(&table, 0)), (vec![], State::Up));
    assert_eq!(table.pick(Class::Read, Some(NodeId(0)), 0), Some(ConnId(1)));
    table.tick(ms(9401), ConnId(0), Some(ms(9000)), false);
    assert_eq!(outputs(&mut table), [Output::Probe(PathId(0))]);
    assert_eq!(run(&mut table, ms(10_600)), []);
    let seen = run(&mut table, ms(10_601));
    assert_eq!(seen.first(), Some(&(ms(10_601), Output::Abort(ConnId(0)))));
    // Each attempt to bring the path back may take longer than the previous one.
    let probes = run(&mut table, ms(60_000));
    let gaps: Vec<_> = probes.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
    assert!(
        gaps.iter().all(|&gap| gap >= ms(1200)) && gaps.last().is_some_and(|&gap| gap >= ms(4000)),
        "{gaps:?}"
    );
}

#[test]
fn however_expensive_connections_are_a_silent_path_is_suspected_after_a_second() {
    let mut table = connected_in(ms(3000));
    table.sent(ms(9000), ConnId(0), Class::Read, 0);
    table.tick(ms(10_000), ConnId(0), Some(ms(9000)), false);
    assert_eq!((outputs(&mut table), state(&table, 0)), (vec![], State::Up));
    table.tick(ms(10_001), ConnId(0), Some(ms(9000)), false);
    assert_eq!(outputs(&mut table), [Output::Probe(PathId(0))]);
}

#[test]
fn attempts_on_a_path_that_was_down_give_a_later_suspicion_no_more_time() {
    let mut table = connected_in(ms(5));
    assert_eq!(die_silently(&mut table, ms(1000)), [Output::Abort(ConnId(0)), Output::Move(ConnId(0))]);
    let probes = run(&mut table, ms(9000));
    assert!(probes.len() >= 3, "{probes:?}");
    table.probe_answered(ms(9000), PathId(0));
    assert_eq!(outputs(&mut table), [Output::Connect(ConnId(0))]);
    table.connected(ms(9001), ConnId(0));
    assert_eq!(die_silently(&mut table, ms(90_000)), [Output::Abort(ConnId(0)), Output::Move(ConnId(0))]);
}

#[test]
fn time_in_which_the_driver_did_not_run_is_no_silence() {
    let mut table = connected(config(2, 2));
    table.sent(ms(0), ConnId(0), Class::Read, 0);
    table.late(ms(900));
    table.tick(ms(1000), ConnId(0), Some(ms(0)), false);
    assert_eq!((outputs(&mut table), state(&table, 0)), (vec![], State::Up));
    table.tick(ms(1150), ConnId(0), Some(ms(0)), false);
    assert_eq!((outputs(&mut table), state(&table, 0)), (vec![Output::Probe(PathId(0))], State::Suspect));
    table.late(ms(900));
    table.advance(ms(2250));
    assert_eq!((outputs(&mut table), state(&table, 0)), (vec![], State::Suspect));
    table.advance(ms(2350));
    assert_eq!(state(&table, 0), State::Down);
}

#[test]
fn a_server_that_accepts_and_validates_slowly_has_more_time_with_each_attempt() {
    let mut table = Table::new(config(1, 1), ms(0));
    assert_eq!(outputs(&mut table), [Output::Connect(ConnId(0))]);
    let (mut now, mut waited) = (ms(0), Vec::new());
    for _ in 0..4 {
        table.reached(now, ConnId(0));
        let until = table.next_wake().unwrap();
        waited.push(until - now);
        now = until;
        while !table.outputs.contains(&Output::Connect(ConnId(0))) {
            table.advance(now);
            if table.outputs.contains(&Output::Probe(PathId(0))) {
                table.outputs.clear();
                table.probe_answered(now, PathId(0));
            }
            now = table.next_wake().unwrap_or(now);
        }
        table.outputs.clear();
    }
    assert_eq!(waited, [ms(1000), ms(2000), ms(4000), ms(8000)]);
}

#[test]
fn a_path_that_broke_for_another_table_is_probed_and_left_at_once_if_it_refuses() {
    let mut table = connected(config(2, 2));
    table.sent(ms(10), ConnId(0), Class::Read, 0);
    table.doubt(ms(10), PathId(0));
    assert_eq!(outputs(&mut table), [Output::Probe(PathId(0))]);
    table.doubt(ms(10), PathId(0));
    assert_eq!(outputs(&mut table), [], "it is probed once");
    table.probe_failed(ms(11), PathId(0));
    assert_eq!(outputs(&mut table), [Output::Abort(ConnId(0)), Output::Move(ConnId(0))]);
    assert_eq!(state(&table, 0), State::Down);
    table.doubt(ms(12), PathId(0));
    table.doubt(ms(12), PathId(7));
    assert_eq!(outputs(&mut table), [], "the path is known to be down, or is not in the list");

    table.doubt(ms(12), PathId(1));
    assert_eq!(outputs(&mut table), [Output::Probe(PathId(1))]);
    table.probe_answered(ms(13), PathId(1));
    assert_eq!(state(&table, 1), State::Up, "only the connection of the other table broke");
}
