//! Counts what operations cost over RDMA, independently of the machine: work requests, completions,
//! interrupts and system calls of both ends, and of the Linux kernel's ends the counters that it
//! has. Both ends are in one process in the guest; the tests run themselves there.

use crate::guest::{again, is_in_guest, passes_in};
use crate::kernel_server::served;
use crate::{alone, lab};
use client::File;
use client::Mount;
use server::{Config, Server};
use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use transport::rdma::Counters;

/// The operations of a turn, one after the other.
pub(super) const OPERATIONS: u64 = 32;
/// A call that is sent again, or a connection that is opened again, costs more than an operation.
/// The turn with the lowest count is checked.
pub(super) const TURNS: usize = 4;
/// A margin for what belongs to no single operation: later completions, and an additional notice.
pub(super) const SPARE: u64 = 4;

/// The budget of an operation.
#[derive(Debug, Clone, Copy)]
struct Mark {
    name: &'static str,
    bytes: usize,
    writes: bool,
    /// RDMA writes and RDMA reads by the server.
    server_moves: [u64; 2],
}

/// Set in the environment of the process that is traced and only does the operations.
const TRACED: &str = "TRUNKLINE_TRACED";
/// System calls of a loop for each operation, with one call in flight. A message sent and a message
/// received raise a notice each: the loop waits for the notice, takes it, polls once more, and arms
/// the next. Telling the device about the work takes one call, and an RDMA read by the server five.
/// A loop that is woken by the submitter needs two, and waking the submitter one.
const SYSTEM_CALLS_MAX: f64 = 4.0 + 4.0 + 1.0 + 5.0;

/// The client sends a message and receives one; the server moves the payload by one RDMA operation.
const MARKS: [Mark; 3] = [
    Mark { name: "READ of 64 KiB", bytes: 64 << 10, writes: false, server_moves: [1, 0] },
    Mark { name: "WRITE of 64 KiB", bytes: 64 << 10, writes: true, server_moves: [0, 1] },
    Mark { name: "READ of 4 KiB", bytes: 4 << 10, writes: false, server_moves: [1, 0] },
];

#[test]
fn a_read_and_a_write_stay_within_their_budget_of_rdma_operations() {
    if is_in_guest() {
        return marks_are_held();
    }
    let _turn = alone();
    passes_in(lab().client(), "rdma_counts::a_read_and_a_write_stay_within_their_budget_of_rdma_operations");
}

#[test]
fn the_kernels_client_and_server_use_as_many_messages_as_ours() {
    if is_in_guest() {
        kernels_client();
        return kernels_server();
    }
    let _turn = alone();
    served();
    passes_in(lab().client(), "rdma_counts::the_kernels_client_and_server_use_as_many_messages_as_ours");
}

#[test]
fn a_read_and_a_write_take_few_system_calls() {
    const NAME: &str = "rdma_counts::a_read_and_a_write_take_few_system_calls";
    if !is_in_guest() {
        let _turn = alone();
        return passes_in(lab().client(), NAME);
    }
    if std::env::var_os(TRACED).is_some() {
        let (_server, mount) = both_ends();
        let file = counted_file(&mount);
        for mark in MARKS {
            // The first round warms up and stays out of the counts. `getppid`, which nothing else
            // calls, marks where a count begins and ends.
            operate(&file, mark);
            let _ = rustix::process::getppid();
            for _ in 0..TURNS {
                operate(&file, mark);
                let _ = rustix::process::getppid();
            }
        }
        return;
    }
    let again = again(NAME);
    let mut traced = Command::new("strace");
    traced.args(["-f", "-Y", "-qq", "-e", "signal=none", "-o", "/root/trace"]);
    traced.arg(again.get_program()).args(again.get_args()).env(TRACED, "1");
    let output = traced.output().expect("strace runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let trace = fs::read_to_string("/root/trace").expect("the trace was written");
    let parts: Vec<&str> = trace.split("getppid(").collect();
    assert_eq!(parts.len(), (TURNS + 1) * MARKS.len() + 1, "the marks");
    for (mark, turns) in MARKS.iter().zip(parts[1..].chunks(TURNS + 1)) {
        for thread in ["tl-mount", "tl-serve"] {
            let turns = turns[..TURNS].iter().map(|part| system_calls(part, thread));
            let calls = turns.min_by_key(|calls| calls.values().sum::<u64>()).expect("there was a turn");
            let per_operation = calls.values().sum::<u64>() as f64 / OPERATIONS as f64;
            println!("{}, {thread}: {per_operation:.2} system calls: {calls:?}", mark.name);
            assert!(per_operation <= SYSTEM_CALLS_MAX, "{}, {thread}: {calls:?}", mark.name);
            assert!(per_operation >= 1.0, "nothing waits for free: {}, {thread}: {calls:?}", mark.name);
        }
    }
}

/// How often threads of this name began each system call. Calls of the clock are left out: the
/// clock is a system call only where the kernel cannot export it to programs, as on an emulated
/// processor.
fn system_calls<'a>(trace: &'a str, thread: &str) -> BTreeMap<&'a str, u64> {
    let mut calls = BTreeMap::new();
    for line in trace.lines() {
        let Some((_, rest)) = line.split_once('<') else { continue };
        let Some((name, call)) = rest.split_once("> ") else { continue };
        let call = call.trim_start();
        let (call, _) = call.split_once('(').unwrap_or((call, ""));
        if name.starts_with(thread) && !call.starts_with("<...") && call != "clock_gettime" {
            *calls.entry(call).or_default() += 1;
        }
    }
    calls
}

