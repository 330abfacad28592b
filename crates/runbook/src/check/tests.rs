//! Each rule with a site file that breaks it: the line, the rule and its source.

use crate::{Error, Refusal, System, runbook};
use proptest::prelude::*;

/// The refusal of a site file, and the line's text.
fn refused(site: &str) -> (Refusal, String) {
    match runbook(site) {
        Err(Error::Refused(refusal)) => {
            let line = site.lines().nth(refusal.line - 1).unwrap_or_default().to_owned();
            (refusal, line)
        }
        other => panic!("not refused but {:?}", other.map(|files| files.len())),
    }
}

fn ef600() -> String {
    System::Ef600.site_file().to_owned()
}

#[test]
fn the_site_files_to_start_from_are_valid_and_give_a_runbook() {
    for system in System::ALL {
        let files = runbook(system.site_file()).unwrap_or_else(|error| panic!("{system}: {error}"));
        assert_eq!(files[0].path, crate::INDEX);
        assert!(files[0].text.starts_with(crate::MARK));
        let mut paths: Vec<_> = files.iter().map(|file| file.path.clone()).collect();
        paths.sort_unstable();
        let count = paths.len();
        paths.dedup();
        assert_eq!(paths.len(), count, "{system}: a path is used twice");
        for file in &files {
            assert_eq!(file.mode == 0o755, file.text.starts_with("#!"), "{}", file.path);
        }
    }
}

/// What is replaced in the EF600's example, by what, what its line then contains, and parts of the
/// sentence, the rule and its source.
const BROKEN: &[(&str, &str, &str, [&str; 3])] = &[
    ("name = \"hpc\"", "name = \"HPC site\"", "HPC", ["not a name", "lower-case", "RFC 1123"]),
    ("name = \"mgt01\"", "name = \"cmp07\"", "cmp07", ["used twice", "a name of its own", "RUNBOOKS"]),
    ("name = \"mgt01\"", "name = \"m g\"", "m g", ["not a name", "lower-case", "RFC 1123"]),
    ("name = \"mgt01\"", "name = \"m$(reboot)\"", "reboot", ["not a name", "lower-case", "RFC 1123"]),
    ("172.30.60.101", "172.30.57.110", "172.30.57.110", ["used twice: port 2b", "one interface", "RFC 1122"]),
    (
        "172.30.60.101",
        "172.30.60.54",
        "172.30.60.54",
        ["used twice: host cmp54", "one interface", "RFC 1122"],
    ),
    ("10.0.25.108", "10.0.25.107", "management", ["used twice", "one interface", "RFC 1122"]),
    ("172.30.60.101", "172.30.60.101/24", "/24", ["not the address", "without a prefix", "figure 19"]),
    ("172.30.57.114", "fd00::1", "fd00::1", ["IPv6", "IPv4", "figure 9"]),
    ("nqn.2020-12.", "nqn.2020-13.", "2020-13", ["not the NQN", "year and a month", "NVM Express Base"]),
    (
        "com.example.hpc:nvme:",
        "com.example.hpc-nvme-",
        "hpc-nvme",
        ["not the NQN", "colon", "NVM Express Base"],
    ),
    (
        "#interface = \"ib1\"",
        "os = \"rhel7\"",
        "rhel7",
        ["mixed", "do not share", "NVMe Configuration on the Linux"],
    ),
    ("#segment_kib = 128", "segment_kib = 512", "512", ["above 2048", "full stripe", "RAID Volume Groups"]),
    (
        "#segment_kib = 128",
        "segment_kib = 256",
        "256",
        ["hosts send at most", "full stripe", "RAID Volume Groups"],
    ),
    ("#segment_kib = 128", "segment_kib = 100", "100", ["segments of 100", "32, 64", "RAID Volume Groups"]),
    (
        "request_kib = 1024",
        "request_kib = 128",
        "request_kib",
        ["hosts send at most", "full stripe", "RAID Volume"],
    ),
    ("drives = 20", "drives = 21", "21", ["21", "10", "Lenovo Press"]),
    ("volume = \"4992GiB\"", "volume = \"9992GiB\"", "9992", ["cannot fit", "usable", "Capacity Sizing"]),
    ("volume = \"4992GiB\"", "volume = \"4992\"", "4992", ["4992", "unit", "table 4"]),
    ("scheme = \"raid6\"", "scheme = \"raid5\"", "raid5", ["raid5", "", ""]),
    (
        "port = \"2b\", address = \"172.30.57.110\"",
        "port = \"2a\", address = \"172.30.57.110\"",
        "57.110",
        ["no further host port", "each once", "figure 9"],
    ),
    (
        "\"10.0.25.107\", \"10.0.25.108\"",
        "\"10.0.25.107\"",
        "management",
        ["1 management", "one management port", "EF600 Overview"],
    ),
    (
        "interface = \"ib0\"",
        "interface = \"ib0;reboot\"",
        "reboot",
        ["not the name of a network", "15 letters", "IFNAMSIZ"],
    ),
    (
        "label = \"de0704-ef600\"",
        "label = \"de 0704\"",
        "de 0704",
        ["not a label", "30 letters", "SANtricity"],
    ),
    ("fabric = \"infiniband\"", "fabric = \"roce\"", "ports", ["need subnet_mask", "netmask", "1.4.0"]),
    (
        "fabric = \"infiniband\"",
        "mtu = 9000",
        "mtu",
        ["neither subnet_mask nor mtu", "address only", "figure 9"],
    ),
    (
        "firmware = \"11.70.1\"",
        "firmware = \"11.50\"",
        "11.50",
        ["no SANtricity version", "11.60", "EF600 Overview"],
    ),
    (
        "domain = \"hpc.example.com\"",
        "domain = \"hpc example\"",
        "hpc example",
        ["not a domain", "dots", "RFC 1123"],
    ),
    ("\"10.0.25.108\"", "\"fd00::108\"", "fd00::108", ["an address of IPv6", "by IPv4", "Basic EF600"]),
    (
        "172.30.60.1\"",
        "172.30.60.250\"",
        "60.250",
        ["49 of them would be beyond", "last number only", "RUNBOOKS"],
    ),
    ("172.30.60.1\"", "fd00::ffcb\"", "ffcb", ["1 of them would be beyond", "up to ffff", "RUNBOOKS"]),
    (
        "#iopolicy = \"round-robin\"",
        "iopolicy = \"queue-depth\"",
        "queue-depth",
        ["rhel8 has no iopolicy", "Linux 6.11", "nvme-multipath"],
    ),
    (
        "request_kib = 1024",
        "request_kib = 2048",
        "2048",
        ["of rhel8 send no requests of 2048", "256 segments", "RAID Volume Groups"],
    ),
    ("#queue_size = 1024", "queue_size = 4096", "4096", ["queue of 4096", "16 to 1024", "fabrics.h"]),
    ("cmp[01-54]", "cmp[54-01]", "54-01", ["does not stand for hosts", "upwards", "RUNBOOKS"]),
];

