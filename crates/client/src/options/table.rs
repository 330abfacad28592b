//! The table of mount options. Its order is that of the documentation and of `Display`.

use super::addresses::{parse_locals, parse_remotes, show_locals};
use super::setters::{check_security, set_congestion, set_owner_domain};
use super::spec::{Effect, Fault, Group, Kind, OptionSpec, Set, Value};
use super::versions::{set_minor, set_version};
use super::{
    CONNECTIONS_MAX, DirectoryReads, Draft, Family, LookupCache, MountOptions, Proto, Remotes, SIZE_MAX,
    Version,
};
use std::time::Duration;

use transport::busy::{BUSY_POLL_DEFAULT, BUSY_POLL_MAX};

/// Default `timeo`, tenths of a second; nfs(5) for TCP and RDMA.
pub(super) const TIMEO_DS: u64 = 600;
/// Default `retrans`; nfs(5) for TCP and RDMA.
pub(super) const RETRANS: u32 = 2;
/// Default `acregmin`, `acregmax`, `acdirmin`, `acdirmax`; nfs(5).
pub(super) const ATTRIBUTE_CACHE_S: [u32; 4] = [3, 60, 30, 60];
/// Sizes below this are replaced by [`SIZE_SMALL`]; nfs(5).
const SIZE_MIN: u32 = 1024;
const SIZE_SMALL: u32 = 4096;

