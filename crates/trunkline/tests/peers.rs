//! Real peers: Debian's libnfs against our server, our client against Debian's nfs-ganesha, and what they said
//! to each other as tshark decodes it. Needs root; `cargo xtask test` runs it, plain `cargo test` does not.

#[path = "peers/capture.rs"]
mod capture;
#[path = "peers/commands.rs"]
mod commands;
#[path = "peers/fixtures.rs"]
mod fixtures;
#[path = "peers/ganesha.rs"]
mod ganesha;
#[path = "peers/libnfs.rs"]
mod libnfs;
#[path = "peers/our_client.rs"]
mod our_client;
#[path = "peers/our_server.rs"]
mod our_server;
#[path = "remote/trees.rs"]
mod trees;
#[path = "peers/wire.rs"]
mod wire;
