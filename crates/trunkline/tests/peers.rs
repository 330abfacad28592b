//! Tests against other implementations: Debian's libnfs on our server, our client on Debian's
//! nfs-ganesha, the messages that they exchange, decoded by tshark, and the guarantees of a mounted
//! directory with nfs-ganesha as the server. Needs root and FUSE; `cargo xtask test` runs these
//! tests, plain `cargo test` does not.

#[path = "peers/capture.rs"]
mod capture;
#[path = "once/check.rs"]
mod check;
#[path = "peers/commands.rs"]
mod commands;
#[path = "once/cuts.rs"]
mod cuts;
#[path = "mount/fio.rs"]
mod fio;
#[path = "peers/fixture.rs"]
mod fixture;
#[path = "peers/fixtures.rs"]
mod fixtures;
#[path = "peers/ganesha.rs"]
mod ganesha;
#[path = "peers/libnfs.rs"]
mod libnfs;
#[path = "mount/model.rs"]
mod model;
#[path = "mount/mounts.rs"]
#[allow(dead_code)]
mod mounts;
#[path = "peers/once.rs"]
mod once;
#[path = "once/operations.rs"]
mod operations;
#[path = "peers/our_client.rs"]
mod our_client;
#[path = "peers/our_server.rs"]
mod our_server;
#[path = "mount/semantics.rs"]
mod semantics;
#[path = "remote/summary.rs"]
mod summary;
#[path = "remote/trees.rs"]
mod trees;
#[path = "peers/wire.rs"]
mod wire;
