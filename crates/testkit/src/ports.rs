//! Ports that nobody uses.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::sync::Mutex;

/// Ports given out in this process, so that two tests side by side never get the same one.
static GIVEN: Mutex<Option<HashSet<u16>>> = Mutex::new(None);

/// A free TCP port on 127.0.0.1.
///
/// # Panics
/// When there is none.
#[must_use]
pub fn free_port() -> u16 {
    free_port_on(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

/// A free TCP port on this address. Nothing reserves it: another program could still take it.
///
/// # Panics
/// When there is none, or the address is not this machine's.
#[must_use]
pub fn free_port_on(address: IpAddr) -> u16 {
    let mut given = GIVEN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let given = given.get_or_insert_with(HashSet::new);
    for _ in 0..1000 {
        let bound = TcpListener::bind((address, 0)).and_then(|listener| listener.local_addr());
        match bound {
            Ok(bound) if given.insert(bound.port()) => return bound.port(),
            Ok(_) => {}
            Err(error) => panic!("cannot listen on {address}: {error}"),
        }
    }
    panic!("no free port on {address} that was not given out before");
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
}
