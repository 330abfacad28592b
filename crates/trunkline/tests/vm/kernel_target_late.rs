//! A write that arrives after its retry and after newer data: a link holds a whole command of the
//! host, the host loses that path and does not know it, writes again and writes newer data on the
//! other path, and then the link delivers what it held.
//!
//! The control: the kernel's host repeats a write at once, and the kernel's target executes the
//! late original. Our host repeats it only when the old controller is finished.

use crate::bad_links::links;
use crate::guest::{is_in_guest, passes_in};
use crate::kernel_target::{ADDRESSES, HOST, KernelTarget, SUBSYSTEM, TIMEOUT, run, wait_for_connections};
use crate::nbd_client::Client;
use crate::target_faults::attached;
use crate::{alone, lab, trunkline};
use rustix::process::Signal;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use testkit::{Deadline, Process};

const SOCKET: &str = "/run/kernel-target-late.sock";
const BYTES: usize = 4096;
/// What was there, the write that is held, and the newer one.
const OLD: u8 = 1;
/// What the write that is held and its retry write.
const ORIGINAL: u8 = 2;
const NEWER: u8 = 3;

#[test]
fn a_late_original_undoes_newer_data_between_the_kernels_ends_and_not_with_our_host() {
    const NAME: &str = "kernel_target_late::a_late_original_undoes_newer_data_between_the_kernels_ends_and_not_with_our_host";
    if is_in_guest() {
        return all_pairs();
    }
    let _turn = alone();
    links();
    passes_in(lab().client(), NAME);
}

fn all_pairs() {
    run("modprobe -a nvme-tcp sch_plug tcp_diag");
    println!(
        "a write is held by a link, its path is lost, and a newer one is acknowledged on the other path\n"
    );
    println!("| host | target | newer acknowledged after | when the original has arrived, the block holds |");
    println!("|---|---|---|---|");
    let mut found = Vec::new();
    for of_target in ["kernel", "ours"] {
        for of_host in ["kernel", "ours"] {
            let target = Target::start(of_target);
            let host = Host::start(of_host);
            let (waited, holds) = late_original(&host);
            let what =
                if holds == NEWER { "the newer data" } else { "the original: the newer data are lost" };
            println!("| {of_host} | {of_target} | {} ms | {what} |", waited.as_millis());
            found.push((of_host, of_target, holds));
            drop((host, target));
        }
    }
    // Our host is safe with both, and what it is safe from is real.
    for (host, target, holds) in found {
        match (host, target) {
            ("ours", _) => assert_eq!(holds, NEWER, "our host on the target {target}"),
            (_, "kernel") => assert_eq!(holds, ORIGINAL, "the control shows nothing"),
            // No target can know that a whole command on a live connection is late.
            _ => assert_eq!(holds, ORIGINAL, "our target has found out: say so in docs/BLOCK.md"),
        }
    }
}

/// How long after the loss of the path the newer write was acknowledged, and what the block holds
/// in the end.
fn late_original(host: &Host) -> (Duration, u8) {
    host.disk().write(OLD);
    // From now on the first link keeps what is sent to the target, and loses resets.
    run("held");
    let waited = std::thread::scope(|scope| {
        let mut disk = host.disk();
        let original = scope.spawn(move || disk.write(ORIGINAL));
        Deadline::wait_until("a link to hold the original", TIMEOUT, || (held_bytes() > BYTES).then_some(()));
        // A host that has left this path by itself has no connection any more.
        run("ss --kill --tcp --no-header dst 10.99.1.2 dport = :4420");
        let lost = Instant::now();
        original.join().expect("its retry succeeds");
        host.disk().write(NEWER);
        lost.elapsed()
    });
    assert_eq!(host.disk().read(), NEWER, "the newer data are there before the original");
    run("delivered");
    // The host connects again behind what the link has held, and gets an answer.
    host.wait_for_paths();
    std::thread::park_timeout(Duration::from_secs(1));
    (waited, host.disk().read())
}

/// The bytes that the first link holds.
fn held_bytes() -> usize {
    let said = run("tc -statistics -json qdisc show dev bad1");
    let all: Value = serde_json::from_str(&said).expect("tc writes JSON");
    let bytes = all[0]["backlog"].as_u64().unwrap_or_else(|| panic!("no backlog: {said}"));
    usize::try_from(bytes).expect("a size")
}

