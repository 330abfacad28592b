//! Ports of which only `rdma link show` tells.

use super::*;

/// What is found where `rdma link show` alone was captured.
fn links(text: &str) -> Vec<Finding> {
    all(&evidence(&[("rdma-link.txt", text)]), &Expected::default())
}

const TWO: &str = "link irdma0/1 state ACTIVE physical_state LINK_UP netdev ens6f0\n\
    link irdma1/1 state ACTIVE physical_state LINK_UP netdev ens6f1\n";

#[test]
fn links_alone_show_the_ports() {
    let findings = links(TWO);
    let seen: Vec<_> = findings.iter().map(|of| (of.rule, of.status, &*of.seen)).collect();
    assert_eq!(
        seen,
        [
            ("rdma.port-state", Status::Ok, "irdma0 port 1: PORT_ACTIVE, firmware unknown"),
            ("rdma.mtu", Status::Unknown, "irdma0 port 1: the active RDMA MTU is not known"),
            ("rdma.port-state", Status::Ok, "irdma1 port 1: PORT_ACTIVE, firmware unknown"),
            ("rdma.mtu", Status::Unknown, "irdma1 port 1: the active RDMA MTU is not known"),
        ]
    );
}

#[test]
fn a_link_that_is_down_is_found() {
    let down = links(&TWO.replacen("ACTIVE physical_state LINK_UP", "DOWN physical_state DISABLED", 1));
    let fail: Vec<_> = down.iter().filter(|of| of.status == Status::Fail).collect();
    let [fail] = &fail[..] else { panic!("{down:#?}") };
    assert_eq!((fail.rule, &*fail.source), ("rdma.port-state", "rdma-link.txt"));
    assert_eq!(fail.seen, "irdma0 port 1: PORT_DOWN, firmware unknown");
    assert!(fail.mend.starts_with("ip link set dev ens6f0 up"), "{}", fail.mend);
}

/// Nothing is said about devices where nothing was read.
#[test]
fn links_that_are_not_understood_show_no_absence() {
    for text in ["", "x\n", "2: ens6f0: mtu 9000 state UP\n"] {
        let findings = links(text);
        assert!(findings.iter().all(|of| of.rule != "rdma.devices"), "{text}: {findings:#?}");
    }
}
