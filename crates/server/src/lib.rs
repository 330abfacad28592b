//! NFS server: listeners, loops, dispatch, exports, group, statistics.
//!
//! [`Server::start`] runs a group of nodes from a [`Config`]: NFS version 3 and MOUNT version 3
//! (RFC 1813) over TCP, both on every port. Each loop is a thread with its own connections, buffers
//! and counters. The loops share the group: exports with their stores, and the reply cache. A call
//! goes from the transport to `service` (RPC checks, reply cache) and to its program (`nfs3`,
//! `mount`), which calls the store; its reply goes to the connection's queue. Payload stays in the
//! store's memory both ways. A call whose store would have to wait goes to a worker of
//! `runtime::worker_pool` instead, which executes it in the same way.

mod address;
mod addresses;
mod byte_budget;
mod client;
mod clock;
pub mod config;
mod dispatch;
mod error;
mod export;
mod group;
pub mod handle;
pub mod identity;
mod mount;
mod mounts;
mod nfs3;
mod nfs4;
mod nfs4_state;
mod nlm;
mod nlm_hosts;
mod nsm;
mod portmap;
mod program;
mod replies;
mod reply_cache;
mod request;
mod rpcbind;
mod runtime;
mod server;
mod shared_reply_cache;
pub mod statistics;
mod takeover;

pub use config::{
    Config, ConfigError, ExportConfig, Limits, ListenAddress, Network, NfsVersions, NodeConfig, StoreConfig,
};
pub use error::Error;
pub use export::Reloaded;
pub use memory::map_large_allocations;
pub use rpc::portmap::PORT as RPCBIND_PORT;
pub use server::{NodeId, Server, StatisticsReader};
pub use shared_reply_cache::GroupError;
pub use statistics::Statistics;
