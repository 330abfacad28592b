//! Volumes that our host has attached over RDMA, in this guest.

use crate::disk_load::{DiskLoad, Done};
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use testkit::{Deadline, Process};

/// Only a hang takes so long, also in an emulated machine.
const TIMEOUT: Duration = Duration::from_secs(120);

pub const HOST: &str = "nqn.2026-11.org.trunkline:guest";
pub const SOCKET: &str = "/run/attached.sock";

/// Runs a shell script in this guest, which must succeed; returns its output.
#[track_caller]
pub fn run(script: &str) -> String {
    let output = Command::new("sh").args(["-ec", script]).output().expect("there is a shell");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{script}\n{}\n{out}{err}", output.status);
    out.into_owned()
}

pub fn started(arguments: &str, line: &str) -> Process {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trunkline"));
    command.args(arguments.split_whitespace());
    let process = Process::spawn(command);
    process.wait_for_line(line, TIMEOUT);
    process
}

/// Our host, attached to these addresses.
pub fn attached(subsystem: &str, addresses: &[&str], more: &str) -> Process {
    let connect: Vec<String> = addresses.iter().map(|address| format!("--connect {address}")).collect();
    started(
        &format!(
            "block attach {} --nqn {subsystem} --hostnqn {HOST} --socket {SOCKET} {more}",
            connect.join(" ")
        ),
        "ready",
    )
}

/// The connections of a controller: the admin queue, and the I/O queues of `block attach`.
const QUEUES: usize = 3;

/// Waits until it has as many paths over RDMA, and one over TCP to this port if one is named.
pub fn wait_for_paths(over_rdma: usize, tcp_port: Option<u16>) {
    // They belong to the thread that made them.
    let queue_pairs = "rdma resource show qp type RC | grep -c 'state RTS .*comm initiator' || true";
    let streams = tcp_port.map(|port| format!("ss -tnH state established dst 10.77.1.2:{port} | wc -l"));
    let count = |script: &str| run(script).trim().parse::<usize>().expect("a number");
    Deadline::wait_until("the paths", TIMEOUT, || {
        let are_there = count(queue_pairs) == over_rdma * QUEUES
            && streams.as_deref().is_none_or(|streams| count(streams) == QUEUES);
        are_there.then_some(())
    });
}

/// The queue pairs of connections, and the memory that is registered, of programs.
pub fn held() -> Vec<String> {
    let said = run("rdma resource show qp type RC; rdma resource show mr; rdma resource show cq");
    said.lines().filter(|line| !line.contains("comm [")).map(str::to_owned).collect()
}

/// Compares what the load has left with the device itself, and says how long requests took.
#[track_caller]
pub fn settle(name: &str, load: DiskLoad) -> Vec<(u64, Vec<u8>)> {
    let outcome = load.stop(Path::new(SOCKET));
    assert!(outcome.wrong.is_empty(), "{:?}", outcome.wrong);
    let longest = |is_write| {
        let of_kind = outcome.done.iter().filter(|one: &&Done| one.is_write == is_write);
        of_kind.map(|one| one.took).max().unwrap_or_default().as_millis()
    };
    println!(
        "{name}: {} requests, longest READ {} ms, longest WRITE {} ms",
        outcome.done.len(),
        longest(false),
        longest(true)
    );
    outcome.content
}
