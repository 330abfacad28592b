//! Tests our NVMe/RDMA host (`block attach`) over Soft-RoCE, on our pair and on the Linux kernel's
//! target: what it finds is what it wrote last, whatever becomes of a path. The load runs in the
//! guest, where both ends are.

use crate::disk_load::{DiskLoad, Done};
use crate::guest::{is_in_guest, passes_in};
use crate::kernel_target::TIMEOUT;
use crate::nbd_client::Client;
use crate::{alone, lab, trunkline};
use rustix::process::Signal;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;
use testkit::{Deadline, Process};

const HOST: &str = "nqn.2026-11.org.trunkline:guest";
const SUBSYSTEM: &str = "nqn.2026-11.org.trunkline:over-rdma";
/// Where both targets have their volume.
const STORE: &str = "/dev/ram0";
const SOCKET: &str = "/run/block-over-rdma.sock";

/// Runs a shell script in this guest, which must succeed; returns its output.
#[track_caller]
fn run(script: &str) -> String {
    let output = Command::new("sh").args(["-ec", script]).output().expect("there is a shell");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{script}\n{}\n{out}{err}", output.status);
    out.into_owned()
}

fn started(arguments: &str, line: &str) -> Process {
    let mut command = Command::new(trunkline());
    command.args(arguments.split_whitespace());
    let process = Process::spawn(command);
    process.wait_for_line(line, TIMEOUT);
    process
}

/// Our host, attached to these addresses.
fn attached(subsystem: &str, addresses: &[&str], more: &str) -> Process {
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
fn wait_for_paths(over_rdma: usize, tcp_port: Option<u16>) {
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
fn held() -> Vec<String> {
    let said = run("rdma resource show qp type RC; rdma resource show mr; rdma resource show cq");
    said.lines().filter(|line| !line.contains("comm [")).map(str::to_owned).collect()
}

/// Compares what the load has left with the device itself, and says how long requests took.
#[track_caller]
fn settle(name: &str, load: DiskLoad) -> Vec<(u64, Vec<u8>)> {
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
fn compare_with_device(content: &[(u64, Vec<u8>)]) {
    let store = File::open(STORE).expect("the device");
    for (offset, expected) in content {
        let mut found = vec![0; expected.len()];
        store.read_exact_at(&mut found, *offset).expect("its blocks");
        assert!(&found == expected, "the device holds something else at {offset}");
    }
}

/// The longest transfer, which is several commands, and one that ends within a block of memory.
#[track_caller]
fn long_transfers_are_whole() {
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
fn our_host_over_rdma_loses_nothing_when_a_path_to_the_kernels_target_is_lost() {
    const NAME: &str =
        "block_over_rdma::our_host_over_rdma_loses_nothing_when_a_path_to_the_kernels_target_is_lost";
    if is_in_guest() {
        return on_the_kernels_target();
    }
    let _turn = alone();
    passes_in(lab().server(), NAME);
}

/// The Linux kernel's target with a port for RDMA and one for TCP, until dropped.
struct KernelTarget;

const NVMET: &str = "
    nvmet=/sys/kernel/config/nvmet; nqn=nqn.2026-11.org.trunkline:over-rdma
    opened() { ln -s $nvmet/subsystems/$nqn $nvmet/ports/$1/subsystems/$nqn; }
    closed() { rm $nvmet/ports/$1/subsystems/$nqn; }
    ";

impl KernelTarget {
    fn start() -> Self {
        run(&format!(
            "{NVMET}
             modprobe -a nvmet nvmet-tcp nvmet-rdma; modprobe brd rd_nr=1 rd_size=65536; wipefs -a {STORE}
             mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config
             mkdir $nvmet/subsystems/$nqn; echo 1 > $nvmet/subsystems/$nqn/attr_allow_any_host
             namespace=$nvmet/subsystems/$nqn/namespaces/1; mkdir $namespace
             echo -n {STORE} > $namespace/device_path; echo 1 > $namespace/enable
             for transport in rdma tcp; do
               [ $transport = rdma ] && n=11 || n=12
               mkdir $nvmet/ports/$n; echo ipv4 > $nvmet/ports/$n/addr_adrfam
               echo $transport > $nvmet/ports/$n/addr_trtype; echo 10.77.1.2 > $nvmet/ports/$n/addr_traddr
               echo 124$n > $nvmet/ports/$n/addr_trsvcid; opened $n
             done"
        ));
        Self
    }
}

impl Drop for KernelTarget {
    fn drop(&mut self) {
        // Whatever a failed case has left; a panic of its own would hide the first one.
        let script = "for n in 11 12; do closed $n; rmdir $nvmet/ports/$n; done
            echo 0 > $nvmet/subsystems/$nqn/namespaces/1/enable
            rmdir $nvmet/subsystems/$nqn/namespaces/1 $nvmet/subsystems/$nqn";
        let _ = Command::new("sh").args(["-c", &format!("{NVMET}{script}")]).output();
    }
}

fn on_the_kernels_target() {
    let before = held();
    let target = KernelTarget::start();
    let list =
        format!("{} block attach --connect rdma:10.77.1.2:12411 --hostnqn {HOST}", trunkline().display());
    let found = run(&list);
    assert!(found.contains("--connect rdma:10.77.1.2:12411"), "{found}");
    // Writes wait for three of these.
    let addresses = ["rdma:10.77.1.2:12411", "10.77.1.2:12412"];
    let mut attached = attached(SUBSYSTEM, &addresses, "--keep-alive 2");
    wait_for_paths(1, Some(12412));
    long_transfers_are_whole();
    let load = DiskLoad::start(Path::new(SOCKET), 8);
    load.wait_for_all();
    for port in [11, 12] {
        run(&format!("{NVMET}closed {port}"));
        load.wait_for_all();
        run(&format!("{NVMET}opened {port}"));
        wait_for_paths(1, Some(12412));
        load.wait_for_all();
    }
    let content = settle("the kernel's target", load);
    assert!(attached.terminate(TIMEOUT).success());
    drop(target);
    compare_with_device(&content);
    Deadline::wait_until("everything to be freed", TIMEOUT, || (held() == before).then_some(()));
}
