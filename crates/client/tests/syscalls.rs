//! Counts the system calls of a warm operation, on the loop of the client and on that of the
//! server, and how many of its bytes pass through memory of the loop on their way.
//! docs/PERFORMANCE.md has the table.
//!
//! The load runs in a child process under `strace` ([`testkit::strace`]); the suite is `budget`.
//!
//! The program is both the load and the test, as the environment says, so it has its own `main`.

#[path = "support/repeat.rs"]
mod repeat;

use client::options::Version;
use repeat::{Bench, Work};
use testkit::strace::{self, Side};

/// The number of operations that are counted.
const COUNTED: u64 = 500;
const WORK: &str = "TRUNKLINE_BUDGET_WORK";

/// System calls for each operation, without those of the client's clock: the slower the machine,
/// the more often the clock ticks within an operation.
fn calls_per_op(side: &Side) -> f64 {
    let ticks = side.count("getsockopt");
    let of_the_clock = ticks + ticks.min(side.count("epoll_pwait"));
    (side.all() - of_the_clock) as f64 / COUNTED as f64
}

fn copied_per_op(side: &Side) -> u64 {
    side.copied / COUNTED
}

fn works() -> [(&'static str, Work); 5] {
    [
        ("READ 1 MiB", Work::Read(1 << 20)),
        ("WRITE 1 MiB", Work::Write(1 << 20)),
        ("READ 4 KiB", Work::Read(4096)),
        ("WRITE 4 KiB", Work::Write(4096)),
        ("GETATTR", Work::GetAttr),
    ]
}

fn main() {
    if let Ok(wanted) = std::env::var(WORK) {
        load(&wanted);
        return;
    }
    a_warm_operation_costs_few_system_calls_and_copies();
    println!("test a_warm_operation_costs_few_system_calls_and_copies ... ok");
}

/// Versions by name.
const VERSIONS: [(&str, Version); 2] = [("3", Version::V3), ("4.1", Version::V4(Some(1)))];

/// Runs the work with this version, name and depth.
fn load(wanted: &str) {
    let (version, wanted) = wanted.split_once(' ').unwrap();
    let (name, depth) = wanted.rsplit_once(' ').unwrap();
    let (_, version) = VERSIONS.into_iter().find(|(named, _)| *named == version).unwrap();
    let (_, work) = works().into_iter().find(|(work, _)| *work == name).unwrap();
    // On one processor the two loops alternate, so that the counts do not depend on which was
    // faster.
    testkit::stay_on_one_cpu();
    Bench::start(version).run(work, depth.parse().unwrap(), 300, COUNTED, (strace::mark, strace::mark));
}

/// What the client and the server did between the marks.
fn counted(version: &str, name: &str, depth: u64) -> [Side; 2] {
    strace::traced((WORK, &format!("{version} {name} {depth}")), ["tl-mount", "tl-serve"], copied)
}

/// The bytes of a receive that are copied: all of a `read`, and of a `readv` those in its last
/// piece, which receives what follows the payload.
fn copied(call: &str) -> u64 {
    if call.starts_with("read(") { strace::returned(call) } else { strace::in_last_piece(call) }
}

fn a_warm_operation_costs_few_system_calls_and_copies() {
    println!(
        "{:7} {:12} {:>5}  {:>18}  {:>22}",
        "", "", "depth", "calls client server", "copied client server"
    );
    for ((name, _), (version, _)) in
        works().into_iter().flat_map(|work| VERSIONS.map(|version| (work, version)))
    {
        for depth in [1, 32] {
            let [client, server] = counted(version, name, depth);
            println!(
                "NFS {version:3} {name:12} {depth:5}  {:9.2} {:9.2}  {:11} {:11}   client {:?} server {:?}",
                calls_per_op(&client),
                calls_per_op(&server),
                copied_per_op(&client),
                copied_per_op(&server),
                client.calls,
                server.calls,
            );
            for (side, at) in [(client, "client"), (server, "server")] {
                hold((version, name), depth, at, &side);
            }
        }
    }
}

/// Checks the budget. At depth 1 a small operation is one wait, one receive and one send on each
/// side, and a tick of the client's clock now and then. The side that receives 1 MiB does so in as
/// many pieces as the system delivers: at most 17 of 64 KiB, each with a wait.
fn hold((version, name): (&str, &str), depth: u64, at: &str, side: &Side) {
    let large = name.ends_with("MiB");
    let receives_payload = (at == "client") == name.starts_with("READ");
    let calls_max = match (large && receives_payload, depth) {
        (true, _) => 2.0 * 17.0 + 1.2,
        (false, 1) => 3.2,
        (false, _) => 2.0,
    };
    assert!(
        calls_per_op(side) <= calls_max,
        "{name} by version {version}, depth {depth}, {at}: {:.2} calls: {:?}",
        calls_per_op(side),
        side.calls
    );
    if depth == 1 && !(large && receives_payload) {
        for call in ["epoll_pwait", "read", "sendmsg"] {
            let count = side.count(call);
            assert!(
                count + 3 >= COUNTED,
                "{name} by version {version}, depth 1, {at}: {count} times {call}: {:?}",
                side.calls
            );
        }
    }
    if depth > 1 && !large {
        // What follows from a receive leaves in one send: the COMMIT of answered WRITEs too, with
        // the WRITEs after it.
        let (received, sent) = (side.count("read"), side.count("sendmsg"));
        assert!(
            sent <= received + received / 2,
            "{name} by version {version}, depth {depth}, {at}: {:?}",
            side.calls
        );
    }
    // Of a long payload only what came with its head is copied. A short payload is copied once,
    // with its head.
    let copied_max = if !receives_payload || name == "GETATTR" {
        256
    } else if large {
        4096
    } else {
        4096 + 512
    };
    assert!(
        copied_per_op(side) <= copied_max,
        "{name} by version {version}, depth {depth}, {at}: {} bytes",
        copied_per_op(side)
    );
}
