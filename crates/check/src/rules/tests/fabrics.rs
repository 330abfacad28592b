//! NVMe over Fabrics: paths, policies, and what a plan says of them.

use super::*;

#[test]
fn faults_of_nvme_are_found() {
    let nvme = |from, to| with("sys-nvme.txt", from, to);
    // A path of a controller that is not live does not count, whatever its last state was.
    found_all(
        &nvme("nvme1/state:live", "nvme1/state:connecting"),
        &[("nvme.controller", Status::Fail, "connect-all"), ("nvme.paths", Status::Fail, "connect-all")],
    );
    let inaccessible = nvme("n1/ana_state:optimized", "n1/ana_state:inaccessible");
    found(&inaccessible, "nvme.paths", Status::Fail, "ana-log");
    let moved = nvme("n1/ana_state:optimized", "n1/ana_state:non-optimized");
    found(&moved, "nvme.paths", Status::Warn, "its controller");
    found(&nvme("optimized", "inaccessible"), "nvme.paths", Status::Fail, "list-subsys");
    let fewer = nvme("/sys/class/nvme/nvme1/nvme0c1n1/nsid:1\n", "");
    found(&fewer, "nvme.paths", Status::Fail, "connect-all");
    found(&with("nvme-hostnqn.txt", "org:h", "org:other"), "nvme.host-nqn", Status::Warn, "discovery.conf");
    let owners = with("nvme-netapp-smdevices.txt", "Controller B", "Controller A");
    found(&owners, "nvme.ownership", Status::Warn, "half");
}

#[test]
fn the_policy_numa_harms_only_with_several_optimized_paths() {
    let numa = "iopolicy:numa";
    found_all(&with("sys-nvme.txt", "iopolicy:round-robin", numa), &[]);
    let mut evidence = evidence(SOUND);
    let captured = evidence.0.get_mut("sys-nvme.txt").unwrap();
    let text = captured.text.clone().unwrap();
    captured.text = Ok(text.replace("iopolicy:round-robin", numa).replace("non-optimized", "optimized"));
    found(&all(&evidence, &EXPECTED), "nvme.policy", Status::Warn, "round-robin");
}

/// Without native multipath each path is a device, and a command that prints one line per path
/// names the controller of the path (RHEL 7).
#[test]
fn paths_are_counted_without_native_multipath_too_and_owners_are_not_guessed() {
    let mut evidence = evidence(SOUND);
    let captured = evidence.0.get_mut("sys-nvme.txt").unwrap();
    let text = captured.text.clone().unwrap().replace("nvme0c0n1", "nvme0n1").replace("nvme0c1n1", "nvme1n1");
    let subsystem = "/sys/class/nvme/nvme1/subsysnqn:nqn.1992-08.com.netapp:6000\n";
    captured.text = Ok(format!("{text}{subsystem}"));
    let line = |device: &str, controller: &str| {
        format!(
            "/dev/{device}, Array Name e, Volume Name v1, NSID 1, Volume ID 1, Controller {controller}, x, 1TB\n"
        )
    };
    let both = line("nvme0n1", "A") + &line("nvme1n1", "B");
    evidence.0.get_mut("nvme-netapp-smdevices.txt").unwrap().text = Ok(both);
    let findings = all(&evidence, &EXPECTED);
    found_all(&findings, &[]);
    let paths = findings.iter().find(|of| of.rule == "nvme.paths").unwrap();
    assert!(
        paths.seen.starts_with("namespace 1 of nqn.1992-08.com.netapp:6000: 2 live paths of 2"),
        "{paths:?}"
    );
    assert!(!findings.iter().any(|of| of.rule == "nvme.ownership"));
}

