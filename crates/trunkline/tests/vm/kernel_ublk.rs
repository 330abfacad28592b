//! Tests disks of `block attach` and `attach` as block devices of the kernel (ublk): data of three
//! sizes, TRIM and zeroes, a file system, a path that is lost, the end by a signal, and a process
//! that is killed and started again. Linux 6.1 of Debian is built without the driver.

use crate::durable_writes::{SIMPLE, attached, end, serve, write_directly};
use crate::guest::{is_in_guest, passes_in};
use crate::kernel_client::started;
use crate::power_loss::{CachedDevice, DEVICE};
use crate::{alone, lab, sh, trunkline};
use lab::vm::Running;
use rustix::process::Signal;
use std::fs::File;
use std::process::Command;
use std::time::Duration;

const SUBSYSTEM: &str = "nqn.2026-11.org.trunkline:ublk";
const HOST: &str = "nqn.2026-11.org.trunkline:guest";
const PORTS: [u16; 2] = [12470, 12471];
const NFS_PORT: u16 = 12472;
const TIMEOUT: Duration = Duration::from_secs(120);

/// A target with a volume on two addresses.
fn target(volume: &str) -> Running {
    let listen = PORTS.map(|port| format!("10.77.1.2:{port}"));
    let arguments = [
        "block",
        "serve",
        "--volume",
        volume,
        "--listen",
        &listen[0],
        "--listen",
        &listen[1],
        "--state",
        "/run/trunkline-ublk",
        "--nqn",
        SUBSYSTEM,
        "--allow",
        HOST,
    ];
    started(&arguments.map(str::to_owned))
}

/// Loads the driver anew: what a test that has failed has left is gone.
fn driver() {
    sh("modprobe -r ublk_drv; modprobe ublk_drv");
}

/// Starts a command in the guest with the devices.
fn spawned(arguments: &[&str]) -> Running {
    let mut command = Command::new(trunkline());
    command.args(arguments).current_dir("/");
    lab().client().spawn(&command).expect("the guest runs")
}

/// The arguments of an attachment of the volume as this device.
fn arguments(number: &str) -> Vec<String> {
    let connect = PORTS.map(|port| format!("--connect=10.77.1.2:{port}"));
    let fixed = ["block", "attach", "--hostnqn", HOST, "--nqn", SUBSYSTEM, "--ublk", number];
    fixed.into_iter().map(str::to_owned).chain(connect).collect()
}

