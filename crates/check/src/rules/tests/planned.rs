//! A cluster and its client, and volumes of a host, compared with a plan.

use super::*;
use crate::{Cluster, ClusterNode, PlannedVolume, TargetVolumes};

/// The plan of which the sound host is a client, with the cluster's one node.
fn cluster() -> Cluster {
    Cluster {
        name: "nas".to_owned(),
        pool: "groupnet0.a.b".to_owned(),
        zone: "System".to_owned(),
        nodes: vec![ClusterNode {
            lnn: 1,
            interface: "25gige-2".to_owned(),
            address: "10.0.0.98".parse().unwrap(),
        }],
        export: "/ifs/data".to_owned(),
        clients: vec!["10.0.0.1".parse().unwrap()],
        user: ("bench".to_owned(), 2010),
    }
}

const MOUNT: &str = "device 10.0.0.98:/ifs/data mounted on /mnt/nas/rdma with fstype nfs statvers=1.1\n\
    \topts:\trw,vers=3,rsize=1048576,wsize=1048576,proto=rdma,nconnect=1\n\
    \txprt:\trdma 0 1 2 0 5 77 77 0 0 0 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n\
    device 10.0.0.98:/ifs/data mounted on /mnt/nas/rdma-mp with fstype fuse.trunkline\n\
    device proc mounted on /proc with fstype proc\n";

/// What is found on the sound host with its mounts, after this text of a capture was replaced.
fn client(plan: Cluster, name: &str, from: &str, to: &str) -> Vec<Finding> {
    let mut evidence = evidence(SOUND);
    evidence.0.get_mut("mountstats.txt").unwrap().text = Ok(MOUNT.to_owned());
    let modules = evidence.0.get_mut("sys-module.txt").unwrap();
    modules.text = Ok(modules.text.clone().unwrap() + "rpcrdma\n");
    let captured = evidence.0.get_mut(name).unwrap();
    let text = captured.text.clone().unwrap();
    assert!(text.contains(from), "{name} has no {from}");
    captured.text = Ok(text.replace(from, to));
    all(&evidence, &Expected { cluster: Some(plan), ..EXPECTED })
}

#[test]
fn a_cluster_and_a_client_as_planned_are_sound_and_each_rule_has_looked() {
    let findings = client(cluster(), "mountstats.txt", "x", "x");
    found_all(&findings, &[]);
    for rule in [
        "powerscale.plan",
        "powerscale.addresses",
        "powerscale.pool",
        "powerscale.export",
        "nfs.plan",
        "nfs.modules",
        "nfs.account",
    ] {
        assert!(findings.iter().any(|of| of.rule == rule), "{rule} has not looked");
    }
    let mounts: Vec<_> = findings.iter().filter(|of| of.rule == "nfs.plan").map(|of| &*of.seen).collect();
    assert_eq!(
        mounts,
        [
            "10.0.0.98:/ifs/data is mounted at /mnt/nas/rdma over rdma",
            "10.0.0.98:/ifs/data is mounted at /mnt/nas/rdma-mp"
        ]
    );
}

#[test]
fn differences_of_a_cluster_from_the_plan_are_found() {
    let interfaces = "isi-network-interfaces.txt";
    for (name, from, to, faults) in [
        (interfaces, "LNN: 1", "LNN: 2", &["powerscale.plan", "powerscale.addresses"][..]),
        (interfaces, "groupnet0.a.b", "groupnet0.a.c", &["powerscale.plan"]),
        (interfaces, "10.0.0.98", "10.0.0.99", &["powerscale.addresses"]),
        ("isi-network-pools.txt", "ID: groupnet0.a.b", "ID: groupnet0.a.c", &["powerscale.pool"]),
        ("isi-network-pools.txt", "Zone: System", "Zone: other", &["powerscale.pool"]),
        ("isi-network-pools.txt", "1:25gige-2", "1:25gige-2, 2:25gige-2", &["powerscale.pool"]),
        ("isi-network-pools.txt", "1:25gige-2", "1:25gige-1", &["powerscale.pool"]),
        ("isi-network-pools.txt", "98-10.0.0.98", "90-10.0.0.97", &["powerscale.pool"]),
        ("isi-nfs-exports.txt", "/ifs/data", "/ifs/other", &["powerscale.export"]),
        ("isi-nfs-exports.txt", "10.0.0.1, ", "", &["powerscale.export"]),
        ("isi-nfs-exports.txt", "Only Clients: -", "Only Clients: 10.0.0.1", &["powerscale.export"]),
        ("isi-nfs-settings.txt", "RDMA Enabled: Yes", "RDMA Enabled: No", &["powerscale.nfs-rdma"]),
    ] {
        let findings = client(cluster(), name, from, to);
        let faults: Vec<_> = faults.iter().map(|rule| (*rule, Status::Fail, "")).collect();
        found_all(&findings, &faults);
    }
    // An interface that loses RDMA is told, and so is the cluster that has no other.
    let findings = client(cluster(), interfaces, ", SUPPORTS_RDMA_RRoCE", "");
    let plan = findings.iter().find(|of| of.rule == "powerscale.plan").unwrap();
    assert!(plan.status == Status::Fail && plan.seen.ends_with("does not support RDMA"), "{plan:?}");
}

