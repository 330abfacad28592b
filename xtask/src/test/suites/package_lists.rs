//! Debian packages that several suites need.

/// The packages for the suites in one virtual machine, and more.
macro_rules! vm_packages {
    ($($more:literal),*) => {
        &[
            "attr",
            "btrfs-progs",
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
            "nfs-common",
            "nfs-kernel-server",
            "nftables",
            "nvme-cli",
            "qemu-system-x86",
            "rdma-core",
            "rpcbind",
            "strace",
            "util-linux",
            "xfsprogs",
            $($more),*
        ]
    };
}

/// For the suites in one virtual machine.
pub(super) const VM_PACKAGES: &[&str] = vm_packages!();

/// The same, where DM-Multipath joins paths.
pub(super) const MULTIPATH_PACKAGES: &[&str] = vm_packages!("multipath-tools", "udev");

/// The same, for blktests.
pub(super) const BLKTESTS_PACKAGES: &[&str] = vm_packages!("gawk", "udev");

/// For a mounted directory.
pub(super) const MOUNT_PACKAGES: &[&str] =
    &["attr", "fio", "fuse3", "gcc", "git", "libc6-dev", "sqlite3", "util-linux"];

/// For the suites of others on a mounted directory.
pub(super) const MOUNT_SUITES_PACKAGES: &[&str] =
    &["git", "libacl1-dev", "nfs-ganesha", "nfs-ganesha-vfs", "rpcbind", "sqlite3", "util-linux"];

/// For the clients and servers of others.
pub(super) const PEERS_PACKAGES: &[&str] = &[
    "fio",
    "gcc",
    "libc6-dev",
    "libnfs-dev",
    "libnfs-utils",
    "nfs-ganesha",
    "nfs-ganesha-vfs",
    "rpcbind",
    "tshark",
    "util-linux",
];

/// For the suites with a mount over failing links.
pub(super) const FAULTS_PACKAGES: &[&str] = &["fuse3", "iproute2", "nftables", "util-linux"];

/// For virtual machines with disks of our attachments.
pub(super) const GUESTS_PACKAGES: &[&str] =
    &["busybox-static", "e2fsprogs", "fio", "kmod", "libnbd-bin", "qemu-system-x86", "util-linux"];

/// For two virtual machines with a server of files or volumes.
pub(super) const PAIR_PACKAGES: &[&str] = &[
    "busybox-static",
    "fio",
    "ibverbs-providers",
    "ibverbs-utils",
    "iproute2",
    "iputils-ping",
    "kmod",
    "libibverbs1",
    "librdmacm1",
    "nfs-common",
    "nftables",
    "nvme-cli",
    "qemu-system-x86",
    "rdma-core",
    "util-linux",
];

/// For two virtual machines with GFS2.
pub(super) const GFS2_PACKAGES: &[&str] = &[
    "busybox-static",
    "corosync",
    "dlm-controld",
    "e2fsprogs",
    "gfs2-utils",
    "iproute2",
    "kmod",
    "nftables",
    "nvme-cli",
    "perl-base",
    "qemu-system-x86",
    "util-linux",
];

/// The same with OCFS2.
pub(super) const OCFS2_PACKAGES: &[&str] = &[
    "busybox-static",
    "e2fsprogs",
    "iproute2",
    "kmod",
    "nftables",
    "nvme-cli",
    "ocfs2-tools",
    "qemu-system-x86",
    "util-linux",
];
