//! READs of the largest size whose replies are never read, from memory and from a disk.

use crate::Hostile;
use crate::target::{Target, reads};

/// More than the server may queue.
const CALLS: u32 = 64;
/// Connections of each client: all together want more memory than the server may hold.
const CONNECTIONS: usize = 8;

pub struct UnreadReplies;

impl Hostile for UnreadReplies {
    fn name(&self) -> &'static str {
        "replies never read"
    }

    fn attack(&self, target: &Target, number: usize) {
        let (file, _) = target.export(number);
        target.reconnecting_each(number, CONNECTIONS, |peer| {
            target.send(&peer.stream, &reads(peer, file, CALLS));
            target.at_work(number);
            // Replies arrive, and are left in the system's buffer: only the end is noticed.
            while !target.is_over() && !target.has_ended(peer) {
                std::thread::park_timeout(crate::target::PATIENCE);
            }
        });
    }
}
