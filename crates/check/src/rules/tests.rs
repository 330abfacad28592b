//! Each rule with what a sound host shows, and with each fault.

use super::*;
use crate::{CAPTURES, Captured, Status, is_judged, worst};
use sound::{EXPECTED, SOUND};

mod fabrics;
mod links;
mod planned;
mod pools;
mod sound;
mod unread;
mod unseen;

fn evidence(captures: &[(&str, &str)]) -> Evidence {
    let of = |(name, text): &(&str, &str)| {
        let capture =
            CAPTURES.iter().find(|capture| capture.name == *name).unwrap_or_else(|| panic!("{name}"));
        (capture.name, Captured { source: (*name).to_owned(), text: Ok((*text).to_owned()) })
    };
    Evidence(captures.iter().map(of).collect())
}

/// What is found on the sound host after this text of a capture was replaced.
fn with(name: &str, from: &str, to: &str) -> Vec<Finding> {
    let mut evidence = evidence(SOUND);
    let captured = evidence.0.get_mut(name).unwrap();
    let text = captured.text.clone().unwrap();
    assert!(text.contains(from), "{name} has no {from}");
    captured.text = Ok(text.replace(from, to));
    all(&evidence, &EXPECTED)
}

/// What was found without the expectations that the captures of a test do not show.
fn compared(mut findings: Vec<Finding>) -> Vec<Finding> {
    findings.retain(|finding| finding.rule != "expected.unseen");
    findings
}

/// Asserts that this fault, and nothing else, is found, with a mend.
#[track_caller]
fn found(findings: &[Finding], rule: &str, status: Status, mend: &str) {
    found_all(findings, &[(rule, status, mend)]);
}

/// Asserts that these faults, and nothing else, are found in this order, each with a mend.
#[track_caller]
fn found_all(findings: &[Finding], expected: &[(&str, Status, &str)]) {
    let bad: Vec<_> = findings.iter().filter(|finding| finding.status != Status::Ok).collect();
    let mut rules: Vec<_> = bad.iter().map(|finding| (finding.rule, finding.status)).collect();
    rules.dedup();
    let wanted: Vec<_> = expected.iter().map(|(rule, status, _)| (*rule, *status)).collect();
    assert_eq!(rules, wanted, "{bad:#?}");
    for (rule, _, mend) in expected {
        let mut of = bad.iter().filter(|finding| finding.rule == *rule);
        assert!(of.any(|finding| finding.mend.contains(mend)), "{rule} without {mend}: {bad:#?}");
    }
    assert!(bad.iter().all(|of| !of.why.is_empty() && !of.source.is_empty() && !of.seen.is_empty()));
}

#[test]
fn nothing_is_wrong_with_a_sound_host_and_every_rule_has_looked() {
    let findings = all(&evidence(SOUND), &EXPECTED);
    let bad: Vec<_> = findings.iter().filter(|finding| finding.status != Status::Ok).collect();
    assert!(bad.is_empty(), "{bad:#?}");
    let rules: std::collections::BTreeSet<_> = findings.iter().map(|finding| finding.rule).collect();
    for rule in [
        "rdma.port-state",
        "rdma.link-layer",
        "rdma.mtu",
        "rdma.gids",
        "rdma.numa",
        "rdma.modules",
        "net.mtu",
        "net.numa",
        "tcp.congestion-control",
        "tcp.buffers",
        "net.source-routing",
        "net.rp-filter",
        "net.arp",
        "limits.memlock",
        "limits.open-files",
        "nfs.connections",
        "nfs.balance",
        "nfs.transfer-size",
        "nvme.controller",
        "nvme.host-nqn",
        "nvme.paths",
        "nvme.ownership",
        "nvme.namespaces",
        "nvme.firmware",
        "nvme.modules",
        "multipath.modules",
        "multipath.paths",
        "block.request-size",
        "clock.synchronized",
        "powerscale.interface",
        "powerscale.rdma",
        "powerscale.mtu",
        "powerscale.nfs",
        "powerscale.nfs-rdma",
        "powerscale.nfs3",
        "powerscale.nfs4",
        "powerscale.balance",
    ] {
        assert!(rules.contains(rule), "{rule} has not looked");
    }
}

