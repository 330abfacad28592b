//! Clients that no export admits: they call for files all the same.

use crate::Hostile;
use crate::peer::{encoded, getattr_args};
use crate::target::{Target, address_of};
use nfs3::Procedure;

pub struct Strangers;

impl Hostile for Strangers {
    fn name(&self) -> &'static str {
        "strangers"
    }

    fn attack(&self, target: &Target, number: usize) {
        let (file, _) = target.export(number);
        let (wanted, mut open) = (target.too_many_connections(), Vec::new());
        let mnt = encoded(&nfs3::mount::mnt::Args { path: b"/mem" });
        while !target.is_over() {
            open.extend(target.connect_from(address_of(number, false)));
            for peer in &open {
                let calls = [
                    peer.record(1, nfs3::PROGRAM, Procedure::GetAttr.number(), &getattr_args(file)),
                    peer.record(2, nfs3::mount::PROGRAM, 1, &mnt),
                ];
                target.send(&peer.stream, &calls.concat());
            }
            target.at_work(number);
            open.retain(|peer| target.receive(&peer.stream, 4096).is_some());
            if open.len() > wanted {
                open.remove(0);
            }
        }
    }
}
