//! `trunkline block`: block volumes for hosts, over NVMe over Fabrics. The crate `target` serves
//! them, `initiator` and `attach` take them as disks; this module converts the command line.

mod attach;
mod serve;

use crate::error::Error;
use clap::{Args, Subcommand};
use std::process::ExitCode;

/// Block volumes for hosts, over NVMe over Fabrics.
#[derive(Debug, Args)]
pub struct BlockArgs {
    #[command(subcommand)]
    command: BlockCommand,
}

#[derive(Debug, Subcommand)]
enum BlockCommand {
    Serve(serve::ServeArgs),
    Attach(attach::AttachArgs),
}

/// Runs a subcommand of `trunkline block`.
pub fn run(args: &BlockArgs) -> Result<ExitCode, Error> {
    match &args.command {
        BlockCommand::Serve(args) => serve::run(args),
        BlockCommand::Attach(args) => attach::run(args),
    }
}
