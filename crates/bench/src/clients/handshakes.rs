//! The connections to an agent that have not proved the key yet: a bounded number, so that
//! strangers hold neither threads nor descriptors, and so that they keep no coordinator out.
//!
//! If there are too many, one of the address that has most is ended, the oldest first. A
//! coordinator proves the key within milliseconds, so it is not the oldest of a crowd.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, Shutdown, TcpStream};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The most connections that may prove the key. A coordinator needs one.
const WAITING_MAX: usize = 16;
/// The most threads: those whose connection was ended take a moment to see that.
const THREADS_MAX: usize = 64;

#[derive(Debug)]
struct Waiting {
    number: u64,
    network: IpAddr,
    socket: TcpStream,
}

#[derive(Debug, Default)]
struct State {
    /// The oldest first.
    waiting: Vec<Waiting>,
    threads: usize,
    last_number: u64,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Handshakes(Mutex<State>);

/// The place of a connection that has not proved the key, until this is dropped.
#[derive(Debug)]
pub(super) struct Place<'a> {
    handshakes: &'a Handshakes,
    number: u64,
}

impl Handshakes {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a connection, for which another one may be ended; `None` if too many are still
    /// ending.
    pub(super) fn enter(&self, socket: &TcpStream, peer: IpAddr) -> std::io::Result<Option<Place<'_>>> {
        let socket = socket.try_clone()?;
        let mut state = self.lock();
        if state.threads >= THREADS_MAX {
            return Ok(None);
        }
        state.last_number += 1;
        let number = state.last_number;
        state.waiting.push(Waiting { number, network: network(peer), socket });
        state.threads += 1;
        if state.waiting.len() > WAITING_MAX
            && let Some(victim) = victim(&state.waiting)
        {
            let ended = state.waiting.remove(victim);
            // One that has ended by itself is gone too.
            let _ = ended.socket.shutdown(Shutdown::Both);
        }
        Ok(Some(Place { handshakes: self, number }))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut state = self.handshakes.lock();
        state.threads -= 1;
        state.waiting.retain(|one| one.number != self.number);
    }
}

/// The place of the oldest connection of the address that has most.
fn victim(waiting: &[Waiting]) -> Option<usize> {
    let mut counts: BTreeMap<IpAddr, usize> = BTreeMap::new();
    waiting.iter().for_each(|one| *counts.entry(one.network).or_default() += 1);
    let most = counts.values().copied().max()?;
    waiting.iter().position(|one| counts.get(&one.network) == Some(&most))
}

/// Whose connections are counted together: an IPv4 address, or the /64 of an IPv6 address.
fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::TcpListener;

    #[test]
    fn strangers_lose_their_places_to_others_the_oldest_of_the_busiest_address_first() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let handshakes = Handshakes::default();
        let connect = |peer: &str| {
            let mut stranger = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            stranger.set_nonblocking(true).unwrap();
            let (socket, _) = listener.accept().unwrap();
            let place = handshakes.enter(&socket, peer.parse().unwrap()).unwrap().unwrap();
            let mut is_ended = move || matches!(stranger.read(&mut [0]), Ok(0));
            (socket, place, move || is_ended())
        };
        let mut other = connect("10.0.0.8");
        let mut strangers: Vec<_> = (0..WAITING_MAX - 1).map(|_| connect("10.0.0.7")).collect();
        assert!(strangers.iter_mut().all(|(.., is_ended)| !is_ended()));
        let mut coordinator = connect("10.0.0.9");
        assert!((strangers[0].2)(), "the oldest of the address that has most");
        assert!(strangers.iter_mut().skip(1).all(|(.., is_ended)| !is_ended()));
        assert!(!(other.2)() && !(coordinator.2)());
        drop(strangers);
        let many: Vec<_> = (0..WAITING_MAX - 2).map(|n| connect(&format!("10.1.0.{n}"))).collect();
        assert!(!(other.2)() && !(coordinator.2)());
        drop((many, other, coordinator));
        assert!(handshakes.lock().waiting.is_empty() && handshakes.lock().threads == 0);
    }
}
