//! The options of `trunkline bench` for directories, and targets on the command line.

use crate::error::Error;
use ::bench::{EngineChoice, Experiment, is_target, is_target_of_clients};
use clap::{Args, ValueEnum};
use record::Procedure;
use std::path::PathBuf;

/// Options of routes to directories.
#[derive(Debug, Args)]
#[command(next_help_heading = "Directories")]
pub struct DirectoryArgs {
    /// What makes the load on directories: threads of this program, or the installed program fio
    /// [default: ours, so that records are comparable whether or not fio is installed].
    #[arg(long, value_name = "ENGINE")]
    engine: Option<EngineName>,
    /// Read and write through the page cache, not past it with O_DIRECT.
    #[arg(long)]
    buffered: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum EngineName {
    /// Threads of this program, one for each operation in flight.
    Ours,
    /// The installed program fio.
    Fio,
    /// fio where it is installed and new enough, and this machine makes the load; else our threads.
    /// The record says which.
    Auto,
}

impl DirectoryArgs {
    /// What makes the load, if the command line says.
    pub fn engine(&self) -> Option<EngineChoice> {
        self.engine.map(|engine| match engine {
            EngineName::Ours => EngineChoice::Ours,
            EngineName::Fio => EngineChoice::Fio,
            EngineName::Auto => EngineChoice::Auto,
        })
    }

    /// Whether the command line says what makes the load.
    pub fn has_engine(&self) -> bool {
        self.engine.is_some()
    }

    /// Whether an option is given.
    pub fn is_given(&self) -> bool {
        self.engine.is_some() || self.buffered
    }

    pub fn direct(&self) -> Option<bool> {
        self.buffered.then_some(false)
    }
}

/// The experiment of targets, if the arguments are targets: with `on_clients`, of clients.
pub fn experiment(
    arguments: &[PathBuf],
    on_clients: bool,
    procedure: Procedure,
) -> Result<Option<Experiment>, Error> {
    let is_target = if on_clients { is_target_of_clients } else { is_target };
    let texts: Vec<String> = arguments.iter().map(|it| it.to_string_lossy().into_owned()).collect();
    let (targets, others): (Vec<String>, Vec<String>) = texts.into_iter().partition(|text| is_target(text));
    match (targets.as_slice(), others.first()) {
        ([], _) => Ok(None),
        (targets, None) => Ok(Some(Experiment::on_targets(targets, procedure)?)),
        ([target, ..], Some(file)) => Err(Error::Usage {
            sentence: format!("cannot measure {target} and run {file} at once"),
            cause: "targets are measured with the built-in workloads, and a file has its own routes"
                .to_owned(),
            advice: "target = \"...\" of a [[route]] in an experiment file, or --map for a job file"
                .to_owned(),
        }),
    }
}
