//! Tests the Linux kernel's NVMe/TCP host on our target: discovery, multipath over two ports, data
//! of three sizes, TRIM, digests, that nothing is left after a disconnect, and paths that fail.

use crate::kernel_client::started;
use crate::{alone, lab, sh};
use lab::vm::Running;

const SUBSYSTEM: &str = "nqn.2026-11.org.trunkline:vm";
const HOST: &str = "--hostnqn nqn.2026-11.org.trunkline:guest --hostid 5f2c1a0e-7d1c-4c5e-9a57-000000000001";
const PORTS: [u16; 2] = [12420, 12421];

/// A target with a volume of memory and one on a block device, until dropped.
struct Served {
    server: Option<Running>,
}

impl Served {
    fn new() -> Self {
        sh("modprobe nvme-tcp; modprobe brd rd_nr=1 rd_size=65536
            wipefs -a /dev/ram0");
        let listen = PORTS.map(|port| format!("10.77.1.2:{port}"));
        let arguments = [
            "block",
            "serve",
            "--volume",
            "mem:64MiB",
            "--volume",
            "/dev/ram0",
            "--listen",
            &listen[0],
            "--listen",
            &listen[1],
            "--state",
            "/run/trunkline-block",
            "--nqn",
            SUBSYSTEM,
            "--allow",
            "nqn.2026-11.org.trunkline:guest",
        ];
        Self { server: Some(started(&arguments.map(str::to_owned))) }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // Before the target ends, or the kernel tries for ten minutes to connect again.
        let _ = lab().client().sh(&format!("nvme disconnect -n {SUBSYSTEM}"));
        drop(self.server.take());
    }
}

/// The shell function `device N`: where the kernel has namespace N.
fn device() -> String {
    format!(
        "subsystem() {{ grep -lx {SUBSYSTEM} /sys/class/nvme-subsystem/*/subsysnqn | xargs dirname; }}
         device() {{ echo /dev/nvme$(basename $(subsystem) | tr -dc 0-9)n$1; }}
         settled() {{ for try in $(seq 600); do [ -b $(device 1) ] && [ -b $(device 2) ] && break; sleep 0.1; done; }}
         "
    )
}

/// Random writes with each size of blocks, and each block verified.
fn fio_finds_what_it_wrote(namespace: u32) {
    for (block, offset, size) in [("4k", "0", "2m"), ("64k", "8m", "8m"), ("1m", "24m", "16m")] {
        let said = sh(&format!(
            "{}
             fio --name=w --filename=$(device {namespace}) --rw=randwrite --bs={block} --offset={offset} \
                 --size={size} --direct=1 --ioengine=libaio --iodepth=8 --verify=crc32c --do_verify=1 \
                 --verify_fatal=1 --randseed=7 > /tmp/fio.out 2>&1 < /dev/null & pid=$!
             # A thread that waits for the kernel's host cannot be ended: it must not be waited for.
             for try in $(seq 600); do kill -0 $pid 2>/dev/null || break; sleep 0.2; done
             if kill -0 $pid 2>/dev/null; then echo STALLED; dmesg | tail -60; exit; fi
             wait $pid || {{ cat /tmp/fio.out; echo FAILED; }}",
            device()
        ));
        assert!(!said.contains("STALLED") && !said.contains("FAILED"), "blocks of {block}: {said}");
    }
}

#[test]
fn the_kernel_reads_what_it_wrote_over_two_paths_and_leaves_nothing() {
    let _turn = alone();
    let served = Served::new();
    let found = sh(&format!("nvme discover -t tcp -a 10.77.1.2 -s {} {HOST}", PORTS[0]));
    assert_eq!(found.matches(SUBSYSTEM).count(), 2, "{found}");
    assert!(PORTS.iter().all(|port| found.contains(&port.to_string())), "{found}");
    sh(&format!(
        "nvme connect-all -t tcp -a 10.77.1.2 -s {} {HOST}
         {}settled
         live=$(grep -lx live $(subsystem)/nvme*/state | wc -l); [ $live = 2 ] || {{ nvme list-subsys; exit 1; }}
         [ $(blockdev --getsize64 $(device 1)) = 67108864 ]; [ $(blockdev --getsize64 $(device 2)) = 67108864 ]
         [ $(blockdev --getss $(device 1)) = 4096 ]
         nvme id-ctrl $(device 1) | grep '^mn .*Trunkline'",
        PORTS[0],
        device()
    ));
    fio_finds_what_it_wrote(1);
    fio_finds_what_it_wrote(2);
    sh(&format!(
        "{}d=$(device 1)
         head -c 1048576 /dev/urandom > /tmp/nvme-data
         dd if=/tmp/nvme-data of=$d bs=64k seek=32 oflag=direct conv=fsync 2>/dev/null
         blkdiscard -o 2228224 -l 262144 $d
         dd if=$d bs=64k skip=32 count=16 iflag=direct of=/tmp/nvme-read 2>/dev/null
         cmp -n 131072 /tmp/nvme-data /tmp/nvme-read
         cmp -n 262144 -i 131072:0 /tmp/nvme-read /dev/zero
         cmp -i 393216 /tmp/nvme-data /tmp/nvme-read
         blkdiscard -z -o 2097152 -l 65536 $d
         dd if=$d bs=64k skip=32 count=1 iflag=direct of=/tmp/nvme-read 2>/dev/null
         cmp -n 65536 /tmp/nvme-read /dev/zero
         nvme disconnect -n {SUBSYSTEM} | grep 'disconnected 2 '
         [ ! -e $d ]",
        device()
    ));
    let left = format!(
        "for try in $(seq 300); do [ $(ss -Htn state established 'sport = :{} or sport = :{}' | wc -l) = 0 ] && exit 0
         sleep 0.1; done; ss -tn; exit 1",
        PORTS[0], PORTS[1]
    );
    lab().server().sh(&left).expect("no connection is left");
    drop(served);
}

#[test]
fn the_kernel_uses_digests_and_a_host_that_is_not_allowed_is_refused() {
    let _turn = alone();
    let _served = Served::new();
    let connect = format!("nvme connect -t tcp -a 10.77.1.2 -s {} -n {SUBSYSTEM}", PORTS[1]);
    sh(&format!(
        "fails {connect} --hostnqn nqn.2026-11.org.trunkline:other --hostid 5f2c1a0e-7d1c-4c5e-9a57-000000000002
         {connect} {HOST} -g -G -i 2
         {}settled",
        device()
    ));
    fio_finds_what_it_wrote(1);
    sh(&format!("nvme disconnect -n {SUBSYSTEM} | grep 'disconnected 1 '"));
}

/// A path that is silent, and a controller that is reset, each while verified writes run: they go
/// on over the other path, and both paths serve again.
#[test]
fn the_kernels_host_loses_nothing_when_a_path_is_cut_or_a_controller_is_reset() {
    let _turn = alone();
    let _served = Served::new();
    let paths = PORTS.map(|port| {
        format!(
            "nvme connect -t tcp -a 10.77.1.2 -s {port} -n {SUBSYSTEM} {HOST} \
                 --keep-alive-tmo=2 --reconnect-delay=1\n"
        )
    });
    let prepare = format!(
        "{}{}settled; modprobe nf_tables
         live() {{ for try in $(seq 300); do [ $(grep -lx live $(subsystem)/nvme*/state | wc -l) = 2 ] && return; sleep 0.1; done; nvme list-subsys; return 1; }}
         live",
        paths.concat(),
        device()
    );
    let cut = format!(
        "nft 'add table ip cut; add chain ip cut in {{ type filter hook input priority 0; }}
              add rule ip cut in tcp dport {port} drop; add rule ip cut in tcp sport {port} drop'",
        port = PORTS[0]
    );
    let reset = "for c in $(subsystem)/nvme*/reset_controller; do echo 1 > $c; live; sleep 0.5; done";
    for (strike, mend) in [(cut.as_str(), "nft delete table ip cut"), (reset, "true")] {
        let said = sh(&format!(
            "{prepare}
             fio --name=w --filename=$(device 1) --rw=randwrite --bs=64k --size=16m --rate_iops=40 \
                 --direct=1 --ioengine=libaio --iodepth=8 --verify=crc32c --do_verify=1 --verify_fatal=1 \
                 --randseed=7 > /tmp/fio.out 2>&1 < /dev/null & pid=$!
             sleep 1; {strike}
             for try in $(seq 600); do kill -0 $pid 2>/dev/null || break; sleep 0.2; done
             {mend}
             if kill -0 $pid 2>/dev/null; then echo STALLED; dmesg | tail -60; exit; fi
             wait $pid || {{ cat /tmp/fio.out; echo FAILED; }}
             grep -E ' clat .*max' /tmp/fio.out
             live; nvme disconnect -n {SUBSYSTEM} >&2"
        ));
        assert!(!said.contains("STALLED") && !said.contains("FAILED"), "{strike}: {said}");
        println!("{said}");
    }
}
