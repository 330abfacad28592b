//! Faults of a target of volumes, and of the links to it, under our NVMe/TCP host (`block attach`)
//! on two paths: no request of a program fails, and every block is what was acknowledged last. The
//! load runs in the guest, where the faults are made too.
//!
//! What may strike every target is here: the links, and the device that the target has the volume
//! on. The first address is the better one, if one is. What strikes the kernel's target or ours
//! only is in `kernel_target_faults` and `our_target_faults`.

use crate::disk_load::{DiskLoad, Done};
use crate::kernel_target::{ADDRESSES, HOST, STORE, SUBSYSTEM, TIMEOUT, run, wait_for_connections};
use crate::trunkline;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;
use std::thread::park_timeout as pass;
use std::time::{Duration, Instant};
use testkit::{Deadline, Process, Stream};

const SOCKET: &str = "/run/target-faults.sock";
/// How long a fault lasts: longer than a path may be silent before the host leaves it.
const LASTS: Duration = Duration::from_secs(2);
/// The connections of a controller: the admin queue, and the I/O queues of `block attach`.
const QUEUES: usize = 3;

/// How a fault is made, or mended.
pub(super) enum Step<T> {
    /// By a shell script, see [`run`].
    Run(&'static str),
    /// By what only this target has.
    Do(fn(&mut T)),
}

impl<T> Step<T> {
    fn take(&self, target: &mut T) {
        match self {
            Self::Run(script) => drop(run(script)),
            Self::Do(work) => work(target),
        }
    }
}

/// A fault of a target or of the links to it.
pub(super) struct Fault<T> {
    pub(super) name: &'static str,
    pub(super) strike: Step<T>,
    pub(super) mend: Step<T>,
    /// Whether a path is lost: otherwise the target goes on to answer.
    pub(super) is_loss: bool,
}

impl<T> Fault<T> {
    /// A fault that scripts make.
    pub(super) const fn of_scripts(
        name: &'static str,
        is_loss: bool,
        strike: &'static str,
        mend: &'static str,
    ) -> Self {
        Self { name, strike: Step::Run(strike), mend: Step::Run(mend), is_loss }
    }
}

/// Faults of the links, and of the target's device.
pub(super) fn of_every_target<T>() -> Vec<Fault<T>> {
    vec![
        Fault::of_scripts(
            "packets of one address dropped silently",
            true,
            "tc qdisc add dev bad1 root netem loss 100%; far tc qdisc add dev bad1 root netem loss 100%",
            "tc qdisc del dev bad1 root; far tc qdisc del dev bad1 root",
        ),
        // The target executes the commands, and the host learns of none.
        Fault::of_scripts(
            "only what the target sends from one address is dropped",
            true,
            "far tc qdisc add dev bad1 root netem loss 100%",
            "far tc qdisc del dev bad1 root",
        ),
        Fault::of_scripts("link down", true, "ip -n far link set bad1 down", "ip -n far link set bad1 up"),
        // They arrive when the host has lost that path long ago.
        Fault::of_scripts(
            "commands held by one link and delivered later, resets lost",
            true,
            "held",
            "delivered",
        ),
        Fault::of_scripts(
            "each segment to one address is answered by a reset",
            true,
            "far nft add table ip faults
            far nft add chain ip faults input '{ type filter hook input priority 0 ; }'
            far nft add rule ip faults input ip daddr 10.99.1.2 tcp dport 4420 reject with tcp reset",
            "far nft delete table ip faults",
        ),
        Fault::of_scripts(
            "all connections reset once",
            true,
            "[ -n \"$(far ss --kill --tcp --no-header 'sport = :4420')\" ]",
            ":",
        ),
        // Nothing is under way on a path but what the device holds. The target itself answers.
        Fault::of_scripts(
            "the target's device stands still",
            false,
            "dmsetup suspend --noflush --nolockfs store",
            "dmsetup resume store",
        ),
        Fault::of_scripts(
            "packets of both addresses dropped silently",
            true,
            "for n in 1 2; do
                tc qdisc add dev bad$n root netem loss 100%; far tc qdisc add dev bad$n root netem loss 100%
            done",
            "for n in 1 2; do tc qdisc del dev bad$n root; far tc qdisc del dev bad$n root; done",
        ),
    ]
}

/// Our host, attached to both addresses of the target, with a disk on this socket.
pub(super) fn attached(socket: &str) -> Process {
    let mut attach = Command::new(trunkline());
    attach.args(["block", "attach", "--nqn", SUBSYSTEM, "--hostnqn", HOST, "--socket", socket]);
    attach.args(ADDRESSES.iter().flat_map(|address| ["--connect", address])).arg("--keep-alive=5");
    let attached = Process::spawn(attach);
    attached.wait_for_line("ready", TIMEOUT);
    wait_for_connections(QUEUES, &ADDRESSES);
    attached
}

/// Has the faults strike one after the other, and says how long requests have waited.
pub(super) fn under_faults<T>(name: &str, target: &mut T, faults: &[Fault<T>]) {
    let mut attached = attached(SOCKET);
    let load = DiskLoad::start(Path::new(SOCKET), 7);
    load.wait_for_all();
    let mut times = Vec::new();
    for fault in faults {
        let before = losses(&attached);
        let struck = Instant::now();
        fault.strike.take(target);
        // This is no wait for an event: this is how long a fault lasts.
        pass(LASTS);
        if fault.is_loss {
            let what = format!("a path to be lost: {}", fault.name);
            Deadline::wait_until(&what, TIMEOUT, || (losses(&attached) > before).then_some(()));
        }
        fault.mend.take(target);
        wait_for_connections(QUEUES, &ADDRESSES);
        load.wait_for_all();
        times.push((fault.name, struck, Instant::now()));
    }
    let outcome = load.stop(Path::new(SOCKET));
    println!("the longest wait of a request in ms, emulated, keep-alive timeout 5 s\n");
    println!("| fault of {name} | read | write |\n|---|---|---|");
    for (at, (name, struck, calm)) in times.iter().enumerate() {
        let next = times.get(at + 1).map(|(_, struck, _)| *struck);
        let [read, write] =
            [false, true].map(|is_write| longest(&outcome.done, is_write, *struck..*calm, next));
        println!("| {name} | {read} | {write} |");
    }
    println!("{} requests\n", outcome.done.len());
    assert!(outcome.wrong.is_empty(), "{:?}", outcome.wrong);
    assert!(attached.terminate(TIMEOUT).success());
    // Also what was on its way on lost paths has landed by now.
    let store = File::open(STORE).expect("the target's device");
    for (offset, expected) in &outcome.content {
        let mut found = vec![0; expected.len()];
        store.read_exact_at(&mut found, *offset).expect("its blocks");
        assert!(&found == expected, "the target's device holds something else at {offset}");
    }
}

/// How often our host says that it has lost a path.
fn losses(attached: &Process) -> usize {
    attached.output(Stream::Err).matches("no path; it is tried again").count()
}

/// The longest wait in ms of a request that met a fault. What is still under way when the next
/// one strikes is counted there.
fn longest(done: &[Done], is_write: bool, fault: Range<Instant>, next: Option<Instant>) -> u128 {
    let of_kind = done.iter().filter(|one| one.is_write == is_write);
    let met = of_kind.filter(|one| {
        let ended = one.submitted + one.took;
        one.submitted < fault.end && ended >= fault.start && next.is_none_or(|next| ended < next)
    });
    met.map(|one| one.took).max().unwrap_or_default().as_millis()
}
