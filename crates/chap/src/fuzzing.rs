//! Bodies shared by the property tests and the fuzz target. Each takes arbitrary bytes and asserts
//! invariants; no input may cause any other panic.

use crate::message::Message;
use crate::{
    Algorithms, Controller, Credentials, Entropy, Group, Hash, Host, Next, Outcome, Secret, Sequence,
};
use nvme::Nqn;
use std::sync::Arc;

/// One message: what decodes must encode, decode again, and be the same.
pub fn message(bytes: &[u8]) {
    let Ok((message, rest)) = Message::decode(bytes) else { return };
    let again = message.encode();
    assert!(again.len() + rest.len() >= bytes.len(), "nothing was left out");
    assert_eq!(Message::decode_whole(&again), Ok(message));
}

/// A secret as text: what is read must be the same when it is written and read again.
pub fn secret(text: &str) {
    let Ok(secret) = text.parse::<Secret>() else { return };
    let again = secret.reveal().parse::<Secret>().expect("what was written here");
    assert_eq!((secret.reveal(), secret.transformation()), (again.reveal(), again.transformation()));
}

/// Messages of strangers to both machines. The first byte of each says its length; 0 stands for
/// asking the controller for a message. Nobody is authenticated without a secret.
pub fn machines(mut bytes: &[u8]) {
    let credentials = Arc::new(credentials());
    let algorithms = Algorithms::new(&Hash::ALL, &[Group::Null]).expect("not empty");
    let algorithms = Arc::new(algorithms);
    let mut controller = Controller::new(Arc::clone(&credentials), Arc::clone(&algorithms));
    let mut host = Host::new(credentials, algorithms, 1);
    let entropy = Entropy::new(&[7; Entropy::BYTES], Sequence::new(0).take());
    while let Some((length, rest)) = bytes.split_first() {
        let message = rest.get(..usize::from(*length)).unwrap_or(rest);
        bytes = rest.get(message.len()..).unwrap_or_default();
        let outcome = if message.is_empty() {
            controller.handle_receive(4096).map(|(_, outcome)| outcome)
        } else {
            Ok(controller.handle_send(message, &entropy))
        };
        assert_ne!(outcome, Ok(Outcome::Authenticated));
        match host.next() {
            Next::Send(_) => host.handle_sent(),
            Next::Receive => host.handle_received(message, &entropy),
            Next::Authenticated => panic!("a controller without the secret"),
            Next::Failed(_) => {}
        }
    }
    assert!(!controller.is_authenticated());
}

fn credentials() -> Credentials {
    let secret = |byte| Secret::new(None, &[byte; 32]).expect("32 bytes");
    Credentials {
        host: Nqn::of_uuid([1; 16]),
        subsystem: Nqn::of_uuid([2; 16]),
        host_secret: secret(3),
        controller_secret: Some(secret(4)),
    }
}
