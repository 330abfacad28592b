//! The options of `trunkline bench` for fio job files.

use crate::error::Error;
use crate::output;
use ::bench::{JobFiles, Measured, Plan};
use clap::Args;
use record::Procedure;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Options of fio job files.
#[derive(Debug, Args)]
#[command(next_help_heading = "fio job files")]
pub struct JobFileArgs {
    /// Which server stands for a directory of the job files: /mnt/tcp=nfs://HOST/EXPORT?OPTIONS,
    /// group:?OPTIONS for an embedded group of four nodes, kernel:nfs://HOST/EXPORT?OPTIONS for a
    /// mount by the kernel's client, or /mnt/tcp=/mnt/tcp for that directory itself. `.` is the
    /// directory of relative names.
    #[arg(long, value_name = "DIRECTORY=TARGET")]
    map: Vec<String>,
    /// Scale the sizes of all files down so that they fit together into this room: 2GiB.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    shrink: Option<u64>,
    /// Run each phase for this time instead of the job file's `runtime`: 5s, 500ms.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    runtime: Option<Duration>,
    /// Write the results also as fio's JSON (json+) to this file; with several job files, to one
    /// file for each, with the route's name before the extension. With fio:HOST, what fio printed.
    #[arg(long, value_name = "FILE")]
    fio_json: Option<PathBuf>,
}

impl JobFileArgs {
    /// The first option that is given.
    fn given(&self) -> Option<&'static str> {
        let options = [
            ("--map", !self.map.is_empty()),
            ("--shrink", self.shrink.is_some()),
            ("--runtime", self.runtime.is_some()),
        ];
        let of_plan = options.into_iter().find(|(_, given)| *given).map(|(name, _)| name);
        of_plan.or(self.fio_json.is_some().then_some(FIO_JSON))
    }
}

const FIO_JSON: &str = "--fio-json";

impl JobFileArgs {
    /// Refuses options that fio does not have, if fio runs the job file.
    pub fn refuse_with_fio(&self) -> Result<(), Error> {
        match self.given().filter(|option| *option != FIO_JSON) {
            None => Ok(()),
            Some(option) => Err(usage(
                format!("{option} does not go with fio:HOST"),
                "fio runs the job file as it is, in the directories that it names",
                "the job file itself, or trunkline agent on these hosts",
            )),
        }
    }
}

impl JobFileArgs {
    /// Checks that the file of `--fio-json` can be written, before fio runs.
    pub fn check_results_of_fio(&self, force: bool) -> Result<(), Error> {
        let Some(file) = &self.fio_json else { return Ok(()) };
        output::spare(file, force)?;
        output::check_writable(file)
    }

    /// Writes what fio printed, if asked.
    pub fn write_results_of_fio(&self, json: &str) -> Result<(), Error> {
        let Some(file) = &self.fio_json else { return Ok(()) };
        output::write(file, &format!("{json}\n"))
    }
}

impl JobFileArgs {
    /// Refuses options of job files beside IO500.
    pub fn refuse_with_io500(&self) -> Result<(), Error> {
        match self.given() {
            None => Ok(()),
            Some(option) => Err(usage(
                format!("{option} does not go with --io500"),
                "io500 makes its own load",
                "trunkline bench --io500 TARGET",
            )),
        }
    }

    /// Refuses options of job files beside targets.
    pub fn refuse_with_targets(&self) -> Result<(), Error> {
        match self.given() {
            None => Ok(()),
            Some(option) => Err(usage(
                format!("{option} is for fio job files"),
                "the targets are measured with the built-in workloads",
                "trunkline bench --map DIRECTORY=TARGET JOB.fio",
            )),
        }
    }
}

fn size(text: &str) -> Result<u64, String> {
    server::config::size::parse_bytes(text).map_err(|error| error.to_string())
}

/// A time above zero: `5s`, `500ms`, `2m`, or seconds.
fn duration(text: &str) -> Result<Duration, String> {
    let end = text.find(|it: char| !it.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let scale_ms = match unit {
        "ms" => 1,
        "" | "s" => 1000,
        "m" => 60_000,
        _ => return Err("a time as in 5s, 500ms or 2m".to_owned()),
    };
    let number = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(scale_ms));
    match number {
        Some(ms @ 1..=86_400_000) => Ok(Duration::from_millis(ms)),
        _ => Err("a time of 1 ms to a day, as in 5s".to_owned()),
    }
}

