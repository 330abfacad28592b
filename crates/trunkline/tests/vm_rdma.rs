//! Peers that break the protocol over RDMA: clients that our server has to bear, and servers that our client has to bear,
//! in two virtual machines with Soft-RoCE devices. `cargo xtask test vm-rdma` runs it.
//!
//! One boot of the two guests serves all cases. Tests ask for themselves to be run in a guest, where they are the client.

#[path = "vm_rdma/bad_clients.rs"]
mod bad_clients;
#[path = "vm_rdma/bad_servers.rs"]
mod bad_servers;
#[path = "support/guest.rs"]
mod guest;
#[path = "vm_rdma/pair.rs"]
mod pair;
#[path = "vm_rdma/relay.rs"]
mod relay;
#[path = "vm_rdma/stranger.rs"]
mod stranger;
