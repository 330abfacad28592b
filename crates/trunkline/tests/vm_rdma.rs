//! Tests two virtual machines with Soft-RoCE devices: peers that violate the protocol over RDMA,
//! which our server and our client must survive, faults under a load on files and on volumes, and
//! two kernels that share files. `cargo xtask test vm-rdma` runs these tests.
//!
//! One boot of the two guests serves all cases. Tests run themselves in a guest, where they are the
//! client.

#[path = "support/attached.rs"]
#[allow(dead_code, reason = "the other program uses the rest")]
mod attached;
#[path = "vm_rdma/bad_clients.rs"]
mod bad_clients;
#[path = "vm_rdma/bad_servers.rs"]
mod bad_servers;
#[path = "vm_rdma/checking.rs"]
mod checking;
#[path = "vm_rdma/disk_driver.rs"]
mod disk_driver;
#[path = "support/disk_load.rs"]
#[allow(dead_code, reason = "the other program uses the rest")]
mod disk_load;
#[path = "vm_rdma/disk_trouble.rs"]
mod disk_trouble;
#[path = "vm_rdma/driver.rs"]
mod driver;
#[path = "support/findings.rs"]
mod findings;
#[path = "support/guest.rs"]
mod guest;
#[path = "faults/history.rs"]
mod history;
#[path = "vm_rdma/link_faults.rs"]
mod link_faults;
#[path = "faults/load.rs"]
#[allow(dead_code, reason = "the campaign uses the rest")]
mod load;
#[path = "vm_rdma/many_clients.rs"]
mod many_clients;
#[path = "vm_rdma/mount_driver.rs"]
mod mount_driver;
#[path = "../../attach/tests/attach/client.rs"]
#[allow(dead_code, reason = "the tests of the crate use the rest")]
mod nbd_client;
#[path = "vm_rdma/pair.rs"]
mod pair;
#[path = "vm_rdma/raw_peer.rs"]
mod raw_peer;
#[path = "support/rdma_host.rs"]
#[allow(dead_code, reason = "the other program uses the rest")]
mod rdma_host;
#[path = "vm_rdma/relay.rs"]
mod relay;
#[path = "vm_rdma/trouble.rs"]
mod trouble;
#[path = "vm_rdma/two_kernels.rs"]
mod two_kernels;
