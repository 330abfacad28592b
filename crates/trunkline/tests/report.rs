//! `trunkline report` from outside: conditions and their exit status, JUnit XML, records compared,
//! and published results.

use record::{Record, Repeat, Route, Shape, Workload};
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use testkit::{Process, Stream, temp_dir};

const TIMEOUT: Duration = Duration::from_secs(120);

/// Runs `trunkline report` and returns its status, output and errors.
fn report(arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trunkline"));
    command.arg("report").args(arguments);
    ["TRUNKLINE_LOG", "COLUMNS"].into_iter().for_each(|name| {
        command.env_remove(name);
    });
    let mut process = Process::spawn(command);
    let status = process.wait(TIMEOUT);
    (status.code(), process.output(Stream::Out), process.output(Stream::Err))
}

/// A record of one route whose repeats read about this fast.
fn record(gbytes_per_s: f64) -> Record {
    let repeat = |index: u64| {
        let bytes = (gbytes_per_s * 1e9) as u64 / 1000 * (990 + 5 * (index % 5));
        let (p50_us, p99_us) = (Some(1000.0), Some(3000.0 + index as f64));
        Repeat { p50_us, p99_us, ..Repeat::of(bytes, bytes >> 20, Duration::from_secs(1)) }
    };
    let cell = record::Cell::of((0..8).map(repeat).collect(), &record::Latency::new(), 1);
    let workload = Workload { name: "mix-1m".into(), read: Some(cell), ..Workload::default() };
    let route = Route { name: "tcp-mp".into(), workloads: vec![workload], ..Route::default() };
    let mut record = Record { routes: vec![route, Route::skipped("rdma", "no device")], ..Record::default() };
    let shape = Shape { name: "mix-1m".into(), block_bytes: 1 << 20, readers: 4, ..Shape::default() };
    record.experiment.workloads = vec![shape];
    record
}

fn write(directory: &Path, name: &str, record: &Record) -> String {
    let file = directory.join(name);
    std::fs::write(&file, record.write()).expect("a record");
    file.to_str().expect("UTF-8").to_owned()
}

#[test]
fn a_condition_that_holds_is_status_1_and_one_that_does_not_is_status_0() {
    let dir = temp_dir("report");
    let (before, after) =
        (write(dir.path(), "before.json", &record(2.0)), write(dir.path(), "after.json", &record(1.6)));
    let slower = "tcp-mp.read < 0.9 * baseline";
    let (code, out, err) = report(&["--fail-if", slower, &before, &after]);
    assert_eq!(code, Some(1), "{out}{err}");
    assert!(out.contains("FAILED     tcp-mp read of mix-1m, raw: 0.80 times before.json"), "{out}");
    assert!(out.contains("1 failed, 0 not shown, 0 passed"), "{out}");
    let (code, out, err) = report(&["--fail-if", slower, "--force", &after, &before]);
    assert_eq!(code, Some(0), "{out}{err}");
    assert!(out.contains("0 failed, 0 not shown, 1 passed"), "{out}");
    // The same with the baseline named.
    let arguments = ["--baseline", &before, "--fail-if", slower, "--csv", "-"];
    let (code, out, err) = report(&[&arguments[..], &[&after]].concat());
    assert_eq!(code, Some(1), "{err}");
    assert!(out.starts_with("record,made_at,"), "the result alone is on standard output: {out}");
    assert!(err.contains("1 failed, 0 not shown, 0 passed"), "{err}");
    let noise = ["--baseline", &before, "--fail-if", "tcp-mp.read < 1.0 * baseline", "--csv", "-", &before];
    let error = report(&noise);
    assert_eq!(error.0, Some(2), "a record is not compared with itself: {}", error.2);
}

