//! What hosts have flushed, or written with FUA, survives a loss of power, and what they have not
//! is lost: on a device with a volatile cache and on a file there, executed by io_uring and by
//! workers, and by way of the process that does not own the volume. The hosts are the Linux
//! kernel's and ours, with two NBD connections to one disk.
//!
//! All ends are in one guest; the test asks for itself to be run there.

use crate::attached::run;
use crate::guest::{is_in_guest, passes_in};
use crate::nbd_client::Client;
use crate::power_loss::{BLOCK, CachedDevice, DEVICE, FILE};
use crate::{alone, lab, trunkline};
use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use testkit::Process;

const SUBSYSTEM: &str = "nqn.2026-11.org.trunkline:durable";
const HOST: &str = "nqn.2026-11.org.trunkline:guest";
/// Those of the nodes A, which owns the volume, and B.
const PORTS: [u16; 2] = [12480, 12481];
const CONFIG: &str = "/run/durable.toml";
const SOCKET: &str = "/run/durable.sock";
const TIMEOUT: Duration = Duration::from_secs(120);

/// The NBD protocol's flags and types of requests.
const FUA: u16 = 1;
const CAN_MULTI_CONN: u16 = 1 << 8;
const WRITE: u16 = 1;
const FLUSH: u16 = 3;
const TRIM: u16 = 4;
const WRITE_ZEROES: u16 = 6;

/// How a volume is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Setting {
    /// In a file of the device, instead of the device itself.
    is_file: bool,
    /// By workers, instead of io_uring.
    by_workers: bool,
    /// By two processes, of which hosts use the one that does not own the volume.
    is_forwarded: bool,
}

/// A device, by io_uring.
pub(super) const SIMPLE: Setting = Setting { is_file: false, by_workers: false, is_forwarded: false };

const SETTINGS: [Setting; 5] = [
    SIMPLE,
    Setting { is_file: false, by_workers: true, is_forwarded: false },
    Setting { is_file: true, by_workers: false, is_forwarded: false },
    Setting { is_file: true, by_workers: true, is_forwarded: false },
    Setting { is_file: false, by_workers: false, is_forwarded: true },
];

#[test]
fn what_was_flushed_survives_a_loss_of_power_and_what_was_not_is_lost() {
    if is_in_guest() {
        for setting in SETTINGS {
            println!("{setting:?}");
            let mut device = CachedDevice::create(setting.is_file);
            let served = serve(setting, if setting.is_file { FILE } else { DEVICE });
            // What the hosts send does not depend on who executes it.
            if !(setting.is_file && setting.by_workers) {
                the_kernels_host(setting, &mut device);
            }
            our_host(setting, &mut device);
            end(served);
        }
        return a_device_without_a_volatile_cache();
    }
    let _turn = alone();
    passes_in(
        lab().client(),
        "durable_writes::what_was_flushed_survives_a_loss_of_power_and_what_was_not_is_lost",
    );
}

