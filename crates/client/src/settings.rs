//! The settings of a mount, after names are resolved and defaults filled in.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::time::Duration;

use transport::Address;
use transport::busy::BUSY_POLL_DEFAULT;

use crate::error::{Error, MountError, Result};
use crate::options::{Host, Local, MountOptions, Proto, Remote, Remotes, Target, Version};

/// Another address of the server's name, with what depends on the address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherAddress {
    /// The address.
    pub address: Address,
    /// Local addresses from which it can be reached; if empty, the system chooses.
    pub locals: Vec<Address>,
    /// Congestion control; `None` for the system's default.
    pub congestion: Option<String>,
}

/// Everything that [`crate::Mount::with_settings`] needs.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The address that the user named, or the first one of the name.
    pub server: Address,
    /// The other addresses of the name, in the resolver's order: while `server` does not answer,
    /// they are tried in turn. Only a mount without `remoteports` uses them.
    pub other_addresses: Vec<OtherAddress>,
    /// The export's path.
    pub export: Vec<u8>,
    /// The version of NFS.
    pub version: Version,
    /// The transport of NFS to a remote that does not specify one. MOUNT is always asked over TCP.
    pub proto: Proto,
    /// The port of NFS on a remote that does not specify one.
    pub port: u16,
    /// The port of MOUNT, or the first port to try.
    pub mount_port: u16,
    /// The port of the host's rpcbind, which is asked for the port of MOUNT if MOUNT does not
    /// answer at `mount_port`.
    pub rpcbind_port: Option<u16>,
    /// The port of the host's rpcbind, which is asked for the port of NFS if nothing listens at
    /// `port`, because the user gave none.
    pub nfs_rpcbind_port: Option<u16>,
    /// Addresses of the nodes; the server's own address if there is only one.
    pub remotes: Vec<Remote>,
    /// Index of the first remote, instead of a hash of the local address.
    pub remotes_offset: Option<u32>,
    /// Local addresses to connect from; if empty, the system chooses.
    pub locals: Vec<Address>,
    /// Connections for data (and metadata, unless `mdconnect`).
    pub nconnect: u16,
    /// Connections for metadata only.
    pub mdconnect: u16,
    /// Reads ignore the placement of their file.
    pub spread_reads: bool,
    /// Writes ignore the placement of their file.
    pub spread_writes: bool,
    /// Bytes of one READ.
    pub rsize: u32,
    /// Bytes of one WRITE.
    pub wsize: u32,
    /// Whether calls fail after `timeo` and `retrans`.
    pub soft: bool,
    /// Time to the first retransmission.
    pub timeo: Duration,
    /// Retransmissions before a soft mount gives up.
    pub retrans: u32,
    /// How long a server must have ended each connection at one call before that call fails,
    /// however often it was tried.
    pub closes_time_min: Duration,
    /// How long a loop polls for replies before it sleeps, while that pays; zero disables polling.
    pub busy_poll: Duration,
    /// Whether changes are refused by the client, before they are sent.
    pub read_only: bool,
    /// Whether to connect from a reserved port: always, never, or if it is permitted and one is
    /// free.
    pub reserved_port: Option<bool>,
    /// Congestion control; `None` for the system's default.
    pub congestion: Option<String>,
    /// The domain of the names of owners, which some servers of version 4 send; `None` for that of
    /// this host.
    pub owner_domain: Option<String>,
    /// The server may call this mount back, if the version has that: version 4.1 and later. Needed
    /// for delegations, and to be told of locks.
    pub call_backs: bool,
    /// Number of loops, each of which has its share of the connections.
    pub loops: usize,
    /// Limit of the send rate to each node, for experiments.
    pub pace_bytes_per_s: Option<u64>,
    /// The user on whose behalf calls are made.
    pub uid: u32,
    /// The group of the user.
    pub gid: u32,
    /// The supplementary groups of the user.
    pub gids: Vec<u32>,
}

/// A server that restarts again and again, or that is short of memory, may end each connection for
/// a while: as long as a soft mount waits by default.
const CLOSES_TIME_MIN: Duration = Duration::from_secs(180);

