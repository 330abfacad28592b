//! What was forwarded and not answered, without sockets.
//!
//! ```text
//!  begun ── answer ──────────────────────────────────> answered as the owner says
//!        └─ the connection ends ──> withheld ──> settled: ANA transition, sent again by its host
//! ```
//!
//! What the owner had when the connection ended is executed or not, and may still be executed, also
//! by the system for a process that is gone. It is known not to be when the same process says so on
//! the next connection, or when the volume is served again, for which somebody must have got the
//! lock of its backing: in another epoch.

use super::{COMMANDS_MAX, HOSTS_MAX, Route, WINDOW_BYTES};
use crate::config::TRANSFER_BYTES;
use crate::mailbox::Token;
use crate::shares::Shares;
use nvme::{HostId, Nqn};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A host by both of its names.
pub(crate) type Host = (Nqn, HostId);

/// A command of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flight {
    pub(crate) token: Token,
    pub(crate) tag: u16,
    /// The place of its volume.
    pub(crate) at: usize,
    /// Under which it was sent.
    pub(crate) epoch: u64,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    flight: Flight,
    host: u32,
    cost: usize,
}

#[derive(Debug, Clone, Copy)]
struct Known {
    number: u32,
    commands: usize,
}

/// What the owner is to be told of a host before its command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Introduced {
    pub(crate) number: u32,
    /// It was not told before.
    pub(crate) is_new: bool,
    /// It is to forget this one.
    pub(crate) gone: Option<u32>,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Flights {
    /// By identifier.
    entries: Vec<Option<Entry>>,
    free: Vec<u16>,
    /// What the volumes have of the commands and of the payload that the owner takes.
    commands: Shares,
    payload: Shares,
    hosts: BTreeMap<Arc<Host>, Known>,
    next_host: u32,
    /// With where the instances of its owner's process begin.
    withheld: Vec<(Flight, u64)>,
    owner: u64,
}

impl Default for Flights {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            free: Vec::new(),
            commands: Shares::new(0, 0),
            payload: Shares::new(0, 0),
            hosts: BTreeMap::new(),
            next_host: 0,
            withheld: Vec::new(),
            owner: 0,
        }
    }
}

impl Flights {
    /// An owner is there that takes so many commands, with so much payload in all. Its process
    /// executes nothing of an earlier connection any more: what is settled by that is returned.
    pub(crate) fn open(&mut self, owner: u64, commands: usize, window: usize) -> Vec<Flight> {
        let commands = commands.clamp(1, COMMANDS_MAX);
        self.entries = vec![None; commands];
        self.free = (0..=u16::MAX).take(commands).rev().collect();
        self.commands = Shares::new(commands, 1);
        self.payload = Shares::new(window.min(WINDOW_BYTES), TRANSFER_BYTES as usize);
        self.owner = owner;
        self.settle_if(|_, of| of == owner)
    }

    fn settle_if(&mut self, is_settled: impl Fn(&Flight, u64) -> bool) -> Vec<Flight> {
        let settled = self.withheld.extract_if(.., |(flight, owner)| is_settled(flight, *owner));
        settled.map(|(flight, _)| flight).collect()
    }

    /// Whether the owner takes a command for the volume at a place with so much payload now. One
    /// with more than it takes at all goes alone.
    pub(crate) fn has_room(&self, at: usize, cost: usize) -> bool {
        !self.free.is_empty() && self.commands.may_take(at, 1) && self.payload.may_take(at, cost)
    }

    /// The number of a host for the owner.
    pub(crate) fn introduce(&mut self, host: &Arc<Host>) -> Introduced {
        if let Some(known) = self.hosts.get(host) {
            return Introduced { number: known.number, is_new: false, gone: None };
        }
        let mut gone = None;
        if self.hosts.len() >= HOSTS_MAX {
            let idle = self.hosts.iter().find(|(_, known)| known.commands == 0);
            let idle = idle.map(|(host, known)| (Arc::clone(host), known.number));
            if let Some((host, number)) = idle {
                self.hosts.remove(&host);
                gone = Some(number);
            }
        }
        let number = self.next_host;
        self.next_host = self.next_host.wrapping_add(1);
        self.hosts.insert(Arc::clone(host), Known { number, commands: 0 });
        Introduced { number, is_new: true, gone }
    }

