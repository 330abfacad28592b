//! Lists of addresses as `remoteports` and `localports` have them: `A-B` ranges, joined by `~`.
//! Those of `remoteports` may say their transport before (`rdma:A-B`) and their port behind
//! (`A-B:PORT`, `[A6-B6]:PORT`). A link-local address names its interface (`fe80::1%eth0`); in a
//! range the last address does so for all.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use transport::{Address, AddressError};

use super::Proto;

/// Addresses in one list; also the bound of the vendors' drivers. A range is counted before it is
/// expanded.
pub const ADDRESSES_MAX: usize = 2048;
/// Linux: IFNAMSIZ, less its terminating zero.
const INTERFACE_NAME_BYTES_MAX: usize = 15;

/// Where the connections of a mount go.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Remotes {
    /// To the server that was named.
    #[default]
    Server,
    /// `remoteports=dns`: to every address that the server's name has.
    Dns,
    /// To these addresses, in this order.
    List(Vec<Remote>),
}

/// One address of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remote {
    /// The address.
    pub address: Address,
    /// What carries NFS there; absent: the mount's `proto`.
    pub proto: Option<Proto>,
    /// The port of NFS there; absent: the mount's `port`, or the usual one of another transport.
    pub port: Option<u16>,
}

impl From<Address> for Remote {
    fn from(address: Address) -> Self {
        Self { address, proto: None, port: None }
    }
}

impl From<IpAddr> for Remote {
    fn from(ip: IpAddr) -> Self {
        Address::from(ip).into()
    }
}

/// One entry of `localports`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Local {
    /// A local address.
    Address(Address),
    /// All addresses of this interface.
    Interface(String),
}

/// Reads `remoteports`. What is wrong comes as a sentence's end.
pub(super) fn parse_remotes(text: &str) -> Result<Remotes, String> {
    if text == "dns" {
        return Ok(Remotes::Dns);
    }
    let mut list: Vec<Remote> = Vec::new();
    for piece in text.split('~') {
        let (proto, rest) = transport_before(piece);
        let (range, port) = port_behind(rest, piece)?;
        let mut addresses = Vec::new();
        if !parse_piece(range, &mut addresses)? {
            return Err(format!("; \"{piece}\" is neither an address nor a range"));
        }
        if list.len() + addresses.len() > ADDRESSES_MAX {
            return Err(too_many());
        }
        list.extend(addresses.into_iter().map(|address| Remote { address, proto, port }));
    }
    Ok(Remotes::List(list))
}

/// The transport that a piece begins with.
fn transport_before(piece: &str) -> (Option<Proto>, &str) {
    for (before, proto) in [("tcp:", Proto::Tcp), ("rdma:", Proto::Rdma)] {
        if let Some(rest) = piece.strip_prefix(before) {
            return (Some(proto), rest);
        }
    }
    (None, piece)
}

/// The port that a piece ends with. IPv6 addresses have colons of their own, so they stand in
/// brackets before one.
fn port_behind<'a>(text: &'a str, piece: &str) -> Result<(&'a str, Option<u16>), String> {
    let (range, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((range, "")) => return Ok((range, None)),
        Some((range, rest)) => (range, rest.strip_prefix(':')),
        None => match text.split_once(':') {
            Some((range, port)) if !port.contains(':') => (range, Some(port)),
            _ => return Ok((text, None)),
        },
    };
    match port.and_then(|port| port.parse().ok()).filter(|port| *port != 0) {
        Some(port) => Ok((range, Some(port))),
        None => Err(format!("; \"{piece}\" does not end in a port from 1 to 65535")),
    }
}

