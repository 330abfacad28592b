//! IO500 over routes: the real `io500` program runs in a directory of each route, one route after
//! the other, and its results are read and scored by `plan`.
//!
//! A server is mounted for its run: by our mount (`trunkline mount`) or, with `kernel:`, by the
//! kernel's client. io500 decides what is valid; a run whose write phases are shorter than 300 s is
//! not, and is marked so.

mod ini;
mod place;
mod suite;

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use plan::io500::Run;

use self::place::Place;
pub use self::suite::Suite;
use crate::error::{Error, Result};
use crate::experiment::{Experiment, RouteSpec};
use crate::progress::Progress;
use crate::remains::Made;
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

/// What all routes yielded.
#[derive(Debug)]
pub struct Runs {
    /// The routes, in their order.
    pub routes: Vec<RouteRun>,
    /// Why the last ones have no run, if a stop came before their end.
    pub ended_early: Option<EndedEarly>,
}

/// A stop after some routes, whose runs are kept.
#[derive(Debug)]
pub struct EndedEarly {
    /// The route that was running.
    pub during: String,
    /// The routes that had not begun.
    pub not_run: Vec<String>,
    /// [`Error::Stopped`], or [`Error::StoppedWithFiles`] if its files are not removed.
    pub cause: Error,
}

impl EndedEarly {
    /// The same as a sentence for the comparison.
    #[must_use]
    pub fn note(&self) -> String {
        let not_run = match self.not_run.as_slice() {
            [] => String::new(),
            names => format!("; not run: {}", names.join(", ")),
        };
        format!("ended early by a signal, while {} ran, which has no result{not_run}", self.during)
    }
}

/// Makes a directory for the data of a run, closed to other users. Other hosts may run with the
/// same process number in the same place: their directories are theirs.
fn make_data_directory(place: &Path) -> std::io::Result<PathBuf> {
    const NAMES_MAX: u32 = 1000;
    for number in 0..NAMES_MAX {
        let path = place.join(format!("trunkline-io500-{}-{number}", std::process::id()));
        match std::fs::DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            made => return made.map(|()| path),
        }
    }
    Err(std::io::ErrorKind::AlreadyExists.into())
}

impl Io500 {
    /// Runs IO500 on each route. A stop ends it; what was measured until then is kept.
    ///
    /// # Errors
    /// [`Error::Refused`] if it cannot run at all, [`Error::Stopped`] after a stop before the first
    /// result. A route that fails is no error: the others are still measured.
    pub fn run(&self) -> Result<Runs> {
        // Wrong settings are found before anything is mounted.
        ini::write(&self.settings, Path::new(""), Path::new(""), self.seconds).map_err(|cause| {
            Error::refused(
                "cannot run IO500 with these settings",
                cause,
                "io500 --list        shows all settings",
            )
        })?;
        let progress = Progress::new(self.progress, self.stop.clone(), Watch::default());
        let runs = self.routes(|route| self.route(route, &progress));
        progress.finish();
        runs
    }

    /// The runs of all routes, or those before a stop.
    fn routes(&self, mut run: impl FnMut(&RouteSpec) -> Result<RouteRun>) -> Result<Runs> {
        let mut runs = Runs { routes: Vec::new(), ended_early: None };
        let mut routes = self.experiment.routes.iter();
        while let Some(route) = routes.next() {
            match run(route) {
                Ok(run) => runs.routes.push(run),
                Err(cause @ (Error::Stopped | Error::StoppedWithFiles { .. }))
                    if runs.routes.iter().any(|it| it.run.is_ok()) =>
                {
                    let not_run = routes.map(|route| route.name.clone()).collect();
                    let during = route.name.clone();
                    runs.ended_early = Some(EndedEarly { during, not_run, cause });
                    return Ok(runs);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(runs)
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
        let _entry = self.stop.remains().add(Made::Directory(data.clone()));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn on(names: &[&str]) -> Io500 {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("io500");
        std::fs::write(&program, "").unwrap();
        let executable = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o755);
        std::fs::set_permissions(&program, executable).unwrap();
        let mut experiment = Experiment::built_in(record::Procedure::Quick);
        experiment.routes =
            names.iter().map(|name| RouteSpec { name: (*name).into(), ..RouteSpec::default() }).collect();
        Io500 {
            experiment,
            suite: Suite::find(Some(directory.path()), &[]).unwrap(),
            seconds: SECONDS_VALID,
            settings: String::new(),
            results: PathBuf::new(),
            program: PathBuf::new(),
            progress: false,
            stop: Stop::default(),
        }
    }

    /// A route with a run, without one, or during which a stop came.
    fn outcome(route: &RouteSpec) -> Result<RouteRun> {
        let made = |run| Ok(RouteRun { route: route.name.clone(), run, results: PathBuf::new() });
        let summary = "[RESULT] find 1.0 kIOPS : time 1.0 seconds\n[SCORE ] Bandwidth 1 GiB/s : IOPS 1 kiops : TOTAL 1\n";
        match route.name.as_str() {
            "good" => made(Ok(plan::io500::read("good", summary).unwrap())),
            "bad" => made(Err("no".into())),
            _ => Err(Error::Stopped),
        }
    }

    #[test]
    fn runs_before_a_stop_are_kept_and_the_others_are_named() {
        let runs = on(&["bad", "good", "stopped", "x", "y"]).routes(outcome).unwrap();
        let names: Vec<_> = runs.routes.iter().map(|run| (run.route.as_str(), run.run.is_ok())).collect();
        assert_eq!(names, [("bad", false), ("good", true)]);
        let early = runs.ended_early.unwrap();
        let note = "ended early by a signal, while stopped ran, which has no result; not run: x, y";
        assert_eq!(early.note(), note);
        let all = on(&["good", "bad"]).routes(outcome).unwrap();
        assert!(all.ended_early.is_none() && all.routes.len() == 2);
    }

    #[test]
    fn a_stop_before_the_first_result_keeps_nothing() {
        assert!(matches!(on(&["stopped", "good"]).routes(outcome), Err(Error::Stopped)));
        assert!(matches!(on(&["bad", "stopped"]).routes(outcome), Err(Error::Stopped)));
    }
}