/// A server and a mount of it over one connection, both in this process.
fn both_ends() -> (Server, Mount) {
    let mut config = Config::quick(16 << 20, "/export", &["10.77.1.2:12080".parse().expect("an address")]);
    config.add_rdma(&["10.77.1.2:20080".parse().expect("an address")]);
    let server = Server::start(config).expect("the guest has a device");
    let options = "proto=rdma,port=20080,mountport=12080,nconnect=1";
    let mount = Mount::connect("10.77.1.2:/export", options).expect("the server answers");
    (server, mount)
}

fn counted_file(mount: &Mount) -> File {
    let file = mount.create_file(b"/counted", 0o644).expect("the export is writable");
    file.write_all_at(&[7; 64 << 10], 0).expect("the file was written");
    file
}

/// The counters of the kernel's client for a connection over RDMA (the line `xprt: rdma` of
/// `/proc/self/mountstats`).
#[derive(Debug, Clone, Copy)]
struct KernelCounts {
    sends: u64,
    receives: u64,
    /// Chunks that the server reads, and chunks that it writes.
    chunks: [u64; 2],
}

impl KernelCounts {
    fn now() -> Self {
        let text = fs::read_to_string("/proc/self/mountstats").expect("the kernel has counters");
        let line = text.lines().find_map(|line| line.trim_start().strip_prefix("xprt:\trdma "));
        let counts = line.unwrap_or_else(|| panic!("there is a mount over RDMA: {text}")).split_whitespace();
        let counts: Vec<u64> = counts.map(|count| count.parse().unwrap_or(0)).collect();
        let [_, _, _, _, _, sends, receives, _, _, _, read, written, ..] = *counts else {
            panic!("{counts:?}")
        };
        Self { sends, receives, chunks: [read, written] }
    }

    fn since(self, before: Self) -> Self {
        Self {
            sends: self.sends - before.sends,
            receives: self.receives - before.receives,
            chunks: [0, 1].map(|kind| self.chunks[kind] - before.chunks[kind]),
        }
    }
}

/// Tests the kernel's client on our server: its calls take as many messages and RDMA operations of
/// our server as those of our client.
fn kernels_client() {
    let (server, mount) = both_ends();
    drop((counted_file(&mount), mount));
    let directory = "/mnt/rdma-counted";
    fs::create_dir_all(directory).expect("the directory was created");
    let options = "vers=3,proto=rdma,port=20080,mountport=12080,mountproto=tcp,nolock,nconnect=1";
    run(Command::new("mount").args(["-t", "nfs", "-o", options, "10.77.1.2:/export", directory]));
    let mounted = KernelsMount(directory);
    let file = format!("{directory}/counted");
    for mark in MARKS {
        let (from, to, direct) = match mark.writes {
            true => ("/dev/zero", file.as_str(), ["oflag=direct", "conv=notrunc"].as_slice()),
            false => (file.as_str(), "/dev/null", ["iflag=direct"].as_slice()),
        };
        // The file is shorter than all blocks together, so one block is used each time.
        let one = || {
            let mut dd = Command::new("dd");
            dd.args([format!("if={from}"), format!("of={to}"), format!("bs={}", mark.bytes)]);
            run(dd.args(["count=1", "status=none"]).args(direct));
        };
        one();
        let (before, served_before) = (KernelCounts::now(), work_of(&server));
        (0..OPERATIONS).for_each(|_| one());
        let (kernel, ours) = (KernelCounts::now().since(before), since(&work_of(&server), &served_before));
        let ours = ours.expect("counters grow");
        println!("{OPERATIONS} times {} by the kernel's client: {kernel:?}, our server {ours:?}", mark.name);
        let [writes, reads] = mark.server_moves.map(|each| each * OPERATIONS);
        assert_eq!([ours.writes, ours.reads], [writes, reads], "{}", mark.name);
        // The kernel also asks for attributes, so it sends more calls; each of its calls is one
        // message, and each reply is one.
        assert_eq!(kernel.chunks, [reads, writes], "{}", mark.name);
        assert!(kernel.sends.abs_diff(ours.sends) <= SPARE, "{}: {kernel:?}, {ours:?}", mark.name);
        assert!(kernel.receives.abs_diff(ours.sends) <= SPARE, "{}: {kernel:?}, {ours:?}", mark.name);
        let in_and_out = 2 * ours.sends + writes + reads + SPARE;
        assert!(ours.work() <= in_and_out, "{}: {ours:?}", mark.name);
    }
    drop(mounted);
}

