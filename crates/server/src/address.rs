//! Which addresses count as one host.

use std::net::{IpAddr, Ipv6Addr};

/// The part of an address that identifies a host: an IPv6 host may use any address of its network.
/// All hosts of a link share one link-local network: none of them takes more by taking many
/// addresses.
pub(crate) fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX)).into(),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_host_count_as_one() {
        let of = |address: &str| network_of(address.parse().unwrap());
        assert_eq!(of("fd00::1"), of("fd00::2:3"));
        assert_ne!(of("fd00::1"), of("fd00:0:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
        assert_eq!(of("fe80::1"), of("fe80::2"), "one link");
    }
}
