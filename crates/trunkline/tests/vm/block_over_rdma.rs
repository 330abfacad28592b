//! Tests our NVMe/RDMA host (`block attach`) over Soft-RoCE, on our pair: what it finds is what it
//! wrote last, whatever becomes of a path. The load runs in the guest, where both ends are.

use crate::disk_load::{DiskLoad, Done};
use crate::guest::{is_in_guest, passes_in};
use crate::kernel_target::TIMEOUT;
use crate::nbd_client::Client;
use crate::{alone, lab, trunkline};
use record::{Half, Record};
use rustix::process::Signal;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;
use testkit::{Deadline, Process};

pub(super) const HOST: &str = "nqn.2026-11.org.trunkline:guest";
pub(super) const SUBSYSTEM: &str = "nqn.2026-11.org.trunkline:over-rdma";
/// Where both targets have their volume.
pub(super) const STORE: &str = "/dev/ram0";
pub(super) const SOCKET: &str = "/run/block-over-rdma.sock";

/// Runs a shell script in this guest, which must succeed; returns its output.
#[track_caller]
pub(super) fn run(script: &str) -> String {
    let output = Command::new("sh").args(["-ec", script]).output().expect("there is a shell");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{script}\n{}\n{out}{err}", output.status);
    out.into_owned()
}

pub(super) fn started(arguments: &str, line: &str) -> Process {
    let mut command = Command::new(trunkline());
    command.args(arguments.split_whitespace());
    let process = Process::spawn(command);
    process.wait_for_line(line, TIMEOUT);
    process
}

