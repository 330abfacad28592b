//! Named cases.

use crate::world::{NODES, World};
use nvme::controller::Reach;
use nvme::pair::{Message, Misuse, Opened, Output, Pair, Record, Timing};
use std::time::Duration;

/// Both nodes run, each with its volumes: 1 and 3 of the first, 2 and 4 of the second.
fn both() -> World {
    let mut world = World::new(7, 4);
    world.start(0);
    world.start(1);
    world.run_until("the start", World::is_settled);
    assert_eq!([1, 2, 3, 4].map(|nsid| world.owner(nsid)), [Some(0), Some(1), Some(0), Some(1)]);
    world
}

#[test]
fn the_partner_takes_what_a_process_has_left_and_a_node_that_returns_takes_nothing_back() {
    let mut world = both();
    world.delays.late_write = 500;
    world.crash(0);
    world.run_until("the lock of a late write", |world| !world.has_lock(1) || world.owner(1) == Some(1));
    world.run_until("the takeover", World::is_settled);
    assert_eq!((world.owner(1), world.owner(2)), (Some(1), Some(1)));
    assert_eq!(world.records[&1].epoch, 3);
    world.took.clear();
    world.start(0);
    world.run_ms(30_000);
    assert!(world.is_settled());
    assert_eq!([1, 2, 3, 4].map(|nsid| world.owner(nsid)), [Some(1); 4]);
    assert!(world.took.is_empty(), "{:?}", world.took);
}

#[test]
fn a_volume_whose_owner_does_not_end_waits_until_it_has() {
    let mut world = both();
    // It hangs, and then in a device: it is killed and does not end for a minute.
    world.delays.kill = 1;
    world.freeze(0, 3_600_000);
    world.delays.kill = 40_000;
    world.run_until("the kill", |world| world.kills == 1);
    assert_eq!(world.reach(1, 1).map(|(_, reach)| reach), Some(Reach::Moving));
    assert_eq!(world.reach(1, 2).map(|(_, reach)| reach), Some(Reach::Serving));
    world.freeze(0, 30_000);
    world.run_ms(15_000);
    assert_eq!(world.reach(1, 1).map(|(_, reach)| reach), Some(Reach::Lost));
    assert_eq!((world.owner(1), world.owner(3)), (Some(0), Some(0)), "it has its locks");
    world.run_until("the end", |world| !world.is_running(0));
    world.run_until("the takeover", World::is_settled);
    assert_eq!([1, 2, 3, 4].map(|nsid| world.owner(nsid)), [Some(1); 4]);
}

#[test]
fn a_node_that_was_late_itself_does_not_kill_its_partner() {
    let mut world = both();
    world.freeze(0, 5_000);
    world.freeze(1, 5_000);
    world.run_ms(20_000);
    assert_eq!(world.kills, 0);
    assert!(world.is_settled());
}

#[test]
fn a_volume_that_moves_is_closed_by_its_owner_before_the_other_opens_it() {
    let mut world = both();
    world.run_ms(15_000);
    // What it has taken takes two seconds.
    world.delays.job = 2_000;
    assert_eq!(world.own(0, 1, 1), Ok(()));
    assert_eq!(world.reach(0, 1).map(|(_, reach)| reach), Some(Reach::Moving));
    assert_eq!(world.own(0, 1, 1), Err(Misuse::Moving));
    assert!(world.has_lock(1) && !world.took.ends_with(&[(1, 1)]));
    world.run_until("the move", |world| world.owner(1) == Some(1));
    world.run_until("both to know it", World::is_settled);
    // The other node is asked for it back.
    assert_eq!(world.own(0, 1, 0), Ok(()));
    world.run_until("the way back", |world| world.owner(1) == Some(0));
    world.run_until("both to know it", World::is_settled);
    assert_eq!(world.records[&1].epoch, 4);
    assert_eq!(world.own(0, 9, 1), Err(Misuse::Unknown(9)));
    assert_eq!(world.own(0, 1, 0), Ok(()));
}

