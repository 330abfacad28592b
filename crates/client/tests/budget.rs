//! Counts the heap allocations of a warm operation, on the loop of the client and on that of the
//! server: none at depth 1, almost none at depth 32. docs/PERFORMANCE.md has the table. The test
//! asserts on counts, not on times.
//!
//! Allocations are counted by thread, so this file has one test.

#[path = "support/repeat.rs"]
mod repeat;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use client::Mount;
use repeat::{Bench, Work};
use testkit::Deadline;

/// To whom the allocations of a thread are attributed.
#[derive(Debug, Clone, Copy)]
enum Side {
    Server,
    Client,
    Test,
}

thread_local! {
    // All threads that have not set a side belong to the server.
    static SIDE: Cell<Side> = const { Cell::new(Side::Server) };
}

static COUNTS: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];
static BEGIN: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];
static END: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

struct Counting;

impl Counting {
    fn count() {
        // A thread that is ending allocates nothing more.
        let side = SIDE.try_with(Cell::get).unwrap_or(Side::Test);
        COUNTS[side as usize].fetch_add(1, Ordering::SeqCst);
    }
}

// SAFETY: passes everything to the system's allocator; counting allocates nothing.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::count();
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(start, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn take(into: &[AtomicU64; 3]) {
    for (count, into) in COUNTS.iter().zip(into) {
        into.store(count.load(Ordering::SeqCst), Ordering::SeqCst);
    }
}

fn begin() {
    SIDE.set(Side::Client);
    take(&BEGIN);
}

fn end() {
    take(&END);
}

/// Allocations of a side between `begin` and `end`.
fn taken(side: Side) -> u64 {
    END[side as usize].load(Ordering::SeqCst) - BEGIN[side as usize].load(Ordering::SeqCst)
}

/// How many probes the mount has sent.
fn probes(mount: &Mount) -> u64 {
    let paths = mount.statistics().paths;
    paths.iter().flat_map(|path| &path.status).map(|status| status.probes).sum()
}

/// The number of operations that are counted.
const COUNTED: u64 = 2_000;
/// A machine may be so busy that the path seems silent during each count.
const TIMEOUT: Duration = Duration::from_secs(300);

#[test]
fn warm_operations_make_few_or_no_heap_allocations() {
    SIDE.set(Side::Test);
    testkit::stay_on_one_cpu();
    let bench = Bench::start(client::options::Version::V3);
    let mut over_budget = Vec::new();
    for work in [
        Work::Write(1 << 20),
        Work::Write(4096),
        Work::Read(1 << 20),
        Work::Read(64 << 10),
        Work::Read(4096),
        Work::GetAttr,
    ] {
        for depth in [1, 32] {
            // At depth 32 a list or a queue may still grow to its final length. The server gathers
            // several replies of 1 MiB from more pieces than a send holds without an allocation, so
            // it allocates once for these replies.
            let client_bound = if depth == 1 { 0 } else { COUNTED / 20 };
            let server_bound = if work == Work::Read(1 << 20) && depth > 1 { COUNTED } else { client_bound };
            // On a busy machine the path may seem silent and be probed, which allocates. Such a
            // count says nothing about the operations.
            let (client, server) = Deadline::wait_until("a count without a probe", TIMEOUT, || {
                let before = probes(&bench.mount);
                bench.run(work, depth, 500, COUNTED, (begin, end));
                (probes(&bench.mount) == before).then(|| (taken(Side::Client), taken(Side::Server)))
            });
            let per_op = |count: u64| count as f64 / COUNTED as f64;
            println!("{work:?} depth {depth}: client {}, server {}", per_op(client), per_op(server));
            if client > client_bound || server > server_bound {
                over_budget.push((work, depth, client, server));
            }
        }
    }
    assert!(over_budget.is_empty(), "of {COUNTED} operations: {over_budget:?}");
}
