//! What is to be served: from options or from a file.

use super::ServeArgs;
use super::hosts::{self, Hosts};
use crate::error::Error;
use serde::Deserialize;
use server::config::size;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use target::{Access, HostId, Nqn};

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
}

/// What is to be served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    pub volumes: Vec<Wanted>,
    pub listen: Vec<SocketAddr>,
    pub host_ids: BTreeMap<Nqn, HostId>,
    pub nqn: Option<Nqn>,
    pub state: Option<PathBuf>,
    pub loops: Option<u16>,
    pub memory_bytes: Option<usize>,
}

impl Settings {
    /// Which hosts may connect: those that see a volume.
    pub fn access(&self) -> Access {
        let mut all = BTreeSet::new();
        for wanted in &self.volumes {
            match &wanted.hosts {
                Access::Any => return Access::Any,
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
                listen: self.listen.clone(),
                host_ids: BTreeMap::new(),
                nqn: self.nqn.clone(),
                state: self.state.clone(),
                loops: self.loops,
                memory_bytes: None,
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
            settings.listen.push(LOCAL);
        }
        Ok(settings)
    }
}

impl Wanted {
    fn of(source: &Source, allow: &[Allow]) -> Self {
        let hosts = allow.iter().filter_map(|allow| match allow {
            Allow::Host(host) => Some(host.clone()),
            Allow::Any => None,
        });
        let hosts = if allow.contains(&Allow::Any) { Access::Any } else { Access::Only(hosts.collect()) };
        Self { source: source.clone(), nsid: None, block: None, hosts }
    }
}

/// The file as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    nqn: Option<String>,
    #[serde(default)]
    listen: Vec<SocketAddr>,
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
}

pub(super) fn read(file: &Path) -> Result<Settings, Error> {
    let read = || -> std::io::Result<String> {
        let mut text = String::new();
        let opened = std::fs::File::open(file)?;
        std::io::Read::read_to_string(&mut std::io::Read::take(opened, FILE_BYTES_MAX), &mut text)?;
        Ok(text)
    };
    let text = read().map_err(|cause| Error::Read { file: file.display().to_string(), cause })?;
    parse(&text).map_err(|cause| Error::Refused {
        sentence: format!("cannot use {}", file.display()),
        cause,
        advice: "docs/BLOCK.md describes the file".to_owned(),
    })
}

fn parse(text: &str) -> Result<Settings, String> {
    let file: File =
        toml::from_str(text).map_err(|error| error.to_string().trim_end().replace('\n', "\n         "))?;
    let named = |key: &'static str| move |error: String| format!("{key}: {error}");
    let hosts = Hosts::of(file.host, file.group)?;
    let allow = hosts.access("allow", &file.allow)?;
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
        Ok(Wanted { source, nsid: volume.nsid, block: volume.block, hosts })
    };
    Ok(Settings {
        volumes: file.volume.into_iter().map(wanted).collect::<Result<_, _>>()?,
        listen: file.listen,
        host_ids: hosts.ids.clone(),
        nqn,
        state: file.state,
        loops: file.loops,
        memory_bytes: memory.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
                },
                Wanted { source: Source::Memory(1 << 20), nsid: None, block: None, hosts: allowed }
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
            ("listen = [\"nowhere\"]", "listen"),
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
