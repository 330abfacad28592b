//! Hosts that are refused until they are let in again: `fenced.toml` in the state directory.
//!
//! The file is replaced as a whole, and is durable before the target refuses the host and before
//! who has asked for it is answered. So a host that a cluster takes for stopped stays out, whatever
//! happens to the server. `block.toml` says that there is such a file, so that one that is lost is
//! missed.

use super::state::{self, State};
use crate::error::Error;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use target::{Access, Nqn};

pub(super) const FILE: &str = "fenced.toml";
/// Locked while one of two processes changes the file.
const LOCK: &str = "fenced.lock";

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    /// NQNs.
    hosts: Vec<String>,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Fences {
    directory: PathBuf,
    hosts: BTreeSet<Nqn>,
}

impl Fences {
    /// Reads the file; refuses to go on if it is damaged or lost.
    pub fn open(state: &State) -> Result<Self, Error> {
        let directory = state.directory().to_owned();
        let hosts = match std::fs::read_to_string(directory.join(FILE)) {
            Ok(text) => parse(&text),
            Err(error) if error.kind() == io::ErrorKind::NotFound && state.has_fences() => {
                Err("it is not there, and block.toml says that it was".to_owned())
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeSet::new()),
            Err(error) => Err(error.to_string()),
        };
        match hosts {
            Ok(hosts) => Ok(Self { directory, hosts }),
            Err(cause) => Err(Error::Refused {
                sentence: format!(
                    "it is not known which hosts are fenced: {}",
                    directory.join(FILE).display()
                ),
                cause,
                advice: "restore it from a backup; or, if no host is fenced, write a file with the line \
                         hosts = []"
                    .to_owned(),
            }),
        }
    }

    /// From now on the file is there, also if no host is fenced, and is missed if it is lost. To be
    /// called before the state is saved, which says so.
    pub fn begin(&mut self, state: &mut State) -> Result<(), Error> {
        let mut hosts = self.hosts.clone();
        let begun = self.renew(&mut hosts).and_then(|_lock| match self.directory.join(FILE).try_exists() {
            Ok(true) => Ok(()),
            Ok(false) => self.write(&hosts).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        });
        begun.map_err(|cause| Error::Refused {
            sentence: format!("cannot use the state directory {}", self.directory.display()),
            cause: format!("{FILE}: {cause}"),
            advice: "--state DIR, a directory that this user may write to".to_owned(),
        })?;
        self.hosts = hosts;
        state.keep_fences();
        Ok(())
    }

    /// The hosts that are fenced.
    pub const fn hosts(&self) -> &BTreeSet<Nqn> {
        &self.hosts
    }

    /// Who is left of these.
    pub fn apply(&self, access: &Access) -> Access {
        access.without(&self.hosts)
    }

    /// Fences a host, or lets it in again; it is durable when this returns. Returns whether that is
    /// a change.
    pub fn set(&mut self, host: &Nqn, is_fenced: bool) -> Result<bool, Error> {
        let mut next = self.hosts.clone();
        let _lock = self.renew(&mut next).map_err(|cause| Error::Refused {
            sentence: format!("{host} stays as it was"),
            cause: format!("{}: {cause}", self.directory.join(FILE).display()),
            advice: "restore it from a backup".to_owned(),
        })?;
        let changes = if is_fenced { next.insert(host.clone()) } else { next.remove(host) };
        // Also if nothing changes: an earlier attempt may have failed after the rename.
        self.write(&next).map_err(|error| Error::Refused {
            sentence: format!("{host} stays as it was"),
            cause: format!("{} cannot be written: {error}", self.directory.join(FILE).display()),
            advice: "space in that directory, and the right to write there".to_owned(),
        })?;
        self.hosts = next;
        Ok(changes)
    }

    fn write(&self, hosts: &BTreeSet<Nqn>) -> io::Result<()> {
        let text = Text { hosts: hosts.iter().map(ToString::to_string).collect() };
        state::replace(&self.directory, FILE, &toml::to_string(&text).map_err(io::Error::other)?)
    }

