//! Expectations that no capture shows.

use super::*;

fn plan() -> Expected {
    Expected {
        paths: Some(8),
        portals: vec![portal("10.0.0.7")],
        addresses: vec![("ens6f0".to_owned(), "10.0.0.1".parse().unwrap())],
        host_nqn: Some("nqn.2020-12.org:h".to_owned()),
        native_multipath: Some(true),
        interfaces: Vec::new(),
        mtu: Some(9000),
        stripe_bytes: Some(1 << 20),
        volumes: Vec::new(),
        cluster: None,
    }
}

/// What is said of expectations that were not compared, in order.
fn unseen(captures: &[(&str, &str)], expected: &Expected) -> Vec<String> {
    let findings = all(&evidence(captures), expected);
    let unseen: Vec<_> = findings.into_iter().filter(|of| of.rule == "expected.unseen").collect();
    assert!(unseen.iter().all(|of| of.status == Status::Unknown && of.mend.contains(" > ")), "{unseen:#?}");
    unseen
        .into_iter()
        .map(|of| {
            let what = of.seen.split(" expected, and nothing that was captured shows it").next().unwrap();
            format!("{what}: {}", of.source)
        })
        .collect()
}

#[test]
fn each_expectation_without_a_capture_is_told() {
    let expected = [
        "1 paths to NVMe targets are: sys-nvme.txt, nvme-list-subsys.txt",
        "10.0.0.1 at ens6f0 is: ip-addr.txt",
        "the NQN nqn.2020-12.org:h is: sys-nvme.txt",
        "the NVMe driver that joins the paths is: sys-nvme.txt, multipath.txt",
        "an MTU of 9000 is: sys-net.txt, isi-network-interfaces.txt",
        "requests of 1024 KiB are: sys-block.txt",
    ];
    assert_eq!(unseen(&[], &plan()), expected);
    // A capture that shows one of them leaves the others.
    let (name, text) = SOUND.iter().find(|(name, _)| *name == "ip-addr.txt").unwrap();
    assert_eq!(unseen(&[(name, text)], &plan()).len(), expected.len() - 1);
    // A plan without targets compares the paths of any device.
    let of_any = Expected { paths: Some(8), ..Expected::default() };
    assert_eq!(
        unseen(&[], &of_any),
        ["8 paths of each device are: sys-nvme.txt, nvme-list-subsys.txt, multipath.txt"]
    );
}

#[test]
fn what_was_compared_is_not_told_whatever_was_found() {
    assert!(unseen(SOUND, &plan()).is_empty());
    assert!(unseen(&[], &Expected::default()).is_empty());
    let host_nqn = Some("nqn.2020-12.org:other".to_owned());
    assert!(unseen(SOUND, &Expected { host_nqn, mtu: Some(1500), ..plan() }).is_empty());
}