#[test]
fn without_captures_nothing_is_said() {
    assert!(all(&Evidence::default(), &Expected::default()).is_empty());
    assert!(compared(all(&Evidence::default(), &EXPECTED)).is_empty());
    assert_eq!(worst(&[]), Status::Unknown);
    let is_judged = |evidence: &Evidence| is_judged(evidence, &all(evidence, &EXPECTED));
    assert!(!is_judged(&Evidence::default()) && is_judged(&evidence(SOUND)));
    // Together they would say that there is no RDMA device.
    assert!(!is_judged(&evidence(&[("ibv_devinfo.txt", ""), ("sys-infiniband.txt", "\n")])));
    assert!(!is_judged(&evidence(&[("ibv_devinfo.txt", "rubbish\n")])));
}

#[test]
fn faults_of_rdma_devices_are_found() {
    let devinfo = |from, to| with("ibv_devinfo.txt", from, to);
    let down = devinfo("PORT_ACTIVE (4)", "PORT_DOWN (1)");
    found(&down, "rdma.port-state", Status::Fail, "ip link set dev ens6f0 up");
    found(&devinfo("active_mtu:\t4096 (5)", "active_mtu:\t1024 (3)"), "rdma.mtu", Status::Warn, "mtu 9000");
    let gid = "0000:0000:0000:0000:0000:ffff:0a00:0001";
    let to = "fe80:0000:0000:0000:0000:0000:0000:0002";
    found(&with("sys-infiniband.txt", gid, to), "rdma.gids", Status::Fail, "ip addr add");
    let status = with("status.txt", "0-15", "0-7");
    let mend = "--cpunodebind=1";
    found_all(&status, &[("rdma.numa", Status::Warn, mend), ("net.numa", Status::Warn, mend)]);
    found(&with("sys-module.txt", "rdma_ucm\n", ""), "rdma.modules", Status::Fail, "modprobe -a rdma_ucm");
    found(
        &with("limits.txt", "memory  unlimited", "memory  65536"),
        "limits.memlock",
        Status::Warn,
        "ulimit -l",
    );
}

/// A second port without a cable and without an address is normal; iWARP has no GIDs of RoCE.
#[test]
fn ports_that_nobody_uses_and_other_kinds_of_rdma_are_sound() {
    let more = "hca_id:\tmlx5_1\n\tfw_ver:\t1\n\t\tport:\t1\n\t\t\tstate:\tPORT_DOWN (1)\n\
        \t\t\tmax_mtu:\t4096 (5)\n\t\t\tactive_mtu:\t1024 (3)\n\t\t\tlink_layer:\tEthernet\n";
    let findings =
        with("ibv_devinfo.txt", "link_layer:\tEthernet\n", &format!("link_layer:\tEthernet\n{more}"));
    found_all(&findings, &[]);
    assert!(findings.iter().any(|of| of.seen.contains("not in use")), "{findings:#?}");
    let mut evidence = evidence(SOUND);
    let captured = evidence.0.get_mut("sys-infiniband.txt").unwrap();
    let text = captured.text.clone().unwrap();
    captured.text = Ok(text.replace("1: CA", "4: RNIC").replace("RoCE v2", "IB"));
    found_all(&all(&evidence, &EXPECTED), &[]);
}

