//! Two nodes: commands take the path to the owner, and follow it.

use crate::fixture::{PATIENCE, attach, config, pair, wait_for_paths};
use initiator::Volume;
use target::Node;
use testkit::{Deadline, Relay};

const WRITE_BYTES: u64 = 1 << 20;
/// Admin commands, and what was read before; less than any write.
const SMALL_BYTES: u64 = 256 << 10;

/// Writes once, and says how many bytes each relay has got for it.
fn write(volume: &Volume, relays: &[Relay; 2], value: u8) -> [u64; 2] {
    let before = [0, 1].map(|at: usize| relays[at].bytes());
    volume.write(0, vec![value; WRITE_BYTES as usize]).unwrap();
    assert!(volume.read(0, WRITE_BYTES as usize).unwrap().iter().all(|byte| *byte == value));
    [0, 1].map(|at| relays[at].bytes() - before[at])
}

fn takes(bytes: [u64; 2], node: usize) -> bool {
    bytes[node] >= WRITE_BYTES && bytes[1 - node] < SMALL_BYTES
}

#[test]
fn commands_take_the_path_of_the_owner_and_follow_a_change_of_the_owner() {
    let target = pair();
    let relays = [0, 1].map(|at: usize| Relay::to(target.addresses()[at]));
    let (attachment, volume) = attach(config(relays.iter().map(|relay| relay.address).collect()));
    wait_for_paths(&attachment, 2);
    assert!(takes(write(&volume, &relays, 1), 0));
    for (owner, at) in [(Node::B, 1), (Node::A, 0), (Node::B, 1)] {
        assert!(target.set_owner(1, owner).unwrap());
        let mut value = 0_u8;
        Deadline::wait_until("the other path", PATIENCE, || {
            value = value.wrapping_add(1);
            takes(write(&volume, &relays, value), at).then_some(())
        });
        // And it stays there.
        assert!((0..5).all(|value| takes(write(&volume, &relays, value), at)));
    }
}

#[test]
fn without_the_path_of_the_owner_the_other_node_serves_and_the_owner_is_back_later() {
    let target = pair();
    let relays = [0, 1].map(|at: usize| Relay::to(target.addresses()[at]));
    let (attachment, volume) = attach(config(relays.iter().map(|relay| relay.address).collect()));
    wait_for_paths(&attachment, 2);
    for turn in 0..3 {
        relays[0].cut();
        assert!(takes(write(&volume, &relays, turn), 1));
        relays[0].pass();
        wait_for_paths(&attachment, 2);
        Deadline::wait_until("the best path", PATIENCE, || {
            takes(write(&volume, &relays, 9), 0).then_some(())
        });
    }
}