/// Our host, attached to these addresses.
pub(super) fn attached(subsystem: &str, addresses: &[&str], more: &str) -> Process {
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
pub(super) fn wait_for_paths(over_rdma: usize, tcp_port: Option<u16>) {
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
pub(super) fn held() -> Vec<String> {
    let said = run("rdma resource show qp type RC; rdma resource show mr; rdma resource show cq");
    said.lines().filter(|line| !line.contains("comm [")).map(str::to_owned).collect()
}

/// Compares what the load has left with the device itself, and says how long requests took.
#[track_caller]
pub(super) fn settle(name: &str, load: DiskLoad) -> Vec<(u64, Vec<u8>)> {
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

#[track_caller]
pub(super) fn compare_with_device(content: &[(u64, Vec<u8>)]) {
    let store = File::open(STORE).expect("the device");
    for (offset, expected) in content {
        let mut found = vec![0; expected.len()];
        store.read_exact_at(&mut found, *offset).expect("its blocks");
        assert!(&found == expected, "the device holds something else at {offset}");
    }
}

/// The longest transfer, which is several commands, and one that ends within a block of memory.
#[track_caller]
pub(super) fn long_transfers_are_whole() {
    let mut client = Client::begin(Path::new(SOCKET));
    for (offset, bytes) in [(16 << 20, 4 << 20), (24 << 20, (1 << 20) + 4096), (28 << 20, 1 << 20)] {
        let data: Vec<u8> = (0..bytes).map(|at: u32| (at / 512) as u8 ^ (at % 251) as u8).collect();
        client.write(offset, &data);
        assert!(client.read(offset, bytes) == data, "{bytes} bytes at {offset}");
    }
}

#[test]
fn our_host_over_rdma_loses_nothing_when_a_node_of_our_pair_is_killed_or_stands_still() {
    const NAME: &str = "block_over_rdma::\
         our_host_over_rdma_loses_nothing_when_a_node_of_our_pair_is_killed_or_stands_still";
    if is_in_guest() {
        return on_our_pair();
    }
    let _turn = alone();
    passes_in(lab().server(), NAME);
}

fn on_our_pair() {
    const PORTS: [&str; 2] = ["rdma:10.77.1.2:12450", "rdma:10.77.1.2:12451"];
    let before = held();
    run(&format!(
        "modprobe brd rd_nr=1 rd_size=65536; wipefs -a {STORE}; rm -rf /run/over-rdma
         cat > /run/over-rdma.toml << END
nqn = \"{SUBSYSTEM}\"
state = \"/run/over-rdma\"
allow = [\"{HOST}\"]
listen = [\"{}\", \"{}\"]
[[volume]]
source = \"{STORE}\"
owner = \"A\"
END",
        PORTS[0], PORTS[1]
    ));
    let node = |name: &str| started(&format!("block serve -c /run/over-rdma.toml --node {name}"), "ready");
    let [mut a, mut b] = ["A", "B"].map(node);
    let list = |host: &str| {
        run(&format!(
            "{} block attach --connect {} --hostnqn {host} 2>&1 || true",
            trunkline().display(),
            PORTS[1]
        ))
    };
    let found = list(HOST);
    assert!(PORTS.iter().all(|port| found.contains(&format!("--connect {port}"))), "{found}");
    let refused = list("nqn.2026-11.org.trunkline:other");
    assert!(refused.contains("there is no subsystem"), "{refused}");

    let mut attached = attached(SUBSYSTEM, &PORTS, "");
    wait_for_paths(2, None);
    long_transfers_are_whole();
    let load = DiskLoad::start(Path::new(SOCKET), 7);
    load.wait_for_all();
    a.signal(Signal::KILL);
    load.wait_for_all();
    a = node("A");
    wait_for_paths(2, None);
    load.wait_for_all();
    // It owns the volume now. The other one ends it, which is not for long: it is killed then.
    b.signal(Signal::STOP);
    load.wait_for_all();
    b.signal(Signal::KILL);
    b = node("B");
    wait_for_paths(2, None);
    load.wait_for_all();
    let content = settle("our pair", load);
    assert!(attached.terminate(TIMEOUT).success());
    assert!(a.terminate(TIMEOUT).success() && b.terminate(TIMEOUT).success());
    compare_with_device(&content);
    Deadline::wait_until("everything to be freed", TIMEOUT, || (held() == before).then_some(()));
}

#[test]
fn a_volume_is_measured_over_rdma_and_beside_tcp() {
    const NAME: &str = "block_over_rdma::a_volume_is_measured_over_rdma_and_beside_tcp";
    if is_in_guest() {
        return measured();
    }
    let _turn = alone();
    passes_in(lab().server(), NAME);
}

fn measured() {
    let mut target = started(
        &format!(
            "block serve --volume mem:16MiB --listen rdma:10.77.1.2:12460 --listen 10.77.1.2:12461 \
             --nqn {SUBSYSTEM} --state /run/measured --allow any"
        ),
        "ready",
    );
    run(&format!(
        "cd /root; cat > rdma.toml << END
repeats = 1
window_ms = 300
[[workload]]
name = \"mixed\"
block = \"64KiB\"
depth = 4
readers = 1
writers = 1
file = \"2MiB\"
[[route]]
name = \"embedded\"
target = \"volume:?rdma,queues=1\"
[[route]]
name = \"both\"
target = \"nvme-rdma://10.77.1.2:12460/{SUBSYSTEM}?connect=tcp:10.77.1.2:12461,queues=1,overwrite\"
END
         {} bench rdma.toml --record rdma.json --no-report --force",
        trunkline().display()
    ));
    let record = std::fs::read_to_string("/root/rdma.json").expect("a record");
    let record = Record::read(&record).expect("a record");
    assert!(record.failed.is_empty(), "{:?}", record.failed);
    let both = "NVMe/TCP and NVMe/RDMA, by our host";
    for (name, access) in [("embedded", "NVMe/RDMA, by our host"), ("both", both)] {
        let route = record.route(name).expect("the route");
        assert_eq!(route.access.as_deref(), Some(access));
        let mixed = route.workload("mixed", Half::Raw).expect("the workload");
        assert!(mixed.cells().count() == 2 && mixed.cells().all(|(_, cell)| cell.ops > 0), "{mixed:?}");
        assert!(mixed.verified.is_some_and(|it| it.stamps > 0 && it.wrong == 0), "{mixed:?}");
    }
    let mixed = record.route("both").and_then(|route| route.workload("mixed", Half::Raw));
    let paths = &mixed.expect("the workload").paths;
    let paths: Vec<(&str, bool)> = paths.iter().map(|it| (it.path.as_str(), it.bytes > 0)).collect();
    // The second address is that of node B, which does not own the volume.
    assert_eq!(paths, [("rdma:10.77.1.2", true), ("10.77.1.2", false)]);
    let limit = record.limits.iter().find(|it| it.route.as_deref() == Some("nvme-rdma"));
    assert!(limit.is_some_and(|limit| limit.gbytes_per_s > 0.0), "{:?}", record.limits);
    assert!(target.terminate(TIMEOUT).success());
}
