//! What is to be served: from options or from a file.

use super::ServeArgs;
use super::address::Address as At;
use super::hosts::{self, Hosts};
use super::owners::Name;
use crate::block::secret;
use crate::error::Error;
use initiator::secret_file;
use serde::Deserialize;
use server::config::size;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use target::{Access, HostId, HostSecret, Listen, Node, Nqn};

/// The default address.
const LOCAL: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 4420);
/// No file of volumes is larger.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// With less, not one I/O queue can be connected.
const MEMORY_BYTES_MIN: u64 = 16 << 20;

/// What a volume is on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Memory of this many bytes.
    Memory(u64),
    /// A file or a block device.
    Path(PathBuf),
}

impl FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(size) = text.strip_prefix("mem:") {
            let bytes = size::parse_bytes(size).map_err(|error| error.to_string())?;
            return if bytes < 4096 {
                Err("memory of less than 4096 bytes has no block".to_owned())
            } else {
                Ok(Self::Memory(bytes))
            };
        }
        if text.is_empty() { Err("the path is empty".to_owned()) } else { Ok(Self::Path(text.into())) }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(_) => f.write_str("memory"),
            Self::Path(path) => path.display().fmt(f),
        }
    }
}

/// Who may connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Allow {
    /// Every host.
    Any,
    /// The host of this name.
    Host(Nqn),
}

impl Allow {
    const fn host(&self) -> Option<&Nqn> {
        match self {
            Self::Any => None,
            Self::Host(host) => Some(host),
        }
    }
}

impl fmt::Display for Allow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("any"),
            Self::Host(host) => host.fmt(f),
        }
    }
}

impl FromStr for Allow {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "any" {
            return Ok(Self::Any);
        }
        Nqn::new(text).map(Self::Host).map_err(|error| error.to_string())
    }
}

/// A volume that is to be served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    pub source: Source,
    pub nsid: Option<u32>,
    pub block: Option<u32>,
    /// Which hosts see it.
    pub hosts: Access,
    /// The node that is to own it.
    pub owner: Option<Node>,
}

/// What is to be served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    pub volumes: Vec<Wanted>,
    pub listen: Vec<Listen>,
    /// The hosts that are named anywhere.
    pub named: BTreeSet<Nqn>,
    pub host_ids: BTreeMap<Nqn, HostId>,
    /// How those hosts prove who they are that must.
    pub secrets: BTreeMap<Nqn, HostSecret>,
    pub nqn: Option<Nqn>,
    pub state: Option<PathBuf>,
    pub loops: Option<u16>,
    pub memory_bytes: Option<usize>,
    /// The node that this process is, if each is a process of its own.
    pub node: Option<Node>,
    /// The addresses of the other node then.
    pub elsewhere: Vec<Listen>,
}

impl Settings {
    /// The nodes that have an address.
    pub fn nodes(&self) -> Vec<Node> {
        let nodes: BTreeSet<Node> = self.listen.iter().map(|listen| listen.node).collect();
        nodes.into_iter().collect()
    }

    /// Which hosts may connect: those that see a volume.
    pub fn access(&self) -> Access {
        let mut all = BTreeSet::new();
        for wanted in &self.volumes {
            match &wanted.hosts {
                Access::Any | Access::AnyBut(_) => return Access::Any,
                Access::Only(hosts) => all.extend(hosts.iter().cloned()),
            }
        }
        Access::Only(all)
    }
}

impl ServeArgs {
    /// What is to be served.
    pub(super) fn settings(&self) -> Result<Settings, Error> {
        let mut settings = match &self.config {
            Some(file) => read(file)?,
            None => Settings {
                volumes: self.volume.iter().map(|source| Wanted::of(source, &self.allow)).collect(),
                listen: in_turn(self.listen.iter().map(|address| (*address, None))),
                named: self.allow.iter().filter_map(Allow::host).cloned().collect(),
                host_ids: BTreeMap::new(),
                secrets: BTreeMap::new(),
                nqn: self.nqn.clone(),
                state: self.state.clone(),
                loops: self.loops,
                memory_bytes: None,
                node: None,
                elsewhere: Vec::new(),
            },
        };
        if settings.volumes.is_empty() {
            return Err(Error::Usage {
                sentence: "there is nothing to serve".to_owned(),
                cause: "no volume was given".to_owned(),
                advice: "--volume /srv/vm.img, --volume mem:2GiB, or -c FILE.toml".to_owned(),
            });
        }
        if settings.nqn.as_ref().is_some_and(Nqn::is_discovery) {
            return Err(Error::Usage {
                sentence: "the subsystem cannot have this name".to_owned(),
                cause: "it is that of discovery services".to_owned(),
                advice: "another name, or none: one is made and kept".to_owned(),
            });
        }
        if settings.listen.is_empty() {
            settings.listen.push(LOCAL.into());
        }
        if let Some(node) = self.node {
            settings.divide(node.node())?;
        }
        Ok(settings)
    }
}

