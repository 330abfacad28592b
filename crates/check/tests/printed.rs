//! What is found in output that guides print: nothing where their machines were sound, and each
//! fault that is made of it.

use check::{CAPTURES, Captured, Evidence, Expected, Finding, Status, check};
use std::fs;
use std::path::Path;

/// All files of a folder of `printed`, with one text replaced: capture, from, to.
fn evidence(folder: &str, fault: Option<(&str, &str, &str)>) -> Evidence {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/printed").join(folder);
    let mut evidence = Evidence::default();
    for entry in fs::read_dir(folder).expect("the folder") {
        let path = entry.expect("an entry").path();
        let capture = CAPTURES.iter().find(|capture| path.ends_with(capture.name));
        let capture = capture.unwrap_or_else(|| panic!("{} is no capture", path.display()));
        let mut text = fs::read_to_string(&path).expect("text");
        if let Some((_, from, to)) = fault.filter(|(name, ..)| *name == capture.name) {
            assert!(text.contains(from), "{} has no {from}", capture.name);
            text = text.replacen(from, to, 1);
        }
        evidence.0.insert(capture.name, Captured { source: capture.name.to_owned(), text: Ok(text) });
    }
    evidence
}

fn eight_paths() -> Expected {
    Expected { paths: Some(8), ..Expected::default() }
}

/// The findings that are not ok, as rule, status and what was seen.
fn bad(findings: &[Finding]) -> Vec<(&str, Status, &str)> {
    let bad = findings.iter().filter(|finding| finding.status != Status::Ok);
    bad.map(|finding| (finding.rule, finding.status, &*finding.seen)).collect()
}

/// Every finding of the sound host: rule and what was seen, in order.
fn seen(folder: &str, expected: &Expected) -> Vec<(&'static str, String)> {
    let findings = check(&evidence(folder, None), expected);
    assert!(bad(&findings).is_empty(), "{findings:#?}");
    findings.into_iter().map(|finding| (finding.rule, finding.seen)).collect()
}

#[track_caller]
fn found(folder: &str, fault: (&str, &str, &str), expected: &Expected, wanted: &[(&str, Status, &str)]) {
    let findings = check(&evidence(folder, Some(fault)), expected);
    assert_eq!(bad(&findings), wanted);
    let told = findings.iter().filter(|finding| finding.status > Status::Unknown);
    assert!(told.clone().all(|finding| !finding.why.is_empty() && !finding.mend.is_empty()));
}

#[test]
fn the_ef600_of_the_guide_is_sound_on_rhel_7() {
    let device =
        |name: &str, id: &str| ("multipath.paths", format!("{name} (eui.{id}, DM-Multipath): 8 paths of 8"));
    assert_eq!(
        seen("ef600-rhel7", &eight_paths()),
        [
            (
                "nvme.firmware",
                "NetApp E-Series 021910045419: 32 devices of 4 namespaces, firmware 98710700".to_owned()
            ),
            (
                "nvme.devices",
                "NetApp E-Series 021910045419: a device for each of 8 paths of 4 namespaces".to_owned()
            ),
            device("dm-3", "00000eb55bacd37fd039ea00003ef1fd"),
            device("dm-5", "00000eb75bacd383d039ea00003ef1fd"),
            device("dm-6", "000012825bacc86fd039ea00003ef510"),
            device("dm-0", "00000eb35bacd37cd039ea00003ef1fd"),
        ]
    );
}

#[test]
fn faults_of_the_ef600_are_found_on_rhel_7() {
    let row = "/dev/nvme7n4\t021910045419\tNetApp E-Series\t4\t2.66 TB / 2.66 TB\t4 KiB + 0 B\t98710700\n";
    found(
        "ef600-rhel7",
        ("nvme-list.txt", row, ""),
        &eight_paths(),
        &[(
            "nvme.devices",
            Status::Fail,
            "NetApp E-Series 021910045419: of 8 devices, one for each path, namespace 4 has 7",
        )],
    );
    found(
        "ef600-rhel7",
        ("nvme-list.txt", row, &row.replace("98710700", "98711200")),
        &eight_paths(),
        &[(
            "nvme.firmware",
            Status::Warn,
            "NetApp E-Series 021910045419: 32 devices of 4 namespaces, firmware 98710700, 98711200",
        )],
    );
    let path = "|  |-- 7:0:4:0 nvme7n4 259:118 active ready running\n";
    found(
        "ef600-rhel7",
        ("multipath.txt", path, ""),
        &eight_paths(),
        &[(
            "multipath.paths",
            Status::Fail,
            "dm-3 (eui.00000eb55bacd37fd039ea00003ef1fd, DM-Multipath): 7 paths of 8",
        )],
    );
    found(
        "ef600-rhel7",
        ("multipath.txt", path, &path.replace("active ready", "failed faulty")),
        &Expected::default(),
        &[(
            "multipath.paths",
            Status::Fail,
            "dm-3 (eui.00000eb55bacd37fd039ea00003ef1fd, DM-Multipath): 8 paths of 8, not usable: nvme7n4 \
             (failed faulty running)",
        )],
    );
}