/// The MTU of a link of InfiniBand has nothing to do with that of an interface.
#[test]
fn an_mtu_of_infiniband_is_compared_with_what_the_port_can_do() {
    let mut evidence = evidence(SOUND);
    let mut replace = |name: &str, from: &str, to: &str| {
        let captured = evidence.0.get_mut(name).unwrap();
        captured.text = Ok(captured.text.clone().unwrap().replace(from, to));
        all(&evidence, &EXPECTED)
    };
    replace("sys-infiniband.txt", "Ethernet", "InfiniBand");
    let sound = replace("ibv_devinfo.txt", "Ethernet", "InfiniBand");
    found_all(&sound, &[]);
    let seen = |findings: &[Finding]| findings.iter().find(|of| of.rule == "rdma.mtu").unwrap().seen.clone();
    assert_eq!(seen(&sound), "mlx5_0 port 1: active RDMA MTU 4096; the port can do 4096");
    let small = replace("ibv_devinfo.txt", "active_mtu:\t4096 (5)", "active_mtu:\t2048 (4)");
    found(&small, "rdma.mtu", Status::Warn, "smpquery -C mlx5_0 -P 1");
    assert_eq!(seen(&small), "mlx5_0 port 1: active RDMA MTU 2048; the port can do 4096");
    // Without ibv_devinfo nobody knows.
    evidence.0.remove("ibv_devinfo.txt");
    let findings = all(&evidence, &EXPECTED);
    let bad: Vec<_> = findings.iter().filter(|of| of.status != Status::Ok).collect();
    assert!(matches!(bad[..], [of] if (of.rule, of.status) == ("rdma.mtu", Status::Unknown)), "{bad:#?}");
}

#[test]
fn a_host_without_rdma_is_sound_unless_the_plan_needs_it() {
    let mut evidence = evidence(SOUND);
    evidence.0.retain(|name, _| ["sys-infiniband.txt", "ibv_devinfo.txt", "rdma-link.txt"].contains(name));
    evidence.0.values_mut().for_each(|captured| captured.text = Ok(String::new()));
    let plan = |transports: &[&'static str]| {
        let portals = transports.iter().map(|transport| crate::Portal { transport, ..portal("10.0.0.7") });
        compared(all(&evidence, &Expected { portals: portals.collect(), paths: None, mtu: None, ..EXPECTED }))
    };
    for transports in [&[][..], &["tcp"]] {
        let findings = plan(transports);
        found_all(&findings, &[]);
        assert_eq!(findings[0].seen, "no RDMA device: only TCP can be used");
    }
    let findings = plan(&["rdma", "tcp", "rdma"]);
    found(&findings, "rdma.devices", Status::Fail, "lspci");
    assert_eq!(findings[0].seen, "no RDMA device, and 2 paths over RDMA are planned");
}

#[test]
fn root_may_lock_memory_whatever_the_limit() {
    let mut evidence = evidence(SOUND);
    for (name, from, to) in [
        ("limits.txt", "memory  unlimited", "memory  65536"),
        ("status.txt", "0000000000000000", "000001ffffffffff"),
    ] {
        let captured = evidence.0.get_mut(name).unwrap();
        captured.text = Ok(captured.text.clone().unwrap().replace(from, to));
    }
    found_all(&all(&evidence, &EXPECTED), &[]);
}

#[test]
fn without_ibv_devinfo_ports_are_read_from_sysfs_and_the_mtu_is_unknown() {
    let mut evidence = evidence(SOUND);
    evidence.0.remove("ibv_devinfo.txt");
    let findings = all(&evidence, &EXPECTED);
    let unknown: Vec<_> = findings.iter().filter(|finding| finding.status != Status::Ok).collect();
    let [unknown] = &unknown[..] else { panic!("{unknown:?}") };
    assert_eq!((unknown.rule, unknown.status), ("rdma.mtu", Status::Unknown));
    let state = findings.iter().find(|finding| finding.rule == "rdma.port-state").unwrap();
    assert_eq!(state.seen, "mlx5_0 port 1: PORT_ACTIVE, firmware 16.35.4030");
}

/// Nothing is ok that could not be judged.
#[test]
fn an_rdma_mtu_is_unknown_where_that_of_its_interface_is() {
    let devinfo = SOUND.iter().find(|(name, _)| *name == "ibv_devinfo.txt").unwrap().1;
    let of = |text: &str, mtu: Option<u32>| {
        let expected = Expected { mtu, ..Expected::default() };
        let findings = all(&evidence(&[("ibv_devinfo.txt", text)]), &expected);
        findings.into_iter().find(|of| of.rule == "rdma.mtu").unwrap()
    };
    let small = devinfo.replace("active_mtu:\t4096 (5)", "active_mtu:\t1024 (3)");
    let unknown = of(&small, None);
    assert_eq!(unknown.status, Status::Unknown, "{unknown:?}");
    assert!(unknown.seen.ends_with("the MTU of its interface is not known"), "{unknown:?}");
    assert!(unknown.mend.contains("sys-net.txt") && unknown.mend.contains("--mtu"), "{unknown:?}");
    assert_eq!(of(&small, Some(9000)).status, Status::Warn);
    assert_eq!(of(&small, Some(1500)).status, Status::Ok);
    // A port that does all that it can.
    assert_eq!(of(devinfo, None).status, Status::Ok);
}