/// The same for the Linux server's example.
const BROKEN_SERVER: &[(&str, &str, &str, [&str; 3])] = &[
    ("port = 12049 ", "#port = 1 ", "addresses", ["kernel's NFS server listens", "2049 of all", "rpc.nfsd"]),
    ("rdma_port = 12050", "rdma_port = 20049", "20049", ["kernel's NFS server listens", "20049", "rpc.nfsd"]),
    ("path = \"/srv/nfs\"", "path = \"srv/nfs\"", "srv/nfs", ["not the path", "begins with /", "exports(5)"]),
    ("path = \"/srv/nfs\"", "path = \"/srv/$(reboot)\"", "reboot", ["not the path", "letters", "exports(5)"]),
    ("path = \"/srv/nfs\"", "path = \"/srv/../etc\"", "etc", ["not the path", "..", "exports(5)"]),
    (
        "clients = [\"10.0.0.0/16\"], rw = true, fsid",
        "clients = [\"*\"], rw = true, fsid",
        "*",
        ["neither an address", "prefix", "exports(5)"],
    ),
    (
        "clients = [\"10.0.0.0/16\"], rw = true, fsid",
        "clients = [\"10.0.0.0/33\"], rw = true, fsid",
        "/33",
        ["neither an address", "prefix", "exports(5)"],
    ),
    (
        "clients = [\"10.0.0.0/16\"], rw = true, fsid",
        "clients = [], rw = true, fsid",
        "clients",
        ["clients is empty", "nothing is open", "RUNBOOKS"],
    ),
    (
        "fsid = 1 },",
        "fsid = 7 }, { path = \"/srv/two\", clients = [\"10.0.0.1\"], fsid = 7 },",
        "fsid = 7",
        ["fsid = 7 is used twice", "file handles", "exports(5)"],
    ),
    (
        "404322\", ana_group = 2",
        "404322\", nsid = 1, ana_group = 2",
        "nsid = 1",
        ["cannot have the number 1", "numbers of their own", "nvmet.h"],
    ),
    (
        "404322\", ana_group = 2",
        "404322\", nsid = 0, ana_group = 2",
        "nsid = 0",
        ["cannot have the number 0", "1 to 1024", "NVM Express"],
    ),
    (
        "/dev/disk/by-id/nvme-eui.0025385b21404322",
        "/dev/vdb",
        "vdb",
        ["may be another disk", "in which it finds disks", "udev"],
    ),
    ("mem = \"2GiB\"", "mem = \"2GiB\", dir = \"/srv/x\"", "scratch", ["dir or mem", "in memory", "SERVE"]),
    ("mem = \"2GiB\"", "mem = \"two\"", "two", ["not a size", "unit", "SERVE"]),
    (
        "404322\", ana_group = 2",
        "404321\", ana_group = 2",
        "404321",
        ["used twice", "one directory or device", "RUNBOOKS"],
    ),
    (
        "404322\", ana_group = 2",
        "404322\", ana_group = 200",
        "200",
        ["no ANA group 200", "1 to 128", "nvmet.h"],
    ),
    (
        "404322\", ana_group = 2",
        "404322\"",
        "optimized = [2]",
        ["no namespace is in ANA group 2", "groups that have", "RUNBOOKS"],
    ),
    (
        "nqn = \"nqn.2024-01.org.example:stor1\"",
        "nqn = \"stor1\"",
        "stor1",
        ["not the NQN of a subsystem", "nqn.", "NVM Express"],
    ),
    ("name = \"stor1\"", "name = \"node1\"", "node[1-2]", ["node1 is used twice", "of its own", "RUNBOOKS"]),
    (
        "address = \"10.0.0.11\"",
        "address = \"10.0.0.1\"",
        "10.0.0.1",
        ["used twice: server stor1", "one interface", "RFC 1122"],
    ),
    ("#threads = 64", "threads = 0", "threads", ["0 threads", "1 to 1024", "rpc.nfsd"]),
];

