//! Idle connections: all clients together want twice as many as the server may have.

use crate::Hostile;
use crate::target::Target;

pub struct IdleConnections;

impl Hostile for IdleConnections {
    fn name(&self) -> &'static str {
        "idle connections"
    }

    fn attack(&self, target: &Target, number: usize) {
        let wanted = target.too_many_connections();
        let mut open = Vec::new();
        while !target.is_over() {
            while open.len() < wanted && !target.is_over() {
                open.extend(target.connect(number));
            }
            target.at_work(number);
            std::thread::park_timeout(crate::target::PATIENCE);
            open.retain(|peer| !target.has_ended(peer));
        }
    }
}
