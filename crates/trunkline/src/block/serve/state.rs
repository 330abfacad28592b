//! The state directory: by what hosts recognize the subsystem and its volumes, over restarts.
//!
//! `block.toml` is replaced as a whole, and is durable before a host sees what it says. A lock on
//! `lock` keeps two processes from giving out one identity. The processes of two nodes share it,
//! and decide about identities one after the other, under a lock on `starting`.

use super::{fences, owners, reservations};
use crate::error::Error;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use target::Nqn;

const FILE: &str = "block.toml";
/// What is nothing without it.
const BESIDE: [&str; 3] = [reservations::FILE, fences::FILE, owners::DIRECTORY];
const LOCK: &str = "lock";
/// How long a process that was killed may take to end.
const ENDING: Duration = Duration::from_secs(1);
/// Locked while a process of two starts.
const STARTING: &str = "starting";
/// Of root, where nothing else is said.
const OF_ROOT: &str = "/var/lib/trunkline/block";
/// Below the state of a user, where nothing else is said.
const OF_USER: &str = "trunkline/block";

/// A file or device that was served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    pub path: PathBuf,
    pub uuid: [u8; 16],
    pub nsid: u32,
    pub bytes: u64,
    pub block: u32,
    /// Its reservations are kept as well.
    pub reservations: bool,
    /// What hosts are told of its drive.
    pub drive: Option<DriveText>,
}

/// What hosts are told of a drive, so that it is known while another process has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DriveText {
    pub volatile_cache: bool,
    pub discard_zeroes: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub optimal_blocks: Option<u32>,
}

/// By what hosts recognize the subsystem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subsystem {
    pub nqn: Nqn,
    pub serial: String,
}

/// The file as it is written.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    nqn: Option<String>,
    serial: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    fences: bool,
    #[serde(default)]
    volume: Vec<VolumeText>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct VolumeText {
    path: PathBuf,
    uuid: String,
    nsid: u32,
    bytes: u64,
    block: u32,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    reservations: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    drive: Option<DriveText>,
}

/// The state directory, locked.
#[derive(Debug)]
pub struct State {
    directory: PathBuf,
    subsystem: Option<Subsystem>,
    /// Which hosts are fenced is kept as well.
    fences: bool,
    volumes: Vec<Known>,
    was_there: bool,
    sharing: Option<Sharing>,
    _lock: File,
}

/// The processes of two nodes share the directory.
#[derive(Debug)]
struct Sharing {
    /// The other one does not have it.
    is_alone: bool,
    /// Locked while this process starts.
    starting: Option<File>,
}

