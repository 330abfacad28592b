//! fio job files as a user runs them, on an embedded group and on a server.

use std::path::Path;
use std::time::Duration;

use record::{Half, Record};
use testkit::Process;

use super::{bench, failures, text};

fn read(directory: &Path, file: &str) -> Record {
    Record::read(&std::fs::read_to_string(directory.join(file)).unwrap()).unwrap()
}

fn example(name: &str) -> String {
    format!("{}/../../docs/examples/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn the_published_job_files_run_on_an_embedded_group() {
    let directory = tempfile::tempdir().unwrap();
    // A tenth of the depth: CI has two processors.
    for name in ["fio-sequential-test-TCP.fio", "fio-sequential-test-TCP-multipath.fio"] {
        let published = std::fs::read_to_string(example(name)).unwrap();
        std::fs::write(directory.path().join(name), published.replace("iodepth=128", "iodepth=12")).unwrap();
    }
    let arguments = [
        "fio-sequential-test-TCP.fio",
        "fio-sequential-test-TCP-multipath.fio",
        "--map",
        "/mnt/tcp=group:2?nconnect=2",
        "--map",
        "/mnt/tcp-multipath=group:2?nconnect=2&remoteports=127.0.0.1-127.0.0.2",
        "--shrink",
        "80MiB",
        "--runtime",
        "100ms",
        "--repeats",
        "2",
        "--record",
        "classic.json",
        "--no-report",
    ];
    let output = bench(directory.path(), &arguments);
    let (table, said) = (text(&output.stdout), text(&output.stderr));
    assert!(
        table.contains("mix-1m: 10 readers and 10 writers at once, 1 MiB blocks, depth 12,"),
        "{table}\n{said}"
    );
    assert!(said.contains("line 3: direct: the client library caches no data"), "{said}");
    let record = read(directory.path(), "classic.json");
    assert!(failures(&record).is_empty(), "{:?}", record.failed);
    for (route, nodes) in [("tcp", 1), ("tcp-multipath", 2)] {
        let mix = record.route(route).unwrap().workload("mix-1m", Half::Raw).unwrap();
        let verified = mix.verified.unwrap();
        assert!(verified.stamps > 0 && verified.bytes > 0 && verified.wrong == 0, "{route}");
        assert!(mix.cells().count() == 2 && mix.cells().all(|(_, cell)| cell.repeats.len() == 2), "{route}");
        let (_, read) = mix.cells().next().unwrap();
        assert_eq!(read.share_by_node.iter().filter(|share| **share > 0.01).count(), nodes, "{route}");
    }
    assert_eq!(record.verdicts.len(), 1);
    let output = bench(
        directory.path(),
        &[
            &example("randread.fio"),
            "--map",
            "/srv=group:1?nconnect=2",
            "--shrink",
            "8MiB",
            "--runtime",
            "100ms",
            "--record",
            "random.json",
            "--no-report",
        ],
    );
    assert!(
        text(&output.stdout).contains("randread: 4 readers, random 4 KiB blocks, depth 128"),
        "{}",
        text(&output.stderr)
    );
    let cell = read(directory.path(), "random.json").routes[0].workloads[0].read.clone().unwrap();
    assert!(cell.ops > 0 && cell.repeats.len() == 1);
}

/// Phases of every kind: by size and by time, mixed, of any block size, with a rate, with several
/// files.
const PHASES: &str = "[global]\nsize=1m\nbs=64k\nioengine=libaio\niodepth=4\ndirectory=/m/deep\n\
    [fill]\nrw=write\n\
    [odd]\nstonewall\nrw=randrw\nrwmixread=70\nbs=512,1000\nnumjobs=2\n\
    [huge]\nstonewall\nbs=3m\nsize=7m\niodepth=1\n\
    [range]\nstonewall\nrw=rw\nbsrange=1k-8k\nnrfiles=3\nsize=192k\n\
    [bytes]\nstonewall\nbs=1\nsize=300\nioengine=psync\n\
    [paced]\nstonewall\nrw=randread\nbs=4k\nrate_iops=500\ntime_based\nruntime=200ms\nramp_time=100ms\n";

#[test]
fn phases_of_every_kind_run_on_a_server_and_leave_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let port = testkit::free_port();
    let mut serve = std::process::Command::new(env!("CARGO_BIN_EXE_trunkline"));
    serve.args(["serve", "--mem", "64MiB", "--export", "/data", "--listen", &format!("127.0.0.1:{port}")]);
    let server = Process::spawn(serve);
    server.wait_for_line("ready", Duration::from_secs(30));
    std::fs::write(directory.path().join("kinds.fio"), PHASES).unwrap();
    let map = format!("/m=nfs://127.0.0.1:{port}/data?nconnect=2");
    let output =
        bench(directory.path(), &["kinds.fio", "--map", &map, "--record", "kinds.json", "--no-report"]);
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
    let record = read(directory.path(), "kinds.json");
    let route = record.route("m").unwrap();
    let totals = |name: &str| {
        let workload = route.workload(name, Half::Raw).unwrap();
        assert_eq!(workload.verified.map(|verified| verified.wrong), Some(0), "{name}");
        workload
            .cells()
            .map(|(_, cell)| (cell.ops, cell.bytes))
            .fold((0, 0), |(ops, bytes), (more, and)| (ops + more, bytes + and))
    };
    // As fio counts: each job does the blocks of its size once.
    assert_eq!(totals("fill"), (16, 1 << 20));
    assert_eq!(totals("huge"), (2, 6 << 20));
    assert_eq!(totals("bytes"), (300, 300));
    assert_eq!(totals("range").1, 192 << 10);
    let (_, bytes) = totals("odd");
    assert!((2 * (1 << 20) - 2000..=2 << 20).contains(&bytes), "{bytes}");
    let odd = &record.experiment.workloads[1];
    assert_eq!((odd.mixed, odd.read_percent, odd.readers), (2, Some(70), 0));
    let paced = route.workload("paced", Half::Raw).unwrap().read.clone().unwrap();
    let meant = record::Latency::from_text(&paced.latency_histogram_ns).unwrap().count();
    assert!((98..=102).contains(&meant), "{meant} operations at 500 a second in 200 ms");
    let mount = client::Mount::connect(&format!("nfs://127.0.0.1:{port}/data"), "").unwrap();
    assert_eq!(mount.read_directory(mount.root()).unwrap(), []);
    // The same again with files that do not fit: nothing is created.
    std::fs::write(directory.path().join("large.fio"), "[j]\nsize=1g\nfilename=/m/x\n").unwrap();
    let output = bench(directory.path(), &["large.fio", "--map", &map]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("there is no room for the files") && said.contains("try:   --shrink"), "{said}");
    assert_eq!(mount.read_directory(mount.root()).unwrap(), []);
}

