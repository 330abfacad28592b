//! Counts the system calls of a warm operation on a volume, on the loop of the host and on those of
//! the target, and how many of its bytes pass through memory of the loop on their way.
//! docs/PERFORMANCE.md has the table.
//!
//! The load runs in a child process under `strace` ([`testkit::strace`]); the suite is `budget`.
//!
//! The program is both the load and the test, as the environment says, so it has its own `main`.

#[allow(dead_code, reason = "the other tests use more of it")]
#[path = "initiator/fixture.rs"]
mod fixture;

use initiator::{Completion, Operation, Volume};
use std::sync::Arc;
use std::sync::mpsc::channel;
use testkit::strace::{self, Side};

/// The number of operations that are counted, and of those before.
const COUNTED: u64 = 500;
const WARM: u64 = 300;
const WORK: &str = "TRUNKLINE_BUDGET_WORK";

/// The blocks of the volume that the operations cycle through.
const BLOCKS: u64 = 16;

/// The operation that is repeated, and its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    Read(usize),
    Write(usize),
}

const WORKS: [(&str, Work); 4] = [
    ("READ 1 MiB", Work::Read(1 << 20)),
    ("WRITE 1 MiB", Work::Write(1 << 20)),
    ("READ 4 KiB", Work::Read(4096)),
    ("WRITE 4 KiB", Work::Write(4096)),
];

fn main() {
    if let Ok(wanted) = std::env::var(WORK) {
        load(&wanted);
        return;
    }
    a_warm_operation_costs_few_system_calls_and_copies();
    println!("test a_warm_operation_costs_few_system_calls_and_copies ... ok");
}

/// Runs the work with this name and depth.
fn load(wanted: &str) {
    let (name, depth) = wanted.rsplit_once(' ').unwrap();
    let (_, work) = WORKS.into_iter().find(|(work, _)| *work == name).unwrap();
    // On one processor the loops alternate, so that the counts do not depend on which was faster.
    testkit::stay_on_one_cpu();
    let target = fixture::target();
    let addresses = target.addresses()[..1].to_vec();
    let mut config = fixture::config(addresses);
    config.queues = 1;
    let (_attachment, volume) = fixture::attach(config);
    volume.write(0, vec![1; usize::try_from(BLOCKS).unwrap() << 20]).unwrap();
    repeat(&volume, work, depth.parse().unwrap());
}

fn repeat(volume: &Volume, work: Work, depth: u64) {
    let (reply, completions) = channel();
    let submit = |number: u64, memory: Vec<u8>| {
        let at = |len: usize| number % BLOCKS * len as u64;
        let operation = match work {
            Work::Read(len) => Operation::Read { offset: at(len), memory },
            Work::Write(len) => Operation::Write { offset: at(len), data: Arc::new(memory), durable: false },
        };
        volume.submit(operation, number, &reply);
    };
    let (Work::Read(len) | Work::Write(len)) = work;
    (0..depth).for_each(|number| submit(number, vec![7; len]));
    // Some more than are counted, so that the depth is constant to the end of the count.
    for finished in 1..=WARM + COUNTED + depth {
        let Completion { result, .. } = completions.recv().unwrap();
        let memory = result.unwrap();
        if finished == WARM || finished == WARM + COUNTED {
            strace::mark();
        }
        if finished <= WARM + COUNTED {
            let memory = if memory.is_empty() { vec![7; len] } else { memory };
            submit(finished + depth, memory);
        }
    }
}

fn a_warm_operation_costs_few_system_calls_and_copies() {
    println!("{:12} {:>5}  {:>18}  {:>22}", "", "depth", "calls host target", "copied host target");
    for (name, work) in WORKS {
        for depth in [1, 32] {
            let [host, target] = strace::traced(
                (WORK, &format!("{name} {depth}")),
                ["initiator", "target-"],
                strace::in_last_piece,
            );
            println!(
                "{name:12} {depth:5}  {:9.2} {:9.2}  {:11} {:11}   host {:?} target {:?}",
                calls_per_op(&host),
                calls_per_op(&target),
                host.copied / COUNTED,
                target.copied / COUNTED,
                host.calls,
                target.calls,
            );
            hold(name, work, depth, [&host, &target]);
        }
    }
}

/// System calls for each operation, without those by which the host wakes who waits for the
/// completion: how many these are depends on who runs first.
fn calls_per_op(side: &Side) -> f64 {
    (side.all() - side.count("futex")) as f64 / COUNTED as f64
}

/// Checks the budget. At depth 1 an operation is one wait, one receive and one send on each side,
/// and at the host also a wait and a receive for who submits it. A WRITE that is longer than what a
/// capsule holds is asked for, which is another of each. The side that receives 1 MiB does so in as
/// many pieces as the system delivers: at most 17 of 64 KiB, each with a wait.
fn hold(name: &str, work: Work, depth: u64, [host, target]: [&Side; 2]) {
    let (Work::Read(len) | Work::Write(len)) = work;
    let is_large = len == 1 << 20;
    let is_read = matches!(work, Work::Read(_));
    for (at, side, own) in [("host", host, 5.2), ("target", target, 3.2)] {
        let receives_payload = (at == "host") == is_read;
        let asked = if is_large && !is_read { 4.0 } else { 0.0 };
        let calls_max = match (is_large, receives_payload, depth) {
            (true, true, _) => own + asked + 2.0 * 17.0,
            (true, false, _) | (false, _, 1) => own + asked,
            (false, ..) => 1.0,
        };
        let calls = calls_per_op(side);
        assert!(calls <= calls_max, "{name}, depth {depth}, {at}: {calls:.2} calls: {:?}", side.calls);
        // Of long data only what came with their head is copied. Short data are copied once, with
        // their head.
        let copied_max = match (receives_payload, is_large) {
            (false, _) => 256,
            (true, true) => 4096,
            (true, false) => 4096 + 512,
        };
        let copied = side.copied / COUNTED;
        assert!(copied <= copied_max, "{name}, depth {depth}, {at}: {copied} bytes");
        // A count that saw nothing holds any budget.
        let least = if depth == 1 { COUNTED - 3 } else { 1 };
        let sends = side.count("writev") + side.count("sendmsg");
        assert!(sends >= least && side.count("readv") >= least, "{name}, {at}: {:?}", side.calls);
        assert!(!receives_payload || side.copied > 0, "{name}, {at}: {:?}", side.calls);
    }
}