impl Settings {
    /// This process is one node, and has its addresses only.
    fn divide(&mut self, node: Node) -> Result<(), Error> {
        let refused = |cause: &str, advice: &str| Error::Usage {
            sentence: format!("there cannot be a process for node {node}"),
            cause: cause.to_owned(),
            advice: advice.to_owned(),
        };
        if self.nodes() != [Node::A, Node::B] {
            let cause = "the file does not have addresses of both nodes";
            return Err(refused(cause, "an address with node = \"A\" and one with node = \"B\" in listen"));
        }
        if self.volumes.iter().any(|wanted| matches!(wanted.source, Source::Memory(_))) {
            let cause = "memory is that of one process, and the other node could not take it over";
            return Err(refused(cause, "files and devices, or both nodes in one process, without --node"));
        }
        let (here, there): (Vec<Listen>, Vec<Listen>) =
            self.listen.iter().copied().partition(|listen| listen.node == node);
        self.listen = here;
        // A port that the system chooses is not known to the other process.
        self.elsewhere = there.into_iter().filter(|listen| listen.address.port() != 0).collect();
        self.node = Some(node);
        Ok(())
    }
}

impl Wanted {
    fn of(source: &Source, allow: &[Allow]) -> Self {
        let hosts = allow.iter().filter_map(Allow::host).cloned();
        let hosts = if allow.contains(&Allow::Any) { Access::Any } else { Access::Only(hosts.collect()) };
        Self { source: source.clone(), nsid: None, block: None, hosts, owner: None }
    }
}

/// The file as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    nqn: Option<String>,
    #[serde(default)]
    listen: Vec<Address>,
    #[serde(default)]
    allow: Vec<String>,
    state: Option<PathBuf>,
    loops: Option<u16>,
    memory: Option<String>,
    #[serde(default)]
    host: Vec<hosts::Host>,
    #[serde(default)]
    group: Vec<hosts::Group>,
    #[serde(default)]
    volume: Vec<Volume>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Volume {
    source: String,
    nsid: Option<u32>,
    block: Option<u32>,
    hosts: Option<Vec<String>>,
    owner: Option<Name>,
}