/// The command of a finding can be run as it is.
#[test]
fn what_mends_a_pool_has_an_option_for_each_difference() {
    for (from, to, options) in [
        ("Zone: System", "Zone: other", "--access-zone System"),
        ("1:25gige-2", "1:25gige-2, 2:25gige-2", "--remove-ifaces 2:25gige-2"),
        ("1:25gige-2", "1:25gige-1", "--add-ifaces 1:25gige-2 --remove-ifaces 1:25gige-1"),
        ("98-10.0.0.98", "90-10.0.0.97", "--add-ranges 10.0.0.98-10.0.0.98"),
    ] {
        let findings = client(cluster(), "isi-network-pools.txt", from, to);
        let mend = format!("isi network pools modify groupnet0.a.b {options}");
        found(&findings, "powerscale.pool", Status::Fail, &mend);
    }
}

#[test]
fn a_read_only_export_is_found_unless_the_host_may_write() {
    let export = |to: &str| client(cluster(), "isi-nfs-exports.txt", "Read Only Clients: -", to);
    found(
        &export("Read Only Clients: -\n Read Only: Yes"),
        "powerscale.export",
        Status::Fail,
        "--read-only false",
    );
    for sound in ["Read Only: No", "Read Only: Yes\n Read Write Clients: 10.0.0.1"] {
        found_all(&export(&format!("Read Only Clients: -\n {sound}")), &[]);
    }
}

/// What the kernel mounts over TCP needs no module of RDMA, and neither do our own mounts.
#[test]
fn the_module_of_rdma_is_missed_only_where_the_kernel_mounts_over_rdma() {
    let over = |mounts: &str| {
        let mut evidence = evidence(SOUND);
        evidence.0.get_mut("mountstats.txt").unwrap().text = Ok(mounts.to_owned());
        let expected = Expected { cluster: Some(cluster()), ..EXPECTED };
        let findings = all(&evidence, &expected);
        findings.iter().find(|of| of.rule == "nfs.modules").unwrap().status
    };
    let tcp = MOUNT
        .replace("mounted on /mnt/nas/rdma ", "mounted on /mnt/nas/tcp ")
        .replace("proto=rdma", "proto=tcp");
    let own = MOUNT.split_inclusive('\n').skip(3).collect::<String>();
    assert_eq!((over(&tcp), over(&own)), (Status::Ok, Status::Ok));
    let nothing = "device proc mounted on /proc with fstype proc\n";
    for warned in [MOUNT, &tcp.replace("proto=tcp", "proto=rdma"), nothing] {
        assert_eq!(over(warned), Status::Warn, "{warned}");
    }
}

/// A list of clients may have networks, and names that nobody resolves here.
#[test]
fn an_export_admits_by_address_network_and_name() {
    for (clients, is_sound) in [
        ("-", true),
        ("10.0.0.0/24", true),
        ("10.0.0.0/0", true),
        ("0.0.0.0/40", false),
        ("fd00::/8, 10.0.1.0/24", false),
        ("10.0.0.1/many", false),
        ("host.example.org", true),
        ("10.0.0.2", false),
    ] {
        let findings = client(cluster(), "isi-nfs-exports.txt", "10.0.0.1, 10.0.0.2", clients);
        let is_found = findings.iter().any(|of| of.status == Status::Fail);
        assert_eq!(is_found, !is_sound, "{clients}: {findings:#?}");
    }
}

#[test]
fn differences_of_a_client_from_the_plan_are_found() {
    let mounts = |from, to| client(cluster(), "mountstats.txt", from, to);
    found(&mounts("proto=rdma", "proto=tcp"), "nfs.plan", Status::Fail, "proto=rdma");
    found(
        &mounts(
            "10.0.0.98:/ifs/data mounted on /mnt/nas/rdma ",
            "10.0.0.9:/ifs/data mounted on /mnt/nas/rdma ",
        ),
        "nfs.plan",
        Status::Fail,
        "umount",
    );
    found(
        &mounts("/ifs/data mounted on /mnt/nas/rdma-mp", "/ifs/old mounted on /mnt/nas/rdma-mp"),
        "nfs.plan",
        Status::Fail,
        "umount",
    );
    // Other mounts are nobody's concern, and a name may stand for a node.
    found_all(
        &mounts(
            "proc mounted on /proc with fstype proc",
            "10.9.9.9:/x mounted on /y with fstype fuse.trunkline",
        ),
        &[],
    );
    found_all(&mounts("10.0.0.98:", "nas.example.org:"), &[]);
    found(
        &client(cluster(), "sys-module.txt", "rpcrdma\n", ""),
        "nfs.modules",
        Status::Warn,
        "modprobe rpcrdma",
    );
    let account = |from, to| client(cluster(), "passwd.txt", from, to);
    found(&account("x:2010", "x:1000"), "nfs.account", Status::Fail, "usermod --uid 2010 bench");
    found(&account("bench:x", "other:x"), "nfs.account", Status::Fail, "useradd --uid 2010 bench");
    found(&account("root:x:0:", "twin:x:2010:"), "nfs.account", Status::Warn, "usermod --uid OTHER twin");
    found(&account("bench:x:2010", "other:x:1"), "nfs.account", Status::Warn, "id bench");
}

