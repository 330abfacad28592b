//! `trunkline block own`: gives a volume to a node of a running server.

use super::document::{self, OWN, Server, Which};
use super::show::json;
use crate::error::Error;
use crate::output;
use clap::{Args, ValueEnum};
use std::process::ExitCode;

/// Give a volume to a node of a running server. Hosts learn at once which addresses are the best
/// way to it, and their commands go on. For a file or device this also counts after the next start,
/// unless the configuration file says otherwise.
#[derive(Debug, Args)]
pub struct OwnArgs {
    /// The number of the namespace, as `trunkline block list` shows it.
    #[arg(value_name = "NSID")]
    nsid: u32,
    /// The node.
    #[arg(value_name = "NODE", ignore_case = true)]
    node: NodeName,
    #[command(flatten)]
    which: Which,
    /// Print JSON: the volume, as an object of `trunkline block list --json`. While it moves
    /// between two processes, its `reach` is `moving`.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum NodeName {
    #[value(name = "A")]
    A,
    #[value(name = "B")]
    B,
}

pub fn run(args: &OwnArgs) -> Result<ExitCode, Error> {
    let server = args.which.server()?;
    let node = if args.node == NodeName::A { "A" } else { "B" };
    let text = document::order(server.pid, &format!("{OWN} {} {node}", args.nsid))?;
    let text = if args.json { volume(&args.which.server()?, args.nsid) } else { text };
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// A volume as JSON.
fn volume(server: &Server, nsid: u32) -> String {
    json(&server.volumes.iter().find(|volume| volume.nsid == nsid))
}
