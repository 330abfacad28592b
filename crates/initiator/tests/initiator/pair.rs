//! Two nodes: commands take the path to the owner, and follow it.

use crate::fixture::{PATIENCE, SUBSYSTEM, attach, config, nqn, pair, volume, wait_for_paths};
use initiator::{Attachment, Error, Volume};
use std::time::Duration;
use target::pair::Record;
use target::{Access, Facts, Namespace, Node, Reach, Target};
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

#[test]
fn a_namespace_that_no_connected_path_serves_is_named_with_what_the_paths_say() {
    let directory = tempfile::tempdir().unwrap();
    let volume = volume(1);
    let addresses = vec!["127.0.0.1:0".parse().unwrap()];
    let config_of_target = target::Config::new(nqn(SUBSYSTEM), "1234", Access::Any, addresses);
    let namespace = Namespace { nsid: 1, facts: Facts::of(&volume), hosts: Access::Any, owner: Node::B };
    let target = Target::start_node(&config_of_target, &[namespace], directory.path()).unwrap();
    let attachment = Attachment::start(config(target.addresses().to_vec())).unwrap();
    for (reach, expected) in [(Reach::Unreachable, "inaccessible"), (Reach::Lost, "persistent loss")] {
        target.set_reach(1, Record { owner: Node::B, epoch: 1 }, reach);
        for nsid in [Some(1), None] {
            let within = Duration::from_millis(10);
            let named = || match attachment.volume(nsid, within) {
                Err(Error::NotServed { nsid: 1, by, .. }) => by.contains(expected).then_some(by),
                _ => None,
            };
            let by = Deadline::wait_until("what the path says", PATIENCE, named);
            assert!(by.starts_with(&target.addresses()[0].to_string()), "{by}");
        }
    }
    // Another number is another error.
    let missing = attachment.volume(Some(2), PATIENCE);
    assert!(matches!(missing, Err(Error::NoNamespace { nsid: 2, .. })), "{missing:?}");
}