/// The same for the example of a PowerScale cluster.
const BROKEN_NAS: &[(&str, &str, &str, [&str; 3])] = &[
    (
        "onefs = \"9.5\"",
        "onefs = \"9.1\"",
        "9.1",
        ["has no NFS over RDMA", "9.2 or later", "PowerScale Requirements"],
    ),
    (
        "#nfsv4 = false",
        "nfsv4 = true",
        "nfsv4",
        ["has no NFSv4 over RDMA", "9.8 or later", "Swapping to NFSv4"],
    ),
    (
        "\"192.168.1.203\"",
        "\"192.168.2.203\"",
        "192.168.2.203",
        ["not in the subnet", "in its subnet", "PowerScale Side"],
    ),
    (
        "\"192.168.1.203\"",
        "\"192.168.1.202\"",
        "192.168.1.202",
        ["used twice: node 2", "one interface", "RFC 1122"],
    ),
    (
        "lnn = 3,",
        "lnn = 2,",
        "lnn = 2",
        ["interface 100gige-1 of node 2 is used twice", "has one address", "PowerScale Side"],
    ),
    (
        "\"/ifs/data/bench\"",
        "\"/data/bench\"",
        "/data/bench",
        ["not on the cluster", "below /ifs", "Configure the Fileshare"],
    ),
    ("\"alice\"", "\"alice; reboot\"", "reboot", ["not a name of OneFS", "32 letters", "OneFS CLI"]),
    ("uid = 2010", "uid = 0", "uid = 0", ["uid = 0", "1000 to 60000", "login.defs"]),
    ("#mtu = 9000", "mtu = 9500", "9500", ["mtu = 9500", "1500 to 9000", "OneFS"]),
    ("#nconnect = 32", "nconnect = 65", "65", ["nconnect = 65", "1 to 64", "mount parameters"]),
    ("prefix_length = 24", "prefix_length = 31", "31", ["prefix_length = 31", "8 to 30", "RFC 4632"]),
    (
        "#localports = \"192.168.1.21-192.168.1.22\"",
        "localports = \"eth0,eth1\"",
        "eth0",
        ["no list of local", "joined by ~", "MOUNT-OPTIONS"],
    ),
    (
        "#localports = \"192.168.1.21-192.168.1.22\"",
        "localports = \"192.168.1.21-192.168.1.23\"",
        "192.168.1.23",
        ["192.168.1.23 of host p4-02 is used twice: host p4-01", "one interface", "RFC 1122"],
    ),
    (
        "#localports = \"192.168.1.21-192.168.1.22\"",
        "localports = \"192.168.1.21~192.168.1.204\"",
        "192.168.1.204",
        ["is used twice", "one interface", "RFC 1122"],
    ),
    (
        "name = \"p4-02\"",
        "name = \"p4-[02-03]\"\nlocalports = \"192.168.1.23-192.168.1.24\"",
        "localports",
        ["of several hosts, p4-02 to p4-03", "of one machine", "RUNBOOKS"],
    ),
    (
        "\"192.168.1.23\"",
        "\"255.255.255.255\"",
        "255.255.255.255",
        ["not the address of an interface", "broadcast", "figure 19"],
    ),
];

