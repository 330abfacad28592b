//! Connections on which nothing is sent, or half a mark of a record.

use crate::Hostile;
use crate::target::Target;

pub struct HalfOpen;

impl Hostile for HalfOpen {
    fn name(&self) -> &'static str {
        "silent connections"
    }

    fn attack(&self, target: &Target, number: usize) {
        let (wanted, mut open) = (target.too_many_connections(), Vec::new());
        while !target.is_over() {
            while open.len() < wanted && !target.is_over() {
                let Some(peer) = target.connect(number) else { continue };
                target.send(&peer.stream, &[0x80, 0][..open.len() % 3]);
                open.push(peer);
            }
            target.at_work(number);
            std::thread::park_timeout(crate::target::PATIENCE);
            open.retain(|peer| !target.has_ended(peer));
        }
    }
}
