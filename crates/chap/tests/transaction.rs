//! Both machines against each other, with right and wrong secrets, and with what happens to
//! messages between them.

use chap::message::{Message, Negotiate, Protocol, RECEIVED_BYTES_MAX, SENT_BYTES_MAX};
use chap::{
    Algorithms, Cause, Controller, Credentials, Entropy, Explanation, Failure, Group, Hash, Host, Next,
    NoRoom, Outcome, Secret, Sequence,
};
use nvme::Nqn;
use std::sync::Arc;

/// Bytes that differ from call to call, and are the same in each run.
struct Random {
    sequence: Sequence,
    calls: u8,
}

impl Random {
    fn new(seed: u32) -> Self {
        Self { sequence: Sequence::new(seed), calls: seed as u8 }
    }

    fn entropy(&mut self) -> Entropy {
        self.calls = self.calls.wrapping_add(1);
        let mut state = u32::from(self.calls) << 8 | 1;
        let bytes = std::array::from_fn(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        });
        Entropy::new(&bytes, self.sequence.take())
    }
}

fn secret(byte: u8, transformation: Option<Hash>) -> Secret {
    Secret::new(transformation, &[byte; 32]).expect("32 bytes")
}

fn credentials(host_secret: u8, controller_secret: Option<u8>) -> Arc<Credentials> {
    Arc::new(Credentials {
        host: Nqn::new("nqn.2026-11.test:host").expect("valid"),
        subsystem: Nqn::new("nqn.2026-11.test:subsystem").expect("valid"),
        host_secret: secret(host_secret, Some(Hash::Sha256)),
        controller_secret: controller_secret.map(|byte| secret(byte, None)),
    })
}

fn algorithms(hashes: &[Hash], groups: &[Group]) -> Arc<Algorithms> {
    Arc::new(Algorithms::new(hashes, groups).expect("not empty"))
}

fn plain() -> Arc<Algorithms> {
    algorithms(&Hash::ALL, &[Group::Null])
}

/// Both ends of a queue.
struct Queue {
    host: Host,
    controller: Controller,
    random: Random,
    /// The names of the messages so far.
    said: Vec<&'static str>,
}

impl Queue {
    fn new(host: Host, controller: Controller) -> Self {
        Self { host, controller, random: Random::new(1), said: Vec::new() }
    }

    fn with(at_host: Arc<Credentials>, at_controller: Arc<Credentials>) -> Self {
        Self::new(Host::new(at_host, plain(), 7), Controller::new(at_controller, plain()))
    }

    /// One command, whose message may be changed on its way. False at the end.
    fn step(&mut self, change: &mut dyn FnMut(&mut Vec<u8>)) -> bool {
        match self.host.next() {
            Next::Send(message) => {
                let mut message = message.to_vec();
                change(&mut message);
                assert!(message.len() <= SENT_BYTES_MAX);
                self.note(&message);
                let entropy = self.random.entropy();
                self.controller.handle_send(&message, &entropy);
                self.host.handle_sent();
            }
            Next::Receive => {
                let entropy = self.random.entropy();
                let received = self.controller.handle_receive(RECEIVED_BYTES_MAX);
                let (mut message, _) = received.expect("as much room as any message needs");
                change(&mut message);
                self.note(&message);
                self.host.handle_received(&message, &entropy);
            }
            Next::Authenticated | Next::Failed(_) => return false,
        }
        true
    }

    fn note(&mut self, message: &[u8]) {
        self.said.extend(Message::decode(message).map(|(message, _)| message.name()));
    }

    fn run(&mut self) -> (Next<'_>, bool) {
        while self.step(&mut |_| {}) {}
        (self.host.next(), self.controller.is_authenticated())
    }
}

fn refused(cause: Cause) -> Next<'static> {
    Next::Failed(Failure::Refused(cause))
}

fn by_peer(explanation: Explanation) -> Next<'static> {
    Next::Failed(Failure::ByPeer(explanation))
}

#[test]
fn right_secrets_authenticate_with_every_hash_and_group() {
    for hash in Hash::ALL {
        for group in Group::ALL {
            for controller_secret in [None, Some(9)] {
                let credentials = credentials(5, controller_secret);
                let host = Host::new(Arc::clone(&credentials), algorithms(&[hash], &[group]), 0xfffe);
                let mut queue = Queue::new(host, Controller::new(credentials, Arc::default()));
                assert_eq!(queue.run(), (Next::Authenticated, true), "{} {}", hash.name(), group.name());
                assert!(!queue.controller.is_in_progress());
            }
        }
    }
}

