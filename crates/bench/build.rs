//! Notes the commit that is built, for the records.

use std::process::Command;

fn main() {
    let output = Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).output();
    let commit = output.ok().filter(|output| output.status.success()).map(|output| output.stdout);
    let commit = commit.and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
    println!("cargo:rustc-env=TRUNKLINE_COMMIT={}", commit.trim());
    // The log changes with each commit and checkout.
    println!("cargo:rerun-if-changed=../../.git/logs/HEAD");
}
