//! Faults between our NVMe/TCP host (`block attach`) and the Linux kernel's target, on two paths:
//! no request of a program fails, and every block is what was acknowledged last. The load runs in
//! the guest, where the faults are made too.

use crate::bad_links::links;
use crate::disk_load::{DiskLoad, Done};
use crate::guest::{is_in_guest, passes_in};
use crate::kernel_target::{
    ADDRESSES, HOST, KernelTarget, STORE, SUBSYSTEM, TIMEOUT, run, wait_for_connections,
};
use crate::{alone, lab, trunkline};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;
use std::thread::park_timeout as pass;
use std::time::{Duration, Instant};
use testkit::{Deadline, Process, Stream};

const SOCKET: &str = "/run/kernel-target.sock";
/// How long a fault lasts: longer than a path may be silent before the host leaves it.
const LASTS: Duration = Duration::from_secs(2);
/// The connections of a controller: the admin queue, and the I/O queues of `block attach`.
const QUEUES: usize = 3;

/// A fault of the target or of the links to it, as commands.
struct Fault {
    name: &'static str,
    strike: &'static str,
    mend: &'static str,
    /// Whether a path is lost: otherwise the target goes on to answer.
    is_loss: bool,
}

const FAULTS: [Fault; 10] = [
    Fault {
        name: "packets of one address dropped silently",
        strike: "tc qdisc add dev bad1 root netem loss 100%; far tc qdisc add dev bad1 root netem loss 100%",
        mend: "tc qdisc del dev bad1 root; far tc qdisc del dev bad1 root",
        is_loss: true,
    },
    // The target executes the commands, and the host learns of none.
    Fault {
        name: "only what the target sends from one address is dropped",
        strike: "far tc qdisc add dev bad2 root netem loss 100%",
        mend: "far tc qdisc del dev bad2 root",
        is_loss: true,
    },
    Fault {
        name: "link down",
        strike: "ip -n far link set bad1 down",
        mend: "ip -n far link set bad1 up",
        is_loss: true,
    },
    // The target executes them when the host has lost that path long ago.
    Fault {
        name: "commands held by one link and delivered later, resets lost",
        strike: "held",
        mend: "delivered",
        is_loss: true,
    },
    Fault {
        name: "each segment to one address is answered by a reset",
        strike: "far nft add table ip faults
            far nft add chain ip faults input '{ type filter hook input priority 0 ; }'
            far nft add rule ip faults input ip daddr 10.99.2.2 tcp dport 4420 reject with tcp reset",
        mend: "far nft delete table ip faults",
        is_loss: true,
    },
    Fault {
        name: "all connections reset once",
        strike: "[ -n \"$(far ss --kill --tcp --no-header 'sport = :4420')\" ]",
        mend: ":",
        is_loss: true,
    },
    Fault {
        name: "subsystem taken from one port: its controllers end, and it refuses",
        strike: "closed 1",
        mend: "opened 1",
        is_loss: true,
    },
    Fault {
        name: "ANA state of one port inaccessible",
        strike: "echo inaccessible > $nvmet/ports/2/ana_groups/1/ana_state",
        mend: "echo optimized > $nvmet/ports/2/ana_groups/1/ana_state",
        is_loss: false,
    },
    // Nothing is under way on a path but what the device holds, while the target itself answers.
    Fault {
        name: "the target's device stands still",
        strike: "dmsetup suspend --noflush --nolockfs store",
        mend: "dmsetup resume store",
        is_loss: false,
    },
    Fault {
        name: "packets of both addresses dropped silently",
        strike: "for n in 1 2; do
                tc qdisc add dev bad$n root netem loss 100%; far tc qdisc add dev bad$n root netem loss 100%
            done",
        mend: "for n in 1 2; do tc qdisc del dev bad$n root; far tc qdisc del dev bad$n root; done",
        is_loss: true,
    },
];

#[test]
fn nothing_is_lost_or_undone_by_faults_of_the_kernels_target_under_our_host() {
    const NAME: &str =
        "kernel_target_faults::nothing_is_lost_or_undone_by_faults_of_the_kernels_target_under_our_host";
    if is_in_guest() {
        return under_faults();
    }
    let _turn = alone();
    links();
    passes_in(lab().client(), NAME);
}

/// Our host, attached to these addresses of the target, with a disk on this socket.
pub(super) fn attached(socket: &str) -> Process {
    let mut attach = Command::new(trunkline());
    attach.args(["block", "attach", "--nqn", SUBSYSTEM, "--hostnqn", HOST, "--socket", socket]);
    attach.args(ADDRESSES.iter().flat_map(|address| ["--connect", address])).arg("--keep-alive=5");
    let attached = Process::spawn(attach);
    attached.wait_for_line("ready", TIMEOUT);
    wait_for_connections(QUEUES, &ADDRESSES);
    attached
}

fn under_faults() {
    let target = KernelTarget::start("optimized");
    let mut attached = attached(SOCKET);
    let load = DiskLoad::start(Path::new(SOCKET), 7);
    load.wait_for_all();
    let mut times = Vec::new();
    for fault in &FAULTS {
        let before = losses(&attached);
        let struck = Instant::now();
        run(fault.strike);
        // This is no wait for an event: this is how long a fault lasts.
        pass(LASTS);
        if fault.is_loss {
            let what = format!("a path to be lost: {}", fault.name);
            Deadline::wait_until(&what, TIMEOUT, || (losses(&attached) > before).then_some(()));
        }
        run(fault.mend);
        wait_for_connections(QUEUES, &ADDRESSES);
        load.wait_for_all();
        times.push((fault.name, struck, Instant::now()));
    }
    let outcome = load.stop(Path::new(SOCKET));
    println!("the longest wait of a request in ms, emulated, keep-alive timeout 5 s\n");
    println!("| fault of the kernel's target | read | write |\n|---|---|---|");
    for (name, struck, calm) in times {
        let [read, write] = [false, true].map(|is_write| longest(&outcome.done, is_write, struck, calm));
        println!("| {name} | {read} | {write} |");
    }
    println!("{} requests", outcome.done.len());
    assert!(outcome.wrong.is_empty(), "{:?}", outcome.wrong);
    assert!(attached.terminate(TIMEOUT).success());
    // Also what was on its way on lost paths has landed by now.
    let store = File::open(STORE).expect("the target's device");
    for (offset, expected) in &outcome.content {
        let mut found = vec![0; expected.len()];
        store.read_exact_at(&mut found, *offset).expect("its blocks");
        assert!(&found == expected, "the target's device holds something else at {offset}");
    }
    drop((store, target));
}

/// How often our host says that it has lost a path.
fn losses(attached: &Process) -> usize {
    attached.output(Stream::Err).matches("no path; it is tried again").count()
}

/// The longest wait in ms of a request that met the fault.
fn longest(done: &[Done], is_write: bool, struck: Instant, calm: Instant) -> u128 {
    let of_kind = done.iter().filter(|one| one.is_write == is_write);
    let met = of_kind.filter(|one| one.submitted < calm && one.submitted + one.took >= struck);
    met.map(|one| one.took).max().unwrap_or_default().as_millis()
}