/// The same for clients outside of the subnet.
const BROKEN_CLIENTS: &[(&str, &str, &str, [&str; 3])] = &[
    (
        "\"192.168.1.23\"",
        "\"192.168.2.23\"",
        "192.168.2.23",
        [
            "p4-02 at 192.168.2.23 is outside of the cluster's subnet 192.168.1.0/24",
            "gateway",
            "On the Linux Side",
        ],
    ),
    (
        "\"192.168.1.23\"",
        "\"fd00::23\"",
        "fd00::23",
        ["p4-02 at fd00::23 is outside", "gateway", "Linux Side"],
    ),
    (
        "#localports = \"192.168.1.21-192.168.1.22\"",
        "localports = \"192.168.1.21~192.168.0.22\"",
        "192.168.0.22",
        ["p4-01 at 192.168.0.22 is outside", "gateway", "Linux Side"],
    ),
];

/// The same for the example of a Spectrum Scale cluster.
const BROKEN_SCALE: &[(&str, &str, &str, [&str; 3])] = &[
    (
        "block_kib = 1024",
        "block_kib = 512",
        "512",
        ["not whole stripes", "full stripes", "EF600 Storage Volumes"],
    ),
    ("block_kib = 1024", "block_kib = 3072", "3072", ["not possible", "power of two", "mmcrfs"]),
    (
        "managers = [\"mgt01\"]",
        "managers = [\"mgt02\"]",
        "mgt02",
        ["not a host", "reach all volumes", "Creating the Spectrum"],
    ),
    (
        "managers = [\"mgt01\"]",
        "managers = []",
        "managers",
        ["managers is empty", "keeps its state", "Basic Spectrum Scale"],
    ),
    (
        "#reclaim = false",
        "reclaim = true",
        "reclaim",
        ["gives no space back", "up to 11.70.1", "TRIM Support"],
    ),
    (
        "\"ef600_mlx\"",
        "\"ef600-mlx\"",
        "ef600-mlx",
        ["not the name of a file system", "31 letters", "mmcrfs"],
    ),
    ("\"/gpfs/ef600_mlx\"", "\"gpfs\"", "gpfs", ["not the path", "begins with /", "fstab"]),
    ("\"mlx5_0/1\"", "\"mlx5_0;reboot\"", "reboot", ["no RDMA ports", "DEVICE/PORT", "figure 29"]),
];

#[test]
fn a_broken_rule_is_refused_with_its_line_the_rule_and_its_source() {
    let server = System::LinuxServer.site_file().to_owned();
    let nas = System::PowerScale.site_file().to_owned();
    let scale = System::Scale.site_file().to_owned();
    let tables = [
        (ef600(), BROKEN),
        (server, BROKEN_SERVER),
        (nas.clone(), BROKEN_NAS),
        (nas, BROKEN_CLIENTS),
        (scale, BROKEN_SCALE),
    ];
    let all = tables.iter().flat_map(|(example, cases)| cases.iter().map(move |case| (example, case)));
    for (example, (old, new, in_line, [sentence, rule, origin])) in all {
        let site = example.replacen(old, new, 1);
        assert_ne!(&site, example, "{old} is not in the example");
        let (refusal, line) = refused(&site);
        assert!(line.contains(in_line), "{new}: line {} is {line}\n{refusal}", refusal.line);
        assert!(refusal.sentence.contains(sentence), "{new}: {refusal}");
        assert!(refusal.rule.contains(rule), "{new}: {refusal}");
        assert!(refusal.origin.contains(origin), "{new}: {refusal}");
        assert!(!refusal.advice.is_empty(), "{new}: {refusal}");
    }
}

/// What is proposed for a range stands for as many hosts.
#[test]
fn a_range_with_a_bad_name_gets_a_range_proposed() {
    for (given, proposed) in [
        ("Cmp[01-54]", "cmp[01-54]"),
        ("cmp_[01-54]", "cmp-[01-54]"),
        ("-cmp[01-54].ib", "cmp[01-54]-ib"),
        ("cmp[01-54]_", "cmp[01-54]"),
    ] {
        let site = ef600().replace("cmp[01-54]", given);
        let (refusal, _) = refused(&site);
        assert_eq!(refusal.advice, format!("name = {proposed:?}"), "{given}: {refusal}");
        let again = ef600().replace("cmp[01-54]", proposed);
        assert!(crate::runbook(&again).is_ok(), "{proposed}");
    }
    // Nothing is near a name that is too long.
    let long = format!("{}[1-4]", "x".repeat(70));
    let (refusal, _) = refused(&ef600().replace("cmp[01-54]", &long));
    assert_eq!(refusal.advice, "name = \"host[1-4]\"");
}

// Deploying NetApp EF600, section EF600 and InfiniBand Fabric Topologies.
#[test]
fn more_hosts_than_ports_are_refused_where_cables_are_direct() {
    let site = ef600().replace("#topology = \"fabric\"", "topology = \"direct\"");
    let (refusal, _) = refused(&site);
    assert!(refusal.sentence.contains("55 hosts are more than the 4 ports"), "{refusal}");
    let site = site.replace("cmp[01-54]", "cmp[1-4]");
    let (refusal, line) = refused(&site);
    assert!(refusal.sentence.contains("5 hosts are more than the 4 ports"), "{refusal}");
    assert!(line.contains("[[host]]") || line.contains("ports"), "{line}");
    assert!(refusal.origin.contains("Topologies"), "{refusal}");
}

