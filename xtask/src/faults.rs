//! `cargo xtask faults`: runs the fault campaign on an optimised build; writes its record and its
//! page.
//!
//! The campaign is a test program (crates/trunkline/tests/faults.rs). Environment variables tell it
//! how often to try each fault and where to write the record.

use crate::error::{Error, Result};
use crate::workspace::{cargo, root};
use std::path::PathBuf;
use std::process::Command;

/// Which faults to try, and how often.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Number of times to try each fault.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: u32,
    /// Try only faults whose name contains this, such as "silent" or "reset"; may be repeated.
    /// Needs --record, because the default file is for complete records.
    #[arg(long, value_name = "PART", requires = "record")]
    only: Vec<String>,
    /// The version of NFS of the mounts. Another than 3 needs --record, because the default file is
    /// for version 3.
    #[arg(long, value_name = "VERSION", default_value = "3", value_parser = ["3", "4.1", "4.2"])]
    #[arg(requires_ifs = [("4.1", "record"), ("4.2", "record")])]
    nfs_version: String,
    /// Write the record to this file, and a page for readers beside it.
    #[arg(long, value_name = "FILE.json", default_value = "docs/results/failover.json", value_parser = json)]
    record: PathBuf,
}

fn json(text: &str) -> std::result::Result<PathBuf, String> {
    if text.ends_with(".json") { Ok(text.into()) } else { Err("write a name that ends in .json".to_owned()) }
}

/// Builds and runs the campaign; returns false if a fault broke a promise.
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
        .env("TRUNKLINE_TEST_NFS_VERSION", &options.nfs_version)
        .env("TRUNKLINE_COMMIT", String::from_utf8_lossy(&described.stdout).trim());
    let status = command.status().map_err(|source| Error::Run { program: "cargo".into(), source })?;
    Ok(status.success())
}