/// An address, alone or with its node.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "neither an address nor { address = \"ADDR:PORT\", node = \"A\" }")]
enum Address {
    Alone(At),
    Of(Port),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Port {
    address: At,
    node: Option<Name>,
}

/// Addresses without a node are those of A and of B in turn.
fn in_turn(addresses: impl Iterator<Item = (At, Option<Node>)>) -> Vec<Listen> {
    let mut turn = [Node::A, Node::B].into_iter().cycle();
    let mut next = || turn.next().unwrap_or(Node::A);
    addresses.map(|(address, node)| address.of(node.unwrap_or_else(&mut next))).collect()
}

pub(super) fn read(file: &Path) -> Result<Settings, Error> {
    let read = || -> std::io::Result<(String, bool)> {
        let mut text = String::new();
        let opened = std::fs::File::open(file)?;
        let is_open = secret_file::is_open(&opened.metadata()?);
        std::io::Read::read_to_string(&mut std::io::Read::take(opened, FILE_BYTES_MAX), &mut text)?;
        Ok((text, is_open))
    };
    let (text, is_open) = read().map_err(|cause| Error::Read { file: file.display().to_string(), cause })?;
    let refused = |(cause, advice): (String, String)| Error::Refused {
        sentence: format!("cannot use {}", file.display()),
        cause,
        advice,
    };
    let described = |cause| (cause, "docs/BLOCK.md describes the file".to_owned());
    let file_of = |text| of_text(text).map_err(described);
    if is_open && file_of(&text).map_err(refused)?.host.iter().any(hosts::Host::has_secret) {
        let cause = "it has secrets, and others than its owner may read or write it".to_owned();
        let advice = format!("{}; or secret_file, a file of its own for each", secret_file::close(file));
        return Err(refused((cause, advice)));
    }
    parse(&text).map_err(described).map_err(refused)
}

/// Errors quote the line that is not understood, which may be a secret.
fn of_text(text: &str) -> Result<File, String> {
    toml::from_str(text).map_err(|error| {
        let shown = error.to_string();
        let line = 1 + text
            .get(..error.span().map_or(0, |span| span.start))
            .map_or(0, |it| it.matches('\n').count());
        let shown = if shown.contains("secret") || shown.contains("DHHC") {
            format!("line {line}: {}", secret::without_secrets(error.message()))
        } else {
            shown
        };
        shown.trim_end().replace('\n', "\n         ")
    })
}

/// Reads the text of a file; what is wrong begins with its key.
pub(in crate::block) fn parse(text: &str) -> Result<Settings, String> {
    let file = of_text(text)?;
    let named = |key: &'static str| move |error: String| format!("{key}: {error}");
    let hosts = Hosts::of(file.host, file.group)?;
    let allow = hosts.access("allow", &file.allow)?;
    let of_volumes = file.volume.iter().filter_map(|volume| volume.hosts.as_ref()).flatten();
    let all = hosts.all(file.allow.iter().chain(of_volumes));
    let nqn = file.nqn.as_deref().map(Nqn::new).transpose().map_err(|error| format!("nqn: {error}"))?;
    if file.loops.is_some_and(|loops| !(1..=1024).contains(&loops)) {
        return Err("loops: not between 1 and 1024".to_owned());
    }
    let memory = file.memory.as_deref().map(size::parse_bytes).transpose();
    let memory = memory.map_err(|error| format!("memory: {error}"))?;
    if memory.is_some_and(|bytes| bytes < MEMORY_BYTES_MIN) {
        return Err("memory: at least 16MiB are needed".to_owned());
    }
    let wanted = |volume: Volume| -> Result<Wanted, String> {
        let source = volume.source.parse().map_err(named("source"))?;
        if volume.block.is_some_and(|block| block != 512 && block != 4096) {
            return Err("block: neither 512 nor 4096".to_owned());
        }
        let hosts = volume.hosts.map(|list| hosts.access("hosts", &list)).transpose();
        let hosts = hosts.map_err(|error| format!("volume {}: {error}", volume.source))?;
        let hosts = hosts.unwrap_or_else(|| allow.clone());
        let owner = volume.owner.map(Name::node);
        Ok(Wanted { source, nsid: volume.nsid, block: volume.block, hosts, owner })
    };
    let listen = file.listen.into_iter().map(|listen| match listen {
        Address::Alone(address) => (address, None),
        Address::Of(Port { address, node }) => (address, node.map(Name::node)),
    });
    Ok(Settings {
        listen: in_turn(listen),
        volumes: file.volume.into_iter().map(wanted).collect::<Result<_, _>>()?,
        named: all,
        host_ids: hosts.ids,
        secrets: hosts.secrets,
        nqn,
        state: file.state,
        loops: file.loops,
        memory_bytes: memory.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX)),
        node: None,
        elsewhere: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use target::Transport;

    #[test]
    fn a_file_says_what_options_say_and_more() {
        let settings = parse(
            "nqn = \"nqn.2026-11.test:a\"\nlisten = [\"10.0.0.1:4420\"]\nallow = [\"nqn.2026-11.test:h\"]\n\
             state = \"/tmp/s\"\nloops = 2\nmemory = \"64MiB\"\n\
             [[volume]]\nsource = \"/srv/a.img\"\nnsid = 7\nblock = 512\n[[volume]]\nsource = \"mem:1MiB\"\n",
        )
        .unwrap();
        let allowed = Access::Only([Nqn::new("nqn.2026-11.test:h").unwrap()].into());
        assert_eq!(
            settings.volumes,
            [
                Wanted {
                    source: Source::Path("/srv/a.img".into()),
                    nsid: Some(7),
                    block: Some(512),
                    hosts: allowed.clone(),
                    owner: None,
                },
                Wanted {
                    source: Source::Memory(1 << 20),
                    nsid: None,
                    block: None,
                    hosts: allowed,
                    owner: None
                }
            ]
        );
        assert_eq!((settings.loops, settings.memory_bytes), (Some(2), Some(64 << 20)));
        assert!(settings.access().allows(&Nqn::new("nqn.2026-11.test:h").unwrap()));
        assert!(!settings.access().allows(&Nqn::new("nqn.2026-11.test:i").unwrap()));
    }

    #[test]
    fn a_wrong_file_is_refused_by_the_key_that_is_wrong() {
        for (text, key) in [
            ("volumes = 1", "volumes"),
            ("nqn = \"iqn.2026\"", "nqn"),
            ("allow = [\"some\"]", "allow"),
            ("loops = 0", "loops"),
            ("memory = \"1MiB\"", "memory"),
            ("memory = \"much\"", "memory"),
            ("listen = [\"nowhere\"]", "neither an address nor"),
            ("listen = [{ address = \"10.0.0.1:1\", node = \"C\" }]", "neither an address nor"),
            ("[[volume]]\nsource = \"/a\"\nowner = \"C\"", "owner"),
            ("[[volume]]\nsource = \"mem:x\"", "source"),
            ("[[volume]]\nsource = \"mem:1B\"", "source"),
            ("[[volume]]\nsource = \"/a\"\nblock = 520", "block"),
            ("[[volume]]\nsource = \"/a\"\nsize = 1", "size"),
            ("[[volume]]\nsource = \"/a\"\nhosts = [\"b\"]", "volume /a: hosts"),
            ("[[host]]\nname = \"a\"\nnqn = \"b\"", "host \"a\": nqn"),
            ("[[group]]\nname = \"a\"\nhosts = []", "group \"a\""),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(key), "{text}: {error}");
        }
    }

