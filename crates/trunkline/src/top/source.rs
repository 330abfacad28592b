//! Where snapshots come from.

use crate::error::Error;
use crate::live::SOCKETS;
use metrics::Snapshot;
use std::io;
use std::str::FromStr;
use std::time::Duration;

/// How long a metrics address may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest answer that is read: the counters of some thousand clients.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// What is watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Every process of this user on this host.
    All,
    /// One process.
    Process(u32),
    /// The process that answers on a metrics address: `10.0.0.1:9100`.
    Address(String),
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(pid) = text.parse::<u32>().ok().filter(|pid| *pid > 0) {
            return Ok(Self::Process(pid));
        }
        let address = text.strip_prefix("http://").unwrap_or(text).trim_end_matches('/');
        let has_port = address.rsplit_once(':').is_some_and(|(host, port)| {
            !host.is_empty() && !host.contains('/') && port.parse::<u16>().is_ok_and(|port| port > 0)
        });
        let wanted = "the number of a process, or the metrics address of one, such as 10.0.0.1:9100";
        has_port.then(|| Self::Address(address.to_owned())).ok_or_else(|| wanted.to_owned())
    }
}

impl Target {
    /// A snapshot of each process, servers first, then in the order of their numbers. A process
    /// that ends meanwhile, or runs another version, is left out of [`Target::All`]. `token` is
    /// shown to an address.
    ///
    /// # Errors
    /// A process that was asked for tells nothing.
    pub fn snapshots(&self, token: Option<&str>) -> Result<Vec<Snapshot>, Error> {
        match self {
            Self::All => {
                let mut found: Vec<_> = SOCKETS
                    .read_all()
                    .into_iter()
                    .filter_map(|(pid, text)| of_process(pid, &text).ok())
                    .collect();
                found.sort_by_key(|snapshot| (snapshot.process.kind, snapshot.process.pid));
                Ok(found)
            }
            Self::Process(pid) => {
                let text = SOCKETS.read(*pid).map_err(|error| silent(*pid, &error))?;
                Ok(vec![of_process(*pid, &text)?])
            }
            Self::Address(address) => {
                let text = ask(address, token)?;
                Ok(vec![parse(&format!("the process at {address}"), &text)?])
            }
        }
    }
}

/// The snapshot that a process sent. The system knows which process that is; what the process says
/// is not trusted with that.
fn of_process(pid: u32, text: &[u8]) -> Result<Snapshot, Error> {
    let mut snapshot = parse(&format!("process {pid}"), text)?;
    snapshot.process.pid = pid;
    Ok(snapshot)
}

fn parse(who: &str, text: &[u8]) -> Result<Snapshot, Error> {
    Snapshot::from_json(text).map_err(|error| Error::Usage {
        sentence: format!("{who} cannot be watched"),
        cause: error.to_string(),
        advice: "run the process and `trunkline top` of one version".to_owned(),
    })
}

/// Asks a metrics address for a snapshot.
fn ask(address: &str, token: Option<&str>) -> Result<Vec<u8>, Error> {
    let agent = ureq::Agent::config_builder()
        .timeout_global(Some(ANSWER_TIMEOUT))
        .max_redirects(0)
        .proxy(None)
        .build()
        .new_agent();
    // The address checks the host against web sites that mislead browsers; this is none.
    let mut request = agent.get(format!("http://{address}/snapshot")).header("Host", "localhost");
    if let Some(token) = token {
        request = request.header("Authorization", &format!("Bearer {token}"));
    }
    let answer = request
        .call()
        .and_then(|mut answer| answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec());
    answer.map_err(|error| Error::Usage {
        sentence: format!("the process at {address} cannot be watched"),
        cause: error.to_string(),
        advice: match error {
            ureq::Error::StatusCode(401) => "--token FILE with the token of its --metrics-token".to_owned(),
            ureq::Error::StatusCode(_) => "the address that a process was given by --metrics".to_owned(),
            _ => "look whether the process runs with --metrics, and whether a firewall lets you reach it"
                .to_owned(),
        },
    })
}

fn silent(pid: u32, error: &io::Error) -> Error {
    let cause = match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            "it is no trunkline serve or mount of this user".to_owned()
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
    fn a_target_is_a_process_or_an_address() {
        assert_eq!("4711".parse(), Ok(Target::Process(4711)));
        for address in ["10.0.0.1:9100", "[::1]:9100", "node1:80"] {
            assert_eq!(address.parse(), Ok(Target::Address(address.to_owned())));
            assert_eq!(format!("http://{address}/").parse(), Ok(Target::Address(address.to_owned())));
        }
        for wrong in ["", "0", "-1", "x", "99999999999", "host:", ":80", "host:0", "http://a/b:1"] {
            assert!(wrong.parse::<Target>().is_err(), "{wrong}");
        }
    }
}