/// The processes of the target. They execute operations in the way that was asked for.
pub(super) fn serve(setting: Setting, source: &str) -> Vec<Process> {
    let [a, b] = PORTS;
    run(&format!(
        "modprobe nvme-tcp; rm -rf /run/durable-state
         cat > {CONFIG} << 'END'
nqn = \"{SUBSYSTEM}\"
state = \"/run/durable-state\"
allow = [\"{HOST}\"]
listen = [\"10.77.1.2:{a}\", \"10.77.1.2:{b}\"]
[[volume]]
source = \"{source}\"
owner = \"A\"
END"
    ));
    let nodes: &[&[&str]] = if setting.is_forwarded { &[&["--node", "A"], &["--node", "B"]] } else { &[&[]] };
    let processes: Vec<Process> = nodes.iter().map(|node| started(setting, node)).collect();
    let rings = run(&format!("ls -l /proc/{}/fd | grep -c io_uring || true", processes[0].id()));
    assert_eq!(rings.trim() == "0", setting.by_workers, "{setting:?}: {rings}");
    processes
}

fn started(setting: Setting, node: &[&str]) -> Process {
    let serve = ["block", "serve", "-c", CONFIG];
    let mut command = Command::new(if setting.by_workers { Path::new("strace") } else { trunkline() });
    if setting.by_workers {
        // As where the system does not permit io_uring. The tracer is no parent of the process.
        command.args(["-D", "-f", "-qq", "--seccomp-bpf", "-o", "/dev/null", "-e", "trace=io_uring_setup"]);
        command.args(["-e", "inject=io_uring_setup:error=EPERM"]).arg(trunkline());
    }
    command.args(serve).args(node);
    let process = Process::spawn(command);
    process.wait_for_line("ready", TIMEOUT);
    process
}

pub(super) fn end(processes: Vec<Process>) {
    for mut process in processes {
        assert!(process.terminate(TIMEOUT).success(), "{}", process.all_output());
    }
}

/// The port that hosts connect to.
const fn port(setting: Setting) -> u16 {
    PORTS[setting.is_forwarded as usize]
}

/// The kernel's disk, until dropped.
struct Connected(String);

impl Drop for Connected {
    fn drop(&mut self) {
        // Before the target ends, or the kernel tries for ten minutes to connect again.
        let _ = Command::new("nvme").args(["disconnect", "-n", SUBSYSTEM]).output();
    }
}

/// Has the kernel's host connect.
fn connected(port: u16) -> Connected {
    let found = run(&format!(
        "nvme connect -t tcp -a 10.77.1.2 -s {port} -n {SUBSYSTEM} --hostnqn {HOST} --nr-io-queues=2 \
             --hostid 5f2c1a0e-7d1c-4c5e-9a57-000000000001 >&2
         subsystem=$(dirname $(grep -lx {SUBSYSTEM} /sys/class/nvme-subsystem/*/subsysnqn))
         disk=/dev/nvme$(basename $subsystem | tr -dc 0-9)n1
         for try in $(seq 600); do [ -b $disk ] && break; sleep 0.1; done
         echo $disk"
    ));
    Connected(found.trim().to_owned())
}

/// What the kernel knows of the disk's cache.
fn cache_of(disk: &str) -> String {
    run(&format!("cd /sys/block/{}/queue; cat write_cache fua", disk.trim_start_matches("/dev/")))
}

/// Fills a block of a device of the kernel with its number.
pub(super) fn write_directly(disk: &str, block: usize, how: &str) {
    run(&format!(
        "head -c {BLOCK} /dev/zero | tr '\\0' '\\{block:03o}' > /run/durable-block
         dd if=/run/durable-block of={disk} bs={BLOCK} seek={block} oflag={how} conv=notrunc 2>/dev/null"
    ));
}

/// Each write is of a block of its own, filled with the block's number.
fn the_kernels_host(setting: Setting, device: &mut CachedDevice) {
    let connected = connected(port(setting));
    let disk = &connected.0;
    assert_eq!(cache_of(disk), "write back\n1\n", "{setting:?}");
    write_directly(disk, 1, "direct");
    assert_eq!(device.survivor(1), 0, "{setting:?}: the kernel's write without a flush");
    File::open(disk).and_then(|disk| disk.sync_data()).expect("a flush");
    assert_eq!(device.survivor(1), 1, "{setting:?}: the kernel's flush");
    write_directly(disk, 2, "direct,dsync");
    assert_eq!(device.survivor(2), 2, "{setting:?}: O_DSYNC");
    // With O_DSYNC the kernel sends a flush too, here FUA alone.
    run(&format!(
        "head -c {BLOCK} /dev/zero | tr '\\0' '\\003' > /run/durable-block; unit=$(blockdev --getss {disk})
         nvme write {disk} -s $((3 * {BLOCK} / unit)) -c $(({BLOCK} / unit - 1)) -z {BLOCK} \
             -d /run/durable-block --force-unit-access >&2"
    ));
    assert_eq!(device.survivor(3), 3, "{setting:?}: the kernel's FUA");
}

/// Sends one request that must succeed.
#[track_caller]
fn request(client: &mut Client, kind: u16, flags: u16, block: usize, data: &[u8]) {
    let (offset, bytes) = if kind == FLUSH { (0, 0) } else { (block * BLOCK, BLOCK) };
    client.request(flags, kind, 9, offset as u64, bytes as u32);
    client.send(data);
    assert_eq!(client.reply(), (9, Ok(vec![])));
}

#[track_caller]
fn write(client: &mut Client, flags: u16, block: usize) {
    request(client, WRITE, flags, block, &[block as u8; BLOCK]);
}

/// Has our host attach the volume, at this socket or device.
pub(super) fn attached(setting: Setting, place: [&str; 2]) -> Process {
    let mut attach = Command::new(trunkline());
    attach.args(["block", "attach", "--nqn", SUBSYSTEM, "--hostnqn", HOST]).args(place);
    attach.arg(format!("--connect=10.77.1.2:{}", port(setting)));
    let attached = Process::spawn(attach);
    attached.wait_for_line("ready", TIMEOUT);
    attached
}

fn our_host(setting: Setting, device: &mut CachedDevice) {
    let attached = attached(setting, ["--socket", SOCKET]);
    let mut clients = [(); 2].map(|()| Client::begin(Path::new(SOCKET)));
    let [one, other] = &mut clients;
    assert!(one.flags & other.flags & CAN_MULTI_CONN != 0, "they are one disk");
    write(one, 0, 11);
    assert_eq!(device.survivor(11), 0, "{setting:?}: a write without a flush");
    // A flush covers what has ended on all connections.
    request(other, FLUSH, 0, 0, &[]);
    assert_eq!(device.survivor(11), 11, "{setting:?}: a flush on another connection");
    write(one, FUA, 12);
    assert_eq!(device.survivor(12), 12, "{setting:?}: a write with FUA");
    request(one, WRITE_ZEROES, FUA, 12, &[]);
    assert_eq!(device.survivor(12), 0, "{setting:?}: zeroes with FUA");
    request(one, TRIM, FUA, 11, &[]);
    assert_eq!(device.survivor(11), 0, "{setting:?}: a TRIM with FUA");
    drop(clients);
    end(vec![attached]);
}

/// A host is told that there is none, and then does not ask for flushes.
fn a_device_without_a_volatile_cache() {
    let through = run("rm -f /run/durable-through; truncate -s 16M /run/durable-through
        through=$(losetup --find --show /run/durable-through)
        echo 'write through' > /sys/block/$(basename $through)/queue/write_cache
        echo $through");
    let through = through.trim();
    let served = serve(SIMPLE, through);
    let disk = connected(PORTS[0]);
    assert_eq!(cache_of(&disk.0), "write through\n0\n");
    drop(disk);
    end(served);
    run(&format!("losetup --detach {through}; rm /run/durable-through"));
}