impl Settings {
    /// The defaults of the mount options, for one address.
    #[must_use]
    pub fn new(server: impl Into<Address>, port: u16, export: impl Into<Vec<u8>>) -> Self {
        let server = server.into();
        Self {
            server,
            other_addresses: Vec::new(),
            export: export.into(),
            version: Version::V3,
            proto: Proto::Tcp,
            port,
            mount_port: port,
            rpcbind_port: None,
            nfs_rpcbind_port: None,
            remotes: vec![server.into()],
            remotes_offset: None,
            locals: Vec::new(),
            nconnect: 1,
            mdconnect: 0,
            spread_reads: false,
            spread_writes: false,
            rsize: 1 << 20,
            wsize: 1 << 20,
            soft: false,
            timeo: Duration::from_secs(60),
            retrans: 2,
            closes_time_min: CLOSES_TIME_MIN,
            busy_poll: BUSY_POLL_DEFAULT,
            read_only: false,
            reserved_port: None,
            congestion: None,
            owner_domain: None,
            call_backs: false,
            loops: std::thread::available_parallelism().map_or(1, usize::from),
            pace_bytes_per_s: None,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            gids: rustix::process::getgroups()
                .map(|groups| groups.into_iter().map(rustix::process::Gid::as_raw).collect())
                .unwrap_or_default(),
        }
    }

    /// The target, for display.
    #[must_use]
    pub fn target_name(&self) -> String {
        let export = String::from_utf8_lossy(&self.export);
        format!("{}:{export}", self.server.in_brackets())
    }

    /// Time after which a soft mount gives up a call: `timeo` for the call and for each
    /// retransmission.
    #[must_use]
    pub fn soft_timeout(&self) -> Option<Duration> {
        self.soft.then(|| self.timeo.saturating_mul(self.retrans + 1).max(Duration::from_millis(100)))
    }

    /// The number of connections to one node.
    #[must_use]
    pub fn connections_per_node(&self) -> u16 {
        let remotes = u16::try_from(self.remotes.len().max(1)).unwrap_or(u16::MAX);
        (self.nconnect + self.mdconnect).div_ceil(remotes)
    }

    /// The local address from which a remote one is first asked (`localports`).
    pub(crate) fn local_for(&self, remote: IpAddr) -> Option<Address> {
        self.locals.iter().copied().find(|local| local.is_ipv4() == remote.is_ipv4())
    }

    /// The transport of NFS to a remote.
    #[must_use]
    pub fn proto_of(&self, remote: &Remote) -> Proto {
        remote.proto.unwrap_or(self.proto)
    }

    /// The address of NFS on a remote. `port` belongs to `proto`, so another transport uses its
    /// usual port.
    #[must_use]
    pub fn address_of(&self, remote: &Remote) -> SocketAddr {
        let proto = self.proto_of(remote);
        let usual = if proto == self.proto { self.port } else { proto.usual_port() };
        remote.address.with_port(remote.port.unwrap_or(usual))
    }

    /// Whether any path uses RDMA.
    #[must_use]
    pub fn uses_rdma(&self) -> bool {
        self.remotes.iter().any(|remote| self.proto_of(remote) == Proto::Rdma)
    }

    /// Whether the route has paths of both transports.
    #[must_use]
    pub fn mixes(&self) -> bool {
        self.remotes.iter().any(|remote| self.proto_of(remote) != self.proto)
    }

    /// The node of each remote, numbered from 0. An address that is listed once per transport is
    /// one node; an address that is listed again for the same transport is another node.
    #[must_use]
    pub fn nodes_of_remotes(&self) -> Vec<u16> {
        let mut nodes: Vec<(Address, usize)> = Vec::new();
        let mut numbers = Vec::new();
        for (at, remote) in self.remotes.iter().enumerate() {
            let same = |other: &&Remote| {
                other.address == remote.address && self.proto_of(other) == self.proto_of(remote)
            };
            let key = (remote.address, self.remotes.iter().take(at).filter(same).count());
            let number = nodes.iter().position(|node| *node == key).unwrap_or(nodes.len());
            if number == nodes.len() {
                nodes.push(key);
            }
            numbers.push(u16::try_from(number).unwrap_or(u16::MAX));
        }
        numbers
    }
}

