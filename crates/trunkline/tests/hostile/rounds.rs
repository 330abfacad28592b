//! One round: a server, hostile clients, and a good client beside them.

use crate::good_client::GoodClient;
use crate::target::Target;
use crate::{Hostile, good_client::Latencies};
use rustix::process::{Signal, setpriority_process};
use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use testkit::server_process::write_configuration;
use testkit::{Deadline, ServerProcess, Stream, TempDir, resident_bytes_of, temp_dir};

const MIB: u64 = 1 << 20;
/// What may happen on a busy machine until it counts as never.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often the memory of the server is looked at.
const LOOK: Duration = Duration::from_millis(5);
/// The lowest priority.
const NICE_MAX: i32 = 19;
/// The exports: in memory, and on a disk.
pub const EXPORTS: [&str; 2] = ["/mem", "/dir"];
/// Blocks of the file on each export that hostile clients use.
const FILE_BLOCKS: u8 = 4;
/// A machine that is busy with other work keeps a loop from running for seconds, which would count
/// as a sleep of the host.
const STALL_MS: u64 = 600_000;
/// What each connection may hold besides `held` (docs/SERVE.md).
const CONNECTION_BYTES: u64 = 16 << 10;
/// The memory of the server apart from what is configured: the program, its threads, the reply
/// cache, buffers of the store on a disk, and what the allocator keeps.
const OWN_BYTES: u64 = 64 * MIB;
/// What of that may have grown by the end of a round, besides a quarter of what clients may make
/// the server hold: the allocator keeps some of what was held.
const KEPT_BYTES: u64 = 40 * MIB;

/// The configured bounds of a server.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    pub mem_mib: u64,
    pub held_mib: u64,
    pub connections: usize,
}

/// How much happens in a round.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    pub bounds: Bounds,
    /// Hostile clients of all sorts together.
    pub clients: usize,
    /// Whether hostile clients leave the processors to the server and the good client, as if they
    /// were on other hosts.
    pub elsewhere: bool,
    /// Whether the good client goes on.
    pub goes_on: fn(rounds: usize, began: std::time::Instant) -> bool,
}

const SMALL: Size = Size {
    bounds: Bounds { mem_mib: 48, held_mib: 32, connections: 128 },
    clients: 13,
    elsewhere: false,
    goes_on: |rounds, _| rounds < 6,
};

/// A server process with its directories.
pub struct TestServer {
    pub process: ServerProcess,
    bounds: Bounds,
    _directory: TempDir,
}

impl TestServer {
    pub fn start(bounds: Bounds) -> Self {
        let directory = temp_dir("hostile");
        let path = |name: &str| directory.path().join(name);
        std::fs::create_dir(path("served")).expect("a directory");
        let text = |port| {
            let (served, state) = (path("served"), path("state"));
            format!(
                "loops = 2\nworkers = 4\nrpcbind = true\n[[node]]\nlisten = [\"127.0.0.1:{port}\"]\n\
                 [[export]]\npath = \"/mem\"\nmem = \"{}MiB\"\n{ALLOW}\
                 [[export]]\npath = \"/dir\"\ndir = {served:?}\nstate = {state:?}\n{ALLOW}\
                 [limits]\nconnections = {}\nheld = \"{}MiB\"\nqueued = \"4MiB\"\nstall_ms = {STALL_MS}\n",
                bounds.mem_mib, bounds.connections, bounds.held_mib,
            )
        };
        const ALLOW: &str = "allow = [\"127.0.0.0/24\"]\nrw = true\nroot_squash = false\n";
        let program = || {
            let mut command = Command::new(env!("CARGO_BIN_EXE_trunkline"));
            for name in ["TRUNKLINE_LOG", "NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID", "WATCHDOG_USEC"] {
                command.env_remove(name);
            }
            command
        };
        let process = ServerProcess::start_on_free_port(program, |port| {
            write_configuration(&path("serve.toml"), &text(port))
        });
        Self { process, bounds, _directory: directory }
    }

    pub fn address(&self) -> SocketAddr {
        self.process.addresses[0]
    }

    pub fn resident_bytes(&self) -> u64 {
        resident_bytes_of(self.process.process.id())
    }

    /// The bound of its memory: what is configured, and what is its own.
    fn resident_bytes_max(&self) -> u64 {
        let Bounds { mem_mib, held_mib, connections } = self.bounds;
        (mem_mib + held_mib) * MIB + connections as u64 * CONNECTION_BYTES + OWN_BYTES
    }

    /// What the server may have more of after a round than before.
    fn kept_bytes_max(&self) -> u64 {
        KEPT_BYTES + self.bounds.held_mib * MIB / 4
    }

