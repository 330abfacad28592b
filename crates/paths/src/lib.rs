//! Which path takes the next call: placement, health, failover, failback.
//!
//! A mount has several loops. Each loop owns a share of the mount's connections and one [`Table`]
//! over them; nothing is shared between loops but the [`Placement`] of files on nodes, which is
//! asked once a file. Everything here is pure: time comes in as the `Duration` since an arbitrary
//! start, randomness as a seed, and what is to be done goes out through [`Table::poll_output`].
//!
//! Words: a *node* is one server address, a *path* is (transport, local address, node), a
//! *connection* lives on one path at a time. What this crate must not know: sockets, calls, files'
//! contents.
#![forbid(unsafe_code)]

mod placement;
mod silence;
mod status;
mod table;
pub mod timing;

pub use placement::{Placement, local_of, remote_of};
pub use status::{PathStatus, State};
pub use table::{CONNECTIONS_MAX, Table};
pub use timing::Timing;

/// Index of a remote address, in the order of `remoteports`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u16);

/// Index of a path (transport, local address, remote address) in the mount's list of paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(pub u16);

/// Index of a connection within its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u16);

/// What kind of call looks for a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// Everything but READ and WRITE.
    Metadata,
    /// READ.
    Read,
    /// WRITE (and the COMMIT that must follow it to its node).
    Write,
}

/// One path of the mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathSpec {
    /// The node that it reaches.
    pub node: NodeId,
}

/// One connection of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnSpec {
    /// The path it belongs on; it may be failed-over to another one while that path is down.
    pub path: PathId,
    /// The node of that path.
    pub node: NodeId,
    /// Whether it is one of the `mdconnect` connections.
    pub metadata: bool,
}

/// What a table is made from.
#[derive(Debug, Clone)]
pub struct Config {
    /// All paths of the mount, also those on which this table has no connection: they are where its
    /// connections go when its own paths are gone.
    pub paths: Vec<PathSpec>,
    /// The connections of this table, 1 to [`CONNECTIONS_MAX`].
    pub connections: Vec<ConnSpec>,
    /// `mdconnect`: metadata on connections marked so, reads and writes on the others.
    pub metadata_apart: bool,
    /// `spread_reads`: reads ignore where their file is placed.
    pub spread_reads: bool,
    /// `spread_writes`: writes ignore where their file is placed.
    pub spread_writes: bool,
    /// How long things take.
    pub timing: Timing,
    /// Seed of the jitter in back-offs. Give each table its own.
    pub seed: u64,
}

/// What the driver of a table is asked to do, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// Connect this connection to the path that it is on. Report [`Table::connected`] once it has
    /// proved itself there, [`Table::disconnected`] if it failed. Back-off and the time limit are
    /// in the table.
    Connect(ConnId),
    /// Like [`Output::Connect`], but to another path than before. An old connection in this slot
    /// has no calls in flight any more; close it.
    FailOver {
        /// Which connection.
        conn: ConnId,
        /// The path it is on from now.
        to: PathId,
    },
    /// Reset this connection now, so that nothing sent on it can arrive or be delivered any later
    /// (RDMA: the queue pair in error and flushed). It comes before the [`Output::Move`] of the
    /// same connection.
    Abort(ConnId),
    /// Send the calls in flight of this connection again, each through [`Table::pick`]. The
    /// connection itself is gone, or aborted by the output before this one.
    Move(ConnId),
    /// Send a NULL call to this path, on a connection that is used for probes only, and report
    /// [`Table::probe_answered`] or [`Table::probe_failed`]. The time limit is in the table.
    Probe(PathId),
    /// A path changed its state; for the log and for `top`.
    StateChanged {
        /// Which path.
        path: PathId,
        /// What it was.
        from: State,
        /// What it is.
        to: State,
    },
}
