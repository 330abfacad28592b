//! The clock: servers and clients compare times of files.

use crate::{Evidence, Finding};

const NAME: &str = "timedatectl.txt";

pub(super) fn check(evidence: &Evidence, out: &mut Vec<Finding>) {
    let Some(text) = evidence.text(NAME) else { return };
    // `System clock synchronized: yes`; before systemd 235 `NTP synchronized: yes`.
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    let mut values =
        lines.filter(|(key, _)| key.trim_end().ends_with("synchronized")).map(|(_, value)| value);
    let Some(value) = values.next().map(str::trim) else { return };
    let finding = Finding::ok("clock.synchronized", evidence.source(NAME), format!("synchronized: {value}"));
    out.push(if value == "yes" {
        finding
    } else {
        finding.warn(
            "times of files differ between hosts, which misleads make, backups and caches; logs do not line up",
            "timedatectl set-ntp true    # or start chronyd",
        )
    });
}
