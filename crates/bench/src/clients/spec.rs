//! Names of clients: `NAME=HOST:PORT`, `ssh:HOST`, `fio:HOST`.

use std::fmt;
use std::str::FromStr;

/// The port of an agent, if none is named.
pub const AGENT_PORT: u16 = 7411;

/// Where a client's agent is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// It listens at this host name or address, and port.
    Tcp(String, u16),
    /// It is started on this host by ssh.
    Ssh(String),
    /// It is a `fio --server` on this host, with its port after a comma if it is not the default
    /// one.
    Fio(String),
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host, port) if host.contains(':') => write!(out, "[{host}]:{port}"),
            Self::Tcp(host, port) => write!(out, "{host}:{port}"),
            Self::Ssh(host) => write!(out, "ssh:{host}"),
            Self::Fio(host) => write!(out, "fio:{host}"),
        }
    }
}

/// A client of an experiment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientSpec {
    /// The name under which its results are shown.
    pub name: String,
    /// Where its agent is.
    pub place: Place,
}

impl FromStr for ClientSpec {
    type Err = String;

    /// Reads `[NAME=]HOST[:PORT]`, `[NAME=]ssh:HOST` or `[NAME=]fio:HOST[:PORT]`. Without
    /// a name, the client is named by its host, and by its port too if it is not the default one.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, place) = match text.split_once('=') {
            Some((name, place)) => (Some(name), place),
            None => (None, text),
        };
        let wrong = |why: &str| format!("client `{text}`: {why}");
        if name.is_some_and(|name| name.is_empty() || name.contains(char::is_control)) {
            return Err(wrong("the name before `=` is empty or not printable"));
        }
        if let Some(host) = place.strip_prefix("fio:") {
            let host = fio_host(host).ok_or_else(|| wrong("it is not fio:HOST or fio:HOST:PORT"))?;
            return Ok(Self { name: name.unwrap_or(&host).to_owned(), place: Place::Fio(host) });
        }
        let (place, short) = match place.strip_prefix("ssh:") {
            Some("") => return Err(wrong("there is no host after `ssh:`")),
            // ssh would take it as an option.
            Some(host) if host.starts_with('-') => return Err(wrong("a host does not begin with `-`")),
            Some(host) => (Place::Ssh(host.to_owned()), host.to_owned()),
            None => {
                let (host, port) =
                    host_and_port(place).ok_or_else(|| wrong("it is not HOST or HOST:PORT"))?;
                let port = port.unwrap_or(AGENT_PORT);
                let place = Place::Tcp(host.to_owned(), port);
                let short = if port == AGENT_PORT { host.to_owned() } else { place.to_string() };
                (place, short)
            }
        };
        Ok(Self { name: name.map_or(short, str::to_owned), place })
    }
}

/// A host as fio writes it: with its port after a comma.
fn fio_host(text: &str) -> Option<String> {
    let (host, port) = host_and_port(text)?;
    let fits = !host.starts_with('-') && !host.contains('/');
    let port = port.map_or_else(String::new, |port| format!(",{port}"));
    fits.then(|| format!("{host}{port}"))
}

/// A host and its port, if one is named.
fn host_and_port(text: &str) -> Option<(&str, Option<u16>)> {
    let number = |port: &str| port.parse().ok().filter(|port| *port > 0);
    if let Some(rest) = text.strip_prefix('[') {
        let (host, port) = rest.split_once(']')?;
        return match port.strip_prefix(':') {
            Some(port) => Some((host, Some(number(port)?))),
            None => port.is_empty().then_some((host, None)),
        };
    }
    let (host, port) = match text.split_once(':') {
        // An IPv6 address without brackets.
        Some((_, rest)) if rest.contains(':') => (text, None),
        Some((host, port)) => (host, Some(number(port)?)),
        None => (text, None),
    };
    let good = |it: char| !it.is_whitespace() && !it.is_control() && it != ',';
    (!host.is_empty() && host.chars().all(good)).then_some((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(text: &str) -> (String, String) {
        let spec: ClientSpec = text.parse().unwrap();
        (spec.name, spec.place.to_string())
    }

    #[test]
    fn clients_are_named_by_their_hosts_or_as_asked() {
        for (text, name, place) in [
            ("host1", "host1", "host1:7411"),
            ("10.0.0.5:99", "10.0.0.5:99", "10.0.0.5:99"),
            ("vm1=10.0.0.5:99", "vm1", "10.0.0.5:99"),
            ("[fd77::1]:99", "[fd77::1]:99", "[fd77::1]:99"),
            ("fd77::1", "fd77::1", "[fd77::1]:7411"),
            ("ssh:root@vm2", "root@vm2", "ssh:root@vm2"),
            ("b=ssh:vm2", "b", "ssh:vm2"),
            ("fio:vm3", "vm3", "fio:vm3"),
            ("fio:vm3:8766", "vm3,8766", "fio:vm3,8766"),
            ("fio:vm3:7411", "vm3,7411", "fio:vm3,7411"),
            ("host1:7411", "host1", "host1:7411"),
        ] {
            assert_eq!(client(text), (name.to_owned(), place.to_owned()), "{text}");
        }
    }

    #[test]
    fn what_is_no_client_is_refused_with_its_text() {
        for text in [
            "",
            "=host",
            "a=",
            "host:",
            "host:0",
            "host:99999",
            "host:x",
            "ssh:",
            "ssh:-oX",
            "fio:",
            "fio:a/b",
            "[::1",
            "a b",
        ] {
            let error = text.parse::<ClientSpec>().unwrap_err();
            assert!(error.contains(&format!("`{text}`")), "{error}");
        }
    }
}
