//! Tests `trunkline bench` as a user runs it: the whole quick experiment, an experiment from a file
//! on an existing server, and invalid files. Speeds are not checked; correct data and a complete
//! record are.

#[path = "bench/directories.rs"]
mod directories;
#[path = "bench/io500.rs"]
mod io500;
#[path = "bench/job_files.rs"]
mod job_files;
#[path = "bench/no_room.rs"]
mod no_room;
#[path = "bench/signals.rs"]
mod signals;
#[path = "bench/volumes.rs"]
mod volumes;

use std::path::Path;
use std::process::{Command, Output};

use record::{Half, Record};
use rustix::process::Signal;
use std::time::{Duration, Instant};
use testkit::Process;

fn bench(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_trunkline"))
        .arg("bench")
        .args(arguments)
        .current_dir(directory)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The reasons why a record failed, except for results above a limit: this machine may have become
/// faster between the measurements.
fn failures(record: &Record) -> Vec<&String> {
    record.failed.iter().filter(|reason| !reason.contains("limit")).collect()
}

#[test]
fn the_quick_experiment_measures_both_halves_of_both_tcp_routes() {
    let directory = tempfile::tempdir().unwrap();
    let output = bench(directory.path(), &["--quick", "--record", "quick.json"]);
    let table = text(&output.stdout);
    assert!(
        table.contains("tcp-mp") && table.contains("record quick.json"),
        "{table}\n{}",
        text(&output.stderr)
    );
    let record =
        Record::read(&std::fs::read_to_string(directory.path().join("quick.json")).unwrap()).unwrap();
    assert!(failures(&record).is_empty(), "{:?}", record.failed);
    for name in ["tcp", "tcp-mp"] {
        let route = record.route(name).unwrap();
        for half in [Half::Raw, Half::Paced] {
            let mix = route.workload("mix-1m", half).unwrap();
            let verified = mix.verified.unwrap();
            assert!(verified.stamps > 0 && verified.bytes > 0 && verified.wrong == 0, "{name} {half}");
            for (direction, cell) in mix.cells() {
                assert!(cell.ops > 0 && cell.repeats.len() >= 8, "{name} {half} {direction}");
                assert!(cell.limit_gbytes_per_s.is_some() && !cell.binding.evidence.is_empty());
                let nodes_used = cell.share_by_node.iter().filter(|share| **share > 0.01).count();
                assert_eq!(nodes_used, if name == "tcp" { 1 } else { 4 }, "{name} {half} {direction}");
            }
            assert_eq!(mix.cells().count(), 2);
            assert!(route.workload("randread-4k", half).unwrap().read.is_some());
        }
    }
    for name in ["rdma", "rdma-mp"] {
        assert!(record.route(name).unwrap().skipped.as_ref().unwrap().contains("RDMA"), "{name}");
    }
    let page = std::fs::read_to_string(directory.path().join("quick.html")).unwrap();
    assert!(page.contains("mix-1m"));
}

#[test]
fn versions_3_and_4_are_compared_on_one_embedded_group() {
    let directory = tempfile::tempdir().unwrap();
    let experiment = "repeats = 1\nwindow_ms = 100\n[target]\nnodes = 2\nmem = '256MiB'\n\
         [[route]]\nname = 'v3'\noptions = 'nconnect=2'\n\
         [[route]]\nname = 'v4'\noptions = 'vers=4.2,nconnect=2,remoteports=127.0.0.1-127.0.0.2'\n\
         [[workload]]\nname = 'mixed'\nblock = '64KiB'\ndepth = 4\nreaders = 2\nwriters = 2\nfile = '4MiB'\n";
    std::fs::write(directory.path().join("own.toml"), experiment).unwrap();
    let output = bench(directory.path(), &["own.toml", "--record", "own.json", "--no-report"]);
    // So short a window may exceed the limit that was measured before it: another exit status.
    let record = std::fs::read_to_string(directory.path().join("own.json"));
    let record = record.unwrap_or_else(|_| panic!("{}\n{}", text(&output.stdout), text(&output.stderr)));
    let record = Record::read(&record).unwrap();
    for name in ["v3", "v4"] {
        let mixed = record.route(name).unwrap().workload("mixed", Half::Raw).unwrap();
        for (direction, cell) in mixed.cells() {
            assert!(cell.repeats[0].gbytes_per_s > 0.0, "{name} {direction:?}");
        }
    }
    assert_eq!(record.route("v4").unwrap().nodes, ["127.0.0.1", "127.0.0.2"]);
}

#[test]
fn an_experiment_from_a_file_runs_on_an_existing_server() {
    let directory = tempfile::tempdir().unwrap();
    let port = testkit::free_port();
    let mut serve = Command::new(env!("CARGO_BIN_EXE_trunkline"));
    serve.args(["serve", "--mem", "256MiB", "--export", "/data"]);
    for node in 1..=2 {
        serve.arg("--listen").arg(format!("127.0.0.{node}:{port}"));
    }
    let server = Process::spawn(serve);
    server.wait_for_line("ready", std::time::Duration::from_secs(30));
    let experiment = format!(
        "repeats = 5\nwindow_ms = 100\ntarget.server = 'nfs://127.0.0.1:{port}/data'\nlimits.link = '100Gbit/s'\n\
         [[route]]\nname = 'one'\noptions = 'nconnect=2'\n\
         [[route]]\nname = 'two'\noptions = 'nconnect=2,remoteports=127.0.0.1-127.0.0.2'\n\
         [[workload]]\nname = 'mixed'\nblock = '64KiB'\ndepth = 4\nreaders = 2\nwriters = 2\nfile = '4MiB'\n\
         [[workload]]\nname = 'open'\npattern = 'random'\nblock = '4KiB'\ndepth = 4\nreaders = 2\nfile = '1MiB'\nrate = 1000\n\
         [[workload]]\nname = 'flood'\npattern = 'random'\nblock = '4KiB'\ndepth = 4\nreaders = 1\nfile = '1MiB'\nrate = 5e6\n"
    );
    std::fs::write(directory.path().join("own.toml"), experiment).unwrap();
    let output = bench(directory.path(), &["own.toml", "--record", "own.json", "--no-report"]);
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
    let record = Record::read(&std::fs::read_to_string(directory.path().join("own.json")).unwrap()).unwrap();
    let cell = record.route("two").unwrap().workload("mixed", Half::Raw).unwrap().read.clone().unwrap();
    assert_eq!((cell.share_by_node.len(), cell.limit_gbytes_per_s), (2, Some(25.0)));
    let one = record.route("one").unwrap();
    let mixed = one.workload("mixed", Half::Raw).unwrap();
    let cells: Vec<&record::Cell> = mixed.cells().map(|(_, cell)| cell).collect();
    assert_eq!(cells[0].limit_gbytes_per_s, Some(12.5));
    assert_eq!(cells[0].cpu_us_per_op, cells[1].cpu_us_per_op, "processor time is that of both directions");
    assert!(mixed.longest_gap_ms.is_some());
    assert_eq!((one.nodes.len(), one.paths.len()), (1, 1));
    assert_eq!(record.route("two").unwrap().nodes, ["127.0.0.1", "127.0.0.2"]);
    assert_eq!(record.verdicts.len(), 3);
    // Every operation due to start in the five windows of 100 ms is counted, however slow the
    // machine is.
    let open = one.workload("open", Half::Raw).unwrap().read.clone().unwrap();
    let meant = record::Latency::from_text(&open.latency_histogram_ns).unwrap().count();
    assert!((495..=510).contains(&meant), "{meant} operations at 1000 a second");
    assert_eq!(record.experiment.workloads[1].rate_ops_per_s, Some(1000.0));
    // More than any server can handle: operations that were never sent count as late, and the
    // repeat still ends.
    let flood = one.workload("flood", Half::Raw).unwrap().read.clone().unwrap();
    let meant = record::Latency::from_text(&flood.latency_histogram_ns).unwrap().count();
    assert!((2_499_000..=2_501_000).contains(&meant) && flood.ops < meant, "{meant} meant to start");
    // The experiment leaves no files on the server.
    let mount = client::Mount::connect(&format!("nfs://127.0.0.1:{port}/data"), "").unwrap();
    assert_eq!(mount.read_directory(mount.root()).unwrap(), []);
}

#[test]
fn a_step_test_adds_operations_in_flight_and_shows_its_curve() {
    let directory = tempfile::tempdir().unwrap();
    let measured = tempfile::tempdir().unwrap();
    let experiment = format!(
        "repeats = 2\nwindow_ms = 50\ndirect = false\ntarget.nodes = 2\ntarget.mem = '64MiB'\n\
         [[route]]\nname = 'group'\noptions = 'nconnect=2,remoteports=127.0.0.1-127.0.0.2'\n\
         [[route]]\nname = 'dir'\ntarget = '{}'\n\
         [[workload]]\nname = 'rand'\npattern = 'random'\nblock = '4KiB'\ndepth = 1\nreaders = 2\n\
         file = '1MiB'\nsteps = {{ depth = [1, 2, 8] }}\n",
        measured.path().display()
    );
    std::fs::write(directory.path().join("steps.toml"), experiment).unwrap();
    let output = bench(directory.path(), &["steps.toml", "--record", "steps.json"]);
    let table = text(&output.stdout);
    let record = std::fs::read_to_string(directory.path().join("steps.json"));
    let record = record.unwrap_or_else(|_| panic!("{table}\n{}", text(&output.stderr)));
    let record = Record::read(&record).unwrap();
    assert!(failures(&record).is_empty(), "{:?}", record.failed);
    for name in ["group", "dir"] {
        let route = record.route(name).unwrap();
        let names: Vec<&str> = route.workloads.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["rand depth 1", "rand depth 2", "rand depth 8"], "{name}");
        for (workload, depth) in route.workloads.iter().zip([1, 2, 8]) {
            let step = workload.step.as_ref().unwrap();
            assert_eq!((step.series.as_str(), step.clients, step.depth), ("rand", 1, depth), "{name}");
            let read = workload.read.as_ref().unwrap();
            assert!(read.ops > 0 && read.repeats.len() == 2 && workload.write.is_none(), "{name} {depth}");
            assert_eq!(workload.verified.unwrap().wrong, 0, "{name} {depth}");
        }
        let curves = route.curves(Half::Raw);
        assert_eq!(curves.len(), 1, "{name}");
        let units: Vec<u32> = curves[0].points.iter().map(|point| point.units).collect();
        assert_eq!(units, [1, 2, 8], "{name}");
    }
    assert!(table.contains("steps of rand by depth"), "{table}");
    let page = std::fs::read_to_string(directory.path().join("steps.html")).unwrap();
    assert!(page.contains("rand depth 8"));
    assert!(std::fs::read_dir(measured.path()).unwrap().next().is_none(), "nothing is left");
}