/// Reads `localports`: like `remoteports`, and interface names.
pub(super) fn parse_locals(text: &str) -> Result<Vec<Local>, String> {
    let mut locals: Vec<Local> = Vec::new();
    for piece in text.split('~') {
        let mut list = Vec::new();
        if parse_piece(piece, &mut list)? {
            locals.extend(list.into_iter().map(Local::Address));
        } else if is_interface_name(piece) {
            locals.push(Local::Interface(piece.to_owned()));
        } else {
            return Err(format!("; \"{piece}\" is neither an address nor a range nor an interface name"));
        }
        if locals.len() > ADDRESSES_MAX {
            return Err(too_many());
        }
    }
    Ok(locals)
}

/// Appends an address or a range; false where the piece is neither.
fn parse_piece(piece: &str, list: &mut Vec<Address>) -> Result<bool, String> {
    let Some((first, last)) = parse_range(piece)? else { return Ok(false) };
    let (Some(low), Some(high)) = (number(first, last), number(last, first)) else {
        return Err(if first.is_ipv6() == last.is_ipv6() {
            format!("; \"{piece}\" begins on one link and ends on another")
        } else {
            format!("; \"{piece}\" mixes IPv4 and IPv6")
        });
    };
    if high < low {
        return Err(format!("; the range \"{piece}\" runs backwards"));
    }
    if high - low >= (ADDRESSES_MAX - list.len()) as u128 {
        return Err(too_many());
    }
    list.extend((low..=high).map(|number| address(number, first)));
    Ok(true)
}

/// The first and the last address of a piece; `None` where it has none. Interfaces have dashes in
/// their names too, both of `localports` and of zones.
fn parse_range(piece: &str) -> Result<Option<(Address, Address)>, String> {
    let mut wrong = None;
    match piece.parse::<Address>() {
        Ok(address) => return Ok(Some((address, address))),
        Err(AddressError::NotAnAddress(_)) => {}
        Err(error) => wrong = Some(error),
    }
    for (at, _) in piece.match_indices('-') {
        let (first, last) = (piece.get(..at).unwrap_or_default(), piece.get(at + 1..).unwrap_or_default());
        match (first.parse::<Address>(), last.parse::<Address>()) {
            (Ok(first), Ok(last)) => return Ok(Some((first, last))),
            (Err(AddressError::ZoneMissing(first)), Ok(last)) => {
                return Ok(Some((Address::of_interface(first, last.zone()), last)));
            }
            (Err(AddressError::NotAnAddress(_)), _) | (_, Err(AddressError::NotAnAddress(_))) => {}
            (Err(error), _) | (_, Err(error)) => wrong = Some(error),
        }
    }
    wrong.map_or(Ok(None), |error| Err(format!("; {error}")))
}

fn too_many() -> String {
    format!("; more than {ADDRESSES_MAX} addresses")
}

fn is_interface_name(piece: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.@".contains(c);
    (1..=INTERFACE_NAME_BYTES_MAX).contains(&piece.len())
        && piece.starts_with(|c: char| c.is_ascii_alphabetic())
        && piece.chars().all(allowed)
}

/// The address as a number, if `other` is of the same family and on the same link.
fn number(address: Address, other: Address) -> Option<u128> {
    if address.zone() != other.zone() {
        return None;
    }
    match (address.ip(), other.ip()) {
        (IpAddr::V4(address), IpAddr::V4(_)) => Some(u128::from(u32::from(address))),
        (IpAddr::V6(address), IpAddr::V6(_)) => Some(u128::from(address)),
        _ => None,
    }
}

/// The address with this number, of the family and on the link of `like`.
fn address(number: u128, like: Address) -> Address {
    let ip = match like.ip() {
        IpAddr::V4(_) => Ipv4Addr::from(u32::try_from(number).unwrap_or(u32::MAX)).into(),
        IpAddr::V6(_) => Ipv6Addr::from(number).into(),
    };
    Address::of_interface(ip, like.zone())
}