#[test]
fn a_volume_that_the_other_cannot_open_or_record_stays() {
    let mut world = both();
    world.broken.push((1, 1));
    assert_eq!(world.own(0, 1, 1), Ok(()));
    world.run_ms(1_000);
    world.run_until("its return", |world| world.owner(1) == Some(0));
    world.broken.clear();
    world.read_only = Some(1);
    assert_eq!(world.own(0, 3, 1), Ok(()));
    world.run_ms(1_000);
    assert_eq!(world.owner(3), None);
    world.read_only = None;
    world.run_until("some owner", World::is_settled);
}

#[test]
fn a_node_without_its_partner_takes_all_after_a_while_and_both_may_return() {
    let mut world = both();
    assert_eq!(world.own(0, 1, 1), Ok(()));
    world.run_until("the move", World::is_settled);
    (0..2).for_each(|node| world.crash(node));
    world.run_ms(1_000);
    world.start(0);
    world.run_ms(9_000);
    // The other one may appear within ten seconds.
    assert_eq!([1, 2, 3, 4].map(|nsid| world.owner(nsid)), [None, None, Some(0), None]);
    assert_eq!(world.own(0, 3, 1), Err(Misuse::Alone));
    world.run_until("the takeover", World::is_settled);
    world.start(1);
    world.run_ms(20_000);
    assert!(world.is_settled());
    assert_eq!([1, 2, 3, 4].map(|nsid| world.owner(nsid)), [Some(0); 4]);
    // Both at once: each has what is its own by the records.
    assert_eq!(world.own(1, 2, 1), Ok(()));
    world.run_until("the move", |world| world.owner(2) == Some(1));
    (0..2).for_each(|node| world.crash(node));
    world.run_ms(1_000);
    (0..2).for_each(|node| world.start(node));
    world.run_until("the start", World::is_settled);
    assert_eq!([1, 2, 3, 4].map(|nsid| world.owner(nsid)), [Some(0), Some(1), Some(0), Some(0)]);
}

#[test]
fn a_lock_that_comes_when_the_partner_owns_the_volume_is_given_back() {
    let now = Duration::ZERO;
    let record = Record { owner: NODES[0], epoch: 4 };
    let mut pair = Pair::new(now, NODES[0], NODES[1], Timing::default(), [(1, record)]);
    let outputs = |pair: &mut Pair| std::iter::from_fn(|| pair.poll_output()).collect::<Vec<_>>();
    let reach = |record, reach| Output::Reach { nsid: 1, record, reach };
    assert_eq!(outputs(&mut pair), [Output::Open { nsid: 1 }, reach(record, Reach::Moving)]);
    pair.handle_partner_connected(now);
    pair.handle_message(now, Message::Owned { nsid: 1, epoch: 5 });
    let of_partner = Record { owner: NODES[1], epoch: 5 };
    assert_eq!(outputs(&mut pair), [reach(of_partner, Reach::Serving)]);
    pair.handle_opened(now, 1, Opened::Locked(of_partner));
    assert_eq!(outputs(&mut pair), [Output::Close { nsid: 1 }]);
    pair.handle_closed(now, 1);
    assert_eq!((outputs(&mut pair), pair.owns(1)), (Vec::new(), false));
}

#[test]
fn a_volume_that_the_other_node_does_not_know_is_not_given_to_it() {
    let now = Duration::ZERO;
    let record = Record { owner: NODES[1], epoch: 4 };
    let mut pair = Pair::new(now, NODES[1], NODES[0], Timing::default(), [(1, record)]);
    pair.handle_partner_connected(now);
    while pair.poll_output().is_some() {}
    pair.handle_message(now, Message::Given { nsid: 9 });
    assert_eq!(pair.poll_output(), Some(Output::Send(Message::Declined { nsid: 9 })));
    // Who has given it takes it back.
    let mut giver =
        Pair::new(now, NODES[0], NODES[1], Timing::default(), [(9, Record { owner: NODES[0], epoch: 1 })]);
    giver.handle_opened(now, 9, Opened::Locked(Record { owner: NODES[0], epoch: 1 }));
    giver.handle_saved(now, 9, true);
    giver.handle_partner_connected(now);
    assert_eq!(giver.handle_own(now, 9, NODES[1]), Ok(()));
    giver.handle_closed(now, 9);
    while giver.poll_output().is_some() {}
    giver.handle_message(now, Message::Declined { nsid: 9 });
    assert!(std::iter::from_fn(|| giver.poll_output()).any(|output| output == Output::Open { nsid: 9 }));
}
