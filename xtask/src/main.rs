//! The project's own commands: `cargo xtask check`, `cargo xtask test`, `cargo xtask bench`,
//! `cargo xtask faults`, `cargo xtask soak`, `cargo xtask history`, `cargo xtask spec`.
//!
//! `check` reads the sources and says whether they may be committed; `test` runs every suite this
//! machine can run and says by name what it could not; `bench` measures the table of figures,
//! `faults` what failing links and servers cost; `soak` lets them fail at random for as long as one
//! likes; `history` checks what reads beside writes give; `spec` lists which sections of the
//! standards are cited, and which of them no test proves.
#![forbid(unsafe_code)]

mod bench;
mod check;
mod error;
mod faults;
mod history;
mod layers;
mod soak;
mod source;
mod spec;
mod test;
mod tidy;
mod workspace;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "The project's own commands")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Formatting, lints, documentation, tidiness and layers: what must hold before a commit.
    Check {
        /// Only these steps; all where none is named.
        #[arg(value_enum)]
        steps: Vec<check::Step>,
    },
    /// Runs the test suites, quick ones first; `docs/TESTING.md` describes them.
    Test(test::Options),
    /// Measures the table of figures beside the limit of the wire and beside other servers, and
    /// writes a record.
    Bench(bench::Options),
    /// Tries what fails on the way to a server, each fault ten times; writes
    /// docs/results/failover.json and its page.
    Faults(faults::Options),
    /// Random faults under load for as long as one likes, with printed seeds; then everything must
    /// have been given back.
    Soak(soak::Options),
    /// Processes that read and write the same files of a mount, for as long as one likes; each read
    /// is checked.
    History(history::Options),
    /// Lists the cited sections of the standards and those that no test cites.
    Spec,
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Check { steps } => check::run(&steps),
        Command::Test(options) => test::run(&options),
        Command::Bench(options) => bench::run(&options),
        Command::Faults(options) => faults::run(&options),
        Command::Soak(options) => soak::run(&options),
        Command::History(options) => history::run(&options),
        Command::Spec => spec::run(),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
