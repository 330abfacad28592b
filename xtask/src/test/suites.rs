//! The table of suites. docs/TESTING.md describes each.

use super::machine::{Need, OutsideSuite};

/// A suite that takes this many times its minutes is ended and has failed. A busy machine is not a
/// failure, but a test that hangs is.
pub(super) const PATIENCE: u32 = 3;

/// The maximum duration of the tier for everyone, including the build.
#[cfg(test)]
pub(super) const EVERYONE_MINUTES_MAX: u32 = 37;

/// Who runs a suite, and when. The tiers run in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tier {
    /// For everyone; needs only a toolchain.
    Quick,
    /// For everyone and CI; needs packages and often root.
    Ci,
    /// Only with `--full`.
    Full,
}

/// One suite.
#[derive(Debug)]
pub(crate) struct Suite {
    /// The name of the suite.
    pub(crate) name: &'static str,
    /// What the suite shows.
    pub(crate) about: &'static str,
    /// The tier in which the suite runs.
    pub(crate) tier: Tier,
    /// The maximum duration in minutes on two idle processors, including the build.
    pub(crate) minutes: u32,
    /// The arguments of cargo.
    pub(crate) command: &'static [&'static str],
    /// The Debian packages that the suite needs.
    pub(crate) packages: &'static [&'static str],
    /// Other requirements.
    pub(crate) needs: &'static [Need],
}

/// The packages for both suites in the virtual machine.
const VM_PACKAGES: &[&str] = &[
    "btrfs-progs",
    "busybox-static",
    "e2fsprogs",
    "fio",
    "ibverbs-providers",
    "iproute2",
    "kmod",
    "libibverbs1",
    "librdmacm1",
    "nfs-common",
    "nfs-kernel-server",
    "qemu-system-x86",
    "rdma-core",
    "rpcbind",
    "strace",
    "util-linux",
    "xfsprogs",
];
/// The packages for the suites with a mount over failing links.
const FAULTS_PACKAGES: &[&str] = &["fuse3", "iproute2", "nftables", "util-linux"];

