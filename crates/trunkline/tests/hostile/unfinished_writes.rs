//! WRITEs of the largest size that are never finished.

use crate::Hostile;
use crate::good_client::write_args;
use crate::target::{BLOCK, Target};
use nfs3::Procedure;

/// The bytes of each WRITE that are never sent.
const MISSING_BYTES: usize = 100;
/// Connections of each client: all together want more memory than the server may hold.
const CONNECTIONS: usize = 8;

pub struct UnfinishedWrites;

impl Hostile for UnfinishedWrites {
    fn name(&self) -> &'static str {
        "unfinished WRITEs"
    }

    fn attack(&self, target: &Target, number: usize) {
        let (file, _) = target.export(number);
        let args = write_args(file, 0, &vec![0xee; BLOCK as usize]);
        target.reconnecting_each(number, CONNECTIONS, |peer| {
            let record = peer.record(1, nfs3::PROGRAM, Procedure::Write.number(), &args);
            target.send(&peer.stream, &record[..record.len() - MISSING_BYTES]);
            target.at_work(number);
            target.hold(peer);
        });
    }
}
