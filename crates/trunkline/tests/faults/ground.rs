//! Where faults happen: four shaped links in network namespaces, a server at their far ends, and this thread, which
//! has moved to the near ones.

use super::history::Store;
use client::{Mount, Settings};
use lab::net::{Net, Rate, Spec};
use rustix::process::Signal;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::net::IpAddr;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use testkit::{Process, TempDir, require_program};

pub const NODES: u8 = 4;
const PORT: u16 = 2049;
/// Each link's speed: together they are far below what two processors can move, so that it is the links that bind.
const RATE: &str = "200mbit";
const SLOW_RATE: &str = "20mbit";
const SOON: Duration = Duration::from_secs(60);

/// What happens to a path, a server, or all paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    LinkDown,
    Silent,
    Reset,
    Kill,
    Freeze,
    Slow,
    Flap,
    AllGone,
}

impl Fault {
    pub const ALL: [Self; 8] = [
        Self::LinkDown,
        Self::Silent,
        Self::Reset,
        Self::Kill,
        Self::Freeze,
        Self::Slow,
        Self::Flap,
        Self::AllGone,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::LinkDown => "link down",
            Self::Silent => "packets dropped silently",
            Self::Reset => "connections reset",
            Self::Kill => "server killed and started again",
            Self::Freeze => "server frozen and thawed",
            Self::Slow => "ten times slower",
            Self::Flap => "flapping each second",
            Self::AllGone => "all paths gone",
        }
    }

    /// What must be served for it: what is in memory does not outlive its process.
    pub const fn store(self) -> Store {
        match self {
            Self::Kill => Store::ByParts,
            _ => Store::Whole,
        }
    }

    /// How many of the four paths go on meanwhile.
    pub const fn paths_left(self) -> u32 {
        match self {
            Self::LinkDown | Self::Silent | Self::Reset | Self::Slow | Self::Flap => 3,
            Self::Kill | Self::Freeze | Self::AllGone => 0,
        }
    }

    /// How long a call may wait at most: what is aimed at, where another path is there to go to.
    pub const fn gap_ms_max(self) -> Option<f64> {
        match self {
            Self::LinkDown | Self::Silent | Self::Slow | Self::Flap => Some(1000.0),
            Self::Reset => Some(100.0),
            Self::Kill | Self::Freeze | Self::AllGone => None,
        }
    }
}

/// See the module's documentation. Dropping it ends the server and removes the links.
pub struct Ground {
    // In this order: the server goes before the network that it is in.
    server: Option<Process>,
    net: Net,
    directory: TempDir,
    store: Store,
}

impl Ground {
    /// Builds the network, starts the server, and moves this thread to the client's side. Threads that it starts are
    /// there too.
    pub fn build(store: Store) -> Self {
        let rate: Rate = RATE.parse().expect("a rate");
        let net = match Net::start(&Spec::new(NODES, rate)) {
            Ok(net) => net,
            Err(error) => panic!("cannot start a lab: {error}"),
        };
        let shm = std::path::Path::new("/dev/shm");
        let place = if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
        let directory = tempfile::Builder::new().prefix("trunkline-faults-").tempdir_in(place).expect("made");
        let mut ground = Self { server: None, net, directory, store };
        ground.start_server();
        let inside = ground.net.exec_in("client", &Command::new("true")).expect("there is a client");
        // `ip netns exec NAME true`
        let name = inside.get_args().nth(2).expect("a namespace").to_string_lossy().into_owned();
        let namespace = std::fs::File::open(format!("/run/netns/{name}")).expect("the namespace has a name");
        move_into_link_name_space(std::os::fd::AsFd::as_fd(&namespace), Some(LinkNameSpaceType::Network))
            .expect("root may move to another namespace");
        ground
    }