#[test]
fn the_messages_are_those_of_the_specification() {
    let one_way = ["AUTH_Negotiate", "DH-HMAC-CHAP_Challenge", "DH-HMAC-CHAP_Reply", "DH-HMAC-CHAP_Success1"];
    let mut queue = Queue::with(credentials(5, None), credentials(5, Some(9)));
    assert_eq!(queue.run(), (Next::Authenticated, true));
    assert_eq!(queue.said, one_way, "a host that asks for no proof gets none");
    let mut queue = Queue::with(credentials(5, Some(9)), credentials(5, Some(9)));
    assert_eq!(queue.run(), (Next::Authenticated, true));
    assert_eq!(queue.said, [one_way.as_slice(), &["DH-HMAC-CHAP_Success2"]].concat());
}

#[test]
fn a_host_with_another_secret_is_refused_with_every_hash_and_group() {
    for hash in Hash::ALL {
        for group in [Group::Null, Group::Ffdhe2048, Group::Ffdhe3072] {
            let host = Host::new(credentials(6, None), algorithms(&[hash], &[group]), 1);
            let mut queue = Queue::new(host, Controller::new(credentials(5, None), Arc::default()));
            assert_eq!(queue.run(), (by_peer(Explanation::FAILED), false));
            assert_eq!(queue.said.last(), Some(&"AUTH_Failure1"));
            let again = queue.controller.handle_send(&[], &Random::new(3).entropy());
            assert_eq!(again, Outcome::Failed(Cause::WrongResponse.into()));
        }
    }
}

#[test]
fn a_controller_with_another_secret_is_refused_with_every_hash_and_group() {
    for hash in Hash::ALL {
        for group in [Group::Null, Group::Ffdhe2048, Group::Ffdhe3072] {
            let host = Host::new(credentials(5, Some(9)), algorithms(&[hash], &[group]), 1);
            let controller = Controller::new(credentials(5, Some(8)), Arc::default());
            let mut queue = Queue::new(host, controller);
            assert_eq!(queue.run(), (refused(Cause::WrongResponse), false));
            assert_eq!(queue.said.last(), Some(&"AUTH_Failure2"));
            assert!(!queue.controller.is_in_progress());
        }
    }
}

#[test]
fn a_controller_without_the_secret_that_a_host_asks_for_says_so() {
    let mut queue = Queue::with(credentials(5, Some(9)), credentials(5, None));
    assert_eq!(queue.run(), (by_peer(Explanation::FAILED), false));
    let outcome = queue.controller.handle_send(&[], &Random::new(3).entropy());
    assert_eq!(outcome, Outcome::Failed(Cause::NoControllerSecret.into()));
}

#[test]
fn a_secret_belongs_to_one_name() {
    let other = Credentials {
        host: Nqn::new("nqn.2026-11.test:other").expect("valid"),
        ..Credentials::clone(&credentials(5, None))
    };
    let mut queue = Queue::with(Arc::new(other.clone()), credentials(5, None));
    assert_eq!(queue.run(), (by_peer(Explanation::FAILED), false));
    // Also without a transformation, since the names are in the response.
    let bare = |host: &Credentials| {
        Arc::new(Credentials { host_secret: secret(5, None), ..Credentials::clone(host) })
    };
    let mut queue = Queue::with(bare(&other), bare(&credentials(5, None)));
    assert_eq!(queue.run(), (by_peer(Explanation::FAILED), false));
}

#[test]
fn the_controller_takes_its_first_algorithms_that_the_host_offers() {
    let ours = algorithms(&[Hash::Sha384, Hash::Sha512], &[Group::Ffdhe3072, Group::Null]);
    let theirs = algorithms(&[Hash::Sha512, Hash::Sha256, Hash::Sha384], &[Group::Null, Group::Ffdhe2048]);
    let (credentials, mut random) = (credentials(5, None), Random::new(1));
    let mut controller = Controller::new(Arc::clone(&credentials), ours);
    let host = Host::new(credentials, theirs, 1);
    let Next::Send(negotiate) = host.next() else { panic!("begins with a message") };
    assert_eq!(controller.handle_send(negotiate, &random.entropy()), Outcome::Continue);
    let (bytes, _) = controller.handle_receive(RECEIVED_BYTES_MAX).expect("enough room");
    let Ok(Message::Challenge(challenge)) = Message::decode_whole(&bytes) else { panic!("a challenge") };
    assert_eq!((challenge.hash, challenge.group), (Hash::Sha384.id(), Group::Null.id()));
    assert_eq!(challenge.challenge.len(), 48);
}

