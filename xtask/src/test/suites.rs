//! The table of suites. docs/TESTING.md describes each.

/// The command that runs a test program of the package `trunkline`, with arguments of it.
macro_rules! test_program {
    ($program:literal) => {
        &["test", "--package", "trunkline", "--test", $program]
    };
    ($program:literal, $($argument:expr),+) => {
        &["test", "--package", "trunkline", "--test", $program, "--", $($argument),+]
    };
}

mod outside;
mod package_lists;
mod suite;
mod vm;

pub(crate) use suite::{Suite, Tier};

use super::machine::Need;
use package_lists::{FAULTS_PACKAGES, MOUNT_PACKAGES, MOUNT_SUITES_PACKAGES, PEERS_PACKAGES};

/// A suite that takes this many times its minutes is ended and has failed. A busy machine is not a
/// failure, but a test that hangs is.
pub(super) const PATIENCE: u32 = 3;

/// The maximum duration of the tier for everyone, including the build.
#[cfg(test)]
pub(super) const EVERYONE_MINUTES_MAX: u32 = 44;

/// Mounts of version 4, but where a test asks for another: an argument of cargo.
const VERSION_4: &str = "env.TRUNKLINE_TEST_NFS_VERSION='4.2'";

/// All suites. Those in virtual machines come after the others of their tier, because they use a
/// whole processor for minutes.
pub(crate) fn all() -> impl Iterator<Item = &'static Suite> {
    [HERE, vm::SUITES, outside::SUITES].into_iter().flatten()
}