#[test]
fn a_record_is_written_to_a_pipe_and_alone_to_standard_output() {
    let directory = tempfile::tempdir().unwrap();
    let port = testkit::free_port();
    let mut serve = Command::new(env!("CARGO_BIN_EXE_trunkline"));
    serve.args(["serve", "--mem", "64MiB", "--export", "/data", "--listen", &format!("127.0.0.1:{port}")]);
    let server = Process::spawn(serve);
    server.wait_for_line("ready", std::time::Duration::from_secs(30));
    let experiment = format!(
        "repeats = 1\nwindow_ms = 20\ntarget.server = 'nfs://127.0.0.1:{port}/data'\nlimits.link = '100Gbit/s'\n\
         [[route]]\nname = 'one'\n\
         [[workload]]\nname = 'reads'\nblock = '64KiB'\ndepth = 1\nreaders = 1\nfile = '1MiB'\n"
    );
    std::fs::write(directory.path().join("own.toml"), experiment).unwrap();
    let pipe = directory.path().join("pipe");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let reading = std::thread::spawn(move || std::fs::read_to_string(pipe).unwrap());
    let output = bench(directory.path(), &["own.toml", "--record", "pipe"]);
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
    assert!(Record::read(&reading.join().unwrap()).unwrap().route("one").is_some());
    assert!(text(&output.stdout).contains("reads"), "the table is printed");
    let output = bench(directory.path(), &["own.toml", "--record", "-"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(Record::read(&text(&output.stdout)).unwrap().route("one").is_some());
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2, "no page is written");
}

/// A server with files in memory, and an experiment on it that takes many minutes.
fn endless_experiment(directory: &Path) -> (Process, String) {
    let port = testkit::free_port();
    let mut serve = Command::new(env!("CARGO_BIN_EXE_trunkline"));
    serve.args(["serve", "--mem", "64MiB", "--export", "/data", "--listen", &format!("127.0.0.1:{port}")]);
    let server = Process::spawn(serve);
    server.wait_for_line("ready", Duration::from_secs(30));
    let export = format!("nfs://127.0.0.1:{port}/data");
    let experiment = format!(
        "repeats = 100\nwindow_ms = 600000\ntarget.server = '{export}'\n\
         [[route]]\nname = 'one'\n\
         [[workload]]\nname = 'mixed'\nblock = '64KiB'\ndepth = 4\nreaders = 2\nwriters = 2\nfile = '1MiB'\n"
    );
    std::fs::write(directory.join("endless.toml"), experiment).unwrap();
    (server, export)
}

#[test]
fn a_signal_ends_the_run_and_removes_its_files_on_the_server() {
    let directory = tempfile::tempdir().unwrap();
    let (_server, export) = endless_experiment(directory.path());
    let mount = client::Mount::connect(&export, "").unwrap();
    let entries = |directory: &_| mount.read_directory(*directory).unwrap();
    for (signal, status) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
        let mut bench = Process::spawn(signals::bench(directory.path()));
        let deadline = Instant::now() + Duration::from_secs(60);
        while entries(&mount.root()).is_empty() {
            assert!(Instant::now() < deadline && bench.is_running(), "{}", bench.all_output());
            std::thread::yield_now();
        }
        bench.signal(signal);
        let ended = bench.wait(Duration::from_secs(60));
        let said = bench.all_output();
        assert_eq!(ended.code(), Some(status), "{said}");
        let sentence = "error: ended by a signal; the files are removed, and no record is written";
        assert!(said.contains(&format!("{sentence}\n  try:   the same again\n")), "{said}");
        assert_eq!(entries(&mount.root()), [], "{said}");
        assert!(!directory.path().join("never.json").exists());
    }
}

