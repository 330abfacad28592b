//! The Connectathon tests on our own mounts.

use crate::cases::{Place, Store, contained, run, suite};
use crate::cthon04_groups::{GROUPS, record};
use std::time::Duration;
use testkit::Outcomes;

/// The longest duration of a group. On an idle machine the slowest takes 20 seconds.
const GROUP_TIMEOUT: Duration = Duration::from_secs(300);

#[test]
fn cthon04_passes_on_memory() {
    on(Store::Mem);
}

#[test]
fn cthon04_passes_on_a_directory() {
    on(Store::Dir);
}

fn on(store: Store) {
    let root = suite();
    let place = Place::on(store);
    let mut outcomes = Outcomes::of("cthon04");
    for group in GROUPS {
        let mut command = contained("exec sh ./runtests \"$@\"");
        command.args(group.arguments).arg(place.mount.path("cthon04")).current_dir(&root);
        let ended = run(command, GROUP_TIMEOUT);
        record(&mut outcomes, group, ended.status, &ended.output, GROUP_TIMEOUT);
    }
    outcomes.conclude(&[], GROUPS.len());
}
