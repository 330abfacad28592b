//! Chooses the path of each call: placement, health, failover, failback.
//!
//! A mount has several loops. Each loop owns a share of the mount's connections and one [`Table`]
//! over them. The loops share only the [`Placement`] of files on nodes, which is asked once per
//! file. The crate is pure: time is passed in as the `Duration` since an arbitrary start,
//! randomness as a seed, and requests to the driver are returned by [`Table::poll_output`].
//!
//! Terms: a *node* is one server address; a *path* is a (transport, local address, node); a
//! *connection* is on one path at a time. This crate must not know about sockets, calls or the
//! contents of files.
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

/// The class of a call that needs a connection.
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
    /// The node that the path reaches.
    pub node: NodeId,
}

/// One connection of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnSpec {
    /// The preferred path. The connection may be failed over to another path while this one is
    /// down.
    pub path: PathId,
    /// The node of that path.
    pub node: NodeId,
    /// Whether this is one of the `mdconnect` connections.
    pub metadata: bool,
}

/// The configuration of a [`Table`].
#[derive(Debug, Clone)]
pub struct Config {
    /// All paths of the mount, including those on which this table has no connection: its
    /// connections fail over to them when its own paths are down.
    pub paths: Vec<PathSpec>,
    /// The connections of this table, 1 to [`CONNECTIONS_MAX`].
    pub connections: Vec<ConnSpec>,
    /// `mdconnect`: metadata calls use the connections marked `metadata`, reads and writes the
    /// others.
    pub metadata_apart: bool,
    /// `spread_reads`: reads ignore where their file is placed.
    pub spread_reads: bool,
    /// `spread_writes`: writes ignore where their file is placed.
    pub spread_writes: bool,
    /// Timeouts and intervals.
    pub timing: Timing,
    /// Seed of the jitter in back-offs. Give each table a different seed.
    pub seed: u64,
}

/// A request to the driver of a table. Requests must be carried out in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// Connect this connection on its current path. Report [`Table::connected`] once the path is
    /// validated, or [`Table::disconnected`] if the connect failed. The table keeps the back-off
    /// and the time limit.
    Connect(ConnId),
    /// Like [`Output::Connect`], but on a different path than before. If the slot still has an old
    /// connection, that connection has no calls in flight; close it.
    FailOver {
        /// The connection.
        conn: ConnId,
        /// The path that the connection is on from now on.
        to: PathId,
    },
    /// Reset this connection now, so that nothing sent on it can arrive or be delivered later
    /// (RDMA: put the queue pair into the error state and flush it). This output precedes the
    /// [`Output::Move`] of the same connection.
    Abort(ConnId),
    /// Send the calls in flight on this connection again, each through [`Table::pick`]. The
    /// connection is gone, or was aborted by the preceding output.
    Move(ConnId),
    /// Send a NULL call on this path, on a connection used only for probes, and report
    /// [`Table::probe_answered`] or [`Table::probe_failed`]. The table keeps the time limit.
    Probe(PathId),
    /// A path changed state; for the log and for `top`.
    StateChanged {
        /// The path.
        path: PathId,
        /// The previous state.
        from: State,
        /// The new state.
        to: State,
    },
}
