//! Datagrams: garbage, questions to rpcbind, and calls of MOUNT, whose replies nobody reads.

use crate::Hostile;
use crate::peer::encoded;
use crate::target::{Target, address_of};
use rpc::portmap;
use std::net::UdpSocket;

/// Datagrams between two looks whether the round is over.
const DATAGRAMS: usize = 64;

pub struct Datagrams;

impl Hostile for Datagrams {
    fn name(&self) -> &'static str {
        "datagrams"
    }

    fn attack(&self, target: &Target, number: usize) {
        let mut random = fastrand::Rng::with_seed(number as u64);
        let socket = UdpSocket::bind((address_of(number, number.is_multiple_of(2)), 0)).expect("a free port");
        let mut connection = None;
        while connection.is_none() && !target.is_over() {
            connection = target.connect(number);
        }
        let Some(peer) = connection else { return };
        let without_mark =
            |program, procedure, args: &[u8]| peer.record(1, program, procedure, args)[4..].to_vec();
        let version_2 = |mut call: Vec<u8>| {
            call[16..20].copy_from_slice(&portmap::VERSION_PORTMAP.to_be_bytes());
            call
        };
        let dump = version_2(without_mark(portmap::PROGRAM, 4, &[]));
        // GETPORT of NFS version 3 over TCP. RFC 1833 s3.2
        let asked = [nfs3::PROGRAM, 3, 6, 0].map(u32::to_be_bytes).concat();
        let getport = version_2(without_mark(portmap::PROGRAM, 3, &asked));
        let mnt = without_mark(nfs3::mount::PROGRAM, 1, &encoded(&nfs3::mount::mnt::Args { path: b"/mem" }));
        let exports = without_mark(nfs3::mount::PROGRAM, 5, &[]);
        let ports = [target.address, (target.address.ip(), portmap::PORT).into()];
        while !target.is_over() {
            for count in 0..DATAGRAMS {
                let mut garbage = vec![0; random.usize(0..2000)];
                random.fill(&mut garbage);
                for call in [&dump, &getport, &mnt, &exports, &garbage] {
                    // A full queue of the system loses it.
                    let _ = socket.send_to(call, ports[count % ports.len()]);
                }
            }
            target.at_work(number);
        }
    }
}
