//! The testbed of the faults: four shaped links in network namespaces, a server at their far ends,
//! and this thread, which has moved to the near ends. The server is one process that serves memory,
//! or a group of four processes that serve a directory.

use super::history::Store;
use crate::mounts::{MOUNT_TIMEOUT, Mounted};
use client::options::Version;
use client::{Mount, Settings};
use lab::net::{Net, Rate, Spec};
use rustix::process::Signal;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::net::IpAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread::park_timeout as pass;
use std::time::{Duration, Instant};
use testkit::{Process, ServerProcess, TempDir, require_program};

pub const NODES: u8 = 4;
pub const PORT: u16 = 2049;
/// The speed of each link: together far below what two processors can move, so that the links are
/// the bottleneck.
const RATE: &str = "200mbit";
const SLOW_RATE: &str = "20mbit";
/// A link that flaps is silent for this long, then carries data for this long.
const FLAP: Duration = Duration::from_millis(500);
const TIMEOUT: Duration = Duration::from_secs(60);

/// A fault of a path, of a server, or of all paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    LinkDown,
    Silent,
    Reset,
    Kill,
    KillAll,
    Freeze,
    Slow,
    Flap,
    AddressGone,
    AllGone,
}

impl Fault {
    pub const ALL: [Self; 10] = [
        Self::LinkDown,
        Self::Silent,
        Self::Reset,
        Self::Kill,
        Self::KillAll,
        Self::Freeze,
        Self::Slow,
        Self::Flap,
        Self::AddressGone,
        Self::AllGone,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::LinkDown => "link down",
            Self::Silent => "packets dropped silently",
            Self::Reset => "connections reset",
            Self::Kill => "node killed and started again",
            Self::KillAll => "all nodes killed and started again",
            Self::Freeze => "node frozen and thawed",
            Self::Slow => "ten times slower",
            Self::Flap => "flapping each second",
            Self::AddressGone => "local address gone",
            Self::AllGone => "all paths gone",
        }
    }

    /// Whether nftables causes the fault; nftables counts what it has stopped.
    pub const fn filters(self) -> bool {
        matches!(self, Self::Silent | Self::Reset)
    }

    /// The store that the fault needs: nodes that fail one by one are processes, which share a
    /// directory.
    pub const fn store(self) -> Store {
        match self {
            Self::Kill | Self::KillAll | Self::Freeze => Store::ByParts,
            _ => Store::Whole,
        }
    }

    /// Whether processes are killed, which may have executed calls without replying.
    pub const fn kills(self) -> bool {
        matches!(self, Self::Kill | Self::KillAll)
    }

    /// The local addresses that the fault needs.
    pub const fn origin(self) -> Origin {
        match self {
            Self::AddressGone => Origin::EachAddress,
            _ => Origin::Anywhere,
        }
    }

    /// How many of the four paths work during the fault.
    pub const fn paths_left(self) -> u32 {
        match self {
            Self::AllGone | Self::KillAll => 0,
            _ => 3,
        }
    }

    /// The aim for the longest wait of a call, where another path works.
    pub const fn gap_ms_max(self) -> Option<f64> {
        match self {
            Self::Reset => Some(100.0),
            Self::AllGone | Self::KillAll => None,
            _ => Some(1000.0),
        }
    }
}

/// The local addresses of a mount's connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The system chooses an address: two connections to each node.
    Anywhere,
    /// One connection from each of the client's four addresses to each node. Replies return over
    /// the link of the address.
    EachAddress,
}

impl Origin {
    pub const fn connections(self) -> u16 {
        match self {
            Self::Anywhere => 2 * NODES as u16,
            Self::EachAddress => NODES as u16 * NODES as u16,
        }
    }
}

/// The version of NFS of the mounts of [`FaultTestbed::mount`].
fn version() -> Version {
    match std::env::var("TRUNKLINE_TEST_NFS_VERSION").as_deref() {
        Err(_) | Ok("3") => Version::V3,
        Ok("4.1") => Version::V4(Some(1)),
        Ok("4.2") => Version::V4(Some(2)),
        Ok(other) => panic!("{other} is no version that is tested"),
    }
}

