//! The subnets that a quick export admits: loopback, and the subnets of the listeners.
//!
//! The subnets are read from `/proc/net/route` and `/proc/net/if_inet6`. Where those files cannot
//! be read, only loopback and the listeners' own addresses are admitted.

use super::Network;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Loopback, and the subnets of `listens`; a wildcard address stands for every subnet of its
/// family.
pub fn near(listens: &[SocketAddr]) -> Vec<Network> {
    let routes = std::fs::read_to_string("/proc/net/route").unwrap_or_default();
    let interfaces = std::fs::read_to_string("/proc/net/if_inet6").unwrap_or_default();
    let mut connected = parse_routes(&routes);
    connected.extend(parse_interfaces(&interfaces));
    let mut near =
        vec![Network::new(Ipv4Addr::LOCALHOST.into(), 8), Network::host(Ipv6Addr::LOCALHOST.into())];
    for listen in listens {
        let address = listen.ip().to_canonical();
        let same_family = |network: &Network| network.contains(address);
        let subnets = connected.iter().filter(|(network, v4)| {
            if address.is_unspecified() { *v4 == address.is_ipv4() } else { same_family(network) }
        });
        near.extend(subnets.map(|(network, _)| *network));
        if !address.is_unspecified() && !near.iter().any(same_family) {
            near.push(Network::host(address));
        }
    }
    let mut unique = Vec::with_capacity(near.len());
    for network in near {
        if !unique.contains(&network) {
            unique.push(network);
        }
    }
    unique
}

/// Directly connected networks (without a gateway), from the text of `/proc/net/route`.
fn parse_routes(text: &str) -> Vec<(Network, bool)> {
    let line = |line: &str| {
        let mut fields = line.split_whitespace().skip(1);
        let mut number = |skip: usize| u32::from_str_radix(fields.nth(skip)?, 16).ok();
        let (destination, gateway, mask) = (number(0)?, number(0)?, number(4)?);
        // The file shows the bytes of the address as one number in host byte order.
        let address = Ipv4Addr::from(destination.to_ne_bytes());
        let prefix = u8::try_from(mask.count_ones()).ok()?;
        (gateway == 0 && prefix > 0).then(|| (Network::new(IpAddr::V4(address), prefix), true))
    };
    text.lines().skip(1).filter_map(line).collect()
}

/// Networks of the interfaces, from the text of `/proc/net/if_inet6`.
fn parse_interfaces(text: &str) -> Vec<(Network, bool)> {
    let line = |line: &str| {
        let mut fields = line.split_whitespace();
        let address = Ipv6Addr::from_bits(u128::from_str_radix(fields.next()?, 16).ok()?);
        let prefix = u8::from_str_radix(fields.nth(1)?, 16).ok()?;
        Some((Network::new(IpAddr::V6(address), prefix), false))
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_without_gateway_are_subnets() {
        let text = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n\
            eth0\t00000000\t0101A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
            eth0\t0001A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n";
        let expected = "192.168.1.0/24".parse::<Network>().unwrap();
        assert_eq!(parse_routes(text), [(expected, true)]);
    }

    #[test]
    fn interfaces_give_their_ipv6_prefix() {
        let text = "fd000000000000000000000000000005 02 40 00 80 eth0\n";
        assert_eq!(parse_interfaces(text), [("fd00::/64".parse::<Network>().unwrap(), false)]);
    }

    #[test]
    fn loopback_is_always_near_and_strangers_are_not() {
        let near = near(&["127.0.0.1:2049".parse().unwrap()]);
        let admits = |address: &str| near.iter().any(|network| network.contains(address.parse().unwrap()));
        assert!(admits("127.0.0.2") && admits("::1"));
        assert!(!admits("203.0.113.9"));
    }
}