impl Settings {
    /// Resolves a target, `HOST:/EXPORT` or `nfs://HOST/EXPORT?OPTIONS`, and mount options as
    /// `mount -o` takes them.
    ///
    /// # Errors
    /// [`Error::Options`] and [`Error::Target`] for what cannot be understood, [`Error::Mount`] for
    /// names without an address.
    pub fn from_options(target: &str, options: &str) -> Result<Self> {
        let parsed = Target::parse(target)?;
        let options = parsed.mount_options(options)?;
        Self::resolve(&parsed, &options).map_err(|cause| Error::Mount { target: target.to_owned(), cause })
    }

    fn resolve(target: &Target, options: &MountOptions) -> std::result::Result<Self, MountError> {
        Self::resolve_by(&mut system_resolver, target, options)
    }

    fn resolve_by(
        resolver: &mut Resolver<'_>,
        target: &Target,
        options: &MountOptions,
    ) -> std::result::Result<Self, MountError> {
        let addresses = resolve_host(resolver, target, options)?;
        let server = *addresses.first().ok_or_else(|| no_address(target, options))?;
        let (server, locals, others) = if options.remotes == Remotes::Server {
            let (first, others) = reachable(&addresses, options)?;
            (first.address, first.locals, others)
        } else {
            (server, resolve_locals(&options.locals, &server)?, Vec::new())
        };
        let nconnect_hint = options.bulk_connections(1);
        let remotes = match &options.remotes {
            Remotes::Server => vec![server.into()],
            Remotes::List(list) => list.clone(),
            Remotes::Dns => {
                let all = resolve_often(resolver, target, options, nconnect_hint)?;
                all.into_iter().map(Remote::from).collect()
            }
        };
        let export = target.path.clone();
        let congestion = options.congestion.clone().or_else(|| default_congestion(&remotes));
        Ok(Self {
            version: options.version,
            proto: options.proto,
            port: options.nfs_port(),
            mount_port: options.mount_port(),
            rpcbind_port: options.mountport.is_none().then_some(crate::rpcbind::PORT),
            nfs_rpcbind_port: (options.port.is_none() && options.proto == Proto::Tcp)
                .then_some(crate::rpcbind::PORT),
            other_addresses: others,
            nconnect: options.bulk_connections(remotes.len()),
            remotes,
            remotes_offset: options.remotes_offset.map(u32::from),
            locals,
            mdconnect: options.mdconnect,
            spread_reads: options.spread_reads,
            spread_writes: options.spread_writes,
            rsize: options.rsize,
            wsize: options.wsize,
            soft: options.soft,
            timeo: options.timeo,
            retrans: options.retrans,
            busy_poll: options.busy_poll,
            read_only: options.read_only,
            reserved_port: options.reserved_port,
            congestion,
            owner_domain: options.owner_domain.clone(),
            ..Self::new(server, options.nfs_port(), export)
        })
    }
}

fn no_address(target: &Target, options: &MountOptions) -> MountError {
    let family = options.family.map(|_| format!(" that proto={} takes", options.proto_text()));
    let host = format!("{}{}", target.host, family.unwrap_or_default());
    MountError::Resolve { host, source: std::io::ErrorKind::AddrNotAvailable.into() }
}

/// Resolves a name to addresses.
type Resolver<'a> = dyn FnMut(&str) -> std::io::Result<Vec<Address>> + 'a;

fn system_resolver(name: &str) -> std::io::Result<Vec<Address>> {
    Ok((name, 0).to_socket_addrs()?.map(Address::from).collect())
}

/// All addresses of the server, of the family that the options name, in the resolver's order.
fn resolve_host(
    resolver: &mut Resolver<'_>,
    target: &Target,
    options: &MountOptions,
) -> std::result::Result<Vec<Address>, MountError> {
    let mut found = match &target.host {
        Host::Address(address) => vec![*address],
        Host::Name(name) => {
            resolver(name).map_err(|source| MountError::Resolve { host: name.clone(), source })?
        }
    };
    found.retain(|address| options.family.is_none_or(|family| family.has(address)));
    if found.is_empty() { Err(no_address(target, options)) } else { Ok(found) }
}

/// Some resolvers return one of many addresses each time, in no order: after this many answers
/// without a new address the list is considered complete.
const ATTEMPTS_IN_VAIN_MAX: u32 = 32;

