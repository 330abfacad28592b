//! Two guests that are a cluster of o2cb, OCFS2's own cluster stack, and the target of their
//! volume.

use crate::load::{BLOCKS, Content, FILES, for_ever, make, places};
use crate::{TIMEOUT, sh, wait_until};
use lab::vm::{Accel, Guest, Guests, Running, Spec, Vm};
use std::process::Command;
use testkit::require_program;

const SUBSYSTEM: &str = "nqn.2026-11.org.trunkline:cluster";
const AGENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../dist/cluster/fence_trunkline");

/// Both members, in the guest that a shell script runs in. The server is number 0, because of two
/// members that only lose each other, o2cb lets the one with the lower number go on. A member that
/// is silent for 30 seconds is given up: long enough for a busy machine, and half the default.
const MEMBERS: &str = "
    mkdir -p /etc/ocfs2
    {
        printf 'cluster:\\n\\tname = volumes\\n\\tnode_count = 2\\n\\theartbeat_mode = local\\n\\n'
        for member in '0 server 10.77.1.2' '1 client 10.77.1.1'; do
            set -- $member
            printf 'node:\\n\\tcluster = volumes\\n\\tnumber = %s\\n\\tname = %s\\n' $1 $2
            printf '\\tip_address = %s\\n\\tip_port = 7777\\n\\n' $3
        done
    } > /etc/ocfs2/cluster.conf
    modprobe configfs
    mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config
    modprobe ocfs2; modprobe ocfs2_stack_o2cb
    o2cb register-cluster volumes
    echo 16 > /sys/kernel/config/cluster/volumes/heartbeat/dead_threshold";

pub(super) struct Cluster {
    /// Ends before the guests do.
    _target: Running,
    vm: Vm,
}

impl Cluster {
    /// Starts the guests and the target, connects both to the volume, and mounts it in both.
    pub(super) fn start() -> Self {
        for program in
            ["busybox", "filefrag", "flock", "fsck.ocfs2", "mkfs.ocfs2", "nft", "nvme", "qemu-system-x86_64"]
        {
            let _ = require_program(program);
        }
        // Emulated everywhere, so that the suite behaves the same on each machine.
        let spec = Spec {
            accel: Accel::Tcg,
            guests: Guests::Two,
            memory_mib: 2048,
            rdma: false,
            ..Spec::new(env!("CARGO_BIN_EXE_trunkline"))
        };
        let vm = match Vm::start(&spec) {
            Ok(vm) => vm,
            Err(error) => panic!("cannot start two guests: {error}"),
        };
        let target = serve(vm.server());
        for guest in [vm.server(), vm.client()] {
            connect(guest);
            sh(guest, MEMBERS);
        }
        sh(
            vm.server(),
            "mkfs.ocfs2 -b 4096 -C 4096 -N 2 -J size=8M --cluster-stack=o2cb --cluster-name=volumes /dev/nvme0n1 \
                 < /dev/null 2>&1",
        );
        for guest in [vm.server(), vm.client()] {
            sh(
                guest,
                "mkdir -p /mnt/volume; mount -t ocfs2 /dev/nvme0n1 /mnt/volume || { dmesg | tail -50; exit 1; }",
            );
        }
        Self { _target: target, vm }
    }

    pub(super) fn server(&self) -> &Guest {
        self.vm.server()
    }

    pub(super) fn client(&self) -> &Guest {
        self.vm.client()
    }

    /// Makes the files, and lets the client write them for ever, with the lock of the cluster.
    pub(super) fn load(&self) -> Running {
        sh(self.client(), &make());
        sh(self.server(), &format!("({}) > /run/places", places()));
        let mut load = Command::new("/bin/sh");
        load.args(["-c", &for_ever("client")]).current_dir("/");
        let load = self.client().spawn(&load).expect("the guest runs");
        wait_until("all blocks to be written by the client", || self.content().is_of("client").then_some(()));
        load
    }

