//! `cargo xtask soak`: injects random faults under load on an optimised build for any length of
//! time.
//!
//! The soak is a test program (crates/trunkline/tests/soak.rs). Environment variables tell it how
//! long to run and from which seed.

use crate::error::{Error, Result};
use crate::workspace::cargo;

/// How long to run, and from which seed.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// How long to inject faults, in minutes.
    #[arg(long, default_value = "10", value_parser = minutes)]
    minutes: f64,
    /// Seed of the first round; each later round has the next seed. A failed round is repeated with
    /// its own seed.
    #[arg(long)]
    seed: Option<u64>,
}

fn minutes(text: &str) -> std::result::Result<f64, String> {
    let minutes = text.parse::<f64>().ok().filter(|minutes| (0.1..=100_000.0).contains(minutes));
    minutes.ok_or_else(|| "write a number of minutes, 0.1 to 100000".to_owned())
}

/// Builds and runs; returns false if something was lost, executed twice, or not returned.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let mut command = cargo();
    command
        .args(["test", "--release", "--package", "trunkline", "--test", "soak", "--"])
        .args(["--nocapture", "after_random_faults"])
        .env("TRUNKLINE_SOAK_MINUTES", options.minutes.to_string());
    if let Some(seed) = options.seed {
        command.env("TRUNKLINE_SEED", seed.to_string());
    }
    let status = command.status().map_err(|source| Error::Run { program: "cargo".into(), source })?;
    Ok(status.success())
}