/// A capture that goes elsewhere has neither the names of other people nor their homes.
#[test]
fn of_accounts_only_what_the_plan_asks_for_is_kept() {
    let all = "root:x:0:0:root:/root:/bin/bash\nbench:x:2010:2010:A Name:/home/bench:/bin/sh\n\
        other:x:2010:1::/:/bin/sh\nperson:x:1000:1000:A Person:/home/person:/bin/sh\nrubbish\n";
    let kept = crate::planned_accounts(all, &cluster());
    assert_eq!(kept, "# NAME:UID of bench and of accounts with UID 2010\nbench:2010\nother:2010\n");
    let none = crate::planned_accounts("root:x:0:0:root:/root:/bin/bash\n", &cluster());
    for (text, status, mend) in [
        (kept.as_str(), Status::Warn, "usermod --uid OTHER other"),
        (&kept.replace("bench:2010\n", ""), Status::Fail, "useradd --uid 2010 bench"),
        (&kept.replace("bench:2010", "bench:7"), Status::Fail, "usermod --uid 2010 bench"),
        (&none, Status::Warn, "id bench"),
    ] {
        let captured = evidence(SOUND).0["passwd.txt"].text.clone().unwrap();
        found(&client(cluster(), "passwd.txt", &captured, text), "nfs.account", status, mend);
    }
    let sound = kept.replace("other:2010\n", "");
    let captured = evidence(SOUND).0["passwd.txt"].text.clone().unwrap();
    found_all(&client(cluster(), "passwd.txt", &captured, &sound), &[]);
}

/// Captures of other commands are told as such, and nothing is concluded from them.
#[test]
fn captures_that_say_nothing_are_compared_with_no_plan() {
    let names = [
        "isi-network-interfaces.txt",
        "isi-network-pools.txt",
        "isi-nfs-exports.txt",
        "isi-nfs-settings.txt",
        "mountstats.txt",
        "sys-module.txt",
        "passwd.txt",
    ];
    for text in ["", "rubbish\n"] {
        let captures: Vec<_> = names.iter().map(|name| (*name, text)).collect();
        let findings =
            all(&evidence(&captures), &Expected { cluster: Some(cluster()), ..Expected::default() });
        assert!(findings.iter().all(|of| of.status == Status::Unknown), "{findings:#?}");
        let unseen = findings.iter().filter(|of| of.rule == "expected.unseen").count();
        assert_eq!(unseen, 7, "{findings:#?}");
    }
}

fn volumes(array: Option<&str>, all: &[(u32, &str)]) -> Expected {
    let all =
        all.iter().map(|(nsid, name)| PlannedVolume { nsid: *nsid, name: (*name).to_owned() }).collect();
    let array = array.map(str::to_owned);
    Expected {
        portals: vec![portal("10.0.0.7")],
        volumes: vec![TargetVolumes { target: "ef600".to_owned(), array, all }],
        ..EXPECTED
    }
}

#[test]
fn volumes_of_the_plan_that_are_missing_are_found_by_name_or_by_number() {
    let check = |expected| all(&evidence(SOUND), &expected);
    let of = |findings: &[Finding]| {
        let found = findings.iter().find(|of| of.rule == "nvme.volumes").expect("the rule");
        (found.status, found.seen.clone())
    };
    // The array names them.
    found_all(&check(volumes(Some("e"), &[(1, "v1"), (2, "v2")])), &[]);
    let findings = check(volumes(Some("e"), &[(1, "v1"), (2, "v3")]));
    found(&findings, "nvme.volumes", Status::Fail, "ns-rescan");
    assert_eq!(of(&findings).1, "ef600: of 2 volumes of the plan are missing: v3 (namespace 2)");
    // Another array is named, so numbers count: the host has namespace 1.
    for array in [Some("other"), None] {
        found_all(&check(volumes(array, &[(1, "v1")])), &[]);
        let findings = check(volumes(array, &[(1, "v1"), (2, "/dev/x")]));
        assert_eq!(
            of(&findings),
            (Status::Fail, "ef600: of 2 volumes of the plan are missing: /dev/x (namespace 2)".to_owned())
        );
    }
}

/// A host without a path to a target knows nothing of its volumes.
#[test]
fn volumes_behind_no_path_are_unknown() {
    let mut expected = volumes(None, &[(1, "v1")]);
    expected.portals = vec![portal("10.9.9.9")];
    let findings = all(&evidence(SOUND), &expected);
    assert!(findings.iter().all(|of| of.rule != "nvme.volumes"), "{findings:#?}");
    let unseen = findings.iter().find(|of| of.rule == "expected.unseen").expect("the rule");
    assert!(unseen.seen.starts_with("1 volumes are expected"), "{unseen:?}");
}