#[test]
fn the_ef600_of_the_guide_is_sound_on_rhel_8() {
    let device =
        |name: &str, id: &str| ("multipath.paths", format!("{name} (eui.{id}, native): 8 paths of 8"));
    assert_eq!(
        seen("ef600-rhel8", &eight_paths()),
        [
            ("nvme.ownership", "de0704-ef600: 4 volumes, 2 owned by controller A, 2 by B".to_owned()),
            (
                "nvme.firmware",
                "NetApp E-Series 021910045419: 4 devices of 4 namespaces, firmware 98711200".to_owned()
            ),
            device("nvme0n1", "00004edf5c0b4a01d039ea00003ef510"),
            device("nvme0n2", "00004ee15c0b4a07d039ea00003ef510"),
            device("nvme0n3", "00004de15c0b5539d039ea00003ef1fd"),
            device("nvme0n4", "00004de35c0b553bd039ea00003ef1fd"),
        ]
    );
}

#[test]
fn faults_of_the_ef600_are_found_on_rhel_8() {
    found(
        "ef600-rhel8",
        (
            "multipath.txt",
            "| +- policy='n/a' prio=50 status=optimized\n|   `-- 0:3:1 nvme0c3n1 0:0 n/a optimized live\n",
            "",
        ),
        &Expected::default(),
        &[(
            "multipath.paths",
            Status::Warn,
            "nvme0n1 (eui.00004edf5c0b4a01d039ea00003ef510, native): 7 paths of 8",
        )],
    );
    found(
        "ef600-rhel8",
        (
            "multipath.txt",
            "0:4:1 nvme0c4n1 0:0 n/a non-optimized live",
            "0:4:1 nvme0c4n1 0:0 n/a inaccessible live",
        ),
        &eight_paths(),
        &[(
            "multipath.paths",
            Status::Fail,
            "nvme0n1 (eui.00004edf5c0b4a01d039ea00003ef510, native): 8 paths of 8, not usable: nvme0c4n1 (n/a \
             inaccessible live)",
        )],
    );
    found(
        "ef600-rhel8",
        (
            "nvme-netapp-smdevices.txt",
            "Volume ID 00004ee15c0b4a07d039ea00003ef510, Controller B",
            "Volume ID 00004ee15c0b4a07d039ea00003ef510, Controller A",
        ),
        &eight_paths(),
        &[("nvme.ownership", Status::Warn, "de0704-ef600: 4 volumes, 3 owned by controller A, 1 by B")],
    );
}

/// A plan for one release of the system, and the captures of another, which joins paths elsewhere.
#[test]
fn the_layer_that_joins_paths_is_compared_with_the_plan() {
    let plan = |is_native| Expected { native_multipath: Some(is_native), ..eight_paths() };
    for (folder, is_native, seen) in [
        (
            "ef600-rhel7",
            false,
            "DM-Multipath joins the paths of dm-3, dm-5, dm-6, dm-0; the NVMe driver is planned to join the paths",
        ),
        (
            "ef600-rhel8",
            true,
            "the NVMe driver joins the paths of nvme0n1, nvme0n2, nvme0n3, nvme0n4; DM-Multipath is planned to \
             join the paths",
        ),
    ] {
        let findings = check(&evidence(folder, None), &plan(!is_native));
        assert_eq!(bad(&findings), [("multipath.native", Status::Fail, seen)]);
        let fault = findings.iter().find(|of| of.rule == "multipath.native").expect("the finding");
        let wanted = if is_native { "N" } else { "Y" };
        assert_eq!(fault.mend, format!("boot with nvme_core.multipath={wanted}"));
        let sound = self::seen(folder, &plan(is_native));
        let told = sound.iter().find(|(rule, _)| *rule == "multipath.native").expect("the finding");
        assert!(told.1.ends_with("joins the paths of 4 NVMe devices, as planned"), "{told:?}");
    }
}