/// Asks the resolver until it has returned as many addresses as there are connections, or nothing
/// new for long.
fn resolve_often(
    resolver: &mut Resolver<'_>,
    target: &Target,
    options: &MountOptions,
    wanted: u16,
) -> std::result::Result<Vec<Address>, MountError> {
    let mut all: Vec<Address> = Vec::new();
    let mut in_vain = 0;
    for _ in 0..wanted.max(1) {
        let known = all.len();
        for address in resolve_host(resolver, target, options)? {
            if !all.contains(&address) {
                all.push(address);
            }
        }
        in_vain = if all.len() > known { 0 } else { in_vain + 1 };
        if all.len() >= usize::from(wanted) || in_vain == ATTEMPTS_IN_VAIN_MAX {
            break;
        }
    }
    Ok(all)
}

/// The addresses of a server that the local addresses can reach: the first one, and the others.
fn reachable(
    addresses: &[Address],
    options: &MountOptions,
) -> std::result::Result<(OtherAddress, Vec<OtherAddress>), MountError> {
    let (mut found, mut first_error) = (Vec::new(), None);
    for address in addresses {
        let resolved = resolve_locals(&options.locals, address).and_then(|mut locals| {
            locals.retain(|local| local.is_ipv6() == address.is_ipv6());
            if locals.is_empty() && !options.locals.is_empty() {
                let cause = format!("no address of localports is of the family of {address}");
                return Err(MountError::Local(cause));
            }
            Ok(locals)
        });
        match resolved {
            Ok(locals) => {
                let by_default = || default_congestion(&[Remote::from(*address)]);
                let congestion = options.congestion.clone().or_else(by_default);
                found.push(OtherAddress { address: *address, locals, congestion });
            }
            Err(error) => {
                first_error.get_or_insert(error);
            }
        }
    }
    if found.is_empty() {
        return Err(first_error.unwrap_or(MountError::Local("the server has no address".to_owned())));
    }
    Ok((found.remove(0), found))
}

/// Resolves local addresses, and interfaces by name: of an interface, the addresses from which the
/// server can be reached.
fn resolve_locals(locals: &[Local], server: &Address) -> std::result::Result<Vec<Address>, MountError> {
    let mut all = Vec::new();
    for local in locals {
        match local {
            Local::Address(address) => all.push(*address),
            Local::Interface(name) => {
                let mut of_interface = interface_addresses(name);
                of_interface.retain(|address| {
                    let is_same_link = address.zone() == server.zone();
                    address.is_ipv6() == server.is_ipv6() && is_same_link
                });
                if of_interface.is_empty() {
                    let kind = match (server.is_link_local(), server.is_ipv6()) {
                        (true, _) => "link-local address on the link of the server",
                        (false, true) => "IPv6 address (other than link-local)",
                        (false, false) => "IPv4 address",
                    };
                    return Err(MountError::Local(format!("the interface {name} has no {kind} here")));
                }
                all.extend(of_interface);
            }
        }
    }
    Ok(all)
}

/// The congestion control for a mount that names none: on loopback one that does not pace,
/// elsewhere the system's default.
fn default_congestion(remotes: &[Remote]) -> Option<String> {
    if !remotes.iter().all(|remote| remote.address.is_loopback()) {
        return None;
    }
    transport::socket::loopback_congestion()
}

