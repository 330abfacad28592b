//! Routes to directories: by our engine and by fio, what is left afterwards, and directories that
//! cannot be measured.

use super::{bench, failures, text};
use record::{Cell, Half, Latency, Record};
use rustix::process::Signal;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use testkit::{Process, require_program};

fn entries(directory: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect()
}

fn cell(record: &Record, route: &str, workload: &str) -> Cell {
    let workload = record.route(route).unwrap().workload(workload, Half::Raw).unwrap();
    workload.cells().next().unwrap().1.clone()
}

#[test]
fn both_engines_do_the_same_workloads_in_the_same_directory() {
    let _ = require_program("fio");
    let (directory, measured) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let target = measured.path().display();
    let experiment = format!(
        "repeats = 2\ndirect = false\n\
         [[route]]\nname = 'ours'\ntarget = '{target}'\n\
         [[route]]\nname = 'fio'\ntarget = '{target}'\nengine = 'fio'\n\
         [[workload]]\nname = 'seq'\nblock = '64KiB'\ndepth = 4\nreaders = 2\nfile = '8MiB'\nio = '4MiB'\n\
         [[workload]]\nname = 'rand'\npattern = 'random'\nblock = '4KiB'\ndepth = 3\nwriters = 2\nfile = '1MiB'\nio = '1MiB'\n\
         [[workload]]\nname = 'timed'\nblock = '4KiB'\ndepth = 1\nreaders = 1\nwriters = 1\nfile = '1MiB'\n"
    );
    std::fs::write(directory.path().join("two.toml"), experiment).unwrap();
    let output = bench(directory.path(), &["two.toml", "--record", "two.json"]);
    let said = format!("{}\n{}", text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{said}");
    let read = |name: &str| std::fs::read_to_string(directory.path().join(name)).unwrap();
    let record = Record::read(&read("two.json")).unwrap();
    assert!(failures(&record).is_empty(), "{:?}", record.failed);
    for (route, by) in [("ours", ", by our threads"), ("fio", ", by fio")] {
        let access = record.route(route).unwrap().access.clone().unwrap();
        assert!(access.starts_with("buffered on ") && access.ends_with(by), "{access}");
        for (workload, block, bytes) in [("seq", 64 << 10, 4 << 20), ("rand", 4096, 1 << 20)] {
            let cell = cell(&record, route, workload);
            // Two jobs in each of two repeats, every operation of which has a latency.
            assert_eq!((cell.bytes, cell.ops), (4 * bytes, 4 * bytes / block), "{route} {workload}");
            let latencies = Latency::from_text(&cell.latency_histogram_ns).unwrap();
            assert_eq!(latencies.count(), cell.ops, "{route} {workload}");
            assert!(cell.gbytes_per_s > 0.0 && cell.repeats.len() == 2, "{route} {workload}");
        }
        let timed = record.route(route).unwrap().workload("timed", Half::Raw).unwrap();
        assert!(timed.cells().count() == 2 && timed.cells().all(|(_, cell)| cell.ops > 0), "{route}");
        assert!(timed.note.as_ref().unwrap().contains("page cache"), "{:?}", timed.note);
        for (direction, cell) in timed.cells() {
            // Every operation that has a latency is in one of the intervals.
            let over_time = cell.latency_over_time.as_ref().unwrap();
            assert_eq!(over_time.repeats.len(), 2, "{route} {direction}");
            let counts = over_time.repeats.iter().flat_map(|repeat| repeat.counts().unwrap());
            let calls = |interval: Vec<(usize, u64)>| interval.iter().map(|(_, calls)| calls).sum::<u64>();
            let intervals: Vec<u64> = counts.map(calls).collect();
            let latencies = Latency::from_text(&cell.latency_histogram_ns).unwrap();
            assert_eq!(intervals.iter().sum::<u64>(), latencies.count(), "{route} {direction}");
            assert!(intervals.iter().filter(|calls| **calls > 0).count() > 2, "{route}: {intervals:?}");
        }
    }
    let verified = |route: &str, workload: &str| {
        record.route(route).unwrap().workload(workload, Half::Raw).unwrap().verified
    };
    let seq = verified("ours", "seq").unwrap();
    assert_eq!((seq.stamps, seq.bytes, seq.wrong), (4 * 1024, 16 << 20, 0), "each block has its stamps");
    assert_eq!(verified("ours", "rand").unwrap().bytes, 2 << 20);
    let by_fio = verified("fio", "seq").unwrap();
    assert_eq!((by_fio.stamps, by_fio.bytes), (0, 16 << 20));
    assert_eq!(verified("fio", "rand"), None, "fio writes its own data");
    assert_eq!(record.verdicts.len(), 3, "{:?}", record.verdicts);
    assert!(said.contains("access: ours buffered on "), "{said}");
    let page = read("two.html");
    assert!(page.contains("Access: ours buffered on "), "the page says so too");
    assert!(page.contains("No heat map of ours, fio: its jobs end by their sizes"), "{page}");
    assert!(page.contains("heat map of latency over time of fio, write"), "{page}");
    assert_eq!(entries(measured.path()), [] as [PathBuf; 0], "nothing is left");
}

#[test]
fn targets_on_the_command_line_are_routes_named_by_their_directories() {
    let (directory, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for name in ["tcp", "tcp-mp"] {
        std::fs::create_dir(other.path().join(name)).unwrap();
    }
    let target = |name: &str| other.path().join(name).display().to_string();
    let (one, two) = (target("tcp"), target("tcp-mp"));
    let arguments = ["--quick", "--buffered", "--no-report", "--record", "d.json", &one, &two];
    let output = bench(directory.path(), &arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let record = Record::read(&std::fs::read_to_string(directory.path().join("d.json")).unwrap()).unwrap();
    let names: Vec<&str> = record.routes.iter().map(|route| route.name.as_str()).collect();
    assert_eq!(names, ["tcp", "tcp-mp"]);
    assert!(record.experiment.target.starts_with("directory /"), "{}", record.experiment.target);
    let mix = record.route("tcp-mp").unwrap().workload("mix-1m", Half::Raw).unwrap();
    assert!(mix.verified.unwrap().wrong == 0 && mix.longest_gap_ms.is_some() && mix.read.is_some());
    assert!(entries(&other.path().join("tcp")).is_empty());
}

#[test]
fn repeats_of_the_command_line_replace_those_of_the_file() {
    let (directory, measured) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let experiment = format!(
        "repeats = 9\nwindow_ms = 20\ndirect = false\n[[route]]\nname = 'r'\ntarget = '{}'\n\
         [[workload]]\nname = 'w'\nblock = '4KiB'\ndepth = 1\nreaders = 1\nfile = '1MiB'\n",
        measured.path().display()
    );
    std::fs::write(directory.path().join("r.toml"), experiment).unwrap();
    let run = |repeats| bench(directory.path(), &["r.toml", "--repeats", repeats, "--record", "-"]);
    let output = run("2");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let record = Record::read(&text(&output.stdout)).unwrap();
    assert_eq!((record.experiment.repeats, cell(&record, "r", "w").repeats.len()), (2, 2));
    for wrong in ["0", "1001", "x"] {
        assert_eq!(run(wrong).status.code(), Some(2), "{wrong}");
    }
}

#[test]
fn directories_of_one_file_system_need_room_together() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path();
    let routes = ["one", "two"].map(|name| {
        std::fs::create_dir(path.join(name)).unwrap();
        format!("[[route]]\nname = '{name}'\ntarget = '{}'\n", path.join(name).display())
    });
    let space = rustix::fs::statvfs(path).unwrap();
    // Each has room alone.
    let each = space.f_bavail * space.f_frsize / (1 << 20) * 2 / 3;
    let workload =
        format!("[[workload]]\nname = 'w'\nblock = '1MiB'\ndepth = 1\nreaders = 1\nfile = '{each}MiB'\n");
    std::fs::write(path.join("both.toml"), format!("{}{workload}", routes.concat())).unwrap();
    let output = bench(path, &["both.toml", "--record", "never.json"]);
    let said = text(&output.stderr);
    let needed = (each << 20) * 2;
    let sentence = format!("error: one, two: there is no room for the files: they need {needed} bytes");
    assert!(output.status.code() == Some(1) && said.starts_with(&sentence), "{said}");
    assert!(entries(&path.join("one")).is_empty() && entries(&path.join("two")).is_empty());
}

#[test]
fn a_link_in_the_place_of_a_file_ends_the_run_and_is_not_followed() {
    let (directory, measured) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let victim = directory.path().join("victim");
    std::fs::write(&victim, vec![7; 1 << 20]).unwrap();
    for engine in ["ours", "fio"] {
        let _ = require_program("fio");
        // Each repeat opens the files again, and there are many.
        let experiment = format!(
            "repeats = 1000\nwindow_ms = 20\nengine = '{engine}'\ndirect = false\n\
             [[route]]\nname = 'r'\ntarget = '{}'\n\
             [[workload]]\nname = 'w'\nblock = '4KiB'\ndepth = 1\nwriters = 1\nfile = '1MiB'\n",
            measured.path().display()
        );
        std::fs::write(directory.path().join("link.toml"), experiment).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_trunkline"));
        command.args(["bench", "link.toml", "--record", "never.json"]).current_dir(directory.path());
        let mut bench = Process::spawn(command);
        let deadline = Instant::now() + Duration::from_secs(60);
        let file = loop {
            let made = entries(measured.path()).first().map(|made| made.join("w.0"));
            if let Some(file) = made.filter(|file| file.exists()) {
                break file;
            }
            assert!(Instant::now() < deadline && bench.is_running(), "{}", bench.all_output());
            std::thread::yield_now();
        };
        std::fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink(&victim, &file).unwrap();
        let ended = bench.wait(Duration::from_secs(120));
        let said = bench.all_output();
        assert_eq!(ended.code(), Some(1), "{engine}: {said}");
        assert!(
            said.contains(" is in its place; a directory that only you may write to is safe"),
            "{engine}: {said}"
        );
        assert_eq!(std::fs::read(&victim).unwrap(), vec![7; 1 << 20], "{engine}");
        assert!(entries(measured.path()).is_empty(), "{engine}: the link is removed: {said}");
    }
}

#[test]
fn a_job_file_runs_in_the_directory_itself() {
    let (directory, measured) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let job = "[global]\ndirectory=/mnt/x\nsize=1m\nbs=512\niodepth=2\nioengine=libaio\ndirect=1\nbuffered=0\n\
               end_fsync=1\ninvalidate=1\nthread\nmem_align=4096\n[w]\nrw=randwrite\n\
               [r]\nstonewall\nrw=randrw\nbs=1000,3k\n";
    std::fs::write(directory.path().join("own.fio"), job).unwrap();
    let map = format!("/mnt/x={}", measured.path().display());
    let arguments = ["own.fio", "--map", &map, "--buffered", "--no-report", "--record", "own.json"];
    let output = bench(directory.path(), &arguments);
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    for note in [
        "line 7: direct: directories are measured with O_DIRECT, unless --buffered",
        "line 8: buffered: directories are measured with O_DIRECT, unless --buffered",
        "line 9: end_fsync: nothing is synchronous or followed by fsync(2) in a directory",
        "line 10: invalidate: what the page cache has of the files is dropped before each repeat",
        "line 11: thread: a thread makes each operation in flight",
        "line 12: mem_align: a thread makes each operation in flight",
    ] {
        assert!(said.contains(note), "{note}: {said}");
    }
    assert!(!said.contains("client library"), "it has no part in this: {said}");
    let record = Record::read(&std::fs::read_to_string(directory.path().join("own.json")).unwrap()).unwrap();
    let write = record.routes[0].workload("w", Half::Raw).unwrap();
    assert_eq!(write.write.as_ref().unwrap().bytes, 1 << 20, "each block once");
    assert_eq!(write.verified.unwrap().wrong, 0);
    assert!(entries(measured.path()).is_empty());
}

/// An experiment that would take many hours, in a directory.
fn endless(directory: &Path, measured: &Path, engine: &str) -> Process {
    let experiment = format!(
        "repeats = 100\nwindow_ms = 600000\nengine = '{engine}'\ndirect = false\n\
         [[route]]\nname = 'one'\ntarget = '{}'\n\
         [[workload]]\nname = 'mixed'\nblock = '4KiB'\ndepth = 4\nreaders = 2\nwriters = 2\nfile = '1MiB'\n",
        measured.display()
    );
    std::fs::write(directory.join("endless.toml"), experiment).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_trunkline"));
    command.args(["bench", "endless.toml", "--record", "never.json"]).current_dir(directory);
    let mut bench = Process::spawn(command);
    // All four files are made before the load starts.
    let deadline = Instant::now() + Duration::from_secs(60);
    while entries(measured).first().is_none_or(|made| entries(made).len() < 4) {
        assert!(Instant::now() < deadline && bench.is_running(), "{}", bench.all_output());
        std::thread::yield_now();
    }
    bench
}

#[test]
fn a_signal_ends_either_engine_and_removes_the_files() {
    let _ = require_program("fio");
    for (engine, signal, status) in [("ours", Signal::INT, 130), ("fio", Signal::TERM, 143)] {
        let (directory, measured) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut bench = endless(directory.path(), measured.path(), engine);
        bench.signal(signal);
        let ended = bench.wait(Duration::from_secs(60));
        let said = bench.all_output();
        assert_eq!(ended.code(), Some(status), "{engine}: {said}");
        assert!(said.contains("the files are removed, and no record is written"), "{engine}: {said}");
        assert!(entries(measured.path()).is_empty(), "{engine}: {said}");
        assert!(!directory.path().join("never.json").exists());
    }
}

#[test]
fn a_directory_that_disappears_is_named_and_no_record_is_written() {
    let (directory, measured) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut bench = endless(directory.path(), measured.path(), "ours");
    // The files are open once the threads of the load run.
    let names = || entries(Path::new(&format!("/proc/{}/task", bench.id())));
    let is_load =
        |task: &PathBuf| std::fs::read_to_string(task.join("comm")).is_ok_and(|name| name == "load\n");
    let deadline = Instant::now() + Duration::from_secs(60);
    while !names().iter().any(is_load) {
        assert!(Instant::now() < deadline, "no load");
        std::thread::yield_now();
    }
    let made = entries(measured.path()).remove(0);
    std::fs::remove_dir_all(&made).unwrap();
    bench.signal(Signal::INT);
    let ended = bench.wait(Duration::from_secs(60));
    let said = bench.all_output();
    assert_eq!(ended.code(), Some(130), "{said}");
    assert!(said.contains(&format!("{} remains", made.display())), "{said}");
    assert!(said.contains("No such file") && !directory.path().join("never.json").exists(), "{said}");
}

#[test]
fn directories_that_cannot_be_measured_are_refused_with_cause_and_advice() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let file = path.join("file");
    std::fs::write(&file, "").unwrap();
    let here = path.display();
    let workload = "[[workload]]\nname = 'w'\nblock = '4KiB'\nfile = '1MiB'";
    let refused = [
        (format!("[[route]]\nname = 'r'\ntarget = '{here}/missing'"), "No such file"),
        (format!("[[route]]\nname = 'r'\ntarget = '{}'", file.display()), "not a directory"),
        ("[[route]]\nname = 'r'\ntarget = '/proc/self'".to_owned(), "0 are free"),
        (format!("[[route]]\nname = 'r'\ntarget = '{here}'\noptions = 'nconnect=2'"), "no options"),
        ("[[route]]\nname = 'r'\ntarget = 'here'".to_owned(), "route r: target"),
        ("[[route]]\nname = 'r'\nengine = 'fio'".to_owned(), "engine and direct are for directories"),
        (
            format!(
                "[[route]]\nname = 'r'\ntarget = '{here}'\n[[workload]]\nname = 'w'\nblock = '4KiB'\nfile = '900TiB'\ndepth = 1\nreaders = 100"
            ),
            "there is no room for the files: they need 98956046499840000 bytes",
        ),
        (
            format!("[[route]]\nname = 'r'\ntarget = '{here}'\n{workload}\ndepth = 1024\nreaders = 5"),
            "5120 operations in flight need as many threads",
        ),
        (
            format!(
                "[[route]]\nname = 'r'\ntarget = '{here}'\nengine = 'fio'\n{workload}\ndepth = 1\nreaders = 1\nrate = 10"
            ),
            "when it was due",
        ),
        (format!("pace = '1Gbit/s'\n[[route]]\nname = 'r'\ntarget = '{here}'"), "only an embedded group"),
    ];
    for (experiment, needle) in refused {
        std::fs::write(path.join("bad.toml"), &experiment).unwrap();
        let output = bench(path, &["bad.toml", "--record", "never.json"]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{experiment}: {said}");
        assert!(said.to_lowercase().contains(&needle.to_lowercase()), "{experiment}: {said}");
        assert!(said.starts_with("error: ") && said.contains("  try:   "), "{said}");
        assert!(!path.join("never.json").exists());
    }
    let output = bench(path, &["bad.toml", &here.to_string()]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    let output = bench(path, &["--shrink", "1GiB", &here.to_string()]);
    assert!(text(&output.stderr).contains("--shrink is for fio job files"), "{}", text(&output.stderr));
    assert_eq!(entries(path).iter().filter(|it| it.is_dir()).count(), 0, "nothing is left");
}

#[test]
fn the_engine_auto_is_fio_where_it_is_installed_and_the_record_says_which_it_was() {
    let fio = require_program("fio");
    let directory = tempfile::tempdir().unwrap();
    let (measured, nothing) = (directory.path().join("measured"), directory.path().join("nothing"));
    std::fs::create_dir(&measured).unwrap();
    let experiment = |head: &str| {
        format!(
            "repeats = 1\ndirect = false\n{head}[[route]]\nname = 'here'\ntarget = '{}'\n[[workload]]\nname = 'read'\n\
             block = '4KiB'\ndepth = 1\nreaders = 1\nfile = '64KiB'\nio = '64KiB'\n",
            measured.display()
        )
    };
    std::fs::write(directory.path().join("plain.toml"), experiment("")).unwrap();
    std::fs::write(directory.path().join("auto.toml"), experiment("engine = 'auto'\n")).unwrap();
    let by_option = ["plain.toml", "--engine", "auto"];
    for (arguments, path, by) in [
        (&by_option[..], fio.parent().unwrap(), ", by fio"),
        (&by_option[..], &*nothing, ", by our threads"),
        (&["auto.toml"][..], fio.parent().unwrap(), ", by fio"),
        (&["auto.toml"][..], &*nothing, ", by our threads"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trunkline"));
        command.arg("bench").args(arguments);
        command.args(["--no-report", "--force", "--record", "r.json"]);
        let output = command.env("PATH", path).current_dir(directory.path()).output().unwrap();
        assert!(output.status.success(), "{by}: {}", text(&output.stderr));
        let record = std::fs::read_to_string(directory.path().join("r.json")).unwrap();
        let access = Record::read(&record).unwrap().route("here").unwrap().access.clone().unwrap();
        assert!(access.ends_with(by), "{access}");
    }
}

#[test]
fn a_missing_and_an_old_fio_are_said_with_the_way_out() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let (bin, measured) = (directory.path().join("bin"), directory.path().join("measured"));
    std::fs::create_dir(&bin).unwrap();
    std::fs::create_dir(&measured).unwrap();
    let run = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trunkline"));
        command.args(["bench", "--quick", "--engine", "fio"]).arg(&measured).env("PATH", &bin);
        text(&command.current_dir(directory.path()).output().unwrap().stderr)
    };
    let said = run();
    assert!(said.contains("the program fio is not installed") && said.contains("apt install fio"), "{said}");
    std::fs::write(bin.join("fio"), "#!/bin/sh\necho fio-2.2.10\n").unwrap();
    std::fs::set_permissions(bin.join("fio"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let said = run();
    assert!(said.contains("fio-2.2.10") && said.contains("--engine ours"), "{said}");
    assert!(entries(&measured).is_empty());
}
