//! This process as one node of two: backings that are opened when it owns them, and records of who
//! does, for [`target::pair`]. docs/decisions/0022-pair.md

use super::fences::Fences;
use super::open::Opened;
use super::owners::{self, Name, Owners};
use super::partner::Looks;
use super::state::{State, in_words};
use super::{Source, explain, state};
use crate::error::Error;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use target::pair::{
    Backings, EndRequest, Member, MemberConfig, MemberError, Opened as Outcome, OtherAnswer, Record, Seat,
    Timing,
};
use target::{Config, Drive, DriveError, Facts, HostId, How, Node, Nqn, Reach, Target, Volume};

/// Starts the node.
pub fn start(
    node: Node,
    config: &Config,
    (opened, fences): (&mut [Opened], &Fences),
    state: &State,
    looks: Option<&Looks>,
) -> Result<(Arc<Target>, Owners), Error> {
    let directory = state.directory().to_owned();
    let seat = Seat::take(node, &directory).map_err(|error| explain_member(&error))?;
    let (mut known, mut records) = (BTreeMap::new(), Vec::new());
    let files = owners::directory(state)?;
    for Opened { export, source, wanted_owner, .. } in opened.iter_mut() {
        let Source::Path(path) = source else { continue };
        let file = files.join(in_words(export.facts.identity.uuid));
        let record = match owners::read(&file)? {
            Some(record) => Record { owner: record.owner.node(), epoch: record.epoch },
            None => {
                let turn = || owners::in_turn(export.nsid, &[Node::A, Node::B]);
                Record { owner: wanted_owner.unwrap_or_else(turn), epoch: 0 }
            }
        };
        export.owner = record.owner;
        records.push((export.nsid, record));
        let path = state::absolute(path)?;
        known.insert(export.nsid, Known { path, facts: export.facts.clone(), record: (file, record) });
    }
    let mut namespaces: Vec<_> = opened.iter().map(|opened| opened.export.clone()).collect();
    namespaces.iter_mut().for_each(|namespace| namespace.hosts = fences.apply(&namespace.hosts));
    let target = Target::start_node(config, &namespaces, &directory).map_err(|error| explain(&error))?;
    let target = Arc::new(target);
    let volumes =
        Volumes { node, target: Arc::clone(&target), known, open: Mutex::default(), looks: looks.cloned() };
    let member = MemberConfig { node, directory, timing: Timing::default(), records };
    let member = Member::begin(seat, member, Arc::new(volumes)).map_err(|error| explain_member(&error))?;
    target.set_other(member.other());
    Ok((target, Owners::Pair(member)))
}

fn explain_member(error: &MemberError) -> Error {
    let (cause, advice) = match error {
        MemberError::Runs(_) => {
            ("it has the lock of that node in the state directory".to_owned(), "the other node, or end it")
        }
        MemberError::System { source, .. } => {
            (source.to_string(), "a state directory on a local file system, with a short name")
        }
        MemberError::Thread(source) => (source.to_string(), "more descriptors (ulimit -n)"),
    };
    Error::Refused { sentence: error.to_string(), cause, advice: advice.to_owned() }
}

/// A volume that either node may own.
struct Known {
    path: PathBuf,
    facts: Facts,
    /// Where its record is, and what it was at the start.
    record: (PathBuf, Record),
}

/// A backing that is open.
struct Open {
    volume: Volume,
    /// The target has it.
    is_taken: bool,
}

/// The volumes of this node, and those that it may take.
struct Volumes {
    node: Node,
    target: Arc<Target>,
    known: BTreeMap<u32, Known>,
    open: Mutex<BTreeMap<u32, Open>>,
    /// Looks at a partner that has come.
    looks: Option<Looks>,
}

impl Volumes {
    fn open(&self) -> MutexGuard<'_, BTreeMap<u32, Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens and locks a backing, and reads the record then.
    fn try_open(known: &Known) -> Result<(Volume, Record), Failure> {
        let drive = Drive::open(&known.path, How::Known)?;
        let facts = &known.facts;
        let volume = Volume::new(&facts.name, facts.identity, &drive, Some(facts.block));
        let volume = volume.map_err(|error| Failure::Other(error.to_string()))?;
        let (file, first) = &known.record;
        let record = owners::read(file).map_err(|error| Failure::Other(error.to_string()))?;
        let record = record.map(|one| Record { owner: one.owner.node(), epoch: one.epoch });
        Ok((volume, record.unwrap_or(*first)))
    }

    /// Serves from a backing once it is durable that this node owns it.
    fn try_save(&self, known: &Known, nsid: u32, record: Record) -> Result<(), String> {
        let volume = self.open().get(&nsid).map(|open| open.volume.clone());
        let volume = volume.ok_or_else(|| "it is not open".to_owned())?;
        self.target.set_backing(nsid, &volume).map_err(|error| explain(&error).to_string())?;
        if let Some(open) = self.open().get_mut(&nsid) {
            open.is_taken = true;
        }
        let record = owners::Record { owner: Name::of(record.owner), epoch: record.epoch };
        record.save(&known.record.0).map_err(|error| error.to_string())
    }
}

/// Why a backing is not opened.
enum Failure {
    /// Another process has it, or the system for one that has ended.
    Held,
    Other(String),
}

impl From<DriveError> for Failure {
    fn from(error: DriveError) -> Self {
        match error {
            DriveError::Locked { .. } | DriveError::InUse { .. } => Self::Held,
            other => Self::Other(other.to_string()),
        }
    }
}

impl Backings for Volumes {
    fn open(&self, nsid: u32) -> Outcome {
        let Some(known) = self.known.get(&nsid) else { return Outcome::Failed };
        match Self::try_open(known) {
            Ok((volume, record)) => {
                self.open().insert(nsid, Open { volume, is_taken: false });
                Outcome::Locked(record)
            }
            Err(Failure::Held) => Outcome::Held,
            Err(Failure::Other(error)) => {
                tracing::error!(nsid, path = %known.path.display(), error, "a volume cannot be taken");
                Outcome::Failed
            }
        }
    }

    fn save(&self, nsid: u32, record: Record) -> bool {
        let Some(known) = self.known.get(&nsid) else { return false };
        let saved = self.try_save(known, nsid, record);
        if let Err(error) = &saved {
            tracing::error!(nsid, error, "a volume cannot be taken");
        }
        saved.is_ok()
    }

    fn close(&self, nsid: u32) {
        if self.open().get(&nsid).is_some_and(|open| open.is_taken) {
            self.target.remove_backing(nsid);
        }
        // With the last reference to its drive the lock is free.
        drop(self.open().remove(&nsid));
    }

    fn reach(&self, nsid: u32, record: Record, reach: Reach) {
        tracing::info!(nsid, owner = %record.owner, epoch = record.epoch, ?reach, "volume");
        self.target.set_reach(nsid, record, reach);
    }

    fn finished(&self, before: u64) {
        let other = if self.node == Node::A { Node::B } else { Node::A };
        self.target.set_finished(other, before);
    }

    fn end_for_other(&self, request: EndRequest) {
        self.target.end_for_other(&request);
    }

    fn other_answered(&self, id: u64, answer: OtherAnswer) {
        self.target.other_answered(id, answer);
    }

    fn other_connected(&self) {
        self.target.other_connected();
        if let Some(looks) = &self.looks {
            looks.ask();
        }
    }

    fn set_host_elsewhere(&self, host_id: HostId, host: Option<Nqn>) {
        self.target.set_host_elsewhere(host_id, host);
    }

    fn other_ended(&self) {
        self.target.other_ended();
    }
}
