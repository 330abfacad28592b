//! IO500 over routes: the real `io500` program runs in a directory of each route, one route after
//! the other, and its results are read and scored by `plan`.
//!
//! A server is mounted for its run: by our mount (`trunkline mount`) or, with `kernel:`, by the
//! kernel's client. io500 decides what is valid; a run whose write phases are shorter than 300 s is
//! not, and is marked so.

mod ini;
mod place;
mod suite;

use std::path::{Path, PathBuf};

use plan::io500::Run;

use self::place::Place;
pub use self::suite::Suite;
use crate::error::{Error, Result};
use crate::experiment::{Experiment, RouteSpec};
use crate::progress::Progress;
use crate::stop::Stop;
use crate::watch::Watch;

/// The shortest stonewall of a valid run, in seconds (io500.org, rules).
pub const SECONDS_VALID: u32 = 300;

/// How IO500 is run.
#[derive(Debug, Clone)]
pub struct Io500 {
    /// The routes.
    pub experiment: Experiment,
    /// The program, and what starts it.
    pub suite: Suite,
    /// The time after which each write phase may end, in seconds.
    pub seconds: u32,
    /// Further settings: the text of an ini file of io500.
    pub settings: String,
    /// A new directory for what io500 writes beside the data: a subdirectory for each route.
    pub results: PathBuf,
    /// This program, which mounts servers.
    pub program: PathBuf,
    /// Whether to show progress.
    pub progress: bool,
    /// Stops the run.
    pub stop: Stop,
}

/// A new directory for results.
#[must_use]
pub fn default_results() -> PathBuf {
    crate::run::new_name("-io500")
}

/// What a route yielded.
#[derive(Debug)]
pub struct RouteRun {
    /// The name of the route.
    pub route: String,
    /// The run; or why there is none.
    pub run: std::result::Result<Run, String>,
    /// What io500 wrote.
    pub results: PathBuf,
}

/// Makes a directory for the data of a run. Other hosts may run with the same process number in the
/// same place: their directories are theirs.
fn make_data_directory(place: &Path) -> std::io::Result<PathBuf> {
    const NAMES_MAX: u32 = 1000;
    for number in 0..NAMES_MAX {
        let path = place.join(format!("trunkline-io500-{}-{number}", std::process::id()));
        match std::fs::create_dir(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            made => return made.map(|()| path),
        }
    }
    Err(std::io::ErrorKind::AlreadyExists.into())
}

impl Io500 {
    /// Runs IO500 on each route.
    ///
    /// # Errors
    /// [`Error::Refused`] if it cannot run at all, [`Error::Stopped`] after a stop. A route that
    /// fails is no error: the others are still measured.
    pub fn run(&self) -> Result<Vec<RouteRun>> {
        // Wrong settings are found before anything is mounted.
        ini::write(&self.settings, Path::new(""), Path::new(""), self.seconds).map_err(|cause| {
            Error::refused(
                "cannot run IO500 with these settings",
                cause,
                "io500 --list        shows all settings",
            )
        })?;
        let progress = Progress::new(self.progress, self.stop.clone(), Watch::default());
        let runs = self.experiment.routes.iter().map(|route| self.route(route, &progress)).collect();
        progress.finish();
        runs
    }

    fn route(&self, route: &RouteSpec, progress: &Progress) -> Result<RouteRun> {
        progress.stage(&format!("IO500: {}", route.name), 1);
        let results = self.results.join(directory_name(&route.name));
        let made = |run| RouteRun { route: route.name.clone(), run, results: results.clone() };
        std::fs::create_dir_all(&results)
            .map_err(|cause| Error::Write { file: results.display().to_string(), cause })?;
        let results = std::path::absolute(&results).unwrap_or(results.clone());
        let place = match Place::open(route, &self.experiment, &self.program, &self.stop) {
            Ok(place) => place,
            Err(Error::Stopped) => return Err(Error::Stopped),
            Err(error) => return Ok(made(Err(error_chain(&error)))),
        };
        let data = match make_data_directory(&place.path()) {
            Ok(data) => data,
            Err(cause) => {
                let error = Error::directory(&route.name, &place.path(), "make a directory in", cause);
                return Ok(made(Err(error_chain(&error))));
            }
        };
        let measured = self.measure(route, &data, &results);
        let removed = std::fs::remove_dir_all(&data);
        let unmounted = place.close();
        progress.advance(1);
        match (measured, removed.and(unmounted)) {
            (Err(Error::Stopped), Err(cause)) => {
                let cause = Error::directory(&route.name, &data, "remove", cause);
                let directory = data.display().to_string();
                Err(Error::StoppedWithFiles { directory, cause: Box::new(cause) })
            }
            (Err(Error::Stopped), Ok(())) => Err(Error::Stopped),
            (Err(error), _) => Ok(made(Err(error_chain(&error)))),
            (Ok(mut run), removed) => {
                if let Err(error) = removed {
                    run.warnings
                        .push(format!("{} is not removed, or not unmounted: {error}", data.display()));
                }
                Ok(made(Ok(run)))
            }
        }
    }

    fn measure(&self, route: &RouteSpec, data: &Path, results: &Path) -> Result<Run> {
        let text = ini::write(&self.settings, data, results, self.seconds).map_err(|cause| {
            Error::refused("cannot write the settings of IO500", cause, "another directory")
        })?;
        let settings = results.join("trunkline.ini");
        std::fs::write(&settings, text)
            .map_err(|cause| Error::Write { file: settings.display().to_string(), cause })?;
        let summary = self.suite.run(&settings, results, &self.stop)?;
        plan::io500::read(&route.name, &summary).map_err(|cause| {
            Error::refused("cannot read what IO500 wrote", cause.to_string(), "an io500 of SC20 or later")
        })
    }
}

/// The name of a route as that of a directory.
fn directory_name(route: &str) -> String {
    let name: String = route.chars().map(|it| if it == '/' { '_' } else { it }).collect();
    if name.starts_with('.') { format!("_{name}") } else { name }
}

fn error_chain(error: &Error) -> String {
    let causes = std::iter::successors(Some(error as &dyn std::error::Error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