fn attach_on(number: &str) -> Running {
    let arguments = arguments(number);
    let mut attached = spawned(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    attached.wait_for_line("ready", TIMEOUT).expect("it is ready");
    sh(&format!("[ -b /dev/ublkb{number} ]"));
    attached
}

/// Ends it by a signal: it succeeds, and the driver has no device any more.
fn ends_and_leaves_nothing(attached: Running) {
    attached.signal(Signal::TERM);
    leaves_nothing(attached);
}

fn leaves_nothing(mut attached: Running) {
    let status = attached.wait(drop).expect("the guest runs");
    assert!(status.success(), "{status}");
    let left = sh("ls /dev | grep '^ublk[bc]' || true; ls /sys/class/ublk-char");
    assert_eq!(left.trim(), "");
}

/// A shell function that verifies random writes of a device, in the background, until it ends.
const LOAD: &str = "load() { fio --name=w --filename=/dev/ublkb0 --rw=randwrite --bs=64k --size=24m \
         --rate_iops=60 --direct=1 --ioengine=libaio --iodepth=8 --verify=crc32c --do_verify=1 \
         --verify_fatal=1 --randseed=7 > /tmp/fio.out 2>&1 < /dev/null & pid=$!; }
     ends() { for try in $(seq 900); do kill -0 $pid 2>/dev/null || break; sleep 0.2; done
         if kill -0 $pid 2>/dev/null; then echo STALLED; dmesg | tail -60; exit; fi
         wait $pid || { cat /tmp/fio.out; echo FAILED; }; }
    ";

fn is_well(said: &str) {
    assert!(!said.contains("STALLED") && !said.contains("FAILED"), "{said}");
}

/// Random writes with each size of blocks, and each block verified.
fn fio_finds_what_it_wrote(device: &str) {
    for (block, offset, size) in [("4k", "0", "2m"), ("64k", "8m", "8m"), ("1m", "24m", "16m")] {
        sh(&format!(
            "fio --name=w --filename={device} --rw=randwrite --bs={block} --offset={offset} --size={size} \
                 --direct=1 --ioengine=libaio --iodepth=8 --verify=crc32c --do_verify=1 --verify_fatal=1 \
                 --randseed=7"
        ));
    }
}

/// TRIM and Write Zeroes change what they name, and nothing beside it.
fn trims_and_zeroes(device: &str) {
    sh(&format!(
        "d={device}; head -c 1048576 /dev/urandom > /tmp/ublk-data
         read_back() {{ dd if=$d bs=64k skip=32 count=16 iflag=direct of=/tmp/ublk-read 2>/dev/null; }}
         dd if=/tmp/ublk-data of=$d bs=64k seek=32 oflag=direct conv=fsync 2>/dev/null
         blkdiscard -o 2228224 -l 262144 $d; read_back
         cmp -n 131072 /tmp/ublk-data /tmp/ublk-read
         cmp -n 262144 -i 131072:0 /tmp/ublk-read /dev/zero
         cmp -i 393216 /tmp/ublk-data /tmp/ublk-read
         blkdiscard -z -o 2097152 -l 65536 $d; read_back
         cmp -n 65536 /tmp/ublk-read /dev/zero
         cmp -n 65536 -i 65536 /tmp/ublk-data /tmp/ublk-read"
    ));
}

#[test]
fn a_volume_is_a_block_device_with_a_file_system_and_sigterm_leaves_nothing() {
    let _turn = alone();
    let _target = target("mem:64MiB");
    driver();
    let attached = attach_on("0");
    sh("is() { [ \"$2\" = \"$3\" ] || { echo \"$1: $2\"; exit 1; }; }
        q=/sys/block/ublkb0/queue
        is size $(blockdev --getsize64 /dev/ublkb0) 67108864; is block $(blockdev --getss /dev/ublkb0) 4096
        is read-only $(blockdev --getro /dev/ublkb0) 0; is requests $(cat $q/max_hw_sectors_kb) 1024
        is cache \"$(cat $q/write_cache)\" 'write through'
        [ $(cat $q/discard_max_bytes) -gt 0 ]; [ $(cat $q/write_zeroes_max_bytes) -gt 0 ]");
    fio_finds_what_it_wrote("/dev/ublkb0");
    trims_and_zeroes("/dev/ublkb0");
    sh("mkfs.ext4 -q /dev/ublkb0; mkdir -p /tmp/ublk; mount /dev/ublkb0 /tmp/ublk
        for f in $(seq 200); do head -c $((f * 37 % 9001)) /dev/urandom > /tmp/ublk/file-$f; done
        (cd /tmp/ublk; sha256sum file-* > /tmp/ublk-sums); fstrim /tmp/ublk; umount /tmp/ublk
        fsck.ext4 -f -n /dev/ublkb0; mount /dev/ublkb0 /tmp/ublk; (cd /tmp/ublk; sha256sum -c --quiet /tmp/ublk-sums)
        echo last > /tmp/ublk/last");
    // Mounted still: what the kernel has in memory is written, and the device goes with the mount.
    attached.signal(Signal::TERM);
    sh("for try in $(seq 300); do [ $(cat /sys/block/ublkb0/size 2>/dev/null || echo 0) = 0 ] && break; sleep 0.1; done
        umount /tmp/ublk");
    leaves_nothing(attached);
    let attached = attach_on("0");
    sh("fsck.ext4 -f -y /dev/ublkb0 || [ $? = 1 ]; mount /dev/ublkb0 /tmp/ublk
        (cd /tmp/ublk; sha256sum -c --quiet /tmp/ublk-sums); grep last /tmp/ublk/last; umount /tmp/ublk");
    ends_and_leaves_nothing(attached);
}

#[test]
fn a_volume_with_a_volatile_cache_is_a_device_with_one_that_is_flushed() {
    let _turn = alone();
    lab().server().sh("head -c 67108864 /dev/zero > /run/ublk-volume").expect("a file");
    let _target = target("/run/ublk-volume");
    driver();
    let attached = attach_on("0");
    let said = sh("cat /sys/block/ublkb0/queue/write_cache /sys/block/ublkb0/queue/fua
        fio --name=w --filename=/dev/ublkb0 --rw=randwrite --bs=16k --size=4m --fsync=4 --verify=crc32c \
            --do_verify=1 --verify_fatal=1 --randseed=7 >&2
        dd if=/dev/zero of=/dev/ublkb0 bs=4k count=16 oflag=direct,dsync 2>/dev/null
        read -r _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ flushes _ < /sys/block/ublkb0/stat; [ $flushes -gt 0 ]");
    assert_eq!(said, "write back\n1\n");
    ends_and_leaves_nothing(attached);
}

#[test]
fn what_was_flushed_on_a_device_survives_a_loss_of_power() {
    if !is_in_guest() {
        let _turn = alone();
        driver();
        return passes_in(
            lab().client(),
            "kernel_ublk::what_was_flushed_on_a_device_survives_a_loss_of_power",
        );
    }
    let mut device = CachedDevice::create(false);
    let served = serve(SIMPLE, DEVICE);
    let attached = attached(SIMPLE, ["--ublk", "0"]);
    write_directly("/dev/ublkb0", 1, "direct");
    assert_eq!(device.survivor(1), 0, "without a flush");
    File::open("/dev/ublkb0").and_then(|disk| disk.sync_data()).expect("a flush");
    assert_eq!(device.survivor(1), 1, "a flush");
    write_directly("/dev/ublkb0", 2, "direct,dsync");
    assert_eq!(device.survivor(2), 2, "O_DSYNC");
    end(vec![attached]);
    end(served);
}

#[test]
fn a_path_that_is_lost_under_load_costs_a_device_nothing() {
    let _turn = alone();
    let _target = target("mem:64MiB");
    driver();
    sh("modprobe nf_tables");
    let attached = attach_on("0");
    let said = sh(&format!(
        "{LOAD}load; sleep 1
         nft 'add table ip cut; add chain ip cut in {{ type filter hook input priority 0; }}
              add rule ip cut in tcp dport {port} drop; add rule ip cut in tcp sport {port} drop'
         ends; nft delete table ip cut",
        port = PORTS[0]
    ));
    is_well(&said);
    ends_and_leaves_nothing(attached);
}

/// The device stays, requests wait, and none fails.
#[test]
fn an_attachment_that_is_killed_under_load_goes_on_when_it_is_started_again() {
    let _turn = alone();
    let _target = target("mem:64MiB");
    driver();
    let mut attached = attach_on("0");
    // Of two with one number the second one is refused, and does nothing to the first one.
    let mut other = spawned(&arguments("0").iter().map(String::as_str).collect::<Vec<_>>());
    assert!(!other.wait(drop).expect("the guest runs").success());
    let load = std::thread::scope(|scope| {
        let load = scope.spawn(|| sh(&format!("{LOAD}load; ends")));
        for _ in 0..3 {
            sh("read -r before < /sys/block/ublkb0/stat; for try in $(seq 300); do
                    read -r now < /sys/block/ublkb0/stat; [ \"$now\" != \"$before\" ] && break; sleep 0.1; done");
            attached.signal(Signal::KILL);
            attached.wait(drop).expect("the guest runs");
            sh("[ -b /dev/ublkb0 ]");
            attached = attach_on("0");
        }
        load.join().expect("fio")
    });
    is_well(&load);
    fio_finds_what_it_wrote("/dev/ublkb0");
    ends_and_leaves_nothing(attached);
}

#[test]
fn a_file_of_an_nfs_server_is_a_block_device_and_is_taken_over_when_its_process_was_killed() {
    let _turn = alone();
    let listen = format!("10.77.1.2:{NFS_PORT}");
    let files =
        "mkdir -p /tmp/ublk-export; cd /tmp/ublk-export; truncate -s 64M disk other; chmod 666 disk other";
    lab().server().sh(files).expect("files");
    let serve = ["serve", "--listen", &listen, "--dir", "/tmp/ublk-export"];
    let _server = started(&serve.map(str::to_owned));
    driver();
    let place = format!("nfs://10.77.1.2:{NFS_PORT}/export/disk?vers=4.2");
    let attach = || {
        let mut attached = spawned(&["attach", &place, "--ublk", "5"]);
        attached.wait_for_line("ready", TIMEOUT).expect("it is ready");
        attached
    };
    let mut attached = attach();
    sh("[ $(blockdev --getsize64 /dev/ublkb5) = 67108864 ]; [ $(blockdev --getss /dev/ublkb5) = 512 ]
        [ $(blockdev --getpbsz /dev/ublkb5) = 4096 ]");
    fio_finds_what_it_wrote("/dev/ublkb5");
    trims_and_zeroes("/dev/ublkb5");
    attached.signal(Signal::KILL);
    attached.wait(drop).expect("the guest runs");
    // Another disk does not take its place.
    sh(&format!(
        "{} attach 'nfs://10.77.1.2:{NFS_PORT}/export/other' --ublk 5 > /tmp/ublk-other 2>&1 && exit 1
         grep 'is there, for another disk' /tmp/ublk-other",
        trunkline().display()
    ));
    let waits = std::thread::scope(|scope| {
        let waits =
            scope.spawn(|| sh("dd if=/dev/ublkb5 of=/dev/null bs=64k skip=32 count=16 iflag=direct 2>&1"));
        attached = attach();
        waits.join().expect("dd")
    });
    assert!(waits.contains("16+0 records in"), "{waits}");
    fio_finds_what_it_wrote("/dev/ublkb5");
    ends_and_leaves_nothing(attached);
}

#[test]
fn without_the_driver_an_attachment_says_what_to_do() {
    let _turn = alone();
    let said = sh(&format!(
        "modprobe -r ublk_drv; fails {} block attach --connect 10.77.1.2:{} --hostnqn {HOST} \
             --nqn {SUBSYSTEM} --ublk 0",
        trunkline().display(),
        PORTS[0]
    ));
    assert!(said.contains("modprobe ublk_drv") && said.contains("--socket"), "{said}");
}
