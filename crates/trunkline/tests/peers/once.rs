//! Operations that must not happen twice, on a server of which nobody knows what it remembers.

use crate::check::Server;
use crate::cuts::Cut;
use crate::ganesha::Ganesha;
use std::net::{Ipv4Addr, SocketAddr};

#[test]
fn what_must_not_happen_twice_happens_once_on_nfs_ganesha_and_errors_in_doubt_are_counted() {
    let ganesha = Ganesha::start();
    let nodes = [SocketAddr::from((Ipv4Addr::LOCALHOST, ganesha.port))];
    let export = ganesha.export_path();
    let server =
        Server { nodes: &nodes, mount_port: Some(ganesha.mount_port), export: &export, remembers: false };
    // A call that the client has given up is gone with its connection; only our own group refuses
    // it by its xid.
    let cuts: Vec<Cut> =
        Cut::ALL.into_iter().filter(|cut| !matches!(cut, Cut::Silence | Cut::Late)).collect();
    let findings = server.check(&cuts);
    println!("nfs-ganesha: {}", findings.summary());
    assert_eq!(findings.wrong, [""; 0]);
}