/// The suites on this machine itself.
const HERE: &[Suite] = &[
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
        minutes: 2,
        command: &["test", "--package", "client", "--package", "initiator", "--test", "syscalls"],
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
        name: "drives",
        about: "block devices and full file systems beneath volumes: in use, not empty, failing, killed",
        tier: Tier::Ci,
        minutes: 1,
        command: &["test", "--package", "drives", "--test", "devices"],
        packages: &["e2fsprogs", "util-linux"],
        needs: &[Need::Root, Need::LoopDevices],
    },
    Suite {
        name: "block",
        about: "volumes and files of NFS servers as disks: qemu-io, nbdcopy, killed and started again",
        tier: Tier::Ci,
        minutes: 1,
        command: test_program!("block_attach"),
        packages: &["libnbd-bin", "qemu-utils"],
        needs: &[],
    },
    Suite {
        name: "lab",
        about: "links shaped, cut and silenced on this kernel, nothing left behind",
        tier: Tier::Ci,
        minutes: 2,
        command: test_program!("lab"),
        packages: &["iproute2", "iputils-ping", "nfs-common", "rpcbind", "util-linux"],
        needs: &[Need::Root, Need::NetNamespaces],
    },
    Suite {
        name: "faults",
        about: "links, connections and the server fail under load: nothing lost, nothing done twice",
        tier: Tier::Ci,
        minutes: 3,
        // Prints the measurements even if all tests pass.
        command: test_program!("faults", "--skip", "none_of_all_faults", "--show-output"),
        packages: FAULTS_PACKAGES,
        needs: &[Need::Root, Need::NetNamespaces, Need::Fuse],
    },
    Suite {
        name: "faults-mounted",
        about: "each fault on each path under a program in a mounted directory, which notices none",
        tier: Tier::Full,
        minutes: 5,
        command: test_program!("faults", "none_of_all_faults", "--nocapture"),
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
        command: test_program!("soak"),
        packages: FAULTS_PACKAGES,
        needs: &[Need::Root, Need::NetNamespaces, Need::Fuse],
    },
    Suite {
        name: "group",
        about: "node processes killed under load and in the middle of a call: nothing lost, nothing done twice",
        tier: Tier::Ci,
        minutes: 1,
        command: test_program!("group_nodes"),
        packages: &["strace", "util-linux"],
        needs: &[Need::Root],
    },
    Suite {
        name: "hostile",
        about: "thirteen sorts of hostile clients beside a good one: every call answered, memory bounded and given back",
        tier: Tier::Ci,
        minutes: 1,
        command: test_program!("hostile", "--skip", "long_rounds", "--test-threads=1"),
        packages: &["iproute2", "util-linux"],
        needs: &[Need::Root, Need::NetNamespaces],
    },
    Suite {
        name: "hostile-long",
        about: "the same with more clients for minutes: prints how long the calls of the good client take",
        tier: Tier::Full,
        minutes: 8,
        command: test_program!("hostile", "long_rounds", "--nocapture"),
        packages: &["iproute2", "util-linux"],
        needs: &[Need::Root, Need::NetNamespaces],
    },
    Suite {
        name: "state-long",
        about: "random histories of the state of version 4 for ten minutes, against a naive model",
        tier: Tier::Full,
        minutes: 11,
        command: &["test", "--package", "state", "--", "as_long_as_is_asked", "--ignored", "--nocapture"],
        packages: &[],
        needs: &[],
    },
    Suite {
        name: "runbooks",
        about: "runbooks read by the tools that will run them: shellcheck, ansible, systemd, nvme, multipath",
        tier: Tier::Full,
        minutes: 3,
        command: &["test", "--package", "runbook", "--test", "tools"],
        packages: &[
            "ansible",
            "curl",
            "fio",
            "jq",
            "ksh",
            "multipath-tools",
            "nfs-common",
            "nfs-kernel-server",
            "nvme-cli",
            "passwd",
            "shellcheck",
            "systemd",
            "util-linux",
            "uuid-runtime",
        ],
        needs: &[Need::Root],
    },
    Suite {
        name: "bench",
        about: "the quick experiment whole, and one of one's own on one's own server",
        tier: Tier::Ci,
        minutes: 3,
        command: test_program!("bench", "--skip", "job_files_run_as_they_are"),
        // python3-six is missing beside the script that fio's package has.
        packages: &["fio", "fuse3", "python3-six", "util-linux"],
        needs: &[Need::Root, Need::Fuse],
    },
    Suite {
        name: "bench-whole",
        about: "the published job files as they are, with their whole depth",
        tier: Tier::Full,
        minutes: 1,
        command: test_program!("bench", "job_files_run_as_they_are"),
        packages: &[],
        needs: &[],
    },
    Suite {
        name: "browser",
        about: "the pages that people see, clicked through in a headless Chromium",
        tier: Tier::Ci,
        minutes: 2,
        command: test_program!("browser"),
        packages: &["chromium", "fuse3", "iproute2", "util-linux"],
        needs: &[Need::Root, Need::NetNamespaces, Need::Fuse],
    },
    Suite {
        name: "pictures",
        about: "the pictures of the documents, made of a group under load and of kept records",
        tier: Tier::Full,
        minutes: 6,
        command: test_program!("pictures", "--test-threads", "1"),
        packages: &["chromium", "util-linux"],
        needs: &[],
    },
    Suite {
        name: "prometheus",
        about: "the board and the alert rules of docs/examples on a Prometheus that scrapes a group",
        tier: Tier::Ci,
        minutes: 1,
        command: test_program!("prometheus"),
        packages: &["fuse3", "prometheus", "util-linux"],
        needs: &[Need::Root, Need::Fuse],
    },
    Suite {
        name: "agents",
        about: "experiments with clients in namespaces: steps, a killed agent, other keys and versions, MPI",
        tier: Tier::Ci,
        minutes: 1,
        command: test_program!("agents", "--skip", "fifty_agents", "--skip", "silent_networks"),
        packages: &["fio", "iproute2", "openmpi-bin", "util-linux"],
        needs: &[Need::Root, Need::NetNamespaces],
    },
    Suite {
        name: "agents-fifty",
        about: "fifty agents in namespaces, all ready before any starts; a client whose network goes silent",
        tier: Tier::Full,
        minutes: 3,
        command: test_program!("agents", "fifty_agents", "silent_networks", "--nocapture"),
        packages: &["iproute2", "util-linux"],
        needs: &[Need::Root, Need::NetNamespaces],
    },
    Suite {
        name: "mount",
        about: "a mounted directory: what docs/SEMANTICS.md promises, programs, kills, random operations",
        tier: Tier::Ci,
        minutes: 2,
        command: test_program!("mount"),
        packages: MOUNT_PACKAGES,
        needs: &[Need::Root, Need::Fuse, Need::FuseForAll],
    },
    Suite {
        name: "mount-v4",
        about: "the same by version 4.2, but for what needs version 3",
        tier: Tier::Full,
        minutes: 2,
        command: &["test", "--config", VERSION_4, "--package", "trunkline", "--test", "mount"],
        packages: MOUNT_PACKAGES,
        needs: &[Need::Root, Need::Fuse, Need::FuseForAll],
    },
    Suite {
        name: "history",
        about: "processes read and write the same files of a mount beside each other: each read gives what it may",
        tier: Tier::Ci,
        minutes: 2,
        // Prints each round's seed, even if a round hangs.
        command: test_program!("history", "--skip", "nfs_ganesha", "--nocapture", "--test-threads=1"),
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
        command: test_program!("mount_suites"),
        packages: MOUNT_SUITES_PACKAGES,
        needs: &[Need::Root, Need::Fuse],
    },
    Suite {
        name: "mount-suites-v4",
        about: "the same by version 4.2",
        tier: Tier::Full,
        minutes: 15,
        command: &["test", "--config", VERSION_4, "--package", "trunkline", "--test", "mount_suites"],
        packages: MOUNT_SUITES_PACKAGES,
        needs: &[Need::Root, Need::Fuse],
    },
    Suite {
        name: "outside-programs",
        about: "stress-ng, PostgreSQL killed under load, restic and borg on a mount, with their own verification",
        tier: Tier::Full,
        minutes: 10,
        command: test_program!("outside_programs", "--nocapture"),
        packages: &["borgbackup", "fuse3", "postgresql", "restic", "stress-ng", "util-linux"],
        needs: &[Need::Root, Need::Fuse],
    },
    Suite {
        name: "package",
        about: "the Debian package on a bare Debian: installed, mounted by fstab, run by systemd, removed without a trace",
        tier: Tier::Full,
        minutes: 12,
        command: test_program!("package"),
        packages: &[
            "binutils",
            "debootstrap",
            "dpkg-dev",
            "iproute2",
            "systemd-container",
            "util-linux",
            "xz-utils",
        ],
        needs: &[Need::Root, Need::NetNamespaces, Need::Fuse, Need::DebianMirror],
    },
    Suite {
        name: "peers",
        about: "libnfs against our server, our client and our mount against nfs-ganesha, seen by tshark",
        tier: Tier::Ci,
        minutes: 3,
        command: test_program!("peers", "--show-output"),
        packages: PEERS_PACKAGES,
        needs: &[Need::Root, Need::Fuse],
    },
    Suite {
        name: "peers-v4",
        about: "a directory mounted from nfs-ganesha by version 4.2: what docs/SEMANTICS.md promises",
        tier: Tier::Full,
        minutes: 1,
        command: &[
            "test",
            "--config",
            VERSION_4,
            "--package",
            "trunkline",
            "--test",
            "peers",
            "--",
            "semantics::",
            "--show-output",
        ],
        packages: PEERS_PACKAGES,
        needs: &[Need::Root, Need::Fuse],
    },
];