/// What other systems can do is not refused for them.
#[test]
fn limits_of_a_release_or_of_a_transport_hold_for_these_only() {
    let depth = ef600().replace("#iopolicy = \"round-robin\"", "iopolicy = \"queue-depth\"");
    assert!(runbook(&depth.replace("\"rhel8\"", "\"rhel10\"")).is_ok());
    let (refusal, line) =
        refused(&depth.replace("\"rhel8\"", "\"rhel10\"").replace("#interface = \"ib1\"", "os = \"rhel9\""));
    assert!(refusal.sentence.contains("rhel9 has no") && line.starts_with("iopolicy"), "{refusal}");
    let large = |system: &str| {
        let site = System::LinuxHost.site_file().replace("#queue_size = 1024", "request_kib = 2048");
        site.replace("\"debian12\"", system).replace("transport = \"rdma\"", "transport = \"tcp\"")
    };
    assert!(runbook(&large("\"debian12\"")).is_ok());
    assert!(refused(&large("\"rhel8\"")).0.sentence.contains("of rhel8"));
    let over_rdma = large("\"debian12\"").replacen("\"tcp\"", "\"rdma\"", 1);
    assert!(refused(&over_rdma).0.sentence.contains("over RDMA"));
    // The last number of an address has room up to 254, and for one host it is not looked at.
    let last = ef600().replace("172.30.60.1\"", "172.30.60.201\"").replace("172.30.60.101", "172.30.61.255");
    assert!(runbook(&last).is_ok());
    assert!(refused(&last.replace("60.201", "60.202")).0.sentence.contains("1 of them"));
}

/// A range of clients may begin in the subnet and leave it.
#[test]
fn every_client_of_a_range_is_in_the_subnet_of_the_pool() {
    let site = System::PowerScale.site_file().replace("192.168.1.21\"", "192.168.1.130\"");
    let range = |first: &str| {
        let half = site.replace("prefix_length = 24", "prefix_length = 26").replace("1.20", "1.18");
        half.replace("\"p4-02\"", "\"p4-[02-11]\"").replace("192.168.1.23\"", &format!("{first}\""))
    };
    runbook(&range("192.168.1.140")).unwrap_or_else(|error| panic!("{error}"));
    let (refusal, line) = refused(&range("192.168.1.190"));
    assert!(refusal.sentence.starts_with("p4-04 at 192.168.1.192 is outside"), "{refusal}");
    assert!(
        refusal.sentence.ends_with("192.168.1.128/26") && line.contains("192.168.1.190"),
        "{line}: {refusal}"
    );
    let (refusal, _) = refused(&range("192.168.1.120"));
    assert!(refusal.sentence.starts_with("p4-02 at 192.168.1.120 is outside"), "{refusal}");
}

/// RHEL 7 and later systems do not share volumes; clients of files have none.
#[test]
fn systems_are_mixed_only_where_no_host_has_paths() {
    let other = |site: &str| site.replacen("name = \"p4-02\"", "name = \"p4-02\"\nos = \"rhel7\"", 1);
    let nas = other(System::PowerScale.site_file());
    assert!(runbook(&nas).is_ok());
    let systems: Vec<_> = crate::host_plans(&nas).unwrap().iter().map(|plan| plan.native_multipath).collect();
    assert_eq!(systems, [true, false]);
    let target = "[[target]]\nname = \"t\"\ntransport = \"tcp\"\naddresses = [\"10.0.0.1\"]\n";
    let named = nas.replace("[hosts]", "[hosts]\nnqn_prefix = \"nqn.2020-12.com.example:\"");
    let (refusal, line) = refused(&format!("{named}\n{target}"));
    assert!(refusal.sentence.contains("are mixed: p4-02 differs") && line.contains("rhel7"), "{refusal}");
    // Volumes of a server of the site.
    let server = System::LinuxServer.site_file();
    let mixed = format!("{server}\n[[host]]\nname = \"old\"\naddress = \"10.9.9.9\"\nos = \"rhel7\"\n");
    assert!(refused(&mixed).0.sentence.contains("are mixed: old differs"));
}

