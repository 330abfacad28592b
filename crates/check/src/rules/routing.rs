//! Several local addresses in one network: each must send through its own interface, or the links
//! beside the first idle and replies are dropped.

use super::list;
use crate::{Evidence, Expected, Finding, Status};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const ADDRESSES: &str = "ip-addr.txt";
const RULES: &str = "ip-rule.txt";
const RULES_V6: &str = "ip-rule6.txt";
const ROUTES: &str = "ip-route.txt";
const ROUTES_V6: &str = "ip-route6.txt";
const SYSCTL: &str = "sysctl.txt";
/// Routing tables above this number are proposed.
const FIRST_TABLE: u32 = 100;

/// An address of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Local<'a> {
    pub interface: &'a str,
    pub address: IpAddr,
    pub prefix: u8,
    /// Another host has the same address, found by IPv6 itself. RFC 4862 s5.4
    is_duplicate: bool,
    /// An address that the host gave itself for a time, or that nothing new is sent from: nobody
    /// plans routes for it. RFC 8981, RFC 4862 s5.5.4
    is_passing: bool,
}

impl Local<'_> {
    /// The network as `10.0.0.0/24`.
    fn network(&self) -> String {
        let network: IpAddr = match self.address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix)).unwrap_or(0);
                Ipv4Addr::from_bits(address.to_bits() & mask).into()
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.prefix)).unwrap_or(0);
                Ipv6Addr::from_bits(address.to_bits() & mask).into()
            }
        };
        format!("{network}/{}", self.prefix)
    }
}

/// The addresses of all interfaces but loopback, without link-local ones.
pub(super) fn addresses(evidence: &Evidence) -> Vec<Local<'_>> {
    let mut locals = all(evidence);
    locals.retain(|local| local.interface != "lo");
    locals
}

/// The same with those of loopback: lines such as
/// `2: ens6f0    inet 10.0.0.1/24 brd 10.0.0.255 scope global ens6f0`.
fn all(evidence: &Evidence) -> Vec<Local<'_>> {
    evidence.text(ADDRESSES).unwrap_or_default().lines().filter_map(local).collect()
}

/// Whether a line shows an address, also one that no rule looks at.
pub(super) fn has_address(line: &str) -> bool {
    let mut words = line.split_whitespace().skip(2);
    let is_family = |word: &str| matches!(word, "inet" | "inet6");
    let address = words.find(|word| is_family(word)).and_then(|_| words.next());
    address.is_some_and(|address| address.split('/').next().is_some_and(|ip| ip.parse::<IpAddr>().is_ok()))
}

fn local(line: &str) -> Option<Local<'_>> {
    let mut words = line.split_whitespace();
    // The name of a VLAN or of one end of a pair is followed by the other interface.
    let interface = words.nth(1)?.split('@').next()?;
    let mut rest = words.skip_while(|word| !matches!(*word, "inet" | "inet6"));
    let (address, prefix) = rest.nth(1)?.split_once('/')?;
    let (address, prefix): (IpAddr, u8) = (address.parse().ok()?, prefix.parse().ok()?);
    let (longest, is_link_local) = match address {
        IpAddr::V4(_) => (32, false),
        IpAddr::V6(address) => (128, address.is_unicast_link_local()),
    };
    let is_kept = prefix <= longest && !is_link_local;
    let flags: Vec<&str> = rest.take_while(|word| !word.starts_with('\\')).collect();
    let is_duplicate = flags.contains(&"dadfailed");
    // An address of IPv4 is dynamic where DHCP gives always the same.
    let is_passing =
        address.is_ipv6() && flags.iter().any(|flag| matches!(*flag, "temporary" | "deprecated" | "dynamic"));
    is_kept.then_some(Local { interface, address, prefix, is_duplicate, is_passing })
}

pub(super) fn check(evidence: &Evidence, expected: &Expected, out: &mut Vec<Finding>) {
    let locals = addresses(evidence);
    planned(evidence, expected, &all(evidence), out);
    duplicates(evidence, &locals, out);
    let mut networks = BTreeMap::<String, Vec<Local<'_>>>::new();
    for local in locals.into_iter().filter(|local| !local.is_passing) {
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
        if locals.iter().any(|local| local.address.is_ipv6()) {
            // Neither of the two is there for IPv6.
            continue;
        }
        out.extend(interfaces.iter().filter_map(|name| reverse_path(evidence, name, is_routed)));
        out.extend(interfaces.iter().filter_map(|name| address_resolution(evidence, name)));
    }
}

