//! Mount options, as the kernel and the vendors' multipath drivers write them.
//!
//! One table ([`OPTIONS`]) has the name, kind, default, meaning and effect of each option; parsing,
//! formatting, `docs/MOUNT-OPTIONS.md` and the tests are derived from it. Options may be in any
//! order. If an option is given twice, or both of a pair such as `hard` and `soft`, the last one
//! wins, as in mount(8) and the kernel; contradictory options are refused. This module must not
//! know about names (the mount resolves them) or sockets.

mod addresses;
pub mod document;
mod error;
mod fstab;
mod nearest;
mod opposites;
mod setters;
mod spec;
mod table;
mod target;
#[cfg(test)]
mod tests;
mod versions;

pub use addresses::{ADDRESSES_MAX, Local, Remote, Remotes};
pub use error::{LineError, OptionError, TargetError};
pub use fstab::FstabLine;
pub use spec::{Effect, Group, Kind, OptionSpec};
pub use table::OPTIONS;
pub use target::{Host, Target};

use spec::Set;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use transport::Address;
use transport::busy::BUSY_POLL_DEFAULT;

/// NFS over TCP: IANA's service nfs.
pub const PORT_TCP: u16 = 2049;
/// NFS over RDMA: IANA's service nfsrdma.
pub const PORT_RDMA: u16 = 20049;
/// Maximum of `nconnect` plus `mdconnect`, and of the connections of one loop. More than the nodes
/// of the largest clusters, and fewer than the reserved ports for one address.
pub const CONNECTIONS_MAX: u16 = paths::CONNECTIONS_MAX as u16;
/// Largest and default `rsize` and `wsize`.
pub const SIZE_MAX: u32 = 1 << 20;

/// The transport of the calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Proto {
    /// TCP.
    #[default]
    Tcp,
    /// RPC-over-RDMA.
    Rdma,
}

impl Proto {
    /// The port of NFS on this transport, unless another is given.
    #[must_use]
    pub const fn usual_port(self) -> u16 {
        match self {
            Self::Tcp => PORT_TCP,
            Self::Rdma => PORT_RDMA,
        }
    }
}

/// The version of NFS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Version {
    /// Version 3.
    #[default]
    V3,
    /// Version 4, of this minor version; without one, the highest that both ends have.
    V4(Option<u32>),
}

impl Version {
    /// The minor versions of version 4 that are asked for, in this order.
    pub(crate) const fn minors(self) -> &'static [u32] {
        match self {
            Self::V3 => &[],
            Self::V4(None) => &[2, 1],
            Self::V4(Some(1)) => &[1],
            Self::V4(Some(_)) => &[2],
        }
    }
}

/// As `vers` takes it.
impl fmt::Display for Version {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::V3 => out.write_str("3"),
            Self::V4(None) => out.write_str("4"),
            Self::V4(Some(minor)) => write!(out, "4.{minor}"),
        }
    }
}

/// A family of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Whether an address is of this family.
    #[must_use]
    pub const fn has(self, address: &Address) -> bool {
        address.is_ipv6() == matches!(self, Self::V6)
    }

    /// Why an address of the other family is refused.
    pub(crate) const fn only(self) -> &'static str {
        match self {
            Self::V4 => "it takes IPv4 addresses only; tcp6 and rdma6 take IPv6",
            Self::V6 => "it takes IPv6 addresses only; tcp and rdma take IPv4",
        }
    }
}

/// Which results of LOOKUP may be cached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum LookupCache {
    /// All.
    #[default]
    All,
    /// Names that exist.
    Positive,
    /// None.
    None,
}

/// When directories are read with their entries' attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum DirectoryReads {
    /// As the client sees fit.
    #[default]
    Auto,
    /// Always: `forcerdirplus`.
    AlwaysPlus,
    /// Never: `nordirplus`.
    NeverPlus,
}

/// How long attributes may be cached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AttributeCache {
    /// Off with `noac`.
    pub enabled: bool,
    /// `acregmin`, seconds.
    pub regular_min_s: u32,
    /// `acregmax`, seconds.
    pub regular_max_s: u32,
    /// `acdirmin`, seconds.
    pub directory_min_s: u32,
    /// `acdirmax`, seconds.
    pub directory_max_s: u32,
}

impl Default for AttributeCache {
    fn default() -> Self {
        let [regular_min_s, regular_max_s, directory_min_s, directory_max_s] = table::ATTRIBUTE_CACHE_S;
        Self { enabled: true, regular_min_s, regular_max_s, directory_min_s, directory_max_s }
    }
}

