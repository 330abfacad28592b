//! Tests the path table with links that die, break, slow down, flap and recover: many seeds, and a
//! virtual clock.
//!
//! In every world each call is answered exactly once, and is moved off a connection only once that
//! connection is fenced. A failure names its seed; `SIM_SEED=n` runs only that seed.

mod world;

use paths::{PathId, PathStatus, State};
use std::time::Duration;
use world::{Fault, Plan, Random, World};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// The time that a call may take besides a failover: the calls of all other callers are queued
/// before this call on one link.
const QUEUE: Duration = ms(150);

struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {0}; run it alone with SIM_SEED={0}", self.0);
        }
    }
}

fn for_each_seed(scenario: impl Fn(u64, &mut Random)) {
    let chosen = std::env::var("SIM_SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = chosen.map_or(0..24, |seed| seed..seed + 1);
    for seed in seeds {
        let guard = Seed(seed);
        scenario(seed, &mut Random::new(seed ^ 0xfeed));
        drop(guard);
    }
}

fn plan(seed: u64, random: &mut Random) -> Plan {
    let nodes = random.between(2, 6) as u16;
    let each = random.between(1, 4) as u16;
    Plan {
        nodes,
        connections: (0..nodes * each).map(|i| i % nodes).collect(),
        callers: random.between(4, 40) as usize,
        files: random.below(2) == 0,
        lopsided: false,
        bytes: if random.below(2) == 0 { 64 << 10 } else { 1 << 20 },
        seed,
        faults: Vec::new(),
        until: ms(20_000),
    }
}

/// Ends the calls and checks the invariants that hold in every world.
fn finish(world: &mut World, until: Duration) {
    world.run(until);
    assert_eq!(world.failures, [""; 0]);
    assert_eq!(world.unanswered(), 0, "every call is answered");
}

fn status(world: &World, path: u16) -> PathStatus {
    world.table.path(PathId(path)).unwrap()
}

#[test]
fn calls_leave_a_silently_dead_path_within_a_second_and_load_returns() {
    for_each_seed(|seed, random| {
        let mut plan = plan(seed, random);
        let dead = random.below(u64::from(plan.nodes)) as u16;
        plan.faults = vec![
            (ms(random.between(500, 2000)), dead, Fault::Silent),
            (ms(random.between(5000, 6000)), dead, Fault::Restore),
        ];
        let nodes = plan.nodes;
        let callers_there = plan.callers >= usize::from(nodes);
        let mut world = World::new(plan);
        world.run(ms(4000));
        assert!(!callers_there || world.state(dead) != State::Up, "the path is dead");
        world.run(ms(15_000));
        let used = status(&world, dead).deaths > 0;
        assert!(used || !callers_there, "a path with calls in flight goes down");
        assert_eq!(world.state(dead), State::Up, "the path is up again");
        world.take_served();
        world.run(ms(20_000));
        let served = world.take_served();
        if callers_there {
            let (own, all) = (served[usize::from(dead)], served.iter().sum::<u64>());
            assert!(own * u64::from(nodes) * 5 > all * 2, "load returns: {served:?}");
        }
        finish(&mut world, ms(25_000));
        assert!(world.longest < ms(1000) + QUEUE, "a call took {:?}", world.longest);
        assert!(status(&world, dead).gap_worst < ms(1000));
    });
}

#[test]
fn calls_leave_a_frozen_server_within_a_second_and_load_returns() {
    for_each_seed(|seed, random| {
        let mut plan = plan(seed, random);
        let dead = random.below(u64::from(plan.nodes)) as u16;
        plan.faults = vec![
            (ms(random.between(500, 2000)), dead, Fault::Frozen),
            (ms(random.between(5000, 6000)), dead, Fault::Restore),
        ];
        let callers_there = plan.callers >= usize::from(plan.nodes);
        let mut world = World::new(plan);
        world.run(ms(4000));
        assert!(!callers_there || world.state(dead) != State::Up, "the path is dead");
        world.run(ms(15_000));
        assert_eq!(world.state(dead), State::Up, "the path is up again");
        finish(&mut world, ms(25_000));
        assert!(world.longest < ms(1000) + QUEUE, "a call took {:?}", world.longest);
        assert!(status(&world, dead).gap_worst < ms(1000));
    });
}

#[test]
fn an_overloaded_server_is_not_taken_for_a_dead_one() {
    for_each_seed(|seed, random| {
        let mut plan = plan(seed, random);
        let every = ms(random.between(100, 1400));
        let slow = random.below(u64::from(plan.nodes)) as u16;
        // The fault affects one node of the group, or the machine that runs all nodes.
        let all = random.below(2) == 0;
        plan.faults = (0..plan.nodes)
            .filter(|path| all || *path == slow)
            .map(|path| (ms(1000), path, Fault::Stalls(every)))
            .collect();
        let mut world = World::new(plan);
        world.run(ms(8000));
        // The first stall may count as a death, because the server has always been fast.
        let deaths = |world: &World| status(world, slow).deaths;
        let first = deaths(&world);
        assert!(first <= 1, "{first} deaths with a reply every {every:?}");
        finish(&mut world, ms(30_000));
        assert_eq!(deaths(&world), first, "the server is known to stall; a reply every {every:?}");
    });
}

#[test]
fn calls_leave_a_reset_path_at_once() {
    for_each_seed(|seed, random| {
        let mut plan = plan(seed, random);
        let dead = random.below(u64::from(plan.nodes)) as u16;
        plan.faults = vec![
            (ms(random.between(500, 2000)), dead, Fault::Reset),
            (ms(random.between(5000, 6000)), dead, Fault::Restore),
        ];
        let mut world = World::new(plan);
        world.run(ms(15_000));
        assert_eq!(world.state(dead), State::Up, "the path is up again");
        finish(&mut world, ms(25_000));
        assert!(world.longest < QUEUE, "a call took {:?}", world.longest);
        assert_eq!(status(&world, dead).gap_worst, ms(0));
    });
}

#[test]
fn all_but_one_path_may_die_at_once() {
    for_each_seed(|seed, random| {
        let mut plan = plan(seed, random);
        let survivor = random.below(u64::from(plan.nodes)) as u16;
        let dead: Vec<u16> = (0..plan.nodes).filter(|&path| path != survivor).collect();
        plan.faults = dead.iter().map(|&path| (ms(1000), path, Fault::Silent)).collect();
        let mut world = World::new(plan);
        finish(&mut world, ms(25_000));
        // A call cannot meet two dead paths in succession: by then all of them are suspect.
        assert!(world.longest < ms(1000) + 2 * QUEUE, "a call took {:?}", world.longest);
        for path in dead {
            assert!(status(&world, path).gap_worst < ms(1000));
        }
    });
}

#[test]
fn a_slow_path_is_used_less_and_does_not_go_down() {
    for_each_seed(|seed, random| {
        let mut plan = plan(seed, random);
        let slow = random.below(u64::from(plan.nodes)) as u16;
        plan.files = false;
        plan.callers += usize::from(plan.nodes) * 2;
        plan.faults = vec![(ms(2000), slow, Fault::Slow(10))];
        let nodes = u64::from(plan.nodes);
        let mut world = World::new(plan);
        world.run(ms(4000));
        world.take_served();
        world.run(ms(15_000));
        let served = world.take_served();
        let (own, all) = (served[usize::from(slow)], served.iter().sum::<u64>());
        assert!(own > 0 && own * nodes * 2 < all, "{served:?}");
        finish(&mut world, ms(25_000));
        assert_eq!(status(&world, slow).deaths, 0);
    });
}

#[test]
fn files_leave_a_preferred_path_that_has_become_ten_times_slower_and_return_to_it() {
    for_each_seed(|seed, random| {
        let mut plan = plan(seed, random);
        plan.nodes = random.between(3, 6) as u16;
        plan.connections = (0..2 * plan.nodes).map(|i| i % plan.nodes).collect();
        plan.files = true;
        plan.callers = usize::from(plan.nodes) * random.between(1, 8) as usize;
        let slow = random.below(u64::from(plan.nodes)) as u16;
        plan.faults = vec![(ms(2000), slow, Fault::Slow(10)), (ms(10_000), slow, Fault::Restore)];
        plan.bytes = 1 << 20;
        let nodes = u64::from(plan.nodes);
        let mut world = World::new(plan);
        world.run(ms(1000));
        world.take_served();
        world.run(ms(2000));
        let before: u64 = world.take_served().iter().sum();
        assert!((0..nodes as u16).all(|path| status(&world, path).departures == 0), "all paths are fast");
        // By then the calls have queued up, and the table must have noticed.
        world.run(ms(4000));
        assert_eq!(status(&world, slow).departures, 1);
        world.take_served();
        world.run(ms(10_000));
        let served = world.take_served();
        let (own, all) = (served[usize::from(slow)], served.iter().sum::<u64>());
        assert!(own * 10 < all, "the other paths serve these files: {served:?}");
        assert!(all * nodes * 10 > before * 6 * (nodes - 1) * 7, "{all} in 6 s, {before} in 1 s before");
        // By then the calls in flight on the slow link have ended, and the longest time of failover
        // is over.
        world.run(ms(16_000));
        world.take_served();
        world.run(ms(20_000));
        let served = world.take_served();
        let (own, all) = (served[usize::from(slow)], served.iter().sum::<u64>());
        assert!(own * nodes * 10 > all * 7, "the files use their preferred path again: {served:?}");
        finish(&mut world, ms(25_000));
        assert_eq!(status(&world, slow).deaths, 0);
        assert_eq!(status(&world, slow).departures, 1, "the path has not flapped");
    });
}

#[test]
fn files_stay_on_a_shared_path_that_is_as_fast_as_others() {
    for_each_seed(|seed, random| {
        let mut plan = plan(seed, random);
        plan.files = true;
        plan.lopsided = true;
        plan.callers = 40;
        plan.until = ms(4000);
        let nodes = plan.nodes;
        let mut world = World::new(plan);
        finish(&mut world, ms(5000));
        let left: Vec<u64> = (0..nodes).map(|path| status(&world, path).departures).collect();
        assert!(left.iter().all(|left| *left == 0), "{left:?}");
    });
}

#[test]
fn a_flapping_path_moves_calls_less_and_less_often() {
    for_each_seed(|seed, random| {
        let mut plan = plan(seed, random);
        plan.until = ms(90_000);
        let bad = random.below(u64::from(plan.nodes)) as u16;
        plan.callers = 8;
        plan.bytes = 1 << 20;
        let (mut at, mut ill) = (1000, false);
        while at < 90_000 {
            ill = !ill;
            let illness = if random.below(2) == 0 { Fault::Silent } else { Fault::Reset };
            plan.faults.push((ms(at), bad, if ill { illness } else { Fault::Restore }));
            at += random.between(700, 1500);
        }
        plan.faults.push((ms(91_000), bad, Fault::Restore));
        let mut world = World::new(plan);
        finish(&mut world, ms(95_000));
        let deaths = status(&world, bad).deaths;
        assert!((1..=14).contains(&deaths), "{deaths} deaths in about 40 flaps");
        assert!(world.longest < ms(1000) + QUEUE, "a call took {:?}", world.longest);
    });
}

#[test]
fn when_all_paths_are_down_calls_wait_until_one_is_up() {
    for_each_seed(|seed, random| {
        let mut plan = plan(seed, random);
        for path in 0..plan.nodes {
            let fault = if random.below(2) == 0 { Fault::Silent } else { Fault::Reset };
            plan.faults.push((ms(1000 + random.below(300)), path, fault));
        }
        let back = random.below(u64::from(plan.nodes)) as u16;
        plan.faults.push((ms(60_000), back, Fault::Restore));
        plan.until = ms(61_000);
        let mut world = World::new(plan);
        world.run(ms(59_000));
        let (answered, outputs) = (world.answered, world.outputs);
        world.run(ms(60_000));
        assert_eq!(world.answered, answered, "nothing answers");
        assert!(
            world.outputs - outputs < 200,
            "{} outputs in one second of waiting",
            world.outputs - outputs
        );
        world.run(ms(62_500));
        assert_eq!(world.state(back), State::Up);
        finish(&mut world, ms(70_000));
    });
}

#[test]
fn a_table_fails_over_when_its_own_paths_are_down_and_fails_back() {
    for_each_seed(|seed, random| {
        let mut plan = plan(seed, random);
        plan.nodes += 2;
        let own = random.between(1, 2) as u16;
        plan.connections = (0..random.between(1, 6) as u16).map(|i| i % own).collect();
        for path in 0..own {
            let fault = if random.below(2) == 0 { Fault::Silent } else { Fault::Reset };
            plan.faults.push((ms(1000), path, fault));
            plan.faults.push((ms(8000), path, Fault::Restore));
        }
        let connections = plan.connections.clone();
        let mut world = World::new(plan);
        world.run(ms(4000));
        world.take_served();
        world.run(ms(8000));
        assert_eq!(world.failures, [""; 0]);
        let served = world.take_served();
        let (own_served, foreign_served) = served.split_at(usize::from(own));
        assert_eq!(own_served.iter().sum::<u64>(), 0);
        assert!(foreign_served.iter().sum::<u64>() > 0, "{served:?}");
        finish(&mut world, ms(40_000));
        for (conn, path) in connections.iter().enumerate() {
            let now_on = world.table.path_of(paths::ConnId(conn as u16));
            assert_eq!(now_on, Some(PathId(*path)), "connection {conn} has failed back");
        }
        assert!(world.longest < ms(1000) + 2 * QUEUE, "a call took {:?}", world.longest);
    });
}

#[test]
fn whatever_happens_every_call_is_answered_once() {
    for_each_seed(|seed, random| {
        let mut plan = plan(seed, random);
        let own = random.between(1, u64::from(plan.nodes));
        let most = if random.below(4) == 0 { 200 } else { 64 };
        let connections = random.between(1, most);
        plan.connections = (0..connections).map(|_| random.below(own) as u16).collect();
        for _ in 0..random.between(5, 120) {
            let fault = match random.below(6) {
                0 => Fault::Silent,
                1 => Fault::Reset,
                2 => Fault::Slow(random.between(2, 50) as u32),
                _ => Fault::Restore,
            };
            let path = random.below(u64::from(plan.nodes)) as u16;
            plan.faults.push((ms(random.below(30_000)), path, fault));
        }
        for path in 0..plan.nodes {
            plan.faults.push((ms(30_000), path, Fault::Restore));
        }
        plan.until = ms(32_000);
        let mut world = World::new(plan);
        finish(&mut world, ms(80_000));
    });
}

#[test]
fn twenty_files_on_four_nodes_share_the_links_evenly() {
    for_each_seed(|seed, random| {
        let mut plan = plan(seed, random);
        plan.nodes = 4;
        plan.connections = (0..8).map(|i| i % 4).collect();
        plan.callers = 20;
        plan.files = true;
        plan.until = ms(2000);
        let mut world = World::new(plan);
        finish(&mut world, ms(3000));
        assert_eq!(world.placement.files_by_node().collect::<Vec<_>>(), [5; 4]);
        let served = world.take_served();
        let all: u64 = served.iter().sum();
        assert!(
            served.iter().all(|&own| own * 4 * 100 > all * 98 && own * 4 * 100 < all * 102),
            "{served:?}"
        );
    });
}
