//! Experiments with many clients: agents in network namespaces of their own, against a server in
//! another one. Speeds are not checked; who took part, what each did and what remains are.

#[path = "agents/directories.rs"]
mod directories;
#[path = "agents/fio_servers.rs"]
mod fio_servers;
#[path = "agents/fixture.rs"]
mod fixture;
#[path = "agents/full.rs"]
mod full;
#[path = "agents/refusals.rs"]
mod refusals;
#[path = "agents/slurm.rs"]
mod slurm;

use fixture::{Testbed, WORKLOAD};
use record::{Half, Record};
use rustix::process::Signal;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(60);

/// The reasons why a record failed, except for starts: on a machine with few processors some
/// clients may be late.
fn failures(record: &Record) -> Vec<&String> {
    record.failed.iter().filter(|reason| !reason.contains("more than the warm-up")).collect()
}

#[test]
fn steps_add_clients_that_start_together_and_share_the_load() {
    let bed = Testbed::start(4);
    let agents = bed.agents(4);
    let text = format!(
        "repeats = 3\nwindow_ms = 150\ntarget.server = \"10.77.1.1:/data\"\n\
         [[route]]\nname = \"tcp\"\noptions = \"nconnect=2\"\n\
         [[route]]\nname = \"tcp-mp\"\noptions = \"nconnect=2,remoteports=10.77.1.1~10.77.2.1\"\n\
         {WORKLOAD}steps = {{ clients = [1, 2, 4] }}\n"
    );
    let (output, record) = bed.bench(&text, &["--client", &bed.clients(4)]);
    assert!(output.status.success() || !record.failed.is_empty(), "{output:?}");
    assert!(failures(&record).is_empty(), "{:?}", record.failed);
    for route in &record.routes {
        let steps: Vec<u32> = route.workloads.iter().map(|it| it.step.as_ref().unwrap().clients).collect();
        assert_eq!(steps, [1, 2, 4], "{}", route.name);
        for workload in &route.workloads {
            let clients = &workload.clients;
            let step = workload.step.as_ref().unwrap();
            assert_eq!((clients.len(), step.series.as_str()), (step.clients as usize, "mix"));
            let names: Vec<&str> = clients.iter().map(|client| client.name.as_str()).collect();
            assert_eq!(names, &["c1", "c2", "c3", "c4"][..clients.len()]);
            let share: f64 = clients.iter().map(|client| client.share).sum();
            assert!((share - 1.0).abs() < 1e-9 && clients.iter().all(|it| it.ops > 0 && it.lost.is_none()));
            let ops: u64 = workload.cells().map(|(_, cell)| cell.ops).sum();
            assert_eq!(ops, clients.iter().map(|client| client.ops).sum::<u64>(), "all counted once");
            assert!(clients.len() > 1 || clients[0].start_offset_ms == 0.0, "the only one is the first");
            assert!(clients.iter().all(|client| client.clock_error_ms > 0.0 && client.last_done_s.is_some()));
            let verified = workload.verified.unwrap();
            assert!(verified.stamps > 0 && verified.bytes > 0 && verified.wrong == 0);
            assert_eq!(workload.cells().count(), 2, "reads and writes");
        }
        assert_eq!(route.curves(Half::Raw)[0].points.len(), 3);
    }
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(table.contains("steps of mix by clients") && table.contains("tcp clients: c1"), "{table}");
    // Both routes of the last step, three repeats each.
    fixture::assert_ready_before_start(&agents, 6);
    bed.assert_empty();
}

#[test]
fn files_of_several_clients_are_spread_over_the_nodes() {
    let bed = Testbed::start(4);
    let _agents = bed.agents(4);
    let text = "repeats = 1\nwindow_ms = 150\ntarget.server = \"10.77.1.1:/data\"\n\
         [[route]]\nname = \"tcp-mp\"\noptions = \"nconnect=2,remoteports=10.77.1.1~10.77.2.1\"\n\
         [[workload]]\nname = \"one-file\"\nblock = \"4KiB\"\ndepth = 2\nreaders = 1\nfile = \"256KiB\"\n";
    let (_, record) = bed.bench(text, &["--client", &bed.clients(4)]);
    assert!(failures(&record).is_empty(), "{:?}", record.failed);
    let workload = record.route("tcp-mp").unwrap().workload("one-file", Half::Raw).unwrap();
    // Each client has one file, and so uses one node.
    let shares = &workload.read.as_ref().unwrap().share_by_node;
    assert!(shares.len() == 2 && shares.iter().all(|share| *share > 0.0), "{shares:?}");
}

#[test]
fn a_killed_agent_is_named_and_the_record_says_what_remains() {
    an_agent_that_ends_is_named(Signal::KILL);
}

#[test]
fn an_agent_that_its_owner_ends_is_named_too() {
    an_agent_that_ends_is_named(Signal::TERM);
}

