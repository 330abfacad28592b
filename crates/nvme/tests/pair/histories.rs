//! Random histories: processes that end, hang and return, moves, devices that are late. The world
//! checks every step; at the end, when nothing happens any more, every volume has an owner.

use crate::world::{Delays, World};

/// Counts what the histories have shown, so that empty ones do not pass.
#[derive(Debug, Default)]
struct Seen {
    crashes: usize,
    kills: usize,
    takes: usize,
    moves: usize,
    both_ended: usize,
}

fn run(seed: u64, seen: &mut Seen) {
    let mut world = World::new(seed, 4);
    let kill = if seed.is_multiple_of(3) { 40_000 } else { 50 };
    world.delays = Delays { job: 1 + world.random.u64(..400), message: 30, late_write: 3_000, kill };
    for _ in 0..60 {
        let node = world.random.u64(..2) as usize;
        match world.random.u64(..12) {
            0..=4 => world.start(node),
            5 => {
                seen.crashes += usize::from(world.is_running(node));
                world.crash(node);
                seen.both_ended += usize::from(!world.is_running(1 - node));
            }
            6 => {
                let ms = world.random.u64(..6_000);
                world.freeze(node, ms);
            }
            7 => {
                let nsid = 1 + world.random.u64(..4) as u32;
                world.broken = if world.random.u64(..2) == 0 { vec![(node, nsid)] } else { Vec::new() };
            }
            8 => world.read_only = (world.random.u64(..3) == 0).then_some(node),
            _ => {
                let nsid = 1 + world.random.u64(..4) as u32;
                let owner = world.random.u64(..2) as usize;
                let before = world.owner(nsid);
                let moves = world.own(node, nsid, owner).is_ok() && before.is_some_and(|one| one != owner);
                seen.moves += usize::from(moves);
            }
        }
        let ms = world.random.u64(..2_500);
        world.run_ms(ms);
    }
    world.broken.clear();
    world.read_only = None;
    world.run_ms(3_000);
    // A start is refused while the other one hangs and has not seen the end of the last process.
    for _ in 0..100 {
        world.start(0);
        world.run_ms(1_000);
    }
    assert!(world.is_running(0) && world.is_settled(), "every volume has an owner: {world:?}");
    let owners = [1, 2, 3, 4].map(|nsid| world.owner(nsid));
    if !world.is_running(1) {
        // What returns takes nothing back.
        world.start(1);
        world.run_ms(15_000);
        assert_eq!([1, 2, 3, 4].map(|nsid| world.owner(nsid)), owners);
        assert!(world.is_settled());
    }
    seen.kills += world.kills;
    seen.takes += world.took.len();
}

#[test]
fn no_history_has_two_owners_and_every_volume_has_one_in_the_end() {
    let mut seen = Seen::default();
    for seed in 0..60 {
        println!("seed {seed}");
        run(seed, &mut seen);
    }
    println!("{seen:?}");
    assert!(seen.crashes > 50 && seen.kills > 5 && seen.takes > 500 && seen.moves > 20, "{seen:?}");
    assert!(seen.both_ended > 5, "{seen:?}");
}
