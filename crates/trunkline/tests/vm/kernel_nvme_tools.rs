//! Tests what nvme-cli and file systems ask of our target by way of the Linux kernel's host. These
//! are the cases of the suite blktests, group `nvme`, that do not depend on how its own target is
//! set up (numbers in brackets); those with loads and faults are in `kernel_nvme.rs`.

use crate::kernel_nvme::{HOST, PORTS, SUBSYSTEM, Served, device};
use crate::{alone, sh};

/// `is WHAT SEEN EXPECTED` compares; `says TEXT COMMAND...` runs a command that must fail with it.
const CHECKS: &str = "
    is() { [ \"$2\" = \"$3\" ] || { echo \"$1: $2 instead of $3\" >&2; exit 1; }; }
    says() { expected=$1; shift
        if found=$(\"$@\" 2>&1); then echo \"no error: $*\" >&2; exit 1; fi
        case $found in *\"$expected\"*) ;; *) echo \"$*: $found\" >&2; exit 1;; esac
    }
    ";

/// Marks in the kernel's log where the test begins; other tests of the guest have errors before it.
const BEGIN: &str = "kernel_nvme_tools begins";

fn run(script: &str) -> String {
    sh(&format!("{}{CHECKS}{script}", device()))
}

#[test]
fn the_tools_of_the_kernels_host_get_what_they_ask_for() {
    let _turn = alone();
    let _served = Served::new();
    let [first, second] = PORTS;
    // [003, 008, 016, 028] Discovery that stays, two paths to one subsystem, names that stay.
    run(&format!(
        "echo {BEGIN} > /dev/kmsg
         nvme discover -t tcp -a 10.77.1.2 -s {first} {HOST} --persistent --keep-alive-tmo=2 > /tmp/log
         is records $(grep -c 'subnqn:  {SUBSYSTEM}' /tmp/log) 2
         nvme connect-all -t tcp -a 10.77.1.2 -s {first} {HOST}; settled
         is paths $(nvme list-subsys | grep -c 'live') 3
         nvme list-subsys | grep trsvcid={second}
         d=$(device 1); n=$(basename $d)
         is identity \"$(nvme ns-descs $d | sed -n 's/^uuid *: *//p')\" \"$(cat /sys/block/$n/uuid)\"
         is wwid \"$(cat /sys/block/$n/wwid)\" uuid.$(cat /sys/block/$n/uuid)"
    ));
    // [023, 026, 027] Logs, and a scan that finds nothing new.
    run("c=/dev/$(ls $(subsystem) | grep -E '^nvme[0-9]+$' | head -1)
         nvme smart-log $c | grep -E '^critical_warning[^0-9]*0$'
         written() { nvme smart-log $c | tr -d , | sed -nE 's/^host_write_commands[^0-9]*([0-9]+).*/\\1/p'; }
         before=$(written); dd if=/dev/zero of=$(device 1) bs=64k count=16 oflag=direct 2> /dev/null
         is writes $(written) $((before + 16))
         nvme effects-log $c > /tmp/log; nvme error-log $c > /tmp/log; nvme fw-log $c | grep 'frs1'
         nvme ana-log $c | tee /tmp/log | grep -i 'optimized'
         is groups $(grep -ci 'optimized' /tmp/log) 2
         nvme changed-ns-list-log $c; nvme ns-rescan $c; [ -b $(device 1) ] && [ -b $(device 2) ]
         nvme supported-log-pages $c | grep 'Asymmetric'
         says 'Invalid Log Page' nvme self-test-log $c
         nvme get-feature $c -f 7 | grep 'Number of Queues'");
    // [014, 018, 029] Commands of users, of several sizes, up to the last block and no further.
    run("d=$(device 1); head -c 1048576 /dev/urandom > /tmp/data
         for blocks in 1 2 3 16 128 256; do
             bytes=$((blocks * 4096)); from=$((16384 - blocks))
             nvme write $d -s $from -c $((blocks - 1)) -z $bytes -d /tmp/data
             nvme read $d -s $from -c $((blocks - 1)) -z $bytes -d /tmp/read
             cmp -n $bytes /tmp/data /tmp/read
             says 'LBA Out of Range' nvme read $d -s $((from + 1)) -c $((blocks - 1)) -z $bytes -d /tmp/read
         done
         nvme compare $d -s 16128 -c 255 -z 1048576 -d /tmp/data; nvme flush $d
         nvme write-zeroes $d -s 16383 -c 0
         says 'Compare Failure' nvme compare $d -s 16128 -c 255 -z 1048576 -d /tmp/data
         says 'LBA Out of Range' nvme write-zeroes $d -s 16384 -c 0
         says 'Invalid Command Opcode' nvme verify $d -s 0 -c 0
         nvme dsm $d -d -s 16128 -b 256; nvme flush $d");
    // [012, 019] A file system, and what it discards.
    run("d=$(device 2); mkfs.ext4 -q $d; mkdir -p /tmp/ext4; mount -o discard $d /tmp/ext4
         head -c 8388608 /dev/urandom > /tmp/data; cp /tmp/data /tmp/ext4/data; sync
         umount /tmp/ext4; echo 3 > /proc/sys/vm/drop_caches; mount -o discard $d /tmp/ext4
         cmp /tmp/data /tmp/ext4/data; rm /tmp/ext4/data; fstrim /tmp/ext4; umount /tmp/ext4; fsck.ext4 -fn $d");
    // [004, 005, 022, 048] Controllers that are reset, and come with other numbers of queues.
    run(&format!(
        "for c in $(ls $(subsystem) | grep -E '^nvme[0-9]+$'); do nvme reset /dev/$c; done
         for try in $(seq 100); do is=$(nvme list-subsys | grep -c 'live'); [ $is = 3 ] && break; sleep 0.1; done
         is paths $is 3
         nvme disconnect -n {SUBSYSTEM} | grep 'disconnected 2 '
         for queues in 1 2; do
             nvme connect -t tcp -a 10.77.1.2 -s {first} -n {SUBSYSTEM} {HOST} -i $queues
             is queues $(cat $(subsystem)/nvme*/queue_count) $((queues + 1))
             nvme disconnect -n {SUBSYSTEM} | grep 'disconnected 1 '
         done
         nvme disconnect-all; is left \"$(ls /sys/class/nvme)\" ''
         dmesg | sed '1,/{BEGIN}/d' > /tmp/log; [ -s /tmp/log ]
         grep -E 'nvme.*(timeout|failed|I/O error)' /tmp/log && exit 1; true"
    ));
}