#[test]
fn paths_and_modules_are_compared_with_the_plan() {
    let plan = |addresses: &[&str]| Expected {
        portals: addresses.iter().map(|address| portal(address)).collect(),
        ..EXPECTED
    };
    found_all(&planned(plan(&["10.0.0.7"]), "sys-nvme.txt", "x", "x"), &[]);
    let missing = planned(plan(&["10.0.0.7", "10.0.0.8"]), "sys-nvme.txt", "x", "x");
    found(&missing, "nvme.plan", Status::Fail, "nvme discover -t rdma -a 10.0.0.8 -s 4420");
    let other_port = planned(plan(&["10.0.0.7"]), "sys-nvme.txt", "trsvcid=4420", "trsvcid=4421");
    found(&other_port, "nvme.plan", Status::Fail, "10.0.0.7");
    let module = planned(plan(&["10.0.0.7"]), "sys-module.txt", "nvme_rdma\n", "");
    found(&module, "nvme.modules", Status::Fail, "modprobe -a nvme_rdma");
    let dm = Expected { native_multipath: Some(false), ..plan(&["10.0.0.7"]) };
    let dm = |from, to| {
        let mut evidence = evidence(SOUND);
        evidence.0.remove("multipath.txt");
        for (name, from, to) in [("sys-module.txt", from, to), ("sys-nvme.txt", "multipath:Y", "multipath:N")]
        {
            let captured = evidence.0.get_mut(name).unwrap();
            captured.text = Ok(captured.text.clone().unwrap().replace(from, to));
        }
        all(&evidence, &dm)
    };
    found(&dm("x", "x"), "multipath.modules", Status::Fail, "dm_multipath");
    found_all(&dm("dm_mod", "dm_multipath"), &[]);
    let nqn = |nqn: &str| Expected { host_nqn: Some(nqn.to_owned()), ..EXPECTED };
    found_all(&planned(nqn("nqn.2020-12.org:h"), "sys-nvme.txt", "x", "x"), &[]);
    found(
        &planned(nqn("nqn.2020-12.org:i"), "sys-nvme.txt", "x", "x"),
        "nvme.host-nqn",
        Status::Fail,
        "org:i",
    );
    let native = |is_native| Expected { native_multipath: Some(is_native), ..EXPECTED };
    found_all(
        &planned(native(false), "sys-nvme.txt", "x", "x"),
        &[("nvme.native", Status::Fail, "multipath=N"), ("multipath.native", Status::Fail, "multipath=N")],
    );
    found(
        &planned(native(true), "sys-nvme.txt", "multipath:Y", "multipath:N"),
        "nvme.native",
        Status::Fail,
        "multipath=Y",
    );
    found_all(&planned(native(true), "sys-nvme.txt", "x", "x"), &[]);
    let empty = planned(EXPECTED, "sys-nvme.txt", "/nsid:1", "/other:1");
    found(&empty, "nvme.namespaces", Status::Warn, "hostnqn");
}

/// The findings of nvme-cli's lists alone, as they are read from another host.
fn listed(name: &str, text: &str, expected: &Expected) -> Vec<Finding> {
    compared(all(&evidence(&[(name, text)]), expected))
}

#[test]
fn faults_in_lists_of_nvme_cli_are_found() {
    let of = |name: &str| SOUND.iter().find(|(of, _)| *of == name).unwrap().1;
    let list = of("nvme-list.txt");
    let other = list.replacen("98711200", "98710700", 1);
    found(&listed("nvme-list.txt", &other, &EXPECTED), "nvme.firmware", Status::Warn, "update");
    // A device for each path: the second namespace lacks one.
    let lacking = format!("{list}{}", list.lines().nth(1).unwrap().replace("nvme0n1", "nvme1n1"));
    found(&listed("nvme-list.txt", &lacking, &EXPECTED), "nvme.devices", Status::Fail, "list-subsys");
    let unplanned = Expected { paths: None, ..EXPECTED };
    found(&listed("nvme-list.txt", &lacking, &unplanned), "nvme.devices", Status::Warn, "list-subsys");
    let subsystems = of("nvme-list-subsys.txt");
    let check = |text: &str| listed("nvme-list-subsys.txt", text, &EXPECTED);
    found_all(&check(subsystems), &[]);
    found_all(
        &check(&subsystems.replacen("live", "connecting", 1)),
        &[("nvme.controller", Status::Fail, "connect-all"), ("nvme.subsystem", Status::Fail, "connect-all")],
    );
    let states = |state: &str| check(&subsystems.replace("live", &format!("live {state}")));
    found_all(&states("optimized"), &[]);
    found(&states("non-optimized"), "nvme.subsystem", Status::Warn, "its controller");
    found(&states("inaccessible"), "nvme.subsystem", Status::Fail, "list-subsys");
    let plan = Expected { portals: vec![portal("10.0.0.8"), portal("10.0.0.9")], ..EXPECTED };
    let missing = listed("nvme-list-subsys.txt", subsystems, &plan);
    found(&missing, "nvme.plan", Status::Fail, "discover -t rdma -a 10.0.0.9");
    assert_eq!(missing.iter().filter(|of| of.rule == "nvme.plan").count(), 2);
    assert!(check(&subsystems.replace("rdma", "pcie")).is_empty());
    assert!(check(&subsystems.replace("nqn.1992-08.com.netapp:6000", nvme::DISCOVERY_NQN)).is_empty());
}

