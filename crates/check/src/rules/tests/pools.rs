//! Pools of a PowerScale cluster: those of storage are judged, that of management is not.

use super::*;

/// An interface: its name, its pools, its MTU, its flags.
fn interface(name: &str, pools: &str, mtu: u32, flags: &str) -> String {
    format!(
        "IP Addresses: 10.0.0.98\nLNN: 1\nName: {name}\nOwners: {pools}\nStatus: Up\nMTU: {mtu}\nFlags: \
         {flags}\nNegotiated Speed: 25Gbps\n\n"
    )
}

const ROCE: &str = "ACCEPT_ROUTER_ADVERT, SUPPORTS_RDMA_RRoCE";
fn plan() -> Expected {
    Expected { paths: None, ..EXPECTED }
}

/// What is found on a cluster whose management interface is in a pool, and that has these too.
fn cluster(more: &[String], expected: &Expected) -> Vec<Finding> {
    let text = interface("mgmt-1", "groupnet0.subnet0.pool0", 1500, "ACCEPT_ROUTER_ADVERT") + &more.concat();
    all(&evidence(&[("isi-network-interfaces.txt", &text)]), expected)
}

fn bad(findings: &[Finding]) -> Vec<(&str, Status)> {
    let bad = findings.iter().filter(|finding| finding.status != Status::Ok);
    bad.map(|finding| (finding.rule, finding.status)).collect()
}

#[test]
fn an_interface_of_management_in_a_pool_is_sound() {
    let findings = cluster(&[interface("25gige-2", "groupnet0.rdma.pool1", 9000, ROCE)], &plan());
    assert!(bad(&findings).is_empty(), "{findings:#?}");
    let of = |name: &str| findings.iter().filter(|of| of.seen.contains(name)).map(|of| of.rule).collect();
    let (management, storage): (Vec<_>, Vec<_>) = (of("mgmt-1"), of("25gige-2"));
    assert_eq!(management, ["powerscale.interface"]);
    assert_eq!(storage, ["powerscale.interface", "powerscale.rdma", "powerscale.mtu"]);
}

#[test]
fn faults_in_a_pool_of_storage_are_found() {
    let one = interface("25gige-1", "groupnet0.rdma.pool1", 9000, ROCE);
    for (other, faults) in [
        (interface("25gige-2", "groupnet0.rdma.pool1", 1500, ROCE), &[("powerscale.mtu", Status::Fail)][..]),
        (
            interface("10gige-2", "groupnet0.other.a, groupnet0.rdma.pool1", 9000, "x"),
            &[("powerscale.rdma", Status::Warn)],
        ),
        (interface("10gige-2", "groupnet0.other.a", 1500, "x"), &[]),
        (interface("10gige-2", "-", 1500, "x"), &[]),
    ] {
        let findings = cluster(&[one.clone(), other], &plan());
        assert_eq!(bad(&findings), faults, "{findings:#?}");
    }
}

#[test]
fn a_cluster_without_interfaces_for_rdma_is_told_once() {
    let more = [interface("10gige-1", "groupnet0.nfs.pool1", 9000, "x")];
    let findings = cluster(&more, &plan());
    assert_eq!(bad(&findings), [("powerscale.rdma", Status::Warn), ("powerscale.mtu", Status::Unknown)]);
    let rdma = findings.iter().find(|of| of.rule == "powerscale.rdma").unwrap();
    assert!(rdma.seen.ends_with("node 1 mgmt-1, node 1 10gige-1") && rdma.mend.contains("--add-ifaces"));
    let findings = cluster(&more, &Expected::default());
    assert_eq!(bad(&findings), [("powerscale.rdma", Status::Warn)]);
}
