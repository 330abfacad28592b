//! The test suites published by others, on mounts.

use super::super::machine::{Need, OutsideSuite};
use super::{Suite, Tier};

pub(super) const SUITES: &[Suite] = &[
    Suite {
        name: "pjdfstest",
        about: "pjdfstest's 8,798 tests of POSIX calls on mounts of a memory and of a directory",
        tier: Tier::Full,
        minutes: 10,
        command: test_program!("outside_suites", "pjdfstest", "--nocapture", "--test-threads=1"),
        packages: &["fuse3", "openssl", "util-linux"],
        needs: &[
            Need::Root,
            Need::Fuse,
            Need::OutsideSuite(OutsideSuite { name: "pjdfstest", file: "pjdfstest" }),
        ],
    },
    Suite {
        name: "cthon04",
        about: "the Connectathon tests, basic, general, special and lock, on mounts of a memory and of a directory",
        tier: Tier::Full,
        minutes: 5,
        command: test_program!("outside_suites", "cthon04", "--nocapture", "--test-threads=1"),
        packages: &["fuse3", "gcc", "groff-base", "libc6-dev", "make", "time", "util-linux"],
        needs: &[
            Need::Root,
            Need::Fuse,
            Need::OutsideSuite(OutsideSuite { name: "cthon04", file: "lock/tlock64" }),
        ],
    },
    Suite {
        name: "io500",
        about: "the real io500, short and invalid, in a directory and on a mount of an embedded group",
        tier: Tier::Full,
        minutes: 3,
        command: test_program!("outside_suites", "io500", "--nocapture", "--test-threads=1"),
        packages: &["fuse3", "openmpi-bin", "util-linux"],
        needs: &[Need::Root, Need::Fuse, Need::OutsideSuite(OutsideSuite { name: "io500", file: "io500" })],
    },
    Suite {
        name: "ltp",
        about: "LTP's rwtest group on a mount: processes that write, map and read the same files",
        tier: Tier::Full,
        minutes: 12,
        command: test_program!("outside_suites", "ltp_rwtest", "--nocapture"),
        packages: &["fuse3", "util-linux"],
        needs: &[
            Need::Root,
            Need::Fuse,
            Need::OutsideSuite(OutsideSuite { name: "ltp", file: "testcases/bin/rwtest" }),
        ],
    },
    Suite {
        name: "ltp-fs",
        about: "the other file system tests of LTP on a mount",
        tier: Tier::Full,
        minutes: 40,
        command: test_program!("outside_suites", "ltp_fs", "--nocapture"),
        packages: &["fuse3", "util-linux"],
        needs: &[
            Need::Root,
            Need::Fuse,
            Need::OutsideSuite(OutsideSuite { name: "ltp", file: "testcases/bin/growfiles" }),
        ],
    },
    Suite {
        name: "ltp-syscalls",
        about: "LTP's tests of the system calls on files, on mounts of a memory and of a directory",
        tier: Tier::Full,
        minutes: 20,
        command: test_program!("outside_suites", "ltp_syscalls", "--nocapture", "--test-threads=1"),
        packages: &["fuse3", "util-linux"],
        needs: &[
            Need::Root,
            Need::Fuse,
            Need::OutsideSuite(OutsideSuite { name: "ltp", file: "testcases/bin/rename01" }),
        ],
    },
    Suite {
        name: "xfstests",
        about: "most cases of xfstests generic in the groups auto and quick, on mounts",
        tier: Tier::Full,
        minutes: 90,
        command: test_program!("outside_suites", "xfstests", "--nocapture"),
        packages: &["acl", "attr", "bc", "fuse3", "gawk", "util-linux", "xfsprogs"],
        needs: &[
            Need::Root,
            Need::Fuse,
            Need::OutsideSuite(OutsideSuite { name: "xfstests", file: "check" }),
        ],
    },
];
