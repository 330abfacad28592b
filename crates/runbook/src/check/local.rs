//! `localports` of a host: the addresses from which a client of PowerScale connects.

use super::addresses::{Addresses, is_of_an_interface};
use crate::error::Findings;
use crate::model::LocalPorts;
use crate::site::{At, Host, Site};
use std::net::{IpAddr, Ipv4Addr};

/// The most connections of a mount, and so the most addresses that it can come from.
const ADDRESSES_MAX: usize = 64;

/// Reads the addresses of one host, and notes that they are its own.
pub(super) fn check(
    site: &Site,
    host: &At<Host>,
    names: &[String],
    addresses: &mut Addresses,
    findings: &mut Findings,
) -> Option<LocalPorts> {
    let local = host.get_ref().localports.as_ref()?;
    let text = local.get_ref();
    if site.powerscale.is_none() {
        findings.add(
            local.span(),
            "localports has no effect: the site has no [powerscale]",
            "localports is an option of the mounts of a PowerScale cluster",
            "docs/RUNBOOKS.md",
            "leave localports out",
        );
        return None;
    }
    let Some(found) = read(text) else {
        findings.add(
            local.span(),
            format!("{text:?} is no list of local addresses"),
            format!(
                "localports is addresses and A-B ranges, joined by ~: IPv4, each once, at most {ADDRESSES_MAX}"
            ),
            "docs/MOUNT-OPTIONS.md",
            "localports = \"10.0.0.21-10.0.0.22\"",
        );
        return None;
    };
    let [name] = names else {
        // A range of hosts that is refused stands for none.
        if let (Some(first), Some(last)) = (names.first(), names.last()) {
            findings.add(
                local.span(),
                format!("localports = {text:?} would be that of several hosts, {first} to {last}"),
                "localports are addresses of one machine: no other one can connect from there",
                "docs/RUNBOOKS.md",
                format!("a [[host]] of its own for each, such as name = {first:?}, with its own localports"),
            );
        }
        return None;
    };
    for ip in &found {
        addresses.note(local, *ip, &format!("host {name}"), findings);
    }
    Some(LocalPorts { text: text.clone(), addresses: found })
}

/// Addresses and ranges joined by ~, as the mount option takes them.
fn read(text: &str) -> Option<Vec<IpAddr>> {
    let mut found = Vec::new();
    for part in text.split('~') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let [first, last] = [first, last].map(|end| end.parse::<Ipv4Addr>().ok().map(u32::from));
        let (first, last) = (first?, last?);
        if last < first || u64::from(last - first) >= ADDRESSES_MAX as u64 {
            return None;
        }
        for ip in (first..=last).map(|number| IpAddr::V4(number.into())) {
            if !is_of_an_interface(ip) || found.contains(&ip) || found.len() == ADDRESSES_MAX {
                return None;
            }
            found.push(ip);
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_single_addresses_are_read_in_their_order() {
        let shown = |text| read(text).map(|all| all.iter().map(IpAddr::to_string).collect::<Vec<_>>());
        let found = shown("10.0.0.255-10.0.1.1~10.0.0.9").unwrap();
        assert_eq!(found, ["10.0.0.255", "10.0.1.0", "10.0.1.1", "10.0.0.9"]);
        assert_eq!(shown("10.0.0.1-10.0.0.64").unwrap().len(), 64);
        for wrong in [
            "",
            "eth0",
            "10.0.0.1,10.0.0.2",
            "10.0.0.2-10.0.0.1",
            "10.0.0.1-10.0.0.65",
            "10.0.0.1-10.0.0.64~10.0.0.65",
            "10.0.0.1~10.0.0.1",
            "10.0.0.1~",
            "0.0.0.0-255.255.255.255",
            "255.255.255.255",
            "127.0.0.1",
            "fd00::1",
        ] {
            assert_eq!(shown(wrong), None, "{wrong}");
        }
    }
}
