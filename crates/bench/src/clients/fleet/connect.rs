//! Connects to agents: over TCP, or by starting them by ssh.

use std::io;
use std::net::{IpAddr, TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::{Client, Fleet};
use crate::clients::agent;
use crate::clients::key::Key;
use crate::clients::link::{Closer, HANDSHAKE_TIMEOUT, Link, LinkError};
use crate::clients::message::Machine;
use crate::clients::spec::{ClientSpec, Place};
use crate::clients::{Access, SSH_COMMAND};
use crate::error::{Error, Result};

/// An agent that is being started is waited for this long.
const START_TIMEOUT: Duration = Duration::from_secs(5);
const RETRY_INTERVAL: Duration = Duration::from_millis(200);
/// How long one attempt to connect may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long ssh may take to log in and start the agent.
const SSH_TIMEOUT: Duration = Duration::from_secs(60);

/// Why a client cannot be used: the cause, and what to do.
type Refusal = (String, String);

impl Fleet {
    /// Connects to all clients. If one cannot be used, nothing has happened yet.
    ///
    /// # Errors
    /// [`Error::Refused`] with the clients, the cause and what to do.
    pub(crate) fn connect(specs: &[ClientSpec], access: &Access) -> Result<Self> {
        let key = key(specs, access)?;
        let key = key.as_ref();
        let connected: Vec<std::result::Result<Client, Refusal>> = std::thread::scope(|scope| {
            let each = |spec| scope.spawn(move || connect(spec, key, access));
            let threads: Vec<_> = specs.iter().map(each).collect();
            let panicked = |_| Err(("a thread has panicked".to_owned(), "the same again".to_owned()));
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(panicked)).collect()
        });
        let (mut clients, mut refused) = (Vec::new(), Vec::new());
        for (spec, connected) in specs.iter().zip(connected) {
            match connected {
                Ok(client) => clients.push(client),
                Err(refusal) => refused.push((spec, refusal)),
            }
        }
        let mut refused = refused.into_iter();
        let Some((first, (cause, advice))) = refused.next() else {
            return Ok(Self { clients, here: agent::machine() });
        };
        let others: Vec<&str> = refused.map(|(spec, _)| spec.name.as_str()).collect();
        let others = match others.as_slice() {
            [] => String::new(),
            names => format!(", nor {}", names.join(", ")),
        };
        let place = first.place.to_string();
        let place = if place == first.name { String::new() } else { format!(" ({place})") };
        Err(Error::refused(format!("cannot use client {}{place}{others}", first.name), cause, advice))
    }
}

/// The key, if a client needs one.
fn key(specs: &[ClientSpec], access: &Access) -> Result<Option<Key>> {
    if !specs.iter().any(|spec| matches!(spec.place, Place::Tcp(..))) {
        return Ok(None);
    }
    let Some(file) = &access.key else {
        return Err(Error::refused(
            "no key for the clients",
            "an agent takes part only for who has its key",
            "--client-key FILE        the same key as `trunkline agent --key FILE`; or ssh:HOST",
        ));
    };
    let key = Key::from_file(file).map_err(|(cause, advice)| {
        Error::refused(format!("cannot use the key {}", file.display()), cause, advice)
    })?;
    Ok(Some(key))
}

fn connect(spec: &ClientSpec, key: Option<&Key>, access: &Access) -> std::result::Result<Client, Refusal> {
    let (link, version, address) = match &spec.place {
        Place::Tcp(host, port) => {
            let key = key.cloned().unwrap_or_else(Key::of_pipe);
            over_tcp(host, *port, &key)?
        }
        Place::Ssh(host) => {
            let (link, version) = over_ssh(host, access)?;
            (link, version, None)
        }
        Place::Fio(_) => {
            let cause = "fio runs job files, and no experiment of Trunkline";
            return Err((
                cause.to_owned(),
                "JOB.fio instead of the experiment, or trunkline agent there".to_owned(),
            ));
        }
    };
    let now = Instant::now();
    let mut client = Client {
        spec: spec.clone(),
        version,
        machine: Machine::default(),
        address,
        link: Some(link),
        lost: String::new(),
        zero: now,
        clock_error: Duration::ZERO,
        wall_ahead_us: 0,
    };
    let asked = client.describe().and_then(|()| client.compare_clocks());
    asked.map_err(|error| (error.to_string(), "the agent's messages on that host".to_owned()))?;
    Ok(client)
}

