//! `trunkline block`: block volumes for hosts, over NVMe over Fabrics. The crate `target` serves
//! them, `initiator` and `attach` take them as disks; this module converts the command line, and
//! asks a running server what it serves.

mod attach;
mod check;
mod create;
mod difference;
mod document;
mod fence;
mod own;
mod secret;
mod serve;
mod show;

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
    Create(create::CreateArgs),
    List(show::ListArgs),
    Map(show::MapArgs),
    Hosts(show::HostsArgs),
    Own(own::OwnArgs),
    Fence(fence::FenceArgs),
    Unfence(fence::UnfenceArgs),
    Fenced(fence::FencedArgs),
    Check(check::CheckArgs),
    Dump(show::DumpArgs),
    Attach(attach::AttachArgs),
}

/// Runs a subcommand of `trunkline block`.
pub fn run(args: &BlockArgs) -> Result<ExitCode, Error> {
    match &args.command {
        BlockCommand::Serve(args) => serve::run(args),
        BlockCommand::Create(args) => create::run(args),
        BlockCommand::List(args) => show::list(args),
        BlockCommand::Map(args) => show::map(args),
        BlockCommand::Hosts(args) => show::hosts(args),
        BlockCommand::Own(args) => own::run(args),
        BlockCommand::Fence(args) => fence::fence(args),
        BlockCommand::Unfence(args) => fence::unfence(args),
        BlockCommand::Fenced(args) => fence::fenced(args),
        BlockCommand::Check(args) => check::run(args),
        BlockCommand::Dump(args) => show::dump(args),
        BlockCommand::Attach(args) => attach::run(args),
    }
}
