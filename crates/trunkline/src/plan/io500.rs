//! `trunkline plan io500`: scores of IO500 runs, phase by phase, with the limits of their topology.

use crate::error::Error;
use crate::output;
use ::plan::{io500, limits, show};
use clap::Args;
use std::path::PathBuf;

/// The maximum number of runs that fit side by side.
const RUNS_MAX: usize = 8;

/// Compute the scores of IO500 runs, and compare the runs with each other and with the limits of
/// their topology.
///
/// Reads the files that IO500 writes: result_summary.txt (which is also its output) and result.txt,
/// and the summaries of its shell script from before SC20. A single topology applies to all runs;
/// several apply to the runs in their order.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Io500Args {
    /// result_summary.txt or result.txt of each run.
    #[arg(value_name = "RESULT", required = true)]
    results: Vec<PathBuf>,
    /// Topology of the runs, as for plan limits; may be repeated, once for each run.
    #[arg(long, value_name = "TOPOLOGY.toml", conflicts_with = "preset")]
    topology: Vec<PathBuf>,
    /// Predefined topology, as for plan limits; may be repeated, once for each run.
    #[arg(long, value_name = "NAME")]
    preset: Vec<String>,
    /// Print JSON, not rounded.
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "Examples:\n  \
    trunkline plan io500 result_summary.txt\n  \
    trunkline plan io500 ddp24.txt raid6-20.txt --preset ef600-ddp24 --preset ef600-raid6-20\n  \
    trunkline plan io500 before/result.txt after/result.txt --topology mine.toml --json";

/// Compares runs.
pub fn run(args: &Io500Args) -> Result<(), Error> {
    let given = args.topology.len() + args.preset.len();
    if args.results.len() > RUNS_MAX || (given > 1 && given != args.results.len()) {
        let cause = if given > 1 {
            format!("{given} topologies for {} runs: give one for all, or one for each", args.results.len())
        } else {
            format!("at most {RUNS_MAX} runs stand beside each other")
        };
        return Err(Error::Usage {
            sentence: "cannot compare these runs".to_owned(),
            cause,
            advice: "trunkline plan io500 A.txt B.txt --preset ef600-ddp24 --preset ef600-raid6-20"
                .to_owned(),
        });
    }
    let mut runs = Vec::new();
    for file in &args.results {
        let name = file.display().to_string();
        let text = super::read(file)?;
        runs.push(io500::read(&name, &text).map_err(|cause| Error::PlanFile { file: name, cause })?);
    }
    let mut found = Vec::new();
    for file in &args.topology {
        found.extend(super::topology(Some(file), None)?);
    }
    for name in &args.preset {
        found.extend(super::topology(None, Some(name))?);
    }
    let found = found.iter().map(limits::limits).collect::<Result<Vec<_>, _>>()?;
    let comparison = io500::compare(runs, &found);
    let text =
        if args.json { show::json(&comparison) } else { show::runs(&comparison, output::stdout_columns()) };
    output::print(&text)
}