#[test]
fn faults_of_the_network_are_found() {
    let mtu = with("sys-net.txt", "ens6f0/mtu:9000", "ens6f0/mtu:4300");
    found(&mtu, "net.mtu", Status::Fail, "dev ens6f0 mtu 9000");
    found_all(&with("sys-net.txt", "ens6f1/mtu:9000", "ens6f1/mtu:1500"), &[]);
    let sysctl = |from, to| with("sysctl.txt", from, to);
    let arp = sysctl("ens6f1/arp_ignore:1", "ens6f1/arp_ignore:0");
    found(&arp, "net.arp", Status::Warn, "ens6f1/arp_ignore=1");
    found(&sysctl("cubic", "vegas"), "tcp.congestion-control", Status::Warn, "cubic");
    found(&sysctl("6291456", "212992"), "tcp.buffers", Status::Warn, "tcp_rmem='4096 131072 4194304'");
    let rule = with("ip-rule.txt", "10.0.0.2", "10.9.9.9");
    found(&rule, "net.source-routing", Status::Warn, "from 10.0.0.2 table 101");
    let files = with("limits.txt", "65536  65536  files", "256 256 files");
    found(&files, "limits.open-files", Status::Warn, "LimitNOFILE");
    found(&with("timedatectl.txt", ": yes", ": no"), "clock.synchronized", Status::Warn, "timedatectl");
}

/// A card over TCP has no RDMA device that would tell of its node.
#[test]
fn a_card_at_another_node_is_found_without_rdma_too() {
    let mut evidence = evidence(SOUND);
    evidence.0.retain(|name, _| ["sys-net.txt", "numa.txt", "status.txt"].contains(name));
    evidence.0.get_mut("status.txt").unwrap().text = Ok("Cpus_allowed_list:\t0-7\n".to_owned());
    let of = |evidence: &Evidence, name: &str| {
        let expected = Expected { interfaces: vec![name.to_owned()], ..Expected::default() };
        all(evidence, &expected)
    };
    found(&of(&evidence, "ens6f0"), "net.numa", Status::Warn, "--membind=1");
    // An interface without a device, a host with one node, and a card that belongs to none.
    assert!(of(&evidence, "ens6f1").is_empty());
    let net = evidence.0.get_mut("sys-net.txt").unwrap();
    net.text = Ok("/sys/class/net/ens6f0/device/numa_node:-1\n".to_owned());
    assert!(of(&evidence, "ens6f0").is_empty());
    let net = evidence.0.get_mut("sys-net.txt").unwrap();
    net.text = Ok("/sys/class/net/ens6f0/device/numa_node:1\n".to_owned());
    evidence.0.get_mut("numa.txt").unwrap().text =
        Ok("/sys/devices/system/node/node0/cpulist:0-15\n".to_owned());
    assert!(of(&evidence, "ens6f0").is_empty());
}

/// A host without timedatectl may have a clock that is kept, or not.
#[test]
fn a_clock_of_which_nothing_is_said_is_unknown() {
    for text in [Err("timedatectl: no such program".to_owned()), Ok("Time zone: UTC\n".to_owned())] {
        let mut evidence = evidence(SOUND);
        evidence.0.get_mut("timedatectl.txt").unwrap().text = text;
        let findings = all(&evidence, &EXPECTED);
        let bad: Vec<_> = findings.iter().filter(|of| of.status != Status::Ok).collect();
        let [clock] = &bad[..] else { panic!("{bad:#?}") };
        assert_eq!((clock.rule, clock.status), ("clock.synchronized", Status::Unknown));
        assert!(clock.mend.contains("chronyc tracking"), "{clock:?}");
    }
}

