//! Which connection gives way when a loop has as many as it may have.
//!
//! Clients that no export admits (strangers) can do nothing but learn that. They share a small part
//! of the connections, and give way first. Then the address that holds most gives way to one that
//! holds much less, so that neither one address nor several can shut out the rest. A client that is
//! connected and works keeps its connection: among the others, only an idle one gives way.

use super::{EVICTABLE_IDLE, EventLoop};
use crate::address::network_of;
use crate::runtime::connection::{CloseReason, Connection};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use transport::Transport;

/// Strangers hold one connection in this many, but a few in any case.
const STRANGERS_SHARE: usize = 8;
const STRANGERS_MIN: usize = 2;

impl EventLoop {
    /// Closes a connection if a new one from this address needs its place. Returns false if the new
    /// one must be refused.
    pub(super) fn make_place(&mut self, peer: SocketAddr, bound: usize) -> bool {
        let is_full = self.connections.len() >= bound;
        if self.group.exports().admitted(peer).is_empty() {
            let strangers = self.connections.iter().filter(|(_, other)| is_stranger(other)).count();
            let most = (bound / STRANGERS_SHARE).max(STRANGERS_MIN.min(bound / 2));
            return (!is_full && strangers < most) || self.evict_stranger();
        }
        !is_full
            || self.evict_stranger()
            || self.evict_of_largest_holder(peer.ip(), bound)
            || self.evict_idle(peer.ip())
    }

    /// Closes the stranger that has been silent longest.
    fn evict_stranger(&mut self) -> bool {
        let strangers = self.connections.iter().filter(|(_, connection)| is_stranger(connection));
        let longest = strangers.min_by_key(|(_, connection)| connection.active).map(|(key, _)| key);
        self.evict(longest)
    }

    /// How many connections each address holds.
    fn holders(&self) -> HashMap<IpAddr, usize> {
        let mut held: HashMap<IpAddr, usize> = HashMap::new();
        for (_, connection) in &self.connections {
            *held.entry(holder_of(connection)).or_default() += 1;
        }
        held
    }

    /// If one other address holds more than half of all connections, or more than twice as many as
    /// the newcomer's would, closes the one of its connections that has been silent longest, those
    /// last that wait for memory or are within a record.
    fn evict_of_largest_holder(&mut self, newcomer: IpAddr, bound: usize) -> bool {
        let held = self.holders();
        let newcomer = network_of(newcomer);
        let of_newcomer = held.get(&newcomer).copied().unwrap_or_default();
        let most = (2 * (of_newcomer + 1)).min(bound / 2);
        let largest = held.into_iter().max_by_key(|(_, count)| *count);
        let Some((holder, _)) = largest.filter(|(holder, count)| *count > most && *holder != newcomer) else {
            return false;
        };
        let its = self
            .connections
            .iter()
            .filter(|(_, connection)| holder_of(connection) == holder && connection.pool_calls() == 0);
        let longest = its.min_by_key(|(_, connection)| {
            // Who waits for memory is silent because of this server, and who is within a record is
            // at work. They give way last: an address must not keep its places by half records.
            let waits = connection.waits_for_room().is_some();
            (waits, connection.stream.within_record(), connection.active)
        });
        let longest = longest.map(|(key, _)| key);
        self.evict(longest)
    }

    /// Closes an idle connection of the newcomer's own address or of one that holds more: of those
    /// of the address that holds most, the one that has been idle longest. So nobody takes the
    /// places of those who hold less. Returns false if no such connection is idle.
    fn evict_idle(&mut self, newcomer: IpAddr) -> bool {
        let held = self.holders();
        let newcomer = network_of(newcomer);
        let of_newcomer = held.get(&newcomer).copied().unwrap_or_default();
        let gives_way = |holder| holder == newcomer || held.get(&holder).is_some_and(|of| *of > of_newcomer);
        let idle = self.connections.iter().filter(|(_, connection)| {
            let is_idle = connection.pool_calls() == 0 && connection.active + EVICTABLE_IDLE <= self.alive;
            is_idle && gives_way(holder_of(connection))
        });
        let longest = idle.min_by_key(|(_, connection)| {
            let count = held.get(&holder_of(connection)).copied();
            // A connection that waits for memory is not idle by its own choice.
            (connection.waits_for_room().is_some(), Reverse(count), connection.active)
        });
        let longest = longest.map(|(key, _)| key);
        self.evict(longest)
    }

    fn evict(&mut self, key: Option<usize>) -> bool {
        if let Some(key) = key {
            self.close(key, CloseReason::Evicted);
        }
        key.is_some()
    }
}

fn is_stranger(connection: &Connection) -> bool {
    connection.client.admitted.is_empty()
}

fn holder_of(connection: &Connection) -> IpAddr {
    network_of(connection.client.peer.ip())
}
