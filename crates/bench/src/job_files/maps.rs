//! Which server stands for which directory of a job file.

use std::path::Path;

use fio::JobFile;

use crate::error::{Error, Result};
use crate::experiment::Target;
use crate::targets;

const FORM: &str = "--map /mnt/tcp=nfs://HOST/EXPORT?OPTIONS, --map /mnt/tcp=group:?OPTIONS, \
                    --map /mnt/tcp=kernel:nfs://HOST/EXPORT?OPTIONS, or --map /mnt/tcp=/DIRECTORY";

/// A directory and what stands for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Map {
    /// The directory, normalised; `.` is where relative names begin.
    pub(super) directory: String,
    /// The server.
    pub(super) target: Target,
    /// Mount options.
    pub(super) options: String,
}

impl Map {
    /// Reads `DIRECTORY=TARGET`.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let refuse = |cause: &str| Error::refused(format!("cannot use --map {text}"), cause, FORM);
        let (directory, target) =
            text.split_once('=').ok_or_else(|| refuse("there is no `=` between directory and target"))?;
        let directory =
            normal(directory).ok_or_else(|| refuse("the directory is empty or has `..` in it"))?;
        let mut parsed = targets::parse(target).map_err(|cause| refuse(&cause))?;
        if let Target::Embedded { mem_bytes, .. } = &mut parsed.target {
            // The files of the job files decide.
            *mem_bytes = 0;
        }
        Ok(Self { directory, target: parsed.target, options: parsed.options })
    }

    /// Whether a file, whose name is normalised, is below the directory.
    fn covers(&self, file: &str) -> bool {
        match self.directory.as_str() {
            "." => !file.starts_with('/'),
            "/" => file.starts_with('/'),
            directory => file.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/')),
        }
    }
}

/// Refuses maps that contradict each other.
pub(super) fn check(maps: &[Map]) -> Result<()> {
    let mut nodes = maps.iter().filter_map(|map| match map.target {
        Target::Embedded { nodes, .. } => Some(nodes),
        Target::Server(_) | Target::Directory(_) | Target::Kernel(_) | Target::Volume(_) => None,
    });
    if let Some(first) = nodes.next()
        && let Some(other) = nodes.find(|other| *other != first)
    {
        return Err(Error::refused(
            format!("cannot use groups of {first} and of {other} nodes"),
            "all routes to an embedded group use the same group",
            format!("group:{} in each --map", first.max(other)),
        ));
    }
    for (index, map) in maps.iter().enumerate() {
        if maps.iter().take(index).any(|other| other.directory == map.directory) {
            return Err(Error::refused(
                format!("two --map for {}", map.directory),
                "a job file is one route",
                "a copy of the job file with another directory for the other target",
            ));
        }
    }
    Ok(())
}

/// The map of a job file: the same for all of its files.
pub(super) fn of_file<'a>(path: &Path, jobs: &JobFile, maps: &'a [Map]) -> Result<&'a Map> {
    let mut found: Option<&Map> = None;
    for job in jobs.phases.iter().flat_map(|phase| &phase.jobs) {
        for file in job.instances.iter().flat_map(|instance| &instance.files) {
            let refuse = |cause: String, advice: String| Error::JobFile {
                file: path.display().to_string(),
                cause: fio::Error { line: job.line, column: 1, cause, advice },
            };
            let name = normal(&file.path).ok_or_else(|| {
                refuse(format!("the file {} is above its directory", file.path), "a name without `..`".into())
            })?;
            // The innermost directory decides.
            let covering = maps.iter().filter(|map| map.covers(&name)).max_by_key(|map| map.directory.len());
            let Some(map) = covering else {
                let directory = match name.rsplit_once('/') {
                    Some(("", _)) => "/",
                    Some((directory, _)) => directory,
                    None => ".",
                };
                let cause = format!("no --map covers the file {} of the job {}", file.path, job.name);
                return Err(refuse(cause, format!("--map {directory}=nfs://HOST/EXPORT, or ={}", "group:")));
            };
            if let Some(other) = found.filter(|other| *other != map) {
                let cause = format!("files of {} and of {} in one job file", other.directory, map.directory);
                return Err(refuse(cause, "a job file for each directory: each is one route".into()));
            }
            found = Some(map);
        }
    }
    found.ok_or_else(|| Error::refused(path.display().to_string(), "it has no file", "filename=NAME"))
}

/// A name without empty parts and `.`; `None` if it has `..` or is empty.
fn normal(name: &str) -> Option<String> {
    let parts: Vec<&str> = name.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    if parts.contains(&"..") || name.is_empty() {
        return None;
    }
    let joined = parts.join("/");
    Some(match (name.starts_with('/'), joined.as_str()) {
        (true, _) => format!("/{joined}"),
        (false, "") => ".".to_owned(),
        (false, _) => joined,
    })
}