    fn start_server(&mut self) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trunkline"));
        command.arg("serve");
        match self.store {
            Store::Whole => command.args(["--mem", "512MiB"]),
            Store::ByParts => {
                let [data, state] = ["data", "state"].map(|name| self.directory.path().join(name));
                for directory in [&data, &state] {
                    std::fs::create_dir_all(directory).expect("made");
                }
                command.arg("--dir").arg(data).arg("--state").arg(state).arg("--no-root-squash")
            }
        };
        command.args(["--export", "/export"]);
        for link in self.net.links() {
            command.args(["--listen", &format!("{}:{PORT}", link.node)]);
        }
        let process = Process::spawn(self.net.exec_in("nodes", &command).expect("there are nodes"));
        process.wait_for_line("ready", SOON);
        self.server = Some(process);
    }

    /// The server's process.
    pub fn server(&self) -> &Process {
        self.server.as_ref().expect("the server has been started")
    }

    pub fn mount(&self) -> Arc<Mount> {
        let remotes: Vec<IpAddr> = self.net.links().iter().map(|link| IpAddr::V4(link.node)).collect();
        let settings = Settings {
            nconnect: 8,
            loops: 2,
            remotes: remotes.clone(),
            ..Settings::new(remotes[0], PORT, "/export")
        };
        Arc::new(Mount::with_settings(settings).expect("it mounts"))
    }

    fn links(&self, fault: Fault, path: usize) -> Vec<String> {
        let names = self.net.links().iter().map(|link| link.name.clone());
        if fault == Fault::AllGone { names.collect() } else { names.skip(path).take(1).collect() }
    }

    /// Lets it happen. For [`Fault::Flap`] this is one failure of many.
    pub fn strike(&mut self, fault: Fault, path: usize) {
        for link in self.links(fault, path) {
            match fault {
                Fault::LinkDown => self.net.cut(&link).expect("cut"),
                Fault::AllGone | Fault::Flap => self.net.drop_silently(&link).expect("silenced"),
                Fault::Silent => self.filter(&link, "drop"),
                Fault::Reset => self.filter(&link, "reject with tcp reset"),
                Fault::Slow => self.shape(&link, SLOW_RATE),
                Fault::Kill => {
                    self.server().signal(Signal::KILL);
                    // Its addresses are free only when it is gone.
                    self.server = None;
                    self.start_server();
                }
                Fault::Freeze => self.server().signal(Signal::STOP),
            }
        }
    }

    /// Undoes it.
    pub fn heal(&mut self, fault: Fault, path: usize) {
        for link in self.links(fault, path) {
            match fault {
                Fault::LinkDown | Fault::AllGone | Fault::Flap => self.net.restore(&link).expect("restored"),
                Fault::Silent | Fault::Reset => self.in_nodes("nft delete table inet faults"),
                Fault::Slow => self.shape(&link, RATE),
                Fault::Kill => {}
                Fault::Freeze => self.server().signal(Signal::CONT),
            }
        }
    }

    /// Drops every segment that comes over this link to the server, or answers it by a reset.
    fn filter(&self, link: &str, verdict: &str) {
        self.in_nodes("nft add table inet faults");
        self.in_nodes("nft add chain inet faults input { type filter hook input priority 0 ; }");
        self.in_nodes(&format!("nft add rule inet faults input iifname {link} tcp dport {PORT} {verdict}"));
        if verdict == "drop" {
            self.in_nodes("nft add chain inet faults output { type filter hook output priority 0 ; }");
            self.in_nodes(&format!("nft add rule inet faults output oifname {link} drop"));
        }
    }

    fn shape(&self, link: &str, rate: &str) {
        let line =
            format!("tc qdisc change dev {link} root handle 1: tbf rate {rate} burst 131072 latency 20ms");
        self.run_in("nodes", &line);
        self.run_in("client", &line);
    }

    fn in_nodes(&self, line: &str) {
        self.run_in("nodes", line);
    }

    fn run_in(&self, namespace: &str, line: &str) {
        let mut words = line.split(' ');
        let mut command = Command::new(require_program(words.next().expect("a program")));
        command.args(words);
        let output = self.net.exec_in(namespace, &command).expect("it is there").output().expect("it runs");
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