fn over_tcp(
    host: &str,
    port: u16,
    key: &Key,
) -> std::result::Result<(Link, String, Option<IpAddr>), Refusal> {
    let addresses = (host, port).to_socket_addrs().map_err(|error| {
        (error.to_string(), "a host name that this machine knows, or an address".to_owned())
    })?;
    let addresses: Vec<_> = addresses.collect();
    let until = Instant::now() + START_TIMEOUT;
    loop {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in &addresses {
            let socket = TcpStream::connect_timeout(address, CONNECT_TIMEOUT);
            match socket.and_then(Link::tcp) {
                Err(error) => last = error,
                Ok(mut link) => match link.greet(key, HANDSHAKE_TIMEOUT) {
                    Ok(version) => return Ok((link, version, Some(address.ip()))),
                    // It has too many connections at the moment.
                    Err(LinkError::Closed) if Instant::now() < until => {}
                    Err(error) => return Err(advise(error, host, port)),
                },
            }
        }
        let starting =
            last.kind() == io::ErrorKind::ConnectionRefused || last.kind() == io::ErrorKind::NotFound;
        if !starting || Instant::now() >= until {
            return Err(advise(last.into(), host, port));
        }
        std::thread::sleep(RETRY_INTERVAL);
    }
}

/// The cause, and what to do about it.
fn advise(error: LinkError, host: &str, port: u16) -> Refusal {
    let advice = match &error {
        LinkError::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            format!("trunkline agent --listen 0.0.0.0:{port} --key FILE        on that host")
        }
        LinkError::Io(_) => format!("the network and the firewall to {host}, TCP port {port}"),
        LinkError::OtherKey => {
            "the same key on both sides: --client-key FILE here, --key FILE of the agent".to_owned()
        }
        LinkError::OtherProtocol { .. } => {
            format!(
                "the same version of Trunkline on both machines; here it is {}",
                env!("CARGO_PKG_VERSION")
            )
        }
        LinkError::Refused(_) => "the same when the other experiment has ended, or another client".to_owned(),
        LinkError::Closed | LinkError::Timeout(_) | LinkError::TooLong(_) => {
            format!("whether port {port} there is an agent's; the agent's messages with -v")
        }
        LinkError::Malformed(_) | LinkError::Forged => {
            format!("the port of `trunkline agent`; another program listens on port {port} there")
        }
    };
    (error.to_string(), advice)
}

/// The options by which an agent at `ssh:HOST` allows the directories of the experiment: who starts
/// it there may do with them what its user may. A shell there reads them again.
fn allowed(directories: &[PathBuf]) -> std::result::Result<Vec<String>, Refusal> {
    let mut options = Vec::new();
    for directory in directories {
        let is_plain = |it: char| it.is_ascii_alphanumeric() || "/._-+:@%,".contains(it);
        let text = directory.to_str().filter(|text| text.chars().all(is_plain));
        let text = text.ok_or_else(|| {
            let cause = format!("{} has characters that mean something to a shell", directory.display());
            (cause, "another name, or an agent that listens instead of ssh:HOST".to_owned())
        })?;
        options.extend(["--allow-dir".to_owned(), text.to_owned()]);
    }
    Ok(options)
}

fn over_ssh(host: &str, access: &Access) -> std::result::Result<(Link, String), Refusal> {
    let program = if access.program.is_empty() { "trunkline" } else { &access.program };
    let default: Vec<String> = SSH_COMMAND.split(' ').map(str::to_owned).collect();
    let words = if access.ssh.is_empty() { &default } else { &access.ssh };
    let allowed = allowed(&access.directories)?;
    let line = format!("{} {host} {program} agent --stdio {}", words.join(" "), allowed.join(" "));
    let line = line.trim_end();
    let refuse = |cause: String| (cause, format!("by hand: {line} < /dev/null        it answers a line"));
    let mut words = words.iter();
    let mut command = Command::new(words.next().map_or("ssh", String::as_str));
    command.args(words).arg(host).arg(program).args(["agent", "--stdio"]).args(&allowed);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(|error| refuse(error.to_string()))?;
    let streams = child.stdout.take().zip(child.stdin.take());
    let (output, input) = streams.ok_or_else(|| refuse("it has no pipes".to_owned()))?;
    let link = Link::new(output, Box::new(input), Closer::Child(child));
    let mut link = link.map_err(|error| refuse(error.to_string()))?;
    match link.greet(&Key::of_pipe(), SSH_TIMEOUT) {
        Ok(version) => Ok((link, version)),
        Err(error @ LinkError::OtherProtocol { .. }) => Err(advise(error, host, 0)),
        Err(error) => Err(refuse(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_go_to_a_shell_only_as_plain_words() {
        let options = |names: &[&str]| allowed(&names.iter().map(PathBuf::from).collect::<Vec<_>>());
        assert_eq!(options(&[]).unwrap(), [] as [String; 0]);
        assert_eq!(options(&["/mnt/a", "/b"]).unwrap(), ["--allow-dir", "/mnt/a", "--allow-dir", "/b"]);
        for bad in ["/a b", "/a;reboot", "/$HOME", "/a'", "/ü"] {
            assert!(options(&[bad]).unwrap_err().0.contains("mean something to a shell"), "{bad}");
        }
    }
}
