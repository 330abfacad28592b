//! Tests the pages that people see, as a person uses them: a headless Chromium opens them, clicks
//! and types. Needs Chromium, and root for networks and mounts; `cargo xtask test` runs these
//! tests, plain `cargo test` does not.

#[path = "browser/driver.rs"]
mod driver;
#[path = "browser/live.rs"]
mod live;
#[path = "browser/look.rs"]
mod look;
#[path = "browser/report.rs"]
mod report;
#[path = "support/watched_mount.rs"]
mod watched_mount;