#[track_caller]
fn an_agent_that_ends_is_named(signal: Signal) {
    let bed = Testbed::start(3);
    let agents = bed.agents(3);
    let text = format!(
        "repeats = 4\nwindow_ms = 1000\ntarget.server = \"10.77.1.1:/data\"\n\
         [[route]]\nname = \"tcp\"\noptions = \"nconnect=1\"\n\
         {WORKLOAD}steps = {{ clients = [1, 3] }}\n\
         {}steps = {{ clients = [2, 3] }}\n",
        WORKLOAD.replace("mix", "later")
    );
    let bench = bed.start_bench(&text, &["--client", &bed.clients(3)]);
    agents[2].wait_for_line("load starts", TIMEOUT);
    agents[2].signal(signal);
    let (status, record) = bed.finish_bench(bench);
    assert_eq!(status, Some(1), "the record fails");
    assert_eq!(failures(&record).len(), 1, "told once: {:?}", record.failed);
    assert!(record.failed[0].contains("mix x3 clients on tcp: client c3 is lost"), "{:?}", record.failed);
    let workload = |name: &str| record.routes[0].workload(name, Half::Raw).unwrap();
    assert!(workload("mix x1 client").read.as_ref().unwrap().repeats.len() == 4, "measured before");
    assert_eq!(workload("later x2 clients").clients.len(), 2, "needs only those that are left");
    assert!(workload("later x2 clients").skipped.is_none());
    for name in ["mix x3 clients", "later x3 clients"] {
        let lost = workload(name).clients.iter().find(|client| client.name == "c3").unwrap();
        assert!(lost.lost.is_some(), "{name}");
    }
    assert!(workload("later x3 clients").skipped.as_ref().unwrap().contains("client c3 is lost"));
    bed.assert_empty();
}

#[test]
fn a_stopped_experiment_leaves_nothing_and_its_agents_are_free_again() {
    let bed = Testbed::start(2);
    let agents = bed.agents(2);
    let text = |window_ms: u32| {
        format!(
            "repeats = 2\nwindow_ms = {window_ms}\ntarget.server = \"10.77.1.1:/data\"\n\
             [[route]]\nname = \"tcp\"\noptions = \"nconnect=1\"\n{WORKLOAD}"
        )
    };
    let bench = bed.start_bench(&text(600_000), &["--client", &bed.clients(2)]);
    for agent in &agents {
        agent.wait_for_line("load starts", TIMEOUT);
    }
    let refused = bed.refused(&text(100), &["--client", &bed.clients(1)]);
    assert!(refused.contains("it takes part in another experiment now"), "{refused}");
    bench.signal(Signal::TERM);
    let mut bench = bench;
    assert_eq!(bench.wait(TIMEOUT).code(), Some(143), "{}", bench.all_output());
    bed.assert_empty();
    for agent in &agents {
        agent.wait_for_line("has ended", TIMEOUT);
    }
    let (_, record) = bed.bench(&text(100), &["--client", &bed.clients(2)]);
    assert!(failures(&record).is_empty(), "{:?}", record.failed);
}

#[test]
fn agents_started_by_a_command_need_no_port_and_no_key() {
    let bed = Testbed::start(2);
    let text = format!(
        "repeats = 2\nwindow_ms = 100\ntarget.server = \"10.77.1.1:/data\"\n\
         [[route]]\nname = \"tcp\"\noptions = \"nconnect=1\"\n{WORKLOAD}"
    );
    let clients = format!("a=ssh:{},b=ssh:{}", bed.namespace(1), bed.namespace(2));
    let program = env!("CARGO_BIN_EXE_trunkline");
    let options = ["--ssh", "ip netns exec", "--client-program", program, "--client", &clients];
    let (_, record) = bed.bench(&text, &options);
    assert!(failures(&record).is_empty(), "{:?}", record.failed);
    let names: Vec<&str> = record.routes[0].workloads[0].clients.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    bed.assert_empty();
}

#[test]
fn groups_of_clients_are_routes_to_an_embedded_group_on_given_addresses() {
    let bed = Testbed::start(3);
    let _agents = bed.agents(3);
    let text = format!(
        "repeats = 5\nwindow_ms = 100\ntarget.nodes = 2\ntarget.mem = \"256MiB\"\n\
         target.addresses = [\"10.77.1.1\", \"10.77.2.1\"]\n\
         limits.link = \"400Gbit/s\"\n\
         [[client_group]]\nname = \"one\"\nclients = [\"c1\"]\n\
         [[client_group]]\nname = \"two\"\nclients = [\"c2\", \"c3\"]\n\
         [[route]]\nname = \"one\"\noptions = \"nconnect=2,remoteports=127.0.0.1-127.0.0.2\"\nclients = \"one\"\n\
         [[route]]\nname = \"two\"\noptions = \"nconnect=2,remoteports=127.0.0.1-127.0.0.2\"\nclients = \"two\"\n\
         {WORKLOAD}"
    );
    let (_, record) = bed.bench(&text, &["--client", &bed.clients(3)]);
    assert!(failures(&record).is_empty(), "{:?}", record.failed);
    let names = |route: &str| -> Vec<String> {
        let workload = record.route(route).unwrap().workload("mix", Half::Raw).unwrap();
        workload.clients.iter().map(|client| client.name.clone()).collect()
    };
    assert_eq!((names("one"), names("two")), (vec!["c1".to_owned()], vec!["c2".to_owned(), "c3".to_owned()]));
    assert_eq!(record.verdicts.len(), 1, "the groups are compared");
    let cell = record.routes[1].workloads[0].read.as_ref().unwrap();
    assert_eq!(record.routes[1].nodes, ["10.77.1.1", "10.77.2.1"]);
    assert!(cell.share_by_node.iter().all(|share| *share > 0.01), "{:?}", cell.share_by_node);
    assert_eq!(cell.limit_gbytes_per_s, Some(100.0), "two links of 400 Gbit/s");
    assert!(cell.cpu_us_per_op.server.is_some(), "the nodes are in the coordinator's process");
}