impl State {
    /// Opens the directory, and makes it if it is not there. The process of a node shares it with
    /// that of the other one, and they start one after the other.
    pub fn open(directory: Option<&Path>, is_shared: bool) -> Result<Self, Error> {
        let directory = match directory {
            Some(directory) => absolute(directory)?,
            None => default_directory()?,
        };
        let failed =
            |what: &str, error: &io::Error| refused(&directory, &format!("{what}: {error}"), WRITABLE);
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&directory)
            .map_err(|error| failed("it cannot be made", &error))?;
        let unlocked = |error: io::Error| failed("it cannot be locked", &error);
        let starting = if is_shared {
            let file = lock_file(&directory.join(STARTING)).map_err(unlocked)?;
            file.lock().map_err(unlocked)?;
            Some(file)
        } else {
            None
        };
        let lock = lock_file(&directory.join(LOCK)).map_err(unlocked)?;
        let is_alone = lock_soon(&lock, is_shared).map_err(|error| match error {
            TryLockError::WouldBlock => {
                let cause = "another process serves with it";
                refused(&directory, cause, "another --state, or end that process")
            }
            TryLockError::Error(error) => unlocked(error),
        })?;
        let sharing = is_shared.then_some(Sharing { is_alone, starting });
        let text = match std::fs::read_to_string(directory.join(FILE)) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(failed(&format!("{FILE} cannot be read"), &error)),
        };
        let (subsystem, fences, volumes) = parse(&text).map_err(|cause| {
            let advice = "restore it from a backup; without it, hosts take the volumes for others";
            refused(&directory, &format!("{FILE}: {cause}"), advice)
        })?;
        let was_there = !text.is_empty();
        if !was_there {
            refuse_without(&directory)?;
        }
        Ok(Self { directory, subsystem, fences, volumes, was_there, sharing, _lock: lock })
    }

    /// Where it is.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Whether the process of another node may have the directory as well.
    pub const fn is_shared(&self) -> bool {
        self.sharing.is_some()
    }

    /// Whether no other process had the directory when it was opened.
    pub fn is_alone(&self) -> bool {
        self.sharing.as_ref().is_none_or(|sharing| sharing.is_alone)
    }

    /// What this process decides at its start is durable: that of the other node may start.
    pub fn started(&mut self) {
        if let Some(sharing) = &mut self.sharing {
            sharing.starting = None;
        }
    }

    /// The identity of the subsystem. One that was asked for replaces the name that was kept.
    pub fn subsystem(&mut self, nqn: Option<&Nqn>) -> Result<Subsystem, Error> {
        let mut subsystem = match self.subsystem.take() {
            Some(subsystem) => subsystem,
            None => Subsystem { nqn: Nqn::of_uuid(random()?), serial: hex(&random()?[..10]) },
        };
        if let Some(nqn) = nqn {
            subsystem.nqn = nqn.clone();
        }
        self.subsystem = Some(subsystem.clone());
        Ok(subsystem)
    }

    /// Whether it is kept which hosts are fenced.
    pub const fn has_fences(&self) -> bool {
        self.fences
    }

    /// Notes that it is kept.
    pub const fn keep_fences(&mut self) {
        self.fences = true;
    }

    /// The volumes that were served.
    pub fn volumes(&self) -> impl Iterator<Item = &Known> {
        self.volumes.iter()
    }

    /// What is known of this file or device.
    pub fn volume(&self, path: &Path) -> Option<&Known> {
        self.volumes.iter().find(|known| known.path == path)
    }

    /// Notes a file or device.
    pub fn keep(&mut self, volume: Known) {
        match self.volumes.iter_mut().find(|known| known.path == volume.path) {
            Some(known) => *known = volume,
            None => self.volumes.push(volume),
        }
    }

    /// To be called before there is something that is nothing without the file: a first start that
    /// ends between the two would be taken for a loss.
    pub fn begin(&self) -> Result<(), Error> {
        if self.was_there {
            return Ok(());
        }
        self.write(&Text { volume: Vec::new(), fences: false, ..self.text() })
    }

    /// Makes durable what is noted.
    pub fn save(&self) -> Result<(), Error> {
        self.write(&self.text())
    }

    fn write(&self, text: &Text) -> Result<(), Error> {
        let text = toml::to_string(text)
            .map_err(|error| refused(&self.directory, &error.to_string(), "paths that are UTF-8"))?;
        replace(&self.directory, FILE, &text).map_err(|error| {
            refused(&self.directory, &format!("{FILE} cannot be written: {error}"), WRITABLE)
        })
    }

    fn text(&self) -> Text {
        let volume = |known: &Known| VolumeText {
            path: known.path.clone(),
            uuid: in_words(known.uuid),
            nsid: known.nsid,
            bytes: known.bytes,
            block: known.block,
            reservations: known.reservations,
            drive: known.drive.clone(),
        };
        Text {
            nqn: self.subsystem.as_ref().map(|subsystem| subsystem.nqn.to_string()),
            serial: self.subsystem.as_ref().map(|subsystem| subsystem.serial.clone()),
            fences: self.fences,
            volume: self.volumes.iter().map(volume).collect(),
        }
    }
}

/// A file for a lock.
pub fn lock_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Locks the state directory; returns whether no other process has. One that was killed may still
/// have it for a moment.
fn lock_soon(lock: &File, is_shared: bool) -> Result<bool, TryLockError> {
    let deadline = Instant::now() + ENDING;
    loop {
        match lock.try_lock() {
            Ok(()) if is_shared => return lock.try_lock_shared().map(|()| true),
            Ok(()) => return Ok(true),
            Err(TryLockError::WouldBlock) if is_shared && lock.try_lock_shared().is_ok() => return Ok(false),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => std::thread::sleep(ENDING / 50),
            Err(error) => return Err(error),
        }
    }
}

/// Replaces a file as a whole. What it says is durable then, whatever happens meanwhile: it has the
/// old text or the new one.
pub fn replace(directory: &Path, name: &str, text: &str) -> io::Result<()> {
    let new = directory.join(format!("{name}.new"));
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&new, directory.join(name))?;
    File::open(directory)?.sync_all()
}