#[test]
fn what_sysfs_shows_is_not_told_again_from_lists() {
    let broken = with("nvme-list-subsys.txt", "live", "connecting");
    found_all(&broken, &[]);
    assert!(!broken.iter().any(|of| of.rule == "nvme.subsystem" || of.rule == "nvme.devices"));
}

/// The controllers of an array that the plan names, and of other storage with fewer paths.
const TWO_TARGETS: &str = "/sys/class/nvme/nvme0/transport:rdma\n/sys/class/nvme/nvme0/state:live\n\
    /sys/class/nvme/nvme0/address:traddr=10.0.0.7,trsvcid=4420\n/sys/class/nvme/nvme0/subsysnqn:nqn.planned\n\
    /sys/class/nvme/nvme1/transport:rdma\n/sys/class/nvme/nvme1/state:live\n\
    /sys/class/nvme/nvme1/address:traddr=10.0.9.9,trsvcid=4420\n/sys/class/nvme/nvme1/subsysnqn:nqn.planned\n\
    /sys/class/nvme/nvme2/transport:tcp\n/sys/class/nvme/nvme2/state:live\n\
    /sys/class/nvme/nvme2/address:traddr=10.0.5.5,trsvcid=4420\n/sys/class/nvme/nvme2/subsysnqn:nqn.other\n\
    /sys/class/nvme/nvme0/nvme0n1/nsid:1\n/sys/class/nvme/nvme1/nvme1n1/nsid:1\n\
    /sys/class/nvme/nvme2/nvme2n1/nsid:1\n";

const TWO_TARGETS_LISTED: &str = "nvme-subsys0 - NQN=nqn.planned\n\\\n \
    +- nvme0 rdma traddr=10.0.0.7,trsvcid=4420 live\n +- nvme1 rdma traddr=10.0.9.9,trsvcid=4420 live\n\
    nvme-subsys2 - NQN=nqn.other\n\\\n +- nvme2 tcp traddr=10.0.5.5,trsvcid=4420 live\n";

/// The number of paths is the plan's for its own targets; other storage has its own.
#[test]
fn the_planned_number_of_paths_is_not_expected_of_other_storage() {
    let paths = |name: &str, id: &str, of: &[&str]| {
        let path = |path: &&str| format!("  `- 0:0:1:0 {path} 259:0 active ready running\n");
        format!("{id} {name} V\nsize=1\n{}", of.iter().map(path).collect::<String>())
    };
    let dm = paths("dm-0", "eui.1", &["nvme0n1", "nvme1n1"])
        + &paths("dm-1", "eui.2", &["nvme2n1"])
        + &paths("dm-2", "36001", &["sda"]);
    let list = "Node\tSN\tModel\tNamespace\tUsage\tFormat\tFW Rev\n\
        /dev/nvme0n1\t1\tA\t1\t1 TB / 1 TB\t4 KiB + 0 B\t9\n/dev/nvme1n1\t1\tA\t1\t1 TB / 1 TB\t4 KiB + 0 B\t9\n\
        /dev/nvme2n1\t2\tB\t1\t1 TB / 1 TB\t4 KiB + 0 B\t8\n/dev/nvme3n1\t2\tB\t1\t1 TB / 1 TB\t4 KiB + 0 B\t8\n";
    let captured = [
        ("sys-nvme.txt", TWO_TARGETS),
        ("multipath.txt", &dm),
        ("nvme-list-subsys.txt", TWO_TARGETS_LISTED),
        ("nvme-list.txt", list),
    ];
    let plan =
        |wanted| Expected { paths: Some(wanted), mtu: None, portals: vec![portal("10.0.0.7")], ..EXPECTED };
    // With sysfs, and with what nvme-cli lists alone.
    for (captures, rules) in [
        (&captured[..], &["nvme.paths", "multipath.paths"][..]),
        (&captured[1..], &["nvme.devices", "nvme.subsystem", "multipath.paths"]),
    ] {
        found_all(&all(&evidence(captures), &plan(2)), &[]);
        let short = all(&evidence(captures), &plan(3));
        let wanted: Vec<_> = rules.iter().map(|rule| (*rule, Status::Fail, "list-subsys")).collect();
        found_all(&short, &wanted);
        let bad = short.iter().filter(|of| of.status == Status::Fail);
        assert_eq!(bad.count(), rules.len(), "only the planned target: {short:#?}");
        // Without planned addresses the number is everybody's.
        let all = all(&evidence(captures), &Expected { portals: Vec::new(), ..plan(2) });
        assert!(all.iter().any(|of| of.status == Status::Fail && of.seen.contains("dm-2")), "{all:#?}");
    }
}

