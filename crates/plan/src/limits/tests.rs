//! Limits compared with measurements, each with its source, and refused topologies.

use super::*;
use crate::link::{Link, Transport};
use crate::units::gbytes_per_s;
use proptest::prelude::*;

fn of(name: &str) -> Topology {
    preset(name).expect("a preset")
}

fn found(topology: &Topology) -> Limits {
    limits(topology).expect("a valid topology")
}

fn ef600(scheme: Scheme, drives: u32) -> Limits {
    let mut topology = of("ef600-ddp24");
    topology.drives.as_mut().expect("drives").count = drives;
    topology.raid = Some(Raid::new(scheme));
    found(&topology)
}

fn stage(limits: &Limits, name: StageName) -> &Stage {
    limits.stages.iter().find(|stage| stage.name == name).expect("that stage")
}

/// The parts of a limit that are shown: GiB/s with one decimal, and the binding stage.
fn described(bound: &Bound) -> (String, StageName) {
    (format!("{:.1}", bound.gib_per_s), bound.first().expect("something binds"))
}

// Deploying NetApp EF600, section EF600 Bandwidth, figure 38: DDP writes ~11.6 GiB/s by the
// controller's mirrored cache at every size; reads ~41 GiB/s by the controller, but ~39 GiB/s by
// the drives with 12 of them.
#[test]
fn ef600_pools_read_and_write_as_figure_38_has_it() {
    let twelve = ef600(Scheme::Ddp, 12);
    assert_eq!(described(&twelve.read), ("39.1".to_owned(), StageName::Drives));
    for drives in [12, 16, 24] {
        let limits = ef600(Scheme::Ddp, drives);
        assert_eq!(described(&limits.write), ("11.6".to_owned(), StageName::Controller), "{drives}");
        assert!(limits.write.why.contains("CME"), "{}", limits.write.why);
        if drives > 12 {
            assert_eq!(described(&limits.read), ("41.0".to_owned(), StageName::Controller), "{drives}");
        }
    }
}

// The same section, figure 39: one RAID 6 group writes ~15 GiB/s by its drives less 20 % and reads
// ~33 GiB/s (35 GB/s) by its drives; two write ~22.4 GiB/s by FSWA and read ~41 GiB/s by the
// controller.
#[test]
fn ef600_raid_6_groups_read_and_write_as_figure_39_has_it() {
    let ten = ef600(Scheme::Raid6, 10);
    assert_eq!(described(&ten.read), ("32.6".to_owned(), StageName::Drives));
    assert_eq!(ten.read.gbytes_per_s, 35.0);
    assert_eq!(described(&ten.write), ("14.9".to_owned(), StageName::Raid));
    let twenty = ef600(Scheme::Raid6, 20);
    assert_eq!(described(&twenty.read), ("41.0".to_owned(), StageName::Controller));
    assert_eq!(described(&twenty.write), ("22.4".to_owned(), StageName::Controller));
    assert!(twenty.write.why.contains("FSWA"), "{}", twenty.write.why);
}

// The same guide, section Configuring Volumes on RAID Volume Groups: no FSWA with stripes of 4 MiB
// or split requests.
#[test]
fn raid_6_without_full_stripes_writes_like_a_pool() {
    let mut topology = of("ef600-raid6-20");
    for (request, segment) in [(4096, Some(512)), (512, Some(128))] {
        let raid = topology.raid.as_mut().expect("raid");
        (raid.request_kib, raid.segment_kib) = (Some(request), segment);
        let limits = found(&topology);
        assert_eq!(described(&limits.write), ("11.6".to_owned(), StageName::Controller));
        assert!(limits.notes[0].contains("not accelerated"), "{:?}", limits.notes);
    }
}

// The same guide, section Configuring the EF600 Storage Volumes: from ~44 GB/s to only ~38.
#[test]
fn one_controller_for_each_group_costs_the_other_pcie_paths() {
    let mut topology = of("ef600-ddp24");
    assert_eq!(found(&topology).read.gbytes_per_s, 44.0);
    topology.raid.as_mut().expect("raid").controllers_per_group = 1;
    let limits = found(&topology);
    assert_eq!((limits.read.gbytes_per_s, limits.read.first()), (38.0, Some(StageName::Controller)));
    assert!(limits.read.why.contains("not all PCIe paths"), "{}", limits.read.why);
}

