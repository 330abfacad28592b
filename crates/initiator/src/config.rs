//! What a host connects to, and how.

use chap::{Algorithms, Secret};
use nvme::pdu::Digests;
use nvme::{Address, HostId, Nqn};
use std::sync::Arc;
use std::time::Duration;

/// How to attach to a subsystem.
#[derive(Debug, Clone)]
pub struct Config {
    /// The name of the host.
    pub host: Nqn,
    /// Its identifier. Controllers of one attachment have it in common, and no other attachment may
    /// have it: the first thing that an attachment does is to end older controllers of it.
    pub host_id: HostId,
    /// The subsystem.
    pub subsystem: Nqn,
    /// The addresses, each a path.
    pub addresses: Vec<Address>,
    /// I/O queues of each controller.
    pub queues: u16,
    /// Entries of each I/O queue.
    pub entries: u16,
    /// The keep-alive timeout.
    pub keep_alive: Duration,
    /// Digests of headers and data, over TCP. RDMA devices check what they carry.
    pub digests: Digests,
    /// For targets that ask this host to authenticate.
    pub secrets: Option<Secrets>,
    /// How long a request waits for a path before it fails.
    pub no_path_timeout: Duration,
    /// An earlier attachment with this identifier may not have ended by itself; this is the longest
    /// keep-alive timeout that it may have had. Where a target cannot say when its controllers are
    /// finished, changes wait for the safe time.
    pub after_crash: Option<Duration>,
    /// When paths are taken for dead, and tried again.
    pub timing: Timing,
}

impl Config {
    /// Usual settings.
    #[must_use]
    pub fn new(
        host: Nqn,
        host_id: HostId,
        subsystem: Nqn,
        addresses: impl IntoIterator<Item: Into<Address>>,
    ) -> Self {
        Self {
            host,
            host_id,
            subsystem,
            addresses: addresses.into_iter().map(Into::into).collect(),
            queues: 2,
            entries: 128,
            keep_alive: Duration::from_secs(5),
            digests: Digests::default(),
            secrets: None,
            no_path_timeout: Duration::from_secs(600),
            after_crash: None,
            timing: Timing::default(),
        }
    }

    /// The longest keep-alive timeout of a controller that this host may have left.
    pub(crate) fn earlier_keep_alive(&self) -> Duration {
        self.keep_alive.max(self.after_crash.unwrap_or_default())
    }
}

/// How this host and a target prove to each other who they are. `Debug` shows no secret.
#[derive(Debug, Clone)]
pub struct Secrets {
    /// What this host has.
    pub host: Secret,
    /// What a target must have. With it, a target that does not prove it is not used, also one
    /// that does not ask this host to authenticate.
    pub controller: Option<Secret>,
    /// What this host accepts; the target chooses.
    pub algorithms: Arc<Algorithms>,
}

/// When paths are taken for dead, and tried again.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// A controller that owes an answer and is silent for this long is asked whether it lives; an
    /// I/O queue likewise, whatever the other queues do.
    pub suspect: Duration,
    /// If it does not answer for this long and another path is there, it is lost.
    pub silent: Duration,
    /// If no other path is there.
    pub silent_alone: Duration,
    /// A command that takes longer than this ends its controller, even one that lives.
    pub command: Duration,
    /// How long connecting may take.
    pub connect: Duration,
    /// After which time a path is tried again, at first and at most; it doubles.
    pub back_off: (Duration, Duration),
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            suspect: Duration::from_millis(250),
            silent: Duration::from_millis(350),
            silent_alone: Duration::from_secs(5),
            // As the Linux kernel's.
            command: Duration::from_secs(30),
            connect: Duration::from_secs(3),
            back_off: (Duration::from_millis(100), Duration::from_secs(5)),
        }
    }
}
