//! Addresses: that they are some, and that no two interfaces share one.

use crate::error::Findings;
use crate::site::At;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};

/// The source of the rule that an address belongs to one interface.
const ORIGIN: &str = "RFC 1122, section 3.3.4.1; RFC 4291, section 2.1";

/// The addresses that have been used, with their users.
#[derive(Debug, Default)]
pub(super) struct Addresses(HashMap<IpAddr, String>);

impl Addresses {
    /// Reads an address and notes its user; returns nothing if it is none.
    pub(super) fn take(
        &mut self,
        address: &At<String>,
        user: &str,
        findings: &mut Findings,
    ) -> Option<IpAddr> {
        let read: Option<IpAddr> = address.get_ref().parse().ok();
        let Some(ip) = read.filter(|ip| is_of_an_interface(*ip)) else {
            findings.add(
                address.span(),
                format!("{:?} is not the address of an interface", address.get_ref()),
                "an address is IPv4 or IPv6, without a prefix length, and no loopback, multicast or broadcast one",
                "nvme discover takes addresses, not names (Deploying NetApp EF600, figure 19)",
                "an address such as \"172.30.57.107\"; `getent ahosts NAME` shows those of a name",
            );
            return None;
        };
        self.note(address, ip, user, findings);
        Some(ip)
    }

    /// Notes the user of an address.
    pub(super) fn note(&mut self, place: &At<String>, ip: IpAddr, user: &str, findings: &mut Findings) {
        // A server may serve several things at one address.
        if let Some(other) = self.0.insert(ip, user.to_owned()).filter(|other| other != user) {
            findings.add(
                place.span(),
                format!("the address {ip} of {user} is used twice: {other} has it too"),
                "an address belongs to one interface",
                ORIGIN,
                "another address for one of the two",
            );
        }
    }
}

/// Whether an interface may have this address.
pub(super) fn is_of_an_interface(ip: IpAddr) -> bool {
    let is_broadcast = ip == IpAddr::V4(Ipv4Addr::BROADCAST);
    !(ip.is_unspecified() || ip.is_multicast() || ip.is_loopback() || is_broadcast)
}

/// An address of IPv4; others are refused, with the rule and its source.
pub(super) fn v4(
    place: &At<String>,
    ip: IpAddr,
    (rule, origin): (&str, String),
    findings: &mut Findings,
) -> Option<Ipv4Addr> {
    if let IpAddr::V4(v4) = ip {
        return Some(v4);
    }
    findings.add(
        place.span(),
        format!("{ip} is an address of IPv6"),
        rule,
        origin,
        "an IPv4 address such as \"172.30.57.107\"",
    );
    None
}
