//! The configuration of a server: its nodes, its exports and its limits.
//!
//! A configuration comes from a TOML file ([`Config::from_toml`]) or from the flags of a quick
//! `serve` ([`Config::quick`]). Nothing is open by default: in a file an export names the clients
//! that may use it, is read-only unless it says `rw = true`, and root is squashed unless it says
//! `root_squash = false`.

mod file;
mod listen;
pub mod network;
pub mod size;
mod subnets;
mod versions;

pub use listen::ListenAddress;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use transport::Address;
use transport::busy::{BUSY_POLL_DEFAULT, BUSY_POLL_MAX};

pub use file::ConfigError;
pub use network::Network;
pub use versions::NfsVersions;

/// The user of anonymous or squashed callers: `nobody`, as in exports(5).
pub const ANONYMOUS_ID: u32 = 65_534;

/// The most exports of one group; a bound, so that what a connection may use fits a small set.
pub const EXPORTS_MAX: usize = 256;

/// The most nodes of one group: more than any array here has.
pub const NODES_MAX: usize = 256;

/// A commented configuration file that shows every key.
pub const EXAMPLE: &str = include_str!("config/example.toml");

/// The most event loops: the loop of a connection is encoded in one byte, and more CPUs serve by
/// more processes.
pub const LOOPS_MAX: usize = 256;

/// Threads for calls that wait for their stores, unless a configuration says otherwise: as many as
/// a disk or two profit from, and few enough to cost nothing while idle.
pub const WORKERS: usize = 16;

/// The most such threads. The least is 2, so that one client's calls never keep all busy.
pub const WORKERS_MAX: usize = 1024;

/// How long the state of a client of NFS version 4 is safe, unless a configuration says otherwise;
/// as in the Linux server. RFC 8881 s8.3
pub const LEASE: Duration = Duration::from_secs(90);

/// The shortest lease: a client renews it in a third of that time.
pub const LEASE_MIN: Duration = Duration::from_secs(5);

/// The longest lease: a client that has lost power keeps others from its files for so long.
pub const LEASE_MAX: Duration = Duration::from_secs(3600);

/// A whole group: the nodes that serve the same exports.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The nodes, each with its addresses.
    pub nodes: Vec<NodeConfig>,
    /// What they serve.
    pub exports: Vec<ExportConfig>,
    /// Event loops (threads); absent: one for each CPU that this process may use.
    pub loops: Option<usize>,
    /// Threads for calls that wait for their stores.
    pub workers: usize,
    /// Makes the server discoverable by program number: the port of rpcbind, [`rpc::portmap::PORT`]
    /// except in tests. The server answers on the port, or registers with the program that has it.
    pub rpcbind: Option<u16>,
    /// The directory with the shared state of the processes of a group: reply cache and write
    /// verifiers. Absent: all nodes are in this process.
    pub group: Option<PathBuf>,
    /// The versions of NFS that are served.
    pub versions: NfsVersions,
    /// Whether a server that cannot serve version 4 next to another server of the same directory
    /// serves version 3 alone instead: nobody has asked for version 4.
    pub may_leave_v4: bool,
    /// How long the state of a client of version 4 is safe after its last sign of life.
    pub lease: Duration,
    /// Whether files are locked for clients of version 3, by NLM. Without version 3 there is none.
    pub nlm: bool,
    /// Whether clients of version 4 are told of all addresses by layouts.
    pub layouts: bool,
    /// The port of rpcbind on hosts that lock by NLM: [`rpc::portmap::PORT`] except in tests.
    pub clients_rpcbind: u16,
    /// TCP congestion control of the connections; absent: the system's.
    pub congestion: Option<String>,
    /// How long a loop polls for more work before it sleeps, while that pays; zero: never.
    pub busy_poll: Duration,
    /// Bounds that keep one client's trouble its own.
    pub limits: Limits,
    /// Where the program that starts the server answers those who watch it. The server itself does
    /// nothing with it.
    pub metrics: Option<MetricsConfig>,
}

/// The metrics address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetricsConfig {
    /// The address.
    pub listen: SocketAddr,
    /// The file with the token that peers on other hosts must show.
    pub token: Option<PathBuf>,
}

