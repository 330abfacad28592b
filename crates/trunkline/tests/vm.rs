//! Tests a stock kernel in a virtual machine: its NFS client on our server, our client on its
//! server, and the lab itself, which leaves nothing behind. One boot serves all cases except those
//! that end a lab. `cargo xtask test vm` runs these tests.

#[path = "support/attached.rs"]
mod attached;
#[path = "vm/bad_links.rs"]
mod bad_links;
#[path = "vm/blktests.rs"]
mod blktests;
#[path = "vm/block_over_rdma.rs"]
mod block_over_rdma;
#[path = "vm/both_ends.rs"]
mod both_ends;
#[path = "vm/checking.rs"]
mod checking;
#[path = "vm/connectathon.rs"]
mod connectathon;
#[path = "outside_suites/cthon04_groups.rs"]
mod cthon04_groups;
#[path = "support/disk_load.rs"]
mod disk_load;
#[path = "vm/durable_writes.rs"]
mod durable_writes;
#[path = "support/findings.rs"]
mod findings;
#[path = "vm/full_size.rs"]
mod full_size;
#[path = "support/guest.rs"]
mod guest;
#[path = "faults/history.rs"]
mod history;
#[path = "vm/kernel_client.rs"]
mod kernel_client;
#[path = "vm/kernel_group.rs"]
mod kernel_group;
#[path = "vm/kernel_multipath.rs"]
mod kernel_multipath;
#[path = "vm/kernel_nlm.rs"]
mod kernel_nlm;
#[path = "vm/kernel_nvme.rs"]
mod kernel_nvme;
#[path = "vm/kernel_nvme_authentication.rs"]
mod kernel_nvme_authentication;
#[path = "vm/kernel_nvme_over_rdma.rs"]
mod kernel_nvme_over_rdma;
#[path = "vm/kernel_nvme_pair.rs"]
mod kernel_nvme_pair;
#[path = "vm/kernel_nvme_tools.rs"]
mod kernel_nvme_tools;
#[path = "vm/kernel_on_dir.rs"]
mod kernel_on_dir;
#[path = "vm/kernel_over_rdma.rs"]
mod kernel_over_rdma;
#[path = "vm/kernel_routes.rs"]
mod kernel_routes;
#[path = "vm/kernel_server.rs"]
mod kernel_server;
#[path = "vm/kernel_server_faults.rs"]
mod kernel_server_faults;
#[path = "vm/kernel_target.rs"]
mod kernel_target;
#[path = "vm/kernel_target_faults.rs"]
mod kernel_target_faults;
#[path = "vm/kernel_target_late.rs"]
mod kernel_target_late;
#[path = "vm/kernel_target_over_rdma.rs"]
mod kernel_target_over_rdma;
#[path = "vm/kernel_ublk.rs"]
mod kernel_ublk;
#[path = "vm/kernel_v4.rs"]
mod kernel_v4;
#[path = "vm/late_over_rdma.rs"]
mod late_over_rdma;
#[path = "vm/late_writes.rs"]
mod late_writes;
#[path = "vm/lifetime.rs"]
mod lifetime;
#[path = "faults/load.rs"]
#[allow(dead_code, reason = "the campaign uses the rest")]
mod load;
#[path = "vm/mounted_over_rdma.rs"]
mod mounted_over_rdma;
#[path = "../../attach/tests/attach/client.rs"]
#[allow(dead_code, reason = "the tests of the crate use the rest")]
mod nbd_client;
#[path = "vm/our_target.rs"]
mod our_target;
#[path = "vm/our_target_faults.rs"]
mod our_target_faults;
#[path = "vm/power_loss.rs"]
mod power_loss;
#[path = "vm/rdma_call_backs.rs"]
mod rdma_call_backs;
#[path = "vm/rdma_copies.rs"]
mod rdma_copies;
#[path = "vm/rdma_counts.rs"]
mod rdma_counts;
#[path = "support/rdma_host.rs"]
mod rdma_host;
#[path = "vm/rdma_versions.rs"]
mod rdma_versions;
#[path = "vm/soft_roce.rs"]
mod soft_roce;
#[path = "vm/target_faults.rs"]
mod target_faults;
#[path = "vm/unread_over_rdma.rs"]
mod unread_over_rdma;

use lab::vm::{Accel, Spec, Vm};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use testkit::require_program;

/// The Debian package of the guests' kernel, if it is not the distribution's default.
const KERNEL: &str = "TRUNKLINE_TEST_KERNEL";

/// Emulated everywhere, so that the suite behaves the same on each machine.
fn spec() -> Spec {
    let kernel = std::env::var(KERNEL).ok();
    Spec { accel: Accel::Tcg, kernel, ..Spec::new(env!("CARGO_BIN_EXE_trunkline")) }
}

/// The lab that all cases share; its guest ends with the test program.
fn lab() -> &'static Vm {
    static LAB: OnceLock<Vm> = OnceLock::new();
    LAB.get_or_init(|| {
        for program in [
            "busybox",
            "dmsetup",
            "fio",
            "getfattr",
            "ibv_devinfo",
            "mkfs.btrfs",
            "mkfs.ext4",
            "mkfs.xfs",
            "mount.nfs",
            "nft",
            "nvme",
            "ping",
            "qemu-system-x86_64",
            "rpc.nfsd",
            "rpc.statd",
            "rpcbind",
            "setpriv",
            "showmount",
            "strace",
            "xfs_quota",
        ] {
            let _ = require_program(program);
        }
        match Vm::start(&spec()) {
            Ok(vm) => vm,
            Err(error) => panic!("cannot start a lab: {error}"),
        }
    })
}

/// Runs one case at a time. Emulation needs the processors of this machine, and a client that moves
/// calls off a slow path would take a crowded guest for a broken one.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The beginning of all scripts. `set -e` ignores a command after `!`; `fails` does not, and shows
/// the command's errors.
const PRELUDE: &str = r#"set -e
fails() { if "$@"; then echo "this should have failed: $*"; exit 1; fi 2>&1; }
"#;

/// Runs a shell script in the guest, which must succeed; returns its output.
#[track_caller]
fn sh(script: &str) -> String {
    guest::sh(lab().client(), &format!("{PRELUDE}{script}"))
}

/// Measures routes (name, mount options) to a server with workloads (pattern, block, file) in the
/// guest; returns the output of `bench`. Every block is stamped, each read is checked, and all
/// files are compared at the end: a wrong block makes the run fail.
#[track_caller]
fn measured(
    server: &str,
    repeats: u32,
    routes: &[(&str, String)],
    workloads: &[(&str, &str, &str)],
) -> String {
    let mut experiment = format!("name = \"in a guest\"\nrepeats = {repeats}\nwindow_ms = 200\n");
    experiment += &format!("[target]\nserver = \"{server}\"\n");
    for (name, options) in routes {
        experiment += &format!("[[route]]\nname = \"{name}\"\noptions = \"{options}\"\n");
    }
    for (pattern, block, file) in workloads {
        experiment += &format!(
            "[[workload]]\nname = \"{pattern}-{block}\"\npattern = \"{pattern}\"\nblock = \"{block}\"\n\
             file = \"{file}\"\ndepth = 2\nreaders = 1\nwriters = 1\n"
        );
    }
    let program = trunkline().display();
    sh(&format!(
        "cat > /root/experiment.toml <<'END'\n{experiment}END\n\
         {program} bench --no-report --force --record /root/record.json /root/experiment.toml"
    ))
}

/// The full path of our program.
fn trunkline() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_trunkline"))
}
