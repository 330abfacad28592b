//! The same changes again and again under new xids, by foreign clients and by many that look like
//! ours: all of them are remembered by the reply cache.

use crate::Hostile;
use crate::peer::{Peer, encoded};
use crate::target::Target;
use nfs3::{Procedure, Sattr3, proc};

/// Calls that are sent at a time.
const CALLS: u32 = 200;
const RECEIVE_BYTES: usize = 1 << 20;

pub struct DuplicatedCalls;

impl Hostile for DuplicatedCalls {
    fn name(&self) -> &'static str {
        "duplicated calls"
    }

    fn attack(&self, target: &Target, number: usize) {
        let (file, root) = target.export(number);
        let attributes = Sattr3 { mode: Some(0o600), ..Sattr3::default() };
        let setattr = encoded(&proc::setattr::Args { object: file, new_attributes: attributes, guard: None });
        let location = nfs3::DirOpArgs { directory: root, name: b"target" };
        let how = proc::create::How::Unchecked(attributes);
        let create = encoded(&proc::create::Args { location, how });
        let (mut xid, mut client) = (0, (number as u64) << 32);
        target.reconnecting(number, |peer| {
            let stream = peer.stream.try_clone().expect("a descriptor");
            loop {
                client += 1;
                let machine =
                    if number % 4 < 2 { b"hostile".to_vec() } else { drc::machine_name(client).to_vec() };
                let caller = Peer::over(stream.try_clone().expect("a descriptor"), client as u32, &machine);
                stream.set_read_timeout(Some(crate::target::PATIENCE)).expect("a timeout");
                let calls = (0..CALLS).flat_map(|at| {
                    xid += 1;
                    let (procedure, args) = if at % 2 == 0 {
                        (Procedure::SetAttr, &setattr)
                    } else {
                        (Procedure::Create, &create)
                    };
                    caller.record(xid, nfs3::PROGRAM, procedure.number(), args)
                });
                let calls: Vec<u8> = calls.collect();
                if !target.send(&stream, &calls) || target.receive(&stream, RECEIVE_BYTES).is_none() {
                    break;
                }
                target.at_work(number);
            }
        });
    }
}
