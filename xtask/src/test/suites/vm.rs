//! The suites in virtual machines.

use super::super::machine::{Need, OutsideSuite};
use super::package_lists::{
    BLKTESTS_PACKAGES, GFS2_PACKAGES, GUESTS_PACKAGES, MULTIPATH_PACKAGES, OCFS2_PACKAGES, PAIR_PACKAGES,
    VM_PACKAGES,
};
use super::{Suite, Tier};

/// Guests with this kernel: an argument of cargo.
const LINUX_6_12: &str = "env.TRUNKLINE_TEST_KERNEL='linux-image-6.12-amd64'";

/// The command of the suite `vm`, with more arguments of cargo: without what takes long.
macro_rules! vm_command {
    ($($argument:expr),*) => {
        &[
            "test", $($argument,)* "--package", "trunkline", "--test", "vm", "--",
            "--skip", "under_the_kernels",
            "--skip", "kernel_nvme_authentication",
            "--skip", "kernel_ublk",
            "--skip", "kernel_multipath",
            "--skip", "full_size",
            "--skip", "the_four_routes",
            "--skip", "each_fault_of_a_host",
            "--skip", "version_3_goes_on",
            "--skip", "version_3_over_rdma_goes_on",
            "--skip", "connectathon",
            "--skip", "blktests",
            "--skip", "version_3_keeps_its_locks",
            "--skip", "on_the_kernels_server_when_connections_break",
            "--skip", "kernel_target",
            "--skip", "our_target",
            "--skip", "costs_as_many_rdma_operations",
        ]
    };
}

/// The command of the suite `vm` with Linux 6.12, with arguments of the test program.
macro_rules! linux_6_12 {
    ($($argument:expr),*) => {
        &["test", "--config", LINUX_6_12, "--package", "trunkline", "--test", "vm", "--", $($argument),*]
    };
}

pub(super) const SUITES: &[Suite] = &[
    Suite {
        name: "vm",
        about: "a stock kernel in a virtual machine: its NFS client on our server, our client on its server",
        tier: Tier::Ci,
        minutes: 9,
        command: vm_command!(),
        packages: VM_PACKAGES,
        needs: &[],
    },
    Suite {
        name: "vm-6.12",
        about: "the same with Linux 6.12",
        tier: Tier::Full,
        minutes: 12,
        command: vm_command!("--config", LINUX_6_12),
        packages: VM_PACKAGES,
        needs: &[],
    },
    Suite {
        name: "vm-nvme-auth",
        about: "the NVMe host of Linux 6.12 authenticates on our target, over TCP and RDMA",
        tier: Tier::Full,
        minutes: 4,
        command: linux_6_12!("kernel_nvme_authentication"),
        packages: VM_PACKAGES,
        needs: &[],
    },
    Suite {
        name: "vm-ublk",
        about: "volumes and files as block devices of Linux 6.12: paths lost, processes killed",
        tier: Tier::Full,
        minutes: 4,
        command: linux_6_12!("kernel_ublk"),
        packages: VM_PACKAGES,
        needs: &[],
    },
    Suite {
        name: "vm-multipath",
        about: "the NVMe host of Linux 6.1 beneath DM-Multipath: a path cut, a node killed, a volume moved, controllers reset",
        tier: Tier::Full,
        minutes: 8,
        command: test_program!("vm", "kernel_multipath", "--nocapture"),
        packages: MULTIPATH_PACKAGES,
        needs: &[],
    },
    Suite {
        name: "vm-ocfs2",
        about: "a cluster file system on one volume in two virtual machines, one of which is paused, fenced and resumed",
        tier: Tier::Full,
        minutes: 6,
        command: test_program!("vm_ocfs2", "--nocapture"),
        packages: OCFS2_PACKAGES,
        needs: &[],
    },
    Suite {
        name: "vm-gfs2",
        about: "the same with a cluster file system whose cluster fences a silent member by our agent",
        tier: Tier::Full,
        minutes: 6,
        command: test_program!("vm_gfs2", "--nocapture"),
        packages: GFS2_PACKAGES,
        needs: &[],
    },
    Suite {
        name: "vm-cthon04",
        about: "the Connectathon tests by the kernel's client on our server, by version 3, 4.1 and 4.2",
        tier: Tier::Full,
        minutes: 20,
        command: test_program!("vm", "connectathon", "--nocapture", "--test-threads=1"),
        packages: VM_PACKAGES,
        needs: &[Need::OutsideSuite(OutsideSuite { name: "cthon04", file: "lock/tlock64" })],
    },
    Suite {
        name: "vm-blktests",
        about: "cases of blktests by the NVMe host of Linux 6.12 on our target, over TCP and RDMA, and on a disk",
        tier: Tier::Full,
        minutes: 20,
        command: linux_6_12!("blktests", "--nocapture", "--test-threads=1"),
        packages: BLKTESTS_PACKAGES,
        needs: &[Need::OutsideSuite(OutsideSuite { name: "blktests", file: "tests/nvme/rc" })],
    },
    Suite {
        name: "vm-full",
        about: "the kernel's client on our server with thousands of files and names, on a group whose processes are killed, its routes beside ours, and faults of a host",
        tier: Tier::Full,
        minutes: 15,
        command: test_program!(
            "vm",
            "full_size",
            "the_four_routes",
            "each_fault_of_a_host",
            "version_3_goes_on",
            "version_3_over_rdma_goes_on",
            "version_3_keeps_its_locks",
            "on_the_kernels_server_when_connections_break",
            "costs_as_many_rdma_operations",
            "--nocapture"
        ),
        packages: VM_PACKAGES,
        needs: &[],
    },
    Suite {
        name: "vm-rdma",
        about: "two virtual machines: clients and servers that break the protocol over RDMA, trouble under a load, two kernels that share files",
        tier: Tier::Full,
        minutes: 10,
        command: test_program!("vm_rdma", "--nocapture", "--test-threads=1"),
        packages: PAIR_PACKAGES,
        needs: &[],
    },
    Suite {
        name: "vm-runbooks",
        about: "the runbooks of a Linux server and of its host run for real between two virtual machines, and are undone",
        tier: Tier::Full,
        minutes: 15,
        command: test_program!("vm_runbooks", "--nocapture"),
        packages: &[
            "busybox-static",
            "dmsetup",
            "e2fsprogs",
            "fio",
            "ibverbs-providers",
            "ibverbs-utils",
            "iproute2",
            "iputils-ping",
            "kmod",
            "libibverbs1",
            "librdmacm1",
            "multipath-tools",
            "nfs-common",
            "nfs-kernel-server",
            "nftables",
            "nvme-cli",
            "procps",
            "qemu-system-x86",
            "rdma-core",
            "rpcbind",
            "systemd",
            "udev",
            "util-linux",
            "uuid-runtime",
        ],
        needs: &[],
    },
    Suite {
        name: "vm-faults",
        about: "faults strike under the kernel's client and under ours, and between our NVMe host and the kernel's target and ours: how long each waits",
        tier: Tier::Full,
        minutes: 17,
        command: test_program!("vm", "under_the_kernels", "kernel_target", "our_target", "--nocapture"),
        packages: VM_PACKAGES,
        needs: &[],
    },
    Suite {
        name: "guests",
        about: "virtual machines that boot from volumes and from files of an NFS server, servers killed under them, up to six beside their host",
        tier: Tier::Full,
        minutes: 10,
        // Prints the measurements even if all tests pass.
        command: test_program!("guests", "--show-output"),
        packages: GUESTS_PACKAGES,
        needs: &[],
    },
];
