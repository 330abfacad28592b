//! Opens volumes, as what the state directory knows of them.

use super::config::{Source, Wanted};
use super::state::{self, Known, State};
use crate::error::Error;
use std::collections::BTreeSet;
use std::path::Path;
use target::{BlockSize, Drive, DriveError, Export, How, Identity, Volume, VolumeError};

/// A volume that can be served.
pub struct Opened {
    pub export: Export,
    pub source: Source,
    /// What its owner should know of the drive.
    pub warnings: Vec<String>,
}

/// Opens all volumes. Those that were not served before get an identity.
pub fn all(wanted: &[Wanted], state: &mut State, force: bool) -> Result<Vec<Opened>, Error> {
    let mut taken: BTreeSet<u32> = wanted.iter().filter_map(|wanted| wanted.nsid).collect();
    // An NSID stands for one volume for ever, also while that is not served.
    taken.extend(state.volumes().map(|known| known.nsid));
    wanted.iter().map(|wanted| one(wanted, state, force, &mut taken)).collect()
}

fn one(wanted: &Wanted, state: &mut State, force: bool, taken: &mut BTreeSet<u32>) -> Result<Opened, Error> {
    let next_nsid = || {
        let free = (1..).find(|nsid| !taken.contains(nsid)).unwrap_or(u32::MAX);
        taken.insert(free);
        free
    };
    let path = match &wanted.source {
        Source::Memory(bytes) => {
            // What is in memory is lost with the process, so hosts must not take it for the same.
            let drive = Drive::memory(*bytes, *bytes);
            let nsid = wanted.nsid.unwrap_or_else(next_nsid);
            return finish(wanted, &drive, "memory", state::random()?, nsid, wanted.block);
        }
        Source::Path(path) => state::absolute(path)?,
    };
    let known = state.volume(&path).cloned();
    let how = if known.is_some() { How::Known } else { How::Adopt { force } };
    let drive = Drive::open(&path, how).map_err(|error| explain_drive(&path, &error))?;
    let bytes = drive.info().bytes;
    let (uuid, nsid, block) = match &known {
        Some(known) => {
            check(&path, known, bytes, wanted)?;
            (known.uuid, known.nsid, Some(known.block))
        }
        None => (state::random()?, wanted.nsid.unwrap_or_else(next_nsid), wanted.block),
    };
    if let Some(other) = state.volumes().find(|other| other.nsid == nsid && other.path != path) {
        return Err(Error::Refused {
            sentence: format!("{} cannot be namespace {nsid}", path.display()),
            cause: format!("hosts know {} by that number", other.path.display()),
            advice: "another nsid, or none: a free one is chosen".to_owned(),
        });
    }
    let opened = finish(wanted, &drive, &name_of(&path), uuid, nsid, block)?;
    let block = opened.export.volume.block_size().bytes();
    state.keep(Known { path, uuid, nsid, bytes, block });
    Ok(opened)
}

fn finish(
    wanted: &Wanted,
    drive: &Drive,
    name: &str,
    uuid: [u8; 16],
    nsid: u32,
    block: Option<u32>,
) -> Result<Opened, Error> {
    let block = block.map(|block| if block == 512 { BlockSize::B512 } else { BlockSize::B4096 });
    let volume = Volume::new(name, Identity::of_uuid(uuid), drive, block)
        .map_err(|error| explain_volume(&wanted.source, &error))?;
    let warnings = volume.warnings().iter().map(ToString::to_string).collect();
    let export = Export { nsid, volume, hosts: wanted.hosts.clone() };
    Ok(Opened { export, source: wanted.source.clone(), warnings })
}

/// Refuses what hosts would take for the volume that they know, and is not.
fn check(path: &Path, known: &Known, bytes: u64, wanted: &Wanted) -> Result<(), Error> {
    let sentence = format!("cannot serve {}", path.display());
    let forget = "what it was, or remove its entry from the state directory if it is another volume now";
    if bytes < known.bytes {
        return Err(Error::Refused {
            sentence,
            cause: format!("it has {bytes} bytes; hosts know it with {}", known.bytes),
            advice: forget.to_owned(),
        });
    }
    if wanted.nsid.is_some_and(|nsid| nsid != known.nsid) {
        return Err(Error::Refused {
            sentence,
            cause: format!("hosts know it as namespace {}", known.nsid),
            advice: format!("nsid = {}, or {forget}", known.nsid),
        });
    }
    if wanted.block.is_some_and(|block| block != known.block) {
        return Err(Error::Refused {
            sentence,
            cause: format!("hosts know it with blocks of {} bytes", known.block),
            advice: format!("block = {}, or {forget}", known.block),
        });
    }
    Ok(())
}

/// A name for people, of visible characters.
fn name_of(path: &Path) -> String {
    let last = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    let name: String = last.chars().filter(char::is_ascii_graphic).take(64).collect();
    if name.is_empty() { "volume".to_owned() } else { name }
}

fn explain_drive(path: &Path, error: &DriveError) -> Error {
    let advice = match error {
        DriveError::Exists { .. } => "another name",
        DriveError::NotADrive { .. } => "a regular file or a block device",
        DriveError::Foreign { .. } => "another one, wipefs -a if nobody needs what is on it, or --force",
        DriveError::NotProbed { .. } => "apt install util-linux",
        DriveError::InUse { .. } => "unmount it, or take it out of its array or volume group",
        DriveError::Locked { .. } => "end the other process, or wait until its device has finished",
        DriveError::NotDirect { .. } => "a file on ext4, XFS or btrfs, or a block device",
        DriveError::Size { .. } => "truncate -s 10G FILE     to make a file of that size",
        DriveError::System { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            "truncate -s 10G FILE     to make a file of that size"
        }
        DriveError::System { .. } => "run as a user who may read and write it",
    };
    Error::Refused {
        sentence: format!("cannot serve {}", path.display()),
        cause: error.to_string(),
        advice: advice.to_owned(),
    }
}

fn explain_volume(source: &Source, error: &VolumeError) -> Error {
    let advice = match error {
        VolumeError::Block { .. } => "block = 4096 in the file, or another device",
        VolumeError::Small { .. } => "a volume of a megabyte or more",
        VolumeError::Name { .. } => "a name of visible ASCII characters",
        VolumeError::Claimed { .. } => "each file or device once",
        VolumeError::Identity { .. } => "a uuid that is not zero in the state directory",
    };
    Error::Refused {
        sentence: format!("cannot serve {source}"),
        cause: error.to_string(),
        advice: advice.to_owned(),
    }
}
