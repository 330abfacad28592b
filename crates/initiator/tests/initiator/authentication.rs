//! Targets that ask the host to authenticate, and hosts that want to know who a target is.

use crate::fixture::{HOST, PATIENCE, SUBSYSTEM, attach, config, nqn, volume, wait_for_paths};
use initiator::{Attachment, Config, Error, Refusal, Secrets, discover};
use std::sync::Arc;
use std::time::Duration;
use target::{Access, Algorithms, Export, Group, Hash, HostSecret, Hosts, Node, Secret, Target};

fn secret(byte: u8) -> Secret {
    Secret::new(Some(Hash::Sha256), &[byte; 32]).unwrap()
}

fn of_host(host: u8, controller: Option<u8>) -> HostSecret {
    let algorithms = Algorithms::new(&[Hash::Sha384], &[Group::Ffdhe2048]).unwrap();
    HostSecret { host: secret(host), controller: controller.map(secret), algorithms: Arc::new(algorithms) }
}

/// A target with two addresses that asks the host for this secret, if for one.
fn target(secret: Option<HostSecret>) -> Target {
    let addresses = ["127.0.0.1:0".parse().unwrap(), "127.0.0.1:0".parse().unwrap()].to_vec();
    let mut config = target::Config::new(nqn(SUBSYSTEM), "1234", Access::Any, addresses);
    config.loops = 2;
    config.limits.stall = Duration::from_secs(30);
    config.secrets = secret.map(|secret| (nqn(HOST), secret)).into_iter().collect();
    let export = Export { nsid: 1, volume: volume(1), hosts: Access::Any, owner: Node::A };
    Target::start(&config, &[export]).unwrap()
}

fn with(target: &Target, host: u8, controller: Option<u8>) -> Config {
    let algorithms = Arc::new(Algorithms::default());
    let secrets = Secrets { host: secret(host), controller: controller.map(secret), algorithms };
    Config { secrets: Some(secrets), ..config(target.addresses().to_vec()) }
}

/// Why the host does not get its volume.
fn refusal(config: Config) -> Refusal {
    let attachment = Attachment::start(config).unwrap();
    match attachment.volume(Some(1), PATIENCE) {
        Err(Error::Refused { refusal, .. }) => refusal,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_host_with_the_secret_authenticates_on_each_queue_of_each_path() {
    let target = target(Some(of_host(5, None)));
    let (attachment, volume) = attach(with(&target, 5, None));
    wait_for_paths(&attachment, 2);
    volume.write(4096, vec![7; 1 << 20]).unwrap();
    assert!(volume.read(4096, 1 << 20).unwrap() == vec![7; 1 << 20]);
}

#[test]
fn both_prove_to_each_other_who_they_are() {
    let target = target(Some(of_host(5, Some(6))));
    let (attachment, volume) = attach(with(&target, 5, Some(6)));
    wait_for_paths(&attachment, 2);
    volume.write(0, vec![7; 4096]).unwrap();
    let failed = refusal(with(&target, 5, Some(7)));
    assert!(failed.to_string().contains("response is wrong"), "{failed}");
}

#[test]
fn a_wrong_secret_and_none_are_told_apart() {
    let target = target(Some(of_host(5, None)));
    let failed = refusal(with(&target, 6, None));
    assert!(matches!(failed, Refusal::NotAuthenticated(_)), "{failed}");
    assert_eq!(refusal(config(target.addresses().to_vec())), Refusal::SecretNeeded);
    // Neither has left anything.
    testkit::Deadline::wait_until("an empty target", PATIENCE, || {
        (target.usage().controllers == 0).then_some(())
    });
}

#[test]
fn a_host_that_wants_proof_uses_no_target_that_has_none() {
    let open = target(None);
    assert_eq!(refusal(with(&open, 5, Some(6))), Refusal::NoProof);
    // Without that, a secret that nobody asks for does no harm.
    let (_attachment, volume) = attach(with(&open, 5, None));
    volume.write(0, vec![7; 4096]).unwrap();
    let silent = target(Some(of_host(5, None)));
    assert!(matches!(refusal(with(&silent, 5, Some(6))), Refusal::NotAuthenticated(_)));
}

#[test]
fn discovery_asks_for_nothing() {
    let target = target(Some(of_host(5, None)));
    let found = discover(target.addresses()[0], &nqn(HOST), initiator::HostId([7; 16]), PATIENCE).unwrap();
    assert_eq!(found[0].addresses.len(), 2);
}

#[test]
fn a_host_whose_secret_has_changed_comes_back_once_it_is_right_again() {
    let target = target(Some(of_host(5, None)));
    let (attachment, volume) = attach(with(&target, 5, None));
    wait_for_paths(&attachment, 2);
    let set = |access: Access, byte: u8| {
        let secrets = [(nqn(HOST), of_host(byte, None))].into();
        target.set_hosts(&Hosts { access, ids: [].into(), secrets, volumes: Vec::new() });
    };
    // Its controllers end, and then it does not have the secret any more.
    set(Access::Only([].into()), 6);
    set(Access::Any, 6);
    let refused = |path: &initiator::PathState| matches!(path.refused, Some(Refusal::NotAuthenticated(_)));
    testkit::Deadline::wait_until("refusals", PATIENCE, || {
        attachment.paths().iter().all(refused).then_some(())
    });
    set(Access::Any, 5);
    volume.write(0, vec![8; 4096]).unwrap();
    assert!(volume.read(0, 4096).unwrap() == vec![8; 4096]);
}
