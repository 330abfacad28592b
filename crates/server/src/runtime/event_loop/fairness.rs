//! How a loop divides its rounds among addresses.
//!
//! A client with many connections that have calls waiting must not make the calls of others wait
//! for all of them. So once connections of several addresses are on a loop, each address gets a
//! share of each round: when its connections have used it up, the others of them wait for the next
//! round. They then come before those that had their turn. A loop that serves one address divides
//! nothing.

use crate::address::network_of;
use slab::Slab;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

/// How long a round lasts that several addresses share, if none has a single call that lasts
/// longer.
const ROUND: Duration = Duration::from_millis(1);
/// However many addresses there are, each may use this much of a round: the work of a turn must
/// outweigh its system calls.
const SHARE_MIN: Duration = Duration::from_micros(100);
/// An address counts as active if it had a turn in this time or in the same time before.
const WINDOW: Duration = Duration::from_millis(100);

/// One address with connections on this loop.
#[derive(Debug)]
struct Holder {
    address: IpAddr,
    connections: usize,
    /// The last round in which it had a turn, and the time that its turns took there.
    round: u64,
    spent: Duration,
    /// The last round in which one of its connections had to wait for the next.
    deferred: Option<u64>,
    /// The last window in which it had a turn.
    window: u64,
}

impl Holder {
    fn spent_in(&self, round: u64) -> Duration {
        if self.round == round { self.spent } else { Duration::ZERO }
    }
}

/// The addresses of a loop's connections, and what each has used of this round.
#[derive(Debug, Default)]
pub(in crate::runtime) struct Shares {
    holders: Slab<Holder>,
    by_address: HashMap<IpAddr, usize>,
    round: u64,
    window: u64,
    window_ends: Duration,
    /// How many addresses had turns in this window and in the last.
    active: usize,
    active_before: usize,
}

impl Shares {
    /// Called when a connection of this address comes to the loop. Returns the key of its share.
    pub fn enter(&mut self, address: IpAddr) -> usize {
        let address = network_of(address);
        let holders = &mut self.holders;
        let key = *self.by_address.entry(address).or_insert_with(|| {
            holders.insert(Holder {
                address,
                connections: 0,
                round: 0,
                spent: Duration::ZERO,
                deferred: None,
                window: 0,
            })
        });
        if let Some(holder) = holders.get_mut(key) {
            holder.connections += 1;
        }
        key
    }

    /// Called when a connection leaves the loop.
    pub fn leave(&mut self, key: usize) {
        let Some(holder) = self.holders.get_mut(key) else { return };
        holder.connections -= 1;
        if holder.connections == 0 {
            let holder = self.holders.remove(key);
            self.by_address.remove(&holder.address);
        }
    }

    pub fn begin_round(&mut self, now: Duration) {
        self.round += 1;
        if now >= self.window_ends {
            self.window += 1;
            self.active_before = std::mem::take(&mut self.active);
            self.window_ends = now + WINDOW;
        }
    }

    /// The time that an address may use in each round; `None` on a loop with one address.
    fn share(&self) -> Option<Duration> {
        let active = self.active.max(self.active_before).max(2);
        let share = ROUND / u32::try_from(active).unwrap_or(u32::MAX);
        (self.holders.len() > 1).then(|| share.max(SHARE_MIN))
    }

    /// Whether a connection may take its turn in this round; otherwise it has to wait for the next.
    /// `is_queued` says that it has waited for this round already.
    pub fn may_take_turn(&mut self, key: usize, is_queued: bool) -> bool {
        let (share, round) = (self.share(), self.round);
        let (Some(share), Some(holder)) = (share, self.holders.get_mut(key)) else { return true };
        // Connections that have waited come first.
        let others_wait = holder.deferred.is_some_and(|deferred| deferred + 1 >= round);
        let may = holder.spent_in(round) < share && (is_queued || !others_wait);
        if !may {
            holder.deferred = Some(round);
        }
        may
    }

    /// When the turn of a connection that begins now has to end; `None` on a loop with one address.
    pub fn turn_ends(&self, key: usize, now: Duration) -> Option<Duration> {
        let holder = self.holders.get(key)?;
        self.share().map(|share| now + share.saturating_sub(holder.spent_in(self.round)))
    }

    /// Counts the time of a turn.
    pub fn end_turn(&mut self, key: usize, took: Duration) {
        let Some(holder) = self.holders.get_mut(key) else { return };
        holder.spent = holder.spent_in(self.round) + took;
        holder.round = self.round;
        if holder.window != self.window {
            holder.window = self.window;
            self.active += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const B: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));
    const LONG: Duration = Duration::from_millis(10);
    const SHORT: Duration = Duration::from_micros(1);

    #[test]
    fn a_loop_with_one_address_divides_nothing() {
        let mut shares = Shares::default();
        let [one, other] = [A, A].map(|address| shares.enter(address));
        shares.begin_round(SHORT);
        shares.end_turn(one, LONG);
        assert!(shares.may_take_turn(other, false));
        assert_eq!(shares.turn_ends(other, LONG), None);
    }

    #[test]
    fn an_address_that_has_used_its_share_waits_for_the_next_round() {
        let mut shares = Shares::default();
        let [greedy, good] = [A, B].map(|address| shares.enter(address));
        shares.begin_round(SHORT);
        let ends = shares.turn_ends(greedy, LONG).unwrap();
        assert!(ends > LONG && ends <= LONG + ROUND / 2, "{ends:?}");
        shares.end_turn(greedy, LONG);
        assert!(!shares.may_take_turn(greedy, false));
        assert!(shares.may_take_turn(good, false));
        shares.begin_round(2 * SHORT);
        assert!(!shares.may_take_turn(greedy, false), "those that waited come first");
        assert!(shares.may_take_turn(greedy, true));
        // Nobody waited in the round before this one.
        shares.begin_round(3 * SHORT);
        shares.begin_round(4 * SHORT);
        assert!(shares.may_take_turn(greedy, false));
    }

    #[test]
    fn the_more_addresses_are_active_the_less_each_gets() {
        let mut shares = Shares::default();
        let keys: Vec<usize> =
            (0..100).map(|host| shares.enter(std::net::Ipv4Addr::new(10, 0, 1, host).into())).collect();
        shares.begin_round(SHORT);
        let share = |shares: &Shares| shares.turn_ends(keys[0], SHORT).unwrap() - SHORT;
        assert_eq!(share(&shares), ROUND / 2, "nobody was active yet");
        for key in keys.get(1..5).unwrap() {
            shares.end_turn(*key, SHORT);
        }
        assert_eq!(share(&shares), ROUND / 4);
        shares.begin_round(WINDOW * 2);
        assert_eq!(share(&shares), ROUND / 4, "active a moment ago");
        shares.begin_round(WINDOW * 4);
        assert_eq!(share(&shares), ROUND / 2, "active long ago");
        keys.iter().for_each(|key| shares.end_turn(*key, SHORT));
        assert_eq!(share(&shares), SHARE_MIN - SHORT);
    }

    #[test]
    fn an_address_without_connections_has_no_share() {
        let mut shares = Shares::default();
        let keys = [A, B, B].map(|address| shares.enter(address));
        assert_eq!(keys[1], keys[2]);
        shares.leave(keys[1]);
        assert!(shares.turn_ends(keys[0], SHORT).is_some());
        shares.leave(keys[2]);
        assert_eq!(shares.turn_ends(keys[0], SHORT), None);
        assert_eq!(shares.by_address.len(), 1);
    }
}