/// What an advice says can be copied into the site file, and is then accepted.
#[test]
fn advice_can_be_copied() {
    let scale = System::Scale.site_file();
    let cluster = scale.lines().find(|line| line.starts_with("cluster = ")).unwrap();
    for (site, old, new, advice) in [
        (ef600(), "volume = \"4992GiB\"", "volume = \"9992GiB\"", None),
        (ef600(), "scheme = \"raid6\"", "scheme = \"raid5\"", Some("scheme = \"raid6\"")),
        (ef600(), "scheme = \"raid6\"", "scheme = \"8+99\"", Some("scheme = \"raid6\"")),
        (ef600(), "#segment_kib = 128", "segment_kib = 100", Some("segment_kib = 64")),
        (scale.to_owned(), cluster, "cluster = \"Bad name\"", Some("cluster = \"bad-name\"")),
    ] {
        let (refusal, _) = refused(&site.replacen(old, new, 1));
        let copied = refusal.advice.split(", or ").next().unwrap();
        assert!(advice.is_none_or(|advice| advice == copied), "{refusal}");
        assert!(runbook(&site.replacen(old, copied, 1)).is_ok(), "{copied} is refused");
    }
    let pool = ef600().replace("\"raid6\"", "\"ddp\"").replace("#segment_kib", "segment_kib");
    assert_eq!(refused(&pool).0.advice, "leave segment_kib out, or scheme = \"raid6\"");
    let (refusal, _) = refused(&ef600().replace("name = \"de0704\"", "name = \"DE 0704\""));
    assert!(refusal.sentence.ends_with("is not a name for an array"), "{refusal}");
    assert_eq!(refusal.advice, "name = \"de-0704\"");
}

/// Names of ports and of interfaces are in /etc/hosts beside those of hosts.
#[test]
fn a_name_that_etc_hosts_would_have_twice_is_refused() {
    let named = |name: &str| ef600().replace("name = \"mgt01\"", &format!("name = {name:?}"));
    for name in ["de0704a-ib0", "de0704b-ib3", "de0704a", "cmp07-ib0"] {
        let (refusal, line) = refused(&named(name));
        assert!(refusal.sentence.contains("would be twice in /etc/hosts"), "{refusal}");
        assert!(line.contains(name) && refusal.rule.contains("ARRAYa-ib0"), "{line}: {refusal}");
    }
    for name in ["de0704a-ib9", "de0704c", "cmp07-ib9"] {
        assert!(runbook(&named(name)).is_ok(), "{name}");
    }
}

#[test]
fn a_policy_of_native_multipath_is_refused_where_there_is_none() {
    for policy in ["round-robin", "numa", "queue-depth"] {
        let site = ef600().replace("\"rhel8\"", "\"rhel7\"");
        assert!(runbook(&site).is_ok());
        let (refusal, line) =
            refused(&site.replace("#iopolicy = \"round-robin\"", &format!("iopolicy = {policy:?}")));
        assert!(refusal.sentence.contains("no effect on rhel7") && line.starts_with("iopolicy"), "{refusal}");
    }
}

#[test]
fn local_addresses_are_for_clients_of_a_cluster_only() {
    let site = System::LinuxHost.site_file().replacen("[[host]]", "[[host]]\nlocalports = \"10.0.0.77\"", 1);
    let (refusal, line) = refused(&site);
    assert!(refusal.sentence.contains("no effect") && line.starts_with("localports"), "{refusal}");
    // As a key of the cluster they would be those of all clients.
    let shared = System::PowerScale
        .site_file()
        .replace("prefix_length", "localports = \"192.168.1.21-192.168.1.22\"\nprefix_length");
    assert!(matches!(runbook(&shared), Err(Error::Form { cause, .. }) if cause.contains("`localports`")));
}

#[test]
fn a_host_without_an_nqn_is_refused_and_two_may_not_share_one() {
    let without: String = ef600()
        .lines()
        .filter(|line| !line.starts_with("nqn_prefix"))
        .map(|line| format!("{line}\n"))
        .collect();
    let (refusal, line) = refused(&without);
    assert!(refusal.sentence.contains("no NQN") && line.contains("[hosts]"), "{refusal}");
    let shared = ef600().replace(
        "#nqn = \"nqn.2020-12.com.example.hpc:nvme:mgt01\"",
        "nqn = \"nqn.2020-12.com.example.hpc:nvme:cmp05-ib0\"",
    );
    let (refusal, line) = refused(&shared);
    assert!(
        refusal.sentence.contains("mgt01 has the NQN of cmp05") && line.contains("cmp05-ib0"),
        "{refusal}"
    );
}

#[test]
fn a_volume_without_an_optimized_path_and_a_target_without_hosts_are_refused() {
    let server = System::LinuxServer.site_file();
    let (refusal, line) = refused(&server.replace("optimized = [2]", "optimized = [1]"));
    assert!(refusal.sentence.contains("404322 is optimized") && line.contains("404322"), "{refusal}");
    let without = server.split("[hosts]").next().unwrap_or_default();
    let (refusal, line) = refused(without);
    assert!(refusal.sentence.contains("no host may connect") && line.contains("[server.nvmet]"), "{refusal}");
    let open = without.replace("#allow_any_host = false", "allow_any_host = true");
    assert!(runbook(&open).is_ok());
}