#[test]
fn strict_filtering_harms_only_without_routes_by_source() {
    let from = "all/rp_filter:0\n/proc/sys/net/ipv4/conf/ens6f0/rp_filter:2";
    found_all(&with("sysctl.txt", from, "ens6f0/rp_filter:1"), &[]);
    let mut evidence = evidence(SOUND);
    for (name, from, to) in
        [("sysctl.txt", from, "ens6f0/rp_filter:1"), ("ip-rule.txt", "10.0.0.2", "10.9.9.9")]
    {
        let captured = evidence.0.get_mut(name).unwrap();
        captured.text = Ok(captured.text.clone().unwrap().replace(from, to));
    }
    found_all(
        &all(&evidence, &EXPECTED),
        &[
            ("net.source-routing", Status::Warn, "table 101"),
            ("net.rp-filter", Status::Fail, "ens6f0/rp_filter=2"),
        ],
    );
}

#[test]
fn the_interfaces_that_carry_storage_may_be_named() {
    let interfaces = |name: &str| Expected { interfaces: vec![name.to_owned()], ..EXPECTED };
    let mut evidence = evidence(SOUND);
    evidence.0.get_mut("sys-net.txt").unwrap().text = Ok("/sys/class/net/ens6f1/mtu:1500\n".to_owned());
    found(&all(&evidence, &interfaces("ens6f1")), "net.mtu", Status::Fail, "dev ens6f1");
    found(&all(&evidence, &interfaces("ens9")), "net.mtu", Status::Fail, "ip link");
    evidence.0.retain(|name, _| *name == "sys-net.txt");
    let [unknown] = &compared(all(&evidence, &EXPECTED))[..] else { panic!() };
    assert_eq!((unknown.rule, unknown.status), ("net.mtu", Status::Unknown));
}

#[test]
fn faults_of_kernel_mounts_are_found() {
    let stats = |from, to| with("mountstats.txt", from, to);
    found(&stats("nconnect=2", "nconnect=8"), "nfs.connections", Status::Warn, "unmount all mounts");
    let old = stats(
        "vers=3,rsize=1048576,wsize=1048576,proto=tcp,nconnect=2",
        "vers=4.2,rsize=1048576,wsize=1048576,proto=rdma",
    );
    found_all(&old, &[]);
    let one = "\txprt:\ttcp 877 1 1 0 0 900 900 0 1 0 2 0 0\n";
    let mut evidence = evidence(SOUND);
    let captured = evidence.0.get_mut("mountstats.txt").unwrap();
    let text = captured.text.clone().unwrap();
    let v4 = text.replace("vers=3", "vers=4.1").replace("proto=tcp", "proto=rdma").replace(one, "");
    captured.text = Ok(v4.clone());
    found(&all(&evidence, &EXPECTED), "nfs.connections", Status::Warn, "6.9");
    // Linux 6.9 is the first that opens several.
    for (release, mend) in
        [("6.8.99\n", "6.9"), ("6.9.0-rc1\n", "unmount"), ("6.9\n", "unmount"), ("6.12.1\n", "unmount")]
    {
        evidence.0.get_mut("kernel-release.txt").unwrap().text = Ok(release.to_owned());
        found(&all(&evidence, &EXPECTED), "nfs.connections", Status::Warn, mend);
    }
    // Where nconnect is not shown, as of our own line for fstab, nobody knows the wish.
    evidence.0.get_mut("mountstats.txt").unwrap().text = Ok(v4.replace(",nconnect=2", ""));
    for (release, is_noted) in [("6.8.99\n", true), ("6.9\n", false)] {
        evidence.0.get_mut("kernel-release.txt").unwrap().text = Ok(release.to_owned());
        let findings = all(&evidence, &EXPECTED);
        found_all(&findings, &[]);
        let of = findings.iter().find(|of| of.rule == "nfs.connections").unwrap();
        assert_eq!(of.seen.contains("before 6.9 ignore nconnect"), is_noted, "{of:?}");
    }
    found(&stats("0 0 900 900", "0 0 9 9"), "nfs.balance", Status::Warn, "trunkline bench");
    found(&stats("wsize=1048576", "wsize=65536"), "nfs.transfer-size", Status::Warn, "max_block_size");
}

