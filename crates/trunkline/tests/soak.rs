//! The soak: loads over four shaped links, and faults at random times for as long as one likes. Nothing may be lost or
//! done twice, and at the end the gauges are back where they were: descriptors, threads, memory, connections, and
//! replies that wait, at both ends.
//!
//! Needs root, `ip`, `tc` and `nft`. `cargo xtask soak --minutes N [--seed S]` runs it on an optimised build; the suite
//! `soak` runs the same for some seconds. Each round prints its seed, and a run that is given that seed begins with it.

#[path = "faults/ground.rs"]
#[allow(dead_code, reason = "the campaign uses the rest")]
mod ground;
#[path = "faults/history.rs"]
mod history;
#[path = "faults/load.rs"]
#[allow(dead_code, reason = "the campaign uses the rest")]
mod load;
#[path = "mount/mounts.rs"]
#[allow(dead_code, reason = "the suite of mounts uses the rest")]
mod mounts;

use client::Mount;
use fastrand::Rng;
use ground::{Fault, Ground, NODES};
use history::Store;
use load::Load;
use rustix::process::Signal;
use std::sync::Arc;
use std::thread::park_timeout as pass;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use testkit::{Deadline, Stream, open_fds_of, resident_bytes_of, threads_of};

/// How long where nothing is said.
const MINUTES: f64 = 0.2;
/// A path that flapped may be left alone for half a minute, and then a server finds connections that died silently.
const SETTLED_WITHIN: Duration = Duration::from_secs(240);
/// Memory may grow by so much: buffers that are kept to be used again, and the figures of each round.
const GROWTH_BYTES_MAX: u64 = 96 << 20;
/// So long a server may hold objects of its directory open that nobody uses.
const HELD: Duration = Duration::from_secs(21);
const SOON: Duration = Duration::from_secs(60);

/// What both ends hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Gauges {
    client_descriptors: usize,
    client_threads: u64,
    client_bytes: u64,
    server_descriptors: usize,
    server_threads: u64,
    server_bytes: u64,
    /// Connections that the server's system takes for established, dead ones too.
    server_connections: usize,
}

impl Gauges {
    fn read(ground: &Ground) -> Self {
        let client = std::process::id();
        let servers = || ground.servers().iter().map(|server| server.id());
        Self {
            client_descriptors: open_fds_of(client),
            client_threads: threads_of(client),
            client_bytes: resident_bytes_of(client),
            server_descriptors: servers().map(open_fds_of).sum(),
            server_threads: servers().map(threads_of).sum(),
            server_bytes: servers().map(resident_bytes_of).sum(),
            server_connections: servers().next().map_or(0, connections_of),
        }
    }

    /// Whether what can be counted is no more than it was.
    fn within(&self, before: &Self) -> bool {
        self.client_descriptors <= before.client_descriptors
            && self.client_threads <= before.client_threads
            && self.server_descriptors <= before.server_descriptors
            && self.server_threads <= before.server_threads
            && self.server_connections <= before.server_connections
    }

    fn print(&self, when: &str) {
        println!(
            "{when}: client {} descriptors, {} threads, {} MiB; servers {} descriptors, {} threads, {} MiB, \
             {} connections",
            self.client_descriptors,
            self.client_threads,
            self.client_bytes >> 20,
            self.server_descriptors,
            self.server_threads,
            self.server_bytes >> 20,
            self.server_connections,
        );
    }
}

/// Connections of NFS in a process's network namespace, which is that of all nodes.
fn connections_of(pid: u32) -> usize {
    let table = std::fs::read_to_string(format!("/proc/{pid}/net/tcp")).expect("the process is there");
    // Local address and port, remote ones, state 01: established.
    let established = |line: &&str| {
        let mut words = line.split_whitespace().skip(1);
        let local = words.next().is_some_and(|local| local.ends_with(":0801"));
        local && words.nth(1) == Some("01")
    };
    table.lines().filter(established).count()
}

/// Waits until every path is up in each loop that has connections on it.
fn wait_until_whole(mount: &Mount) {
    Deadline::wait_until("all paths up again", SETTLED_WITHIN, || {
        let paths = mount.statistics().paths;
        let mut states =
            paths.iter().flat_map(|path| &path.status).map(|status| format!("{:?}", status.state));
        states.all(|state| state == "Up").then_some(())
    });
}

