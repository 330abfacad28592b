//! Whether frames of the full size reach a server.

use crate::check::program;
use ::check::{Expected, Finding};
use client::Settings;
use std::collections::HashSet;
use std::net::IpAddr;

/// The longest payload of an echo.
const ECHO_BYTES_MAX: u32 = 65_507;
/// The headers of an ICMP echo over IPv4 and over IPv6.
const HEADER_BYTES_V4: u32 = 28;
const HEADER_BYTES_V6: u32 = 48;

/// The local addresses from which paths to the server begin: those of the mount options, and those
/// of a plan.
pub(super) fn locals(settings: &Settings, expected: &Expected) -> Vec<IpAddr> {
    let mut locals: Vec<IpAddr> = settings.locals.iter().map(|local| local.ip()).collect();
    locals.extend(expected.addresses.iter().map(|(_, address)| *address));
    let mut seen = HashSet::new();
    locals.retain(|local| seen.insert(*local));
    locals
}

/// Whether frames of the full size reach an address: from each local address of its family, or if
/// there are none, from the one that the system chooses.
pub(super) fn check(address: IpAddr, locals: &[IpAddr], expected: Option<u32>) -> Vec<Finding> {
    let of_family = locals.iter().filter(|local| local.is_ipv4() == address.is_ipv4());
    let from: Vec<_> = of_family.copied().map(Some).collect();
    let from = if from.is_empty() { vec![None] } else { from };
    from.into_iter().map(|local| frames(address, local, expected)).collect()
}

/// The MTU of the interface through which an address is reached, and its name.
fn interface_of(address: IpAddr, local: Option<IpAddr>) -> Option<(String, u32)> {
    let (address, local) = (address.to_string(), local.map(|local| local.to_string()));
    let mut words = vec!["ip", "-j", "route", "get", &address];
    words.extend(local.iter().flat_map(|local| ["from", local]));
    let text = program::run(&words).ok()?.stdout;
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
fn echo(address: IpAddr, local: Option<IpAddr>, payload: u32) -> Result<Echo, String> {
    let (size, address) = (payload.to_string(), address.to_string());
    let local = local.map(|local| local.to_string());
    let mut words = vec!["ping", "-M", "do", "-n", "-c", "1", "-W", "2", "-s", &size];
    words.extend(local.iter().flat_map(|local| ["-I", local]));
    words.push(&address);
    let output = program::run(&words)?;
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
fn frames(address: IpAddr, local: Option<IpAddr>, expected: Option<u32>) -> Finding {
    const RULE: &str = "server.mtu";
    let interface = interface_of(address, local);
    let Some(mtu) = expected.or(interface.as_ref().map(|(_, mtu)| *mtu)) else {
        let seen = format!("the interface to {address} is not known");
        return Finding::unknown(RULE, "ip route get", seen, "install iproute2, or give --mtu");
    };
    let headers = if address.is_ipv4() { HEADER_BYTES_V4 } else { HEADER_BYTES_V6 };
    let payload = mtu.saturating_sub(headers).min(ECHO_BYTES_MAX);
    let option = local.map(|local| format!(" -I {local}")).unwrap_or_default();
    let source = format!("ping -M do -s {payload}{option} {address}");
    let mut name = local.map(|local| format!(" from {local}")).unwrap_or_default();
    name.push_str(&interface.map_or_else(String::new, |(name, _)| format!(" through {name}")));
    let long = echo(address, local, payload);
    let short = if matches!(long, Ok(Echo::Silent)) { echo(address, local, 56) } else { Ok(Echo::Answered) };
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
        (Err(why), _) | (_, Err(why)) => Finding::unknown(
            RULE,
            source,
            why,
            "a route to the server, the local address on this host, iputils-ping, or root",
        ),
        (Ok(Echo::Silent), _) => Finding::unknown(
            RULE,
            source,
            format!("{address} does not answer ping{name}"),
            "let the server answer ICMP echo, and see that its answers come back: ip route get",
        ),
    }
}
