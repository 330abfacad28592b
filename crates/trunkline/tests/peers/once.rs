//! Tests non-idempotent operations on a server whose reply cache is unknown.

use crate::check::Server;
use crate::cuts::Cut;
use crate::ganesha::Ganesha;
use std::net::{Ipv4Addr, SocketAddr};

#[test]
fn nonidempotent_operations_happen_once_on_nfs_ganesha_and_errors_in_doubt_are_counted() {
    let ganesha = Ganesha::start();
    let nodes = [SocketAddr::from((Ipv4Addr::LOCALHOST, ganesha.port))];
    let export = ganesha.export_path();
    let server =
        Server { nodes: &nodes, mount_port: Some(ganesha.mount_port), export: &export, remembers: false };
    // A call that the client gave up ends with its connection; only our own group refuses such a
    // call by its xid.
    let cuts: Vec<Cut> =
        Cut::ALL.into_iter().filter(|cut| !matches!(cut, Cut::Silence | Cut::Late)).collect();
    let findings = server.check(&cuts);
    println!("nfs-ganesha: {}", findings.summary());
    assert_eq!(findings.wrong, [""; 0]);
}