#[test]
fn what_only_one_side_accepts_is_refused_by_its_name() {
    for (hashes, groups, explanation) in [
        ([Hash::Sha256], [Group::Null], Explanation::HASH_NOT_USABLE),
        ([Hash::Sha512], [Group::Ffdhe2048], Explanation::GROUP_NOT_USABLE),
    ] {
        let ours = algorithms(&[Hash::Sha512], &[Group::Null]);
        let controller = Controller::new(credentials(5, None), ours);
        let host = Host::new(credentials(5, None), algorithms(&hashes, &groups), 1);
        let mut queue = Queue::new(host, controller);
        assert_eq!(queue.run(), (by_peer(explanation), false));
    }
}

#[test]
fn concatenation_and_strange_protocols_are_refused() {
    let ours = Protocol::DhChap { hashes: vec![1], groups: vec![0] };
    let strange = Protocol::Other([0x55; 64]);
    for (concatenation, protocols, cause) in [
        (1, vec![ours.clone()], Some(Cause::Concatenation(1))),
        (0, vec![strange.clone()], Some(Cause::NoProtocol)),
        (0, vec![], Some(Cause::NoProtocol)),
        (0, vec![Protocol::DhChap { hashes: vec![], groups: vec![0] }], Some(Cause::NoHash)),
        (0, vec![Protocol::DhChap { hashes: vec![4, 0], groups: vec![0] }], Some(Cause::NoHash)),
        (0, vec![Protocol::DhChap { hashes: vec![3], groups: vec![9] }], Some(Cause::NoGroup)),
        (0, vec![strange, ours], None),
    ] {
        let mut controller = Controller::new(credentials(5, None), plain());
        let negotiate = Message::Negotiate(Negotiate { transaction: 3, concatenation, protocols });
        let outcome = controller.handle_send(&negotiate.encode(), &Random::new(1).entropy());
        assert_eq!(outcome, cause.map_or(Outcome::Continue, |cause| Outcome::Failed(cause.into())));
        let (message, _) = controller.handle_receive(RECEIVED_BYTES_MAX).expect("enough room");
        let message = Message::decode_whole(&message).expect("a message");
        assert_eq!(message.transaction(), 3);
        if let Some(cause) = cause {
            let Message::Failure1(failure) = message else { panic!("{}", message.name()) };
            assert_eq!((failure.reason, failure.explanation), (1, cause.explanation()));
        }
    }
}

/// Every message, changed in every byte that means something, and cut at every length.
#[test]
fn a_changed_or_cut_message_never_authenticates() {
    let run = |at: usize, change: &dyn Fn(&mut Vec<u8>)| {
        let mut queue = Queue::with(credentials(5, Some(9)), credentials(5, Some(9)));
        let mut step = 0;
        let mut changed = Vec::new();
        loop {
            let go_on = queue.step(&mut |message| {
                if step == at {
                    change(message);
                    changed.clone_from(message);
                }
                step += 1;
            });
            if !go_on || step > 20 {
                break;
            }
        }
        assert!(step <= 20, "it ends");
        (matches!(queue.host.next(), Next::Authenticated), queue.controller.is_authenticated())
    };
    for (at, length) in [(0, 72), (1, 80), (2, 144), (3, 80), (4, 16)] {
        for cut in 0..length {
            let (host, controller) = run(at, &|message| {
                assert_eq!(message.len(), length, "message {at}");
                message.truncate(cut);
            });
            // Success2 has no answer: the host cannot know that the controller did not take it.
            assert!(!controller && (!host || at == 4), "message {at} cut at {cut}");
        }
        for byte in (0..length).filter(|byte| !is_ignored(at, *byte)) {
            let (host, controller) = run(at, &|message| message[byte] ^= 0x40);
            assert!(!controller && (!host || at == 4), "message {at} changed at {byte}");
        }
    }
}

/// Reserved bytes, unused room, and identifiers in the offer, of which others remain.
fn is_ignored(message: usize, byte: usize) -> bool {
    match message {
        0 => matches!(byte, 2 | 3 | 9 | 12..=41 | 43..),
        1 | 2 => matches!(byte, 2 | 3 | 7) || message == 2 && byte == 9,
        3 => matches!(byte, 2 | 3 | 7 | 9..16),
        _ => matches!(byte, 2 | 3 | 6..),
    }
}

