//! Tests the Linux kernel's NVMe/RDMA host on our target, over Soft-RoCE: discovery, two paths,
//! data of three sizes, TRIM, that nothing is left after a disconnect, and controllers that are
//! reset under load.

use crate::kernel_client::{READY_TIMEOUT, started};
use crate::kernel_nvme::{HOST, SUBSYSTEM, device, fio_finds_what_it_wrote, trims_zeroes_and_disconnects};
use crate::{alone, lab, sh, trunkline};
use lab::vm::Running;
use rustix::process::Signal;
use testkit::Deadline;

const PORTS: [u16; 2] = [12440, 12441];

/// A target with a volume of memory and one on a block device, at a port of each node, until
/// dropped.
struct Served(Running);

impl Served {
    fn new() -> Self {
        sh("modprobe nvme-rdma; modprobe brd rd_nr=1 rd_size=65536
            dd if=/dev/zero of=/dev/ram0 bs=1M count=64 2>/dev/null; rm -rf /run/trunkline-over-rdma");
        let listen = PORTS.map(|port| format!("--listen rdma:10.77.1.2:{port}")).join(" ");
        let arguments = format!(
            "block serve --volume mem:64MiB --volume /dev/ram0 {listen} --state /run/trunkline-over-rdma \
             --nqn {SUBSYSTEM} --allow nqn.2026-11.org.trunkline:guest"
        );
        Self(started(&arguments.split(' ').map(str::to_owned).collect::<Vec<_>>()))
    }

    /// Ends in order, and gives everything back.
    fn stop(mut self) {
        self.0.signal(Signal::TERM);
        assert!(self.0.wait(drop).expect("the guest runs").success());
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // Before the target ends, or the kernel tries for ten minutes to connect again.
        let _ = lab().client().sh(&format!("nvme disconnect -n {SUBSYSTEM}"));
    }
}

/// The queue pairs of connections, and the memory that is registered, of programs: of the kernel
/// itself there are others.
fn held() -> String {
    let said = sh("rdma resource show qp type RC; rdma resource show mr; rdma resource show cq");
    said.lines().filter(|line| !line.contains("comm [")).map(|line| format!("{line}\n")).collect()
}

const LIVE: &str = "live() { for try in $(seq 600); do
    [ $(grep -lx live $(subsystem)/nvme*/state | wc -l) = 2 ] && return; sleep 0.1; done
    nvme list-subsys; dmesg | tail -40; return 1; }
    ";

#[test]
fn the_kernel_reads_over_rdma_what_it_wrote_and_leaves_nothing() {
    let _turn = alone();
    let before = held();
    let served = Served::new();
    let found = sh(&format!("nvme discover -t rdma -a 10.77.1.2 -s {} {HOST}", PORTS[0]));
    assert_eq!(found.matches(SUBSYSTEM).count(), 2, "{found}");
    assert_eq!(found.matches("trtype:  rdma").count(), 2, "{found}");
    assert!(PORTS.iter().all(|port| found.contains(&port.to_string())), "{found}");
    sh(&format!(
        "nvme connect-all -t rdma -a 10.77.1.2 -s {} {HOST}
         {}{LIVE}settled; live
         is() {{ [ \"$2\" = \"$3\" ] || {{ echo \"$1: $2\"; exit 1; }}; }}
         is size $(blockdev --getsize64 $(device 1)) 67108864; is size $(blockdev --getsize64 $(device 2)) 67108864
         is transports \"$(cat $(subsystem)/nvme*/transport | sort -u)\" rdma
         for nsid in 1 2; do
             states=$(cat $(subsystem)/nvme*/nvme*c*n$nsid/ana_state | sort | tr '\\n' ' ')
             is \"volume $nsid\" \"$states\" 'non-optimized optimized '
         done
         {} block map > /tmp/map; grep 'nvme connect -t rdma' /tmp/map",
        PORTS[0],
        device(),
        trunkline().display(),
    ));
    fio_finds_what_it_wrote(1);
    fio_finds_what_it_wrote(2);
    trims_zeroes_and_disconnects();
    // The target has destroyed its queue pairs: those of the host went with its controllers.
    Deadline::wait_until("no connection to be left", READY_TIMEOUT, || {
        sh("rdma resource show qp type RC").trim().is_empty().then_some(())
    });
    served.stop();
    Deadline::wait_until("everything to be freed", READY_TIMEOUT, || (held() == before).then_some(()));
}

/// Each controller is reset while verified writes run: its queue pairs go with RDMA under way, the
/// writes go on over the other path, and both serve again.
#[test]
fn the_kernels_host_over_rdma_loses_nothing_when_its_controllers_are_reset_under_load() {
    let _turn = alone();
    let served = Served::new();
    let paths = PORTS.map(|port| {
        format!(
            "nvme connect -t rdma -a 10.77.1.2 -s {port} -n {SUBSYSTEM} {HOST} \
                 --keep-alive-tmo=5 --reconnect-delay=1\n"
        )
    });
    let said = sh(&format!(
        "fails nvme connect -t rdma -a 10.77.1.2 -s {} -n {SUBSYSTEM} --hostnqn nqn.2026-11.org.trunkline:other \
             --hostid 5f2c1a0e-7d1c-4c5e-9a57-000000000002
         {}{}{LIVE}settled; live
         fio --name=w --filename=$(device 1) --rw=randrw --rwmixread=30 --bs=64k --size=16m --rate_iops=40 \
             --direct=1 --ioengine=libaio --iodepth=8 --verify=crc32c --do_verify=1 --verify_fatal=1 \
             --randseed=7 > /tmp/fio.out 2>&1 < /dev/null & pid=$!
         sleep 1
         for c in $(subsystem)/nvme*/reset_controller; do echo 1 > $c; live; sleep 0.5; done
         for try in $(seq 600); do kill -0 $pid 2>/dev/null || break; sleep 0.2; done
         if kill -0 $pid 2>/dev/null; then echo STALLED; dmesg | tail -60; exit; fi
         wait $pid || {{ cat /tmp/fio.out; echo FAILED; }}
         grep -E ' clat .*max' /tmp/fio.out
         live; nvme disconnect -n {SUBSYSTEM} >&2",
        PORTS[0],
        paths.concat(),
        device(),
    ));
    assert!(!said.contains("STALLED") && !said.contains("FAILED"), "{said}");
    println!("{said}");
    served.stop();
}
