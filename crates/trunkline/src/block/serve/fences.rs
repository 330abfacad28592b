//! Hosts that are refused until they are let in again: `fenced.toml` in the state directory.
//!
//! The file is replaced as a whole, and is durable before the target refuses the host and before
//! who has asked for it is answered. So a host that a cluster takes for stopped stays out, whatever
//! happens to the server.

use super::state::{self, State};
use crate::error::Error;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use target::{Access, Nqn};

const FILE: &str = "fenced.toml";
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
    /// Reads the file; refuses to go on if it is damaged.
    pub fn open(state: &State) -> Result<Self, Error> {
        let directory = state.directory().to_owned();
        let hosts = match std::fs::read_to_string(directory.join(FILE)) {
            Ok(text) => parse(&text),
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
                advice: "restore it from a backup; or, if no host is fenced, remove it".to_owned(),
            }),
        }
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
        let text = Text { hosts: next.iter().map(ToString::to_string).collect() };
        let text = toml::to_string(&text).map_err(io::Error::other);
        text.and_then(|text| state::replace(&self.directory, FILE, &text)).map_err(|error| {
            Error::Refused {
                sentence: format!("{host} stays as it was"),
                cause: format!("{} cannot be written: {error}", self.directory.join(FILE).display()),
                advice: "space in that directory, and the right to write there".to_owned(),
            }
        })?;
        self.hosts = next;
        Ok(changes)
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
