//! `trunkline mkdir`: makes directories on a server.

use crate::error::Error;
use crate::remote::{LOCATION_HELP, LastName, Location, MountArgs};
use clap::Args;
use client::Mount;
use fs::{FileHandle, FileKind, SetAttributes, Status};
use std::process::ExitCode;

/// Make directories on an NFS server.
#[derive(Debug, Args)]
#[command(long_about = format!("Make directories on an NFS server.\n\n{LOCATION_HELP}"), after_help = EXAMPLES)]
pub struct MkdirArgs {
    /// What to make: nfs://HOST/EXPORT/PATH or HOST:/EXPORT/PATH.
    #[arg(value_name = "PLACE", required = true)]
    places: Vec<String>,
    #[command(flatten)]
    mount: MountArgs,
    /// Make the directories above too, and accept directories that exist.
    #[arg(short, long)]
    parents: bool,
    /// Permissions in octal, such as 0750; default: 0777 without the bits of the umask.
    #[arg(short, long, value_name = "MODE", value_parser = octal)]
    mode: Option<u32>,
}

const EXAMPLES: &str = "Examples:\n  \
    trunkline mkdir nas:/data/projects\n  \
    trunkline mkdir -p -m 0750 nfs://10.0.0.1/data/projects/2026/november";

fn octal(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o7777 => Ok(mode),
        _ => Err("not a mode in octal, 0 to 7777".to_owned()),
    }
}

/// Makes each directory.
pub fn run(args: &MkdirArgs) -> Result<ExitCode, Error> {
    let umask = crate::cp::umask();
    let mut code = ExitCode::SUCCESS;
    for location in &args.places {
        if let Err(error) = make(args, location, 0o777 & !umask) {
            error.report_to_user();
            code = ExitCode::FAILURE;
        }
    }
    Ok(code)
}

fn make(args: &MkdirArgs, target: &str, usual: u32) -> Result<(), Error> {
    let location = Location::open(target, &args.mount.joined())?;
    let cannot = location.cannot("make");
    let mount = &location.mount;
    if args.parents && make_parents(&location, usual).map_err(&cannot)? {
        return Ok(());
    }
    let last = LastName::of(&location, "make")?.map_err(&cannot)?;
    let made =
        mount.make_directory(last.directory(), &last.name, SetAttributes::mode(args.mode.unwrap_or(usual)));
    let (handle, attributes) = match made {
        // Another program made it meanwhile.
        Err(error) if args.parents && error.status() == Some(Status::Exists) && is_directory(&location) => {
            return Ok(());
        }
        other => other.map_err(&cannot)?,
    };
    set_mode(mount, handle, attributes.mode, args.mode).map_err(&cannot)
}

/// A server may leave out the higher bits of a new directory's mode.
fn set_mode(mount: &Mount, handle: FileHandle, found: u32, wanted: Option<u32>) -> client::Result<()> {
    match wanted {
        Some(mode) if found & 0o7777 != mode => mount.set_attributes(handle, SetAttributes::mode(mode), None),
        _ => Ok(()),
    }
}

fn is_directory(location: &Location) -> bool {
    location.mount.resolve(&location.path).is_ok_and(|(_, attributes)| attributes.kind == FileKind::Directory)
}

/// Makes the directories above the last name of a place. Returns whether the place itself exists.
fn make_parents(location: &Location, usual: u32) -> client::Result<bool> {
    let path = location.path.as_slice();
    let mut above = location.mount.root();
    let ends = (1..=path.len())
        .filter(|end| path.get(end - 1) != Some(&b'/') && path.get(*end).is_none_or(|next| *next == b'/'));
    let ends: Vec<usize> = ends.collect();
    for (index, end) in ends.iter().enumerate() {
        let beginning = path.get(..*end).unwrap_or_default();
        above = match location.mount.resolve(beginning) {
            Ok((handle, attributes)) if attributes.kind == FileKind::Directory => handle,
            Ok(_) => {
                let is_last = index + 1 == ends.len();
                let status = if is_last { Status::Exists } else { Status::NotDirectory };
                return Err(client::Error::Status { operation: "MKDIR", status });
            }
            Err(error) if error.status() == Some(Status::NotFound) => {
                if index + 1 == ends.len() {
                    return Ok(false);
                }
                let name = beginning.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
                // The owner must be able to make the next one.
                let mode = SetAttributes::mode(usual | 0o300);
                match location.mount.make_directory(above, name, mode) {
                    Err(error) if error.status() == Some(Status::Exists) => {
                        location.mount.resolve(beginning)?.0
                    }
                    other => other?.0,
                }
            }
            Err(error) => return Err(error),
        };
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_octal() {
        assert_eq!(octal("0750"), Ok(0o750));
        assert_eq!(octal("7777"), Ok(0o7777));
        for bad in ["", "u+w", "8", "10000", "-1"] {
            assert!(octal(bad).is_err(), "{bad}");
        }
    }
}
