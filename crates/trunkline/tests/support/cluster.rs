//! Two guests that are a cluster on one volume, and the target of the volume: what the tests of
//! cluster file systems have in common. The file system is mounted at /mnt/volume in both.
//!
//! The guest `server` has the target and is one host of its volume; the guest `client` is the
//! other host, and the one that is paused.

use crate::cluster_load::{BLOCKS, Content, FILES, for_ever, make, places};
use crate::guest;
use lab::vm::{Accel, Error, Guest, Guests, Running, Spec, Vm};
use std::process::Command;
use std::time::Duration;
use testkit::{Deadline, require_program};

/// The longest time that anything may take in an emulated machine on a busy host.
pub const TIMEOUT: Duration = Duration::from_secs(600);

/// How often is looked whether something has happened in a guest, which costs it a process.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// How often is looked for the writes of all writers. The host gives a request 30 seconds.
const LOOKS: u32 = 8;

/// How long is waited for what must not happen.
const SILENCE: Duration = Duration::from_secs(2);

const SUBSYSTEM: &str = "nqn.2026-11.org.trunkline:cluster";
pub const AGENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../dist/cluster/fence_trunkline");
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_trunkline");

/// Runs a shell script in a guest, which must succeed; returns its output.
#[track_caller]
pub fn sh(guest: &Guest, script: &str) -> String {
    guest::sh(guest, &format!("set -e\n{script}"))
}

/// Starts a shell script in a guest.
#[track_caller]
pub fn start(guest: &Guest, script: &str) -> Running {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", script]).current_dir("/");
    guest.spawn(&shell).expect("the guest runs")
}

/// Waits for something in a guest.
#[track_caller]
pub fn wait_until<T>(what: &str, mut check: impl FnMut() -> Option<T>) -> T {
    let mut is_first = true;
    Deadline::wait_until(what, TIMEOUT, || {
        if !std::mem::take(&mut is_first) {
            std::thread::sleep(LOOK_INTERVAL);
        }
        check()
    })
}

/// A command says nothing and does not end, because it waits for the other guest.
#[track_caller]
pub fn waits(command: &mut Running) {
    let early = command.next_within(SILENCE);
    assert!(matches!(early, Err(Error::Timeout(_))), "{early:?}");
}

/// The NQN of a guest's host.
pub fn host(guest: &str) -> String {
    format!("nqn.2026-11.org.trunkline:{guest}")
}

pub struct Cluster {
    /// Ends before the guests do.
    _target: Running,
    vm: Vm,
}

impl Cluster {
    /// Starts the guests and the target, and connects both to the volume, which is /dev/nvme0n1.
    /// The test needs these programs in addition.
    pub fn start(programs: &[&str]) -> Self {
        let ours = ["busybox", "filefrag", "flock", "nft", "nvme", "qemu-system-x86_64"];
        for program in ours.iter().chain(programs) {
            let _ = require_program(program);
        }
        // Emulated everywhere, so that the suites behave the same on each machine.
        let spec = Spec {
            accel: Accel::Tcg,
            guests: Guests::Two,
            memory_mib: 2048,
            rdma: false,
            ..Spec::new(PROGRAM)
        };
        let vm = match Vm::start(&spec) {
            Ok(vm) => vm,
            Err(error) => panic!("cannot start two guests: {error}"),
        };
        let target = serve(vm.server());
        connect(vm.server());
        connect(vm.client());
        Self { _target: target, vm }
    }

    pub fn server(&self) -> &Guest {
        self.vm.server()
    }

    pub fn client(&self) -> &Guest {
        self.vm.client()
    }

    pub fn both(&self) -> [&Guest; 2] {
        [self.server(), self.client()]
    }

    /// A file that one member writes is read by the other, and a lock that one has makes the other
    /// wait.
    pub fn shares_files_and_locks(&self) {
        let (server, client) = (self.server(), self.client());
        sh(client, "echo of the client > /mnt/volume/word");
        assert_eq!(sh(server, "cat /mnt/volume/word"), "of the client\n");
        sh(server, "echo of the server >> /mnt/volume/word; rm -f /mnt/volume/none; mkdir /mnt/volume/more");
        assert_eq!(
            sh(client, "cat /mnt/volume/word; ls --ignore lost+found /mnt/volume"),
            "of the client\nof the server\nmore\nword\n"
        );

        let mut holder = start(client, "flock /mnt/volume/lock sh -c 'echo held; read word'");
        holder.wait_for_line("held", TIMEOUT).expect("a lock");
        sh(server, "! flock --nonblock /mnt/volume/lock true");
        let mut waiting = start(server, "flock /mnt/volume/lock echo got");
        waits(&mut waiting);
        holder.end_input();
        waiting.wait_for_line("got", TIMEOUT).expect("the lock, once it is free");
    }