// The same guide, figure 37: around four tasks fill one EDR client.
#[test]
fn four_tasks_fill_one_edr_client_and_three_do_not() {
    let mut topology = of("ef600-ddp24");
    let bind = |topology: &mut Topology, tasks| {
        let clients = topology.clients.as_mut().expect("clients");
        (clients.count, clients.tasks) = (1, Some(tasks));
        found(topology).read.first()
    };
    assert_eq!(bind(&mut topology, 3), Some(StageName::ClientTasks));
    assert_eq!(bind(&mut topology, 4), Some(StageName::ClientPorts));
    let filled = curve(&topology, Axis::Tasks, Some(8)).expect("a curve");
    let full = filled.points.iter().find(|point| point.read.first() == Some(StageName::ClientPorts));
    assert_eq!(full.map(|point| point.count), Some(4));
}

// The same guide, figures 38 and 39: one task on each client scales with the clients until array or
// drives bind.
#[test]
fn clients_add_up_until_the_controller_binds() {
    let curve = curve(&of("ef600-ddp24"), Axis::Clients, Some(10)).expect("a curve");
    let binding: Vec<_> = curve.points.iter().map(|point| point.read.first().expect("one")).collect();
    assert_eq!(binding[..3], [StageName::ClientPorts; 3]);
    assert_eq!(binding[3..], [StageName::Controller; 7]);
}

// Setup RoCE on PowerScale, First Thoughts: 3.125 GB/s unidirectional; 9.375 with three nodes,
// which takes three such ports at the client. Measured there over one path: 1451 MiB/s read and
// 1446 MiB/s written at once.
#[test]
fn three_nodes_of_25gbe_carry_9_375_only_into_three_client_ports() {
    let mut topology = of("powerscale-f200-25gbe");
    let line = |limits: &Limits, name| stage(limits, name).line_gbytes_per_s.expect("a port has a line rate");
    let one = found(&topology);
    assert_eq!(line(&one, StageName::ServerPorts), 3.125);
    assert_eq!(one.read.binds, [StageName::ServerPorts, StageName::ClientPorts]);
    let measured = f64::max(1451.0, 1446.0) * 1_048_576.0 / 1e9;
    assert!(measured < one.read.gbytes_per_s, "{}", one.read.gbytes_per_s);

    let set = |topology: &mut Topology, paths, ports| {
        let clients = topology.clients.as_mut().expect("clients");
        (clients.paths, clients.ports) = (Some(paths), ports);
        found(topology)
    };
    let narrow = set(&mut topology, 3, 1);
    assert_eq!(
        (line(&narrow, StageName::ServerPorts), line(&narrow, StageName::ClientPorts)),
        (9.375, 3.125)
    );
    assert_eq!(narrow.read.binds, [StageName::ClientPorts]);
    let wide = set(&mut topology, 3, 3);
    assert_eq!(line(&wide, StageName::ClientPorts), 9.375);
    assert_eq!(wide.read.binds, [StageName::ServerPorts, StageName::ClientPorts]);
}

// A test of PowerScale multipath over TCP and RDMA over 100GbE: 93.38 Gbit/s read over RDMA
// multipath.
#[test]
fn the_client_port_of_100gbe_binds_above_93_38_gbit() {
    let mut topology = of("powerscale-f210-100gbe");
    let limits = found(&topology);
    assert_eq!(limits.read.binds, [StageName::ClientPorts]);
    let gbit = limits.read.gbytes_per_s * 8.0;
    assert_eq!(format!("{gbit:.2}"), "98.04");
    assert!((0.95..1.0).contains(&(93.38 / gbit)), "{}", 93.38 / gbit);
    // Standard frames hold RDMA packets of 1024 bytes, which carry less than was measured. So the
    // frames were larger.
    topology.mtu = Some(1500);
    assert!(found(&topology).read.gbytes_per_s * 8.0 < 93.38);
}

