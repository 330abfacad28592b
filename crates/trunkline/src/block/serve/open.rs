//! Opens volumes, as what the state directory knows of them.

use super::config::{Source, Wanted};
use super::state::{self, DriveText, Known, State};
use crate::error::Error;
use std::collections::BTreeSet;
use std::path::Path;
use target::{
    BlockSize, Drive, DriveError, Export, Facts, How, Identity, Namespace, Node, Volume, VolumeError,
};

/// A volume that can be served.
pub struct Opened {
    pub export: Namespace,
    /// Its backing, unless processes of two nodes share it: they open it when they own it.
    pub volume: Option<Volume>,
    pub source: Source,
    /// The node that is to own it, if the file says so.
    pub wanted_owner: Option<Node>,
    /// Another start takes it for the same volume.
    pub is_kept: bool,
    /// What its owner should know of the drive.
    pub warnings: Vec<String>,
}

impl Opened {
    /// The volume with its backing.
    pub fn export(&self) -> Option<Export> {
        let Namespace { nsid, hosts, owner, .. } = self.export.clone();
        Some(Export { nsid, volume: self.volume.clone()?, hosts, owner })
    }
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
    // Of a process that shares it, all is known of what one of them has had.
    let facts = known.as_ref().filter(|_| state.is_shared()).and_then(|known| facts(known, &path));
    if let Some((known, facts)) = known.as_ref().zip(facts.clone()).filter(|_| !state.is_alone()) {
        check(&path, known, known.bytes, wanted)?;
        return Ok(unopened(wanted, known.nsid, facts));
    }
    let drive = match (Drive::open(&path, how), known.as_ref().zip(facts)) {
        // The system still writes for a process that was killed.
        (Err(DriveError::Locked { .. } | DriveError::InUse { .. }), Some((known, facts))) => {
            check(&path, known, known.bytes, wanted)?;
            return Ok(unopened(wanted, known.nsid, facts));
        }
        (opened, _) => opened.map_err(|error| explain_drive(&path, &error))?,
    };
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
    let mut opened = finish(wanted, &drive, &name_of(&path), uuid, nsid, block)?;
    let facts = &opened.export.facts;
    let drive = Some(DriveText {
        volatile_cache: facts.volatile_cache,
        discard_zeroes: facts.discard_zeroes,
        optimal_blocks: facts.optimal_transfer,
    });
    let block = facts.block.bytes();
    opened.warnings.extend(tail(&path, bytes, block, known.is_some())?);
    state.keep(Known { path, uuid, nsid, bytes, block, reservations: true, drive });
    if state.is_shared() {
        opened.volume = None;
    }
    Ok(opened)
}

/// What hosts are told of a volume that was served, if that is known.
fn facts(known: &Known, path: &Path) -> Option<Facts> {
    let drive = known.drive.as_ref()?;
    let block = block_size(known.block);
    Some(Facts {
        name: name_of(path),
        identity: Identity::of_uuid(known.uuid),
        block,
        blocks: known.bytes / u64::from(block.bytes()),
        volatile_cache: drive.volatile_cache,
        discard_zeroes: drive.discard_zeroes,
        optimal_transfer: drive.optimal_blocks,
    })
}

fn unopened(wanted: &Wanted, nsid: u32, facts: Facts) -> Opened {
    let export = Namespace { nsid, facts, hosts: wanted.hosts.clone(), owner: Node::A };
    let (source, wanted_owner) = (wanted.source.clone(), wanted.owner);
    Opened { export, volume: None, source, wanted_owner, is_kept: true, warnings: Vec::new() }
}

const fn block_size(bytes: u32) -> BlockSize {
    if bytes == 512 { BlockSize::B512 } else { BlockSize::B4096 }
}

fn finish(
    wanted: &Wanted,
    drive: &Drive,
    name: &str,
    uuid: [u8; 16],
    nsid: u32,
    block: Option<u32>,
) -> Result<Opened, Error> {
    let block = block.map(block_size);
    let volume = Volume::new(name, Identity::of_uuid(uuid), drive, block)
        .map_err(|error| explain_volume(&wanted.source, &error))?;
    let warnings = volume.warnings().iter().map(ToString::to_string).collect();
    let export = Namespace { nsid, facts: Facts::of(&volume), hosts: wanted.hosts.clone(), owner: Node::A };
    let (source, wanted_owner) = (wanted.source.clone(), wanted.owner);
    let is_kept = matches!(source, Source::Path(_));
    Ok(Opened { export, volume: Some(volume), source, wanted_owner, is_kept, warnings })
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

/// What hosts do not see of a volume that they know; another one is refused.
fn tail(path: &Path, bytes: u64, block: u32, is_known: bool) -> Result<Option<String>, Error> {
    let Some(rest) = bytes.checked_rem(block.into()).filter(|rest| *rest > 0) else { return Ok(None) };
    let cause = format!(
        "it has {bytes} bytes: its last {rest} bytes are no whole block of {block}, and no host sees them"
    );
    if is_known {
        return Ok(Some(cause));
    }
    let path = path.display();
    Err(Error::Refused {
        sentence: format!("cannot serve {path}"),
        cause,
        advice: format!(
            "block = 512 in the file (-c), or for a file truncate -s %{block} {path}, which makes it longer"
        ),
    })
}

/// A name for people, of visible characters.
fn name_of(path: &Path) -> String {
    let last = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    let name: String = last.chars().filter(char::is_ascii_graphic).take(64).collect();
    if name.is_empty() { "volume".to_owned() } else { name }
}

fn explain_drive(path: &Path, error: &DriveError) -> Error {
    let whole;
    let advice = match error {
        DriveError::Exists { .. } => "another name",
        DriveError::NotADrive { .. } => "a regular file or a block device",
        DriveError::Foreign { .. } => {
            "if it was served before, the state directory that has its identity and its reservations; \
             another one; or --force if nobody needs what is on it"
        }
        DriveError::NotProbed { .. } => "apt install util-linux",
        DriveError::InUse { .. } => "unmount it, or take it out of its array or volume group",
        DriveError::Locked { .. } => "end the other process, or wait until its device has finished",
        DriveError::NotDirect { .. } => "a file on ext4, XFS or btrfs, or a block device",
        DriveError::Size { bytes: 0, .. } => "truncate -s 10G FILE     to make it of that size",
        // To the largest blocks that hosts may see.
        DriveError::Size { .. } => {
            whole = format!("truncate -s %4096 {}     makes a file longer, to whole blocks", path.display());
            &whole
        }
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
