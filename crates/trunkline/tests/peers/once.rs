//! Tests non-idempotent operations on nfs-ganesha: by version 3, where its reply cache is unknown,
//! and by version 4, where its sessions keep replies.

use crate::check::{Findings, Server};
use crate::cuts::Cut;
use crate::ganesha::Ganesha;
use client::options::Version;
use std::net::{Ipv4Addr, SocketAddr};

/// Without a silent path, as there is no other.
fn findings_by(version: Version, remembers: bool, is_left_out: impl Fn(Cut) -> bool) -> Findings {
    let ganesha = Ganesha::start();
    let nodes = [SocketAddr::from((Ipv4Addr::LOCALHOST, ganesha.port))];
    let export = ganesha.export_path();
    let mount_port = Some(ganesha.mount_port);
    let server = Server { nodes: &nodes, mount_port, export: &export, version, remembers };
    let is_left = |cut: &Cut| *cut != Cut::Silence && !is_left_out(*cut);
    let cuts: Vec<Cut> = Cut::ALL.into_iter().filter(is_left).collect();
    let findings = server.check(&cuts);
    println!("nfs-ganesha: {}", findings.summary());
    findings
}

#[test]
fn nonidempotent_operations_happen_once_on_nfs_ganesha_and_errors_in_doubt_are_counted() {
    // A call that the client gave up ends with its connection; only our own group refuses such a
    // call by its xid.
    let findings = findings_by(Version::V3, false, |cut| cut == Cut::Late);
    assert_eq!(findings.wrong, [""; 0]);
}

/// A late call is refused by its slot. RFC 8881 s2.10.6.1
#[test]
fn nonidempotent_operations_happen_once_on_nfs_ganesha_by_version_4_and_nothing_is_in_doubt() {
    for minor in [1, 2] {
        let findings = findings_by(Version::V4(Some(minor)), true, |_| false);
        assert_eq!(findings.wrong, [""; 0]);
        assert!(findings.undecided.is_empty() && findings.taken_for_done.is_empty(), "{findings:?}");
    }
}