// The same test, RDMA over one path: 7.7 GB/s with one node's processors at 99.5 %.
#[test]
fn one_path_to_a_powerscale_node_is_bound_by_its_processors() {
    let mut topology = of("powerscale-f210-100gbe");
    topology.clients.as_mut().expect("clients").paths = Some(1);
    let limits = found(&topology);
    assert_eq!((limits.read.gbytes_per_s, limits.read.first()), (7.7, Some(StageName::ServerCpu)));
    let curve = curve(&topology, Axis::Paths, None).expect("a curve");
    let binding: Vec<_> = curve.points.iter().map(|point| point.read.first().expect("one")).collect();
    assert_eq!(
        binding,
        [StageName::ServerCpu, StageName::ClientPorts, StageName::ClientPorts, StageName::ClientPorts]
    );
}

// Updated Performance Limit Summary (Sun Storage 7410): 3.18 GB/s from memory over RDMA, the limit
// of the PCIe generation 1 root complexes; the figure includes headers of the network.
#[test]
fn the_pcie_1_slots_of_the_sun_7410_bind_before_its_ddr_ports() {
    let limits = found(&of("sun-7410-ddr"));
    assert_eq!(limits.read.binds, [StageName::ServerPcie]);
    assert_eq!(stage(&limits, StageName::ServerPcie).line_gbytes_per_s, Some(4.0));
    let share = 3.18 / limits.read.gbytes_per_s;
    assert!((0.9..1.0).contains(&share), "{share}");
}

// The same: 2.40 GB/s over IPoIB, where the ten clients are too few; that is 0.24 for each.
#[test]
fn ipoib_clients_of_the_sun_7410_are_too_few() {
    let mut topology = of("sun-7410-ddr");
    (topology.transport, topology.mtu) = (Some(Transport::Ipoib), Some(2044));
    topology.clients.as_mut().expect("clients").cpu_gbytes_per_s = Some(0.24);
    let limits = found(&topology);
    assert_eq!((described(&limits.read).1, limits.read.gbytes_per_s), (StageName::ClientCpu, 2.4));
    let more = stage_needs(&limits, Some(3.18), None).expect("a need");
    let clients = more.iter().find(|one| one.stage == StageName::ClientCpu).expect("clients");
    assert_eq!((clients.have, clients.need), (10, 14));
}

#[test]
fn a_need_says_how_many_of_each_stage_it_takes() {
    let limits = found(&of("ef600-raid6-20"));
    let found = stage_needs(&limits, Some(100.0), Some(60.0)).expect("a need");
    let need = |name| found.iter().find(|one| one.stage == name).map(|one| (one.have, one.need));
    // 100 / 44 and 60 / 24 arrays; 60 / 1.6 drives in RAID 6; 100 / 12.42 ports.
    assert_eq!(need(StageName::Controller), Some((1, 3)));
    assert_eq!(need(StageName::Raid), Some((20, 38)));
    assert_eq!(need(StageName::ServerPorts), Some((8, 9)));
    assert!(stage_needs(&limits, Some(-1.0), None).is_err());
    assert!(stage_needs(&limits, None, Some(f64::NAN)).is_err());
}

#[test]
fn presets_are_valid_and_survive_their_own_toml() {
    for (name, _) in PRESETS {
        let topology = of(name);
        found(&topology);
        assert_eq!(Topology::from_toml(&topology.to_toml()), Ok(topology), "{name}");
    }
    assert!(preset("nope").expect_err("no such preset").to_string().contains("--preset ef600-ddp24"));
    assert!(preset("ef600").expect_err("no such preset").to_string().contains("--preset ef600-"));
}

