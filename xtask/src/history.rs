//! `cargo xtask history`: runs concurrent reads and writes on an optimised build for any length of
//! time, and checks each read.
//!
//! This is a test program (crates/trunkline/tests/history.rs). Environment variables tell it how
//! long to run and from which seed.

use crate::error::{Error, Result};
use crate::workspace::cargo;

/// The servers to test, one after the other; each is the middle of a test's name.
const PLACES: [&str; 3] = ["mem", "dir", "nfs_ganesha"];

/// How long to run, and from which seed.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Total time on all servers, in minutes.
    #[arg(long, default_value = "15", value_parser = minutes)]
    minutes: f64,
    /// Seed of the first round on each server; each later round has the next seed.
    #[arg(long)]
    seed: Option<u64>,
    /// Test only this server.
    #[arg(long, value_parser = PLACES)]
    on: Option<String>,
    /// Mount options, instead of those that the seed selects.
    #[arg(long)]
    options: Option<String>,
    /// Also test for the known limits that docs/TESTING.md describes.
    #[arg(long)]
    known_limits: bool,
}

fn minutes(text: &str) -> std::result::Result<f64, String> {
    let minutes = text.parse::<f64>().ok().filter(|minutes| (0.1..=100_000.0).contains(minutes));
    minutes.ok_or_else(|| "write a number of minutes, 0.1 to 100000".to_owned())
}

/// Builds and runs; returns false if a read returned something impossible.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let places: Vec<&str> = options.on.as_deref().map_or(PLACES.to_vec(), |place| vec![place]);
    let minutes = options.minutes / places.len() as f64;
    let mut command = cargo();
    command
        .args(["test", "--release", "--package", "trunkline", "--test", "history", "--"])
        .args(["--nocapture", "--test-threads=1"])
        .args(places.iter().map(|place| format!("reads_on_{place}_")))
        .env("TRUNKLINE_HISTORY_MINUTES", minutes.to_string());
    if let Some(seed) = options.seed {
        command.env("TRUNKLINE_SEED", seed.to_string());
    }
    if let Some(mount) = &options.options {
        command.env("TRUNKLINE_HISTORY_OPTIONS", mount);
    }
    if options.known_limits {
        command.env("TRUNKLINE_HISTORY_KNOWN_LIMITS", "yes");
    }
    let status = command.status().map_err(|source| Error::Run { program: "cargo".into(), source })?;
    Ok(status.success())
}
