//! Runs published test suites, built by the tester, on mounts of our server. `cargo xtask test
//! pjdfstest cthon04 io500 ltp ltp-fs ltp-syscalls xfstests --suite-dir DIR` runs them and sets
//! `TRUNKLINE_SUITE_DIR` to their directory. docs/TESTING.md describes them. Needs root and FUSE.

#[path = "outside_suites/cases.rs"]
mod cases;
#[path = "outside_suites/cthon04.rs"]
mod cthon04;
#[path = "outside_suites/cthon04_groups.rs"]
mod cthon04_groups;
#[path = "mount/fixture.rs"]
#[allow(dead_code)]
mod fixture;
#[path = "outside_suites/io500.rs"]
mod io500;
#[path = "outside_suites/ltp.rs"]
mod ltp;
#[path = "mount/mounts.rs"]
#[allow(dead_code)]
mod mounts;
#[path = "outside_suites/pjdfstest.rs"]
mod pjdfstest;
#[path = "outside_suites/xfstests.rs"]
mod xfstests;