#[test]
fn a_topology_with_a_stage_missing_says_which_and_why() {
    let whole = of("ef600-ddp24");
    let without = |change: fn(&mut Topology)| {
        let mut topology = whole.clone();
        change(&mut topology);
        limits(&topology).expect_err("something is missing").to_string()
    };
    for (text, nearest) in [
        (without(|one| one.server = None), "--server-link 100GbE"),
        (without(|one| one.clients = None), "--clients 1"),
        (without(|one| one.raid = None), "--scheme raid6"),
        (without(|one| one.drives = None), "--drives 24"),
        (without(|one| one.controller = Some(Controller::default())), "model = \"ef600\""),
    ] {
        assert!(text.contains(nearest) && text.contains("\n  cause: "), "{text}");
    }
}

#[test]
fn what_cannot_be_is_refused_with_the_nearest_choice() {
    let changed = |change: &dyn Fn(&mut Topology)| {
        let mut topology = of("ef600-ddp24");
        change(&mut topology);
        limits(&topology).expect_err("it breaks a rule").to_string()
    };
    let edr: Link = "EDR".parse().expect("a link");
    for (text, nearest) in [
        (changed(&|one| one.drives.as_mut().expect("some").count = 13), "--drives 12 or 14"),
        (changed(&|one| one.drives.as_mut().expect("some").read_gbytes_per_s = Some(-3.5)), "3.5"),
        (changed(&|one| one.drives.as_mut().expect("some").write_gbytes_per_s = Some(f64::NAN)), "3.5"),
        (changed(&|one| one.drives.as_mut().expect("some").read_gbytes_per_s = Some(1e-320)), "3.5"),
        (
            changed(&|one| one.raid.as_mut().expect("some").controllers_per_group = 3),
            "controllers_per_group = 2",
        ),
        (changed(&|one| one.clients.as_mut().expect("some").count = 0), "clients count = 1"),
        (changed(&|one| one.clients.as_mut().expect("some").paths = Some(9)), "paths = 8"),
        (
            changed(&|one| one.clients.as_mut().expect("some").link = "100GbE".parse().ok()),
            &format!("\"{edr}\""),
        ),
        (changed(&|one| one.transport = Some(Transport::Tcp)), "infiniband or ipoib"),
        (changed(&|one| one.mtu = Some(9000)), "--mtu 4096"),
        (changed(&|one| one.server.as_mut().expect("some").nodes = 0), "server nodes = 1"),
        (
            changed(&|one| one.controller.as_mut().expect("some").model = Some("a800".to_owned())),
            "model = \"ef600\"",
        ),
        (changed(&|one| one.switch = Some(Switch { gbit_per_s: 0.0 })), "gbit_per_s 100        in Gbit/s"),
        (changed(&|one| one.switch = Some(Switch { gbit_per_s: f64::NAN })), "gbit_per_s 100"),
        (
            changed(&|one| {
                let server = one.server.as_mut().expect("some");
                (server.nodes, server.ports) = (100_000, 100_000);
            }),
            "100 ports each",
        ),
        (
            changed(&|one| {
                let clients = one.clients.as_mut().expect("some");
                (clients.count, clients.tasks) = (100_000, Some(100_000));
            }),
            "100 tasks each",
        ),
    ] {
        assert!(text.contains(nearest), "{text}");
    }
}

#[test]
fn files_that_are_no_topology_say_where() {
    for (text, part) in [
        ("drives = 24", "expected struct Drives"),
        ("[drives]\ncount = 24\nspeed = 3.5\n", "unknown field"),
        ("[server]\nlink = \"90GbE\"\n", "nearest: 100GbE"),
        ("[drives]\ncount = -1\n", "invalid value"),
        ("[raid]\nscheme = \"raid5\"\n", "8+1"),
        ("\u{0}", "cause"),
    ] {
        let described = Topology::from_toml(text).expect_err("no topology").to_string();
        assert!(described.contains(part) && described.contains("line"), "{text}: {described}");
        assert_eq!(described.lines().count(), 3, "{described}");
    }
}