/// Validates results with the program that comes with fio.
fn validate(directory: &Path, file: &str) {
    // The first run makes the tables, the second compares them with the JSON.
    for arguments in [&[file, "latencies.csv"][..], &["--validate", file, "latencies.csv"]] {
        let mut tool = std::process::Command::new(testkit::require_program("fio_jsonplus_clat2csv"));
        let output = tool.args(arguments).current_dir(directory).output().unwrap();
        assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    }
}

/// Only in the full tier: 2,560 operations of 1 MiB in flight on each route.
#[test]
fn the_published_job_files_run_as_they_are() {
    let directory = tempfile::tempdir().unwrap();
    let [one, two] = ["fio-sequential-test-TCP.fio", "fio-sequential-test-TCP-multipath.fio"].map(example);
    let arguments = [
        &[one.as_str(), &two, "--map", "/mnt/tcp=group:2?nconnect=2"][..],
        &["--map", "/mnt/tcp-multipath=group:2?nconnect=2&remoteports=127.0.0.1-127.0.0.2"],
        &["--shrink", "320MiB", "--runtime", "100ms", "--repeats", "1", "--no-report"],
        &["--record", "whole.json"],
    ];
    let output = bench(directory.path(), &arguments.concat());
    let (table, said) = (text(&output.stdout), text(&output.stderr));
    assert!(
        table.contains("mix-1m: 10 readers and 10 writers at once, 1 MiB blocks, depth 128,"),
        "{table}\n{said}"
    );
    let record = read(directory.path(), "whole.json");
    assert!(failures(&record).is_empty(), "{:?}", record.failed);
    for route in ["tcp", "tcp-multipath"] {
        let mix = record.route(route).unwrap().workload("mix-1m", Half::Raw).unwrap();
        let verified = mix.verified.unwrap();
        assert!(verified.bytes > 0 && verified.wrong == 0 && mix.cells().count() == 2, "{route}");
    }
}