/// Parsed mount options with defaults filled in. `Display` writes the options that differ from the
/// default, in the table's order; parsing that gives the same options again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountOptions {
    /// `vers`, and `minorversion`.
    pub version: Version,
    /// `proto`, `tcp`, `rdma`.
    pub proto: Proto,
    /// The family that `proto` names: `tcp` and `rdma` mean IPv4, `tcp6` and `rdma6` mean IPv6.
    /// Without `proto` both are used.
    pub family: Option<Family>,
    /// `port`; see [`MountOptions::nfs_port`].
    pub port: Option<u16>,
    /// `mountport`; see [`MountOptions::mount_port`].
    pub mountport: Option<u16>,
    /// `congestion`: congestion control of the TCP connections.
    pub congestion: Option<String>,
    /// `idmapdomain`: the domain of the names of owners.
    pub owner_domain: Option<String>,
    /// `resvport` or `noresvport`; without either, a reserved port is tried if that is permitted.
    pub reserved_port: Option<bool>,
    /// `nconnect`; see [`MountOptions::bulk_connections`].
    pub nconnect: Option<u16>,
    /// `mdconnect`: additional connections for metadata.
    pub mdconnect: u16,
    /// `remoteports`.
    pub remotes: Remotes,
    /// `remoteports_offset`: the remote of the first connection, instead of a hash.
    pub remotes_offset: Option<u16>,
    /// `localports`; if empty, the system chooses the local address.
    pub locals: Vec<Local>,
    /// `localports_failover`.
    pub locals_failover: bool,
    /// `spread_reads`.
    pub spread_reads: bool,
    /// `spread_writes`.
    pub spread_writes: bool,
    /// `rsize`, bytes.
    pub rsize: u32,
    /// `wsize`, bytes.
    pub wsize: u32,
    /// `timeo`.
    pub timeo: Duration,
    /// `retrans`.
    pub retrans: u32,
    /// `busypoll`.
    pub busy_poll: Duration,
    /// `soft`: calls fail after their retransmissions; otherwise they wait for ever.
    pub soft: bool,
    /// `ro`.
    pub read_only: bool,
    /// `acregmin` and similar.
    pub attribute_cache: AttributeCache,
    /// `lookupcache`.
    pub lookup_cache: LookupCache,
    /// `forcerdirplus`, `nordirplus`.
    pub directory_reads: DirectoryReads,
    /// `retry`: how many minutes mounting is tried; without it, the program that mounts decides.
    pub retry_minutes: Option<u32>,
    /// `bg`: a mount that does not succeed at once is retried in the background.
    pub background: bool,
    /// Options kept as they were given, with their values, by name: those of a mounted directory,
    /// and those without any effect. Of opposites, the last one given is kept.
    pub noted: BTreeMap<String, Option<String>>,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            version: Version::V3,
            proto: Proto::Tcp,
            family: None,
            port: None,
            mountport: None,
            congestion: None,
            owner_domain: None,
            reserved_port: None,
            nconnect: None,
            mdconnect: 0,
            remotes: Remotes::Server,
            remotes_offset: None,
            locals: Vec::new(),
            locals_failover: false,
            spread_reads: false,
            spread_writes: false,
            rsize: SIZE_MAX,
            wsize: SIZE_MAX,
            timeo: Duration::from_millis(table::TIMEO_DS * 100),
            retrans: table::RETRANS,
            busy_poll: BUSY_POLL_DEFAULT,
            soft: false,
            read_only: false,
            attribute_cache: AttributeCache::default(),
            lookup_cache: LookupCache::All,
            directory_reads: DirectoryReads::Auto,
            retry_minutes: None,
            background: false,
            noted: BTreeMap::new(),
        }
    }
}

/// Options while they are parsed, with the state that is needed only until all have been seen.
#[derive(Default)]
struct Draft {
    options: MountOptions,
    /// The version as given.
    version_option: Option<String>,
    /// `minorversion`.
    minor: Option<u32>,
    /// From `proto=`, and from the flags `tcp` and `rdma`.
    proto_option: Option<(String, Proto)>,
    proto_flag: Option<(&'static str, Proto)>,
}

impl MountOptions {
    /// Parses a comma-separated list.
    ///
    /// # Errors
    ///
    /// The first error in the list.
    pub fn parse(text: &str) -> Result<Self, OptionError> {
        let mut draft = Draft::default();
        for given in text.split(',').map(str::trim).filter(|given| !given.is_empty()) {
            draft.apply(given)?;
        }
        draft.finish()
    }