type Setter = fn(&mut Draft, Value<'_>) -> Result<(), Fault>;
type Show = fn(&MountOptions) -> Option<String>;

const PORT: Kind = Kind::Number { min: 0, max: 65_535, unit: "a port" };
const SECONDS: Kind = Kind::Number { min: 0, max: u32::MAX, unit: "seconds" };
const PROTOS: Kind = Kind::Choice(&["tcp", "tcp6", "rdma", "rdma6", "udp", "udp6"]);
const HOST: Kind = Kind::Text("a name or address");
const NO_UDP: &str = "NFS runs over TCP or RDMA here; use proto=tcp";
const ADVISORY: &str = "locks are advisory: reads and writes do not heed them";
const FLUSHES: &str = "data are sent before a lock is released, always";
const MOUNT_OVER_TCP: &str = "MOUNT is asked over TCP, at the server's own address";
const MOUNT_8: &str = "it is for mount(8) and the system's start";

const fn works(
    group: Group,
    name: &'static str,
    kind: Kind,
    default: &'static str,
    doc: &'static str,
    set: Setter,
    show: Show,
) -> OptionSpec {
    OptionSpec { name, kind, default, doc, effect: Effect::Works, group, set: Set::With(set), show }
}

/// Accepted, kept as given, without effect.
const fn noted(name: &'static str, kind: Kind, why: &'static str) -> OptionSpec {
    let (default, doc, group) = ("", "", Group::Others);
    OptionSpec { name, kind, default, doc, effect: Effect::Noted(why), group, set: Set::Note, show: hidden }
}

/// A flag that is kept as given, for the mounted directory.
const fn kept(group: Group, name: &'static str, default: &'static str, doc: &'static str) -> OptionSpec {
    OptionSpec { default, doc, group, effect: Effect::Works, ..noted(name, Kind::Flag, "") }
}

/// A value that is kept as given, for the process that serves the mounted directory.
const fn kept_value(name: &'static str, what: &'static str, doc: &'static str) -> OptionSpec {
    let (group, effect) = (Group::Directory, Effect::Works);
    OptionSpec { default: "none", doc, group, effect, ..noted(name, Kind::Text(what), "") }
}

/// Accepted, kept as given; nothing is to be done for it.
const fn holds(name: &'static str, kind: Kind, why: &'static str) -> OptionSpec {
    noted(name, kind, why).but(Effect::Holds(why))
}

const fn refused(name: &'static str, kind: Kind, why: &'static str) -> OptionSpec {
    OptionSpec { effect: Effect::Refused(why), ..noted(name, kind, why) }
}

impl OptionSpec {
    const fn but(self, effect: Effect) -> Self {
        Self { effect, ..self }
    }

    /// Of a pair or family, where only one member is written back.
    const fn says(self, default: &'static str, doc: &'static str, group: Group) -> Self {
        Self { default, doc, group, ..self }
    }
}

const fn hidden(_: &MountOptions) -> Option<String> {
    None
}

fn flag(given: bool) -> Option<String> {
    given.then(String::new)
}

fn differs<T: PartialEq + ToString>(value: T, default: T) -> Option<String> {
    (value != default).then(|| value.to_string())
}

fn set_proto(draft: &mut Draft, text: &str) -> Result<(), Fault> {
    let proto = match text.trim_end_matches('6') {
        "tcp" => Proto::Tcp,
        "rdma" => Proto::Rdma,
        _ => return Err(Fault::Refused(NO_UDP)),
    };
    draft.proto_option = Some((format!("proto={text}"), proto));
    draft.options.family = Some(if text.ends_with('6') { Family::V6 } else { Family::V4 });
    Ok(())
}

/// 0 stands for "not given", as in the kernel.
fn port(value: Value<'_>) -> Option<u16> {
    Some(value.short()).filter(|&port| port != 0)
}

/// As the kernel rounds: too small is 4096, too large 1 MiB; below 4096 down to a power of two,
/// else down to a multiple of 4096. 0 stands for "not given".
pub(super) const fn round_size(bytes: u32) -> u32 {
    match bytes {
        0 => SIZE_MAX,
        1..SIZE_MIN => SIZE_SMALL,
        SIZE_MIN..2048 => 1024,
        2048..4096 => 2048,
        SIZE_MAX.. => SIZE_MAX,
        _ => bytes - bytes % 4096,
    }
}

/// Defines a flag that sets something and cannot fail.
macro_rules! flag {
    ($group:ident, $name:literal, $default:literal, $doc:literal, |$draft:ident| $set:expr, $show:expr) => {
        works(
            Group::$group,
            $name,
            Kind::Flag,
            $default,
            $doc,
            |$draft, _| {
                $set;
                Ok(())
            },
            $show,
        )
    };
}

/// Defines an option whose checked value is just stored.
macro_rules! value {
    ($group:ident, $name:literal, $kind:expr, $default:literal, $doc:literal, |$draft:ident, $value:ident| $set:expr, $show:expr) => {
        works(
            Group::$group,
            $name,
            $kind,
            $default,
            $doc,
            |$draft, $value| {
                $set;
                Ok(())
            },
            $show,
        )
    };
}

/// All mount options.
pub static OPTIONS: &[OptionSpec] = &[
    works(
        Group::Transport,
        "vers",
        Kind::Choice(&["3", "4", "4.0", "4.1", "4.2", "2"]),
        "3",
        "NFS version. `4` is the highest minor version that the server has: 4.2, then 4.1. Version 4 needs neither MOUNT nor rpcbind: the server's port is 2049 unless `port` is given, and the path is that which the server shows to version 4.",
        |draft, value| set_version(draft, &format!("vers={}", value.text()), value.text()),
        |options| differs(options.version, Version::V3),
    ),
    works(
        Group::Transport,
        "nfsvers",
        Kind::Choice(&["3", "4", "4.0", "4.1", "4.2", "2"]),
        "3",
        "The same as `vers`.",
        |draft, value| set_version(draft, &format!("nfsvers={}", value.text()), value.text()),
        hidden,
    ),
    works(
        Group::Transport,
        "v3",
        Kind::Flag,
        "yes",
        "The same as `vers=3`.",
        |d, _| set_version(d, "v3", "3"),
        hidden,
    ),
    works(
        Group::Transport,
        "v4",
        Kind::Flag,
        "",
        "The same as `vers=4`.",
        |d, _| set_version(d, "v4", "4"),
        hidden,
    ),
    works(
        Group::Transport,
        "v4.0",
        Kind::Flag,
        "",
        "The same as `vers=4.0`, which is refused: it is not built.",
        |d, _| set_version(d, "v4.0", "4.0"),
        hidden,
    ),
    works(
        Group::Transport,
        "v4.1",
        Kind::Flag,
        "",
        "The same as `vers=4.1`.",
        |d, _| set_version(d, "v4.1", "4.1"),
        hidden,
    ),
    works(
        Group::Transport,
        "v4.2",
        Kind::Flag,
        "",
        "The same as `vers=4.2`.",
        |d, _| set_version(d, "v4.2", "4.2"),
        hidden,
    ),
    works(
        Group::Transport,
        "minorversion",
        Kind::Number { min: 0, max: 2, unit: "a minor version" },
        "",
        "The minor version, with `vers=4`.",
        |draft, value| set_minor(draft, value.number()),
        hidden,
    ),
    works(
        Group::Transport,
        "proto",
        PROTOS,
        "tcp",
        "Transport and address family, as in nfs(5): `tcp` and `rdma` take IPv4 addresses only, `tcp6` and `rdma6` IPv6 addresses only. Without `proto`, a name's addresses of both families are tried in turn. RDMA needs a device on this machine that reaches each address (CLI.md, Over RDMA); the client never changes to TCP by itself. MOUNT is asked over TCP in either case. UDP is refused.",
        |draft, value| set_proto(draft, value.text()),
        |options| options.family.map(|_| options.proto_text().to_owned()),
    ),
    flag!(
        Transport,
        "tcp",
        "yes",
        "NFS over TCP, to addresses of both families. Contradicts `proto=rdma`.",
        |draft| draft.proto_flag = Some(("tcp", Proto::Tcp)),
        hidden
    ),
    flag!(
        Transport,
        "rdma",
        "no",
        "NFS over RDMA, to addresses of both families. Contradicts `proto=tcp`.",
        |draft| draft.proto_flag = Some(("rdma", Proto::Rdma)),
        |options| (options.proto == Proto::Rdma && options.family.is_none()).then(String::new)
    ),
    refused("udp", Kind::Flag, NO_UDP).says("", "The same as `proto=udp`.", Group::Transport),
    value!(
        Transport,
        "port",
        PORT,
        "2049, over RDMA 20049",
        "Port of NFS. 0 stands for the default. If no port is given and nothing listens at 2049, the server's rpcbind is asked for the port of version 3. An address of `remoteports` that uses another transport than `proto` has that transport's usual port, unless it states a port.",
        |draft, value| draft.options.port = port(value),
        |options| options.port.map(|port| port.to_string())
    ),
    value!(
        Transport,
        "mountport",
        PORT,
        "the port of NFS (2049 if NFS is over RDMA); if MOUNT is not there, the port that the server's rpcbind states",
        "Port of MOUNT, over TCP, which only version 3 uses. Our server answers MOUNT on the port of NFS. rpcbind is asked at port 111, over TCP and then UDP; give the port if neither is reachable.",
        |draft, value| draft.options.mountport = port(value),
        |options| options.mountport.map(|port| port.to_string())
    ),
    works(
        Group::Transport,
        "congestion",
        Kind::Text("the name of a congestion control, up to 15 letters, digits, - and _"),
        "the system's",
        "Congestion control of the TCP connections; not used by RDMA. bbr paces even on loopback, which makes loopback slower.",
        |draft, value| set_congestion(draft, value.text()),
        |options| options.congestion.clone(),
    ),
    works(
        Group::Transport,
        "sec",
        Kind::Text("none, sys, krb5, krb5i, krb5p, or several joined by :"),
        "sys",
        "Security flavors; `sys` (AUTH_SYS) must be among them.",
        |_, value| check_security(value.text()),
        hidden,
    ),
    works(
        Group::Transport,
        "xprtsec",
        Kind::Choice(&["none", "tls", "mtls"]),
        "none",
        "Transport security. `tls` and `mtls` are refused until RPC with TLS is built.",
        |_, value| match value.text() {
            "none" => Ok(()),
            _ => Err(Fault::Refused("RPC with TLS is not built; leave it out on networks that you trust")),
        },
        hidden,
    ),
    flag!(
        Transport,
        "resvport",
        "yes, if that is allowed",
        "Connect from a port below 1024, which needs privileges, or fail.",
        |draft| draft.options.reserved_port = Some(true),
        |options| flag(options.reserved_port == Some(true))
    ),
    flag!(
        Transport,
        "noresvport",
        "no",
        "Connect from any port.",
        |draft| draft.options.reserved_port = Some(false),
        |options| flag(options.reserved_port == Some(false))
    ),
    value!(
        Multipath,
        "nconnect",
        Kind::Number { min: 1, max: CONNECTIONS_MAX as u32, unit: "connections" },
        "1; with `remoteports` one for each address",
        "Number of connections, spread round robin over the paths. With `mdconnect` they carry reads and writes only.",
        |draft, value| draft.options.nconnect = Some(value.short()),
        |options| options.nconnect.map(|count| count.to_string())
    ),
    value!(
        Multipath,
        "mdconnect",
        Kind::Number { min: 0, max: 8, unit: "connections" },
        "0",
        "Number of additional connections for metadata, which then does not queue behind bulk data. At most 256 together with `nconnect`.",
        |draft, value| draft.options.mdconnect = value.short(),
        |options| differs(options.mdconnect, 0)
    ),
    works(
        Group::Multipath,
        "remoteports",
        Kind::Text(
            "dns, or addresses and A-B ranges joined by ~, 2048 at most, each with tcp: or rdma: in front and :PORT after it if needed",
        ),
        "the server's address",
        "Addresses of the server's nodes. Connection i goes to address (start + i) modulo their number. `dns`: all addresses of the server's name. `rdma:10.0.0.1~tcp:10.0.0.1` mixes transports in one mount: both are used, and each takes over when the other fails.",
        |draft, value| {
            draft.options.remotes = parse_remotes(value.text()).map_err(Fault::Bad)?;
            Ok(())
        },
        |options| differs(options.remotes.to_string(), Remotes::Server.to_string()),
    ),
    value!(
        Multipath,
        "remoteports_offset",
        Kind::Number { min: 1, max: 256, unit: "an offset" },
        "a hash of the local address",
        "The start in `remoteports`. The default spreads many clients over the nodes.",
        |draft, value| draft.options.remotes_offset = Some(value.short()),
        |options| options.remotes_offset.map(|offset| offset.to_string())
    ),
    works(
        Group::Multipath,
        "localports",
        Kind::Text("addresses, A-B ranges and interface names joined by ~, 2048 at most"),
        "chosen by the system",
        "Local addresses to connect from. With R remote addresses, connection i uses local address (i div R) modulo their number. MOUNT is asked from the first one of the server's family.",
        |draft, value| {
            draft.options.locals = parse_locals(value.text()).map_err(Fault::Bad)?;
            Ok(())
        },
        |options| differs(show_locals(&options.locals), String::new()),
    ),
    flag!(
        Multipath,
        "localports_failover",
        "yes",
        "A connection whose local address fails moves to another one.",
        |draft| draft.options.locals_failover = true,
        |options| flag(options.locals_failover)
    )
    .but(Effect::Holds("calls and connections always move to any live path")),
    flag!(
        Multipath,
        "spread_reads",
        "no",
        "Spread the reads of a file over all nodes. Without this option a file stays on the node on which it was placed at first use.",
        |draft| draft.options.spread_reads = true,
        |options| flag(options.spread_reads)
    ),
    flag!(
        Multipath,
        "spread_writes",
        "no",
        "Spread the writes of a file over all nodes.",
        |draft| draft.options.spread_writes = true,
        |options| flag(options.spread_writes)
    ),
    noted(
        "max_connect",
        Kind::Number { min: 1, max: 16, unit: "addresses" },
        "it bounds the session trunking of NFSv4.1; use remoteports",
    )
    .says("", "Addresses of one NFSv4.1 server that may be used.", Group::Multipath),
    holds("noidlexprt", Kind::Flag, "idle connections are never closed").says(
        "yes",
        "Keep idle connections.",
        Group::Multipath,
    ),
    value!(
        Behaviour,
        "rsize",
        Kind::Size,
        "1048576",
        "Bytes of one READ. Values below 1024 become 4096 and values above 1048576 become 1048576; others are rounded down, to a power of two below 4096 and otherwise to a multiple of 4096. The server's maximum applies too.",
        |draft, value| draft.options.rsize = round_size(value.number()),
        |options| differs(options.rsize, SIZE_MAX)
    ),
    value!(
        Behaviour,
        "wsize",
        Kind::Size,
        "1048576",
        "Bytes of one WRITE; rounded like `rsize`.",
        |draft, value| draft.options.wsize = round_size(value.number()),
        |options| differs(options.wsize, SIZE_MAX)
    ),
    value!(
        Behaviour,
        "timeo",
        Kind::Number { min: 1, max: 36_000, unit: "tenths of a second" },
        "600",
        "How long a call waits on a connection of a live path before it is sent again on another one. The client leaves a dead path in under a second, regardless of this option.",
        |draft, value| draft.options.timeo = Duration::from_millis(u64::from(value.number()) * 100),
        |options| differs(options.timeo.as_millis() / 100, u128::from(TIMEO_DS))
    ),
    value!(
        Behaviour,
        "retrans",
        Kind::Number { min: 0, max: 10_000, unit: "retransmissions" },
        "2",
        "With `soft`, the number of times that a call is sent again before it fails.",
        |draft, value| draft.options.retrans = value.number(),
        |options| differs(options.retrans, RETRANS)
    ),
    value!(
        Behaviour,
        "busypoll",
        Kind::Number { min: 0, max: BUSY_POLL_MAX.as_micros() as u32, unit: "microseconds" },
        "100",
        "How long a loop polls for replies before it sleeps, as long as replies arrive sooner than that and no other program needs the processor; this saves wake-ups. To find out whether polling pays, a loop polls for up to five times as long, in at most a tenth of the time. 0 turns polling off.",
        |draft, value| draft.options.busy_poll = Duration::from_micros(u64::from(value.number())),
        |options| differs(options.busy_poll.as_micros(), BUSY_POLL_DEFAULT.as_micros())
    ),
    flag!(
        Behaviour,
        "hard",
        "yes",
        "Calls wait until they are answered. Of `hard`, `soft` and `softerr` the last counts.",
        |draft| draft.options.soft = false,
        hidden
    ),
    flag!(
        Behaviour,
        "soft",
        "no",
        "Calls fail after `timeo` has passed `retrans` + 1 times and no path has answered; a write may or may not have been executed then. In a mounted directory the error is ETIMEDOUT.",
        |draft| draft.options.soft = true,
        |options| flag(options.soft)
    ),
    flag!(Behaviour, "softerr", "no", "The same as `soft`.", |draft| draft.options.soft = true, hidden),
    flag!(
        Behaviour,
        "ro",
        "no",
        "Nothing is changed through this mount. Of `ro` and `rw` the last counts.",
        |draft| draft.options.read_only = true,
        |options| flag(options.read_only)
    ),
    flag!(Behaviour, "rw", "yes", "Changes are allowed.", |draft| draft.options.read_only = false, hidden),
    flag!(
        Behaviour,
        "forcerdirplus",
        "no",
        "Always read directories with their entries' attributes and handles (READDIRPLUS).",
        |draft| draft.options.directory_reads = DirectoryReads::AlwaysPlus,
        |options| flag(options.directory_reads == DirectoryReads::AlwaysPlus)
    ),
    flag!(
        Behaviour,
        "rdirplus",
        "yes",
        "Read directories with READDIRPLUS if that seems best.",
        |draft| draft.options.directory_reads = DirectoryReads::Auto,
        hidden
    ),
    flag!(
        Behaviour,
        "nordirplus",
        "no",
        "Never use READDIRPLUS.",
        |draft| draft.options.directory_reads = DirectoryReads::NeverPlus,
        |options| flag(options.directory_reads == DirectoryReads::NeverPlus)
    ),
    works(
        Group::Behaviour,
        "idmapdomain",
        Kind::Text("a domain, such as example.org"),
        "that of /etc/idmapd.conf, otherwise the DNS domain",
        "The domain of names of users and groups, with version 4, for servers that send `alice@example.org` in place of a number. This host's user database says which number such a name has; a name of another domain, or one that is unknown here, is nobody (65534). Names are sent only to servers that refuse numbers. Without `Domain` in the section `General` of /etc/idmapd.conf, it is the DNS domain of this host's name, by the name itself, /etc/hosts or /etc/resolv.conf.",
        |draft, value| set_owner_domain(draft, value.text()),
        |options| options.owner_domain.clone(),
    ),
    kept(
        Group::Behaviour,
        "lock",
        "yes",
        "Locks are held by the server: with version 4 by itself, with version 3 by its lock manager (NLM). Without one they fail with ENOLCK.",
    ),
    kept(
        Group::Behaviour,
        "nolock",
        "no",
        "Locks stay on this host. Of `lock`, `nolock` and `local_lock` the last counts.",
    ),
    OptionSpec {
        kind: Kind::Choice(&["all", "flock", "posix", "none"]),
        ..kept(
            Group::Behaviour,
            "local_lock",
            "none",
            "Which locks stay on this host: those of flock(2), those of fcntl(2), all, or none. The others are held by the server.",
        )
    },
    kept(Group::Behaviour, "async", "yes", "Written data are stable after fsync(2) and close(2)."),
    kept(
        Group::Behaviour,
        "sync",
        "no",
        "write(2) returns when its data are stable. Of `async` and `sync` the last counts; `noac` implies `sync`.",
    ),
    flag!(
        Caching,
        "ac",
        "yes",
        "Cache attributes.",
        |draft| draft.options.attribute_cache.enabled = true,
        hidden
    ),
    flag!(
        Caching,
        "noac",
        "no",
        "Do not cache attributes.",
        |draft| draft.options.attribute_cache.enabled = false,
        |options| flag(!options.attribute_cache.enabled)
    ),
    value!(
        Caching,
        "actimeo",
        SECONDS,
        "",
        "Sets `acregmin`, `acregmax`, `acdirmin` and `acdirmax`.",
        |draft, value| {
            let (cache, seconds) = (&mut draft.options.attribute_cache, value.number());
            (cache.regular_min_s, cache.regular_max_s) = (seconds, seconds);
            (cache.directory_min_s, cache.directory_max_s) = (seconds, seconds);
        },
        hidden
    ),
    value!(
        Caching,
        "acregmin",
        SECONDS,
        "3",
        "Minimum time for which a file's attributes are cached.",
        |draft, value| draft.options.attribute_cache.regular_min_s = value.number(),
        |options| differs(options.attribute_cache.regular_min_s, ATTRIBUTE_CACHE_S[0])
    ),
    value!(
        Caching,
        "acregmax",
        SECONDS,
        "60",
        "Maximum time for which a file's attributes are cached.",
        |draft, value| draft.options.attribute_cache.regular_max_s = value.number(),
        |options| differs(options.attribute_cache.regular_max_s, ATTRIBUTE_CACHE_S[1])
    ),
    value!(
        Caching,
        "acdirmin",
        SECONDS,
        "30",
        "Minimum time for which a directory's attributes are cached.",
        |draft, value| draft.options.attribute_cache.directory_min_s = value.number(),
        |options| differs(options.attribute_cache.directory_min_s, ATTRIBUTE_CACHE_S[2])
    ),
    value!(
        Caching,
        "acdirmax",
        SECONDS,
        "60",
        "Maximum time for which a directory's attributes are cached.",
        |draft, value| draft.options.attribute_cache.directory_max_s = value.number(),
        |options| differs(options.attribute_cache.directory_max_s, ATTRIBUTE_CACHE_S[3])
    ),
    value!(
        Caching,
        "lookupcache",
        Kind::Choice(&["all", "pos", "positive", "none"]),
        "all",
        "Which results of LOOKUP are cached.",
        |draft, value| {
            draft.options.lookup_cache = match value.text() {
                "none" => LookupCache::None,
                "pos" | "positive" => LookupCache::Positive,
                _ => LookupCache::All,
            };
        },
        |options| match options.lookup_cache {
            LookupCache::All => None,
            LookupCache::Positive => Some("positive".to_owned()),
            LookupCache::None => Some("none".to_owned()),
        }
    ),
    kept(Group::Caching, "cto", "yes", "An open asks the server for the file's attributes."),
    kept(
        Group::Caching,
        "nocto",
        "no",
        "An open uses cached attributes. Of `cto` and `nocto` the last counts.",
    ),
    value!(
        Directory,
        "retry",
        Kind::Number { min: 0, max: u32::MAX, unit: "minutes" },
        "2 for mount(8), 0 for `trunkline mount`, 10000 with `bg`",
        "How long a mount is tried if the server is not available: it does not answer, MOUNT is not registered, or its name cannot be resolved for now. A refusal by the server is final. 0 tries once.",
        |draft, value| draft.options.retry_minutes = Some(value.number()),
        |options| options.retry_minutes.map(|minutes| minutes.to_string())
    ),
    flag!(
        Directory,
        "bg",
        "no",
        "If the first try fails in this way, or the directory does not exist yet, the command says so and exits with status 0, and a process in the background keeps trying. systemd ends such a process: use `nofail`, `retry` and `x-systemd.mount-timeout` instead.",
        |draft| draft.options.background = true,
        |options| flag(options.background)
    ),
    flag!(
        Directory,
        "fg",
        "yes",
        "The command waits until the mount succeeds or `retry` is over. Of `bg` and `fg` the last counts.",
        |draft| draft.options.background = false,
        hidden
    ),
    kept(
        Group::Directory,
        "allow_other",
        "yes for root",
        "Other users may access the directory. In a mount of an ordinary user they act with that user's rights, and \
         root must have added user_allow_other to /etc/fuse.conf.",
    ),
    kept(
        Group::Directory,
        "auto_unmount",
        "no",
        "Unmount automatically if the process that serves the mount is killed. Programs then find the local directory \
         there and may fill it; without this option the directory stays mounted and answers ENOTCONN, until `umount` or \
         the next `trunkline mount`.",
    ),
    kept(Group::Directory, "dev", "yes for root", "Device files can be used; only in root's mounts."),
    kept(Group::Directory, "nodev", "yes for others", "Device files cannot be used."),
    kept(
        Group::Directory,
        "suid",
        "yes for root",
        "Set-uid programs run with their owner's rights; only in root's mounts.",
    ),
    kept(Group::Directory, "nosuid", "yes for others", "Set-uid programs run with the caller's rights."),
    kept(Group::Directory, "exec", "yes", "Programs can be run."),
    kept(Group::Directory, "noexec", "no", "Programs cannot be run."),
    kept(Group::Directory, "atime", "yes", "Access times are kept by the server, by its own rules."),
    kept(
        Group::Directory,
        "noatime",
        "no",
        "Shown in /proc/mounts, where programs look for it; access times are still kept by the server.",
    ),
    kept_value(
        "metrics",
        "an address and a port",
        "Answer HTTP requests on this address, `127.0.0.1:9101`: live analytics for a browser, and metrics for \
         Prometheus. The same as `--metrics` of `trunkline mount`, for /etc/fstab.",
    ),
    kept_value(
        "metricstoken",
        "the name of a file",
        "Peers on other hosts may read all of `metrics` if they show the token in this file. The same as \
         `--metrics-token`.",
    ),
    noted("fsc", Kind::Flag, "nothing is cached on local disks"),
    holds("nofsc", Kind::Flag, "nothing is cached on local disks"),
    noted("sharecache", Kind::Flag, "each mount is separate"),
    holds("nosharecache", Kind::Flag, "each mount is separate"),
    noted("sharetransport", Kind::Any, "each mount has its own connections"),
    holds("nosharetransport", Kind::Flag, "each mount has its own connections"),
    noted("addr", HOST, "/proc/mounts reports the address of the first connection with it"),
    noted("clientaddr", HOST, "the server makes no calls to this client"),
    noted("mountaddr", HOST, MOUNT_OVER_TCP),
    noted("mounthost", HOST, MOUNT_OVER_TCP),
    noted("mountproto", PROTOS, MOUNT_OVER_TCP),
    holds(
        "mountvers",
        Kind::Number { min: 3, max: 3, unit: "a version" },
        "MOUNT version 3 goes with NFS version 3",
    ),
    noted(
        "namlen",
        Kind::Number { min: 0, max: 65_535, unit: "bytes" },
        "the server states the maximum length of names",
    ),
    noted("acl", Kind::Flag, "the NFSACL protocol is not built"),
    holds("noacl", Kind::Flag, "the NFSACL protocol is not built"),
    noted("softreval", Kind::Flag, "expired attributes are always requested again"),
    holds("nosoftreval", Kind::Flag, "expired attributes are always requested again"),
    noted("intr", Kind::Flag, "the kernel has ignored it since 2.6.25"),
    noted("nointr", Kind::Flag, "the kernel has ignored it since 2.6.25"),
    holds("posix", Kind::Flag, "the server is asked for its properties"),
    noted("sloppy", Kind::Flag, "unknown options are errors here"),
    noted("fatal_neterrors", Kind::Text("default, none, or errors joined by :"), "any live path is used"),
    noted("trunkdiscovery", Kind::Flag, "addresses are not asked for; use remoteports"),
    holds("notrunkdiscovery", Kind::Flag, "addresses are not asked for; use remoteports"),
    noted("migration", Kind::Flag, "a file system that moves to another server is not followed"),
    holds("nomigration", Kind::Flag, "a file system that moves to another server is not followed"),
    noted(
        "pconnect",
        Kind::Number { min: 1, max: 64, unit: "connections" },
        "one client has all connections here",
    ),
    holds("relmtime", Kind::Flag, "stat never waits for writes here"),
    noted("optlockflush", Kind::Flag, FLUSHES),
    holds("noextend", Kind::Flag, "writes are never extended to whole pages here"),
    holds("defaults", Kind::Flag, "it stands for the default options"),
    holds("auto", Kind::Flag, MOUNT_8),
    holds("noauto", Kind::Flag, MOUNT_8),
    holds("nofail", Kind::Flag, MOUNT_8),
    holds("_netdev", Kind::Flag, MOUNT_8),
    holds("user", Kind::Any, MOUNT_8),
    holds("nouser", Kind::Flag, MOUNT_8),
    holds("users", Kind::Flag, MOUNT_8),
    holds("owner", Kind::Flag, MOUNT_8),
    holds("group", Kind::Flag, MOUNT_8),
    holds("comment", Kind::Any, MOUNT_8),
    holds("x-*", Kind::Any, MOUNT_8),
    holds("X-*", Kind::Any, MOUNT_8),
    holds("diratime", Kind::Flag, "access times are kept by the server"),
    noted("nodiratime", Kind::Flag, "access times are kept by the server"),
    holds("relatime", Kind::Flag, "access times are kept by the server"),
    noted("norelatime", Kind::Flag, "access times are kept by the server"),
    noted("strictatime", Kind::Flag, "access times are kept by the server"),
    noted("lazytime", Kind::Flag, "access times are kept by the server"),
    holds("dirsync", Kind::Flag, "changes of directories are synchronous in NFS version 3"),
    noted("mand", Kind::Flag, ADVISORY),
    holds("nomand", Kind::Flag, ADVISORY),
    noted("iversion", Kind::Flag, "it is for file systems of the kernel"),
    holds("noiversion", Kind::Flag, "it is for file systems of the kernel"),
    noted("seclabel", Kind::Flag, "labels are not carried by NFS version 3"),
    noted("context", Kind::Text("a security context"), "labels are not carried by NFS version 3"),
    refused("remount", Kind::Flag, "unmount and mount again instead"),
    refused("bind", Kind::Flag, "it is no option of a network mount"),
];