    /// How many connections are open, by the server's statistics.
    fn connections(&self) -> Option<usize> {
        let process = &self.process.process;
        process.signal(Signal::USR1);
        let table = process.output(Stream::Err);
        let line = table.lines().rfind(|line| line.contains(" connections open"))?;
        line.split_whitespace().nth(1)?.parse().ok()
    }
}

/// What a round showed.
#[derive(Debug, Default)]
pub struct Seen {
    pub quiet: Latencies,
    pub beside: Latencies,
    pub peak_bytes: u64,
}

/// Ends a round, also when an assertion fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The good client's work on both exports, with a new connection now and then.
fn work(good: &mut [GoodClient; 2], address: SocketAddr, goes_on: impl Fn(usize) -> bool) {
    let mut rounds = 0;
    while goes_on(rounds) {
        for (client, export) in good.iter_mut().zip(EXPORTS) {
            client.work(&format!("good-{rounds}"));
            if rounds % 4 == 0 {
                GoodClient::new(address, export);
            }
        }
        rounds += 1;
    }
}

fn all(good: &mut [GoodClient; 2]) -> Latencies {
    let mut all = Latencies::default();
    for latencies in good.iter_mut().map(|client| std::mem::take(&mut client.latencies)) {
        all.short.extend(latencies.short);
        all.writes.extend(latencies.writes);
        all.reads.extend(latencies.reads);
    }
    all
}

/// A small round with hostile clients of these sorts, several of each.
pub fn check(sorts: &[&dyn Hostile]) {
    round(sorts, Size { clients: SMALL.clients.max(2 * sorts.len()), ..SMALL });
}

/// One round. Everything that must hold is asserted, and how long calls take is returned.
pub fn round(sorts: &[&dyn Hostile], size: Size) -> Seen {
    let server = TestServer::start(size.bounds);
    let address = server.address();
    let mut good = EXPORTS.map(|export| GoodClient::new(address, export));
    let files = good.iter_mut().map(|client| client.create("target", FILE_BLOCKS)).collect();
    all(&mut good);
    let began = std::time::Instant::now();
    work(&mut good, address, |rounds| (size.goes_on)(rounds, began));
    let quiet = all(&mut good);
    let before_bytes = server.resident_bytes();
    let target = Target {
        address,
        files,
        roots: good.iter().map(GoodClient::root).collect(),
        connections_max: size.bounds.connections,
        is_over: AtomicBool::new(false),
        at_work: (0..size.clients).map(|_| AtomicBool::new(false)).collect(),
    };
    let peak_bytes = AtomicU64::new(before_bytes);
    std::thread::scope(|scope| {
        let _over = Over(&target.is_over);
        let (target, server, peak_bytes) = (&target, &server, &peak_bytes);
        scope.spawn(move || {
            while !target.is_over() {
                peak_bytes.fetch_max(server.resident_bytes(), Ordering::Relaxed);
                std::thread::park_timeout(LOOK);
            }
        });
        for number in 0..size.clients {
            scope.spawn(move || {
                if size.elsewhere {
                    // The priority of this thread.
                    setpriority_process(None, NICE_MAX).expect("a thread may give way");
                }
                sorts[number % sorts.len()].attack(target, number);
            });
        }
        Deadline::wait_until("all hostile clients to be at work", PATIENCE, || {
            target.is_under_attack().then_some(())
        });
        let began = std::time::Instant::now();
        work(&mut good, address, |rounds| (size.goes_on)(rounds, began));
    });
    let beside = all(&mut good);
    let (peak_bytes, bound) = (peak_bytes.into_inner(), server.resident_bytes_max());
    assert!(peak_bytes <= bound, "{} MiB resident, above {} MiB", peak_bytes / MIB, bound / MIB);
    drop(good);
    Deadline::wait_until("all connections to be closed", PATIENCE, || {
        (server.connections()? == 0).then_some(())
    });
    let name = if let [sort] = sorts { sort.name() } else { "all at once" };
    let mib = [before_bytes, peak_bytes, bound].map(|bytes| bytes / MIB);
    println!("{name}: {} MiB resident before, {} MiB at most (bound {} MiB)", mib[0], mib[1], mib[2]);
    let after_bytes = Deadline::wait_until("the memory to be given back", PATIENCE, || {
        Some(server.resident_bytes()).filter(|now| *now <= before_bytes + server.kept_bytes_max())
    });
    println!("{name}: {} MiB resident after", after_bytes / MIB);
    Seen { quiet, beside, peak_bytes }
}
