//! What operations cost over RDMA, in counts, which depend on no machine: work requests, completions and interrupts of
//! both ends. Both are in one process in the guest; the test asks for itself to be run there.

use crate::guest::{is_in_guest, passes_in};
use crate::{alone, lab};
use client::File;
use client::Mount;
use server::{Config, Server};
use transport::rdma::Counters;

/// Operations of one turn, one after the other.
const OPERATIONS: u64 = 32;
/// A call that is sent again, or a connection that is made anew, costs more than an operation does: the turn that took
/// least is looked at.
const TURNS: usize = 4;
/// What belongs to no single operation: completions that come later, and a notice more.
const SPARE: u64 = 4;

/// What one operation may take.
#[derive(Debug, Clone, Copy)]
struct Mark {
    name: &'static str,
    bytes: usize,
    writes: bool,
    /// RDMA writes and reads by the server.
    server_moves: [u64; 2],
}

/// The client sends a message and gets one; the server moves the payload by one RDMA operation.
const MARKS: [Mark; 3] = [
    Mark { name: "READ of 64 KiB", bytes: 64 << 10, writes: false, server_moves: [1, 0] },
    Mark { name: "WRITE of 64 KiB", bytes: 64 << 10, writes: true, server_moves: [0, 1] },
    Mark { name: "READ of 4 KiB", bytes: 4 << 10, writes: false, server_moves: [1, 0] },
];

#[test]
fn a_read_and_a_write_take_no_more_work_requests_completions_and_interrupts_than_they_need() {
    if is_in_guest() {
        return marks_are_held();
    }
    let _turn = alone();
    passes_in(
        lab().client(),
        "rdma_counts::a_read_and_a_write_take_no_more_work_requests_completions_and_interrupts_than_they_need",
    );
}

fn marks_are_held() {
    let mut config = Config::quick(16 << 20, "/export", &["10.77.1.2:12080".parse().expect("an address")]);
    config.add_rdma(&["10.77.1.2:20080".parse().expect("an address")]);
    let server = Server::start(config).expect("the guest has a device");
    let options = "proto=rdma,port=20080,mountport=12080,nconnect=1";
    let mount = Mount::connect("10.77.1.2:/export", options).expect("the server is there");
    let file = mount.create_file(b"/counted", 0o644).expect("it is writable");
    file.write_all_at(&[7; 64 << 10], 0).expect("it is written");
    for mark in MARKS {
        let turns = (0..TURNS).filter_map(|_| turn(&server, &mount, &file, mark));
        let least = turns.min_by_key(|ends| ends.iter().map(Counters::work).sum::<u64>());
        let [ours, theirs] = least.expect("there was a turn");
        println!("{} times {}: client {ours:?}, server {theirs:?}", OPERATIONS, mark.name);
        hold(mark, ours, [0, 0]);
        hold(mark, theirs, mark.server_moves);
    }
}

/// One end of a turn: for each operation one message out, one in, and the moves. Completions come of messages, and of RDMA
/// reads, for which the call waits; an RDMA write is done when the reply behind it is.
#[track_caller]
fn hold(mark: Mark, done: Counters, [writes, reads]: [u64; 2]) {
    assert_eq!(done.sends, OPERATIONS, "{}: {done:?}", mark.name);
    assert_eq!(
        [done.writes, done.reads],
        [writes, reads].map(|each| each * OPERATIONS),
        "{}: {done:?}",
        mark.name
    );
    let in_and_out = 2 + writes + reads;
    assert!(done.work() <= in_and_out * OPERATIONS + SPARE, "{}: {done:?}", mark.name);
    let completions = (2 + reads) * OPERATIONS + SPARE;
    assert!(done.completions <= completions, "{}: {done:?}", mark.name);
    assert!(done.notices <= completions, "{}: {done:?}", mark.name);
}

/// What the client and the server do for so many operations. `None` where a loop was too slow to say what it has done.
fn turn(server: &Server, mount: &Mount, file: &File, mark: Mark) -> Option<[Counters; 2]> {
    let now = || {
        let mut served = Counters::default();
        server.statistics().nodes.iter().for_each(|node| served.add(&node.rdma));
        [mount.statistics().rdma, served]
    };
    let before = now();
    for _ in 0..OPERATIONS {
        let buffer = vec![7; mark.bytes];
        let pending = if mark.writes { file.write_at(buffer, 0) } else { file.read_at(buffer, 0) };
        pending.wait().result.expect("it is done");
    }
    let after = now();
    Some([since(&after[0], &before[0])?, since(&after[1], &before[1])?])
}

fn since(after: &Counters, before: &Counters) -> Option<Counters> {
    Some(Counters {
        sends: after.sends.checked_sub(before.sends)?,
        receives: after.receives.checked_sub(before.receives)?,
        places: after.places.checked_sub(before.places)?,
        writes: after.writes.checked_sub(before.writes)?,
        written_bytes: after.written_bytes.checked_sub(before.written_bytes)?,
        reads: after.reads.checked_sub(before.reads)?,
        read_bytes: after.read_bytes.checked_sub(before.read_bytes)?,
        completions: after.completions.checked_sub(before.completions)?,
        arms: after.arms.checked_sub(before.arms)?,
        notices: after.notices.checked_sub(before.notices)?,
    })
}
