//! The soak test: loads over four shaped links, on a mount of the library and in a mounted
//! directory, with faults at random times, for as long as requested. No data may be lost and no
//! operation done twice, and at the end the gauges must be back at their initial values:
//! descriptors, threads, memory, connections, queued replies, and what a mounted directory holds:
//! objects, handles, data.
//!
//! Needs root, FUSE, `ip`, `tc` and `nft`. `cargo xtask soak --minutes N [--seed S]` runs an
//! optimised build; the suite `soak` runs the same for some seconds. Each round prints its seed,
//! and a run that is given a seed begins with the round of that seed.

#[path = "faults/history.rs"]
mod history;
#[path = "faults/load.rs"]
#[allow(dead_code, reason = "the campaign uses the rest")]
mod load;
#[path = "mount/mounts.rs"]
#[allow(dead_code, reason = "the suite of mounts uses the rest")]
mod mounts;
#[path = "faults/program.rs"]
#[allow(dead_code, reason = "the suite of faults uses the rest")]
mod program;
#[path = "faults/testbed.rs"]
#[allow(dead_code, reason = "the campaign uses the rest")]
mod testbed;

use client::Mount;
use fastrand::Rng;
use history::Store;
use load::Load;
use mounts::Mounted;
use program::Program;
use rustix::process::Signal;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::thread::park_timeout as pass;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use testbed::{Fault, FaultTestbed, NODES, Origin};
use testkit::{Deadline, Stream, open_fds_of, resident_bytes_of, temp_dir, threads_of};

const NAME: &str = "after_random_faults_nothing_is_lost_and_the_gauges_are_back";
/// The duration unless the environment sets another.
const MINUTES: f64 = 0.2;
/// A path that flapped may stay unused for half a minute, and after that a server finds the
/// connections that died silently.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(240);
/// The allowed growth of memory: buffers that are kept for reuse, and the statistics of each round.
const GROWTH_BYTES_MAX: u64 = 96 << 20;
/// The number of additional objects of a mounted directory that the kernel may remember: each round
/// removes what it creates.
const OBJECTS_MORE_MAX: u64 = 64;
/// The largest number of pipes of a mounted directory's process: 24 that it keeps for its next
/// requests, and those that connect it to its parent.
const PIPES_MAX: usize = 27;
/// How long a server may keep unused objects of its directory open.
const HELD: Duration = Duration::from_secs(21);
const TIMEOUT: Duration = Duration::from_secs(60);

/// What a set of processes holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct HeldResources {
    descriptors: usize,
    threads: u64,
    bytes: u64,
}

impl HeldResources {
    fn by(processes: &[u32]) -> Self {
        let processes = || processes.iter().copied();
        Self {
            descriptors: processes().map(open_fds_of).sum(),
            threads: processes().map(threads_of).sum(),
            bytes: processes().map(resident_bytes_of).sum(),
        }
    }
}

/// The names of the holders, in the order of the gauges; the library's mount is in this process.
const HOLDERS: [&str; 3] = ["client", "mounted directory", "servers"];

/// What a mount holds, from its statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct HeldByMount {
    objects: u64,
    /// Open files, open directories.
    handles: [u64; 2],
    /// Nothing unsent, nothing read ahead.
    has_no_data: bool,
}

impl HeldByMount {
    fn asked(mounted: &Mounted) -> Self {
        let said = mounted.statistics();
        let line = said
            .lines()
            .rfind(|line| line.starts_with("held: "))
            .expect("the statistics say what the mount holds");
        let words: Vec<&str> = line.split_whitespace().collect();
        let count = |what: &str| {
            let at = words.iter().position(|word| word.trim_end_matches(',') == what).expect(what);
            words[..at].iter().rev().find_map(|word| word.parse::<u64>().ok()).expect(what)
        };
        Self {
            objects: count("objects"),
            handles: [count("files"), count("directories")],
            has_no_data: line.contains(" 0 B unsent, 0 B read ahead"),
        }
    }