/// The options of the routes name nodes by loopback addresses, as always; none of them is used.
#[test]
fn a_group_and_its_limit_are_measured_on_addresses_of_the_command_line() {
    let bed = Testbed::start(2);
    let text = format!(
        "repeats = 5\nwindow_ms = 100\ntarget.nodes = 2\ntarget.mem = \"256MiB\"\n\
         [[route]]\nname = \"one\"\noptions = \"nconnect=2\"\n\
         [[route]]\nname = \"two\"\noptions = \"nconnect=2,remoteports=127.0.0.1-127.0.0.2\"\n{WORKLOAD}"
    );
    let refused = bed.refused(&text, &["--nodes-on", "10.77.1.1"]);
    assert!(refused.contains("1 addresses for 2 nodes"), "{refused}");
    let (output, record) = bed.bench(&text, &["--nodes-on", "10.77.1.1,10.77.2.1"]);
    // The machine may have become faster between the measurements.
    let failed: Vec<&String> = record.failed.iter().filter(|it| !it.contains("limit")).collect();
    assert!(failed.is_empty(), "{failed:?} {output:?}");
    assert_eq!(record.routes[1].nodes, ["10.77.1.1", "10.77.2.1"]);
    assert!(!record.limits.is_empty(), "the limit was measured");
    for route in &record.routes {
        assert!(!route.paths.is_empty());
        assert!(route.paths.iter().all(|path| path.contains("10.77.")), "{:?}", route.paths);
        for (direction, cell) in route.workload("mix", Half::Raw).unwrap().cells() {
            assert!(cell.ops > 0 && cell.limit_share.is_some_and(|share| share > 0.0), "{direction}");
        }
    }
}

/// Only in the full tier, because a silent peer is given half a minute.
#[test]
fn silent_networks_are_noticed_and_their_clients_named() {
    let bed = Testbed::start(3);
    let agents = bed.agents(3);
    let text = format!(
        "repeats = 1\nwindow_ms = 100000\ntarget.server = \"10.77.1.1:/data\"\n\
         [[route]]\nname = \"tcp\"\noptions = \"nconnect=1\"\n{WORKLOAD}"
    );
    let bench = bed.start_bench(&text, &["--client", &bed.clients(3)]);
    for agent in &agents {
        agent.wait_for_line("load starts", TIMEOUT);
    }
    bed.silence(3);
    let (status, record) = bed.finish_bench(bench);
    assert_eq!(status, Some(1), "the record fails");
    assert!(failures(&record)[0].contains("client c3 is lost (Connection timed out"), "{:?}", record.failed);
    let workload = &record.routes[0].workloads[0];
    assert!(workload.skipped.as_ref().is_some_and(|why| why.contains("c3")), "no repeat was complete");
    bed.assert_empty();
}

/// The record has the spread of the starts, and the table tells it. Only in the full tier: fifty
/// processes on this machine.
#[test]
fn fifty_agents_are_all_ready_before_any_starts() {
    let bed = Testbed::start(50);
    let agents = bed.agents(50);
    let workload =
        "[[workload]]\nname = \"mix\"\nblock = \"64KiB\"\ndepth = 1\nreaders = 1\nfile = \"1MiB\"\n";
    let text = format!(
        "repeats = 3\nwindow_ms = 2000\ntarget.server = \"10.77.1.1:/data\"\n\
         [[route]]\nname = \"tcp\"\noptions = \"nconnect=1\"\n\
         {workload}steps = {{ clients = [1, 10, 25, 50] }}\n"
    );
    let (output, record) = bed.bench(&text, &["--client", &bed.clients(50)]);
    assert!(failures(&record).is_empty(), "{:?}", record.failed);
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(table.contains("50 of ") && table.contains("started within "), "{table}");
    let workload = record.routes[0].workload("mix x50 clients", Half::Raw).unwrap();
    assert_eq!(workload.clients.len(), 50);
    let latest = workload.clients.iter().map(|client| client.start_offset_ms).fold(0.0, f64::max);
    let stragglers: Vec<&str> =
        workload.clients.iter().filter(|it| it.straggler).map(|it| it.name.as_str()).collect();
    println!("50 agents started within {latest:.2} ms; stragglers: {stragglers:?}");
    fixture::assert_ready_before_start(&agents, 3);
    bed.assert_empty();
}