#[test]
fn a_curve_that_cannot_be_drawn_says_what_can() {
    let topology = of("powerscale-f210-100gbe");
    for (text, nearest) in [
        (curve(&topology, Axis::Paths, Some(5)).expect_err("four ports").to_string(), "--to 4"),
        (curve(&topology, Axis::Drives, None).expect_err("no drives").to_string(), "--drives 24"),
        (curve(&topology, Axis::Clients, Some(0)).expect_err("none").to_string(), "--to 1"),
        ("client".parse::<Axis>().expect_err("singular").to_string(), "--curve clients"),
    ] {
        assert!(text.contains(nearest), "{text}");
    }
    let drives = curve(&of("ef600-ddp24"), Axis::Drives, None).expect("a curve");
    assert_eq!(
        drives.points.iter().map(|point| point.count).collect::<Vec<_>>(),
        [12, 14, 16, 18, 20, 22, 24]
    );
}

#[test]
fn a_chart_names_both_directions_and_what_binds_and_escapes_the_name() {
    let mut topology = of("ef600-ddp24");
    topology.name = "<b>&\"x\"".to_owned();
    let text = crate::show::svg(&found(&topology), &curve(&topology, Axis::Clients, None).expect("a curve"));
    for part in ["<svg ", "&#60;b&#62;", "client ports", "controller", ">read</text>", ">write</text>"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(!text.contains("<b>"), "{text}");
}

#[test]
fn a_controller_of_another_make_has_no_modes_of_the_ef600() {
    let mut topology = of("ef600-ddp24");
    topology.controller = Some(Controller {
        read_gbytes_per_s: Some(20.0),
        write_gbytes_per_s: Some(10.0),
        ..Controller::default()
    });
    let limits = found(&topology);
    assert_eq!((limits.read.why.as_str(), limits.write.why.as_str()), ("controller", "controller"));
}

// XML 1.0 section 2.2: a document with control characters is no XML, and no viewer shows it.
#[test]
fn a_chart_has_no_control_characters_of_a_hostile_name() {
    let mut topology = of("ef600-ddp24");
    topology.name = "a\u{1b}[31m\u{0}\u{7}b".to_owned();
    let text = crate::show::svg(&found(&topology), &curve(&topology, Axis::Clients, None).expect("a curve"));
    assert!(text.contains("[31m"), "{text}");
    assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text}");
}

#[test]
fn a_measured_rate_reads_the_same_in_both_units() {
    let limits = found(&of("ef600-ddp24"));
    assert!((gbytes_per_s(limits.read.gib_per_s) - limits.read.gbytes_per_s).abs() < 1e-12);
}

proptest! {
    #[test]
    fn more_of_anything_never_carries_less(drives in 1_u32..500, nodes in 1_u32..20, clients in 1_u32..200, tasks in 1_u32..50) {
        let mut topology = of("ef600-ddp24");
        topology.controller = None;
        topology.raid = Some(Raid::new(Scheme::Raid1));
        let mut carried = |drives, nodes, count, tasks| {
            topology.drives.as_mut().expect("drives").count = drives;
            topology.server.as_mut().expect("server").nodes = nodes;
            let clients = topology.clients.as_mut().expect("clients");
            (clients.count, clients.tasks) = (count, Some(tasks));
            let limits = limits(&topology).expect("valid");
            (limits.read.gbytes_per_s, limits.write.gbytes_per_s)
        };
        let base = carried(drives, nodes, clients, tasks);
        for more in [
            carried(drives + 1, nodes, clients, tasks),
            carried(drives, nodes + 1, clients, tasks),
            carried(drives, nodes, clients + 1, tasks),
            carried(drives, nodes, clients, tasks + 1),
        ] {
            prop_assert!(more.0 >= base.0 && more.1 >= base.1);
        }
    }

    #[test]
    fn no_file_panics(text in "(\\[(drives|raid|server|clients|switch)\\]|count|link|nodes|= ?-?[0-9]{1,12}|= \"[A-Za-z0-9+]{0,8}\"|\n){0,12}") {
        if let Ok(topology) = Topology::from_toml(&text) {
            let _ = limits(&topology);
            let _ = curve(&topology, Axis::Nodes, Some(3));
        }
    }
}
