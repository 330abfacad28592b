//! Where snapshots come from.

use crate::error::Error;
use crate::live::SOCKETS;
use metrics::Snapshot;
use std::io;
use std::str::FromStr;

/// What is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// Every process of this user on this host.
    All,
    /// One process.
    Process(u32),
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let pid = text.parse::<u32>().ok().filter(|pid| *pid > 0);
        pid.map(Self::Process).ok_or_else(|| "the number of a process".to_owned())
    }
}

impl Target {
    /// A snapshot of each process, servers first, then in the order of their numbers. A process
    /// that ends meanwhile, or runs another version, is left out of [`Target::All`].
    ///
    /// # Errors
    /// A process that was asked for by its number tells nothing.
    pub fn snapshots(self) -> Result<Vec<Snapshot>, Error> {
        match self {
            Self::All => {
                let mut found: Vec<_> =
                    SOCKETS.read_all().into_iter().filter_map(|(pid, text)| parse(pid, &text).ok()).collect();
                found.sort_by_key(|snapshot| (snapshot.process.kind, snapshot.process.pid));
                Ok(found)
            }
            Self::Process(pid) => {
                let text = SOCKETS.read(pid).map_err(|error| silent(pid, &error))?;
                Ok(vec![parse(pid, &text)?])
            }
        }
    }
}

/// The snapshot that a process sent. The system knows which process that is; what the process says
/// is not trusted with that.
fn parse(pid: u32, text: &[u8]) -> Result<Snapshot, Error> {
    let mut snapshot = Snapshot::from_json(text).map_err(|error| Error::Usage {
        sentence: format!("process {pid} cannot be watched"),
        cause: error.to_string(),
        advice: "run the process and `trunkline top` of one version".to_owned(),
    })?;
    snapshot.process.pid = pid;
    Ok(snapshot)
}

fn silent(pid: u32, error: &io::Error) -> Error {
    let cause = match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            "it is no trunkline serve, mount or bench of this user".to_owned()
        }
        _ => error.to_string(),
    };
    Error::Usage {
        sentence: format!("process {pid} cannot be watched"),
        cause,
        advice: "`trunkline top` without a number shows those that can".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_process() {
        assert_eq!("4711".parse(), Ok(Target::Process(4711)));
        for wrong in ["", "0", "-1", "x", "99999999999"] {
            assert!(wrong.parse::<Target>().is_err(), "{wrong}");
        }
    }
}