/// Writes addresses with runs as ranges.
fn write_list(list: &[Address], out: &mut String) {
    let mut rest = list;
    while let Some(&first) = rest.first() {
        let run = rest.windows(2).take_while(|pair| follows(pair)).count();
        if !out.is_empty() {
            out.push('~');
        }
        let last = rest[run];
        if run == 0 {
            out.push_str(&first.to_string());
        } else {
            // The zone of the last address is that of all.
            out.push_str(&format!("{}-{last}", first.ip()));
        }
        rest = &rest[run + 1..];
    }
}

fn follows(pair: &[Address]) -> bool {
    let &[first, second] = pair else { return false };
    number(first, second).and_then(|first| first.checked_add(1)) == number(second, first)
        && number(second, first).is_some()
}

impl fmt::Display for Remotes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server => Ok(()),
            Self::Dns => out.write_str("dns"),
            Self::List(list) => {
                let alike = |one: &Remote, other: &Remote| (one.proto, one.port) == (other.proto, other.port);
                let groups = list.chunk_by(alike).map(show_alike);
                out.write_str(&groups.collect::<Vec<_>>().join("~"))
            }
        }
    }
}

/// Writes addresses with the same transport and port.
fn show_alike(remotes: &[Remote]) -> String {
    let Some(Remote { proto, port, .. }) = remotes.first() else { return String::new() };
    let addresses: Vec<Address> = remotes.iter().map(|remote| remote.address).collect();
    let mut text = String::new();
    write_list(&addresses, &mut text);
    let before = match proto {
        None => "",
        Some(Proto::Tcp) => "tcp:",
        Some(Proto::Rdma) => "rdma:",
    };
    let piece = |range: &str| match port {
        None => format!("{before}{range}"),
        Some(port) if range.contains(':') => format!("{before}[{range}]:{port}"),
        Some(port) => format!("{before}{range}:{port}"),
    };
    text.split('~').map(piece).collect::<Vec<_>>().join("~")
}