/// The addresses that an interface has now.
fn interface_addresses(name: &str) -> Vec<Address> {
    let all = if_addrs::get_if_addrs().unwrap_or_default();
    let index = transport::address::interface_index(name).unwrap_or_default();
    let of_interface = all.into_iter().filter(|interface| interface.name == name);
    of_interface.map(|interface| Address::of_interface(interface.ip(), index)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_become_settings() {
        let settings = Settings::from_options(
            "10.0.0.1:/data",
            "nconnect=8,remoteports=10.0.0.1-10.0.0.4,localports=lo,soft,timeo=10,port=3049,congestion=reno",
        )
        .unwrap();
        assert_eq!((settings.port, settings.mount_port, settings.nconnect), (3049, 3049, 8));
        assert_eq!(
            (settings.remotes.len(), settings.locals.as_slice()),
            (4, &["127.0.0.1".parse().unwrap()][..])
        );
        assert_eq!(settings.soft_timeout(), Some(Duration::from_secs(3)));
        assert_eq!(settings.congestion.as_deref(), Some("reno"));
    }

    #[test]
    fn an_address_with_both_transports_is_one_node_and_one_named_twice_is_two() {
        let options =
            "proto=rdma,port=7,remoteports=10.0.0.1-10.0.0.2~tcp:10.0.0.2~tcp:10.0.0.3:9~10.0.0.1:8";
        let settings = Settings::from_options("10.0.0.1:/data", options).unwrap();
        assert_eq!(settings.nodes_of_remotes(), [0, 1, 1, 2, 3]);
        let ends =
            settings.remotes.iter().map(|remote| (settings.proto_of(remote), settings.address_of(remote)));
        let wanted = [
            (Proto::Rdma, "10.0.0.1:7"),
            (Proto::Rdma, "10.0.0.2:7"),
            (Proto::Tcp, "10.0.0.2:2049"),
            (Proto::Tcp, "10.0.0.3:9"),
            (Proto::Rdma, "10.0.0.1:8"),
        ];
        assert!(ends.eq(wanted.map(|(proto, address)| (proto, address.parse::<SocketAddr>().unwrap()))));
        assert!(settings.mixes() && settings.uses_rdma());
        let alone = Settings::from_options("10.0.0.1:/data", "remoteports=rdma:10.0.0.1").unwrap();
        assert!(!alone.mixes() && alone.proto == Proto::Rdma, "all addresses are RDMA");
        assert_eq!((alone.port, alone.mount_port), (20049, 2049));
    }

    #[test]
    fn the_error_for_an_impossible_setting_names_it() {
        for (target, options, needle) in [
            ("10.0.0.1:/data", "nconect=8", "nconnect"),
            ("10.0.0.1:/data", "localports=nosuch0", "nosuch0"),
            ("10.0.0.1:/data", "proto=rdma,remoteports=tcp:10.0.0.1", "names another transport"),
            ("10.0.0.1:/data", "tcp,remoteports=rdma:10.0.0.1", "names another transport"),
            ("10.0.0.1", "", "10.0.0.1"),
            ("no.such.host.invalid:/data", "", "no.such.host.invalid"),
        ] {
            let error = Settings::from_options(target, options).unwrap_err();
            let chain = std::iter::successors(Some(&error as &dyn std::error::Error), |error| error.source());
            let text = chain.map(ToString::to_string).collect::<Vec<_>>().join(": ");
            assert!(text.contains(needle), "{target} {options}: {text}");
        }
    }

    /// Settings for a name that resolves to these addresses, one answer per query.
    fn by_name(options: &str, answers: &[&[&str]]) -> std::result::Result<Settings, MountError> {
        let mut turn = 0;
        let mut resolver = |name: &str| {
            assert_eq!(name, "nas");
            let answer = answers[turn.min(answers.len() - 1)];
            turn += 1;
            Ok(answer.iter().map(|address| address.parse().unwrap()).collect())
        };
        let target = Target::parse("nas:/data").unwrap();
        Settings::resolve_by(&mut resolver, &target, &target.mount_options(options).unwrap())
    }

    #[test]
    fn a_name_with_several_addresses_gives_a_path_to_each() {
        let several: &[&[&str]] = &[&["10.0.0.1", "10.0.0.2", "fd00::1"]];
        let all = by_name("remoteports=dns", several).unwrap();
        assert_eq!((all.remotes.len(), all.nconnect), (3, 3));
        assert_eq!(all.server, "10.0.0.1".parse().unwrap());
        let six = by_name("remoteports=dns,proto=tcp6", several).unwrap();
        assert_eq!(six.remotes, [Remote::from("fd00::1".parse::<Address>().unwrap())]);
        let four = by_name("remoteports=dns,proto=tcp", several).unwrap();
        assert_eq!(four.remotes.len(), 2);
        assert!(by_name("proto=tcp6", &[&["10.0.0.1"]]).is_err());
    }

    #[test]
    fn the_other_addresses_of_a_name_are_kept_for_a_first_one_that_does_not_answer() {
        let several: &[&[&str]] = &[&["10.0.0.1", "10.0.0.2", "fd00::1"]];
        let listed = |options: &str| {
            let settings = by_name(options, several).unwrap();
            let others = settings.other_addresses.iter().map(|other| other.address.to_string());
            assert_eq!(settings.remotes, [Remote::from(settings.server)], "one path");
            (settings.server.to_string(), others.collect::<Vec<_>>().join(" "))
        };
        let pair = |first: &str, others: &str| (first.to_owned(), others.to_owned());
        assert_eq!(listed(""), pair("10.0.0.1", "10.0.0.2 fd00::1"));
        assert_eq!(listed("tcp"), pair("10.0.0.1", "10.0.0.2 fd00::1"));
        assert_eq!(listed("proto=tcp"), pair("10.0.0.1", "10.0.0.2"));
        assert_eq!(listed("proto=tcp6"), pair("fd00::1", ""));
        assert_eq!(listed("proto=rdma"), pair("10.0.0.1", "10.0.0.2"));
        assert_eq!(listed("proto=rdma6"), pair("fd00::1", ""));
        assert_eq!(listed("localports=fd00::9"), pair("fd00::1", ""), "no other can be reached from there");
        let both = by_name("localports=10.0.0.9~fd00::9", several).unwrap();
        let ten: Address = "10.0.0.9".parse().unwrap();
        assert_eq!(
            (both.locals.as_slice(), both.other_addresses[0].locals.as_slice()),
            (&[ten][..], &[ten][..])
        );
        assert_eq!(both.other_addresses[1].locals, ["fd00::9".parse().unwrap()]);
        let named = by_name("remoteports=10.0.0.7", several).unwrap();
        assert_eq!(named.other_addresses, [], "the user has said where to go");
    }

    #[test]
    fn an_address_of_the_other_family_than_the_named_one_is_refused() {
        for (target, options) in [
            ("[::1]:/data", "proto=tcp"),
            ("127.0.0.1:/data", "proto=tcp6"),
            ("[::1]:/data", "proto=rdma"),
            ("127.0.0.1:/data", "proto=rdma6"),
        ] {
            let Err(Error::Mount { cause, .. }) = Settings::from_options(target, options) else {
                panic!("{target} is refused")
            };
            assert!(cause.to_string().contains(&format!("that {options} takes")), "{cause}");
        }
    }

    #[test]
    fn rpcbind_is_asked_for_the_port_of_nfs_if_none_is_given() {
        let asked = |target: &str, options: &str| {
            Settings::from_options(target, options).unwrap().nfs_rpcbind_port.is_some()
        };
        assert!(asked("10.0.0.1:/data", "") && asked("10.0.0.1:/data", "port=0,mountport=1"));
        assert!(!asked("10.0.0.1:/data", "port=2049") && !asked("nfs://10.0.0.1:2049/data", ""));
        assert!(!asked("10.0.0.1:/data", "proto=rdma"), "the port of RDMA is fixed: RFC 8267 s7");
    }

    #[test]
    fn a_name_that_resolves_to_one_address_at_a_time_is_resolved_until_there_are_enough() {
        let rotating: &[&[&str]] = &[&["10.0.0.1"], &["10.0.0.1"], &["10.0.0.2"], &["10.0.0.3"]];
        let settings = by_name("remoteports=dns,nconnect=4", rotating).unwrap();
        assert_eq!((settings.remotes.len(), settings.nconnect), (3, 4));
        let names: Vec<String> = (0..100).map(|node| format!("10.0.0.{node}")).collect();
        let alone: Vec<[&str; 1]> = names.iter().map(|name| [name.as_str()]).collect();
        let hundred: Vec<&[&str]> = alone.iter().map(<[&str; 1]>::as_slice).collect();
        assert!(by_name("remoteports=dns,nconnect=100", &hundred).unwrap().remotes.len() >= 99);
        let late: Vec<&[&str]> = [&["10.0.0.1"][..]; 60].into_iter().chain([&["10.0.0.2"][..]]).collect();
        assert_eq!(by_name("remoteports=dns,nconnect=100", &late).unwrap().remotes.len(), 1);
    }

    #[test]
    fn a_mount_over_loopback_does_not_pace_itself() {
        let settings = Settings::from_options("127.0.0.1:/data", "").unwrap();
        assert_eq!(settings.congestion, transport::socket::loopback_congestion());
        assert_eq!(Settings::from_options("10.0.0.1:/data", "").unwrap().congestion, None);
    }
}
