//! READs of the largest size whose replies are read a little at a time.

use crate::Hostile;
use crate::target::{PATIENCE, Target, reads};

/// More than the server may queue.
const CALLS: u32 = 64;
/// What is read at a time.
const BYTES: usize = 512;
/// Connections of each client: all together want more memory than the server may hold.
const CONNECTIONS: usize = 8;

pub struct SlowReaders;

impl Hostile for SlowReaders {
    fn name(&self) -> &'static str {
        "replies read slowly"
    }

    fn attack(&self, target: &Target, number: usize) {
        let (file, _) = target.export(number);
        target.reconnecting_each(number, CONNECTIONS, |peer| {
            target.send(&peer.stream, &reads(peer, file, CALLS));
            target.at_work(number);
            while !target.is_over() && target.receive(&peer.stream, BYTES).is_some() {
                std::thread::park_timeout(PATIENCE);
            }
        });
    }
}