    /// Whether the mount holds no more than before, except for objects that the kernel may remember
    /// for any time.
    fn is_within(&self, before: &Self) -> bool {
        self.handles == before.handles
            && self.has_no_data
            && self.objects <= before.objects + OBJECTS_MORE_MAX
    }
}

/// What both ends hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Gauges {
    held: [HeldResources; HOLDERS.len()],
    /// Connections that the server's kernel considers established, including dead ones.
    server_connections: usize,
    /// What the process of the mounted directory reports to hold.
    mounted: HeldByMount,
}

impl Gauges {
    fn read(testbed: &FaultTestbed, mounts: &Mounts) -> Self {
        let servers: Vec<u32> = testbed.servers().iter().map(|server| server.id()).collect();
        let [client, mounted] = [std::process::id(), mounts.mounted.process.id()];
        let mut held = [&[client][..], &[mounted], &servers].map(HeldResources::by);
        held[1].descriptors = descriptors_but_pipes_of(mounted);
        Self {
            held,
            server_connections: servers.first().copied().map_or(0, connections_of),
            mounted: HeldByMount::asked(&mounts.mounted),
        }
    }

    /// Whether the counts are no higher than before, and all connections are established again;
    /// only this count shows those of the mounted directory.
    fn within(&self, before: &Self) -> bool {
        let mut pairs = self.held.iter().zip(&before.held);
        pairs.all(|(now, then)| now.descriptors <= then.descriptors && now.threads <= then.threads)
            && self.server_connections == before.server_connections
            && self.mounted.is_within(&before.mounted)
    }

    fn print(&self, when: &str) {
        let each =
            HOLDERS.iter().zip(&self.held).map(|(who, HeldResources { descriptors, threads, bytes })| {
                format!("{who} {descriptors} descriptors, {threads} threads, {} MiB", bytes >> 20)
            });
        let each = each.collect::<Vec<_>>().join("; ");
        println!("{when}: {each}; {} connections; {:?}", self.server_connections, self.mounted);
    }
}

/// What all rounds share: a mount of the library, and a directory mounted by a separate process.
struct Mounts {
    in_process: Arc<Mount>,
    mounted: Mounted,
}

/// The descriptors except pipes. A mount keeps pipes for reuse, and adds one whenever it needs more
/// at a time; pipes are checked separately.
fn descriptors_but_pipes_of(pid: u32) -> usize {
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("the process runs").flatten();
    let links = descriptors.filter_map(|descriptor| std::fs::read_link(descriptor.path()).ok());
    links.filter(|link| !link.to_string_lossy().starts_with("pipe:")).count()
}

/// The NFS connections in the network namespace of a process, which is that of all nodes.
fn connections_of(pid: u32) -> usize {
    let table = std::fs::read_to_string(format!("/proc/{pid}/net/tcp")).expect("the process runs");
    // The local address and port, the remote address and port, and the state; 01 is established.
    let established = |line: &&str| {
        let mut words = line.split_whitespace().skip(1);
        let local = words.next().is_some_and(|local| local.ends_with(":0801"));
        local && words.nth(1) == Some("01")
    };
    table.lines().filter(established).count()
}

/// Waits until every path is up in each loop that has connections on it.
fn wait_until_whole(mount: &Mount) {
    Deadline::wait_until("all paths up again", SETTLE_TIMEOUT, || {
        let paths = mount.statistics().paths;
        let mut states =
            paths.iter().flat_map(|path| &path.status).map(|status| format!("{:?}", status.state));
        states.all(|state| state == "Up").then_some(())
    });
}

/// Applies some faults, one after the other.
fn inject_fault(testbed: &mut FaultTestbed, random: &mut Rng) -> (String, bool) {
    let (mut told, mut killed) = (Vec::new(), false);
    for _ in 0..=random.u64(..2) {
        let fault = Fault::ALL[random.usize(..Fault::ALL.len())];
        let path = random.usize(..usize::from(NODES));
        // Not a wait for an event: the length of the fault, and the pause after it.
        let (lasts, then) = (random.u64(100..2500), random.u64(..1000));
        testbed.apply(fault, path, Duration::from_millis(lasts));
        pass(Duration::from_millis(then));
        killed |= fault.kills();
        told.push(format!("{}, path {}, {lasts} ms", fault.name(), path + 1));
    }
    (told.join("; "), killed)
}

