//! How many connections the metrics address serves at once, and whose.
//!
//! Peers on this host have places of their own, and no other host may take all of the rest.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The most connections of peers on this host.
const HERE_MAX: usize = 64;
/// The most connections of all other hosts.
const OTHERS_MAX: usize = 64;
/// The most connections of one other host, or IPv6 network: a browser opens six.
const HOST_MAX: usize = 16;

/// Whose connections are counted together: an IPv4 address or the /64 of an IPv6 address.
fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        address => address,
    }
}

#[derive(Debug, Default)]
struct Taken {
    here: usize,
    others: BTreeMap<IpAddr, usize>,
}

/// See the module's documentation.
#[derive(Debug, Clone, Default)]
pub(super) struct Places(Arc<Mutex<Taken>>);

/// A place for one connection, until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Places,
    /// `None` for a peer on this host.
    network: Option<IpAddr>,
}

impl Places {
    /// A place, if there is one for this peer.
    pub(super) fn take(&self, peer: IpAddr, is_here: bool) -> Option<Place> {
        let mut taken = self.lock();
        let network = (!is_here).then(|| network(peer));
        let has_room = match network {
            None => taken.here < HERE_MAX,
            Some(network) => {
                let of_host = taken.others.get(&network).copied().unwrap_or(0);
                of_host < HOST_MAX && taken.others.values().sum::<usize>() < OTHERS_MAX
            }
        };
        match network {
            _ if !has_room => return None,
            None => taken.here += 1,
            Some(network) => *taken.others.entry(network).or_default() += 1,
        }
        Some(Place { places: self.clone(), network })
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.lock();
        let Some(network) = self.network else {
            taken.here -= 1;
            return;
        };
        if let Some(count) = taken.others.get_mut(&network) {
            *count -= 1;
            if *count == 0 {
                taken.others.remove(&network);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(places: &Places, peer: &str, is_here: bool, count: usize) -> Vec<Place> {
        let peer = peer.parse().unwrap();
        std::iter::from_fn(|| places.take(peer, is_here)).take(count).collect()
    }

    #[test]
    fn one_host_leaves_room_for_others_and_all_for_this_host() {
        let places = Places::default();
        let one = take(&places, "10.0.0.7", false, 100);
        assert_eq!(one.len(), HOST_MAX);
        // The same network of IPv6 is the same host; an IPv4 address in IPv6 is that address.
        let mut six = take(&places, "fd00::1", false, 10);
        six.extend(take(&places, "fd00::2", false, 10));
        assert_eq!(six.len(), HOST_MAX);
        assert!(take(&places, "::ffff:10.0.0.7", false, 1).is_empty());
        let others: Vec<_> = (0..100).flat_map(|n| take(&places, &format!("10.1.0.{n}"), false, 1)).collect();
        assert_eq!(others.len(), OTHERS_MAX - 2 * HOST_MAX);
        assert_eq!(take(&places, "127.0.0.1", true, 100).len(), HERE_MAX);
        drop((one, six, others));
        assert_eq!(take(&places, "10.0.0.7", false, 100).len(), HOST_MAX);
    }
}