/// The kernel's mount of a server in this process, until dropped, also after a failure, when the
/// server no longer answers.
struct KernelsMount(&'static str);

impl Drop for KernelsMount {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["-f", "-l", self.0]).status();
    }
}

/// Tests our client on the kernel's server, with the kernel's counters of all its connections.
fn kernels_server() {
    let mount = Mount::connect("10.77.1.2:/srv/export", "proto=rdma,nconnect=1").expect("the client mounts");
    let file = counted_file(&mount);
    // The first turn registers memory.
    for mark in MARKS {
        operate(&file, mark);
        let (before, kernel_before) = (mount.statistics().rdma, kernels_moves());
        operate(&file, mark);
        let (after, kernel_after) = (mount.statistics().rdma, kernels_moves());
        let ours = since(&after, &before).expect("counters grow");
        let kernel = [0, 1].map(|kind| kernel_after[kind] - kernel_before[kind]);
        println!("{OPERATIONS} times {}: our client {ours:?}, the kernel's server {kernel:?}", mark.name);
        check_limit(mark, ours, [0, 0]);
        assert_eq!(kernel, mark.server_moves.map(|each| each * OPERATIONS), "{}", mark.name);
    }
    drop(file);
    mount.remove(mount.root(), b"counted").expect("the file exists");
}

/// RDMA writes and RDMA reads by the kernel's server.
fn kernels_moves() -> [u64; 2] {
    ["write", "read"].map(|kind| {
        let said = fs::read_to_string(format!("/proc/sys/sunrpc/svc_rdma/rdma_stat_{kind}"));
        said.expect("the module is loaded").trim().parse().expect("a number")
    })
}

#[track_caller]
fn run(command: &mut Command) {
    let output = command.output().expect("the command runs");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn marks_are_held() {
    let (server, mount) = both_ends();
    let file = counted_file(&mount);
    for mark in MARKS {
        let turns = (0..TURNS).filter_map(|_| measure_once(&server, &mount, &file, mark));
        let least = turns.min_by_key(|ends| ends.iter().map(Counters::work).sum::<u64>());
        let [ours, theirs] = least.expect("there was a turn");
        println!("{} times {}: client {ours:?}, server {theirs:?}", OPERATIONS, mark.name);
        check_limit(mark, ours, [0, 0]);
        check_limit(mark, theirs, mark.server_moves);
    }
}

/// Checks one end of a turn: for each operation one message out, one message in, and the RDMA
/// operations. Messages and RDMA reads have completions, for which the call waits; an RDMA write is
/// complete when the reply after it is.
#[track_caller]
fn check_limit(mark: Mark, done: Counters, [writes, reads]: [u64; 2]) {
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

/// The counters of the client and the server for the operations of a turn; `None` if a loop was too
/// slow to report its counters.
fn measure_once(server: &Server, mount: &Mount, file: &File, mark: Mark) -> Option<[Counters; 2]> {
    let now = || [mount.statistics().rdma, work_of(server)];
    let before = now();
    operate(file, mark);
    let after = now();
    Some([since(&after[0], &before[0])?, since(&after[1], &before[1])?])
}

/// Runs all operations of a turn, one after the other.
fn operate(file: &File, mark: Mark) {
    for _ in 0..OPERATIONS {
        let buffer = vec![7; mark.bytes];
        let pending = if mark.writes { file.write_at(buffer, 0) } else { file.read_at(buffer, 0) };
        pending.wait().result.expect("the operation succeeds");
    }
}

pub(super) fn work_of(server: &Server) -> Counters {
    let mut served = Counters::default();
    server.statistics().nodes.iter().for_each(|node| served.add(&node.rdma));
    served
}

pub(super) fn since(after: &Counters, before: &Counters) -> Option<Counters> {
    Some(Counters {
        sends: after.sends.checked_sub(before.sends)?,
        receives: after.receives.checked_sub(before.receives)?,
        places: after.places.checked_sub(before.places)?,
        writes: after.writes.checked_sub(before.writes)?,
        written_bytes: after.written_bytes.checked_sub(before.written_bytes)?,
        reads: after.reads.checked_sub(before.reads)?,
        read_bytes: after.read_bytes.checked_sub(before.read_bytes)?,
        copied_bytes: after.copied_bytes.checked_sub(before.copied_bytes)?,
        lent: after.lent.checked_sub(before.lent)?,
        completions: after.completions.checked_sub(before.completions)?,
        arms: after.arms.checked_sub(before.arms)?,
        notices: after.notices.checked_sub(before.notices)?,
    })
}
