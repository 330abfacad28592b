//! The examples for Slurm, with small programs in the place of srun and scontrol, and for Open MPI.

use super::TIMEOUT;
use super::fixture::write_key;
use record::Record;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use testkit::{Process, TempDir, require_program, temp_dir};

/// Starts the program here, and notes its process, as srun does on each node.
const SRUN: &str = "#!/bin/sh\nshift\necho $$ > agent.pid\nexec \"$@\"\n";
const SCONTROL: &str = "#!/bin/sh\necho 127.0.0.1\n";

const PROGRAM: &str = env!("CARGO_BIN_EXE_trunkline");

struct Job {
    directory: TempDir,
}

impl Job {
    fn new(experiment: &str) -> Self {
        let directory = temp_dir("slurm");
        let job = Self { directory };
        let path = job.directory.path();
        job.write("srun", SRUN);
        job.write("scontrol", SCONTROL);
        job.write("trunkline", &format!("#!/bin/sh\nexec {PROGRAM} \"$@\"\n"));
        job.write("my.toml", experiment);
        write_key(&path.join("bench.key"), "0123456789abcdef0123456789abcdef");
        job
    }

    /// A file that can be executed.
    fn write(&self, name: &str, text: &str) {
        let file = self.directory.path().join(name);
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn run(&self, experiment: &str) -> Process {
        self.start("bench.sbatch", &[experiment])
    }

    /// Runs the script for MPI with one host, whose agent's process is noted as Slurm's.
    fn run_with_mpi(&self, experiment: &str) -> Process {
        let _ = require_program("mpirun");
        self.write(
            "trunkline",
            &format!("#!/bin/sh\n[ \"$1\" != agent ] || echo $$ > agent.pid\nexec {PROGRAM} \"$@\"\n"),
        );
        self.write("hosts", "# the hosts of the job\n\n127.0.0.1 slots=2\n");
        self.start("bench-mpi.sh", &["hosts", experiment])
    }

    /// Runs a script in a network of its own, where the agent's port is free.
    fn start(&self, script: &str, arguments: &[&str]) -> Process {
        let path = self.directory.path();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples").join(script);
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-c", "ip link set lo up && exec sh \"$@\"", "sh"]);
        command.arg(script).args(arguments).current_dir(path);
        // The suite is root, which Open MPI refuses unless it is told so twice.
        command.envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")]);
        let search = format!("{}:{}", path.display(), std::env::var("PATH").unwrap_or_default());
        command.env("PATH", search).env("TRUNKLINE_BENCH_KEY", path.join("bench.key"));
        Process::spawn(command)
    }

    /// Whether the agent that was started runs no more.
    fn agent_has_ended(&self) -> bool {
        let number = fs::read_to_string(self.directory.path().join("agent.pid")).expect("it was started");
        let state = fs::read_to_string(format!("/proc/{}/stat", number.trim()));
        state.map_or(true, |state| state.contains(") Z "))
    }
}

/// A job whose server is in the same network.
const MEASURED: &str = "repeats = 1\nwindow_ms = 100\ntarget.nodes = 1\ntarget.mem = '64MiB'\n\
    target.addresses = ['127.0.0.1']\n[[route]]\nname = 'tcp'\n\
    [[workload]]\nname = 'w'\nblock = '4KiB'\ndepth = 1\nreaders = 1\nfile = '256KiB'\n";

/// How a job is started.
type Run = fn(&Job, &str) -> Process;

fn a_job_measures(run: Run) {
    let job = Job::new(MEASURED);
    let mut script = run(&job, "my.toml");
    let ended = script.wait(TIMEOUT);
    let said = script.all_output();
    assert_eq!(ended.code(), Some(0), "{said}");
    assert!(job.agent_has_ended(), "{said}");
    let results = fs::read_dir(job.directory.path().join("trunkline-results")).unwrap();
    let mut files = results.map(|entry| entry.unwrap().path());
    let file = files.find(|file| file.extension().is_some_and(|it| it == "json")).expect("a record");
    let record = Record::read(&fs::read_to_string(file).unwrap()).unwrap();
    let measured = &record.route("tcp").unwrap().workloads[0];
    assert!(measured.clients.len() == 1 && measured.clients[0].ops > 0, "{said}");
}

#[test]
fn a_job_whose_experiment_is_refused_ends_its_agents() {
    let job = Job::new("repeats = \n");
    for (experiment, needle) in [("my.toml", "cannot use my.toml"), ("missing.toml", "missing.toml")] {
        let mut script = job.run(experiment);
        let ended = script.wait(TIMEOUT);
        let said = script.all_output();
        assert_eq!(ended.code(), Some(1), "the status of bench: {said}");
        assert!(said.contains(needle), "{said}");
        assert!(job.agent_has_ended(), "{said}");
    }
}

#[test]
fn a_job_measures_on_its_nodes_and_leaves_nothing() {
    a_job_measures(Job::run);
}

#[test]
fn a_job_of_mpi_that_an_agent_refuses_ends_its_agents() {
    let job = Job::new("[[route]]\nname = 'here'\ntarget = '/never-allowed'\n");
    let mut script = job.run_with_mpi("my.toml");
    let ended = script.wait(TIMEOUT);
    let said = script.all_output();
    assert_eq!(ended.code(), Some(1), "the status of bench: {said}");
    assert!(said.contains("--allow-dir"), "{said}");
    assert!(job.agent_has_ended(), "{said}");
    // Nothing is started for a file that is not there.
    let mut script = job.run_with_mpi("missing.toml");
    assert_eq!(script.wait(TIMEOUT).code(), Some(1), "{}", script.all_output());
}

#[test]
fn a_job_of_mpi_measures_on_its_hosts_and_leaves_nothing() {
    a_job_measures(Job::run_with_mpi);
}
