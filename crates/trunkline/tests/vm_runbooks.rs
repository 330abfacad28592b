//! Runs the runbooks of a Linux server and of its host for real, in two virtual machines that four
//! links with Soft-RoCE devices join: a stock kernel's NVMe-oF target and its NFS server, and
//! Trunkline's own server, in one machine; in the other a host with two paths over RDMA and two
//! over TCP. Each step is done, verified, and undone, and nothing is left of it. Faults are made
//! on the way and found by `trunkline check` and by the steps. `cargo xtask test vm-runbooks` runs
//! this test.

#[path = "vm_runbooks/client_faults.rs"]
mod client_faults;
#[path = "vm_runbooks/dm_faults.rs"]
mod dm_faults;
#[path = "support/findings.rs"]
mod findings;
#[path = "support/guest.rs"]
#[allow(dead_code, reason = "the other programs with virtual machines use the rest")]
mod guest;
#[path = "vm_runbooks/host_faults.rs"]
mod host_faults;
#[path = "vm_runbooks/load.rs"]
mod load;
#[path = "vm_rdma/pair.rs"]
#[allow(dead_code, reason = "the tests over RDMA use the rest")]
mod pair;
#[path = "vm_runbooks/served.rs"]
mod served;
#[path = "vm_runbooks/steps.rs"]
mod steps;
#[path = "vm_runbooks/traces.rs"]
mod traces;
#[path = "vm_runbooks/units.rs"]
mod units;

use lab::vm::Guest;
use load::Load;
use pair::{alone, pair, sh};
use std::sync::Once;
use steps::Folder;
use testkit::require_program;
use traces::traces;

/// The site of the two machines. Both volumes have two optimized paths, one over each transport.
const SITE: &str = r#"
name = "pair"

[[server]]
name = "server"

[server.nfs]
rdma = true
threads = 4
exports = [{ path = "/srv/nfs", clients = ["10.77.0.0/16"], rw = true, no_root_squash = true, fsid = 1 }]

[server.nvmet]
nqn = "nqn.2026-11.test.pair:stor"
namespaces = [
    { device = "/dev/disk/by-id/pair-1", ana_group = 1 },
    { device = "/dev/disk/by-id/pair-2", ana_group = 2 },
]
ports = [
    { address = "10.77.1.2", transport = "rdma", optimized = [1] },
    { address = "10.77.2.2", transport = "rdma", optimized = [2] },
    { address = "10.77.1.2", transport = "tcp", optimized = [1] },
    { address = "10.77.2.2", transport = "tcp", optimized = [2] },
]

[server.trunkline]
addresses = ["10.77.1.2", "10.77.2.2"]
port = 12049
rdma_port = 12050
exports = [
    { path = "/data", dir = "/srv/data", clients = ["10.77.0.0/16"], rw = true, no_root_squash = true },
    { path = "/scratch", mem = "16MiB", clients = ["10.77.0.0/16"], rw = true, no_root_squash = true },
]

[hosts]
os = "debian12"
interface = "n1"
nqn_prefix = "nqn.2026-11.test.pair:"
connect_wait_s = 300
queue_size = 64
request_kib = 256

[[host]]
name = "client"
address = "10.77.1.1"
"#;

/// Where both machines have the site file and the runbook.
const BOOK: &str = "/dev/shm/book";

/// The program.
const TRUNKLINE: &str = env!("CARGO_BIN_EXE_trunkline");

fn client() -> &'static Guest {
    pair().client()
}

fn server() -> &'static Guest {
    pair().server()
}

#[test]
fn runbooks_of_a_server_and_its_host_run_for_real_and_leave_nothing() {
    let _turn = alone();
    prepare();
    let before = [traces(server()), traces(client())];
    let (serving, hosting) = (Folder::new(server(), "server-server"), Folder::new(client(), "hosts"));
    host_faults::before_the_host_is_set_up();
    // It runs the rules of the runbook.
    sh(client(), "/lib/systemd/systemd-udevd --daemon; udevadm control --ping");
    for folder in [&serving, &hosting] {
        for step in folder.steps() {
            folder.run(&step, "do");
            folder.run(&step, "verify");
        }
    }
    assert_ne!(traces(server()), before[0], "what is left would be seen");
    assert_ne!(traces(client()), before[1], "what is left would be seen");
    the_paths_are_as_planned(&hosting);

    served::by_the_kernel();
    served::by_trunkline();
    host_faults::while_nothing_is_under_way(&hosting);
    let load = Load::start();
    host_faults::under_a_load(&serving, &hosting, &load);
    load.end();
    the_volumes_are_those_of_the_server();
    a_volume_in_use_keeps_its_paths(&hosting);

    for folder in [&hosting, &serving] {
        for step in folder.steps().iter().rev() {
            folder.run(step, "undo");
        }
    }
    // What our own client has made there.
    sh(client(), "rmdir /run/trunkline-live* 2>/dev/null || :");
    let after = [traces(server()), traces(client())];
    traces::assert_same(&before, &after);
}