#[test]
fn a_cluster_without_arrays_and_a_nas_without_clients_are_refused() {
    let scale =
        "name = \"x\"\n[scale]\ncluster = \"c\"\nfile_system = \"f\"\nmount_point = \"/f\"\nmanagers = []\n";
    let (refusal, line) = refused(scale);
    assert!(refusal.sentence.contains("no array") && line == "[scale]", "{refusal}");
    let nas = System::PowerScale.site_file().split("[hosts]").next().unwrap_or_default();
    let (refusal, line) = refused(nas);
    assert!(refusal.sentence.contains("no client") && line == "[powerscale]", "{refusal}");
    // A stripe of 512 KiB fits twice into a block of 1024.
    let narrow = System::Scale.site_file().replace("#segment_kib = 128", "segment_kib = 64");
    assert!(runbook(&narrow).is_ok());
}

#[test]
fn keys_that_nothing_reads_and_files_that_are_no_toml_are_refused_with_the_line() {
    for (old, new, part, place) in [
        ("interface = \"ib0\"", "interfaces = \"ib0\"", "unknown field `interfaces`", "the keys of hosts"),
        ("os = \"rhel8\"", "os = \"rhel6\"", "unknown variant `rhel6`", "the keys of hosts"),
        ("drives = 20", "drives = \"many\"", "invalid type", "the keys of array"),
        ("name = \"hpc\"", "name = hpc", "", "section The site file"),
        ("name = \"hpc\"", "", "missing field `name`", "section The site file"),
    ] {
        let error = runbook(&ef600().replacen(old, new, 1)).expect_err(new);
        let Error::Form { cause, origin } = &error else { panic!("{new}: {error}") };
        assert!(cause.contains(part) && cause.starts_with("line "), "{new}: {cause}");
        assert_eq!(*origin, format!("docs/RUNBOOKS.md, {place}"), "{new}");
        assert!(error.to_string().contains(&format!("cause: {cause} ({origin})\n")), "{error}");
    }
    let error = runbook("name = \"empty\"").expect_err("no machine");
    assert!(error.to_string().contains("no machine"), "{error}");
}

proptest! {
    /// No text makes it panic, whatever is inserted wherever.
    #[test]
    fn no_text_panics(place in 0_usize..2500, text in "[\\PC\n]{0,12}") {
        let mut site = ef600();
        let place = (0..=place.min(site.len())).rev().find(|place| site.is_char_boundary(*place)).unwrap_or(0);
        site.insert_str(place, &text);
        let _ = runbook(&site);
    }
}

/// What follows a line break in a prefix would be a command in a script that root runs.
#[test]
fn a_prefix_is_checked_also_where_the_first_host_has_an_nqn_of_its_own() {
    let site = System::LinuxServer.site_file();
    let first =
        "[[host]]\nname = \"first1\"\naddress = \"10.0.0.99\"\nnqn = \"nqn.2020-12.com.example:one\"\n\n";
    let site = site.replacen("[[host]]", &format!("{first}[[host]]"), 1);
    let broken =
        site.replace("\"nqn.2024-01.org.example:\"", "\"nqn.2024-01.org.example:x\\nLIST\\n}\\nreboot\\n\"");
    assert!(runbook(&site).is_ok() && broken != site);
    let (refusal, line) = refused(&broken);
    assert!(refusal.to_string().contains("is not the NQN of a host"), "{refusal}");
    assert!(line.starts_with("nqn_prefix"), "{line}");
}

#[test]
fn two_targets_of_one_name_are_refused() {
    let site = System::LinuxServer.site_file();
    let start = site.find("[[server]]").unwrap();
    let end = start + site[start..].find("[[host]]").unwrap_or(site.len() - start);
    let server = &site[start..end];
    let nvmet = server.find("[server.nvmet]").unwrap();
    let rest = &server[nvmet + 1..];
    let only = &server[nvmet..nvmet + 1 + rest.find("\n[server").map_or(rest.len(), |at| at + 1)];
    let second = format!("[[server]]\nname = \"second1\"\n{only}");
    let both = format!("{}{second}\n{}", &site[..end], &site[end..]);
    let (refusal, line) = refused(&both);
    assert!(refusal.to_string().contains("names two subsystems"), "{refusal}");
    assert!(line.starts_with("nqn = "), "{line}");
}

#[test]
fn failure_groups_are_numbers_that_spectrum_scale_has() {
    let site = System::Scale.site_file();
    let at = site.find("failure_group").unwrap();
    let line = site[at..].lines().next().unwrap();
    for wrong in ["0", "4001", "65535"] {
        let start = site[..at].rfind('\n').unwrap() + 1;
        let whole = &site[start..at + line.len()];
        let broken = site.replace(whole, &format!("failure_group = {wrong}"));
        let (refusal, _) = refused(&broken);
        assert!(refusal.to_string().contains("failure groups would be"), "{wrong}: {refusal}");
    }
}

