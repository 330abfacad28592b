//! What a mount is made with, after names are resolved and defaults filled in.

use std::net::IpAddr;
use std::time::Duration;

/// Everything that [`crate::Mount::with_settings`] needs.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The address that the user named.
    pub server: IpAddr,
    /// The export's path.
    pub export: String,
    /// Port of NFS.
    pub port: u16,
    /// Port of MOUNT.
    pub mount_port: u16,
    /// Addresses of the nodes, the server's own when there is just one.
    pub remotes: Vec<IpAddr>,
    /// Index of the first remote, instead of a hash of the local address.
    pub remotes_offset: Option<u32>,
    /// Local addresses to connect from; empty leaves it to the system.
    pub locals: Vec<IpAddr>,
    /// Connections for data (and metadata, unless `mdconnect`).
    pub nconnect: u16,
    /// Connections for metadata only.
    pub mdconnect: u16,
    /// Reads ignore where their file is placed.
    pub spread_reads: bool,
    /// Writes ignore where their file is placed.
    pub spread_writes: bool,
    /// Bytes of one READ.
    pub rsize: u32,
    /// Bytes of one WRITE.
    pub wsize: u32,
    /// Whether calls fail after `timeo` and `retrans`.
    pub soft: bool,
    /// Time to the first retransmission.
    pub timeo: Duration,
    /// Retransmissions before a soft mount gives up.
    pub retrans: u32,
    /// Connect from a reserved port.
    pub reserved_port: bool,
    /// Congestion control, the system's default when absent.
    pub congestion: Option<String>,
    /// Threads, each with its share of the connections.
    pub loops: usize,
    /// Bound of what is sent to each node, for experiments.
    pub pace_bytes_per_s: Option<u64>,
    /// Who calls.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Its supplementary groups.
    pub gids: Vec<u32>,
}

impl Settings {
    /// The defaults of the mount options, for one address.
    #[must_use]
    pub fn new(server: IpAddr, port: u16, export: impl Into<String>) -> Self {
        Self {
            server,
            export: export.into(),
            port,
            mount_port: port,
            remotes: vec![server],
            remotes_offset: None,
            locals: Vec::new(),
            nconnect: 1,
            mdconnect: 0,
            spread_reads: false,
            spread_writes: false,
            rsize: 1 << 20,
            wsize: 1 << 20,
            soft: false,
            timeo: Duration::from_secs(60),
            retrans: 2,
            reserved_port: false,
            congestion: None,
            loops: std::thread::available_parallelism().map_or(1, usize::from),
            pace_bytes_per_s: None,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            gids: rustix::process::getgroups()
                .map(|groups| groups.into_iter().map(rustix::process::Gid::as_raw).collect())
                .unwrap_or_default(),
        }
    }

    /// The target as people write it.
    #[must_use]
    pub fn target_name(&self) -> String {
        match self.server {
            IpAddr::V4(ip) => format!("{ip}:{}", self.export),
            IpAddr::V6(ip) => format!("[{ip}]:{}", self.export),
        }
    }

    /// Time after which a soft mount gives a call up: each retransmission waits one `timeo` longer, as nfs(5)
    /// has it for TCP.
    #[must_use]
    pub fn soft_patience(&self) -> Option<Duration> {
        self.soft.then(|| self.timeo.saturating_mul(self.retrans + 1).max(Duration::from_millis(100)))
    }

    /// Connections that one node has.
    #[must_use]
    pub fn connections_per_node(&self) -> u16 {
        let remotes = u16::try_from(self.remotes.len().max(1)).unwrap_or(u16::MAX);
        (self.nconnect + self.mdconnect).div_ceil(remotes)
    }
}