/// Writes `localports` back.
pub(super) fn show_locals(locals: &[Local]) -> String {
    let mut text = String::new();
    let mut run = Vec::new();
    for local in locals {
        match local {
            Local::Address(address) => run.push(*address),
            Local::Interface(name) => {
                write_list(&std::mem::take(&mut run), &mut text);
                if !text.is_empty() {
                    text.push('~');
                }
                text.push_str(name);
            }
        }
    }
    write_list(&run, &mut text);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> Vec<String> {
        match parse_remotes(text) {
            Ok(Remotes::List(list)) => list.iter().map(|remote| remote.address.to_string()).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn ranges_and_single_addresses_of_both_families_are_joined() {
        assert_eq!(list("10.0.0.254-10.0.1.1"), ["10.0.0.254", "10.0.0.255", "10.0.1.0", "10.0.1.1"]);
        assert_eq!(
            list("10.0.0.9~10.0.0.1~fd00::ff-fd00::101"),
            ["10.0.0.9", "10.0.0.1", "fd00::ff", "fd00::100", "fd00::101"]
        );
        assert_eq!(parse_remotes("dns"), Ok(Remotes::Dns));
    }

    #[test]
    fn a_list_is_bounded_before_it_is_expanded() {
        assert_eq!(list("10.0.0.0-10.0.7.255").len(), ADDRESSES_MAX);
        for text in
            ["10.0.0.0-10.0.8.0", "10.0.0.0-10.0.7.255~10.9.9.9", "::-ffff::", "0.0.0.0-255.255.255.255"]
        {
            assert_eq!(parse_remotes(text), Err("; more than 2048 addresses".to_owned()), "{text}");
        }
    }

    #[test]
    fn an_address_may_say_its_transport_and_its_port() {
        let text = "rdma:10.0.0.1-10.0.0.2~tcp:10.0.0.1:3049~[fd00::1-fd00::2]:4~rdma:fd00::1~10.0.0.7";
        let parsed = parse_remotes(text).unwrap();
        assert_eq!(parsed.to_string(), text);
        let Remotes::List(list) = parsed else { panic!("a list") };
        let seen: Vec<_> = list.iter().map(|remote| (remote.proto, remote.port)).collect();
        let (tcp, rdma) = (Some(Proto::Tcp), Some(Proto::Rdma));
        let wanted =
            [(rdma, None), (rdma, None), (tcp, Some(3049)), (None, Some(4)), (None, Some(4)), (rdma, None)];
        assert_eq!(seen, [&wanted[..], &[(None, None)]].concat());
        assert_eq!(list[4].address, "fd00::2".parse().unwrap());
    }

    #[test]
    fn an_invalid_list_is_refused_with_the_reason() {
        let cases = [
            ("rdma:", "neither"),
            ("udp:10.0.0.1", "end in a port"),
            ("10.0.0.1:", "end in a port"),
            ("10.0.0.1:0", "end in a port"),
            ("10.0.0.1:65536", "end in a port"),
            ("[fd00::1]3049", "end in a port"),
            ("[fd00::1", "neither"),
            ("rdma:tcp:10.0.0.1", "end in a port"),
            ("", "neither"),
            ("10.0.0.1~", "neither"),
            ("10.0.0.1-", "neither"),
            ("10.0.0", "neither"),
            ("eth0", "neither"),
            ("10.0.0.2-10.0.0.1", "backwards"),
            ("10.0.0.2-fd00::1", "mixes"),
            ("fe80::1", "name its interface"),
            ("fe80::1-fe80::2", "name its interface"),
            ("fe80::1%nosuch-0", "there is no interface"),
            ("[fe80::1%nosuch-0]:1", "there is no interface"),
            ("10.0.0.1%lo", "only link-local"),
            ("fe80::1-fe81::1%lo", "more than 2048"),
            ("fd00::1-fe80::1%lo", "one link"),
        ];
        for (text, why) in cases {
            let error = parse_remotes(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn the_last_address_of_a_range_names_the_interface_of_all() {
        for (text, shown) in [
            ("fe80::1%lo", "fe80::1%lo"),
            ("fe80::1%1", "fe80::1%lo"),
            ("fe80::1-fe80::3%lo", "fe80::1-fe80::3%lo"),
            ("fe80::1%lo-fe80::2%lo", "fe80::1-fe80::2%lo"),
            ("rdma:fe80::1%lo~[fe80::1-fe80::2%lo]:4", "rdma:fe80::1%lo~[fe80::1-fe80::2%lo]:4"),
        ] {
            let Remotes::List(list) = parse_remotes(text).unwrap() else { panic!("a list") };
            assert!(list.iter().all(|remote| remote.address.zone() == 1), "{text}: {list:?}");
            assert_eq!(Remotes::List(list).to_string(), shown, "{text}");
        }
        assert_eq!(show_locals(&parse_locals("fe80::1%lo~br-lan").unwrap()), "fe80::1%lo~br-lan");
    }

    #[test]
    fn locals_may_be_interfaces_whose_names_have_a_dash() {
        let locals = parse_locals("br-lan~10.0.0.1-10.0.0.2~enp1s0f0np0").unwrap();
        assert_eq!(locals.len(), 4);
        assert_eq!(locals[0], Local::Interface("br-lan".to_owned()));
        assert_eq!(show_locals(&locals), "br-lan~10.0.0.1-10.0.0.2~enp1s0f0np0");
        assert!(parse_locals("10.0.0.1~0bad").is_err());
        assert!(parse_locals("an-interface-with-a-long-name").is_err());
    }

    #[test]
    fn a_list_is_written_with_its_runs_as_ranges() {
        for text in ["10.0.0.1", "10.0.0.255-10.0.1.0~10.0.0.3~fd00::1-fd00::2~::", "255.255.255.255~::"] {
            assert_eq!(parse_remotes(text).unwrap().to_string(), text);
        }
        assert_eq!(
            parse_remotes("10.0.0.1~10.0.0.2~10.0.0.2").unwrap().to_string(),
            "10.0.0.1-10.0.0.2~10.0.0.2"
        );
    }
}
