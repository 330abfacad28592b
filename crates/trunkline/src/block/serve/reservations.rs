//! The reservations that survive a restart: `reservations.toml` in the state directory.
//!
//! The file is replaced as a whole, and is durable before a host is answered. Its first line has a
//! checksum of the rest: a reservation that is read wrongly is worse than none that is served.
//! `block.toml` says of each volume whether its reservations are kept here, so that a file that is
//! lost is missed.

use super::state::{self, Known, State};
use crate::error::Error;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use target::{HostId, Identity, Registrant, Report, ReservationStore, ReservationType};

pub(super) const FILE: &str = "reservations.toml";
/// Locked while one of two processes reads or changes the file.
const LOCK: &str = "reservations.lock";
const CHECKSUM: &str = "# crc32c ";
const NOTE: &str = "# What hosts have reserved. With a change by hand the checksum is wrong.\n";
/// CNTLID of a registrant whose host is not connected.
const CNTLID_NONE: u16 = 0xffff;

/// The file as it is written.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    #[serde(default)]
    volume: Vec<VolumeText>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct VolumeText {
    uuid: String,
    /// GEN
    generation: u32,
    /// RTYPE; 0 for none.
    kind: u8,
    /// Whether it is to survive a restart of all nodes.
    #[serde(default = "yes", skip_serializing_if = "Clone::clone")]
    persistent: bool,
    #[serde(default)]
    registrant: Vec<RegistrantText>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RegistrantText {
    host: String,
    key: String,
    holds: bool,
}

const fn yes() -> bool {
    true
}

type Volumes = BTreeMap<[u8; 16], Report>;

/// What is kept.
#[derive(Debug)]
pub struct Reservations {
    directory: PathBuf,
    /// Volumes on files and devices. The others are lost with the process, and so is what is
    /// reserved of them.
    kept: BTreeSet<[u8; 16]>,
    /// The process of another node changes the file as well.
    is_shared: bool,
    volumes: Mutex<Volumes>,
}

impl Reservations {
    /// Reads what is kept; refuses to go on without it.
    pub fn open(state: &State) -> Result<Self, Error> {
        let directory = state.directory().to_owned();
        let missed: Vec<&Known> = state.volumes().filter(|known| known.reservations).collect();
        let volumes = match std::fs::read_to_string(directory.join(FILE)) {
            Ok(text) => parse(&text).map_err(|cause| lost(&directory, &format!("it is damaged: {cause}")))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound && missed.is_empty() => Volumes::new(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(lost(&directory, "it is not there"));
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return Err(lost(&directory, "it is damaged: it is no text"));
            }
            Err(error) => return Err(lost(&directory, &format!("it cannot be read: {error}"))),
        };
        let is_shared = state.is_shared();
        Ok(Self { directory, kept: BTreeSet::new(), is_shared, volumes: Mutex::new(volumes) })
    }

    /// From now on the reservations of the volumes that the state directory knows are kept. To be
    /// called before the state says so.
    pub fn begin(&mut self, state: &State) -> Result<(), Error> {
        self.kept = state.volumes().map(|known| known.uuid).collect();
        let volumes = self.volumes.get_mut().unwrap_or_else(PoisonError::into_inner);
        if !state.is_alone() {
            // The other node has begun, and may have changed it since.
            return Ok(());
        }
        volumes.retain(|_, report| report.persistent);
        write(&self.directory, volumes).map_err(|error| Error::Refused {
            sentence: format!("cannot use the state directory {}", self.directory.display()),
            cause: format!("{FILE} cannot be written: {error}"),
            advice: "--state DIR, a directory that this user may write to".to_owned(),
        })
    }
}

impl Reservations {
    /// Reads again what the process of another node may have changed, which waits until the lock is
    /// dropped.
    fn renew(&self, volumes: &mut Volumes) -> io::Result<Option<File>> {
        if !self.is_shared {
            return Ok(None);
        }
        let lock = state::lock_file(&self.directory.join(LOCK))?;
        lock.lock()?;
        let text = std::fs::read_to_string(self.directory.join(FILE))?;
        *volumes = parse(&text).map_err(|cause| io::Error::other(format!("{FILE} is damaged: {cause}")))?;
        Ok(Some(lock))
    }
}

impl ReservationStore for Reservations {
    fn load(&self, volume: &Identity) -> io::Result<Option<Report>> {
        let mut volumes = self.volumes.lock().unwrap_or_else(PoisonError::into_inner);
        let _lock = self.renew(&mut volumes)?;
        Ok(volumes.get(&volume.uuid).cloned())
    }

    fn save(&self, volume: &Identity, reservations: &Report) -> io::Result<()> {
        if !self.kept.contains(&volume.uuid) {
            return Ok(());
        }
        let mut volumes = self.volumes.lock().unwrap_or_else(PoisonError::into_inner);
        let _lock = self.renew(&mut volumes)?;
        let mut next = volumes.clone();
        // What is not to persist goes with the volume to another process all the same.
        if reservations.persistent || self.is_shared {
            next.insert(volume.uuid, reservations.clone());
        } else {
            next.remove(&volume.uuid);
        }
        if let Err(error) = write(&self.directory, &next) {
            // What was renamed and not made durable must not be what the next start finds.
            let _ = write(&self.directory, &volumes);
            return Err(error);
        }
        *volumes = next;
        Ok(())
    }
}

fn lost(directory: &Path, cause: &str) -> Error {
    Error::Refused {
        sentence: format!("the reservations of the volumes in {} are not known", directory.display()),
        cause: format!("{FILE}: {cause}"),
        advice: "restore it from a backup; or, if no host relies on a reservation any more, remove it and \
                 the lines \"reservations = true\" in block.toml, which forgets them"
            .to_owned(),
    }
}

fn checksum(text: &str) -> String {
    format!("{CHECKSUM}{:08x}\n", crc32c::crc32c(text.as_bytes()))
}

fn write(directory: &Path, volumes: &Volumes) -> io::Result<()> {
    let registrant = |one: &Registrant| RegistrantText {
        host: state::in_words(one.host_id.0),
        key: format!("{:#018x}", one.key),
        holds: one.holds != 0,
    };
    let volume = |(uuid, report): (&[u8; 16], &Report)| VolumeText {
        uuid: state::in_words(*uuid),
        generation: report.generation,
        kind: report.kind.0,
        persistent: report.persistent,
        registrant: report.registrants.iter().map(registrant).collect(),
    };
    let text = Text { volume: volumes.iter().map(volume).collect() };
    let text = toml::to_string(&text).map_err(io::Error::other)?;
    let text = format!("{NOTE}{text}");
    state::replace(directory, FILE, &format!("{}{text}", checksum(&text)))
}

fn parse(text: &str) -> Result<Volumes, String> {
    let (first, rest) = text.split_at(text.find('\n').map_or(text.len(), |at| at + 1));
    if first != checksum(rest) {
        return Err("its checksum does not match".to_owned());
    }
    let text: Text = toml::from_str(rest).map_err(|error| error.message().to_owned())?;
    let mut volumes = Volumes::new();
    for VolumeText { uuid, generation, kind, persistent, registrant } in text.volume {
        let uuid = state::of_words(&uuid).ok_or_else(|| format!("{uuid:?} is no UUID"))?;
        let registrants = registrant.iter().map(parse_registrant).collect::<Result<Vec<_>, _>>()?;
        let kind = ReservationType(kind);
        let report = Report { generation, kind, persistent, registrants };
        if volumes.insert(uuid, report).is_some() {
            return Err(format!("volume {} is there twice", state::in_words(uuid)));
        }
    }
    Ok(volumes)
}

fn parse_registrant(text: &RegistrantText) -> Result<Registrant, String> {
    let RegistrantText { host, key, holds } = text;
    let host_id = state::of_words(host).map(HostId).ok_or_else(|| format!("{host:?} is no UUID"))?;
    let digits = key.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
    let key = digits.ok_or_else(|| format!("{key:?} is no key"))?;
    Ok(Registrant { cntlid: CNTLID_NONE, holds: (*holds).into(), key, host_id })
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: [u8; 16] = [7; 16];

    fn known(reservations: bool) -> Known {
        Known { path: "/a".into(), uuid: UUID, nsid: 1, bytes: 4096, block: 4096, reservations, drive: None }
    }

    fn reservations(directory: &Path) -> Result<Reservations, Error> {
        Reservations::open(&State::open(Some(directory), false)?)
    }

    fn report(persistent: bool) -> Report {
        let one =
            |host, holds, key| Registrant { cntlid: CNTLID_NONE, holds, key, host_id: HostId([host; 16]) };
        let registrants = vec![one(1, 0, u64::MAX), one(2, 1, 0x1234)];
        Report { generation: 9, kind: ReservationType::WRITE_EXCLUSIVE, persistent, registrants }
    }

    /// A directory in which the reservations of a volume were kept.
    fn used() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let mut state = State::open(Some(directory.path()), false).unwrap();
        let mut kept = Reservations::open(&state).unwrap();
        state.keep(known(true));
        kept.begin(&state).unwrap();
        state.save().unwrap();
        kept.save(&Identity::of_uuid(UUID), &report(true)).unwrap();
        directory
    }

    #[test]
    fn reservations_are_there_after_a_restart() {
        let directory = used();
        let mut kept = reservations(directory.path()).unwrap();
        let volume = Identity::of_uuid(UUID);
        assert_eq!(kept.load(&volume).unwrap(), Some(report(true)));
        kept.begin(&State::open(Some(directory.path()), false).unwrap()).unwrap();
        // Those of memory are not kept, and those that are not to persist no more.
        kept.save(&Identity::of_uuid([8; 16]), &report(true)).unwrap();
        kept.save(&volume, &report(false)).unwrap();
        let kept = reservations(directory.path()).unwrap();
        assert_eq!(kept.load(&volume).unwrap(), None);
        assert_eq!(kept.load(&Identity::of_uuid([8; 16])).unwrap(), None);
    }

    #[test]
    fn reservations_that_are_damaged_or_missing_are_missed() {
        let directory = used();
        let file = directory.path().join(FILE);
        let good = std::fs::read(&file).unwrap();
        let refused = || {
            let error = reservations(directory.path()).unwrap_err().to_string();
            assert!(error.contains(FILE) && error.contains("try:"), "{error}");
            error
        };
        // A bit anywhere, and an end anywhere.
        for at in (0..good.len()).step_by(7) {
            let mut bad = good.clone();
            bad[at] ^= 1;
            std::fs::write(&file, &bad).unwrap();
            assert!(refused().contains("damaged"));
            std::fs::write(&file, &good[..at]).unwrap();
            assert!(refused().contains("damaged"));
        }
        std::fs::remove_file(&file).unwrap();
        assert!(refused().contains("not there"));
        // What the advice says.
        let block = directory.path().join("block.toml");
        let text = std::fs::read_to_string(&block).unwrap();
        std::fs::write(&block, text.replace("reservations = true\n", "")).unwrap();
        assert_eq!(reservations(directory.path()).unwrap().load(&Identity::of_uuid(UUID)).unwrap(), None);
        // The other file is lost.
        std::fs::write(&file, &good).unwrap();
        std::fs::remove_file(&block).unwrap();
        let error = reservations(directory.path()).unwrap_err().to_string();
        assert!(error.contains("block.toml"), "{error}");
    }

    #[test]
    fn a_directory_of_an_earlier_version_begins_without_reservations() {
        let directory = tempfile::tempdir().unwrap();
        let mut state = State::open(Some(directory.path()), false).unwrap();
        state.keep(known(false));
        state.save().unwrap();
        drop(state);
        assert!(!std::fs::read_to_string(directory.path().join("block.toml")).unwrap().contains("reserv"));
        reservations(directory.path()).unwrap();
    }

    #[test]
    fn what_cannot_be_written_leaves_what_was_there() {
        let directory = used();
        let state = State::open(Some(directory.path()), false).unwrap();
        let mut kept = Reservations::open(&state).unwrap();
        kept.begin(&state).unwrap();
        let place = directory.path().join(format!("{FILE}.new"));
        std::fs::create_dir(&place).unwrap();
        let volume = Identity::of_uuid(UUID);
        let other = Report { generation: 10, ..report(true) };
        assert!(kept.save(&volume, &other).is_err());
        std::fs::remove_dir(&place).unwrap();
        assert_eq!(kept.load(&volume).unwrap(), Some(report(true)));
        drop((kept, state));
        assert_eq!(reservations(directory.path()).unwrap().load(&volume).unwrap(), Some(report(true)));
    }
}