#[test]
fn a_reply_of_another_transaction_is_refused() {
    let (host, controller) = (credentials(5, None), credentials(5, None));
    let mut first = Queue::with(Arc::clone(&host), Arc::clone(&controller));
    let mut replies = Vec::new();
    let mut keep = |message: &mut Vec<u8>| replies.push(message.clone());
    while first.step(&mut keep) {}
    assert!(first.controller.is_authenticated());
    // The same transaction number, but another challenge.
    let mut second = Queue::new(Host::new(host, plain(), 7), Controller::new(controller, plain()));
    second.random = Random::new(100);
    let mut at = 0;
    let mut replay = |message: &mut Vec<u8>| {
        if at == 2 {
            message.clone_from(&replies[2]);
        }
        at += 1;
    };
    while second.step(&mut replay) {}
    assert_eq!(second.host.next(), by_peer(Explanation::FAILED));
    assert!(!second.controller.is_authenticated());
}

#[test]
fn messages_out_of_order_end_the_transaction() {
    let (ours, mut random) = (credentials(5, Some(9)), Random::new(1));
    let mut queue = Queue::with(Arc::clone(&ours), Arc::clone(&ours));
    let mut said = Vec::new();
    while queue.step(&mut |message| said.push(message.clone())) {}
    let [negotiate, challenge, reply, success1, success2] = said.as_slice() else { panic!("five messages") };
    let not_due = |name| Outcome::Failed(Cause::NotDue(name).into());
    for (before, message, outcome) in [
        (vec![], challenge, not_due("DH-HMAC-CHAP_Challenge")),
        (vec![], reply, not_due("DH-HMAC-CHAP_Reply")),
        (vec![], success2, not_due("DH-HMAC-CHAP_Success2")),
        (vec![negotiate], negotiate, not_due("AUTH_Negotiate")),
        (vec![negotiate], reply, not_due("DH-HMAC-CHAP_Reply")),
        (vec![negotiate], success1, not_due("DH-HMAC-CHAP_Success1")),
    ] {
        let mut controller = Controller::new(Arc::clone(&ours), plain());
        for message in before {
            assert_eq!(controller.handle_send(message, &random.entropy()), Outcome::Continue);
        }
        assert_eq!(controller.handle_send(message, &random.entropy()), outcome);
        let (failure, again) = controller.handle_receive(8).expect("room for a failure");
        assert_eq!((failure[1], failure[7], again), (0xf1, Explanation::INCORRECT_MESSAGE.0, outcome));
        assert!(!controller.is_authenticated() && !controller.is_in_progress());
        // Nothing revives it.
        assert_eq!(controller.handle_send(negotiate, &random.entropy()), outcome);
    }
}

