//! What is found by making a file in the export: whether this user can write, and the server's
//! clock.

use super::chain;
use ::check::{Finding, server_clock};
use client::Mount;
use fs::{CreateMode, SetAttributes, Time};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Makes a file and removes it; its times are those of the server's clock.
pub(super) fn check(mount: &Mount, target: &str) -> Vec<Finding> {
    const RULE: &str = "server.write";
    let name = format!(".trunkline-check-{}-{:08x}", std::process::id(), rand_number());
    let how = CreateMode::Guarded(SetAttributes::mode(0o600));
    let before = now();
    let made = mount.create(mount.root(), name.as_bytes(), how);
    let after = now();
    let clock = made.as_ref().ok().map(|(_, attributes)| {
        let Time { seconds, nanoseconds } = attributes.ctime;
        server_clock(before, after, Duration::new(u64::try_from(seconds).unwrap_or(0), nanoseconds), target)
    });
    let outcome = made.and_then(|_| {
        let same = written_and_read(mount, name.as_bytes());
        // Whatever happened, the file must not stay.
        mount.remove(mount.root(), name.as_bytes()).and(same)
    });
    let finding = match outcome {
        Ok(true) => Finding::ok(RULE, target, format!("{name} was made, written, read back and removed")),
        Ok(false) => Finding::ok(RULE, target, format!("{name} does not hold what was written")).fail(
            "the data read back differ from those written",
            "keep nothing there until that is explained",
        ),
        Err(error) => Finding::ok(RULE, target, format!("{name}: {}", chain(&error))).fail(
            "this user cannot write to the export",
            "rw in the export, the owner of its root, and the user's number on both sides",
        ),
    };
    std::iter::once(finding).chain(clock).collect()
}

/// What only `--write` looks at.
pub(super) fn not_looked_at(target: &str) -> Finding {
    let seen = "neither writing nor the server's clock was looked at: that takes a file made there";
    Finding::unknown("server.write", target, seen, "--write")
}

/// The time of this host since 1970.
fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Whether a file holds what is written to it.
fn written_and_read(mount: &Mount, name: &[u8]) -> client::Result<bool> {
    let data = [0x5a_u8; 4096];
    let file = mount.open(name)?;
    file.write_all_at(&data, 0)?;
    let mut back = [0; 4096];
    let len = file.read_all_at(&mut back, 0)?;
    Ok(len == data.len() && back == data)
}

/// Differs between two checks of one process number on two hosts.
fn rand_number() -> u32 {
    use std::hash::{BuildHasher, RandomState};
    u32::try_from(RandomState::new().hash_one(0) >> 32).unwrap_or(0)
}