/// See the module's documentation. Dropping the testbed ends the server and removes the links.
pub struct FaultTestbed {
    // In this order, because the servers must end before their network.
    servers: Vec<Process>,
    net: Net,
    directory: TempDir,
    store: Store,
    /// The client's namespace. A program that mounts must enter only its network, and keep the
    /// mounts of this process.
    client: String,
    /// The number of segments that filters have stopped since [`FaultTestbed::take_stopped`].
    stopped: u64,
}

impl FaultTestbed {
    /// Builds the network, starts the server, and moves this thread to the client's side. Threads
    /// that it starts later are there too.
    pub fn build(store: Store) -> Self {
        // Checked at once, not when a fault first needs the program.
        ["ip", "nft", "nsenter", "tc"].into_iter().for_each(|program| drop(require_program(program)));
        let rate: Rate = RATE.parse().expect("a rate");
        let net = match Net::start(&Spec::new(NODES, rate)) {
            Ok(net) => net,
            Err(error) => panic!("cannot start a lab: {error}"),
        };
        let shm = Path::new("/dev/shm");
        let place = if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
        let directory = tempfile::Builder::new().prefix("trunkline-faults-").tempdir_in(place).expect("made");
        let inside = net.exec_in("client", &Command::new("true")).expect("the client's namespace exists");
        // `ip netns exec NAME true`
        let name = inside.get_args().nth(2).expect("a namespace").to_string_lossy().into_owned();
        let mut testbed =
            Self { servers: Vec::new(), net, directory, store, client: name.clone(), stopped: 0 };
        testbed.start_servers();
        testbed.take_from_any_link();
        let namespace = std::fs::File::open(format!("/run/netns/{name}")).expect("the namespace has a name");
        move_into_link_name_space(std::os::fd::AsFd::as_fd(&namespace), Some(LinkNameSpaceType::Network))
            .expect("root may move to another namespace");
        testbed
    }

    /// A reply to an address may arrive over another link than the call left by, so no host may
    /// drop such packets as forged.
    fn take_from_any_link(&self) {
        let mut script = Command::new("sh");
        let all = "/proc/sys/net/ipv4/conf/*/rp_filter";
        script
            .args(["-c", &format!("for one in {all}; do grep -qx 0 $one || echo 0 > $one || exit 1; done")]);
        for namespace in ["nodes", "client"] {
            let status = self.net.exec_in(namespace, &script).expect("the namespace exists").status();
            assert!(status.expect("the script runs").success());
        }
    }

    fn start_servers(&mut self) {
        self.servers = match self.store {
            Store::Whole => vec![self.start_server(0..usize::from(NODES))],
            Store::ByParts => {
                for directory in ["data", "state"] {
                    std::fs::create_dir_all(self.directory.path().join(directory)).expect("made");
                }
                (0..usize::from(NODES)).map(|node| self.start_server(node..node + 1)).collect()
            }
        };
    }

    /// Starts a process that serves these nodes.
    fn start_server(&self, nodes: Range<usize>) -> Process {
        let mut arguments: Vec<String> = match self.store {
            Store::Whole => ["--mem", "512MiB"].map(str::to_owned).to_vec(),
            Store::ByParts => {
                let [data, state, group] = ["data", "state", "group"]
                    .map(|name| self.directory.path().join(name).display().to_string());
                let words = ["--dir", &data, "--state", &state, "--group", &group, "--no-root-squash"];
                words.map(str::to_owned).to_vec()
            }
        };
        let mut add = |word: &str, value: String| arguments.extend([word.to_owned(), value]);
        add("--export", "/export".to_owned());
        if version() != Version::V3 {
            add("--nfs-versions", "3,4.1,4.2".to_owned());
        }
        // By default a process admits only the subnet of its own listener, and a client connects
        // from any of its addresses.
        self.net.links().iter().for_each(|link| add("--allow", format!("{}/24", link.client)));
        self.net.links()[nodes].iter().for_each(|link| add("--listen", format!("{}:{PORT}", link.node)));
        let program = Command::new(env!("CARGO_BIN_EXE_trunkline"));
        ServerProcess::start(self.net.exec_in("nodes", &program).expect("there are nodes"), &arguments)
            .process
    }

    /// The processes of the server.
    pub fn servers(&self) -> &[Process] {
        &self.servers
    }