    /// Reads again what the process of another node may have changed, which waits until the lock is
    /// dropped.
    fn renew(&self, hosts: &mut BTreeSet<Nqn>) -> Result<File, String> {
        let locked = || {
            let lock = state::lock_file(&self.directory.join(LOCK))?;
            lock.lock().map(|()| lock)
        };
        let lock = locked().map_err(|error: io::Error| error.to_string())?;
        match std::fs::read_to_string(self.directory.join(FILE)) {
            Ok(text) => *hosts = parse(&text)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error.to_string()),
        }
        Ok(lock)
    }
}

fn parse(text: &str) -> Result<BTreeSet<Nqn>, String> {
    let text: Text = toml::from_str(text).map_err(|error| error.message().to_owned())?;
    let nqn = |name: &String| Nqn::new(name).map_err(|error| format!("{name}: {error}"));
    text.hosts.iter().map(nqn).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fenced_host_stays_out_over_restarts_until_it_is_let_in() {
        let directory = tempfile::tempdir().unwrap();
        let state = State::open(Some(directory.path()), false).unwrap();
        let [one, two] = ["nqn.2026-11.test:one", "nqn.2026-11.test:two"].map(|name| Nqn::new(name).unwrap());
        let mut fences = Fences::open(&state).unwrap();
        assert!(fences.apply(&Access::Any).allows(&one));
        assert!(fences.set(&one, true).unwrap());
        assert!(!fences.set(&one, true).unwrap());
        let mut fences = Fences::open(&state).unwrap();
        for access in [Access::Any, Access::Only([one.clone(), two.clone()].into())] {
            let left = fences.apply(&access);
            assert!(!left.allows(&one) && left.allows(&two), "{access:?}");
        }
        fences.set(&two, true).unwrap();
        fences.set(&one, false).unwrap();
        let left = Fences::open(&state).unwrap().apply(&Access::Any);
        assert!(left.allows(&one) && !left.allows(&two));
    }

    #[test]
    fn a_file_that_is_lost_is_missed() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join(FILE);
        let state = || State::open(Some(directory.path()), false).unwrap();
        let begin = |state: &mut State| {
            let mut fences = Fences::open(state).unwrap();
            fences.begin(state).unwrap();
            state.save().unwrap();
            fences
        };
        let mut one = state();
        begin(&mut one).set(&Nqn::new("nqn.2026-11.test:one").unwrap(), true).unwrap();
        drop(one);
        // What is there stays.
        assert_eq!(begin(&mut state()).hosts().len(), 1);
        std::fs::remove_file(&file).unwrap();
        let error = Fences::open(&state()).unwrap_err().to_string();
        assert!(error.contains("not there") && error.contains("try:"), "{error}");
        // What the advice says.
        std::fs::write(&file, "hosts = []").unwrap();
        assert!(Fences::open(&state()).unwrap().hosts().is_empty());
    }

    #[test]
    fn a_damaged_file_is_refused_and_a_failed_write_changes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let state = State::open(Some(directory.path()), false).unwrap();
        for text in ["hosts = [\"a\"]", "hosts = 1", "host = []", "hosts = [\"nqn.2026-11.test:one\""] {
            std::fs::write(directory.path().join(FILE), text).unwrap();
            assert!(Fences::open(&state).unwrap_err().to_string().contains(FILE), "{text}");
        }
        std::fs::remove_file(directory.path().join(FILE)).unwrap();
        let mut fences = Fences::open(&state).unwrap();
        // The name of the draft is taken by something that cannot be replaced.
        std::fs::create_dir_all(directory.path().join(format!("{FILE}.new/in-the-way"))).unwrap();
        let one = Nqn::new("nqn.2026-11.test:one").unwrap();
        assert!(fences.set(&one, true).is_err());
        assert!(fences.apply(&Access::Any).allows(&one));
    }
}