/// A discovery controller at a planned address is no path, nor is another target's controller.
#[test]
fn a_planned_path_leads_to_the_planned_subsystem() {
    let at = |nqn: Option<&str>| Expected {
        portals: vec![crate::Portal { nqn: nqn.map(str::to_owned), ..portal("10.0.0.7") }],
        paths: None,
        ..EXPECTED
    };
    let found_with = |subsystem: &str, expected: &Expected| -> Vec<bool> {
        let tree = TWO_TARGETS.replace("nqn.planned", subsystem);
        let listed = TWO_TARGETS_LISTED.replace("nqn.planned", subsystem);
        [("sys-nvme.txt", &tree), ("nvme-list-subsys.txt", &listed)]
            .map(|(name, text)| {
                let findings = all(&evidence(&[(name, text)]), expected);
                let of = findings.iter().find(|of| of.rule == "nvme.plan").expect("a finding");
                of.status == Status::Ok
            })
            .to_vec()
    };
    assert_eq!(found_with("nqn.planned", &at(None)), [true; 2]);
    assert_eq!(found_with("nqn.planned", &at(Some("nqn.planned"))), [true; 2]);
    assert_eq!(found_with("nqn.stranger", &at(Some("nqn.planned"))), [false; 2]);
    assert_eq!(found_with(nvme::DISCOVERY_NQN, &at(None)), [false; 2]);
}

/// Two volumes on two paths of a server, with the states of both in the order of the paths.
fn two_paths(states: [[&str; 2]; 2]) -> String {
    let mut tree = "/sys/module/nvme_core/parameters/multipath:Y\n".to_owned();
    for (path, states) in states.into_iter().enumerate() {
        let at = format!("/sys/class/nvme/nvme{path}");
        tree.push_str(&format!(
            "{at}/transport:rdma\n{at}/state:live\n{at}/subsysnqn:nqn.2024-01.org.example:stor1\n\
             {at}/address:traddr=10.0.{path}.1,trsvcid=4420,src_addr=10.0.{path}.11\n"
        ));
        for (nsid, state) in (1..).zip(states) {
            let device = format!("{at}/nvme0c{path}n{nsid}");
            tree.push_str(&format!("{device}/nsid:{nsid}\n{device}/ana_state:{state}\n"));
        }
    }
    tree
}

/// The plan of `two_paths`: each volume is optimized on one of them.
fn server_plan() -> Expected {
    let at = |address: &str, optimized: u32| crate::Portal {
        target: "stor1".to_owned(),
        nqn: Some("nqn.2024-01.org.example:stor1".to_owned()),
        states: [1, 2].map(|nsid| (nsid, nsid == optimized)).to_vec(),
        ..portal(address)
    };
    Expected { paths: Some(2), portals: vec![at("10.0.0.1", 1), at("10.0.1.1", 2)], ..Expected::default() }
}

const PLANNED_STATES: [[&str; 2]; 2] = [["optimized", "non-optimized"], ["non-optimized", "optimized"]];

fn of_server(tree: &str) -> Vec<Finding> {
    all(&evidence(&[("sys-nvme.txt", tree)]), &server_plan())
}

fn states(findings: &[Finding]) -> Vec<&str> {
    findings.iter().filter(|of| of.rule == "nvme.states").map(|of| &*of.seen).collect()
}

#[test]
fn states_of_paths_are_compared_with_the_plan() {
    let sound = of_server(&two_paths(PLANNED_STATES));
    found_all(&sound, &[]);
    assert_eq!(
        states(&sound),
        [
            "stor1: nvme0 (rdma 10.0.0.1 port 4420): namespace 1 optimized, namespace 2 non-optimized, as planned",
            "stor1: nvme1 (rdma 10.0.1.1 port 4420): namespace 1 non-optimized, namespace 2 optimized, as planned",
        ]
    );
    let [first, second] = PLANNED_STATES;
    let swapped = of_server(&two_paths([second, first]));
    found(&swapped, "nvme.states", Status::Fail, "on stor1, in server-stor1: ./30-nvmet.sh verify");
    assert_eq!(
        states(&swapped),
        [
            "stor1: nvme0 (rdma 10.0.0.1 port 4420): namespace 1 is non-optimized, and optimized is planned; \
             namespace 2 is optimized, and non-optimized is planned",
            "stor1: nvme1 (rdma 10.0.1.1 port 4420): namespace 1 is optimized, and non-optimized is planned; \
             namespace 2 is non-optimized, and optimized is planned",
        ]
    );
    let one = of_server(&two_paths([first, ["optimized", "optimized"]]));
    found(&one, "nvme.states", Status::Fail, "./30-nvmet.sh do");
    assert_eq!(one.iter().filter(|of| of.rule == "nvme.states" && of.status == Status::Fail).count(), 1);
}

