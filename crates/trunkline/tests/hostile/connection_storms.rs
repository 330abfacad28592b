//! Connections that are opened and closed at once, in order or by a reset, with and without a call.

use crate::Hostile;
use crate::target::Target;

pub struct ConnectionStorms;

impl Hostile for ConnectionStorms {
    fn name(&self) -> &'static str {
        "connection storms"
    }

    fn attack(&self, target: &Target, number: usize) {
        let mut count = number;
        while !target.is_over() {
            let Some(peer) = target.connect(number) else { continue };
            if count.is_multiple_of(2) {
                target.send(&peer.stream, &peer.record(1, nfs3::PROGRAM, 0, &[]));
            }
            if !count.is_multiple_of(3) {
                peer.reset();
            }
            target.at_work(number);
            count += 1;
        }
    }
}
