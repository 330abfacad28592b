//! Tests our NVMe host on the Linux kernel's target with a path over RDMA and one over TCP: no path
//! that is lost costs a request or a block.

use crate::attached::{HOST, SOCKET, attached, held, run, settle, wait_for_paths};
use crate::block_over_rdma::{STORE, SUBSYSTEM, compare_with_device, long_transfers_are_whole};
use crate::disk_load::DiskLoad;
use crate::guest::{is_in_guest, passes_in};
use crate::kernel_target::TIMEOUT;
use crate::{alone, lab, trunkline};
use std::path::Path;
use std::process::Command;
use testkit::Deadline;

#[test]
fn our_host_over_rdma_loses_nothing_when_a_path_to_the_kernels_target_is_lost() {
    const NAME: &str =
        "kernel_target_over_rdma::our_host_over_rdma_loses_nothing_when_a_path_to_the_kernels_target_is_lost";
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