/// Whether a file is a fio job file by its name.
fn is_job_file(file: &Path) -> bool {
    let extension = file.extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|extension| ["fio", "job", "ini"].contains(&extension))
}

/// The plan of the job files, if the files are job files. Prints what in them changes nothing.
pub fn plan(
    files: &[PathBuf],
    args: &JobFileArgs,
    repeats: Option<u32>,
    procedure: Procedure,
) -> Result<Option<Plan>, Error> {
    if !files.iter().any(|file| is_job_file(file)) {
        return match (files, args.given()) {
            ([] | [_], None) => Ok(None),
            (_, Some(option)) => Err(usage(
                format!("{option} is for fio job files"),
                "none of the files is named *.fio, *.job or *.ini",
                "trunkline bench --map DIRECTORY=TARGET JOB.fio",
            )),
            (_, None) => Err(usage(
                format!("cannot run {} experiments at once", files.len()),
                "an experiment file has all of its routes",
                "one EXPERIMENT.toml, or several JOB.fio",
            )),
        };
    }
    if let Some(other) = files.iter().find(|file| !is_job_file(file)) {
        return Err(usage(
            format!("cannot run {} with fio job files", other.display()),
            "it is not named *.fio, *.job or *.ini",
            "only job files, or only one EXPERIMENT.toml",
        ));
    }
    let job_files = JobFiles {
        files: files.to_vec(),
        maps: args.map.clone(),
        shrink_bytes: args.shrink,
        runtime: args.runtime,
        repeats,
        procedure,
        details: args.fio_json.is_some(),
    };
    let plan = job_files.plan()?;
    for note in &plan.notes {
        output::print_to_stderr(&format!("note: {note}\n"));
    }
    Ok(Some(plan))
}

/// Checks that the files of `--fio-json` can be written, before the work begins.
pub fn check_results(plan: &Plan, args: &JobFileArgs, force: bool) -> Result<(), Error> {
    for (_, file) in result_files(plan, args) {
        output::spare(&file, force)?;
        output::check_writable(&file)?;
    }
    Ok(())
}

/// Writes the results as fio's JSON, if asked.
pub fn write_results(plan: &Plan, args: &JobFileArgs, measured: &Measured) -> Result<(), Error> {
    let texts = plan.fio_json(measured);
    let find = |route: &str| texts.iter().find(|(name, _)| name == route);
    for (route, file) in result_files(plan, args) {
        if let Some((_, text)) = find(&route) {
            output::write(&file, text)?;
        }
    }
    Ok(())
}

/// The routes and their files of results.
fn result_files(plan: &Plan, args: &JobFileArgs) -> Vec<(String, PathBuf)> {
    let Some(file) = &args.fio_json else { return Vec::new() };
    let routes = &plan.experiment.routes;
    let name = |route: &str| match routes.len() {
        1 => file.clone(),
        _ => {
            let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let extension =
                file.extension().map_or_else(String::new, |it| format!(".{}", it.to_string_lossy()));
            file.with_file_name(format!("{stem}-{route}{extension}"))
        }
    };
    routes.iter().map(|route| (route.name.clone(), name(&route.name))).collect()
}

fn usage(sentence: String, cause: &str, advice: &str) -> Error {
    Error::Usage { sentence, cause: cause.to_owned(), advice: advice.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_unit_and_bounds() {
        for (text, ms) in [("5s", 5000), ("5", 5000), ("500ms", 500), ("2m", 120_000)] {
            assert_eq!(duration(text), Ok(Duration::from_millis(ms)));
        }
        for text in ["", "s", "0s", "1.5s", "5h", "-1", "99999999999999999999s", "2d"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn job_files_are_told_by_their_names() {
        for (file, is) in
            [("a.fio", true), ("b/c.job", true), ("x.ini", true), ("a.toml", false), ("fio", false)]
        {
            assert_eq!(is_job_file(Path::new(file)), is, "{file}");
        }
    }
}