    /// A command of an introduced host is sent; returns its identifier. There must be
    /// [room](Self::has_room).
    pub(crate) fn begin(&mut self, flight: Flight, host: u32, cost: usize) -> Option<u16> {
        let id = self.free.pop()?;
        *self.entries.get_mut(usize::from(id))? = Some(Entry { flight, host, cost });
        self.commands.take(flight.at, 1);
        self.payload.take(flight.at, cost);
        self.count(host, |commands| commands + 1);
        Some(id)
    }

    fn count(&mut self, host: u32, change: impl Fn(usize) -> usize) {
        if let Some(known) = self.hosts.values_mut().find(|known| known.number == host) {
            known.commands = change(known.commands);
        }
    }

    /// The owner has answered a command; `None` if it was not asked.
    pub(crate) fn answer(&mut self, id: u16) -> Option<Flight> {
        let entry = self.entries.get_mut(usize::from(id))?.take()?;
        self.free.push(id);
        self.commands.give_back(entry.flight.at, 1);
        self.payload.give_back(entry.flight.at, entry.cost);
        self.count(entry.host, |commands| commands.saturating_sub(1));
        Some(entry.flight)
    }

    /// A command that is not answered.
    pub(crate) fn flight(&self, id: u16) -> Option<Flight> {
        self.entries.get(usize::from(id))?.as_ref().map(|entry| entry.flight)
    }

    /// The identifier of a command, unless the owner does not have it any more.
    pub(crate) fn find(&self, token: Token, tag: u16) -> Option<u16> {
        let is_it = |entry: &Option<Entry>| {
            entry.is_some_and(|entry| entry.flight.token == token && entry.flight.tag == tag)
        };
        (0..).zip(&self.entries).find_map(|(id, entry)| is_it(entry).then_some(id))
    }

    /// The connection to the owner has ended. Returns what is settled already.
    pub(crate) fn lose(&mut self, route: impl Fn(usize) -> Route) -> Vec<Flight> {
        let owner = self.owner;
        let lost = std::mem::take(&mut self.entries).into_iter().flatten();
        self.withheld.extend(lost.map(|entry| (entry.flight, owner)));
        self.free.clear();
        self.hosts.clear();
        self.settle_if(|flight, _| is_settled(flight, route(flight.at)))
    }

    /// The volume at a place is reached like this from now on. Returns what is settled by that.
    pub(crate) fn settle(&mut self, at: usize, route: Route) -> Vec<Flight> {
        self.settle_if(|flight, _| flight.at == at && is_settled(flight, route))
    }
}

