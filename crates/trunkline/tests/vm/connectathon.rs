//! Runs the Connectathon tests with the Linux kernel's client on our server. The suite's programs
//! are the tester's: `TRUNKLINE_SUITE_DIR` names their directory.

use crate::cthon04_groups::{GROUPS, record};
use crate::kernel_client::Mounted;
use crate::{alone, lab};
use std::time::Duration;
use testkit::Outcomes;

/// The longest duration of a group in an emulated machine.
const GROUP_TIMEOUT: Duration = Duration::from_secs(900);
/// How `timeout` says that the time was over.
const TIMED_OUT: i32 = 124;

#[test]
fn cthon04_passes_by_version_4_1() {
    on(|| Mounted::version_4("cthon41", 12150, 1, "nconnect=1"));
}

#[test]
fn cthon04_passes_by_version_4_2() {
    on(|| Mounted::version_4("cthon42", 12151, 2, "nconnect=2"));
}

#[test]
fn cthon04_passes_by_version_3() {
    on(|| Mounted::new("cthon3", 12152, "nconnect=2"));
}

fn on(mount: impl FnOnce() -> Mounted) {
    let _turn = alone();
    let mounted = mount();
    let suite = std::env::var("TRUNKLINE_SUITE_DIR");
    let suite = suite.expect("TRUNKLINE_SUITE_DIR names the suite; cargo xtask test --suite-dir DIR");
    let mut outcomes = Outcomes::of("cthon04");
    for group in GROUPS {
        let [kind, how] = group.arguments;
        let (seconds, directory) = (GROUP_TIMEOUT.as_secs(), mounted.directory());
        let script = format!(
            "cd {suite} && exec timeout -k 10 {seconds} sh ./runtests {kind} {how} {directory}/cthon04 2>&1"
        );
        let ended = lab().client().sh(&script).expect("the guest runs");
        let status = (ended.status.code() != Some(TIMED_OUT)).then_some(ended.status);
        record(&mut outcomes, group, status, &String::from_utf8_lossy(&ended.stdout), GROUP_TIMEOUT);
    }
    outcomes.conclude(&[], GROUPS.len());
}