/// Runs one load on both mounts, with or without faults.
fn round(testbed: &mut FaultTestbed, mounts: &Mounts, seed: u64, faults: bool) {
    let mount = &mounts.in_process;
    let undecided_before = mount.statistics().replays.undecided;
    let label = if faults { format!("seed-{seed}") } else { "no-fault".to_owned() };
    let places = [mounts.mounted.directory.as_path(), &testbed.served()];
    let mut program = Program::start(NAME, &format!("{label}-program"), places);
    let load = Load::start(mount, &label, Store::ByParts, seed);
    pass(Duration::from_millis(500));
    let (told, killed) = if faults {
        inject_fault(testbed, &mut Rng::with_seed(seed))
    } else {
        ("no fault".to_owned(), false)
    };
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
    program.wait_until_all_went_on();
    let (done, uncertain) = program.stop();
    println!("in the mounted directory: {done}; {uncertain} in doubt");
    assert!(uncertain == 0 || killed, "seed {seed}: {uncertain} errors of operations that were done");
}

/// Checks what the servers report about their connections.
fn ask_servers(testbed: &FaultTestbed) {
    for server in testbed.servers() {
        server.signal(Signal::USR1);
        server.wait_for_line("ended by a bug of ours", TIMEOUT);
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
    let mut testbed = FaultTestbed::build(Store::ByParts);
    let place = temp_dir("soak");
    let mounts = Mounts {
        in_process: testbed.mount(Origin::Anywhere),
        mounted: testbed.mounted_at(place.path(), Origin::EachAddress),
    };
    round(&mut testbed, &mounts, first_seed, false);
    wait_until_whole(&mounts.in_process);
    // A server closes objects of its directory that were not used for twenty seconds.
    pass(HELD);
    let before = Gauges::read(&testbed, &mounts);
    before.print("before");
    let (begun, mut seed) = (Instant::now(), first_seed);
    while begun.elapsed().as_secs_f64() < minutes * 60.0 {
        round(&mut testbed, &mounts, seed, true);
        seed += 1;
    }
    wait_until_whole(&mounts.in_process);
    let mut last = before;
    let back = catch_unwind(AssertUnwindSafe(|| {
        Deadline::wait_until("gauges back where they were", SETTLE_TIMEOUT, || {
            // Reading the gauges costs processor time; the wait may take a minute.
            pass(Duration::from_millis(100));
            last = Gauges::read(&testbed, &mounts);
            last.within(&before).then_some(())
        });
    }));
    last.print("after");
    back.unwrap_or_else(|panic| resume_unwind(panic));
    for (who, (then, now)) in HOLDERS.iter().zip(before.held.iter().zip(&last.held)) {
        let (then, now) = (then.bytes, now.bytes);
        assert!(now <= then + GROWTH_BYTES_MAX, "{who}: grown from {then} to {now} bytes");
    }
    let pipes = mounts.mounted.pipes();
    assert!(pipes <= PIPES_MAX, "{pipes} pipes of the mounted directory");
    ask_servers(&testbed);
}

#[test]
fn after_random_faults_nothing_is_lost_and_the_gauges_are_back() {
    if program::is_asked_for() {
        return;
    }
    let asked = |name: &str| std::env::var(name).ok();
    let minutes = asked("TRUNKLINE_SOAK_MINUTES").and_then(|text| text.parse().ok()).unwrap_or(MINUTES);
    let drawn = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_millis() as u64);
    let seed = asked("TRUNKLINE_SEED").and_then(|text| text.parse().ok()).unwrap_or_else(drawn);
    println!("soak: {minutes} minutes from seed {seed}; cargo xtask soak --seed {seed} begins alike");
    // In a separate thread, which moves to the client's namespace.
    let run = std::thread::spawn(move || soak(minutes, seed));
    run.join().unwrap_or_else(|panic| resume_unwind(panic));
}
