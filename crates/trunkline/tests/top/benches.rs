//! Benches and agents, watched while they make load.

use super::{TIMEOUT, get, run, serve, snapshot_of, text_of, trunkline};
use metrics::{Dimension, Key, Kind, Snapshot};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use testkit::{Deadline, Process, require_program, temp_dir};

/// The number of READs of a route; `route` is the begin of its paths' names.
fn reads(snapshot: &Snapshot, route: &str) -> u64 {
    let of_route = |key: &Key| {
        key.path.as_deref().is_some_and(|path| path.starts_with(route))
            && key.operation.as_deref() == Some("READ")
    };
    let tallies = snapshot.operations.iter().filter(|(key, _)| of_route(key));
    tallies.map(|(_, tally)| tally.count).sum()
}

/// The address that a process says its metrics are on.
fn metrics_address(process: &Process) -> String {
    let line = process.wait_for_line("metrics on http://", TIMEOUT);
    let (_, address) = line.split_once("http://").unwrap();
    address.trim_end().trim_end_matches("/metrics").to_owned()
}

#[test]
fn a_bench_is_watched_by_route_while_it_runs_and_writes_its_metrics_at_the_end() {
    let runtime = temp_dir("top");
    let (_server, url) = serve(runtime.path());
    let path = |name: &str| runtime.path().join(name).display().to_string();
    let experiment = format!(
        "repeats = 2\nwindow_ms = 1500\n[target]\nserver = {url:?}\n\
         [[route]]\nname = \"one\"\n[[route]]\nname = \"two\"\noptions = \"nconnect=2\"\n\
         [[workload]]\nname = \"reads\"\nblock = \"64KiB\"\ndepth = 2\nreaders = 1\nfile = \"1MiB\"\n"
    );
    std::fs::write(path("reads.toml"), experiment).unwrap();
    let (file, record, prometheus) = (path("reads.toml"), path("record.json"), path("metrics"));
    let arguments = ["bench", &file, "--record", &record, "--no-report", "--metrics-file", &prometheus];
    let arguments = [&arguments[..], &["--metrics", "127.0.0.1:0"]].concat();
    let mut bench = Process::spawn(trunkline(runtime.path(), &arguments));
    let pid = bench.id().to_string();
    let address = metrics_address(&bench);
    assert_eq!((get(&address, "/ready", &address).0, get(&address, "/health", &address).0), (200, 200));
    Deadline::wait_until("both routes to be counted", TIMEOUT, || {
        let snapshot = Snapshot::from_json(get(&address, "/snapshot", &address).1.as_bytes()).ok()?;
        ["one ", "two "].iter().all(|route| reads(&snapshot, route) > 0).then_some(())
    });
    // The same by the number of the process, and for Prometheus.
    let snapshot = snapshot_of(runtime.path(), &pid);
    assert!(["one ", "two "].iter().all(|route| reads(&snapshot, route) > 0));
    let (status, text) = get(&address, "/metrics", &address);
    assert!(status == 200 && text.contains("trunkline_path_up{"), "{status} {text}");
    // Another bench cannot have the same address, and says so before it makes anything.
    let second = path("second.json");
    let arguments = ["bench", &file, "--record", &second, "--metrics", &address];
    let output = run(runtime.path(), &arguments);
    let said = text_of(&output.stderr);
    assert!(said.contains("cannot answer on the metrics address") && said.contains("try:"), "{said}");
    assert!(output.status.code() == Some(2) && !Path::new(&second).exists());
    assert!(bench.wait(TIMEOUT).success(), "{}", bench.all_output());
    let text = std::fs::read_to_string(prometheus).unwrap();
    for route in ["one", "two"] {
        let line = text.lines().find(|line| {
            line.starts_with("trunkline_operations_total")
                && line.contains("operation=\"READ\"")
                && line.contains(&format!("path=\"{route} "))
        });
        assert!(line.is_some(), "{text}");
    }
}