/// One server identity with its addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeConfig {
    /// The name in statistics.
    pub name: String,
    /// The addresses to listen on over TCP.
    pub listen: Vec<SocketAddr>,
    /// The addresses to listen on over RDMA. Clients use MOUNT over TCP.
    pub listen_rdma: Vec<SocketAddr>,
    /// The most bytes per second it sends, divided over its connections.
    pub pace_bytes_per_s: Option<u64>,
}

/// The store of an export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreConfig {
    /// A tree in memory.
    Mem {
        /// A hard bound, in bytes.
        bytes: u64,
        /// The user that owns its root directory.
        owner_uid: u32,
        /// The group of its root directory.
        owner_gid: u32,
    },
    /// A directory of a file system.
    Dir {
        /// The directory.
        path: PathBuf,
        /// Where the key of its handles is kept over restarts; absent: the default place.
        state: Option<PathBuf>,
        /// Whether callers whose call has no room for more groups get the groups of the system's
        /// user database.
        server_groups: bool,
    },
}

/// A tree that is offered to clients, and to whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportConfig {
    /// The path that clients mount, absolute.
    pub path: String,
    /// What is behind it.
    pub store: StoreConfig,
    /// Whether changes are refused.
    pub read_only: bool,
    /// Whether root of a client becomes the anonymous user.
    pub root_squash: bool,
    /// Whether every caller becomes the anonymous user.
    pub all_squash: bool,
    /// The anonymous user.
    pub anonuid: u32,
    /// The anonymous group.
    pub anongid: u32,
    /// The clients that may use the export.
    pub allow: Vec<Network>,
    /// Whether a client must come from a privileged port (below 1024).
    pub secure: bool,
    /// Whether clients of NFS version 4 get delegations, which is right only where nothing but this
    /// server, or its group, changes the files.
    pub delegations: bool,
    /// Names the file system to clients and inside file handles; never the `st_dev` of something.
    pub fsid: u32,
}

/// Bounds that keep one client's trouble its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The most connections; above it a new connection takes the place of the one that has been
    /// idle longest. Divided over the loops.
    pub connections_max: usize,
    /// The most bytes of replies queued on a connection before no more calls are received from it.
    pub queued_bytes_max: usize,
    /// The most bytes that clients make the server hold, in incomplete records, calls being
    /// executed and queued replies; an address may hold no more than what is left for all others.
    /// Each connection has a little of its own.
    pub held_bytes_max: usize,
    /// How long a connection may stay silent in the middle of a record, in milliseconds.
    pub partial_record_ms_max: u64,
    /// How long a loop may sleep before it resets the connections whose calls have waited that
    /// long, without executing those calls: their clients have sent them elsewhere by then. In
    /// milliseconds.
    pub stall_ms_max: u64,
}

impl Limits {
    /// How many connections each of `loops` loops may have.
    pub(crate) fn of_loop(&self, loops: usize) -> usize {
        self.connections_max.div_ceil(loops.max(1)).max(1)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 4096,
            queued_bytes_max: 8 << 20,
            held_bytes_max: 1 << 30,
            partial_record_ms_max: 60_000,
            stall_ms_max: 1_000,
        }
    }
}

impl Config {
    /// Reads a TOML configuration; `file` is its name in errors.
    ///
    /// # Errors
    /// [`ConfigError`], with the line and what to do.
    pub fn from_toml(text: &str, file: &str) -> Result<Self, ConfigError> {
        file::parse(text, file)
    }