/// All suites.
pub(crate) const SUITES: &[Suite] = &[
    Suite {
        name: "workspace",
        about: "unit, property, model and simulation tests of every crate",
        tier: Tier::Quick,
        minutes: 7,
        command: &["test", "--workspace", "--no-fail-fast"],
        packages: &[],
        needs: &[],
    },
    Suite {
        name: "budget",
        about: "system calls and copied bytes of warm operations, counted by strace",
        tier: Tier::Ci,
        minutes: 1,
        command: &["test", "--package", "client", "--test", "syscalls"],
        packages: &["strace"],
        needs: &[],
    },
    Suite {
        name: "dir",
        about: "a directory served by root: identities, full and read-only file systems, overlays",
        tier: Tier::Ci,
        minutes: 1,
        command: &["test", "--package", "store", "--test", "privileged"],
        packages: &[],
        needs: &[Need::Root],
    },
    Suite {
        name: "lab",
        about: "links shaped, cut and silenced on this kernel, nothing left behind",
        tier: Tier::Ci,
        minutes: 2,
        command: &["test", "--package", "trunkline", "--test", "lab"],
        packages: &["iproute2", "iputils-ping", "nfs-common", "rpcbind", "util-linux"],
        needs: &[Need::Root, Need::NetNamespaces],
    },
    Suite {
        name: "faults",
        about: "links, connections and the server fail under load: nothing lost, nothing done twice",
        tier: Tier::Ci,
        minutes: 3,
        command: &[
            "test",
            "--package",
            "trunkline",
            "--test",
            "faults",
            "--",
            "--skip",
            "none_of_all_faults",
            // Prints the measurements even if all tests pass.
            "--show-output",
        ],
        packages: FAULTS_PACKAGES,
        needs: &[Need::Root, Need::NetNamespaces, Need::Fuse],
    },
    Suite {
        name: "faults-mounted",
        about: "each fault on each path under a program in a mounted directory, which notices none",
        tier: Tier::Full,
        minutes: 5,
        command: &[
            "test",
            "--package",
            "trunkline",
            "--test",
            "faults",
            "--",
            "none_of_all_faults",
            "--nocapture",
        ],
        packages: FAULTS_PACKAGES,
        needs: &[Need::Root, Need::NetNamespaces, Need::Fuse],
    },
    Suite {
        name: "faults-ten",
        about: "each fault ten times on an optimised build, with figures: how long the gap is, and what is back when",
        tier: Tier::Full,
        minutes: 25,
        command: &["xtask", "faults", "--record", "target/faults-ten.json"],
        packages: FAULTS_PACKAGES,
        needs: &[Need::Root, Need::NetNamespaces, Need::Fuse],
    },
    Suite {
        name: "soak",
        about: "random faults under load for some seconds, and everything given back afterwards",
        tier: Tier::Ci,
        minutes: 2,
        command: &["test", "--package", "trunkline", "--test", "soak"],
        packages: FAULTS_PACKAGES,
        needs: &[Need::Root, Need::NetNamespaces, Need::Fuse],
    },
    Suite {
        name: "group",
        about: "node processes killed under load and in the middle of a call: nothing lost, nothing done twice",
        tier: Tier::Ci,
        minutes: 1,
        command: &["test", "--package", "trunkline", "--test", "group_nodes"],
        packages: &["strace", "util-linux"],
        needs: &[Need::Root],
    },
    Suite {
        name: "bench",
        about: "the quick experiment whole, and one of one's own on one's own server",
        tier: Tier::Ci,
        minutes: 3,
        command: &["test", "--package", "trunkline", "--test", "bench"],
        packages: &[],
        needs: &[],
    },
    Suite {
        name: "mount",
        about: "a mounted directory: what docs/SEMANTICS.md promises, programs, kills, random operations",
        tier: Tier::Ci,
        minutes: 2,
        command: &["test", "--package", "trunkline", "--test", "mount"],
        packages: &["fio", "fuse3", "gcc", "git", "libc6-dev", "sqlite3", "util-linux"],
        needs: &[Need::Root, Need::Fuse, Need::FuseForAll],
    },
    Suite {
        name: "history",
        about: "processes read and write the same files of a mount beside each other: each read gives what it may",
        tier: Tier::Ci,
        minutes: 2,
        command: &[
            "test",
            "--package",
            "trunkline",
            "--test",
            "history",
            "--",
            "--skip",
            "nfs_ganesha",
            // Prints each round's seed, even if a round hangs.
            "--nocapture",
            "--test-threads=1",
        ],
        packages: &["fuse3", "util-linux"],
        needs: &[Need::Root, Need::Fuse],
    },
    Suite {
        name: "history-hour",
        about: "the same for an hour on an optimised build, also on mounts of nfs-ganesha",
        tier: Tier::Full,
        minutes: 75,
        command: &["xtask", "history", "--minutes", "60"],
        packages: &["fuse3", "nfs-ganesha", "nfs-ganesha-vfs", "rpcbind", "util-linux"],
        needs: &[Need::Root, Need::Fuse],
    },
    Suite {
        name: "mount-suites",
        about: "pjdfstest and fsx on mounts of our server and of nfs-ganesha; they are built from the registry first",
        tier: Tier::Full,
        minutes: 15,
        command: &["test", "--package", "trunkline", "--test", "mount_suites"],
        packages: &[
            "git",
            "libacl1-dev",
            "nfs-ganesha",
            "nfs-ganesha-vfs",
            "rpcbind",
            "sqlite3",
            "util-linux",
        ],
        needs: &[Need::Root, Need::Fuse],
    },
    Suite {
        name: "outside-programs",
        about: "stress-ng, PostgreSQL killed under load, restic and borg on a mount, with their own verification",
        tier: Tier::Full,
        minutes: 10,
        command: &["test", "--package", "trunkline", "--test", "outside_programs", "--", "--nocapture"],
        packages: &["borgbackup", "fuse3", "postgresql", "restic", "stress-ng", "util-linux"],
        needs: &[Need::Root, Need::Fuse],
    },
    Suite {
        name: "package",
        about: "the Debian package on a bare Debian: installed, mounted by fstab, removed without a trace",
        tier: Tier::Full,
        minutes: 10,
        command: &["test", "--package", "trunkline", "--test", "package"],
        packages: &["binutils", "debootstrap", "dpkg-dev", "iproute2", "util-linux", "xz-utils"],
        needs: &[Need::Root, Need::NetNamespaces, Need::Fuse, Need::DebianMirror],
    },
    Suite {
        name: "peers",
        about: "libnfs against our server, our client and our mount against nfs-ganesha, seen by tshark",
        tier: Tier::Ci,
        minutes: 4,
        command: &["test", "--package", "trunkline", "--test", "peers", "--", "--show-output"],
        packages: &[
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
        ],
        needs: &[Need::Root, Need::Fuse],
    },
    // The last suite, because it uses a whole processor for minutes.
    Suite {
        name: "vm",
        about: "a stock kernel in a virtual machine: its NFS client on our server, our client on its server",
        tier: Tier::Ci,
        minutes: 9,
        command: &[
            "test",
            "--package",
            "trunkline",
            "--test",
            "vm",
            "--",
            "--skip",
            "under_the_kernels",
            "--skip",
            "full_size",
        ],
        packages: VM_PACKAGES,
        needs: &[],
    },
    Suite {
        name: "vm-full",
        about: "the kernel's client on our server with thousands of files and names, over TCP and over RDMA",
        tier: Tier::Full,
        minutes: 10,
        command: &["test", "--package", "trunkline", "--test", "vm", "--", "full_size", "--nocapture"],
        packages: VM_PACKAGES,
        needs: &[],
    },
    Suite {
        name: "vm-rdma",
        about: "clients and servers that break the protocol over RDMA, and trouble under a load, between two virtual machines",
        tier: Tier::Full,
        minutes: 8,
        command: &[
            "test",
            "--package",
            "trunkline",
            "--test",
            "vm_rdma",
            "--",
            "--nocapture",
            "--test-threads=1",
        ],
        packages: &[
            "busybox-static",
            "ibverbs-providers",
            "iproute2",
            "kmod",
            "libibverbs1",
            "librdmacm1",
            "nftables",
            "qemu-system-x86",
            "rdma-core",
            "util-linux",
        ],
        needs: &[],
    },
    Suite {
        name: "vm-faults",
        about: "faults strike under the kernel's client and under ours: how long each waits",
        tier: Tier::Full,
        minutes: 8,
        command: &[
            "test",
            "--package",
            "trunkline",
            "--test",
            "vm",
            "--",
            "under_the_kernels",
            "--nocapture",
        ],
        packages: VM_PACKAGES,
        needs: &[],
    },
    Suite {
        name: "ltp",
        about: "LTP's rwtest group on a mount: processes that write, map and read the same files",
        tier: Tier::Full,
        minutes: 12,
        command: &["test", "--package", "trunkline", "--test", "outside_suites", "--", "ltp", "--nocapture"],
        packages: &["fuse3", "util-linux"],
        needs: &[
            Need::Root,
            Need::Fuse,
            Need::OutsideSuite(OutsideSuite { name: "ltp", file: "testcases/bin/rwtest" }),
        ],
    },
    Suite {
        name: "xfstests",
        about: "xfstests generic/074 to 133, 451 and 736 on mounts",
        tier: Tier::Full,
        minutes: 30,
        command: &[
            "test",
            "--package",
            "trunkline",
            "--test",
            "outside_suites",
            "--",
            "xfstests",
            "--nocapture",
        ],
        packages: &["acl", "attr", "bc", "fuse3", "gawk", "util-linux", "xfsprogs"],
        needs: &[
            Need::Root,
            Need::Fuse,
            Need::OutsideSuite(OutsideSuite { name: "xfstests", file: "check" }),
        ],
    },
];