/// What both machines have before the first step: the site file, its runbook, and for the server
/// disks and a file system that can be exported. Modules that only these tests use are loaded.
fn prepare() {
    static ONCE: Once = Once::new();
    ONCE.call_once(prepare_once);
}

fn prepare_once() {
    for program in [
        "dmsetup",
        "fio",
        "mkfs.ext4",
        "mount.nfs",
        "multipath",
        "nvme",
        "pgrep",
        "rpc.nfsd",
        "rpcbind",
        "systemctl",
        "udevadm",
        "uuidgen",
    ] {
        let _ = require_program(program);
    }
    for guest in [server(), client()] {
        // Other programs of this machine may write there meanwhile.
        sh(guest, "rm -rf /var/lib/trunkline");
        sh(
            guest,
            &format!(
                "cat > /dev/shm/site.toml <<'END'\n{SITE}END\n{TRUNKLINE} plan runbook /dev/shm/site.toml --out {BOOK}
                 modprobe -a tcp_diag udp_diag
                 mountpoint -q /sys/kernel/config || mount -t configfs configfs /sys/kernel/config"
            ),
        );
    }
    sh(
        server(),
        "mount -t tmpfs srv /srv
         mount -t tmpfs state /var/lib/nfs; touch /var/lib/nfs/etab /var/lib/nfs/rmtab; mkdir /var/lib/nfs/v4recovery
         modprobe brd rd_nr=2 rd_size=16384; mkdir -p /dev/disk/by-id
         ln -s ../../ram0 /dev/disk/by-id/pair-1; ln -s ../../ram1 /dev/disk/by-id/pair-2",
    );
    sh(server(), &format!("{}; {}", host_faults::CUT, host_faults::UNCUT));
    // With nvme_core goes t10_pi, but not the checksums that t10_pi had loaded.
    sh(
        client(),
        "modprobe -a nfs nfsv3 nfsv4 rpcrdma rpcsec_gss_krb5 ext4 t10_pi; rmmod t10_pi; mkdir -p /mnt/book",
    );
}

/// The planned number of paths, over both transports, each with the planned state for each volume.
fn the_paths_are_as_planned(hosting: &Folder) {
    let said = hosting.run("50-connect.sh", "verify");
    assert!(said.contains("all 4 paths are live"), "{said}");
    let mut found: Vec<String> = Vec::new();
    let mut path = String::new();
    for line in said.lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        match words[..] {
            [_, transport @ ("rdma" | "tcp"), address, "4420", "live", "nqn.2026-11.test.pair:stor"] => {
                path = format!("{transport} {address}");
            }
            ["volume", volume, state] => found.push(format!("{path} {volume} {state}")),
            _ => {}
        }
    }
    found.sort_unstable();
    let planned = [
        "rdma 10.77.1.2 1 optimized",
        "rdma 10.77.1.2 2 non-optimized",
        "rdma 10.77.2.2 1 non-optimized",
        "rdma 10.77.2.2 2 optimized",
        "tcp 10.77.1.2 1 optimized",
        "tcp 10.77.1.2 2 non-optimized",
        "tcp 10.77.2.2 1 non-optimized",
        "tcp 10.77.2.2 2 optimized",
    ];
    assert_eq!(found, planned, "{said}");
    assert_eq!(host_faults::bad(""), [""; 0], "a sound host");
}

/// A script's function that prints the device of volume $1 on the host: the one above its paths.
const VOLUME: &str = r#"
volume() {
    for subsystem in /sys/class/nvme-subsystem/*; do
        [ "$(cat $subsystem/subsysnqn)" = nqn.2026-11.test.pair:stor ] || continue
        for at in $subsystem/nvme*n$1; do [ ! -b /dev/${at##*/} ] || echo /dev/${at##*/}; done
    done
}
"#;

/// What the host has written is on the disks of the server, each on its own.
fn the_volumes_are_those_of_the_server() {
    for volume in ["1", "2"] {
        let sum = "iflag=direct bs=64k count=32 status=none | sha256sum";
        let on_host = sh(client(), &format!("{VOLUME} dd if=$(volume {volume}) {sum}"));
        let on_server = sh(server(), &format!("dd if=/dev/disk/by-id/pair-{volume} {sum}"));
        let zeros = sh(server(), "head -c 2097152 /dev/zero | sha256sum");
        assert_eq!(on_host, on_server, "volume {volume}");
        assert_ne!(on_host, zeros, "something was written to volume {volume}");
    }
}

/// A host does not disconnect what is mounted.
fn a_volume_in_use_keeps_its_paths(hosting: &Folder) {
    sh(
        client(),
        &format!(
            "{VOLUME} mkfs.ext4 -q $(volume 2); mount $(volume 2) /mnt/book; echo kept > /mnt/book/file"
        ),
    );
    let said = hosting.fails("50-connect.sh", "undo");
    assert!(said.contains("is in use: unmount it first"), "{said}");
    sh(client(), "[ $(cat /mnt/book/file) = kept ]; umount /mnt/book");
    hosting.run("50-connect.sh", "verify");
}
