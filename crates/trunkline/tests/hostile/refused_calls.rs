//! Calls that are refused: bad credentials, other versions of RPC, unknown programs and procedures.
//! RFC 5531 s9

use crate::Hostile;
use crate::target::Target;

const RECEIVE_BYTES: usize = 1 << 20;

pub struct RefusedCalls;

impl Hostile for RefusedCalls {
    fn name(&self) -> &'static str {
        "refused calls"
    }

    fn attack(&self, target: &Target, number: usize) {
        target.reconnecting(number, |peer| {
            let good = peer.record(1, nfs3::PROGRAM, 1, &[]);
            let changed = |word: usize, value: u32| {
                let mut call = good.clone();
                // Counted from the mark: xid, type, version of RPC, program, version, procedure,
                // flavor and length of the credential.
                call[4 * word..4 * word + 4].copy_from_slice(&value.to_be_bytes());
                call
            };
            let refused = [(3, 3), (4, 400_000), (5, 9), (6, 1000), (7, 6), (7, 77)];
            let calls: Vec<u8> = refused.iter().flat_map(|(word, value)| changed(*word, *value)).collect();
            let calls = calls.repeat(50);
            while target.send(&peer.stream, &calls) && target.receive(&peer.stream, RECEIVE_BYTES).is_some() {
                target.at_work(number);
            }
            // A credential that ends early closes the connection.
            target.send(&peer.stream, &changed(8, 399));
            let _ = target.receive(&peer.stream, RECEIVE_BYTES);
        });
    }
}