/// Whether nothing can be executed any more that was sent under another epoch.
fn is_settled(flight: &Flight, route: Route) -> bool {
    route.epoch().is_some_and(|epoch| epoch != flight.epoch)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flight(tag: u16, at: usize, epoch: u64) -> Flight {
        Flight { token: Token(9), tag, at, epoch }
    }

    fn host(number: u32) -> Arc<Host> {
        let name = format!("nqn.2026-11.test:{number}");
        Arc::new((Nqn::new(&name).unwrap(), HostId([1; 16])))
    }

    fn open(commands: usize, window: usize) -> Flights {
        let mut flights = Flights::default();
        assert!(!flights.has_room(0, 0), "nobody is there");
        assert_eq!(flights.open(1, commands, window), []);
        flights
    }

    #[test]
    fn no_more_is_sent_than_the_owner_takes() {
        let mut flights = open(3, 100);
        let known = flights.introduce(&host(1));
        assert_eq!(known, Introduced { number: 0, is_new: true, gone: None });
        assert!(!flights.introduce(&host(1)).is_new);
        assert!(flights.has_room(0, 1000), "what is more than all goes alone");
        let first = flights.begin(flight(1, 0, 1), known.number, 60).unwrap();
        assert!(flights.has_room(0, 15) && !flights.has_room(0, 16), "three quarters for one volume");
        assert!(flights.has_room(1, 40) && !flights.has_room(1, 41));
        let second = flights.begin(flight(2, 0, 1), known.number, 0).unwrap();
        assert!(!flights.has_room(0, 0) && flights.has_room(1, 40), "the last one is for another volume");
        let third = flights.begin(flight(3, 1, 1), known.number, 0).unwrap();
        assert!(!flights.has_room(2, 0), "three commands");
        assert_eq!(flights.answer(third), Some(flight(3, 1, 1)));
        assert_eq!(flights.find(Token(9), 2), Some(second));
        assert_eq!(flights.find(Token(8), 2), None);
        assert_eq!(flights.answer(first), Some(flight(1, 0, 1)));
        assert_eq!(flights.answer(first), None, "once");
        assert!(flights.answer(77).is_none() && flights.has_room(1, 100));
    }

    #[test]
    fn what_the_owner_had_is_withheld_until_its_volume_is_served_in_another_epoch() {
        let mut flights = open(8, 100);
        let number = flights.introduce(&host(1)).number;
        for (tag, at) in [(1, 0), (2, 0), (3, 1)] {
            flights.begin(flight(tag, at, 5), number, 0).unwrap();
        }
        let answered = flights.find(Token(9), 1).unwrap();
        assert!(flights.answer(answered).is_some());
        // The volume at 1 was taken before the end was seen.
        let routes = [Route::Nowhere, Route::There(7)];
        assert_eq!(flights.lose(|at| routes[at]), [flight(3, 1, 5)]);
        assert!(!flights.has_room(0, 0));
        for unsettled in [Route::There(5), Route::Nowhere, Route::Here(5)] {
            assert_eq!(flights.settle(0, unsettled), []);
        }
        assert_eq!(flights.settle(1, Route::Here(6)), []);
        // Another owner is there meanwhile.
        assert_eq!(flights.open(2, 8, 100), [], "it cannot know what that one has begun");
        assert!(flights.introduce(&host(1)).is_new, "it knows no host");
        assert_eq!(flights.settle(0, Route::Here(6)), [flight(2, 0, 5)]);
        assert_eq!(flights.settle(0, Route::There(7)), []);
    }

    #[test]
    fn what_an_owner_had_is_settled_when_it_says_so_on_another_connection() {
        let mut flights = open(8, 100);
        let number = flights.introduce(&host(1)).number;
        flights.begin(flight(1, 0, 5), number, 0).unwrap();
        assert_eq!(flights.lose(|_| Route::There(5)), []);
        assert_eq!(flights.open(2, 8, 100), []);
        let number = flights.introduce(&host(1)).number;
        flights.begin(flight(2, 1, 7), number, 0).unwrap();
        assert_eq!(flights.lose(|_| Route::There(7)), [flight(1, 0, 5)]);
        assert_eq!(flights.open(2, 8, 100), [flight(2, 1, 7)]);
        assert_eq!(flights.lose(|_| Route::There(8)), []);
    }

    #[test]
    fn a_host_without_commands_makes_room_for_another_one() {
        let mut flights = open(COMMANDS_MAX, 100);
        for number in 0..HOSTS_MAX as u32 {
            assert_eq!(flights.introduce(&host(number)).number, number);
        }
        let busy = flights.introduce(&host(0)).number;
        let id = flights.begin(flight(1, 0, 1), busy, 0).unwrap();
        let next = flights.introduce(&host(5000));
        assert!(next.is_new && next.gone.is_some_and(|gone| gone != busy));
        assert!(!flights.introduce(&host(0)).is_new);
        flights.answer(id).unwrap();
    }
}