    /// Kills the processes of these nodes, and waits until they have ended: their addresses are
    /// free only then.
    fn kill(&mut self, nodes: Range<usize>) {
        self.servers[nodes.clone()].iter().for_each(|server| server.signal(Signal::KILL));
        for server in &mut self.servers[nodes] {
            server.wait(TIMEOUT);
        }
    }

    /// Starts these nodes again, one after the other.
    fn start_again(&mut self, nodes: Range<usize>) {
        nodes.for_each(|node| self.servers[node] = self.start_server(node..node + 1));
    }

    /// Our program on the client's side. Unlike with `ip netns exec`, its mounts are visible to
    /// all.
    pub fn trunkline_beside(&self) -> Command {
        let mut command = Command::new(require_program("nsenter"));
        command.arg(format!("--net=/run/netns/{}", self.client)).arg(env!("CARGO_BIN_EXE_trunkline"));
        command
    }

    /// The addresses of the nodes, one behind each link.
    pub fn addresses(&self) -> Vec<IpAddr> {
        self.net.links().iter().map(|link| IpAddr::V4(link.node)).collect()
    }

    /// The local addresses of the client, if the origin requires them.
    fn locals(&self, origin: Origin) -> Vec<IpAddr> {
        let links = if origin == Origin::EachAddress { self.net.links() } else { &[] };
        links.iter().map(|link| IpAddr::V4(link.client)).collect()
    }

    pub fn mount(&self, origin: Origin) -> Arc<Mount> {
        let remotes = self.addresses();
        let settings = Settings {
            version: version(),
            nconnect: origin.connections(),
            loops: 2,
            locals: self.locals(origin).into_iter().map(Into::into).collect(),
            remotes: remotes.iter().copied().map(Into::into).collect(),
            ..Settings::new(remotes[0], PORT, "/export")
        };
        Arc::new(Mount::with_settings(settings).expect("the client mounts"))
    }