#[test]
fn the_outcome_is_written_as_junit_and_on_the_page() {
    let dir = temp_dir("report");
    let one = write(dir.path(), "one.json", &record(2.0));
    let file = |name: &str| dir.path().join(name).to_str().expect("UTF-8").to_owned();
    let (xml, page, markdown) = (file("one.xml"), file("one.html"), file("one.md"));
    let outputs = ["--junit", &xml, "--html", &page, "--markdown", &markdown];
    let conditions = ["--fail-if", "tcp-mp.mix-1m.raw.read < 4 GB/s", "--fail-if", "tcp-mp.read.p99 > 1 s"];
    let (code, _, err) = report(&[&outputs[..], &conditions[..], &[&one]].concat());
    assert_eq!(code, Some(1), "{err}");
    let read = |name: &str| std::fs::read_to_string(name).expect("a file");
    let xml = read(&xml);
    assert!(xml.contains(r#"tests="3""#) && xml.contains(r#"failures="1""#), "{xml}");
    assert!(xml.contains("tcp-mp.mix-1m.raw.read &lt; 4 GB/s"), "{xml}");
    assert!(read(&page).contains("<code>tcp-mp.mix-1m.raw.read "), "the page has the conditions");
    assert!(read(&markdown).contains("- **failed**: tcp-mp.mix-1m.raw.read &lt; 4 GB/s"));
    let mut failed = record(2.0);
    failed.fail("a block was wrong");
    let failed = write(dir.path(), "failed.json", &failed);
    let (code, out, _) = report(&["--junit", "-", &failed]);
    assert_eq!(code, Some(1), "a record that failed fails without any condition");
    assert!(out.starts_with("<?xml") && out.contains("a block was wrong"), "{out}");
}

#[test]
fn a_condition_that_cannot_be_judged_is_status_2_and_writes_nothing() {
    let dir = temp_dir("report");
    let one = write(dir.path(), "one.json", &record(2.0));
    let mut few = record(2.0);
    few.routes[0].workloads[0].read.iter_mut().for_each(|cell| cell.repeats.truncate(2));
    let few = write(dir.path(), "few.json", &few);
    for (condition, file, cause) in [
        ("tcp-mp.read < ", &one, "column 15: the end is not the name of a route"),
        ("tcp-mp.read < 1 furlong", &one, "column 17: `furlong` is none of the units"),
        ("tcp.read < 1", &one, "column 1: one.json has no route `tcp`; it has tcp-mp, rdma"),
        ("tcp-mp.mix.read < 1", &one, "has no workload `mix` on `tcp-mp`; it has mix-1m (raw)"),
        ("tcp-mp.write < 1", &one, "has no write of that on `tcp-mp`"),
        ("rdma.read < 1", &one, "which was skipped: no device"),
        ("tcp-mp.read < baseline", &one, "a baseline is needed"),
        ("tcp-mp.read < 1", &few, "few.json has 2 repeats of tcp-mp read of mix-1m, raw; 5 are needed"),
    ] {
        let xml = dir.path().join("out.xml");
        let (code, out, err) =
            report(&["--fail-if", condition, "--junit", xml.to_str().expect("UTF-8"), file]);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{condition}: {err}");
        assert!(err.starts_with("error: cannot ") && err.contains("\n  try:   "), "{condition}: {err}");
        assert!(err.contains(cause), "{condition}: {err}");
        assert!(!xml.exists(), "{condition}");
    }
    let (code, out, _) = report(&["--fail-if", "tcp-mp.read < 4", "--medians", "--csv", "-", &few]);
    assert_eq!(code, Some(1), "{out}");
}

#[test]
fn a_closed_standard_output_changes_neither_the_status_nor_the_files() {
    let dir = temp_dir("report");
    let one = write(dir.path(), "one.json", &record(2.0));
    let xml = dir.path().join("one.xml");
    for (condition, status) in [("tcp-mp.read < 4", 1), ("tcp-mp.read < 1", 0)] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_trunkline"));
        command.args(["report", "--force", "--fail-if", condition, "--junit"]).arg(&xml).arg(&one);
        let output = command.stdout(writer).output().expect("a run");
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(status), "{condition}: {err}");
        let xml = std::fs::read_to_string(&xml).expect("the document is written");
        assert!(xml.contains(&format!(r#"failures="{status}""#)), "{condition}: {xml}");
    }
}

#[test]
fn no_result_overwrites_another_and_no_earlier_outcome_remains() {
    let dir = temp_dir("report");
    let one = write(dir.path(), "one.json", &record(2.0));
    let file = |name: &str| dir.path().join(name).to_str().expect("UTF-8").to_owned();
    let (xml, same) = (file("out.xml"), file("./out.xml"));
    for outputs in [
        ["--html", &xml, "--markdown", &xml],
        ["--markdown", &xml, "--junit", &same],
        ["--csv", "-", "--junit", "/dev/stdout"],
    ] {
        let (code, out, err) = report(&[&outputs[..], &[&one]].concat());
        assert_eq!((code, out.as_str()), (Some(2), ""), "{outputs:?}: {err}");
        assert!(err.contains("cannot write two results to"), "{outputs:?}: {err}");
        assert!(!Path::new(&xml).exists());
    }
    let good = report(&["--junit", &xml, "--fail-if", "tcp-mp.read < 1", &one]);
    assert_eq!((good.0, Path::new(&xml).exists()), (Some(0), true), "{}", good.2);
    let bad = report(&["--junit", &xml, "--force", "--fail-if", "tcp.read < 1", &one]);
    assert_eq!((bad.0, Path::new(&xml).exists()), (Some(2), false), "{}", bad.2);
    let left = std::fs::read_dir(dir.path()).expect("a directory").count();
    assert_eq!(left, 1, "the record alone");
    let (code, _, err) = report(&["--junit", &one, "--force", &one]);
    assert_eq!((code, Path::new(&one).exists()), (Some(2), true), "a record is never removed: {err}");
}

#[test]
fn records_are_compared_in_the_terminal() {
    let dir = temp_dir("report");
    let (before, after) =
        (write(dir.path(), "before.json", &record(2.0)), write(dir.path(), "after.json", &record(1.6)));
    let (code, out, err) = report(&[&before, &after, &before]);
    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains("slower, 0.80 times (95 %: "), "{out}");
    assert!(out.contains("after.json: 0 faster, 1 slower, 0 without a difference shown"), "{out}");
    assert!(out.contains("no difference shown, 1.00 times"), "{out}");
}

#[test]
fn published_results_are_listed_and_shown_beside_a_record() {
    let (code, out, _) = report(&["--published", "list"]);
    assert_eq!(code, Some(0));
    assert!(out.contains("powerscale-f210") && out.contains("sun-7410"), "{out}");
    let dir = temp_dir("report");
    let one = write(dir.path(), "one.json", &record(2.0));
    let (code, out, err) = report(&["--published", "powerscale-f210", &one]);
    assert_eq!(code, Some(0), "{err}");
    assert!(!out.contains("(mix-1m)"), "reads alone are not the reads of a mix: {out}");
    let mut mixed = record(2.0);
    let workload = &mut mixed.routes[0].workloads[0];
    workload.write.clone_from(&workload.read);
    let one = write(dir.path(), "one.json", &mixed);
    let (code, out, err) = report(&["--published", "powerscale-f210", &one]);
    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains("here: 2.00 GB/s (mix-1m)"), "{out}");
    let page = std::fs::read_to_string(dir.path().join("one.html")).expect("a page");
    assert!(page.contains("What does not add up") && page.contains("four PowerScale F210"));
    for (arguments, cause) in [
        (&["--published", "nobody", &one][..], "there is none of this name; there are powerscale-f210"),
        (&["--published", "sun-7410"], "no RECORD was given"),
    ] {
        let (code, out, err) = report(arguments);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{err}");
        assert!(err.contains(cause), "{err}");
    }
}