/// A target whose first address is the better one.
enum Target {
    Kernel { _target: KernelTarget },
    Ours { _served: Process },
}

impl Target {
    fn start(of: &str) -> Self {
        if of == "kernel" {
            return Self::Kernel { _target: KernelTarget::start("non-optimized") };
        }
        let mut serve = Command::new("nsenter");
        serve
            .arg("--net=/run/netns/far")
            .arg("--")
            .arg(trunkline())
            .args(["block", "serve", "--allow", HOST]);
        serve.args(["--volume", "mem:16MiB", "--nqn", SUBSYSTEM, "--state", "/run/kernel-target-late"]);
        serve.args(ADDRESSES.iter().flat_map(|address| ["--listen", address]));
        let served = Process::spawn(serve);
        served.wait_for_line("ready", TIMEOUT);
        Self::Ours { _served: served }
    }
}

/// A host with a path to each address.
enum Host {
    /// The disk.
    Kernel(PathBuf),
    Ours(Process),
}

/// The connections of the kernel's controllers.
const KERNELS_QUEUES: usize = 2;

impl Host {
    fn start(of: &str) -> Self {
        if of == "ours" {
            return Self::Ours(attached(SOCKET));
        }
        let connect = |address: &str| {
            let (address, port) = address.split_once(':').expect("a port");
            // The target must not end a controller before an emulated machine has gone on.
            format!(
                "nvme connect -t tcp -a {address} -s {port} -n $nqn --hostnqn {HOST} --nr-io-queues=1 \
                 --hostid 5f2c1a0e-7d1c-4c5e-9a57-000000000001 --keep-alive-tmo=15 --reconnect-delay=1 >&2\n"
            )
        };
        let disk = run(&format!(
            "{}subsystem=$(dirname $(grep -lx $nqn /sys/class/nvme-subsystem/*/subsysnqn))
             disk=/dev/nvme$(basename $subsystem | tr -dc 0-9)n1
             for try in $(seq 600); do [ -b $disk ] && break; sleep 0.1; done
             echo $disk",
            ADDRESSES.map(connect).concat()
        ));
        Self::Kernel(PathBuf::from(disk.trim()))
    }

    fn disk(&self) -> Disk {
        match self {
            Self::Kernel(disk) => Disk::Device(disk.clone()),
            Self::Ours(_) => Disk::Nbd(Client::begin(Path::new(SOCKET))),
        }
    }

    fn wait_for_paths(&self) {
        wait_for_connections(if matches!(self, Self::Ours(_)) { 3 } else { KERNELS_QUEUES }, &ADDRESSES);
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // A failed case must not hang or panic here: its own message is the one to read.
        match self {
            Self::Kernel(_) => {
                let disconnect = ["disconnect", "-n", SUBSYSTEM];
                let _ = Command::new("nvme").args(disconnect).output();
            }
            // Not killed: after that, the next one would wait for what it may have left.
            Self::Ours(attached) => {
                attached.signal(Signal::TERM);
                let _ = attached.wait_at_most(TIMEOUT);
            }
        }
    }
}

/// The first block of a disk.
enum Disk {
    Device(PathBuf),
    Nbd(Client),
}

impl Disk {
    fn write(&mut self, fill: u8) {
        match self {
            Self::Nbd(client) => client.write(0, &[fill; BYTES]),
            Self::Device(disk) => {
                let disk = disk.display();
                run(&format!(
                    "head -c {BYTES} /dev/zero | tr '\\0' '\\{fill:03o}' > /run/late-{fill}
                     dd if=/run/late-{fill} of={disk} bs={BYTES} count=1 oflag=direct conv=notrunc 2>/dev/null"
                ));
            }
        }
    }

    /// What the whole block is filled with.
    fn read(&mut self) -> u8 {
        let data = match self {
            Self::Nbd(client) => client.read(0, BYTES as u32),
            Self::Device(disk) => {
                let disk = disk.display();
                run(&format!("dd if={disk} of=/run/late-read bs={BYTES} count=1 iflag=direct 2>/dev/null"));
                std::fs::read("/run/late-read").expect("the block")
            }
        };
        assert!(data.len() == BYTES && data.iter().all(|byte| *byte == data[0]), "the block is mixed");
        data[0]
    }
}
