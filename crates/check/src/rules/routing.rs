//! Several local addresses in one network: each must send through its own interface, or the links
//! beside the first idle and replies are dropped.

use super::list;
use crate::{Evidence, Finding, Status};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

const ADDRESSES: &str = "ip-addr.txt";
const RULES: &str = "ip-rule.txt";
const SYSCTL: &str = "sysctl.txt";
/// Routing tables above this number are proposed.
const FIRST_TABLE: u32 = 100;

/// An IPv4 address of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Local<'a> {
    pub interface: &'a str,
    pub address: Ipv4Addr,
    pub prefix: u32,
}

impl Local<'_> {
    /// The network as `10.0.0.0/24`.
    fn network(&self) -> String {
        let mask = u32::MAX.checked_shl(32_u32.saturating_sub(self.prefix)).unwrap_or(0);
        format!("{}/{}", Ipv4Addr::from_bits(self.address.to_bits() & mask), self.prefix)
    }
}

/// The IPv4 addresses of all interfaces but loopback: lines such as
/// `2: ens6f0    inet 10.0.0.1/24 brd 10.0.0.255 scope global ens6f0`.
pub(super) fn addresses(evidence: &Evidence) -> Vec<Local<'_>> {
    let local = |line: &'_ str| {
        let mut words = line.split_whitespace();
        // The name of a VLAN or of one end of a pair is followed by the other interface.
        let interface = words.nth(1)?.split('@').next()?;
        let (address, prefix) = words.skip_while(|word| *word != "inet").nth(1)?.split_once('/')?;
        Some((interface.len(), address.parse().ok()?, prefix.parse().ok().filter(|prefix| *prefix <= 32)?))
    };
    let mut found = Vec::new();
    for line in evidence.text(ADDRESSES).unwrap_or_default().lines() {
        let Some((len, address, prefix)) = local(line) else { continue };
        let name = line.split_whitespace().nth(1).and_then(|name| name.get(..len));
        found.extend(name.filter(|name| *name != "lo").map(|interface| Local { interface, address, prefix }));
    }
    found
}

pub(super) fn check(evidence: &Evidence, out: &mut Vec<Finding>) {
    let mut networks = BTreeMap::<String, Vec<Local<'_>>>::new();
    for local in addresses(evidence) {
        networks.entry(local.network()).or_default().push(local);
    }
    let mut table = FIRST_TABLE;
    for (network, locals) in networks {
        let mut interfaces: Vec<&str> = locals.iter().map(|local| local.interface).collect();
        interfaces.sort_unstable();
        interfaces.dedup();
        if interfaces.len() < 2 {
            continue;
        }
        let sources = sources(evidence, &network, &locals, &mut table);
        let is_routed = sources.status == Status::Ok;
        out.push(sources);
        out.extend(interfaces.iter().filter_map(|name| reverse_path(evidence, name, is_routed)));
        out.extend(interfaces.iter().filter_map(|name| address_resolution(evidence, name)));
    }
}

/// Whether a rule sends what comes from each address through the address's own interface. One
/// interface may use the main table.
fn sources(evidence: &Evidence, network: &str, locals: &[Local<'_>], table: &mut u32) -> Finding {
    let mut interfaces: Vec<&str> = locals.iter().map(|local| local.interface).collect();
    interfaces.dedup();
    let seen = format!("{} share the network {network}", list(&interfaces));
    let Some(text) = evidence.text(RULES) else {
        let mend = "ip rule show    # is there a rule for each address?";
        return Finding::unknown("net.source-routing", RULES, seen, mend);
    };
    // `32765:	from 10.0.0.2 lookup 101`
    let sources: Vec<&str> =
        text.lines().filter_map(|line| line.split_once("from ")?.1.split_whitespace().next()).collect();
    let has_rule = |local: &&Local<'_>| {
        let address = local.address.to_string();
        sources.iter().any(|source| *source == address || source.strip_suffix("/32") == Some(&address))
    };
    let without: Vec<_> = locals.iter().filter(|local| !has_rule(local)).collect();
    let finding = Finding::ok("net.source-routing", evidence.source(RULES), seen);
    let main = without.first().map(|local| local.interface);
    let lacking: Vec<_> = without.into_iter().filter(|local| Some(local.interface) != main).collect();
    if lacking.is_empty() {
        return finding;
    }
    let command = |local: &&Local<'_>| {
        let Local { interface, address, .. } = local;
        *table += 1;
        format!(
            "ip route add {network} dev {interface} src {address} table {table}; \
             ip rule add from {address} table {table}"
        )
    };
    let why = "everything sent to that network leaves through one interface, whatever address it comes from";
    let mend = lacking.iter().map(command).collect::<Vec<_>>().join("; ");
    finding.warn(why, format!("{mend}    # with tables that are free"))
}

/// The value of a setting of an interface that the setting for all may raise.
fn setting(evidence: &Evidence, interface: &str, name: &str) -> Option<u32> {
    let of = |interface: &str| {
        let path = format!("/proc/sys/net/ipv4/conf/{interface}/{name}");
        evidence.value(SYSCTL, &path)?.parse::<u32>().ok()
    };
    Some(of(interface)?.max(of("all").unwrap_or_default()))
}

/// Strict filtering looks up the way back with the address that was called, so it does no harm
/// where each address has its own route.
fn reverse_path(evidence: &Evidence, interface: &str, is_routed: bool) -> Option<Finding> {
    let value = setting(evidence, interface, "rp_filter")?;
    let path = format!("/proc/sys/net/ipv4/conf/{{{interface},all}}/rp_filter");
    let finding = Finding::ok("net.rp-filter", path, format!("rp_filter of {interface} is {value}"));
    Some(if value == 1 && !is_routed {
        finding.fail(
            "strict filtering drops what arrives at an interface other than the one that the route back uses, \
             and several interfaces share a network",
            format!(
                "sysctl -w net/ipv4/conf/{interface}/rp_filter=2    # 2 is loose; the larger of this and \
                 conf.all counts"
            ),
        )
    } else {
        finding
    })
}

fn address_resolution(evidence: &Evidence, interface: &str) -> Option<Finding> {
    let (ignore, announce) =
        (setting(evidence, interface, "arp_ignore")?, setting(evidence, interface, "arp_announce")?);
    let path = format!("/proc/sys/net/ipv4/conf/{{{interface},all}}/arp_*");
    let seen = format!("arp_ignore of {interface} is {ignore}, arp_announce is {announce}");
    let finding = Finding::ok("net.arp", path, seen);
    Some(if ignore == 0 || announce < 2 {
        finding.warn(
            "an interface answers for the addresses of the others, so that peers may send all to one of them",
            format!(
                "sysctl -w net/ipv4/conf/{interface}/arp_ignore=1 net/ipv4/conf/{interface}/arp_announce=2"
            ),
        )
    } else {
        finding
    })
}
