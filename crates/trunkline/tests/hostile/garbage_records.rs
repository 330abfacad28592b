//! Records that are no calls, calls whose arguments are garbage, and bytes that are no records.

use crate::Hostile;
use crate::target::Target;

pub struct GarbageRecords;

impl Hostile for GarbageRecords {
    fn name(&self) -> &'static str {
        "garbage records"
    }

    fn attack(&self, target: &Target, number: usize) {
        let mut random = fastrand::Rng::with_seed(number as u64);
        target.reconnecting(number, |peer| {
            let mut garbage = vec![0; random.usize(4..20_000)];
            random.fill(&mut garbage);
            let sent = match random.u8(0..3) {
                // Bytes that are no record.
                0 => garbage,
                // A record that is no call.
                1 => {
                    let mark = 0x8000_0000 | garbage.len() as u32;
                    [mark.to_be_bytes().to_vec(), garbage].concat()
                }
                // A call with garbage for arguments.
                _ => peer.record(1, nfs3::PROGRAM, random.u32(1..22), &garbage),
            };
            target.send(&peer.stream, &sent);
            target.at_work(number);
            // The server answers or closes.
            let _ = target.receive(&peer.stream, 4096);
        });
    }
}
