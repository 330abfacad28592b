//! Faults between our client and the Linux kernel's NFS server, by version 4.2 over two of its
//! addresses: no call fails, every block is right, and no change of names is done twice or not at
//! all. The load runs in the guest, where the faults are made too.

use crate::guest::{is_in_guest, passes_in};
use crate::kernel_server::{root_exported, root_unexported, served};
use crate::load::{Completion, Load};
use crate::{alone, history, lab};
use client::Mount;
use std::process::Command;
use std::sync::Arc;
use std::thread::park_timeout as pass;
use std::time::{Duration, Instant};
use testkit::Deadline;

const OPTIONS: &str = "vers=4.2,nconnect=4,remoteports=10.77.1.1~10.77.1.2,spread_reads,spread_writes";
/// Only a hang takes so long, also in an emulated machine.
const TIMEOUT: Duration = Duration::from_secs(120);
/// How long a fault lasts: longer than a path may be silent before the client leaves it.
const LASTS: Duration = Duration::from_secs(2);
/// More calls than are in flight at a time.
const GOES_ON: u64 = 100;

/// A fault of the addresses in `$1`, as rules of nftables or as a command.
struct Fault {
    name: &'static str,
    addresses: &'static str,
    strike: &'static str,
}

const BOTH: &str = "10.77.1.1, 10.77.1.2";

/// The last one is that of all paths.
const FAULTS: [Fault; 6] = [
    Fault {
        name: "packets dropped silently",
        addresses: "10.77.1.1",
        strike: "rule \"ip daddr { $1 } tcp dport 2049 counter drop\"; rule \"ip saddr { $1 } tcp sport 2049 counter drop\"",
    },
    // The server executes the calls, and the client learns of none.
    Fault {
        name: "only what the server sends is dropped",
        addresses: "10.77.1.2",
        strike: "rule \"ip saddr { $1 } tcp sport 2049 counter drop\"",
    },
    Fault {
        name: "each segment is answered by a reset",
        addresses: "10.77.1.1",
        strike: "rule \"ip daddr { $1 } tcp dport 2049 counter reject with tcp reset\"",
    },
    // The server's end is reset at its reply, and the client's is silent.
    Fault {
        name: "replies are answered by a reset",
        addresses: "10.77.1.2",
        strike: "rule \"ip saddr { $1 } tcp sport 2049 counter reject with tcp reset\"",
    },
    Fault {
        name: "all connections reset once",
        addresses: BOTH,
        strike: "[ -n \"$(ss --kill --tcp --no-header 'sport = :2049')\" ]",
    },
    Fault {
        name: "packets of both addresses dropped silently",
        addresses: BOTH,
        strike: "rule \"ip daddr { $1 } tcp dport 2049 counter drop\"; rule \"ip saddr { $1 } tcp sport 2049 counter drop\"",
    },
];

#[test]
fn nothing_is_done_twice_on_the_kernels_server_when_connections_break() {
    const NAME: &str =
        "kernel_server_faults::nothing_is_done_twice_on_the_kernels_server_when_connections_break";
    if is_in_guest() {
        return under_faults();
    }
    let _turn = alone();
    served();
    root_exported();
    passes_in(lab().client(), NAME);
    root_unexported();
}

fn under_faults() {
    run("modprobe tcp_diag; chmod 1777 /srv/root4", "");
    let mount = Arc::new(Mount::connect("10.77.1.2:/", OPTIONS).expect("the client mounts"));
    let load = Load::start(&mount, "faults", history::Store::ByParts, 7);
    wait_for_progress(&mount);
    let mut times = Vec::new();
    for fault in &FAULTS {
        let before = breaks(&mount);
        let struck = Instant::now();
        run(&format!("{RULES}{}", fault.strike), fault.addresses);
        // This is no wait for an event: this is how long a fault lasts.
        pass(LASTS);
        let what = format!("a connection to break: {}", fault.name);
        Deadline::wait_until(&what, TIMEOUT, || (breaks(&mount) > before).then_some(()));
        run("nft delete table ip faults", "");
        let healed = Instant::now();
        wait_for_progress(&mount);
        times.push((fault.name, struck, healed));
    }
    let replays = mount.statistics().replays;
    let outcome = load.stop();
    println!("the longest wait of a call in ms, and the longest time without any answer, emulated\n");
    println!("| fault of the kernel's server by version 4.2 | slowest | still |\n|---|---|---|");
    for (name, struck, healed) in times {
        let [slowest, still] = waits(&outcome.completions, struck, healed).map(|wait| wait.as_millis());
        println!("| {name} | {slowest} | {still} |");
    }
    println!("{} calls; {replays:?}", outcome.calls);
    assert_eq!(outcome.failed, [""; 0], "calls failed");
    assert!(outcome.wrong.is_empty(), "{:?}", outcome.wrong);
    // The session's replies survive all these faults, so nothing is in doubt.
    assert_eq!(outcome.doubled, [""; 0], "done twice or not at all");
    assert_eq!((replays.undecided, replays.reconciled), (0, 0), "{replays:?}");
}

/// Makes an empty table, and the function that adds a rule to it.
const RULES: &str = "nft add table ip faults
    nft add chain ip faults input '{ type filter hook input priority 0 ; }'
    rule() { nft add rule ip faults input \"$1\"; }\n";

/// Runs a script, which must succeed, with one argument.
#[track_caller]
fn run(script: &str, argument: &str) {
    let output = Command::new("sh").args(["-ec", script, "sh", argument]).output().expect("there is a shell");
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
}

/// How often calls were moved off a connection, or a path was given up that had none. A loop that
/// is busy for a second reports nothing, and is asked again.
fn breaks(mount: &Mount) -> u64 {
    Deadline::wait_until("all loops to report their paths", TIMEOUT, || {
        let paths = mount.statistics().paths;
        let all = paths.iter().all(|path| path.status.len() == mount.loops());
        let of_loops = paths.iter().flat_map(|path| &path.status);
        all.then(|| of_loops.map(|status| status.failovers + status.deaths).sum())
    })
}

fn wait_for_progress(mount: &Mount) {
    let answered = || -> u64 {
        let paths = mount.statistics().paths;
        let calls = paths.iter().map(|path| &path.counters);
        calls.map(|counters| counters.read.calls + counters.write.calls + counters.metadata.calls).sum()
    };
    let before = answered();
    Deadline::wait_until("calls to go on", TIMEOUT, || (answered() >= before + GOES_ON).then_some(()));
}

/// The longest wait of a call that met the fault, and the longest time in which no call at all was
/// answered.
fn waits(completions: &[Completion], struck: Instant, healed: Instant) -> [Duration; 2] {
    let met = completions.iter().filter(|call| call.submitted < healed && call.ended() >= struck);
    let slowest = met.map(|call| call.took).max().unwrap_or_default();
    let mut ends: Vec<Instant> = completions.iter().map(Completion::ended).collect();
    ends.sort();
    let beside = ends.windows(2).filter(|pair| pair[0] < healed && pair[1] >= struck);
    let still = beside.map(|pair| pair[1] - pair[0]).max().unwrap_or_default();
    [slowest, still]
}
