//! Directories of clients: measured where an agent allows it, and nothing left of it, however it
//! ends. All agents are on this machine, so that their directories of one name are one, with a
//! directory of its own for each.

use super::failures;
use super::fixture::{trunkline, write_key};
use record::{Half, Record};
use rustix::process::Signal;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use testkit::{Process, TempDir, temp_dir};

const TIMEOUT: Duration = super::TIMEOUT;

struct Place {
    directory: TempDir,
}

impl Place {
    fn new() -> Self {
        let directory = temp_dir("directories");
        write_key(&directory.path().join("key"), "0123456789abcdef");
        for name in ["measured", "closed"] {
            fs::create_dir(directory.path().join(name)).unwrap();
        }
        Self { directory }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn measured(&self) -> PathBuf {
        self.path().join("measured")
    }

    /// The names of what is in the measured directory.
    fn entries(&self) -> Vec<PathBuf> {
        fs::read_dir(self.measured()).unwrap().map(|entry| entry.unwrap().path()).collect()
    }

    /// An agent with these options, and its address.
    fn agent(&self, options: &[&str]) -> (Process, String) {
        let mut command = trunkline();
        command.args(["-v", "agent", "--listen", "127.0.0.1:0", "--key", "key"]).args(options);
        let agent = Process::spawn({
            command.current_dir(self.path());
            command
        });
        let line = agent.wait_for_line("ready on", TIMEOUT);
        (agent, line.trim_start_matches("ready on ").trim().to_owned())
    }

    /// An experiment on a directory, with more lines.
    fn experiment(&self, directory: &Path, head: &str, workload: &str) {
        let text = format!(
            "direct = false\n{head}\n[[route]]\nname = \"dir\"\ntarget = \"{}\"\n{}{workload}",
            directory.display(),
            super::WORKLOAD
        );
        fs::write(self.path().join("experiment.toml"), text).unwrap();
    }

    fn bench(&self, options: &[&str]) -> std::process::Command {
        let mut command = trunkline();
        command.args(["bench", "experiment.toml", "--no-report", "--force", "--record", "record.json"]);
        command.args(["--client-key", "key"]).args(options).current_dir(self.path());
        command
    }

    fn record(&self, options: &[&str]) -> Record {
        let output = self.bench(options).output().unwrap();
        let text = fs::read_to_string(self.path().join("record.json"));
        let text = text.unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
        Record::read(&text).unwrap()
    }

    /// The message of an experiment that is refused before anything is made.
    fn refused(&self, options: &[&str]) -> String {
        let output = self.bench(options).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(!self.path().join("record.json").exists() && self.entries().is_empty(), "{said}");
        said
    }
}

#[test]
fn each_client_measures_a_directory_of_its_own_and_steps_add_clients() {
    let place = Place::new();
    let allowed = place.measured().display().to_string();
    let [(_a, one), (_b, two)] = [0; 2].map(|_| place.agent(&["--allow-dir", &allowed]));
    place.experiment(&place.measured(), "repeats = 3\nwindow_ms = 100", "steps = { clients = [1, 2] }\n");
    let record = place.record(&["--client", &format!("a={one},b={two}")]);
    assert!(failures(&record).is_empty(), "{:?}", record.failed);
    let route = record.route("dir").unwrap();
    let access = route.access.clone().unwrap();
    assert!(access.starts_with("buffered on ") && access.ends_with("on each client"), "{access}");
    for (name, clients) in [("mix x1 client", 1), ("mix x2 clients", 2)] {
        let workload = route.workload(name, Half::Raw).unwrap();
        assert_eq!(workload.clients.len(), clients, "{name}");
        assert!(workload.clients.iter().all(|client| client.ops > 0 && client.lost.is_none()), "{name}");
        let verified = workload.verified.unwrap();
        assert_eq!((verified.bytes, verified.wrong), (clients as u64 * 2 * (256 << 10), 0), "{name}");
        assert!(verified.stamps > 0 && workload.cells().count() == 2, "{name}");
        assert!(workload.note.as_ref().unwrap().contains("page caches of the clients"), "{name}");
    }
    assert_eq!(place.entries(), [] as [PathBuf; 0]);
}

#[test]
fn an_agent_opens_no_directory_unless_its_owner_allows_it() {
    let place = Place::new();
    let (_closed, closed) = place.agent(&[]);
    let (_open, open) = place.agent(&["--allow-dir", "measured"]);
    place.experiment(&place.measured(), "", "");
    let said = place.refused(&["--client", &format!("a={open},b={closed}")]);
    let sentence = format!("error: dir: cannot measure {} on client b\n", place.measured().display());
    assert!(said.starts_with(&sentence), "{said}");
    assert!(said.contains(&format!("trunkline agent --allow-dir {} ", place.measured().display())), "{said}");
    std::os::unix::fs::symlink(place.path().join("closed"), place.measured().join("link")).unwrap();
    place.experiment(&place.measured().join("link"), "", "");
    let output = place.bench(&["--client", &open]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("--allow-dir") && output.status.code() == Some(1), "a link leads out: {said}");
    fs::remove_file(place.measured().join("link")).unwrap();
    place.experiment(&place.measured().join("absent"), "", "");
    assert!(place.refused(&["--client", &open]).contains("No such file"), "it may know what is not there");
    for (head, workload, cause) in [
        ("engine = \"fio\"", "", "an agent runs no programs"),
        (
            "",
            "[[workload]]\nname = \"s\"\nblock = \"4KiB\"\nfile = \"4KiB\"\ndepth = 1\nreaders = 1\nshared = true\n",
            "shared = true",
        ),
        ("", "[[route]]\nname = \"k\"\ntarget = \"kernel:nfs://127.0.0.1/x\"\n", "--allow-dir"),
        (
            "",
            "[[workload]]\nname = \"s\"\nblock = \"4KiB\"\nfile = \"900TiB\"\ndepth = 1\nreaders = 9\n",
            "dir on a: there is no room",
        ),
    ] {
        place.experiment(&place.measured(), head, workload);
        let said = place.refused(&["--client", &format!("a={open}")]);
        assert!(said.contains(cause), "{cause}: {said}");
    }
    let output = trunkline().args(["agent", "--stdio", "--allow-dir", "/not/there"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.code() == Some(1) && said.starts_with("error: cannot allow /not/there\n"),
        "{said}"
    );
}

#[test]
fn files_are_removed_when_bench_is_stopped_or_killed() {
    let place = Place::new();
    place.experiment(&place.measured(), "repeats = 2\nwindow_ms = 600000", "");
    for is_stopped in [true, false] {
        let (agent, address) = place.agent(&["--allow-dir", "measured"]);
        let mut bench = Process::spawn(place.bench(&["--client", &format!("a={address}")]));
        agent.wait_for_line("load starts", TIMEOUT);
        assert_eq!(place.entries().len(), 1);
        if is_stopped {
            bench.signal(Signal::INT);
            assert_eq!(bench.wait(TIMEOUT).code(), Some(130), "{}", bench.all_output());
            assert_eq!(place.entries(), [] as [PathBuf; 0], "before bench ends");
        } else {
            bench.kill();
            agent.wait_for_line("has ended", TIMEOUT);
        }
        let deadline = Instant::now() + TIMEOUT;
        while !place.entries().is_empty() {
            assert!(Instant::now() < deadline, "{:?}", place.entries());
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_job_file_runs_on_each_client_with_files_of_its_own() {
    let place = Place::new();
    let [(_a, one), (_b, two)] = [0; 2].map(|_| place.agent(&["--allow-dir", "measured"]));
    let clients = format!("a={one},b={two}");
    let server = testkit::ServerProcess::start_on_free_port(trunkline, |port| {
        ["--mem", "64MiB", "--listen", &format!("127.0.0.1:{port}")].map(str::to_owned).to_vec()
    });
    let job = "[global]\ndirectory=/mnt/x\nsize=100000\nioengine=libaio\niodepth=3\n\
               [w]\nrw=randwrite\nbs=1000\nnumjobs=2\n[r]\nstonewall\nbs=4k\ntime_based\nruntime=300ms\nrate_iops=100\n";
    fs::write(place.path().join("job.fio"), job).unwrap();
    let run = |target: &str, options: &[&str]| {
        let mut command = trunkline();
        command.args([
            "bench",
            "job.fio",
            "--map",
            &format!("/mnt/x={target}"),
            "--buffered",
            "--client-key",
            "key",
        ]);
        command
            .args(["--client", &clients, "--no-report", "--force", "--record", "record.json"])
            .args(options);
        command.current_dir(place.path()).output().unwrap()
    };
    let export = format!("nfs://127.0.0.1:{}/export", server.port());
    for target in [&place.measured().display().to_string(), &export] {
        let output = run(target, &[]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let record = Record::read(&fs::read_to_string(place.path().join("record.json")).unwrap()).unwrap();
        assert!(failures(&record).is_empty(), "{target}: {:?}: {said}", record.failed);
        let write = record.routes[0].workload("w", Half::Raw).unwrap();
        // Two clones on each of two clients, each of which writes each block of its file once.
        assert_eq!(write.write.as_ref().unwrap().ops, 4 * 100, "{target}");
        assert_eq!((write.clients.len(), write.verified.unwrap().bytes), (2, 400_000), "{target}");
        let read = record.routes[0].workload("r", Half::Raw).unwrap();
        assert!(read.clients.iter().all(|client| client.ops > 0), "{target}");
        assert_eq!(record.experiment.workloads[1].rate_ops_per_s, Some(100.0), "{target}");
        assert_eq!(place.entries(), [] as [PathBuf; 0]);
        fs::remove_file(place.path().join("record.json")).unwrap();
    }
    let listed = trunkline().args(["ls", &export]).output().unwrap();
    assert!(listed.status.success() && listed.stdout.is_empty(), "{listed:?}");
    let output = run(&export, &["--fio-json", "out.json"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.code() == Some(1) && said.contains("--fio-json: the results of single jobs"),
        "{said}"
    );
}

#[test]
fn an_agent_that_bench_starts_may_measure_the_directories_of_the_experiment() {
    let place = Place::new();
    place.experiment(&place.measured(), "repeats = 2\nwindow_ms = 50", "");
    let program = env!("CARGO_BIN_EXE_trunkline");
    // nice -n 1 PROGRAM agent ...
    let options = ["--ssh", "nice -n", "--client-program", program, "--client", "a=ssh:1"];
    let record = place.record(&options);
    assert!(failures(&record).is_empty(), "{:?}", record.failed);
    assert_eq!(record.route("dir").unwrap().workloads[0].clients[0].name, "a");
    assert_eq!(place.entries(), [] as [PathBuf; 0]);
}
