//! How a loop divides its rounds among addresses.
//!
//! A client with many connections that have calls waiting must not make the calls of others wait
//! for all of them. So once connections of several addresses are on a loop, each address gets a
//! share of each round: when its connections have used it up, the others of them wait for the next
//! round. They then come before those that had their turn. A turn that takes longer than the share
//! is paid for in the rounds that follow.
//!
//! A loop with connections of one address divides nothing. An idle connection of another address is
//! enough to divide, so that its next call need not wait.

use crate::address::network_of;
use slab::Slab;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

/// How long a round lasts that several addresses share, if none has a few calls that take longer.
const ROUND: Duration = Duration::from_millis(1);
/// However many addresses there are, each may use this much of a round: the work of a turn must
/// outweigh its system calls.
const SHARE_MIN: Duration = Duration::from_micros(100);
/// An address pays for long turns in at most this many rounds.
const DEBT_SHARES: u32 = 16;
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
    /// What of its share the address has used of this round, before and in it.
    fn spent_in(&self, round: u64, share: Duration) -> Duration {
        let rounds = u32::try_from(round - self.round).unwrap_or(u32::MAX);
        self.spent.saturating_sub(share.saturating_mul(rounds))
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
        // An address that connects anew counts again.
        let active = self.active.max(self.active_before).min(self.holders.len()).max(2);
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
        let has_share = holder.spent_in(round, share) < share;
        if !has_share {
            holder.deferred = Some(round);
        }
        has_share && (is_queued || !others_wait)
    }

    /// When the turn of a connection that begins now has to end; `None` on a loop with one address.
    pub fn turn_ends(&self, key: usize, now: Duration) -> Option<Duration> {
        let holder = self.holders.get(key)?;
        self.share().map(|share| now + share.saturating_sub(holder.spent_in(self.round, share)))
    }

    /// Counts the time of a turn.
    pub fn end_turn(&mut self, key: usize, took: Duration) {
        // With nobody to divide with, nothing is owed.
        let share = self.share().unwrap_or_default();
        let Some(holder) = self.holders.get_mut(key) else { return };
        holder.spent = (holder.spent_in(self.round, share) + took).min(share * DEBT_SHARES);
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
        assert_eq!(shares.turn_ends(greedy, LONG), Some(LONG + ROUND / 2));
        shares.end_turn(greedy, ROUND / 2);
        assert!(!shares.may_take_turn(greedy, false));
        assert!(shares.may_take_turn(good, false));
        shares.begin_round(2 * SHORT);
        assert!(!shares.may_take_turn(greedy, false), "those that waited come first");
        assert!(shares.may_take_turn(greedy, true));
        // One that waits because others come first makes nobody wait in the next round.
        shares.begin_round(3 * SHORT);
        assert!(shares.may_take_turn(greedy, false));
    }

    #[test]
    fn a_turn_that_is_too_long_is_paid_for_in_the_next_rounds() {
        let mut shares = Shares::default();
        let [greedy, _] = [A, B].map(|address| shares.enter(address));
        let rounds = |shares: &mut Shares| {
            (0..100)
                .take_while(|_| {
                    shares.begin_round(SHORT);
                    !shares.may_take_turn(greedy, true)
                })
                .count()
        };
        shares.begin_round(SHORT);
        shares.end_turn(greedy, ROUND * 2);
        assert_eq!(rounds(&mut shares), 3, "the turn took four shares");
        shares.end_turn(greedy, LONG * 100);
        assert_eq!(rounds(&mut shares), DEBT_SHARES as usize - 1, "no more than this is owed");
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