    /// The path of the served directory on this machine.
    pub fn served(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// A process of our program that mounts the export on this directory, over all paths.
    pub fn mounted_at(&self, directory: &Path, origin: Origin) -> Mounted {
        let nodes = self.addresses();
        let joined = |addresses: &[IpAddr]| {
            addresses.iter().map(ToString::to_string).collect::<Vec<String>>().join("~")
        };
        let mut options = format!("port={PORT},nconnect={},nolock", origin.connections());
        options += &format!(",remoteports={}", joined(&nodes));
        if origin == Origin::EachAddress {
            options += &format!(",localports={}", joined(&self.locals(origin)));
        }
        let mut mount = self.trunkline_beside();
        mount.args(["mount", "-f", &format!("{}:/export", nodes[0])]).arg(directory).args(["-o", &options]);
        let mounted = Mounted { process: Process::spawn(mount), directory: directory.to_owned() };
        mounted.process.wait_for_line("mounted", MOUNT_TIMEOUT);
        mounted
    }

    /// Applies a fault for this long, and undoes it. This is no wait for an event: it is how long
    /// the fault lasts.
    pub fn apply(&mut self, fault: Fault, path: usize, lasts: Duration) {
        let struck = Instant::now();
        if fault == Fault::Flap {
            while struck.elapsed() < lasts {
                self.inject_fault(fault, path);
                pass(FLAP);
                self.heal(fault, path);
                pass(FLAP);
            }
        } else {
            self.inject_fault(fault, path);
            pass(lasts.saturating_sub(struck.elapsed()));
            self.heal(fault, path);
        }
    }

    /// Applies a fault. For [`Fault::Flap`] this is one of many failures.
    fn inject_fault(&mut self, fault: Fault, path: usize) {
        match fault {
            Fault::Kill => self.kill(path..path + 1),
            Fault::KillAll => self.kill(0..usize::from(NODES)),
            Fault::Freeze => self.servers[path].signal(Signal::STOP),
            Fault::LinkDown => self.each(fault, path, |net, link| net.cut(link)),
            Fault::AllGone | Fault::Flap => self.each(fault, path, |net, link| net.drop_silently(link)),
            Fault::Silent => self.filter(path, "drop"),
            Fault::Reset => self.filter(path, "reject with tcp reset"),
            Fault::Slow => self.shape(path, SLOW_RATE),
            Fault::AddressGone => self.address(path, "del"),
        }
    }

    /// Undoes a fault.
    fn heal(&mut self, fault: Fault, path: usize) {
        match fault {
            Fault::LinkDown | Fault::AllGone | Fault::Flap => {
                self.each(fault, path, |net, link| net.restore(link));
            }
            Fault::Silent | Fault::Reset => {
                self.stopped += packets(&self.in_nodes("nft list table inet faults"));
                self.in_nodes("nft delete table inet faults");
            }
            Fault::Slow => self.shape(path, RATE),
            Fault::AddressGone => self.address(path, "add"),
            Fault::Kill => self.start_again(path..path + 1),
            Fault::KillAll => self.start_again(0..usize::from(NODES)),
            Fault::Freeze => self.servers[path].signal(Signal::CONT),
        }
    }

    fn each(&self, fault: Fault, path: usize, act: impl Fn(&Net, &str) -> Result<(), lab::net::Error>) {
        for (number, link) in self.net.links().iter().enumerate() {
            if fault == Fault::AllGone || number == path {
                act(&self.net, &link.name).expect("the link obeys");
            }
        }
    }

    /// How many segments filters have stopped since the last call. A rule that names nothing real
    /// is accepted too, and stops none.
    pub const fn take_stopped(&mut self) -> u64 {
        std::mem::replace(&mut self.stopped, 0)
    }

    /// Drops every segment to the server on this link, or answers it with a reset.
    fn filter(&self, path: usize, verdict: &str) {
        let link = &self.net.links()[path].name;
        self.in_nodes("nft add table inet faults");
        self.in_nodes("nft add chain inet faults input { type filter hook input priority 0 ; }");
        self.in_nodes(&format!(
            "nft add rule inet faults input iifname {link} tcp dport {PORT} counter {verdict}"
        ));
        if verdict == "drop" {
            self.in_nodes("nft add chain inet faults output { type filter hook output priority 0 ; }");
            self.in_nodes(&format!("nft add rule inet faults output oifname {link} counter drop"));
        }
    }

    /// Removes the client's address on a link, or adds it again.
    fn address(&self, path: usize, what: &str) {
        let link = &self.net.links()[path];
        self.run_in("client", &format!("ip addr {what} {}/24 dev {}", link.client, link.name));
    }

    fn shape(&self, path: usize, rate: &str) {
        let link = &self.net.links()[path].name;
        let line =
            format!("tc qdisc change dev {link} root handle 1: tbf rate {rate} burst 131072 latency 20ms");
        self.run_in("nodes", &line);
        self.run_in("client", &line);
    }

    /// From now on the links carry one frame at a time, like a network card without offloads.
    pub fn send_single_frames(&self) {
        for link in self.net.links() {
            for namespace in ["nodes", "client"] {
                self.run_in(namespace, &format!("ip link set dev {} gso_max_segs 1", link.name));
            }
        }
    }

    /// The bytes and packets that the client has received over all links.
    pub fn received(&self) -> (u64, u64) {
        let counted = |what: &str| {
            let of = |link: &lab::net::Link| format!("cat /sys/class/net/{}/statistics/{what}", link.name);
            let told = self.net.links().iter().map(|link| self.run_in("client", &of(link)));
            told.map(|text| text.trim().parse::<u64>().expect("a number")).sum()
        };
        (counted("rx_bytes"), counted("rx_packets"))
    }

    fn in_nodes(&self, line: &str) -> String {
        self.run_in("nodes", line)
    }

    /// Runs a command, which must succeed; returns its output.
    fn run_in(&self, namespace: &str, line: &str) -> String {
        let mut words = line.split(' ');
        let mut command = Command::new(require_program(words.next().expect("a program")));
        command.args(words);
        let output = self
            .net
            .exec_in(namespace, &command)
            .expect("the namespace exists")
            .output()
            .expect("the command runs");
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

/// The sum of all counters in what nftables lists: `... counter packets 12 bytes 3456 drop`.
fn packets(listed: &str) -> u64 {
    let after = listed.split("counter packets ").skip(1);
    after.filter_map(|text| text.split(' ').next()?.parse::<u64>().ok()).sum()
}
