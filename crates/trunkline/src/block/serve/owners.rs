//! Which node owns which volume: what the file says, what was decided before, and else in turn.
//!
//! A volume's record, its owner and the epoch, is a file of its own in the state directory. It is
//! replaced as a whole, and is durable before a host sees what it says. What is in memory has no
//! record, since no other start knows it.

use super::open::Opened;
use super::state::{State, in_words};
use crate::error::Error;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use target::pair::{Member, Misuse};
use target::{Node, Reach, Target};

/// Where the records are.
pub(super) const DIRECTORY: &str = "owners";
/// A record is a few words.
const RECORD_BYTES_MAX: u64 = 4096;

/// A node as files name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
pub enum Name {
    #[value(name = "A")]
    A,
    #[value(name = "B")]
    B,
}

impl Name {
    pub const fn node(self) -> Node {
        match self {
            Self::A => Node::A,
            Self::B => Node::B,
        }
    }

    pub fn of(node: Node) -> Self {
        if node == Node::A { Self::A } else { Self::B }
    }
}

/// Who owns a volume, and how often a node has taken it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    pub owner: Name,
    pub epoch: u64,
}

/// A volume of this process.
#[derive(Debug)]
pub struct Owned {
    record: Record,
    /// Where the record is; `None` for memory.
    file: Option<PathBuf>,
}

/// Who decides who owns what.
#[derive(Debug)]
pub enum Owners {
    /// This process, which is both nodes: the owners of all volumes, by NSID.
    Both(BTreeMap<u32, Owned>),
    /// This process and that of the other node.
    Pair(Member),
}

/// What comes of an order to give a volume to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Given {
    /// The node had it.
    Already,
    /// The node owns it.
    Done,
    /// It moves to the process of that node.
    Begun,
}

impl Given {
    /// For a sentence that begins with the node.
    pub const fn in_words(self) -> &'static str {
        match self {
            Self::Already => "owned it already",
            Self::Done => "owns it now",
            Self::Begun => "takes it: `trunkline block list` shows when it has",
        }
    }
}

/// Where records are.
pub fn directory(state: &State) -> Result<PathBuf, Error> {
    let directory = state.directory().join(DIRECTORY);
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory);
    made.map_err(|error| refused(&directory, &error))?;
    Ok(directory)
}

impl Owners {
    /// Decides who owns each volume, and makes that durable: this process takes them all.
    pub fn take(opened: &mut [Opened], nodes: &[Node], state: &State) -> Result<Self, Error> {
        let directory = directory(state)?;
        let mut owners = BTreeMap::new();
        for Opened { export, wanted_owner, is_kept, .. } in opened {
            let uuid = export.facts.identity.uuid;
            let file = is_kept.then(|| directory.join(in_words(uuid)));
            let before = file.as_deref().map_or(Ok(None), read)?;
            let kept = before.map(|record| record.owner.node()).filter(|node| nodes.contains(node));
            export.owner = wanted_owner.or(kept).unwrap_or_else(|| in_turn(export.nsid, nodes));
            let epoch = before.map_or(0, |record| record.epoch) + 1;
            let owned = Owned { record: Record { owner: Name::of(export.owner), epoch }, file };
            owned.save()?;
            owners.insert(export.nsid, owned);
        }
        Ok(Self::Both(owners))
    }

    /// Whether the process of the other node is there.
    pub fn has_other(&self) -> bool {
        match self {
            Self::Both(_) => false,
            Self::Pair(member) => member.has_partner(),
        }
    }

    /// Gives a volume to a node, if it has another one: first the record, and then hosts learn it.
    pub fn give(&mut self, target: &Arc<Target>, nsid: u32, owner: Node) -> Result<Given, Error> {
        let owners = match self {
            Self::Both(owners) => owners,
            Self::Pair(member) => return ask(member, target, nsid, owner),
        };
        let Some(owned) = owners.get_mut(&nsid) else { return Ok(Given::Already) };
        if owned.record.owner.node() == owner {
            return Ok(Given::Already);
        }
        let before = owned.record;
        owned.record = Record { owner: Name::of(owner), epoch: before.epoch + 1 };
        let given =
            owned.save().and_then(|()| target.set_owner(nsid, owner).map_err(|error| super::explain(&error)));
        if given.is_err() {
            owned.record = before;
        }
        given.map(|_| Given::Done)
    }
}

/// In turn by their numbers, so that other volumes change nothing.
pub fn in_turn(nsid: u32, nodes: &[Node]) -> Node {
    nodes.get((nsid.max(1) - 1) as usize % nodes.len().max(1)).copied().unwrap_or(Node::A)
}

/// Has a volume move between processes.
fn ask(member: &Member, target: &Target, nsid: u32, owner: Node) -> Result<Given, Error> {
    let volumes = target.overview().volumes;
    let has = volumes.iter().any(|one| (one.nsid, one.owner, one.reach) == (nsid, owner, Reach::Serving));
    if has {
        return Ok(Given::Already);
    }
    let advice = |misuse| match misuse {
        Misuse::Alone => "start the process of the other node (--node)",
        Misuse::Moving => "the same again in a moment",
        Misuse::Unknown(_) => "trunkline block list        to see them",
    };
    member.own(nsid, owner).map(|()| Given::Begun).map_err(|misuse| Error::Refused {
        sentence: format!("namespace {nsid} keeps its owner"),
        cause: misuse.to_string(),
        advice: advice(misuse).to_owned(),
    })
}

impl Owned {
    fn save(&self) -> Result<(), Error> {
        self.file.as_deref().map_or(Ok(()), |file| self.record.save(file))
    }
}

impl Record {
    /// Makes it durable.
    pub fn save(&self, file: &Path) -> Result<(), Error> {
        let text = toml::to_string(self).map_err(io::Error::other);
        let write = |text: String| match (file.parent(), file.file_name().and_then(OsStr::to_str)) {
            (Some(directory), Some(name)) => super::state::replace(directory, name, &text),
            _ => Err(io::ErrorKind::InvalidFilename.into()),
        };
        text.and_then(write).map_err(|error| refused(file, &error))
    }
}

/// Reads a record; `None` if there is none.
pub fn read(file: &Path) -> Result<Option<Record>, Error> {
    let mut text = String::new();
    let opened = match File::open(file) {
        Ok(opened) => opened,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(refused(file, &error)),
    };
    io::Read::read_to_string(&mut io::Read::take(opened, RECORD_BYTES_MAX), &mut text)
        .map_err(|error| refused(file, &error))?;
    let record = toml::from_str(&text).map_err(|error| Error::Refused {
        sentence: format!("cannot use {}", file.display()),
        cause: error.message().to_owned(),
        advice: "remove it: its volume gets an owner anew, and no data are lost".to_owned(),
    })?;
    Ok(Some(record))
}

fn refused(path: &Path, error: &io::Error) -> Error {
    Error::Refused {
        sentence: format!("cannot use {}", path.display()),
        cause: error.to_string(),
        advice: "--state DIR, a directory that this user may write to".to_owned(),
    }
}
