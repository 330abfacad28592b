//! `trunkline umount`: unmounts a mount of `trunkline mount`, and no other.

use crate::error::Error;
use crate::mount::registry;
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Unmount a directory that `trunkline mount` mounted.
///
/// Everything that programs have written and closed is on the server when the command returns.
#[derive(Debug, Args)]
pub struct UmountArgs {
    /// The mount point.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Unmount even if the directory is in use: it disappears at once, and the mount ends when no
    /// program uses it any more.
    #[arg(short, long)]
    lazy: bool,
}

/// Unmounts a directory.
pub fn run(args: &UmountArgs) -> Result<ExitCode, Error> {
    // If /proc cannot be read, the system call reports the error.
    if let Ok(found) = mount::mounted_type(&args.directory) {
        if found.as_deref() != Some(mount::FILE_SYSTEM) && end_waiting(&args.directory)? {
            return Ok(ExitCode::SUCCESS);
        }
        check_is_ours(found, &args.directory)?;
    }
    mount::unmount(&args.directory, args.lazy)?;
    Ok(ExitCode::SUCCESS)
}

/// Ends the mounts on a directory that still wait for their server. Returns whether there was one.
fn end_waiting(directory: &Path) -> Result<bool, Error> {
    let failed = |source| mount::Error::Unmount { directory: directory.to_owned(), source };
    registry::end_waiting(&mount::resolved_path(directory)).map_err(|source| failed(source).into())
}

/// Checks that the mount is one of `trunkline mount`.
fn check_is_ours(found: Option<String>, directory: &Path) -> Result<(), Error> {
    let refused = |cause: String, advice: String| {
        let sentence = format!("cannot unmount {}", directory.display());
        Err(Error::Refused { sentence, cause, advice })
    };
    match found {
        Some(found) if found == mount::FILE_SYSTEM => Ok(()),
        Some(found) => refused(
            format!("{found} is mounted there, not {}", mount::FILE_SYSTEM),
            format!("umount {}", directory.display()),
        ),
        None => refused(
            "it is not mounted".to_owned(),
            "trunkline status        to see what is mounted".to_owned(),
        ),
    }
}