/// What is found with this plan on the sound host, after a capture was replaced.
fn planned(expected: Expected, name: &str, from: &str, to: &str) -> Vec<Finding> {
    let mut evidence = evidence(SOUND);
    let captured = evidence.0.get_mut(name).unwrap();
    captured.text = Ok(captured.text.clone().unwrap().replace(from, to));
    all(&evidence, &expected)
}

fn portal(address: &str) -> crate::Portal {
    crate::Portal {
        target: "ef600".to_owned(),
        transport: "rdma",
        address: address.parse().unwrap(),
        port: 4420,
        nqn: None,
        states: Vec::new(),
    }
}

#[test]
fn addresses_are_compared_with_the_plan_and_duplicates_are_found() {
    let at = |interface: &str, address: &str| Expected {
        addresses: vec![(interface.to_owned(), address.parse().unwrap())],
        ..EXPECTED
    };
    let plan = |address: &str| at("ens6f1", address);
    found_all(&planned(plan("10.0.0.2"), "ip-addr.txt", "x", "x"), &[]);
    found_all(&planned(at("lo", "127.0.0.1"), "ip-addr.txt", "x", "x"), &[]);
    for (expected, seen) in [
        (at("ens6f0", "10.0.0.2"), "ens6f1 has 10.0.0.2, which the plan has at ens6f0"),
        (at("ens6f0", "127.0.0.1"), "lo has 127.0.0.1, which the plan has at ens6f0"),
    ] {
        let findings = planned(expected, "ip-addr.txt", "x", "x");
        found(&findings, "net.address", Status::Fail, "dev ens6f0");
        assert!(findings.iter().any(|of| of.seen == seen), "{findings:#?}");
    }
    found(
        &planned(plan("10.0.0.3"), "ip-addr.txt", "x", "x"),
        "net.address",
        Status::Fail,
        "ip addr add 10.0.0.3",
    );
    let duplicate =
        with("ip-addr.txt", "fd00::2/64 scope global", "fd00::2/64 scope global dadfailed tentative");
    found(&duplicate, "net.duplicate", Status::Fail, "fd00::2");
}

/// One address has a rule, but the main table leads through the interface of the other one.
#[test]
fn the_route_of_the_main_table_must_be_that_of_the_address_without_a_rule() {
    let metric = with("ip-route.txt", "metric 100", "metric 102");
    found(&metric, "net.source-routing", Status::Warn, "from 10.0.0.1 table 101");
    let first = with("ip-route6.txt", "fd00::/64 dev ens6f0 proto kernel metric 256\n", "");
    found(&first, "net.source-routing", Status::Warn, "ip -6 rule add from fd00::1 table 101");
    // Nobody knows without the routes.
    let mut evidence = evidence(SOUND);
    evidence.0.retain(|name, _| !name.starts_with("ip-route"));
    found_all(&all(&evidence, &EXPECTED), &[]);
}

#[test]
fn several_addresses_of_ipv6_need_rules_too() {
    let rule = with("ip-rule6.txt", "fd00:0:0::2/128", "fd00::9");
    found(&rule, "net.source-routing", Status::Warn, "ip -6 rule add from fd00::2 table 101");
    found_all(&with("ip-rule6.txt", "fd00:0:0::2/128", "fd00::2"), &[]);
    let both = with("ip-addr.txt", "fd00::2/64", "fd00:0:0:1::2/64");
    found_all(&both, &[]);
    // Nobody makes rules for addresses that pass.
    for flags in ["temporary dynamic", "deprecated", "dynamic mngtmpaddr"] {
        let scope = format!("3: ens6f1    inet6 fd00::3/64 scope global {flags} \\ valid_lft 9sec\n1: lo ");
        found_all(&with("ip-addr.txt", "1: lo ", &scope), &[]);
    }
    let lasting = with("ip-addr.txt", "1: lo ", "3: ens6f1    inet6 fd00::3/64 scope global \\ x\n1: lo ");
    found(&lasting, "net.source-routing", Status::Warn, "from fd00::3");
    // DHCP gives IPv4 addresses that stay.
    let dynamic = with("ip-addr.txt", "scope global ens6f1", "scope global dynamic ens6f1");
    assert!(dynamic.iter().any(|of| of.seen.contains("share the network 10.0.0.0/24")), "{dynamic:#?}");
    // What is there for IPv4 is not there for IPv6.
    assert_eq!(both.iter().filter(|of| of.rule == "net.rp-filter").count(), 2);
}

