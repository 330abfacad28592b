//! Runs cases of the suite blktests with the host of Linux 6.12 on our target, both in one guest:
//! those of the group `nvme` that have a target set up, and those that take any disk. The suite is
//! the tester's: `TRUNKLINE_SUITE_DIR` names its directory.
//!
//! The suite has a target of others set up by a program of the tester, `blktests/target.sh`.
//! `blktests/config` has it set the secrets of hosts too.

use crate::{alone, lab, sh, trunkline};
use std::time::Duration;
use testkit::{Outcome, Outcomes};

/// The cases of the group `nvme` for any target over a network. The others need the kernel's own
/// target, or a kernel with injected faults.
const TARGET_CASES: &[&str] = &[
    "nvme/003", "nvme/004", "nvme/005", "nvme/006", "nvme/008", "nvme/010", "nvme/012", "nvme/014",
    "nvme/018", "nvme/019", "nvme/021", "nvme/022", "nvme/023", "nvme/025", "nvme/026", "nvme/027",
    "nvme/028", "nvme/029", "nvme/031", "nvme/040", "nvme/041", "nvme/042", "nvme/043", "nvme/044",
    "nvme/045", "nvme/047", "nvme/061",
];
/// Those for a disk that is there.
const DISK_CASES: &[&str] =
    &["block/003", "block/004", "block/007", "block/008", "block/012", "nvme/046", "nvme/049", "nvme/053"];

/// The longest duration of a case in an emulated machine.
const CASE_TIMEOUT: Duration = Duration::from_secs(300);
/// How `timeout` says that the time was over.
const TIMED_OUT: i32 = 124;

/// The suite, which connects to a volume of ours.
struct Suite {
    /// What is said before each command.
    environment: String,
    outcomes: Outcomes,
}

impl Suite {
    fn new(transport: &str, block: u32) -> Self {
        let directory = std::env::var("TRUNKLINE_SUITE_DIR");
        let directory =
            directory.expect("TRUNKLINE_SUITE_DIR names the suite; cargo xtask test --suite-dir DIR");
        let address = if transport == "rdma" { "10.77.1.1" } else { "127.0.0.1" };
        let (program, ours) =
            (trunkline().display(), format!("{}/tests/vm/blktests", env!("CARGO_MANIFEST_DIR")));
        let environment = format!(
            "cd {directory}; ours={ours}
             export NVME_TARGET_CONTROL={ours}/target.sh NVME_IMG_SIZE=350m TIMEOUT=10 USE_RXE=1
             export TRUNKLINE={program} TRANSPORT={transport} ADDRESS={address} BLOCK={block}\n"
        );
        // The suite reads the kernel's configuration, and needs a file system that only its own
        // set-up of a target uses.
        sh(&format!(
            "{environment}modprobe nvme-{transport}; ip link set lo up
             findmnt -t configfs /sys/kernel/config > /dev/null || mount -t configfs none /sys/kernel/config
             release=$(uname -r); cp $(readlink -f /lib/modules/$release)/../../../boot/config-$release /boot/
             $NVME_TARGET_CONTROL identify"
        ));
        Self { environment, outcomes: Outcomes::of("blktests") }
    }

    /// Runs one case; the suite prints its result behind its name.
    fn run(&mut self, case: &str, configuration: &str) {
        let seconds = CASE_TIMEOUT.as_secs();
        let script = format!(
            "{}cat $ours/config > /root/blktests.config; echo '{configuration}' >> /root/blktests.config
             timeout -k 10 {seconds} bash ./check -o /root/blktests -c /root/blktests.config {case} 2>&1 < /dev/null
             ended=$?; find /root/blktests -name '*.bad' -o -name '*.full' | xargs -r tail -n 60
             rm -rf /root/blktests; exit $ended",
            self.environment
        );
        let ended = lab().client().sh(&script).expect("the guest runs");
        let said = String::from_utf8_lossy(&ended.stdout).into_owned();
        let result = |result: &str| said.lines().any(|line| line.starts_with(case) && line.ends_with(result));
        let outcome = if ended.status.code() == Some(TIMED_OUT) {
            Outcome::Hung(CASE_TIMEOUT, said)
        } else if result("[passed]") && ended.status.success() {
            Outcome::Passed
        } else if result("[not run]") {
            Outcome::Skipped(said)
        } else {
            Outcome::Failed(said)
        };
        self.outcomes.record(case, outcome);
    }
}

/// The cases that have a target set up, on a volume with the blocks in which the suite counts.
fn sets_a_target_up(transport: &str) {
    let _turn = alone();
    let mut suite = Suite::new(transport, 512);
    for case in TARGET_CASES {
        suite.run(case, "");
    }
    suite.outcomes.conclude(&[], TARGET_CASES.len());
}

#[test]
fn blktests_passes_over_tcp() {
    sets_a_target_up("tcp");
}

#[test]
fn blktests_passes_over_rdma() {
    sets_a_target_up("rdma");
}

#[test]
fn blktests_passes_on_a_disk() {
    let _turn = alone();
    // A command of `nvme/046` has a whole block of 4096 bytes.
    let mut suite = Suite::new("tcp", 4096);
    let environment = suite.environment.clone();
    sh(&format!(
        "{environment}target() {{ $NVME_TARGET_CONTROL config --show-$1; }}
         $NVME_TARGET_CONTROL setup
         nvme connect -t tcp -a $ADDRESS -s $(target trsvid) -n $(target subsysnqn) \
             --hostnqn $(target hostnqn) --hostid $(target hostid)
         for try in $(seq 100); do [ -b /dev/nvme0n1 ] && break; sleep 0.1; done
         id -u blktests 2> /dev/null || useradd --no-create-home blktests"
    ));
    for case in DISK_CASES {
        suite.run(case, "TEST_DEVS=(/dev/nvme0n1); DEVICE_ONLY=1; NORMAL_USER=blktests");
    }
    sh(&format!("{environment}nvme disconnect-all; $NVME_TARGET_CONTROL cleanup"));
    suite.outcomes.conclude(&[], DISK_CASES.len());
}
