//! A server and a coordinator in one network namespace, and agents in others.

use lab::net::{Layout, Net, Spec};
use record::Record;
use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};
use testkit::{Process, ServerProcess, TempDir, temp_dir};

use super::TIMEOUT;

/// A small workload, to which lines can be added.
pub const WORKLOAD: &str = "[[workload]]\nname = \"mix\"\npattern = \"random\"\nblock = \"4KiB\"\n\
    depth = 2\nreaders = 1\nwriters = 1\nfile = \"256KiB\"\n";

/// The lab: its `client` namespace has the server and the coordinator, its nodes are the clients.
pub struct Testbed {
    net: Net,
    directory: TempDir,
    _server: ServerProcess,
}

pub fn trunkline() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trunkline"));
    command.env_remove("TRUNKLINE_LAB");
    command
}

impl Testbed {
    /// A lab with this many clients, and a server at 10.77.1.1 that all of them reach.
    pub fn start(clients: u8) -> Self {
        let spec = Spec { layout: Layout::Apart, rate: None, ..Spec::new(clients, "1gbit".parse().unwrap()) };
        let net = Net::start(&spec).unwrap_or_else(|error| panic!("cannot start a lab: {error}"));
        let inside = net.exec_in("client", &trunkline()).unwrap();
        let server = ServerProcess::start(
            inside,
            &[
                "--mem",
                "512MiB",
                "--export",
                "/data",
                "--listen",
                "10.77.1.1:2049",
                "--listen",
                "10.77.2.1:2049",
                "--allow",
                "10.77.0.0/16",
            ],
        );
        let directory = temp_dir("agents");
        write_key(&directory.path().join("key"), "0123456789abcdef0123456789abcdef");
        Self { net, directory, _server: server }
    }

    /// The full name of a client's namespace.
    pub fn namespace(&self, client: u8) -> String {
        self.net.state().full_name(&format!("node{client}"))
    }

    /// Has the network of a client drop every packet.
    pub fn silence(&self, client: u8) {
        self.net.drop_silently(&format!("n{client}")).expect("the link is there");
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Starts the agents of the first clients.
    pub fn agents(&self, clients: u8) -> Vec<Process> {
        let start = |client: u8| {
            let mut command = trunkline();
            command.args(["-v", "agent", "--listen", &format!("10.77.{client}.2"), "--key"]);
            command.arg(self.file("key"));
            Process::spawn(self.net.exec_in(&format!("node{client}"), &command).unwrap())
        };
        let agents: Vec<Process> = (1..=clients).map(start).collect();
        for agent in &agents {
            agent.wait_for_line("ready on", TIMEOUT);
        }
        agents
    }

    /// The option that names the first clients `c1` and so on.
    pub fn clients(&self, clients: u8) -> String {
        let each = (1..=clients).map(|client| format!("c{client}=10.77.{client}.2"));
        each.collect::<Vec<_>>().join(",")
    }

    fn command(&self, experiment: &str, options: &[&str]) -> Command {
        fs::write(self.file("experiment.toml"), experiment).unwrap();
        let mut command = trunkline();
        command.arg("bench").arg(self.file("experiment.toml")).args(options).arg("--client-key");
        command
            .arg(self.file("key"))
            .args(["--no-report", "--force", "--record"])
            .arg(self.file("record.json"));
        self.net.exec_in("client", &command).unwrap()
    }

    /// Starts an experiment.
    pub fn start_bench(&self, experiment: &str, options: &[&str]) -> Process {
        Process::spawn(self.command(experiment, options))
    }

    /// The status and the record of a started experiment.
    pub fn finish_bench(&self, mut bench: Process) -> (Option<i32>, Record) {
        let status = bench.wait(TIMEOUT);
        let text = fs::read_to_string(self.file("record.json"));
        let text = text.unwrap_or_else(|error| panic!("{error}: {}", bench.all_output()));
        (status.code(), Record::read(&text).unwrap())
    }

    /// Runs an experiment and reads its record.
    pub fn bench(&self, experiment: &str, options: &[&str]) -> (Output, Record) {
        let output = self.command(experiment, options).output().unwrap();
        let text = fs::read_to_string(self.file("record.json"));
        let text = text.unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
        (output, Record::read(&text).unwrap())
    }

    /// The message of an experiment that is refused.
    pub fn refused(&self, experiment: &str, options: &[&str]) -> String {
        let output = self.command(experiment, options).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(!self.file("record.json").exists(), "no record is written");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// Checks that no experiment has left anything on the server.
    pub fn assert_empty(&self) {
        let mut command = trunkline();
        command.args(["ls", "nfs://10.77.1.1/data"]);
        let output = self.net.exec_in("client", &command).unwrap().output().unwrap();
        assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
    }
}

/// Writes a key that only its owner can read.
pub fn write_key(file: &std::path::Path, key: &str) {
    let mut options = fs::OpenOptions::new();
    options.create(true).truncate(true).write(true).mode(0o600);
    options.open(file).unwrap().write_all(key.as_bytes()).unwrap();
}

/// Checks by the times in the agents' logs that in each of the last repeats, all were ready before
/// any started. All agents run on one machine, with one clock.
pub fn assert_ready_before_start(agents: &[Process], repeats: usize) {
    let times = |agent: &Process, what: &str| -> Vec<String> {
        let output = agent.all_output();
        let lines = output.lines().filter(|line| line.ends_with(what));
        let mut times: Vec<String> = lines.map(|line| line.split(' ').next().unwrap().to_owned()).collect();
        times.split_off(times.len().checked_sub(repeats).unwrap_or_else(|| panic!("{what}: {output}")))
    };
    let of_all = |what: &str| agents.iter().map(|agent| times(agent, what)).collect::<Vec<_>>();
    let (ready, started) = (of_all("ready for a load"), of_all("load starts"));
    for repeat in 0..repeats {
        let last_ready = ready.iter().map(|times| &times[repeat]).max().unwrap();
        let first_start = started.iter().map(|times| &times[repeat]).min().unwrap();
        assert!(last_ready < first_start, "ready at {last_ready}, started at {first_start}");
    }
}
