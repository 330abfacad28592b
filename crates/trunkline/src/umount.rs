//! `trunkline umount`: ends a mount of ours, and no other.

use crate::error::Error;
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Unmount a directory that `trunkline mount` mounted.
///
/// What programs have written and closed is on the server by then.
#[derive(Debug, Args)]
pub struct UmountArgs {
    /// The directory.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Even if it is in use: it disappears at once, and ends when nobody uses it any more.
    #[arg(short, long)]
    lazy: bool,
}

/// Unmounts.
pub fn run(args: &UmountArgs) -> Result<ExitCode, Error> {
    // Where proc(5) cannot be read, the system says what it says.
    if let Ok(found) = mount::mounted_type(&args.directory) {
        hold_ours(found, &args.directory)?;
    }
    mount::unmount(&args.directory, args.lazy)?;
    Ok(ExitCode::SUCCESS)
}

/// Holds that what is mounted there is ours.
fn hold_ours(found: Option<String>, directory: &Path) -> Result<(), Error> {
    let refused = |cause: String, advice: String| {
        let sentence = format!("cannot unmount {}", directory.display());
        Err(Error::Unmountable { sentence, cause, advice })
    };
    match found {
        Some(found) if found == mount::FILE_SYSTEM => Ok(()),
        Some(found) => refused(
            format!("{found} is mounted there, not {}", mount::FILE_SYSTEM),
            format!("umount {}", directory.display()),
        ),
        None => refused(
            "it is not mounted".to_owned(),
            "findmnt -t fuse.trunkline        to see what is mounted".to_owned(),
        ),
    }
}
