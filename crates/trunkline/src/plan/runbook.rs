//! `trunkline plan runbook`: a folder with the commands for every machine of a site.
//!
//! The folder appears whole: it is written beside its place and renamed. With --force it takes the
//! place of an earlier runbook, and of nothing else: what steps have written there, such as the
//! settings that undo needs, is carried over.

use crate::error::Error;
use crate::output;
use ::runbook::{Artifact, INDEX, MARK, System};
use clap::Args;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Write the commands for every machine of a site, with how to verify and undo each step.
///
/// One site file becomes a folder of files that are ready to run: SMcli scripts, an Ansible
/// playbook and REST requests for an EF600, and steps for Linux hosts of NVMe-oF targets, for a
/// Spectrum Scale cluster, for a PowerScale cluster and its clients, and for Linux servers.
/// README.md in the folder says which step runs where and in which order. No file has a secret:
/// what needs one reads it when it runs.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct RunbookArgs {
    /// Site file (TOML).
    #[arg(value_name = "SITE.toml", required_unless_present = "init", conflicts_with = "init")]
    site: Option<PathBuf>,
    /// Directory for the files; it must not exist or be empty.
    #[arg(long, value_name = "DIR", required_unless_present = "init", conflicts_with = "init")]
    out: Option<PathBuf>,
    /// Replace the runbook that is in the directory.
    #[arg(long, conflicts_with = "init")]
    force: bool,
    /// Print a commented site file to start from: ef600, linux-host, scale, powerscale or
    /// linux-server.
    #[arg(long, value_name = "SYSTEM")]
    init: Option<System>,
}

const EXAMPLES: &str = "Examples:\n  \
    trunkline plan runbook --init ef600 > site.toml\n  \
    trunkline plan runbook site.toml --out runbook\n  \
    trunkline plan runbook site.toml --out runbook --force        after a change of the site file";

/// Prints a site file, or writes a runbook.
pub fn run(args: &RunbookArgs) -> Result<(), Error> {
    if let Some(system) = args.init {
        return output::print(system.site_file());
    }
    // clap requires both where there is no --init.
    let (Some(site), Some(out)) = (&args.site, &args.out) else { return Ok(()) };
    let text = super::read(site)?;
    let wrap = |cause| Error::Site { file: site.display().to_string(), cause: Box::new(cause) };
    let files = ::runbook::runbook(&text).map_err(wrap)?;
    write(out, &files, args.force)?;
    let (count, index) = (files.len(), out.join(INDEX));
    output::print_to_stderr(&format!("wrote {count} files; begin with {}\n", index.display()));
    Ok(())
}

/// Writes all files to a directory, or none.
fn write(out: &Path, files: &[Artifact], force: bool) -> Result<(), Error> {
    let wrap = |cause| Error::Write { file: out.display().to_string(), cause };
    let is_there = is_replaced(out, force)?;
    let part = beside(out).map_err(wrap)?;
    let written = fill(&part, files).and_then(|()| {
        if is_there {
            carry_over(out, &part)?;
            // The earlier runbook is at `part` then.
            renameat_with(CWD, &part, CWD, out, RenameFlags::EXCHANGE)?;
            fs::remove_dir_all(&part)
        } else {
            // An empty directory is replaced.
            fs::rename(&part, out)
        }
    });
    written.map_err(|cause| {
        // What remains is named as a part, and the cause is reported in any case.
        let _ = fs::remove_dir_all(&part);
        wrap(cause)
    })
}

/// Whether there is a runbook that is replaced. Refuses to write over anything else.
fn is_replaced(out: &Path, force: bool) -> Result<bool, Error> {
    let refuse = |cause: &str, advice: &str| {
        let sentence = format!("cannot write the runbook to {}", out.display());
        Err(Error::Refused { sentence, cause: cause.to_owned(), advice: advice.to_owned() })
    };
    let mut entries = match fs::read_dir(out) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            return refuse("it is not a directory", "another name");
        }
        Err(cause) => return Err(Error::Write { file: out.display().to_string(), cause }),
    };
    if entries.next().is_none() {
        return Ok(false);
    }
    if !force {
        return refuse(
            "the directory is not empty",
            "another directory, or --force        to replace a runbook",
        );
    }
    let index = fs::read_to_string(out.join(INDEX)).unwrap_or_default();
    if index.lines().next() != Some(MARK) {
        return refuse("what is in the directory is not a runbook", "another directory");
    }
    Ok(true)
}

/// A new directory on the same file system as another one.
fn beside(out: &Path) -> io::Result<PathBuf> {
    let parent = out.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(parent)?;
    let name = out.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let mut part = name.to_owned();
    part.push(format!(".{}.part", std::process::id()));
    let part = parent.join(part);
    fs::create_dir(&part)?;
    Ok(part)
}

/// Copies to a new runbook what is in an earlier one and not of it: its index names all files that
/// it had.
fn carry_over(earlier: &Path, new: &Path) -> io::Result<()> {
    let index = fs::read_to_string(earlier.join(INDEX))?;
    let mut directories = vec![PathBuf::new()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(earlier.join(&directory))? {
            let entry = entry?;
            let path = directory.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                directories.push(path);
                continue;
            }
            let is_of_it = index.contains(&format!("[{}]", path.display()));
            let target = new.join(&path);
            if path == Path::new(INDEX) || is_of_it || target.exists() {
                continue;
            }
            if let Some(parent) = target.parent() {
                fs::create_dir_all(parent)?;
            }
            fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}

/// Writes all files below a directory.
fn fill(directory: &Path, files: &[Artifact]) -> io::Result<()> {
    for file in files {
        let path = directory.join(&file.path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let mut opened = OpenOptions::new().write(true).create_new(true).mode(file.mode).open(&path)?;
        opened.write_all(file.text.as_bytes())?;
    }
    Ok(())
}