/// Of a path that is down the last state is kept, and a host without native multipath has none.
#[test]
fn states_that_the_host_does_not_show_are_not_compared() {
    let [first, second] = PLANNED_STATES;
    let tree = two_paths([second, first]).replace("nvme0/state:live", "nvme0/state:connecting");
    assert_eq!(states(&of_server(&tree)).len(), 1);
    let untold: String = two_paths(PLANNED_STATES)
        .lines()
        .filter(|line| !line.contains("ana_state"))
        .fold(String::new(), |all, line| all + line + "\n");
    let findings = of_server(&untold);
    let of: Vec<_> = findings.iter().filter(|of| of.rule == "nvme.states").collect();
    assert!(of.len() == 2 && of.iter().all(|of| of.status == Status::Unknown), "{of:#?}");
    assert!(of[0].mend.starts_with("nvme ana-log /dev/nvme0 "), "{of:#?}");
    assert_eq!(
        states(&findings)[0],
        "stor1: nvme0 (rdma 10.0.0.1 port 4420): planned is namespace 1 optimized, namespace 2 non-optimized, and \
         the host shows no state"
    );
    // Without sysfs, and where the plan says nothing.
    let unseen = all(&evidence(&[("nvme-list-subsys.txt", TWO_TARGETS_LISTED)]), &server_plan());
    assert!(
        unseen.iter().any(|of| of.rule == "expected.unseen" && of.seen.contains("ANA states of 2 paths"))
    );
    let mut silent = server_plan();
    silent.portals.iter_mut().for_each(|portal| portal.states.clear());
    assert!(states(&all(&evidence(&[("sys-nvme.txt", &untold)]), &silent)).is_empty());
}

/// A live controller may offer a volume in a state in which it carries nothing.
#[test]
fn a_path_that_carries_nothing_is_no_path() {
    let [first, _] = PLANNED_STATES;
    for state in ["inaccessible", "persistent-loss", "change"] {
        let tree = two_paths([first, ["non-optimized", state]]);
        let check =
            |paths| all(&evidence(&[("sys-nvme.txt", &tree)]), &Expected { paths, ..Expected::default() });
        let seen = |findings: &[Finding]| {
            findings.iter().find(|of| of.status != Status::Ok).expect("a finding").seen.clone()
        };
        let carrying = format!("0 optimized, 1 non-optimized; live, but carrying nothing: 1 {state}");
        let two = check(Some(2));
        found(&two, "nvme.paths", Status::Fail, "nvme ana-log");
        assert_eq!(seen(&two), format!("nvme0n2: 1 live paths of 2, {carrying}"));
        for enough in [check(None), check(Some(1))] {
            found(&enough, "nvme.paths", Status::Warn, "nvme ana-log");
            assert!(seen(&enough).ends_with(&carrying), "{enough:#?}");
        }
        // nvme-cli lists it for a device.
        let lines: Vec<_> = ["non-optimized", state]
            .into_iter()
            .enumerate()
            .map(|(path, state)| {
                format!(" +- nvme{path} rdma traddr=10.0.{path}.1,trsvcid=4420 live {state}\n")
            })
            .collect();
        let listed_with = |paths| {
            let text = format!("nvme-subsys0 - NQN=nqn.a\n\\\n{}", lines.concat());
            listed("nvme-list-subsys.txt", &text, &Expected { paths, ..Expected::default() })
        };
        let two = listed_with(Some(2));
        found(&two, "nvme.subsystem", Status::Fail, "nvme ana-log");
        let carrying = format!("1 non-optimized; live, but carrying nothing: 1 {state}");
        assert_eq!(seen(&two), format!("nvme-subsys0 (nqn.a): 1 live paths of 2, {carrying}"));
        found(&listed_with(None), "nvme.subsystem", Status::Warn, "nvme ana-log");
        found(&listed_with(Some(1)), "nvme.subsystem", Status::Warn, "nvme ana-log");
    }
}