    /// The port of NFS: `port`, or 2049, over RDMA 20049.
    #[must_use]
    pub fn nfs_port(&self) -> u16 {
        self.port.unwrap_or(self.proto.usual_port())
    }

    /// The port of MOUNT: `mountport`, or the port of NFS over TCP, where Trunkline's server
    /// answers MOUNT. If MOUNT does not answer there and `mountport` was not given, the mount asks
    /// rpcbind.
    #[must_use]
    pub fn mount_port(&self) -> u16 {
        let nfs_over_tcp = if self.proto == Proto::Tcp { self.nfs_port() } else { PORT_TCP };
        self.mountport.unwrap_or(nfs_over_tcp)
    }

    /// The given options without effect, ordered by name: those that neither change anything here
    /// nor ask for what is the case anyway.
    #[must_use]
    pub fn without_effect(&self) -> Vec<&str> {
        let is_idle =
            |name: &&str| spec::find(name).is_some_and(|spec| matches!(spec.effect, Effect::Noted(_)));
        self.noted.keys().map(String::as_str).filter(is_idle).collect()
    }

    /// The number of connections for reads and writes with this many remote addresses: `nconnect`,
    /// or otherwise one per address, as far as `mdconnect` leaves room.
    #[must_use]
    pub fn bulk_connections(&self, remotes: usize) -> u16 {
        let room = CONNECTIONS_MAX - self.mdconnect;
        let one_each = u16::try_from(remotes).unwrap_or(room).clamp(1, room);
        self.nconnect.unwrap_or(one_each)
    }
}

impl std::str::FromStr for MountOptions {
    type Err = OptionError;
    fn from_str(text: &str) -> Result<Self, OptionError> {
        Self::parse(text)
    }
}

impl fmt::Display for MountOptions {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        for spec in OPTIONS {
            match (spec.show)(self) {
                None => continue,
                Some(value) if value.is_empty() => write!(out, "{comma}{}", spec.name)?,
                Some(value) => write!(out, "{comma}{}={value}", spec.name)?,
            }
            comma = ",";
        }
        for (name, value) in &self.noted {
            match value {
                None => write!(out, "{comma}{name}")?,
                Some(value) => write!(out, "{comma}{name}={value}")?,
            }
            comma = ",";
        }
        Ok(())
    }
}

impl Draft {
    fn apply(&mut self, given: &str) -> Result<(), OptionError> {
        let (name, value) = match given.split_once('=') {
            Some((name, value)) => (name.trim(), Some(value.trim())),
            None => (given, None),
        };
        let Some(spec) = spec::find(name) else {
            let names = OPTIONS.iter().map(|spec| spec.name).filter(|name| !name.ends_with('*'));
            return Err(OptionError::Unknown {
                name: name.to_owned(),
                nearest: nearest::nearest(name, names),
            });
        };
        let parsed = spec.check(value)?;
        if let Effect::Refused(why) = spec.effect {
            return Err(OptionError::Refused { option: given.to_owned(), why });
        }
        let bad = |fault| match fault {
            spec::Fault::Bad(why) => spec.bad_value(value.unwrap_or_default(), why),
            spec::Fault::Refused(why) => OptionError::Refused { option: given.to_owned(), why },
        };
        match spec.set {
            Set::Note => {
                for other in opposites::family(name) {
                    self.options.noted.remove(*other);
                }
                self.options.noted.insert(name.to_owned(), value.map(str::to_owned));
            }
            Set::With(set) => set(self, parsed).map_err(bad)?,
        }
        Ok(())
    }

    /// Completes what depends on all options.
    fn finish(mut self) -> Result<MountOptions, OptionError> {
        if let (Some((option, by_option)), Some((flag, by_flag))) = (&self.proto_option, self.proto_flag)
            && *by_option != by_flag
        {
            let why = "a mount has one transport";
            return Err(OptionError::Contradiction { first: option.clone(), second: flag.to_owned(), why });
        }
        let by_flag = self.proto_flag.map(|(_, proto)| proto);
        if let Some(proto) = self.proto_option.as_ref().map(|(_, proto)| *proto).or(by_flag) {
            self.options.proto = proto;
        }
        self.settle_transports()?;
        self.options.check_connections()?;
        self.options.check_addresses()?;
        self.options.check_attribute_cache()?;
        self.settle_version()?;
        Ok(self.options)
    }
}

