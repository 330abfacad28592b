//! `trunkline umount`: ends a mount.

use crate::error::Error;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

/// Unmount a directory.
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
    mount::unmount(&args.directory, args.lazy)?;
    Ok(ExitCode::SUCCESS)
}
