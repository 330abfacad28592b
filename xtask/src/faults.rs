//! `cargo xtask faults`: the fault campaign on an optimised build, its record and its page.
//!
//! The campaign is a test program (crates/trunkline/tests/faults.rs); it reads from its environment
//! how often each fault is tried and where the record goes.

use crate::error::{Error, Result};
use crate::workspace::{cargo, root};
use std::path::PathBuf;
use std::process::Command;

/// What to try, and how often.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// How often each fault is tried.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: u32,
    /// Only faults with this in their name, as "silent" or "reset"; repeat for more. Say where the
    /// record goes, too: the default place is for whole ones.
    #[arg(long, value_name = "PART", requires = "record")]
    only: Vec<String>,
    /// Write the record here, and a page for people beside it.
    #[arg(long, value_name = "FILE.json", default_value = "docs/results/failover.json", value_parser = json)]
    record: PathBuf,
}

fn json(text: &str) -> std::result::Result<PathBuf, String> {
    if text.ends_with(".json") { Ok(text.into()) } else { Err("write a name that ends in .json".to_owned()) }
}

/// Builds and tries; false when a fault broke a promise.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let root = root();
    let record = root.join(&options.record);
    if let Some(directory) = record.parent() {
        std::fs::create_dir_all(directory)
            .map_err(|source| Error::Make { directory: directory.into(), source })?;
    }
    let mut git = Command::new("git");
    git.current_dir(&root).args(["describe", "--always", "--dirty", "--abbrev=7"]);
    let described = git.output().map_err(|source| Error::Run { program: "git".into(), source })?;
    let mut command = cargo();
    command
        .args(["test", "--release", "--package", "trunkline", "--test", "faults", "--"])
        .args(["--nocapture", "--exact", "campaign::nothing_is_lost_or_done_twice_whatever_fails"])
        .env("TRUNKLINE_FAULTS_REPEATS", options.repeats.to_string())
        .env("TRUNKLINE_FAULTS", options.only.join(","))
        .env("TRUNKLINE_FAULTS_RECORD", record)
        .env("TRUNKLINE_COMMIT", String::from_utf8_lossy(&described.stdout).trim());
    let status = command.status().map_err(|source| Error::Run { program: "cargo".into(), source })?;
    Ok(status.success())
}
