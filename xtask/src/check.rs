//! `cargo xtask check`: the checks before a commit, with a line for each step.

use crate::error::{Error, Result};
use crate::workspace::{self, cargo};
use crate::{layers, test, tidy};
use std::process::Command;
use std::time::Instant;

/// One of the checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Step {
    /// The sources are formatted by rustfmt.
    Fmt,
    /// The project's own rules for files hold.
    Tidy,
    /// Crates depend only on those that they may depend on.
    Layers,
    /// Clippy has no warnings.
    Clippy,
    /// The documentation builds without warnings.
    Docs,
}

/// The steps in their order, the quick ones first.
const STEPS: [Step; 5] = [Step::Fmt, Step::Tidy, Step::Layers, Step::Clippy, Step::Docs];

/// The result of a step.
enum Outcome {
    Well,
    /// The findings, and what to do about them.
    Wrong {
        findings: Vec<String>,
        advice: &'static str,
    },
}

/// Runs the steps and prints a line for each. A failed step does not stop the others, so that one
/// run shows everything.
pub(crate) fn run(chosen: &[Step]) -> Result<bool> {
    let mut well = true;
    for step in STEPS.into_iter().filter(|step| chosen.is_empty() || chosen.contains(step)) {
        let start = Instant::now();
        let outcome = step.run()?;
        let (name, seconds) = (format!("{step:?}").to_lowercase(), start.elapsed().as_secs_f64());
        match outcome {
            Outcome::Well => println!("check {name:<7} ok      {seconds:6.1} s"),
            Outcome::Wrong { findings, advice } => {
                well = false;
                for finding in &findings {
                    println!("{finding}");
                }
                println!("check {name:<7} FAILED  {seconds:6.1} s  {advice}");
            }
        }
    }
    Ok(well)
}

impl Step {
    fn run(self) -> Result<Outcome> {
        match self {
            Self::Fmt => {
                let missing = missing_component("fmt", "rustfmt")?;
                let mut command = cargo();
                command.args(["fmt", "--all", "--check"]);
                program(missing, command, "run: cargo fmt --all")
            }
            Self::Tidy => {
                let mut findings = tidy::findings()?;
                findings.extend(test::unlisted(&workspace::metadata()?));
                Ok(found(findings, "each line above says what to do"))
            }
            Self::Layers => {
                let findings = layers::findings(&workspace::metadata()?);
                Ok(found(findings, "docs/decisions/0001-layers.md says what the layers are for"))
            }
            Self::Clippy => clippy(),
            Self::Docs => {
                let mut command = cargo();
                command
                    .args(["doc", "--quiet", "--workspace", "--no-deps"])
                    .env("RUSTDOCFLAGS", "-D warnings");
                program(None, command, "mend what rustdoc says above")
            }
        }
    }
}

/// Runs Clippy on everything. `--all-targets` leaves out the test programs that a plain `cargo
/// test` leaves out, even if they are named too, so they are checked separately.
fn clippy() -> Result<Outcome> {
    if let Some(missing) = missing_component("clippy", "clippy")? {
        return program(Some(missing), cargo(), "");
    }
    let mut commands = vec![vec!["--workspace".to_owned(), "--all-targets".to_owned()]];
    for package in &workspace::metadata()?.packages {
        let suites = package.suites().flat_map(|suite| ["--test".to_owned(), suite.to_owned()]);
        let suites: Vec<_> = suites.collect();
        if !suites.is_empty() {
            commands.push([vec!["--package".to_owned(), package.name.clone()], suites].concat());
        }
    }
    for targets in commands {
        let mut command = cargo();
        command.args(["clippy", "--quiet"]).args(targets).args(["--", "--deny", "warnings"]);
        if let wrong @ Outcome::Wrong { .. } = program(None, command, "mend what clippy says above")? {
            return Ok(wrong);
        }
    }
    Ok(Outcome::Well)
}

fn found(findings: Vec<String>, advice: &'static str) -> Outcome {
    if findings.is_empty() { Outcome::Well } else { Outcome::Wrong { findings, advice } }
}

fn program(missing: Option<String>, mut command: Command, advice: &'static str) -> Result<Outcome> {
    if let Some(missing) = missing {
        return Ok(Outcome::Wrong { findings: vec![missing], advice: "install it" });
    }
    let status = command.status().map_err(|source| Error::Run { program: "cargo".to_owned(), source })?;
    if status.success() { Ok(Outcome::Well) } else { Ok(Outcome::Wrong { findings: Vec::new(), advice }) }
}

/// Reports a component that the toolchain lacks, because cargo's own message does not always say
/// what to do.
fn missing_component(command: &str, component: &str) -> Result<Option<String>> {
    let version = cargo().args([command, "--version"]).output();
    let output = version.map_err(|source| Error::Run { program: "cargo".to_owned(), source })?;
    let advice = format!("{component} is not installed; try: rustup component add {component}");
    Ok((!output.status.success()).then_some(advice))
}
