//! The clock: servers and clients compare times of files.

use crate::{Evidence, Finding};
use std::time::Duration;

const NAME: &str = "timedatectl.txt";

pub(super) fn check(evidence: &Evidence, out: &mut Vec<Finding>) {
    const RULE: &str = "clock.synchronized";
    if !evidence.0.contains_key(NAME) || super::unread::is_unread(evidence, NAME) {
        return;
    }
    let Some(value) = evidence.text(NAME).and_then(synchronized) else {
        let seen = "timedatectl does not say whether the clock is synchronized";
        let mend = "chronyc tracking, or ntpq -p    # where something else than systemd keeps the clock";
        out.push(Finding::unknown(RULE, "timedatectl", seen, mend));
        return;
    };
    let finding = Finding::ok(RULE, evidence.source(NAME), format!("synchronized: {value}"));
    out.push(if value == "yes" {
        finding
    } else {
        finding.warn(
            "times of files differ between hosts, which misleads make, backups and caches; logs do not line up",
            "timedatectl set-ntp true    # or start chronyd",
        )
    });
}

/// `System clock synchronized: yes`; before systemd 235 `NTP synchronized: yes`.
fn synchronized(text: &str) -> Option<&str> {
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(key, _)| key.trim_end().ends_with("synchronized")).map(|(_, value)| value.trim())
}

/// Clocks that differ by more than this make files look newer or older than they are.
const SKEW_MAX: Duration = Duration::from_secs(1);

/// Compares the clock of a server, as an object that it made at `server` shows, with this host's
/// before and after the call. Times count from 1970.
pub fn server_clock(
    before: Duration,
    after: Duration,
    server: Duration,
    source: impl Into<String>,
) -> Finding {
    // Some servers keep whole seconds only.
    let coarse = if server.subsec_nanos() == 0 { Duration::from_secs(1) } else { Duration::ZERO };
    let behind = before.saturating_sub(server.saturating_add(coarse));
    let ahead = server.saturating_sub(after);
    let (skew, side) = if behind > ahead { (behind, "behind") } else { (ahead, "ahead of") };
    let finding = |seen| Finding::ok("server.clock", source, seen);
    if skew <= SKEW_MAX {
        return finding("the clocks of the server and of this host agree".to_owned());
    }
    let seen = format!("the server's clock is {:.1} s {side} this host's", skew.as_secs_f64());
    finding(seen).warn(
        "files look newer or older than they are, which misleads make, backups and caches; Kerberos refuses \
         what is more than five minutes off",
        "timedatectl set-ntp true on both    # or start chronyd; on PowerScale: isi ntp servers list",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Status;

    #[test]
    fn clocks_may_differ_by_the_time_of_the_call_and_a_second() {
        let seen = |before, after, server| {
            let ms = Duration::from_millis;
            let finding = server_clock(ms(before), ms(after), ms(server), "nas:/a");
            (finding.status, finding.seen)
        };
        for server in [10_001, 9_001, 10_500, 12_000, 8_000] {
            assert_eq!(seen(10_000, 11_000, server).0, Status::Ok, "{server}");
        }
        assert_eq!(
            seen(10_000, 11_000, 12_100),
            (Status::Warn, "the server's clock is 1.1 s ahead of this host's".into())
        );
        assert_eq!(
            seen(10_000, 11_000, 8_500),
            (Status::Warn, "the server's clock is 1.5 s behind this host's".into())
        );
        // A server that keeps whole seconds may be almost a second further behind.
        assert_eq!(seen(10_000, 11_000, 7_000).0, Status::Warn);
        assert_eq!(seen(0, u64::MAX, 0).0, Status::Ok);
        assert_eq!(server_clock(Duration::ZERO, Duration::ZERO, Duration::MAX, "").status, Status::Warn);
    }
}