#[test]
fn a_host_takes_no_message_that_is_not_due() {
    let (ours, mut random) = (credentials(5, None), Random::new(1));
    let success = [0x01, 0x03, 0, 0, 7, 0, 64, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let mut host = Host::new(Arc::clone(&ours), plain(), 7);
    host.handle_sent();
    host.handle_received(&success, &random.entropy());
    let Next::Send(failure) = host.next() else { panic!("the controller is told") };
    assert_eq!(failure, [0x00, 0xf0, 0, 0, 7, 0, 1, Explanation::INCORRECT_MESSAGE.0]);
    host.handle_sent();
    assert_eq!(host.next(), refused(Cause::NotDue("DH-HMAC-CHAP_Success1")));
    host.handle_received(&success, &random.entropy());
    assert!(!matches!(host.next(), Next::Authenticated | Next::Receive));
}

#[test]
fn a_host_refuses_what_it_has_not_offered() {
    for (byte, value, cause) in [
        (8, Hash::Sha256.id(), Cause::HashNotOffered(1)),
        (9, Group::Ffdhe2048.id(), Cause::GroupNotOffered(1)),
    ] {
        let host = Host::new(credentials(5, None), algorithms(&[Hash::Sha512], &[Group::Null]), 7);
        let mut queue = Queue::new(host, Controller::new(credentials(5, None), Arc::default()));
        let mut at = 0;
        let mut choose = |message: &mut Vec<u8>| {
            if at == 1 {
                message[byte] = value;
            }
            at += 1;
        };
        while queue.step(&mut choose) {}
        assert_eq!(queue.host.next(), refused(cause));
        assert_eq!(queue.said.last(), Some(&"AUTH_Failure2"));
        assert!(!queue.controller.is_in_progress(), "the controller has understood");
    }
}

#[test]
fn a_host_that_asks_for_proof_takes_no_success_without_it() {
    let mut queue = Queue::with(credentials(5, Some(9)), credentials(5, Some(9)));
    let mut at = 0;
    let mut strip = |message: &mut Vec<u8>| {
        if at == 3 {
            message[8] = 0;
        }
        at += 1;
    };
    while queue.step(&mut strip) {}
    assert_eq!(queue.host.next(), refused(Cause::NoResponse));
    assert!(!queue.controller.is_authenticated());
}

#[test]
fn a_message_waits_for_enough_room() {
    let (ours, mut random) = (credentials(5, None), Random::new(1));
    let mut controller = Controller::new(Arc::clone(&ours), plain());
    let host = Host::new(ours, plain(), 1);
    let Next::Send(negotiate) = host.next() else { panic!("begins with a message") };
    controller.handle_send(negotiate, &random.entropy());
    assert_eq!(controller.handle_receive(79), Err(NoRoom { needed: 80, room: 79 }));
    assert_eq!(controller.handle_receive(80).map(|(message, _)| message.len()), Ok(80));
}

#[test]
fn asking_for_a_message_that_is_not_due_ends_the_transaction() {
    let ours = credentials(5, None);
    let not_due = Outcome::Failed(Cause::NotDue("Authentication Receive").into());
    let mut fresh = Controller::new(Arc::clone(&ours), plain());
    assert_eq!(fresh.handle_receive(4096).map(|(_, outcome)| outcome), Ok(not_due));
    let mut queue = Queue::with(Arc::clone(&ours), ours);
    queue.step(&mut |_| {});
    queue.step(&mut |_| {});
    assert_eq!(queue.controller.handle_receive(4096).map(|(_, outcome)| outcome), Ok(not_due));
    assert_eq!(queue.run(), (by_peer(Explanation::INCORRECT_MESSAGE), false));
}

#[test]
fn a_queue_is_authenticated_again_and_is_not_after_a_failure() {
    let ours = credentials(5, Some(9));
    let mut queue = Queue::with(Arc::clone(&ours), Arc::clone(&ours));
    assert_eq!(queue.run(), (Next::Authenticated, true));
    queue.host = Host::new(Arc::clone(&ours), plain(), 8);
    for step in 0..5 {
        assert!(queue.controller.is_authenticated(), "meanwhile, step {step}");
        assert!(queue.step(&mut |_| {}));
    }
    assert_eq!(queue.run(), (Next::Authenticated, true));
    queue.host = Host::new(credentials(6, Some(9)), plain(), 9);
    assert_eq!(queue.run(), (by_peer(Explanation::FAILED), false));
}

#[test]
fn a_new_secret_counts_from_the_next_transaction_on() {
    let (old, new) = (credentials(5, None), credentials(6, Some(9)));
    let mut queue = Queue::with(Arc::clone(&old), Arc::clone(&old));
    queue.step(&mut |_| {});
    queue.controller.renew(Arc::clone(&new), plain());
    assert_eq!(queue.run(), (Next::Authenticated, true), "it has begun with the old one");
    queue.controller.renew(Arc::clone(&new), plain());
    queue.host = Host::new(new, plain(), 8);
    assert_eq!(queue.run(), (Next::Authenticated, true));
    queue.host = Host::new(old, plain(), 9);
    assert_eq!(queue.run(), (by_peer(Explanation::FAILED), false));
}

#[test]
fn a_host_that_leaves_after_the_challenge_ends_the_transaction() {
    let ours = credentials(5, None);
    let mut queue = Queue::with(Arc::clone(&ours), ours);
    queue.step(&mut |_| {});
    queue.step(&mut |_| {});
    assert!(queue.controller.is_in_progress());
    let failure = [0x00, 0xf0, 0, 0, 7, 0, 1, Explanation::HASH_NOT_USABLE.0];
    let outcome = queue.controller.handle_send(&failure, &Random::new(9).entropy());
    assert_eq!(outcome, Outcome::Failed(Failure::ByPeer(Explanation::HASH_NOT_USABLE)));
    assert!(!queue.controller.is_in_progress());
}

#[test]
fn debug_of_the_machines_shows_no_secret() {
    let ours = Arc::new(Credentials {
        host_secret: Secret::new(None, &[0xc3; 32]).expect("32 bytes"),
        ..Credentials::clone(&credentials(5, Some(9)))
    });
    let groups = algorithms(&[Hash::Sha256], &[Group::Ffdhe2048]);
    let host = Host::new(Arc::clone(&ours), Arc::clone(&groups), 7);
    let mut queue = Queue::new(host, Controller::new(ours, groups));
    for _ in 0..3 {
        queue.step(&mut |_| {});
        let shown = format!("{:?} {:?}", queue.host, queue.controller);
        assert!(!shown.contains("195, 195, 195") && !shown.contains("9, 9, 9"), "{shown}");
    }
}