/// Some faults, one after the other.
fn strike(ground: &mut Ground, random: &mut Rng) -> (String, bool) {
    let (mut told, mut killed) = (Vec::new(), false);
    for _ in 0..=random.u64(..2) {
        let fault = Fault::ALL[random.usize(..Fault::ALL.len())];
        let path = random.usize(..usize::from(NODES));
        // Not a wait for anything: this is how long it lasts, and what comes after it.
        let (lasts, then) = (random.u64(100..2500), random.u64(..1000));
        ground.apply(fault, path, Duration::from_millis(lasts));
        pass(Duration::from_millis(then));
        killed |= matches!(fault, Fault::Kill | Fault::KillAll);
        told.push(format!("{}, path {}, {lasts} ms", fault.name(), path + 1));
    }
    (told.join("; "), killed)
}

/// One load, with faults or without.
fn round(ground: &mut Ground, mount: &Arc<Mount>, seed: u64, faults: bool) {
    let undecided_before = mount.statistics().replays.undecided;
    let label = if faults { format!("seed-{seed}") } else { "no-fault".to_owned() };
    let load = Load::start(mount, &label, Store::ByParts, seed);
    pass(Duration::from_millis(500));
    let (told, killed) =
        if faults { strike(ground, &mut Rng::with_seed(seed)) } else { ("no fault".to_owned(), false) };
    let outcome = load.stop();
    println!("round with seed {seed}: {told}; {} calls", outcome.calls);
    assert_eq!(outcome.failed, [""; 0], "seed {seed}: calls failed");
    assert!(outcome.wrong.is_empty(), "seed {seed}: {:?}", outcome.wrong);
    let undecided = if killed { outcome.undecided - undecided_before } else { 0 };
    assert!(
        outcome.doubled.len() as u64 <= undecided,
        "seed {seed}: done twice or not at all: {:?}",
        outcome.doubled
    );
}

/// What the servers themselves say of their connections.
fn ask_servers(ground: &Ground) {
    for server in ground.servers() {
        server.signal(Signal::USR1);
        server.wait_for_line("ended by a bug of ours", SOON);
        let said = server.output(Stream::Err);
        for line in said.lines().filter(|line| line.contains("connections open") || line.contains(" loops: "))
        {
            println!("server: {line}");
            assert!(!line.contains("connections open") || line.contains(" 0 B of replies queued"), "{line}");
            assert!(!line.contains(" loops: ") || line.contains(" 0 connections ended by a bug"), "{line}");
        }
    }
}

fn soak(minutes: f64, first_seed: u64) {
    let mut ground = Ground::build(Store::ByParts);
    let mount = ground.mount();
    round(&mut ground, &mount, first_seed, false);
    wait_until_whole(&mount);
    // What a directory's objects are held open for, a server lets go within twenty seconds without use.
    pass(HELD);
    let before = Gauges::read(&ground);
    before.print("before");
    let (begun, mut seed) = (Instant::now(), first_seed);
    while begun.elapsed().as_secs_f64() < minutes * 60.0 {
        round(&mut ground, &mount, seed, true);
        seed += 1;
    }
    wait_until_whole(&mount);
    let after = Deadline::wait_until("gauges back where they were", SETTLED_WITHIN, || {
        // Reading them costs a processor; a minute may pass.
        pass(Duration::from_millis(100));
        let now = Gauges::read(&ground);
        now.within(&before).then_some(now)
    });
    after.print("after");
    for (who, then, now) in [
        ("client", before.client_bytes, after.client_bytes),
        ("servers", before.server_bytes, after.server_bytes),
    ] {
        assert!(now <= then + GROWTH_BYTES_MAX, "{who}: grown from {then} to {now} bytes");
    }
    ask_servers(&ground);
}

#[test]
fn after_random_faults_nothing_is_lost_and_the_gauges_are_back() {
    let asked = |name: &str| std::env::var(name).ok();
    let minutes = asked("TRUNKLINE_SOAK_MINUTES").and_then(|text| text.parse().ok()).unwrap_or(MINUTES);
    let drawn = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_millis() as u64);
    let seed = asked("TRUNKLINE_SEED").and_then(|text| text.parse().ok()).unwrap_or_else(drawn);
    println!("soak: {minutes} minutes from seed {seed}; cargo xtask soak --seed {seed} begins alike");
    // In a thread of its own, which moves to the client's namespace.
    let run = std::thread::spawn(move || soak(minutes, seed));
    run.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}