impl Draft {
    /// Joins the minor version with the version, and checks what only one version has.
    fn settle_version(&mut self) -> Result<(), OptionError> {
        let contradiction = |first: &str, second, why| {
            Err(OptionError::Contradiction { first: first.to_owned(), second, why })
        };
        let given = self.version_option.as_deref().unwrap_or("vers=3");
        if let Some(minor) = self.minor {
            let second = format!("minorversion={minor}");
            match self.options.version {
                Version::V3 => return contradiction(given, second, "version 3 has no minor versions"),
                Version::V4(Some(other)) if other != minor => {
                    return contradiction(given, second, "they name two minor versions");
                }
                Version::V4(_) => self.options.version = Version::V4(Some(minor)),
            }
        }
        if let (Version::V4(_), Some(port)) = (self.options.version, self.options.mountport) {
            let second = format!("mountport={port}");
            return contradiction(given, second, "version 4 finds exports itself, without the MOUNT program");
        }
        Ok(())
    }

    /// Checks that each requested transport has at least one address; if no transport was
    /// requested, derives it from the addresses.
    fn settle_transports(&mut self) -> Result<(), OptionError> {
        let Remotes::List(remotes) = &self.options.remotes else { return Ok(()) };
        let proto = self.options.proto;
        if remotes.iter().any(|remote| remote.proto.is_none_or(|named| named == proto)) {
            return Ok(());
        }
        let flag = self.proto_flag.map(|(name, _)| name.to_owned());
        let Some(asked) = self.proto_option.as_ref().map(|(option, _)| option.clone()).or(flag) else {
            if let Some(named) = remotes.first().and_then(|remote| remote.proto) {
                self.options.proto = named;
            }
            return Ok(());
        };
        let second = format!("remoteports={}", self.options.remotes);
        let why = "each of the addresses names another transport";
        Err(OptionError::Contradiction { first: asked, second, why })
    }
}

impl MountOptions {
    fn check_connections(&self) -> Result<(), OptionError> {
        let nconnect = self.nconnect.unwrap_or(1);
        if nconnect + self.mdconnect > CONNECTIONS_MAX {
            return Err(OptionError::Contradiction {
                first: format!("nconnect={nconnect}"),
                second: format!("mdconnect={}", self.mdconnect),
                why: "together they are more than 256 connections",
            });
        }
        let alone = |option, missing| Err(OptionError::Alone { option, missing });
        if self.locals_failover && self.locals.is_empty() {
            return alone("localports_failover", "localports");
        }
        if self.remotes_offset.is_some() && self.remotes == Remotes::Server {
            return alone("remoteports_offset", "remoteports");
        }
        Ok(())
    }

    /// Checks the address families: addresses of different families cannot form a path.
    fn check_addresses(&self) -> Result<(), OptionError> {
        let contradiction = |second: String, why| {
            let first = format!("remoteports={}", self.remotes);
            Err(OptionError::Contradiction { first, second, why })
        };
        let Remotes::List(remotes) = &self.remotes else { return Ok(()) };
        if let Some(family) = self.family
            && remotes.iter().any(|remote| !family.has(&remote.address))
        {
            return contradiction(format!("proto={}", self.proto_text()), family.only());
        }
        let local_families = self.locals.iter().map(|local| match local {
            Local::Address(address) => Some(address.is_ipv6()),
            Local::Interface(_) => None,
        });
        let reaches = |family: Option<bool>| {
            family.is_none_or(|v6| remotes.iter().any(|remote| remote.address.is_ipv6() == v6))
        };
        if !self.locals.is_empty() && !local_families.clone().any(reaches) {
            let second = format!("localports={}", addresses::show_locals(&self.locals));
            return contradiction(second, "one is IPv4 and the other IPv6, so there is no path");
        }
        Ok(())
    }

    fn check_attribute_cache(&self) -> Result<(), OptionError> {
        let cache = self.attribute_cache;
        let pairs = [
            ("acregmin", cache.regular_min_s, "acregmax", cache.regular_max_s),
            ("acdirmin", cache.directory_min_s, "acdirmax", cache.directory_max_s),
        ];
        for (min_name, min, max_name, max) in pairs {
            if min > max {
                return Err(OptionError::Contradiction {
                    first: format!("{min_name}={min}"),
                    second: format!("{max_name}={max}"),
                    why: "the minimum is above the maximum",
                });
            }
        }
        Ok(())
    }

    /// The value of `proto` for these options.
    pub(crate) const fn proto_text(&self) -> &'static str {
        match (self.proto, self.family) {
            (Proto::Tcp, None | Some(Family::V4)) => "tcp",
            (Proto::Tcp, Some(Family::V6)) => "tcp6",
            (Proto::Rdma, None | Some(Family::V4)) => "rdma",
            (Proto::Rdma, Some(Family::V6)) => "rdma6",
        }
    }
}