#[test]
fn the_server_side_of_an_embedded_group_is_shown_beside_the_bench() {
    let runtime = temp_dir("top");
    let path = |name: &str| runtime.path().join(name).display().to_string();
    let experiment = format!(
        "repeats = 2\nwindow_ms = 1500\npace = \"10Gbit/s\"\ntarget.nodes = 2\ntarget.mem = \"64MiB\"\n[[route]]\n\
         name = \"both\"\noptions = \"nconnect=2,remoteports=127.0.0.1-127.0.0.2\"\n{READS}"
    );
    std::fs::write(path("group.toml"), experiment).unwrap();
    let (file, record, last) = (path("group.toml"), path("record.json"), path("last.prom"));
    let arguments = ["bench", &file, "--record", &record, "--no-report", "--metrics-file", &last];
    let arguments = [&arguments[..], &["--metrics", "127.0.0.1:0"]].concat();
    let mut bench = Process::spawn(trunkline(runtime.path(), &arguments));
    let (pid, address) = (bench.id().to_string(), metrics_address(&bench));
    assert_eq!(get(&address, "/metrics?of=bench", &address).0, 400);
    let nodes = |snapshot: &Snapshot| {
        let reads = snapshot.operations.by(&[Dimension::Node], &[(Dimension::Operation, "READ".to_owned())]);
        reads.iter().filter_map(|(key, _)| key.node.as_deref().map(str::to_owned)).collect::<Vec<_>>()
    };
    let group = Deadline::wait_until("both nodes of the group to serve", TIMEOUT, || {
        let snapshot = Snapshot::from_json(get(&address, "/snapshot", &address).1.as_bytes()).ok()?;
        let group = snapshot.group.as_deref()?.clone();
        (nodes(&group) == ["node1", "node2"] && reads(&snapshot, "both ") > 0).then_some(group)
    });
    assert_eq!((group.process.kind, group.process.name.as_str()), (Kind::Serve, "embedded group of 2 nodes"));
    let shown = run(runtime.path(), &["top", &pid, "--batch", "0"]);
    let shown = text_of(&shown.stdout);
    for title in [format!("serve {pid}  embedded group of 2 nodes"), format!("bench {pid}  ")] {
        assert!(shown.lines().any(|line| line.starts_with(&title)), "{title}: {shown}");
    }
    let (status, text) = get(&address, "/metrics?of=group", &address);
    assert!(status == 200 && text.contains("node=\"node2\",export=\"/bench\""), "{status} {text}");
    let page = Deadline::wait_until("a second of the group on its page", TIMEOUT, || {
        let (status, page) = get(&address, "/?of=group", &address);
        assert_eq!(status, 200, "{page}");
        page.contains("/?of=group&#38;by=").then_some(page)
    });
    assert!(page.contains("embedded group of 2 nodes"), "{page}");
    assert!(get(&address, "/", &address).1.contains("href=\"/?of=group\""), "the bench's page leads there");
    assert!(bench.wait(TIMEOUT).success(), "{}", bench.all_output());
    // At the end, each side has a file.
    let text = |name: &str| std::fs::read_to_string(path(name)).unwrap();
    let (bench, group) = (text("last.prom"), text("last.group.prom"));
    assert!(bench.contains("path=\"both ") && !bench.contains("node=\"node2\",export=\"/bench\""), "{bench}");
    for node in ["node1", "node2"] {
        let line = group.lines().find(|line| {
            line.starts_with("trunkline_operations_total{")
                && line.contains("operation=\"READ\"")
                && line.contains(&format!("node=\"{node}\""))
        });
        let count = line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        assert!(count.is_some_and(|count| count > 0.0), "{node}: {group}");
    }
}

/// A workload of READs, as lines of an experiment.
const READS: &str =
    "[[workload]]\nname = \"reads\"\nblock = \"16KiB\"\ndepth = 2\nreaders = 2\nfile = \"1MiB\"\n";

#[test]
fn a_bench_on_directories_counts_the_operations_of_both_engines() {
    let _ = require_program("fio");
    let runtime = temp_dir("top");
    let measured = temp_dir("measured");
    let target = measured.path().display();
    let text = format!(
        "repeats = 3\nwindow_ms = 1000\ndirect = false\n[[route]]\nname = \"ours\"\ntarget = \"{target}\"\n\
         [[route]]\nname = \"fio\"\ntarget = \"{target}\"\nengine = \"fio\"\n{READS}"
    );
    let path = |name: &str| runtime.path().join(name).display().to_string();
    std::fs::write(path("dir.toml"), text).unwrap();
    let (file, record) = (path("dir.toml"), path("record.json"));
    let arguments = ["bench", &file, "--record", &record, "--no-report"];
    let mut bench = Process::spawn(trunkline(runtime.path(), &arguments));
    let pid = bench.id().to_string();
    let mut last = None;
    Deadline::wait_until("both routes to be counted", TIMEOUT, || {
        let output = run(runtime.path(), &["top", &pid, "--batch", "0", "--json"]);
        let snapshot = Snapshot::from_json(&output.stdout).ok()?;
        let found = ["ours", "fio"].iter().all(|route| reads(&snapshot, route) > 0);
        last = Some(snapshot);
        found.then_some(())
    });
    let snapshot = last.unwrap();
    for (key, tally) in snapshot.operations.iter() {
        assert_eq!(key.size.map(metrics::SizeClass::name), Some("<=16K"), "{key:?}");
        assert!(tally.count > 0 && tally.errors == 0 && !tally.latency.is_empty(), "{key:?} {tally:?}");
        if key.path.as_deref() == Some("ours") {
            assert_eq!(tally.latency.count(), tally.count, "each has a latency");
            assert_eq!(tally.received_bytes, tally.count * (16 << 10));
        }
    }
    let shown = run(runtime.path(), &["top", &pid, "--batch", "0"]);
    let shown = text_of(&shown.stdout);
    assert!(shown.starts_with(&format!("bench {pid}  ")) && shown.contains("READ"), "{shown}");
    assert!(bench.wait(TIMEOUT).success(), "{}", bench.all_output());
}