    /// Reads a TOML configuration file.
    ///
    /// # Errors
    /// [`ConfigError`], with the line and what to do.
    pub fn from_file(path: &Path) -> Result<Self, ConfigError> {
        let file = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => Self::from_toml(&text, &file),
            Err(error) => Err(ConfigError::unreadable(file, &error)),
        }
    }

    /// The quick form for a directory: one export, writable, one node for each address; it admits
    /// loopback and the listeners' own subnets. If root starts the server, callers keep their
    /// identities and squashed callers become the anonymous user; otherwise every caller acts as
    /// the user that started the server.
    #[must_use]
    pub fn quick_dir(path: &Path, state: Option<&Path>, export: &str, listens: &[SocketAddr]) -> Self {
        let mut config = Self::quick(0, export, listens);
        let root = rustix::process::geteuid().is_root();
        for export in &mut config.exports {
            export.store = StoreConfig::Dir {
                path: path.to_owned(),
                state: state.map(Path::to_owned),
                server_groups: false,
            };
            // Other programs of this host may change the files.
            export.delegations = false;
            if root {
                (export.anonuid, export.anongid) = (ANONYMOUS_ID, ANONYMOUS_ID);
            }
        }
        config
    }

    /// The quick form: one memory export, one node for each address. It is writable, owned by the
    /// user that started the server (squashed callers become its owner, so that they can write),
    /// and admits loopback and the listeners' own subnets; `exports[0].allow` can be extended
    /// before the start.
    #[must_use]
    pub fn quick(mem_bytes: u64, export: &str, listens: &[SocketAddr]) -> Self {
        let uid = rustix::process::geteuid().as_raw();
        let gid = rustix::process::getegid().as_raw();
        let nodes = listens.iter().enumerate().map(|(index, address)| NodeConfig {
            name: format!("node{}", index + 1),
            listen: vec![*address],
            listen_rdma: Vec::new(),
            pace_bytes_per_s: None,
        });
        let export = ExportConfig {
            path: export.to_owned(),
            store: StoreConfig::Mem { bytes: mem_bytes, owner_uid: uid, owner_gid: gid },
            read_only: false,
            root_squash: true,
            all_squash: false,
            anonuid: uid,
            anongid: gid,
            allow: subnets::near(listens),
            secure: false,
            delegations: true,
            fsid: 1,
        };
        Self {
            nodes: nodes.collect(),
            exports: vec![export],
            group: None,
            loops: None,
            workers: WORKERS,
            rpcbind: None,
            versions: NfsVersions::default(),
            may_leave_v4: true,
            lease: LEASE,
            nlm: true,
            layouts: true,
            clients_rpcbind: rpc::portmap::PORT,
            congestion: None,
            busy_poll: BUSY_POLL_DEFAULT,
            limits: Limits::default(),
            metrics: None,
        }
    }

    /// Makes a quick group listen over RDMA too, and admits the subnets there: each address is
    /// added to the node that has the same IP address over TCP, or else to the first node.
    pub fn add_rdma(&mut self, addresses: &[SocketAddr]) {
        for address in addresses {
            let same = |node: &NodeConfig| {
                node.listen.iter().any(|listen| Address::from(*listen) == Address::from(*address))
            };
            let at = self.nodes.iter().position(same).unwrap_or(0);
            if let Some(node) = self.nodes.get_mut(at) {
                node.listen_rdma.push(*address);
            }
        }
        for export in &mut self.exports {
            for network in subnets::near(addresses) {
                if !export.allow.contains(&network) {
                    export.allow.push(network);
                }
            }
        }
    }

    /// Checks what no single field can show: at least one node and export, nothing twice, paths
    /// absolute.
    ///
    /// # Errors
    /// A sentence that names the part at fault, and what to do.
    pub fn check(&self) -> Result<(), ConfigError> {
        let fault = |what: String, advice: &str| Err(ConfigError::without_line(what, advice));
        if self.nodes.iter().all(|node| node.listen.is_empty()) {
            return fault(
                "there is no address to listen on".into(),
                "add a TCP address such as 127.0.0.1:2049 with `listen`: over RDMA alone nobody could ask MOUNT",
            );
        }
        if self.exports.is_empty() {
            return fault(
                "there is no export".into(),
                "add one: [[export]] path = \"/export\", mem = \"2GiB\", allow = [\"10.0.0.0/8\"]",
            );
        }
        if self.exports.len() > EXPORTS_MAX || self.nodes.len() > NODES_MAX {
            return fault(
                format!("more than {EXPORTS_MAX} exports or {NODES_MAX} nodes"),
                "divide them over several servers",
            );
        }
        self.check_nodes()?;
        if self.group.is_some()
            && let Some(export) = self.exports.iter().find(|export| export.mem_bytes().is_some())
        {
            return fault(
                format!("export {} is in memory, which the processes of a group cannot share", export.path),
                "`dir` exports in a group of processes; without `group`, one process serves nodes in memory",
            );
        }
        self.check_version_4()?;
        for (index, export) in self.exports.iter().enumerate() {
            let Some(earlier) = self.exports.get(..index) else { continue };
            export.check()?;
            if earlier.iter().any(|other| other.path == export.path) {
                return fault(
                    format!("export {} is there twice", export.path),
                    "remove one, or give it another path",
                );
            }
            if earlier.iter().any(|other| other.fsid == export.fsid) {
                return fault(
                    format!("export {} has the fsid of another: {}", export.path, export.fsid),
                    "give each export an fsid of its own",
                );
            }
        }
        self.check_threads()
    }

    /// Whether NLM is to be served.
    pub(crate) const fn serves_nlm(&self) -> bool {
        self.nlm && self.versions.has_v3()
    }

    fn check_version_4(&self) -> Result<(), ConfigError> {
        let fault = |what: String, advice: &str| Err(ConfigError::without_line(what, advice));
        if !(LEASE_MIN..=LEASE_MAX).contains(&self.lease) {
            return fault(
                format!("`lease_s` is not within {} to {}", LEASE_MIN.as_secs(), LEASE_MAX.as_secs()),
                "leave it out for 90",
            );
        }
        Ok(())
    }

    /// Checks what nodes may not share: names and addresses.
    fn check_nodes(&self) -> Result<(), ConfigError> {
        let fault = |what: String, advice: &str| Err(ConfigError::without_line(what, advice));
        for (index, node) in self.nodes.iter().enumerate() {
            let Some(earlier) = self.nodes.get(..index) else { continue };
            if earlier.iter().any(|other| other.name == node.name) {
                return fault(
                    format!("two nodes have the name \"{}\"", node.name),
                    "give each node a name of its own",
                );
            }
            if node.pace_bytes_per_s == Some(0) {
                return fault(
                    format!("the pace of node \"{}\" is 0", node.name),
                    "leave `pace` out for no pace",
                );
            }
        }
        let tcp: Vec<SocketAddr> = self.nodes.iter().flat_map(|node| &node.listen).copied().collect();
        let rdma: Vec<SocketAddr> = self.nodes.iter().flat_map(|node| &node.listen_rdma).copied().collect();
        for addresses in [tcp, rdma] {
            if let Some((one, other)) = overlapping(&addresses) {
                let what = if one == other {
                    format!("{one} is there twice")
                } else {
                    format!("{one} and {other} overlap: one of them is every address of this host")
                };
                return fault(what, "keep one `listen` of the two, or give one another port");
            }
        }
        Ok(())
    }

    fn check_threads(&self) -> Result<(), ConfigError> {
        let fault = |what: String, advice: &str| Err(ConfigError::without_line(what, advice));
        if self.loops.is_some_and(|loops| loops == 0 || loops > LOOPS_MAX) {
            let what = format!("`loops` is not within 1 to {LOOPS_MAX}");
            return fault(what, "leave it out for one loop on each CPU");
        }
        if !(2..=WORKERS_MAX).contains(&self.workers) {
            let what = format!("`workers` is not within 2 to {WORKERS_MAX}");
            return fault(what, "leave it out for 16");
        }
        if self.busy_poll > BUSY_POLL_MAX {
            let what = format!("`busy_poll_us` is above {}", BUSY_POLL_MAX.as_micros());
            return fault(what, "leave it out for 100, or give 0 to have loops sleep at once");
        }
        Ok(())
    }

    /// Restores in `new` the settings that cannot change while a server runs with this
    /// configuration, and reports them.
    pub(crate) fn keep(&self, new: &mut Self, report: &mut crate::export::Reloaded) {
        let mut keep = |what: &str, same: bool| {
            if !same {
                report.refused.push(format!("{what} stays as it was: it changes only by a restart"));
            }
        };
        let shape = |config: &Self| -> Vec<_> {
            let places = |node: &NodeConfig| (node.listen.clone(), node.listen_rdma.clone());
            config.nodes.iter().map(|node| (node.name.clone(), places(node))).collect()
        };
        let same_nodes = shape(self) == shape(new);
        keep("where nodes listen, and their names,", same_nodes);
        keep("`loops`", self.loops == new.loops);
        keep("`workers`", self.workers == new.workers);
        keep("`congestion`", self.congestion == new.congestion);
        keep("[metrics]", self.metrics == new.metrics);
        keep("`busy_poll_us`", self.busy_poll == new.busy_poll);
        keep("`group`", self.group == new.group);
        keep("`rpcbind`", self.rpcbind == new.rpcbind);
        keep("`versions`", self.versions == new.versions);
        keep("`lease_s`", self.lease == new.lease);
        keep("`nlm`", self.nlm == new.nlm);
        keep("`layouts`", self.layouts == new.layouts);
        keep("[limits]", self.limits == new.limits);
        if !same_nodes {
            new.nodes.clone_from(&self.nodes);
        }
        new.congestion.clone_from(&self.congestion);
        new.metrics.clone_from(&self.metrics);
        new.group.clone_from(&self.group);
        (new.loops, new.workers, new.rpcbind) = (self.loops, self.workers, self.rpcbind);
        new.busy_poll = self.busy_poll;
        new.limits = self.limits;
        new.nlm = self.nlm;
        new.layouts = self.layouts;
    }

    /// Checks what depends on this host: memory exports must fit into its memory, or their bound
    /// would be meaningless.
    pub(crate) fn check_host(&self) -> Result<(), ConfigError> {
        let sum = self.exports.iter().filter_map(ExportConfig::mem_bytes).fold(0, u64::saturating_add);
        let memory = physical_memory_bytes();
        if sum > memory {
            let (sum, memory) = (size::in_words(sum), size::in_words(memory));
            let what = format!("exports of {sum} in memory are more than this host has: {memory}");
            return Err(ConfigError::without_line(what, "give them less, and leave some to the system"));
        }
        Ok(())
    }
}

