//! Notes the commit that is built, for the records.

use std::process::Command;

/// What git answers, if there is one and this is a checkout.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("rev-parse").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

fn main() {
    println!("cargo:rustc-env=TRUNKLINE_COMMIT={}", git(&["--short=12", "HEAD"]).unwrap_or_default());
    // The log changes with each commit and checkout. It lies elsewhere in a linked work tree, and a
    // file that is not there would mean building again each time.
    let log = git(&["--git-path", "logs/HEAD"]).filter(|log| std::path::Path::new(log).exists());
    println!("cargo:rerun-if-changed={}", log.as_deref().unwrap_or("build.rs"));
}
