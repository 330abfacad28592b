//! Tests the pages that people see, as a person uses them: a headless Chromium opens them, clicks
//! and types. Needs Chromium; `cargo xtask test` runs these tests, plain `cargo test` does not.

#[path = "browser/driver.rs"]
mod driver;
#[path = "browser/report.rs"]
mod report;