/// Refuses what is left of a directory whose file is lost: with new identities hosts would write as
/// if nothing had been reserved or fenced.
fn refuse_without(directory: &Path) -> Result<(), Error> {
    for name in BESIDE {
        let place = directory.join(name);
        let is_there = place.symlink_metadata().map(|_| true).or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => Ok(false),
            _ => Err(refused(directory, &format!("{name}: {error}"), WRITABLE)),
        })?;
        if is_there {
            let cause = format!("{name} is there, and {FILE}, to which it belongs, is missing or empty");
            let advice = format!(
                "restore {FILE} from a backup; for new volumes another --state; or remove {}, which forgets \
                 what was reserved and which hosts were fenced, and hosts take the volumes for others",
                BESIDE.join(", ")
            );
            return Err(refused(directory, &cause, &advice));
        }
    }
    Ok(())
}

const WRITABLE: &str = "--state DIR, a directory that this user may write to";

fn refused(directory: &Path, cause: &str, advice: &str) -> Error {
    Error::Refused {
        sentence: format!("cannot use the state directory {}", directory.display()),
        cause: cause.to_owned(),
        advice: advice.to_owned(),
    }
}

fn parse(text: &str) -> Result<(Option<Subsystem>, bool, Vec<Known>), String> {
    let text: Text = toml::from_str(text).map_err(|error| error.message().to_owned())?;
    let subsystem = match (text.nqn, text.serial) {
        (None, None) => None,
        (Some(nqn), Some(serial))
            if serial.len() <= 20 && serial.bytes().all(|byte| byte.is_ascii_graphic()) =>
        {
            let nqn = Nqn::new(&nqn).map_err(|error| format!("nqn: {error}"))?;
            Some(Subsystem { nqn, serial })
        }
        _ => return Err("nqn and serial belong together; a serial has at most 20 characters".to_owned()),
    };
    let mut volumes: Vec<Known> = Vec::new();
    for VolumeText { path, uuid, nsid, bytes, block, reservations, drive } in text.volume {
        let uuid = of_words(&uuid).ok_or_else(|| format!("{uuid:?} is no UUID"))?;
        if block != 512 && block != 4096 {
            return Err(format!("a volume has blocks of 512 or 4096 bytes, not of {block}"));
        }
        if volumes.iter().any(|other| other.uuid == uuid || other.nsid == nsid || other.path == path) {
            return Err(format!("{} has what another volume has", path.display()));
        }
        volumes.push(Known { path, uuid, nsid, bytes, block, reservations, drive });
    }
    Ok((subsystem, text.fences, volumes))
}

fn default_directory() -> Result<PathBuf, Error> {
    if rustix::process::geteuid().is_root() {
        return Ok(OF_ROOT.into());
    }
    let of = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = of("XDG_STATE_HOME").or_else(|| Some(of("HOME")?.join(".local/state")));
    state.map(|state| state.join(OF_USER)).ok_or_else(|| Error::Refused {
        sentence: "there is no place for the state".to_owned(),
        cause: "this user has no home directory".to_owned(),
        advice: "--state DIR".to_owned(),
    })
}

/// The path from the root. Links stay as they are: /dev/disk/by-id names a device for ever, and
/// what it leads to does not.
pub fn absolute(path: &Path) -> Result<PathBuf, Error> {
    std::path::absolute(path).map_err(|cause| Error::Read { file: path.display().to_string(), cause })
}

