//! Free ports.

use std::collections::HashSet;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// Where the system states the range of ports for outgoing connections.
const PORT_RANGE_FILE: &str = "/proc/sys/net/ipv4/ip_local_port_range";

/// Common ports of servers are below this.
const PORT_MIN: u16 = 10_000;

/// The number of ports that is enough to find a free one.
const ATTEMPTS_MAX: usize = 1000;

/// The ports returned in this process, so that two tests running in parallel never get the same
/// port.
static RETURNED: Mutex<Option<HashSet<u16>>> = Mutex::new(None);

/// A free TCP port on 127.0.0.1; see [`free_port_on`].
///
/// # Panics
/// If there is no free port.
#[must_use]
pub fn free_port() -> u16 {
    free_port_on(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

/// A free TCP port on this address. It is not reserved, so another program could still take it. But
/// the system assigns it neither to an outgoing connection nor to a program that asks for any port,
/// so it stays free while a test restarts a server.
///
/// # Panics
/// If there is no free port, or the address is not local.
#[must_use]
pub fn free_port_on(address: IpAddr) -> u16 {
    let mut returned = RETURNED.lock().unwrap_or_else(PoisonError::into_inner);
    let returned = returned.get_or_insert_with(HashSet::new);
    let candidates = ports_outside(&fs::read_to_string(PORT_RANGE_FILE).unwrap_or_default());
    // Starts at a random port, because other programs look for ports at the same time.
    let random = RandomState::new().hash_one(address) as usize;
    for number in 0..ATTEMPTS_MAX {
        let any = candidates.len() < ATTEMPTS_MAX;
        let wanted = if any { 0 } else { candidates.start + ((random + number) % candidates.len()) as u16 };
        match TcpListener::bind((address, wanted)).and_then(|listener| listener.local_addr()) {
            Ok(bound) if returned.insert(bound.port()) => return bound.port(),
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {}
            Err(error) => panic!("cannot listen on {address}: {error}"),
        }
    }
    panic!("no free port on {address} that was not given out before");
}

/// The larger part of the ports outside the range of outgoing connections, which is given as two
/// numbers.
fn ports_outside(outgoing: &str) -> Range<u16> {
    let mut bounds = outgoing.split_whitespace().map_while(|bound| bound.parse().ok());
    let (Some(first), Some(last)) = (bounds.next(), bounds.next()) else { return 0..0 };
    let (below, above) = (PORT_MIN..first, u16::max(last, PORT_MIN)..u16::MAX);
    if below.len() >= above.len() { below } else { above.start + 1..above.end }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_ports_differ_and_can_be_listened_on() {
        let (one, other) = (free_port(), free_port());
        assert_ne!(one, other);
        TcpListener::bind(("127.0.0.1", one)).expect("the port is free");
    }

    #[test]
    fn ports_of_outgoing_connections_are_left_alone() {
        assert_eq!(ports_outside("32768\t60999\n"), 10_000..32_768);
        assert_eq!(ports_outside("1024\t50000\n"), 50_001..65_535);
        for all in ["1024 65535", "", "many"] {
            assert!(ports_outside(all).len() < ATTEMPTS_MAX, "{all}");
        }
    }
}