#[test]
fn faults_of_multipath_are_found() {
    let multipath = |from, to| with("multipath.txt", from, to);
    found(
        &multipath("non-optimized live", "non-optimized connecting"),
        "multipath.paths",
        Status::Fail,
        "nvme list-subsys",
    );
    found(&multipath(" live", " deleting"), "multipath.paths", Status::Fail, "cables");
    let dm = "eui.1 dm-0 NVME, NetApp E-Series\nsize=1 features='0' hwhandler='0' wp=rw\n\
        `-+- policy='service-time 0' prio=50 status=active\n  |- 0:0:1:0 nvme0n1 259:0 active ready running\n\
        \x20 `- 1:0:1:0 nvme1n1 259:1 active ready running\n";
    let text = SOUND.iter().find(|(name, _)| *name == "multipath.txt").unwrap().1;
    found(&multipath(text, dm), "multipath.mixed", Status::Fail, "nvme_core.multipath=N");
}

/// Which layer joins paths of SCSI is no matter of the plan.
#[test]
fn only_nvme_devices_are_compared_with_the_planned_layer() {
    let plan = Expected { native_multipath: Some(true), ..Expected::default() };
    let of = |path: &str| {
        let text = format!(
            "36001405 dm-1 LIO,disk\n`-+- policy='x'\n  `- 0:0:1:0 {path} 8:0 active ready running\n"
        );
        all(&evidence(&[("multipath.txt", &text)]), &plan)
    };
    found_all(&compared(of("sdb")), &[]);
    assert!(of("sdb").iter().all(|of| of.rule != "multipath.native"));
    found(&of("nvme1n1"), "multipath.native", Status::Fail, "nvme_core.multipath=Y");
}

#[test]
fn a_device_with_fewer_paths_than_others_is_found_without_a_plan() {
    let mut evidence = evidence(SOUND);
    let captured = evidence.0.get_mut("multipath.txt").unwrap();
    let fewer = "eui.2 [nvme]:nvme0n2 NVMe,E,1\nsize=1\n  `- 0:0:1 nvme0c0n2 0:0 n/a optimized live\n";
    captured.text = captured.text.clone().map(|text| text + fewer);
    let findings = all(&evidence, &Expected { paths: None, ..EXPECTED });
    found(&findings, "multipath.paths", Status::Warn, "missing");
}

#[test]
fn faults_of_block_devices_are_found() {
    let block = |from, to| with("sys-block.txt", from, to);
    found(
        &block("max_sectors_kb:1024", "max_sectors_kb:512"),
        "block.request-size",
        Status::Warn,
        "echo 1024 >",
    );
    found(
        &block("optimal_io_size:1048576", "optimal_io_size:4194304"),
        "block.request-size",
        Status::Warn,
        "2048 KiB at most",
    );
    let expected = Expected { stripe_bytes: Some(2 << 20), ..EXPECTED };
    let mut only = SOUND.to_vec();
    only.retain(|(name, _)| *name == "sys-block.txt");
    found(&compared(all(&evidence(&only), &expected)), "block.request-size", Status::Warn, "echo 2048 >");
}

