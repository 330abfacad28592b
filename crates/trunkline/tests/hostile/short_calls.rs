//! Short calls as fast as the server answers them.

use crate::Hostile;
use crate::peer::getattr_args;
use crate::target::Target;
use nfs3::Procedure;

/// Calls that are sent at a time.
const CALLS: u32 = 500;
const RECEIVE_BYTES: usize = 1 << 20;

pub struct ShortCalls;

impl Hostile for ShortCalls {
    fn name(&self) -> &'static str {
        "floods of short calls"
    }

    fn attack(&self, target: &Target, number: usize) {
        let (file, _) = target.export(number);
        let args = getattr_args(file);
        target.reconnecting(number, |peer| {
            let call = |xid| peer.record(xid, nfs3::PROGRAM, Procedure::GetAttr.number(), &args);
            let calls: Vec<u8> = (0..CALLS).flat_map(call).collect();
            while target.send(&peer.stream, &calls) && target.receive(&peer.stream, RECEIVE_BYTES).is_some() {
                target.at_work(number);
            }
        });
    }
}
