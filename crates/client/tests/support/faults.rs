//! Faults of one path under a load.

use std::time::{Duration, Instant};

use client::Mount;

use crate::load::Load;
use crate::proxy::{Mode, Proxied};

/// Long, because the machine may be slow and loaded.
pub const TIMEOUT: Duration = Duration::from_secs(120);

/// Runs a load while one path has a fault. Prints the longest gap, and returns the number of calls
/// that were moved from that path.
pub fn moved_by(name: &str, group: &Proxied, mount: &Mount, mode: Mode) -> u64 {
    let moved =
        || -> u64 { mount.statistics().paths[1].status.iter().map(|status| status.moved_calls).sum() };
    let gap = Load::run(mount, |load| {
        let deadline = Instant::now() + TIMEOUT;
        // A short fault may occur when no call is in flight on that path.
        while moved() == 0 && Instant::now() < deadline {
            group.set(1, mode);
            load.advance(100);
            group.set(1, Mode::Pass);
            load.advance(50);
        }
    });
    let moved = moved();
    println!("{name}: longest wait for an answer {} ms, {moved} calls moved", gap.as_millis());
    moved
}
