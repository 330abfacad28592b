//! `trunkline plan`: capacity, layout, limits, IO500 scores and runbooks. The crates `plan` and
//! `runbook` compute; this module converts the command line.

mod io500;
mod layout;
mod limits;
mod runbook;
mod size;

use crate::error::Error;
use clap::{Args, Subcommand};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

/// The maximum size of a file. No topology and no result is larger; this keeps a wrong file out of
/// memory.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Plan an array and a network: capacity, layout of drives and volumes, throughput of each stage,
/// the stage that binds, and the commands for every machine.
#[derive(Debug, Args)]
pub struct PlanArgs {
    #[command(subcommand)]
    command: PlanCommand,
}

#[derive(Debug, Subcommand)]
enum PlanCommand {
    Size(size::SizeArgs),
    Layout(layout::LayoutArgs),
    Limits(Box<limits::LimitsArgs>),
    Io500(io500::Io500Args),
    Runbook(runbook::RunbookArgs),
}

/// Runs a subcommand of `trunkline plan`.
pub fn run(args: &PlanArgs) -> Result<ExitCode, Error> {
    match &args.command {
        PlanCommand::Size(args) => size::run(args),
        PlanCommand::Layout(args) => layout::run(args),
        PlanCommand::Limits(args) => limits::run(args),
        PlanCommand::Io500(args) => io500::run(args),
        PlanCommand::Runbook(args) => runbook::run(args),
    }?;
    Ok(ExitCode::SUCCESS)
}

/// Reads a text file.
pub fn read(path: &Path) -> Result<String, Error> {
    let file = || path.display().to_string();
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|opened| opened.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes))
        .map_err(|cause| Error::Read { file: file(), cause })?;
    let wrong = |cause: &str| Error::NoPlanText { file: file(), cause: cause.to_owned() };
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(wrong("no such file is larger than 4 MiB"));
    }
    String::from_utf8(bytes).map_err(|_| wrong("it is not text"))
}

/// A topology from a file or a preset.
pub fn topology(
    file: Option<&Path>,
    preset: Option<&str>,
) -> Result<Option<::plan::limits::Topology>, Error> {
    if let Some(name) = preset {
        return Ok(Some(::plan::limits::preset(name)?));
    }
    let Some(file) = file else { return Ok(None) };
    let wrap = |cause| Error::PlanFile { file: file.display().to_string(), cause };
    Ok(Some(::plan::limits::Topology::from_toml(&read(file)?).map_err(wrap)?))
}