    /// Pauses the client while its queues have as many writes as it has writers, which have not
    /// reached the target. The way to the target is open again when this returns. Returns what the
    /// device holds.
    pub(super) fn pause_with_queued_writes(&self) -> Content {
        sh(
            self.server(),
            "modprobe nf_tables
             nft 'add table ip hold; add chain ip hold in { type filter hook input priority 0; }
                  add rule ip hold in iifname n1 tcp dport 4420 drop'",
        );
        wait_until("writes in the client's queues", || {
            let inflight = sh(self.client(), "cat /sys/class/nvme/nvme0/nvme*n1/inflight");
            let writes = inflight.split_whitespace().nth(1).and_then(|writes| writes.parse().ok());
            (writes >= Some(FILES)).then_some(())
        });
        self.client().pause().expect("the client is paused");
        sh(self.server(), "nft delete table ip hold");
        self.content()
    }

    /// What the device has at the places of the files, read past all caches.
    pub(super) fn content(&self) -> Content {
        let said = sh(
            self.server(),
            &format!(
                "for file in $(seq 0 {}); do
                     echo file; first=$(sed -n \"$((file + 1))p\" /run/places)
                     dd if=/dev/ram0 bs=4096 count={BLOCKS} skip=$first iflag=direct 2> /dev/null | uniq -c | tr -s ' '
                 done",
                FILES - 1
            ),
        );
        Content::parse(&said)
    }

    /// Has the target refuse the client, as a cluster does.
    pub(super) fn fence(&self) {
        let program = env!("CARGO_BIN_EXE_trunkline");
        let host = host("client");
        let said = sh(
            self.server(),
            &format!(
                "printf 'action=off\\nplug={host}\\nprogram={program}\\n' | {AGENT} >&2
                 {program} block fenced; {program} block hosts"
            ),
        );
        let lines = said.lines().filter(|line| line.contains(&host)).count();
        assert_eq!(lines, 1, "it is fenced, and not connected: {said}");
    }

    /// How often the target has refused the client's address.
    pub(super) fn refusals(&self) -> usize {
        let said =
            sh(self.server(), "grep -c 'peer=10.77.1.1:.*Connect was refused' /run/target.log || true");
        said.trim().parse().expect("a number")
    }

    /// Whether the server has done the work that the client has left in its journal.
    pub(super) fn has_lost_the_client(&self) -> bool {
        sh(self.server(), "dmesg").contains("End replay journal (node 1")
    }

    /// The number of the client's last heartbeat on the volume.
    pub(super) fn heartbeat_of_the_client(&self) -> String {
        sh(self.server(), "debugfs.ocfs2 -R hb /dev/nvme0n1 | grep ' 1: '")
    }

    /// Unmounts the volume, and looks at all of it.
    pub(super) fn is_clean_after_unmount(&self) {
        let said = sh(self.server(), "umount /mnt/volume; sync; fsck.ocfs2 -fn /dev/nvme0n1 2>&1");
        assert!(said.contains("All passes succeeded."), "{said}");
    }
}

fn host(guest: &str) -> String {
    format!("nqn.2026-11.org.trunkline:{guest}")
}

/// The target in the server, on a device that is memory.
fn serve(server: &Guest) -> Running {
    sh(server, "modprobe brd rd_nr=1 rd_size=262144");
    let serve = format!(
        "exec {} -vv block serve --volume /dev/ram0 --listen 10.77.1.2:4420 --state /run/target --nqn {SUBSYSTEM} \
             --allow {} --allow {} 2> /run/target.log",
        env!("CARGO_BIN_EXE_trunkline"),
        host("server"),
        host("client")
    );
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", &serve]).current_dir("/");
    let mut target = server.spawn(&shell).expect("the guest runs");
    target.wait_for_line("ready", TIMEOUT).expect("the target is ready");
    target
}

/// The keep-alive timeout is longer than the test lets a host stand still before the fence, so that
/// it is the fence that ends its controller.
fn connect(guest: &Guest) {
    let number = if guest.name() == "server" { 1 } else { 2 };
    sh(
        guest,
        &format!(
            "modprobe nvme-tcp
             nvme connect -t tcp -a 10.77.1.2 -s 4420 -n {SUBSYSTEM} --hostnqn {} \
                 --hostid 5f2c1a0e-7d1c-4c5e-9a57-00000000000{number} --keep-alive-tmo=120
             for try in $(seq 600); do [ -b /dev/nvme0n1 ] && exit; sleep 0.1; done; nvme list-subsys; exit 1",
            host(guest.name())
        ),
    );
}
