//! Asks a server: versions, full frames, the export, the rights of this user.

use super::program;
use crate::error::Error;
use ::check::{Expected, Finding};
use client::options::Proto;
use client::{Mount, Offer, Offered, Settings, offers};
use fs::{CreateMode, FileKind, Rights, SetAttributes};
use std::net::{IpAddr, SocketAddr};

const VERSION: &str = "server.version";
/// The longest payload of an echo.
const ECHO_BYTES_MAX: u32 = 65_507;
/// The headers of an ICMP echo over IPv4 and over IPv6.
const HEADER_BYTES_V4: u32 = 28;
const HEADER_BYTES_V6: u32 = 48;

/// Everything that is found out about an export.
pub(super) fn check(
    target: &str,
    options: &str,
    expected: &Expected,
    write: bool,
) -> Result<Vec<Finding>, Error> {
    let settings = Settings::from_options(target, options)?;
    let mut findings = Vec::new();
    let offers = offers(&settings);
    findings.extend(offers.iter().map(version));
    let mut addresses: Vec<IpAddr> = offers.iter().map(|offer| offer.address.ip()).collect();
    addresses.dedup();
    findings.extend(addresses.into_iter().map(|address| frames(address, expected.mtu)));
    match Mount::with_settings(settings.clone()) {
        Ok(mount) => {
            findings.push(mounted(&mount, &settings, target));
            findings.push(rights(&mount, &settings, target));
            if write {
                findings.push(written(&mount, target));
            }
        }
        Err(error) => findings.push(not_mounted(&error, target, offers.first())),
    }
    Ok(findings)
}

fn proto_name(proto: Proto) -> &'static str {
    match proto {
        Proto::Tcp => "TCP",
        Proto::Rdma => "RDMA",
    }
}

/// An error with its causes, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(&format!(": {cause}"));
        next = cause.source();
    }
    text.replace('\n', " ")
}

/// This program mounts version 3; other versions, and a transport that was not asked for, are told
/// and not judged.
fn version(offer: &Offer) -> Finding {
    let Offer { address, proto, is_meant, version, answer } = offer;
    let name = format!("NFS version {version} over {} at {address}", proto_name(*proto));
    let is_needed = *is_meant && *version == 3;
    let (seen, why, mend) = match answer {
        Ok(Offered::Served) => {
            return Finding::ok(VERSION, format!("NULL call to {address}"), format!("{name}: offered"));
        }
        Ok(Offered::Between { low, high }) => (
            format!("not offered; versions {low} to {high} are"),
            "Trunkline mounts version 3",
            "switch NFSv3 on at the server".to_owned(),
        ),
        Ok(Offered::NotNfs) => (
            "not offered; another program answers".to_owned(),
            "the port does not serve NFS",
            format!("rpcinfo -p {}    # then: -o port=N", address.ip()),
        ),
        Err(error) => (
            format!("not offered; {}", chain(error)),
            "without an answer nothing can be mounted here",
            advice(*address, *proto),
        ),
    };
    let finding = Finding::ok(VERSION, format!("NULL call to {address}"), format!("{name}: {seen}"));
    if is_needed { finding.fail(why, mend) } else { finding }
}

fn advice(address: SocketAddr, proto: Proto) -> String {
    match proto {
        Proto::Tcp => format!(
            "is nfsd running there, and does a firewall pass port {}? ping {}; rpcinfo -p {}",
            address.port(),
            address.ip(),
            address.ip()
        ),
        Proto::Rdma => format!(
            "is NFS over RDMA enabled there (knfsd: echo rdma {} > /proc/fs/nfsd/portlist), and is an RDMA device \
             on the way? rdma link; ip route get {}",
            address.port(),
            address.ip()
        ),
    }
}

/// The MTU of the interface through which an address is reached, and its name.
fn interface_of(address: IpAddr) -> Option<(String, u32)> {
    let text = program::run(&["ip", "-j", "route", "get", &address.to_string()]).ok()?.stdout;
    let routes: serde_json::Value = serde_json::from_str(&text).ok()?;
    let name = routes.get(0)?.get("dev")?.as_str()?.to_owned();
    let mtu = std::fs::read_to_string(format!("/sys/class/net/{name}/mtu")).ok()?;
    Some((name, mtu.trim().parse().ok()?))
}