/// Two addresses on which one process cannot listen at once. With port 0 each gets a port of its
/// own.
fn overlapping(addresses: &[SocketAddr]) -> Option<(SocketAddr, SocketAddr)> {
    let overlap = |one: &SocketAddr, other: &SocketAddr| {
        let is_wildcard = one.ip().is_unspecified() || other.ip().is_unspecified();
        one.port() != 0
            && one.port() == other.port()
            && (one == other || is_wildcard && one.is_ipv4() == other.is_ipv4())
    };
    addresses.iter().enumerate().find_map(|(index, other)| {
        let earlier = addresses.get(..index)?;
        earlier.iter().find(|one| overlap(one, other)).map(|one| (*one, *other))
    })
}

/// The memory of this host, in bytes.
fn physical_memory_bytes() -> u64 {
    let system = rustix::system::sysinfo();
    (system.totalram as u64).saturating_mul(u64::from(system.mem_unit.max(1)))
}

impl ExportConfig {
    /// The bound of a memory export.
    fn mem_bytes(&self) -> Option<u64> {
        match &self.store {
            StoreConfig::Mem { bytes, .. } => Some(*bytes),
            StoreConfig::Dir { .. } => None,
        }
    }

    fn check(&self) -> Result<(), ConfigError> {
        if self.mem_bytes() == Some(0) {
            let what = format!("export {} has 0 bytes of memory", self.path);
            return Err(ConfigError::without_line(what, "give it some: 512MiB, 2GiB"));
        }
        // RFC 1813 s5.0 (MNTPATHLEN)
        const PATH_BYTES_MAX: usize = 1024;
        let path = self.path.escape_debug();
        let fault = |what: String, advice: &str| Err(ConfigError::without_line(what, advice));
        if !self.path.starts_with('/') {
            return fault(
                format!("export path \"{path}\" is not absolute"),
                "begin it with a slash: /export",
            );
        }
        if self.path != "/" && self.path.ends_with('/') {
            let advice = format!("write it as \"{}\"", self.path.trim_end_matches('/').escape_debug());
            return fault(format!("export path \"{path}\" ends with a slash"), &advice);
        }
        if self.path.len() > PATH_BYTES_MAX || self.path.contains('\0') {
            let what =
                format!("export path \"{path}\" is longer than {PATH_BYTES_MAX} bytes or has a NUL byte");
            return fault(what, "give it a shorter path, without NUL bytes");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