/// Whether the host has the addresses of the plan.
fn planned(evidence: &Evidence, expected: &Expected, locals: &[Local<'_>], out: &mut Vec<Finding>) {
    if evidence.text(ADDRESSES).is_none() {
        return;
    }
    for (interface, address) in &expected.addresses {
        let at: Vec<&str> =
            locals.iter().filter(|local| local.address == *address).map(|local| local.interface).collect();
        let finding = |seen| Finding::ok("net.address", evidence.source(ADDRESSES), seen);
        let why = "what is to come from that address goes another way, or not at all";
        out.push(match &at[..] {
            at if at.contains(&&**interface) => finding(format!("{interface} has {address}, as planned")),
            [] => finding(format!("no interface has {address}, which the plan names"))
                .fail(why, format!("ip addr add {address}/PREFIX dev {interface}    # or correct the plan")),
            at => finding(format!("{} has {address}, which the plan has at {interface}", list(at))).fail(
                why,
                format!(
                    "ip addr del {address}/PREFIX dev {}; ip addr add {address}/PREFIX dev {interface}    # or correct the plan",
                    list(at)
                ),
            ),
        });
    }
}

/// An address that another host has too carries nothing.
fn duplicates(evidence: &Evidence, locals: &[Local<'_>], out: &mut Vec<Finding>) {
    for Local { interface, address, .. } in locals.iter().filter(|local| local.is_duplicate) {
        let seen = format!("{interface}: another host has {address} too (dadfailed)");
        out.push(Finding::ok("net.duplicate", evidence.source(ADDRESSES), seen).fail(
            "the kernel does not use an address that it saw at another host",
            format!("give one of the two another address: ip -6 addr del {address} dev {interface}; ip -6 addr add ..."),
        ));
    }
}

/// The interface through which the main table leads to a network: of several routes the one with
/// the lowest metric, or the first.
fn main_interface<'a>(evidence: &'a Evidence, network: &str, is_v6: bool) -> Option<&'a str> {
    // `10.0.0.0/24 dev ens6f0 proto kernel scope link src 10.0.0.1 metric 100`
    let route = |line: &'a str| {
        let mut words = line.split_whitespace();
        words.next().filter(|to| *to == network)?;
        let rest: Vec<&str> = words.collect();
        let after = |name: &str| rest.iter().skip_while(|word| **word != name).nth(1).copied();
        let metric = after("metric").and_then(|metric| metric.parse::<u32>().ok()).unwrap_or(0);
        Some((metric, after("dev")?))
    };
    let text = evidence.text(if is_v6 { ROUTES_V6 } else { ROUTES })?;
    text.lines().filter_map(route).min_by_key(|(metric, _)| *metric).map(|(_, interface)| interface)
}

/// Whether a rule sends what comes from each address through the address's own interface. That of
/// the main table's route needs none.
fn sources(evidence: &Evidence, network: &str, locals: &[Local<'_>], table: &mut u32) -> Finding {
    let mut interfaces: Vec<&str> = locals.iter().map(|local| local.interface).collect();
    interfaces.dedup();
    let seen = format!("{} share the network {network}", list(&interfaces));
    let is_v6 = locals.iter().any(|local| local.address.is_ipv6());
    let (rules, ip, longest) = if is_v6 { (RULES_V6, "ip -6", "/128") } else { (RULES, "ip", "/32") };
    let Some(text) = evidence.text(rules) else {
        let mend = format!("{ip} rule show    # is there a rule for each address?");
        return Finding::unknown("net.source-routing", rules, seen, mend);
    };
    // `32765:	from 10.0.0.2 lookup 101`
    let sources: Vec<&str> =
        text.lines().filter_map(|line| line.split_once("from ")?.1.split_whitespace().next()).collect();
    let has_rule = |local: &&Local<'_>| {
        let is_it = |source: &str| source.parse() == Ok(local.address);
        sources.iter().any(|source| is_it(source.strip_suffix(longest).unwrap_or(source)))
    };
    let without: Vec<_> = locals.iter().filter(|local| !has_rule(local)).collect();
    let finding = Finding::ok("net.source-routing", evidence.source(rules), seen);
    let main = main_interface(evidence, network, is_v6).or(without.first().map(|local| local.interface));
    let lacking: Vec<_> = without.into_iter().filter(|local| Some(local.interface) != main).collect();
    if lacking.is_empty() {
        return finding;
    }
    let command = |local: &&Local<'_>| {
        let Local { interface, address, .. } = local;
        *table += 1;
        format!(
            "{ip} route add {network} dev {interface} src {address} table {table}; \
             {ip} rule add from {address} table {table}"
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
