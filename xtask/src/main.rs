//! The project's own commands: `cargo xtask check`, `cargo xtask test`, `cargo xtask bench`,
//! `cargo xtask faults`, `cargo xtask soak`, `cargo xtask history`, `cargo xtask package`, `cargo
//! xtask pictures`, `cargo xtask spec`.
//!
//! `check` says whether the sources may be committed. `test` runs every suite that this machine can
//! run, and names those that it cannot. `bench` runs the acceptance benchmark. `faults` measures
//! the cost of failing links and servers. `soak` makes them fail at random for any length of time.
//! `history` checks what reads return beside writes. `package` makes a Debian package. `pictures`
//! makes the pictures of the README. `spec` lists which sections of the standards are cited, and
//! which of them no test proves.
#![forbid(unsafe_code)]

mod bench;
mod check;
mod error;
mod faults;
mod history;
mod layers;
mod package;
mod pictures;
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
    /// Checks formatting, lints, documentation, tidiness and layers before a commit.
    Check {
        /// Run only these steps; all if none is named.
        #[arg(value_enum)]
        steps: Vec<check::Step>,
    },
    /// Runs the test suites, quick ones first; `docs/TESTING.md` describes them.
    Test(test::Options),
    /// Runs the acceptance benchmark, compares it with the limit of the wire and with other
    /// servers, and writes a record.
    Bench(bench::Options),
    /// Tries each way in which the connection to a server can fail ten times; writes
    /// docs/results/failover.json and its page.
    Faults(faults::Options),
    /// Injects random faults under load for any length of time, with printed seeds; checks at the
    /// end that all resources were returned.
    Soak(soak::Options),
    /// Runs processes that read and write the same files of a mount for any length of time, and
    /// checks each read.
    History(history::Options),
    /// Makes a Debian package of the program: docs/INSTALL.md.
    Package(package::Options),
    /// Makes the pictures of the README: docs/pictures.
    Pictures,
    /// Lists the cited sections of the standards, and those that no test cites.
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
        Command::Package(options) => package::run(&options),
        Command::Pictures => pictures::run(),
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
