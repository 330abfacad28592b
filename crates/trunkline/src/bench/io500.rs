//! `trunkline bench --io500`: runs IO500 on each route, and shows the runs beside each other.

use crate::error::Error;
use crate::{output, plan as plan_command};
use ::bench::io500::{EndedEarly, Io500, RouteRun, Runs, SECONDS_VALID, Suite};
use ::bench::{Experiment, Stop};
use ::plan::limits::{self, Limits};
use ::plan::{io500, show};
use clap::Args;
use record::Procedure;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Options of IO500.
#[derive(Debug, Args)]
#[command(next_help_heading = "IO500")]
pub struct Io500Args {
    /// Run the real io500 program on each route instead of workloads, and compare the runs. Servers
    /// are mounted for it.
    #[arg(long)]
    io500: bool,
    /// The directory of the io500 program, as its prepare.sh builds it [default: the PATH].
    #[arg(long, value_name = "DIR", requires = "io500")]
    suite_dir: Option<PathBuf>,
    /// The command that starts the processes of io500: "mpirun -np 4" [default: one process].
    #[arg(long, value_name = "COMMAND", requires = "io500")]
    mpirun: Option<String>,
    /// The time of each write phase in seconds; a run of less than 300 is marked as invalid.
    #[arg(long, value_name = "SECONDS", requires = "io500", default_value_t = SECONDS_VALID,
          value_parser = clap::value_parser!(u32).range(1..=86_400))]
    io500_seconds: u32,
    /// Further settings of io500: an ini file, as `io500 --list` shows them.
    #[arg(long, value_name = "FILE", requires = "io500")]
    io500_ini: Option<PathBuf>,
    /// Write what io500 writes below this new directory [default: one under ./trunkline-results/].
    #[arg(long, value_name = "DIR", requires = "io500")]
    io500_results: Option<PathBuf>,
    /// Show the limits of this topology beside each phase, as `trunkline plan io500` does.
    #[arg(long, value_name = "TOPOLOGY.toml", requires = "io500", conflicts_with = "preset")]
    topology: Option<PathBuf>,
    /// Show the limits of this predefined topology beside each phase.
    #[arg(long, value_name = "NAME", requires = "io500")]
    preset: Option<String>,
    /// Compare with two published runs, each beside the limits of its own topology.
    #[arg(long, requires = "io500")]
    published: bool,
}

impl Io500Args {
    /// Whether IO500 is asked for.
    pub fn is_given(&self) -> bool {
        self.io500
    }

    /// Runs IO500 on the routes of these arguments: targets, or one experiment file.
    pub fn run(&self, arguments: &[PathBuf], targets: Option<Experiment>) -> Result<ExitCode, Error> {
        let experiment = match (targets, arguments) {
            (Some(experiment), _) => experiment,
            (None, [file]) => Experiment::from_file(file, Procedure::Standard)?,
            (None, _) => {
                return Err(Error::Usage {
                    sentence: "cannot run IO500 on this".to_owned(),
                    cause: "it runs on targets, or on the routes of one experiment file".to_owned(),
                    advice: "trunkline bench --io500 /mnt/tcp nfs://HOST/EXPORT".to_owned(),
                });
            }
        };
        let topology = plan_command::topology(self.topology.as_deref(), self.preset.as_deref())?;
        let own_limits = topology.as_ref().map(limits::limits).transpose()?;
        let settings = self.io500_ini.as_deref().map(plan_command::read).transpose()?.unwrap_or_default();
        let words = self.mpirun.iter().flat_map(|command| command.split_whitespace());
        let launcher: Vec<String> = words.map(str::to_owned).collect();
        let suite = Suite::find(self.suite_dir.as_deref(), &launcher)?;
        let results = self.results()?;
        let stop = Stop::default();
        let run = Io500 {
            experiment,
            suite,
            seconds: self.io500_seconds,
            settings,
            results: results.clone(),
            program: std::env::current_exe()
                .map_err(|cause| Error::Read { file: "/proc/self/exe".to_owned(), cause })?,
            progress: io::stderr().is_terminal(),
            stop: stop.clone(),
        };
        let watch = super::watch_signals(&stop)?;
        let runs = super::beside_the_main_thread(|| run.run());
        let signal = u8::try_from(watch.end()).unwrap_or_default();
        let runs = runs.map_err(|error| super::interrupted(error, signal))?;
        let status = self.show(&runs, own_limits, &results)?;
        match runs.ended_early {
            None => Ok(status),
            Some(early) => Err(ended_early(early, &results, signal)),
        }
    }

    /// The new directory for results.
    fn results(&self) -> Result<PathBuf, Error> {
        let directory = self.io500_results.clone().unwrap_or_else(::bench::io500::default_results);
        if directory.exists() {
            return Err(Error::Usage {
                sentence: format!("cannot write to {}", directory.display()),
                cause: "it exists, and may have the results of another run".to_owned(),
                advice: "--io500-results with a new directory".to_owned(),
            });
        }
        Ok(directory)
    }

    /// Prints the runs beside each other, and writes them as JSON.
    fn show(&self, runs: &Runs, own: Option<Limits>, results: &Path) -> Result<ExitCode, Error> {
        let (mut shown, mut limits, mut failed) = (Vec::new(), Vec::new(), Vec::new());
        for RouteRun { route, run, .. } in &runs.routes {
            match run {
                Ok(run) => {
                    shown.push(run.clone());
                    limits.push(own.clone());
                }
                Err(reason) => failed.push(format!("{route}: {reason}")),
            }
        }
        if self.published && !shown.is_empty() {
            for (run, preset) in io500::published()? {
                shown.push(run);
                limits.push(Some(limits::limits(&limits::preset(preset)?)?));
            }
        }
        let mut text = String::new();
        if !shown.is_empty() {
            let mut comparison = io500::compare_each(shown, &limits);
            comparison.notes.extend(runs.ended_early.as_ref().map(EndedEarly::note));
            let file = results.join("comparison.json");
            output::write_new(&file, &show::json(&comparison))?;
            text = format!("{}\n", show::runs(&comparison, output::stdout_columns()));
        }
        for reason in &failed {
            text.push_str(&format!("FAILED: {reason}\n"));
        }
        text.push_str(&format!("results {}\n", results.display()));
        output::print(&text)?;
        Ok(if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// The error of a signal after some routes have finished.
fn ended_early(early: EndedEarly, results: &Path, signal: u8) -> Error {
    let kept = format!("the finished runs are in {}", results.join("comparison.json").display());
    match super::interrupted(early.cause, signal) {
        Error::BenchInterrupted { remains, advice, signal } => {
            let (remains, advice) = match remains.strip_suffix(super::NO_RECORD) {
                // Nothing is left to do but to measure the others.
                Some(remains) => (remains.to_owned(), "the same with the other routes".to_owned()),
                None => (remains.replace(super::NO_RECORD, ""), advice),
            };
            Error::BenchInterrupted { remains: format!("{kept}; {remains}"), advice, signal }
        }
        error => error,
    }
}