/// A bench whose only client is the agent `a<b`, with the routes `tcp` to a server and `dir`.
fn the_bench_shows_what_its_agents_do(runtime: &Path, bench: &Process, address: &str, server: &str) {
    let found = Deadline::wait_until("the agent's load at the bench", TIMEOUT, || {
        let snapshot = Snapshot::from_json(get(address, "/snapshot", address).1.as_bytes()).ok()?;
        let of_agent = [(Dimension::Client, "a<b".to_owned())];
        let operations = snapshot.operations.by(&Dimension::ALL, &of_agent);
        let found = Snapshot { operations, ..snapshot };
        (reads(&found, "tcp ") > 0 && reads(&found, "dir") > 0).then_some(found)
    });
    for (key, tally) in found.operations.iter() {
        let is_of_server = key.node.as_deref().is_none_or(|node| server.starts_with(node));
        assert!(is_of_server && tally.latency.count() == tally.count, "{key:?} {tally:?}");
    }
    assert!(found.paths.iter().any(|path| path.name.starts_with("tcp ")), "{:?}", found.paths);
    let shown = run(runtime, &["top", &bench.id().to_string(), "--batch", "0"]);
    let shown = text_of(&shown.stdout);
    assert!(shown.contains("client") && shown.contains("a<b"), "{shown}");
    let page = Deadline::wait_until("the agent on the page", TIMEOUT, || {
        let (_, page) = get(address, "/?by=client", address);
        page.contains("a&#60;b").then_some(page)
    });
    assert!(page.contains("Clients and nodes") && !page.contains("a<b"), "{page}");
    let (status, text) = get(address, "/metrics", address);
    assert!(
        status == 200 && text.contains("path=\"dir\",operation=\"READ\",client=\"a<b\""),
        "{status} {text}"
    );
}

#[test]
fn an_agent_is_watched_by_route_and_writes_its_metrics_at_the_end() {
    let runtime = temp_dir("top");
    let (_server, url) = serve(runtime.path());
    let measured = temp_dir("measured");
    let path = |name: &str| runtime.path().join(name).display().to_string();
    let mut options = std::fs::OpenOptions::new();
    let mut key = options.create_new(true).write(true).mode(0o600).open(path("key")).unwrap();
    key.write_all(b"0123456789abcdef").unwrap();
    let target = measured.path().display().to_string();
    let (key, last) = (path("key"), path("last.prom"));
    let arguments = [
        &["agent", "--listen", "127.0.0.1:0", "--key", &key, "--allow-dir", &target][..],
        &["--metrics", "127.0.0.1:0", "--metrics-file", &last],
    ];
    let mut agent = Process::spawn(trunkline(runtime.path(), &arguments.concat()));
    let address = metrics_address(&agent);
    let line = agent.wait_for_line("ready on", TIMEOUT);
    let at = line.trim_start_matches("ready on ").trim().to_owned();
    let text = format!(
        "repeats = 4\nwindow_ms = 1000\ndirect = false\n[target]\nserver = {url:?}\n\
         [[route]]\nname = \"tcp\"\n[[route]]\nname = \"dir\"\ntarget = {target:?}\n{READS}"
    );
    std::fs::write(path("many.toml"), text).unwrap();
    let (file, record) = (path("many.toml"), path("record.json"));
    let client = format!("a<b={at}");
    let arguments = [
        &["bench", &file, "--record", &record, "--no-report", "--client", &client, "--client-key", &key][..],
        &["--metrics", "127.0.0.1:0"],
    ];
    let mut bench = Process::spawn(trunkline(runtime.path(), &arguments.concat()));
    let of_bench = metrics_address(&bench);
    let (pid, server) = (agent.id().to_string(), url.trim_start_matches("nfs://"));
    let of_server = |snapshot: &Snapshot| {
        let of = |key: &Key| key.path.as_deref().is_some_and(|path| path.contains(server));
        snapshot.operations.iter().any(|(key, _)| of(key) && key.operation.as_deref() == Some("READ"))
    };
    Deadline::wait_until("both routes to be counted by the agent", TIMEOUT, || {
        let snapshot = snapshot_of(runtime.path(), &pid);
        assert_eq!((snapshot.process.kind, snapshot.process.name.as_str()), (Kind::Agent, at.as_str()));
        (of_server(&snapshot) && reads(&snapshot, &target) > 0).then_some(())
    });
    the_bench_shows_what_its_agents_do(runtime.path(), &bench, &of_bench, server);
    assert!(bench.wait(TIMEOUT).success(), "{}", bench.all_output());
    let (status, text) = get(&address, "/metrics", &address);
    assert!(status == 200 && text.contains(&format!("path=\"{target}\"")), "{status} {text}");
    assert_eq!(get(&address, "/", &address).0, 200, "the page");
    assert!(agent.terminate(TIMEOUT).success(), "{}", agent.all_output());
    assert!(std::fs::read_to_string(last).unwrap().contains("operation=\"READ\""));
}