#[test]
fn results_are_written_and_read_in_the_form_of_fio() {
    let directory = tempfile::tempdir().unwrap();
    let job = "[global]\nsize=1m\nbs=64k\nioengine=libaio\niodepth=4\nfilename_format=$jobname\n\
        [w1]\nrw=write\n[w2]\nrw=write\n[r]\nstonewall\nrw=randrw\nnumjobs=2\ngroup_reporting\n";
    for file in ["one.fio", "two.fio"] {
        std::fs::write(directory.path().join(file), job).unwrap();
    }
    let arguments = ["--map", ".=group:1", "--record", "a.json", "--no-report", "--fio-json", "out.json"];
    let output = bench(directory.path(), &[&["one.fio"], &arguments[..]].concat());
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    validate(directory.path(), "out.json");
    let json = std::fs::read_to_string(directory.path().join("out.json")).unwrap();
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    let jobs: Vec<(&str, u64, u64, u64)> = value["jobs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|job| {
            let ops = |direction: &str| job[direction]["total_ios"].as_u64().unwrap();
            (job["jobname"].as_str().unwrap(), job["groupid"].as_u64().unwrap(), ops("read"), ops("write"))
        })
        .collect();
    assert_eq!(jobs[..2], [("w1", 0, 0, 16), ("w2", 0, 0, 16)]);
    assert_eq!((jobs.len(), jobs[2].0, jobs[2].1, jobs[2].2 + jobs[2].3), (3, "r", 1, 32));
    let report = |file: &str| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_trunkline"));
        command.args(["report", file, "--csv", "-"]).current_dir(directory.path()).output().unwrap()
    };
    let output = report("out.json");
    let csv = text(&output.stdout);
    assert!(output.status.success() && csv.contains("w1 + w2") && csv.contains(",r,"), "{csv}");
    // What is imported can be kept as a record, which says the same.
    let keep = |arguments: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_trunkline"));
        command.arg("report").args(arguments).current_dir(directory.path()).output().unwrap()
    };
    let output = keep(&["--record", "kept.json", "out.json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let kept = read(directory.path(), "kept.json");
    assert!(kept.routes[0].workload("r", Half::Raw).is_some(), "{:?}", kept.routes);
    assert_eq!(text(&report("kept.json").stdout), csv);
    assert!(!directory.path().join("kept.html").exists() && !directory.path().join("out.html").exists());
    for (arguments, cause) in [
        (&["--record", "kept.json", "out.json"][..], "kept.json"),
        (&["--record", "new.json", "out.json", "kept.json"], "there are 2 records"),
        (&["--record", "out.json", "--force", "out.json"], "that is the record out.json"),
    ] {
        let output = keep(arguments);
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains(cause), "{said}");
    }
    std::fs::write(directory.path().join("text.json"), format!("fio: a warning\n{json}")).unwrap();
    let output = report("text.json");
    assert!(
        text(&output.stderr).contains("note: text.json: 1 lines before the JSON"),
        "{}",
        text(&output.stderr)
    );
    std::fs::write(directory.path().join("cut.json"), &json[..json.len() / 2]).unwrap();
    let output = report("cut.json");
    let said = text(&output.stderr);
    assert!(
        output.status.code() == Some(1) && said.contains("cannot use cut.json as results of fio"),
        "{said}"
    );
    assert!(
        said.contains("its JSON cannot be read") && said.contains("try:   fio --output-format=json+"),
        "{said}"
    );
    // Two job files: a file of results for each.
    let output = bench(
        directory.path(),
        &[&["one.fio", "two.fio", "--repeats", "1", "--force"], &arguments[..]].concat(),
    );
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
    for file in ["out-one.json", "out-two.json"] {
        validate(directory.path(), file);
    }
}

#[test]
fn a_job_file_that_cannot_run_is_an_error_with_line_cause_and_advice() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("typo.fio"), "[j]\nsize=1m\nblocksiz=4k\n").unwrap();
    std::fs::write(directory.path().join("good.fio"), "[j]\nsize=1m\nfilename=/m/x\n").unwrap();
    std::fs::write(directory.path().join("other.toml"), "").unwrap();
    for (arguments, status, needles) in [
        (&["typo.fio", "--map", ".=group:"][..], 1, ["line 3, column 1", "blocksize, the nearest"]),
        (&["good.fio"], 1, ["no --map covers the file /m/x", "--map /m=nfs://HOST/EXPORT"]),
        (&["missing.fio", "--map", ".=group:"], 1, ["cannot use missing.fio", "No such file"]),
        (
            &["good.fio", "--map", "/m=nfs://127.0.0.1:1/x?noresvport"],
            1,
            ["cannot use the route m", "127.0.0.1"],
        ),
        (&["good.fio", "--map", "/m=group:?nconect=2"], 1, ["nconect", "nconnect"]),
        (&["good.fio", "other.toml", "--map", "/m=group:"], 2, ["cannot run other.toml", "not named *.fio"]),
        (&["other.toml", "--shrink", "1GiB"], 2, ["--shrink is for fio job files", "JOB.fio"]),
        (&["other.toml", "other.toml"], 2, ["2 experiments at once", "one EXPERIMENT.toml"]),
        (&["good.fio", "--map", "/m=group:", "--runtime", "soon"], 2, ["--runtime", "5s"]),
    ] {
        let output = bench(directory.path(), arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {said}");
        assert!(said.contains("error: "), "{said}");
        for needle in needles {
            assert!(said.contains(needle), "{arguments:?}: {needle}: {said}");
        }
    }
}