/// The guide's own machines have two faults that it does not name: RDMA packets of a quarter of the
/// size that its frames carry, and one node of three that serves everything.
#[test]
fn the_powerscale_guide_prints_two_faults() {
    let expected = Expected { mtu: Some(9000), ..Expected::default() };
    let findings = check(&evidence("powerscale", None), &expected);
    assert_eq!(
        bad(&findings),
        [
            (
                "rdma.mtu",
                Status::Warn,
                "irdma0 port 1: active RDMA MTU 1024; 9000 is expected of its interface"
            ),
            (
                "rdma.mtu",
                Status::Warn,
                "irdma1 port 1: active RDMA MTU 1024; 9000 is expected of its interface"
            ),
            ("powerscale.balance", Status::Warn, "node 1 1968/s"),
        ],
        "{findings:#?}"
    );
    let sound: Vec<_> = findings.iter().map(|of| of.rule).collect();
    for rule in
        ["rdma.port-state", "powerscale.interface", "powerscale.rdma", "powerscale.mtu", "powerscale.nfs3"]
    {
        assert!(sound.contains(&rule), "{rule}: {sound:?}");
    }
    let with = |fault| {
        let findings = check(&evidence("powerscale", Some(fault)), &expected);
        let bad = findings.iter().filter(|finding| finding.status != Status::Ok);
        let others = bad.filter(|finding| !matches!(finding.rule, "rdma.mtu" | "powerscale.balance"));
        others.map(|finding| (finding.rule, finding.status)).collect::<Vec<_>>()
    };
    for (fault, rule, status) in [
        (("ibv_devinfo.txt", "PORT_ACTIVE (4)", "PORT_DOWN (1)"), "rdma.port-state", Status::Fail),
        (("isi-network-interfaces.txt", "Status: Up", "Status: Down"), "powerscale.interface", Status::Fail),
        (("isi-network-interfaces.txt", "MTU: 9000", "MTU: 1500"), "powerscale.mtu", Status::Fail),
        (
            ("isi-nfs-settings.txt", "RDMA Enabled: Yes", "RDMA Enabled: No"),
            "powerscale.nfs-rdma",
            Status::Fail,
        ),
        (
            ("isi-nfs-settings.txt", "NFSv3 Enabled: Yes", "NFSv3 Enabled: No"),
            "powerscale.nfs3",
            Status::Fail,
        ),
    ] {
        assert_eq!(with(fault), [(rule, status)], "{fault:?}");
    }
    // Without an interface for RDMA nobody knows which ones carry storage.
    let (rdma, mtu) = (("powerscale.rdma", Status::Warn), ("powerscale.mtu", Status::Unknown));
    assert_eq!(with(("isi-network-interfaces.txt", ", SUPPORTS_RDMA_RRoCE", "")), [rdma, mtu]);
}

/// The guide's output of `rdma link show` alone lists both of its devices.
#[test]
fn links_that_a_guide_prints_show_its_devices() {
    let mut evidence = evidence("powerscale", None);
    evidence.0.retain(|name, _| *name == "rdma-link.txt");
    let findings = check(&evidence, &Expected::default());
    let ports: Vec<_> =
        findings.iter().filter(|of| of.rule == "rdma.port-state").map(|of| &*of.seen).collect();
    assert_eq!(
        ports,
        ["irdma0 port 1: PORT_ACTIVE, firmware unknown", "irdma1 port 1: PORT_ACTIVE, firmware unknown"]
    );
    assert!(findings.iter().all(|of| of.rule != "rdma.devices"), "{findings:#?}");
}

/// Test 1 to Test 4 of a test of four routes by Dell's users: with one address one node of four
/// serves everything, which the test says is as expected of these routes, and which is slower.
#[test]
fn one_node_that_serves_everything_is_found_in_the_test_of_four_routes() {
    let one = "node 1 6400 MB/s, node 2 0 MB/s, node 3 0 MB/s, node 4 0 MB/s";
    let other = one.replace("6400", "7700");
    for (route, faults, all) in [
        ("tcp", &[one][..], one),
        ("tcp-mp", &[], "node 1 725 MB/s, node 2 3000 MB/s, node 3 3700 MB/s, node 4 892 MB/s"),
        ("rdma", &[&*other], &other),
        ("rdma-mp", &[], "node 1 691 MB/s, node 2 4400 MB/s, node 3 5000 MB/s, node 4 4400 MB/s"),
    ] {
        let findings = check(&evidence(&format!("powerscale-f210-{route}"), None), &Expected::default());
        let faults: Vec<_> = faults.iter().map(|seen| ("powerscale.balance", Status::Warn, *seen)).collect();
        assert_eq!(bad(&findings), faults, "{route}");
        assert_eq!(findings.iter().map(|of| &*of.seen).collect::<Vec<_>>(), [all], "{route}");
        assert!(findings.iter().all(|of| of.status == Status::Ok || of.why.contains("the others idle")));
    }
    let few = ("isi-statistics-system.txt", "1 27.2% 0.0 0.0 0.0 690.8M", "1 27.2% 0.0 0.0 0.0 44.0G");
    let findings = check(&evidence("powerscale-f210-rdma-mp", Some(few)), &Expected::default());
    assert!(findings[0].why.contains("node 1 serves 76 % of all bytes"), "{findings:?}");
}