#[test]
fn a_record_that_exists_is_overwritten_only_by_force() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name);
    std::fs::write(file("kept.json"), "the only copy").unwrap();
    std::fs::write(file("new.html"), "a page by hand").unwrap();
    for (record, kept) in [("kept.json", "kept.json"), ("new.json", "new.html")] {
        let output = bench(directory.path(), &["--record", record]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.starts_with(&format!("error: cannot write {kept}\n  cause: it exists")), "{said}");
        assert!(said.contains("--force"), "{said}");
    }
    assert_eq!(std::fs::read_to_string(file("kept.json")).unwrap(), "the only copy");
    // With --force, the next fault is found.
    let output = bench(directory.path(), &["missing.toml", "--record", "kept.json", "--force"]);
    assert!(text(&output.stderr).contains("missing.toml"), "{}", text(&output.stderr));
}

#[test]
fn an_experiment_that_cannot_run_is_an_error_with_cause_and_advice() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("broken.toml"), "repeats = \n").unwrap();
    std::fs::write(
        directory.path().join("nobody.toml"),
        "target.server = '127.0.0.1:/data'\n[[route]]\nname = 'tcp'\noptions = 'port=1,noresvport'\n",
    )
    .unwrap();
    std::fs::write(directory.path().join("option.toml"), "[[route]]\nname = 'tcp'\noptions = 'nconect=2'\n")
        .unwrap();
    for (arguments, needle) in [
        (&["broken.toml"][..], "broken.toml"),
        (&["missing.toml"], "missing.toml"),
        (&["nobody.toml"], "127.0.0.1"),
        (&["option.toml"], "nconnect"),
    ] {
        let output = bench(directory.path(), arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(
            said.starts_with("error: ") && said.contains("  cause: ") && said.contains("  try:   "),
            "{said}"
        );
        assert!(said.contains(needle), "{arguments:?}: {said}");
    }
    assert_eq!(bench(directory.path(), &["--quick", "--thorough"]).status.code(), Some(2));
}