    #[test]
    fn addresses_are_those_of_both_nodes_in_turn_unless_they_say_so() {
        let settings = parse(
            "listen = [\"10.0.0.1:1\", { address = \"10.0.0.2:1\", node = \"A\" }, \"10.0.0.3:1\", \
             { address = \"10.0.0.4:1\" }]\n[[volume]]\nsource = \"mem:1MiB\"\nowner = \"B\"\n",
        )
        .unwrap();
        let nodes: Vec<Node> = settings.listen.iter().map(|listen| listen.node).collect();
        assert_eq!(nodes, [Node::A, Node::A, Node::B, Node::A]);
        let mixed =
            "listen = [\"rdma:10.0.0.1:1\", { address = \"rdma:10.0.0.2:1\", node = \"B\" }, \"10.0.0.3:1\"]";
        let mixed = parse(mixed).unwrap().listen;
        let seen: Vec<_> = mixed.iter().map(|listen| (listen.transport, listen.node)).collect();
        assert_eq!(seen, [(Transport::Rdma, Node::A), (Transport::Rdma, Node::B), (Transport::Tcp, Node::B)]);
        assert_eq!((settings.nodes(), settings.volumes[0].owner), (vec![Node::A, Node::B], Some(Node::B)));
    }

    #[test]
    fn nobody_is_allowed_unless_somebody_is_named() {
        let host = Nqn::new("nqn.2026-11.test:h").unwrap();
        let volume = "[[volume]]\nsource = \"mem:1MiB\"\n";
        assert!(!parse(volume).unwrap().access().allows(&host));
        assert!(parse(&format!("allow = [\"any\"]\n{volume}")).unwrap().access().allows(&host));
    }

    #[test]
    fn a_volume_with_hosts_is_theirs_and_others_belong_to_those_who_are_allowed() {
        let settings = parse(
            "allow = [\"a\"]\n[[host]]\nname = \"a\"\nnqn = \"nqn.2026-11.test:a\"\n\
             [[group]]\nname = \"g\"\nhosts = [\"nqn.2026-11.test:b\"]\n\
             [[volume]]\nsource = \"mem:1MiB\"\n\
             [[volume]]\nsource = \"mem:1MiB\"\nhosts = [\"g\"]\n\
             [[volume]]\nsource = \"mem:1MiB\"\nhosts = []\n",
        )
        .unwrap();
        let only = |names: &[&str]| {
            let nqn = |name: &&str| Nqn::new(&format!("nqn.2026-11.test:{name}")).unwrap();
            Access::Only(names.iter().map(nqn).collect())
        };
        let seen: Vec<Access> = settings.volumes.iter().map(|wanted| wanted.hosts.clone()).collect();
        assert_eq!(seen, [only(&["a"]), only(&["b"]), only(&[])]);
        assert_eq!(settings.access(), only(&["a", "b"]));
    }
}