    /// Makes the files, and lets the client write them for ever, with the lock of the cluster.
    pub fn load(&self) -> Running {
        sh(self.client(), &make());
        sh(self.server(), &format!("({}) > /run/places", places()));
        let load = start(self.client(), &for_ever("client"));
        wait_until("all blocks to be written by the client", || self.content().is_of("client").then_some(()));
        load
    }

    /// What is queued when a host stands still is written when the host goes on, if it may.
    pub fn writes_what_was_queued_without_a_fence(&self) {
        let queued = self.pause_with_queued_writes();
        self.client().resume().expect("the client goes on");
        wait_until("the queued writes of a host that is not fenced", || {
            let found = self.content();
            (0..FILES).all(|file| found.differs_in(&queued, file)).then_some(())
        });
    }

    /// Pauses the client while its queues have as many writes as it has writers, which have not
    /// reached the target. The way to the target is open again when this returns. Returns what the
    /// device holds.
    pub fn pause_with_queued_writes(&self) -> Content {
        sh(self.server(), "modprobe nf_tables");
        wait_until("writes in the client's queues", || self.has_paused_with_queued_writes().then_some(()));
        let content = self.content();
        assert!(content.is_of("client"), "{content}");
        content
    }

    /// A file system that writes to its journal just then has its writers wait for that, so there
    /// may be too few writes.
    fn has_paused_with_queued_writes(&self) -> bool {
        sh(
            self.server(),
            "nft 'add table ip hold; add chain ip hold in { type filter hook input priority 0; }
                  add rule ip hold in iifname n1 tcp dport 4420 drop'",
        );
        let inflight = || {
            std::thread::sleep(LOOK_INTERVAL);
            let inflight = sh(self.client(), "cat /sys/class/nvme/nvme0/nvme*n1/inflight");
            inflight.split_whitespace().nth(1).and_then(|writes| writes.parse().ok())
        };
        let is_enough = (0..LOOKS).any(|_| inflight() >= Some(FILES));
        if is_enough {
            self.client().pause().expect("the client is paused");
        }
        sh(self.server(), "nft delete table ip hold");
        is_enough
    }

    /// What the device has at the places of the files, read past all caches.
    pub fn content(&self) -> Content {
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

    /// Which hosts the target refuses, a line for each.
    pub fn fenced(&self) -> String {
        sh(self.server(), &format!("{PROGRAM} block fenced"))
    }

    /// How often the target has refused the client's address.
    pub fn refusals(&self) -> usize {
        let said =
            sh(self.server(), "grep -c 'peer=10.77.1.1:.*Connect was refused' /run/target.log || true");
        said.trim().parse().expect("a number")
    }
}

/// The target in the server, on a device that is memory.
fn serve(server: &Guest) -> Running {
    sh(server, "modprobe brd rd_nr=1 rd_size=262144");
    let mut target = start(
        server,
        &format!(
            "exec {PROGRAM} -vv block serve --volume /dev/ram0 --listen 10.77.1.2:4420 --state /run/target \
                 --nqn {SUBSYSTEM} --allow {} --allow {} 2> /run/target.log",
            host("server"),
            host("client")
        ),
    );
    target.wait_for_line("ready", TIMEOUT).expect("the target is ready");
    target
}

/// The keep-alive timeout is longer than the tests let a host stand still before the fence, so that
/// it is the fence that ends its controller.
fn connect(guest: &Guest) {
    let number = if guest.name() == "server" { 1 } else { 2 };
    sh(
        guest,
        &format!(
            "modprobe nvme-tcp
             nvme connect -t tcp -a 10.77.1.2 -s 4420 -n {SUBSYSTEM} --hostnqn {} \
                 --hostid 5f2c1a0e-7d1c-4c5e-9a57-00000000000{number} --keep-alive-tmo=300
             for try in $(seq 600); do [ -b /dev/nvme0n1 ] && exit; sleep 0.1; done; nvme list-subsys; exit 1",
            host(guest.name())
        ),
    );
}