#[test]
fn faults_of_a_powerscale_cluster_are_found() {
    let interfaces = |from, to| with("isi-network-interfaces.txt", from, to);
    found(&interfaces("Status: Up", "Status: Down"), "powerscale.interface", Status::Fail, "cable");
    found(&interfaces("MTU: 9000", "MTU: 1500"), "powerscale.mtu", Status::Fail, "--mtu 9000");
    let settings = |from, to| with("isi-nfs-settings.txt", from, to);
    found(
        &settings("Service Enabled: Yes", "Service Enabled: No"),
        "powerscale.nfs",
        Status::Fail,
        "isi services",
    );
    found(
        &settings("NFSv3 RDMA Enabled: Yes", "NFSv3 RDMA Enabled: No"),
        "powerscale.nfs-rdma",
        Status::Fail,
        "grep -i rdma",
    );
    found(
        &settings("NFSv3 RDMA Enabled: Yes", "NFS RDMA Enabled: No"),
        "powerscale.nfs-rdma",
        Status::Fail,
        "--nfs-rdma-enabled true, --nfsv3-rdma-enabled true or --enable-rdma true",
    );
    found(
        &settings("NFSv3 Enabled: Yes", "NFSv3 Enabled: No"),
        "powerscale.nfs3",
        Status::Fail,
        "--nfsv3-enabled",
    );
    let operations = |from, to| with("isi-statistics-protocol.txt", from, to);
    found(&operations("9k 2 nfsrdma read\n", ""), "powerscale.balance", Status::Warn, "remoteports");
    found(&operations("9k 2", "1k 2"), "powerscale.balance", Status::Warn, "remoteports");
    let traffic = |from, to| with("isi-statistics-system.txt", from, to);
    found(
        &traffic("5.0G 5.0G\n3 9% 5.5G 5.5G", "9.8k 9.8k\n3 9% 0.0 0.0"),
        "powerscale.balance",
        Status::Warn,
        "several addresses",
    );
    found(&traffic("2 9% 5.0G", "2 9% 44.0G"), "powerscale.balance", Status::Warn, "over all nodes");
    // A cluster of one node has nothing to balance.
    found_all(&traffic("2 9% 5.0G 5.0G\n3 9% 5.5G 5.5G\n", ""), &[]);
}

#[test]
fn rubbish_in_captures_breaks_no_rule() {
    for capture in CAPTURES {
        for text in [
            "",
            "\0\u{1}",
            "{",
            "[{}]",
            "/sys/class/nvme/",
            "a:b:c\n:\n,,,=\n",
            "device  mounted on ",
            HOSTILE,
        ] {
            all(&evidence(&[(capture.name, text)]), &EXPECTED);
        }
    }
}

/// Values that no host shows.
const HOSTILE: &str = "/sys/class/net/a/speed:9223372036854775807\n/sys/class/net/b/speed:4294967295\n\
    /proc/sys/net/ipv4/tcp_rmem:1 2 3\nCpus_allowed_list:\t0-4294967295,0-4294967295\n\
    /sys/devices/system/node/node0/cpulist:0-4294967295\n1: a    inet 1.2.3.4/99 x\nMax open files  -1  x\n\
    /sys/block/dm-0/queue/max_sectors_kb:99999999999999999999\n/sys/block/dm-1/queue/max_sectors_kb:1\n\
    /sys/block/dm-1/queue/optimal_io_size:18446744073709551615\n\
    /sys/class/nvme/n/transport:tcp\n/sys/class/nvme/n/nvmec/nsid:1\n/sys/class/nvme/n/nvmecnc/nsid:1\n\
    \txprt:\ttcp 1 1 1 1 1 18446744073709551615 1\n\txprt:\ttcp 1 1 1 1 1 18446744073709551615 1\n";

#[test]
fn values_that_no_host_shows_break_no_rule_together() {
    let mut captures: Vec<_> = CAPTURES.iter().map(|capture| (capture.name, HOSTILE)).collect();
    all(&evidence(&captures), &EXPECTED);
    let mounted = format!("device a:/b mounted on /c with fstype nfs\n{HOSTILE}");
    captures.retain(|(name, _)| *name != "mountstats.txt");
    captures.push(("mountstats.txt", &mounted));
    all(&evidence(&captures), &EXPECTED);
}