#[test]
fn an_address_listed_twice_by_one_server_or_two_interfaces_of_one_node_is_refused() {
    let site = System::LinuxServer.site_file();
    let at = site.find("[server.trunkline]").unwrap();
    let list = site[at..].find("addresses = [").unwrap() + at + "addresses = [".len();
    let first = site[list..].split('"').nth(1).unwrap();
    let broken = format!("{}\"{first}\", {}", &site[..list], &site[list..]);
    let (refusal, _) = refused(&broken);
    assert!(refusal.to_string().contains("is listed twice"), "{refusal}");
    let site = System::PowerScale.site_file();
    let node = "{ lnn = 1, interface = \"100gige-1\", address = \"192.168.1.201\" },";
    let other = node.replace("100gige-1", "100gige-2");
    let (refusal, _) = refused(&site.replace(node, &format!("{node}\n    {other}")));
    assert!(
        refusal.to_string().contains("192.168.1.201") && refusal.to_string().contains("used twice"),
        "{refusal}"
    );
}

/// Two targets of one address would be one path, whatever their names.
#[test]
fn an_address_of_two_targets_is_refused_unless_transport_or_port_differ() {
    let with = |target: &str| {
        let target = format!("[[target]]\nname = \"again\"\n{target}\n\n[[host]]");
        System::LinuxHost.site_file().replacen("[[host]]", &target, 1)
    };
    let (refusal, line) = refused(&with("transport = \"rdma\"\naddresses = [\"10.0.9.1\", \"10.0.1.1\"]"));
    assert!(
        refusal.sentence.contains("10.0.1.1 of the target again is used twice: stor1-rdma has it too"),
        "{refusal}"
    );
    assert!(line.starts_with("addresses") && refusal.rule.contains("path of its own"), "{line}: {refusal}");
    let (refusal, _) = refused(&with("transport = \"tcp\"\naddresses = [\"10.0.9.1\", \"10.0.9.1\"]"));
    assert!(refusal.sentence.contains("used twice: again has it too"), "{refusal}");
    for differs in ["transport = \"tcp\"", "transport = \"rdma\"\nport = 4421"] {
        assert!(runbook(&with(&format!("{differs}\naddresses = [\"10.0.1.1\"]"))).is_ok(), "{differs}");
    }
}

// NVM Express Base Specification 2.0, section 4.5: 223 bytes.
#[test]
fn a_whole_nqn_is_not_longer_than_its_format_allows() {
    let with = |bytes: usize| {
        let start = "nqn.2020-12.com.example.hpc:";
        let prefix = format!("{start}{}:", "x".repeat(bytes - start.len() - 1));
        ef600().replace("nqn.2020-12.com.example.hpc:nvme:\"", &format!("{prefix}\""))
    };
    // `cmp01-ib0` follows.
    assert!(runbook(&with(223 - 9)).is_ok());
    let (refusal, line) = refused(&with(223 - 8));
    assert!(
        refusal.sentence.contains("-ib0\" is not the NQN") && line.starts_with("nqn_prefix"),
        "{refusal}"
    );
    assert!(refusal.rule.contains("at most 223 bytes, and this has 224"), "{refusal}");
}

/// A label of an initiator is an array's: sites without one have no such rule.
#[test]
fn labels_of_initiators_are_those_of_santricity_where_there_is_an_array() {
    let partition = ef600().replace("interface = \"ib0\"", "interface = \"ib0.8001\"");
    let files = runbook(&partition).unwrap();
    let scripts = files.iter().filter(|file| file.path.starts_with("array-de0704/"));
    let with_label: Vec<_> = scripts
        .filter(|file| file.text.contains("\"cmp07-ib0-8001\""))
        .map(|file| file.path.rsplit('/').next().unwrap())
        .collect();
    for name in ["40-hosts.smcli", "undo-40-hosts.smcli", "playbook.yml", "rest-requests.json", "plan.json"] {
        assert!(with_label.contains(&name), "{name}: {with_label:?}");
    }
    assert!(files.iter().any(|file| file.text.contains("nqn.2020-12.com.example.hpc:nvme:cmp07-ib0.8001")));
    let long = "a23456789012345678901234567";
    let (refusal, line) = refused(&ef600().replace("\"mgt01\"", &format!("\"{long}\"")));
    assert!(refusal.sentence.contains("a23456789012345678901234567-ib0") && line.contains(long), "{refusal}");
    assert!(refusal.rule.contains("30 letters") && refusal.origin.contains("SANtricity"), "{refusal}");
    let without = System::LinuxHost.site_file().replacen("interface = \"", "interface = \"a2345.7890", 1);
    assert!(runbook(&without.replace("node[", "a-node-of-a-long-name-[")).is_ok());
}