/// The end of one echo that must not be fragmented.
enum Echo {
    Answered,
    Silent,
    /// The words of ping about a smaller MTU on the way.
    TooLong(String),
}

/// Sends one echo that must not be fragmented.
fn echo(address: IpAddr, payload: u32) -> Result<Echo, String> {
    let (size, address) = (payload.to_string(), address.to_string());
    let output = program::run(&["ping", "-M", "do", "-n", "-c", "1", "-W", "2", "-s", &size, &address])?;
    let words = format!("{}\n{}", output.stdout, output.stderr);
    let told = words.lines().find(|line| {
        let line = line.to_ascii_lowercase();
        line.contains("too long") || line.contains("frag needed") || line.contains("too big")
    });
    match told {
        _ if output.succeeded => Ok(Echo::Answered),
        Some(line) => Ok(Echo::TooLong(line.trim().to_owned())),
        // Without permission, a route, or the option, ping ends before it prints anything.
        None if output.stdout.is_empty() => {
            Err(output.stderr.lines().next().unwrap_or("ping fails").trim().to_owned())
        }
        None => Ok(Echo::Silent),
    }
}

/// Whether frames of the full size reach an address. A smaller MTU that is told costs speed; frames
/// that vanish hang transfers.
fn frames(address: IpAddr, expected: Option<u32>) -> Finding {
    const RULE: &str = "server.mtu";
    let interface = interface_of(address);
    let Some(mtu) = expected.or(interface.as_ref().map(|(_, mtu)| *mtu)) else {
        let seen = format!("the interface to {address} is not known");
        return Finding::unknown(RULE, "ip route get", seen, "install iproute2, or give --mtu");
    };
    let headers = if address.is_ipv4() { HEADER_BYTES_V4 } else { HEADER_BYTES_V6 };
    let payload = mtu.saturating_sub(headers).min(ECHO_BYTES_MAX);
    let source = format!("ping -M do -s {payload} {address}");
    let name = interface.map_or_else(String::new, |(name, _)| format!(" through {name}"));
    let long = echo(address, payload);
    let short = if matches!(long, Ok(Echo::Silent)) { echo(address, 56) } else { Ok(Echo::Answered) };
    let finding = |seen: String| Finding::ok(RULE, source.clone(), seen);
    match (long, short) {
        (Ok(Echo::Answered), _) => finding(format!("frames of {mtu} bytes reach {address}{name}")),
        (Ok(Echo::TooLong(words)), _) => {
            let finding = finding(format!("frames of {mtu} bytes do not pass to {address}{name}: {words}"));
            let why = "a part of the way carries only shorter frames, which cost more of them";
            let mend = "set the same MTU on both hosts and on every switch port between";
            if expected.is_some() { finding.fail(why, mend) } else { finding.warn(why, mend) }
        }
        (Ok(Echo::Silent), Ok(Echo::Answered)) => {
            finding(format!("short frames reach {address}{name}, frames of {mtu} bytes vanish")).fail(
                "long transfers hang while short calls pass",
                "set the same MTU on both hosts and on every switch port between",
            )
        }
        (Err(why), _) | (_, Err(why)) => {
            Finding::unknown(RULE, source, why, "a route to the server, iputils-ping, or root")
        }
        (Ok(Echo::Silent), _) => Finding::unknown(
            RULE,
            source,
            format!("{address} does not answer ping"),
            "let the server answer ICMP echo",
        ),
    }
}

fn mounted(mount: &Mount, settings: &Settings, target: &str) -> Finding {
    let (read, write) = mount.transfer_sizes();
    let proto = proto_name(settings.proto);
    let seen = format!("{} over {proto}: READ of {read} bytes, WRITE of {write}", mount.name());
    let finding = Finding::ok("server.export", target, seen);
    const WANTED: u32 = 1 << 20;
    if read.min(write) >= WANTED.min(settings.rsize).min(settings.wsize) {
        return finding;
    }
    finding.warn(
        "the server allows only shorter transfers, which cost more calls for the same bytes",
        "raise the server's limit (knfsd: /proc/fs/nfsd/max_block_size before nfsd starts)",
    )
}