/// A random UUID. RFC 9562 s5.4
pub fn random() -> Result<[u8; 16], Error> {
    let mut uuid = [0; 16];
    getrandom::fill(&mut uuid).map_err(|error| Error::Refused {
        sentence: "cannot make an identity".to_owned(),
        cause: error.to_string(),
        advice: "a system with a source of random numbers".to_owned(),
    })?;
    uuid[6] = uuid[6] & 0x0f | 0x40;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    Ok(uuid)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// RFC 9562 s4
pub fn in_words(uuid: [u8; 16]) -> String {
    let all = hex(&uuid);
    [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| all.get(part).unwrap_or_default()).join("-")
}

pub fn of_words(text: &str) -> Option<[u8; 16]> {
    let digits: String = text.chars().filter(|character| *character != '-').collect();
    if digits.len() != 32 || text.len() != 36 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    u128::from_str_radix(&digits, 16).ok().map(u128::to_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(path: &str, nsid: u32) -> Known {
        let uuid = random().unwrap();
        let drive = DriveText { volatile_cache: true, discard_zeroes: false, optimal_blocks: Some(nsid) };
        let drive = (nsid > 1).then_some(drive);
        Known { path: path.into(), uuid, nsid, bytes: 1 << 20, block: 4096, reservations: nsid > 1, drive }
    }

    #[test]
    fn what_is_kept_is_there_after_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let mut state = State::open(Some(directory.path()), false).unwrap();
        let subsystem = state.subsystem(None).unwrap();
        let (one, two) = (known("/a", 1), known("/b", 7));
        state.keep(one.clone());
        state.keep(two.clone());
        state.save().unwrap();
        drop(state);
        let mut state = State::open(Some(directory.path()), false).unwrap();
        assert_eq!(state.subsystem(None).unwrap(), subsystem);
        assert_eq!((state.volume(Path::new("/a")), state.volume(Path::new("/b"))), (Some(&one), Some(&two)));
        let other = Nqn::new("nqn.2026-11.test:a").unwrap();
        let renamed = state.subsystem(Some(&other)).unwrap();
        assert_eq!((renamed.nqn, renamed.serial), (other, subsystem.serial));
    }

    #[test]
    fn a_directory_in_use_or_with_a_broken_file_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let state = State::open(Some(directory.path()), false).unwrap();
        let second = State::open(Some(directory.path()), false).unwrap_err().to_string();
        assert!(second.contains("another process"), "{second}");
        drop(state);
        let volume = "path = \"/a\"\nnsid = 1\nbytes = 4096\nblock = 4096";
        let uuid = "uuid = \"01234567-89ab-4def-8123-456789abcdef\"";
        for text in [
            "nqn = \"nqn.2026-11.test:a\"".to_owned(),
            "nqn = \"a\"\nserial = \"1\"".to_owned(),
            format!("[[volume]]\n{volume}\nuuid = \"0123\""),
            format!("[[volume]]\n{volume}\n{uuid}\n[[volume]]\n{volume}\n{uuid}"),
            "what = 1".to_owned(),
        ] {
            std::fs::write(directory.path().join(FILE), &text).unwrap();
            let error = State::open(Some(directory.path()), false).unwrap_err().to_string();
            assert!(error.contains(FILE) && error.contains("try:"), "{text}: {error}");
        }
    }

    #[test]
    fn what_is_left_of_a_directory_without_its_file_is_refused() {
        for name in BESIDE {
            let directory = tempfile::tempdir().unwrap();
            let open = || State::open(Some(directory.path()), false);
            let place = directory.path().join(name);
            std::fs::create_dir(&place).unwrap();
            for empty in [false, true] {
                if empty {
                    std::fs::write(directory.path().join(FILE), "").unwrap();
                }
                let error = open().unwrap_err().to_string();
                assert!(error.contains(FILE) && error.contains(name) && error.contains("try:"), "{error}");
            }
            // What the advice says.
            std::fs::remove_dir(&place).unwrap();
            let mut state = open().unwrap();
            let subsystem = state.subsystem(None).unwrap();
            state.keep(known("/a", 1));
            state.keep_fences();
            // A first start that ends here has lost nothing, and has promised nothing.
            state.begin().unwrap();
            drop(state);
            std::fs::create_dir(&place).unwrap();
            let mut state = open().unwrap();
            assert_eq!((state.volumes().count(), state.has_fences()), (0, false));
            assert_eq!(state.subsystem(None).unwrap(), subsystem);
        }
    }

    #[test]
    fn two_nodes_share_a_directory_and_start_one_after_the_other() {
        let directory = tempfile::tempdir().unwrap();
        let open = |is_shared| State::open(Some(directory.path()), is_shared);
        let mut first = open(true).unwrap();
        assert!(first.is_alone() && open(false).is_err());
        let second = std::thread::scope(|scope| {
            let second = scope.spawn(|| open(true).unwrap().subsystem(None).unwrap());
            let subsystem = first.subsystem(None).unwrap();
            first.save().unwrap();
            assert!(!second.is_finished(), "the first is not done");
            first.started();
            (second.join().unwrap(), subsystem)
        });
        assert_eq!(second.0, second.1);
        assert!(!open(true).unwrap().is_alone());
        drop(first);
        assert!(open(false).unwrap().is_alone());
    }

    #[test]
    fn a_uuid_is_written_as_others_write_it() {
        let uuid = of_words("01234567-89ab-4def-8123-456789abcdef").unwrap();
        assert_eq!((uuid[0], uuid[15]), (0x01, 0xef));
        assert_eq!(in_words(uuid), "01234567-89ab-4def-8123-456789abcdef");
        assert_eq!(of_words("01234567-89ab-4def-8123-456789abcde"), None);
        assert_eq!(of_words("+1234567-89ab-4def-8123-456789abcdef"), None);
        let random = random().unwrap();
        assert_eq!((random[6] >> 4, random[8] >> 6), (4, 2));
    }
}