fn not_mounted(error: &client::Error, target: &str, offer: Option<&Offer>) -> Finding {
    let seen = chain(error);
    let server = offer.map_or_else(|| "SERVER".to_owned(), |offer| offer.address.ip().to_string());
    let mend =
        format!("showmount -e {server}    # is the export there, and does it admit this host's address?");
    Finding::ok("server.export", target, seen).fail("the export cannot be used from this host", mend)
}

/// What this user may do in the root of the export, by ACCESS. RFC 1813 s3.3.4
fn rights(mount: &Mount, settings: &Settings, target: &str) -> Finding {
    const RULE: &str = "server.rights";
    let root = mount.root();
    let wished = [
        (Rights::READ, "list"),
        (Rights::LOOKUP, "enter"),
        (Rights::EXTEND, "create"),
        (Rights::DELETE, "delete"),
    ];
    let all = Rights(wished.iter().fold(0, |all, (right, _)| all | right.0));
    let found = mount.access(root, all).and_then(|rights| Ok((rights, mount.attributes(root)?)));
    let (rights, attributes) = match found {
        Ok(found) => found,
        Err(error) => {
            let mend = "does the server's log say why?";
            return Finding::unknown(RULE, target, chain(&error), mend);
        }
    };
    let words = |may: bool| {
        let having = wished.iter().filter(|(right, _)| (rights.0 & right.0 != 0) == may);
        having.map(|(_, word)| *word).collect::<Vec<_>>().join(", ")
    };
    let (uid, gid) = (settings.uid, settings.gid);
    let seen = format!(
        "user {uid}, group {gid} may {}; the root of the export belongs to {}:{}, mode {:o}",
        if words(true).is_empty() { "do nothing".to_owned() } else { words(true) },
        attributes.uid,
        attributes.gid,
        attributes.mode & 0o7777
    );
    let finding = Finding::ok(RULE, target, seen);
    let may_look = [Rights::READ, Rights::LOOKUP].iter().all(|right| rights.0 & right.0 != 0);
    if attributes.kind != FileKind::Directory || words(false).is_empty() || settings.read_only && may_look {
        return finding;
    }
    let why = format!(
        "the server refuses to {} here; it knows users by their numbers, which must be the same on both sides, \
         and maps root to nobody unless the export says otherwise",
        words(false)
    );
    let squash = match uid {
        0 => ", or no_root_squash (PowerScale: --root-clients)",
        _ => ", or the same number there (PowerScale: isi auth users view)",
    };
    let mend = format!("at the server: chown {uid}:{gid} of the directory{squash}");
    if may_look { finding.warn(why, mend) } else { finding.fail(why, mend) }
}

/// Makes a file and removes it.
fn written(mount: &Mount, target: &str) -> Finding {
    const RULE: &str = "server.write";
    let name = format!(".trunkline-check-{}-{:08x}", std::process::id(), rand_number());
    let how = CreateMode::Guarded(SetAttributes::mode(0o600));
    let made = mount.create(mount.root(), name.as_bytes(), how);
    let outcome = made.and_then(|_| {
        let same = written_and_read(mount, name.as_bytes());
        // Whatever happened, the file must not stay.
        mount.remove(mount.root(), name.as_bytes()).and(same)
    });
    match outcome {
        Ok(true) => Finding::ok(RULE, target, format!("{name} was made, written, read back and removed")),
        Ok(false) => Finding::ok(RULE, target, format!("{name} does not hold what was written")).fail(
            "the data read back differ from those written",
            "keep nothing there until that is explained",
        ),
        Err(error) => Finding::ok(RULE, target, format!("{name}: {}", chain(&error))).fail(
            "this user cannot write to the export",
            "rw in the export, the owner of its root, and the user's number on both sides",
        ),
    }
}

/// Whether a file holds what is written to it.
fn written_and_read(mount: &Mount, name: &[u8]) -> client::Result<bool> {
    let data = [0x5a_u8; 4096];
    let file = mount.open(name)?;
    file.write_all_at(&data, 0)?;
    let mut back = [0; 4096];
    let len = file.read_all_at(&mut back, 0)?;
    Ok(len == data.len() && back == data)
}

/// Differs between two checks of one process number on two hosts.
fn rand_number() -> u32 {
    use std::hash::{BuildHasher, RandomState};
    u32::try_from(RandomState::new().hash_one(0) >> 32).unwrap_or(0)
}
