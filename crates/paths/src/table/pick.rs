//! The hot path: chooses the connection for each call, and keeps account of its load and speed.
//! Nothing here allocates or looks at a timer.
//!
//! Sets of connections are bit sets ([`super::set`]). What `pick` reads of each connection is
//! stored contiguously.

use super::set::{Set, WORDS};
use super::{CONNECTIONS_MAX, Conn, Path, Table};
use crate::status::{SIZES, size_of};
use crate::{Class, ConnId, NodeId, State};
use std::time::Duration;

/// Bytes outstanding in the other direction count at one eighth: they share the processors but not
/// the link.
pub(super) const OTHER_DIRECTION: u64 = 8;
/// A call loads its connection by its payload plus this: a reply costs a server about as much as
/// moving a few KiB, and calls without payload must count too.
pub(super) const CALL_COST: u64 = 4 << 10;
/// One pick in this many ignores how slow a path has been and prefers the slow path among equally
/// loaded ones, so that a path that has become fast again is noticed.
const EXPLORE_EVERY: u32 = 64;
/// Weights are in sixteenths.
pub(super) const WEIGHT_ONE: u64 = 16;
/// A path counts as slow once its latency is twice that of the fastest path; this bounds how
/// strongly it is avoided.
const WEIGHT_MAX: u64 = 8 * WEIGHT_ONE;

/// What [`Table::pick`] chooses from.
#[derive(Debug)]
pub(super) struct Choice {
    /// Connections that may take calls: those on paths that are up, and the others.
    pub up: Set,
    pub suspect: Set,
    /// Connections on paths that ramp up, and the subset at its current limit of calls.
    pub ramping: Set,
    pub full: Set,
    /// Connections on paths that files have left, by size of call, and the subset on trial.
    pub left: [Set; SIZES],
    pub tried: [Set; SIZES],
    /// Connections by class: those for metadata, and those for reads and writes.
    pub metadata: Set,
    pub bulk: Set,
    pub by_node: Vec<Set>,
    /// Outstanding bytes and calls of each connection, and how slow its path is ([`WEIGHT_ONE`]
    /// means not slow). The bytes are kept by direction, towards the client and away from it,
    /// because a link carries both at once.
    pub load: [[u64; 2]; CONNECTIONS_MAX],
    pub calls: [u32; CONNECTIONS_MAX],
    pub weight: [u64; CONNECTIONS_MAX],
    pub last: ConnId,
    turn: u32,
}

/// The direction of a call's payload: 1 is away from the client.
const fn direction(class: Class) -> usize {
    match class {
        Class::Read | Class::Metadata => 0,
        Class::Write => 1,
    }
}

impl Choice {
    pub fn new(nodes: usize) -> Self {
        Self {
            up: Set::EMPTY,
            suspect: Set::EMPTY,
            ramping: Set::EMPTY,
            full: Set::EMPTY,
            left: [Set::EMPTY; SIZES],
            tried: [Set::EMPTY; SIZES],
            metadata: Set::EMPTY,
            bulk: Set::EMPTY,
            by_node: vec![Set::EMPTY; nodes],
            load: [[0; 2]; CONNECTIONS_MAX],
            calls: [0; CONNECTIONS_MAX],
            weight: [WEIGHT_ONE; CONNECTIONS_MAX],
            last: ConnId(0),
            turn: 0,
        }
    }

    /// Recomputes which sets this connection is in.
    pub fn refresh(&mut self, id: ConnId, conn: &Conn, path: &Path) {
        let live = conn.live();
        let takes_calls = live.is_some_and(|live| live.draining.is_none());
        let is_silent = live.is_some_and(|live| live.silent);
        let up = takes_calls && !is_silent && path.state() == State::Up;
        let ramping = path.ramp_since().is_some();
        self.up.set(id, up);
        self.suspect.set(id, takes_calls && !up);
        self.ramping.set(id, ramping);
        if !ramping {
            self.full -= id;
        }
        for (size, residence) in path.residence.iter().enumerate() {
            self.left[size].set(id, residence.left());
            self.tried[size].set(id, residence.tried());
        }
    }

    fn least_loaded<const N: usize>(&mut self, set: Set<N>, class: Class, cost: u64) -> ConnId {
        let ours = direction(class);
        self.turn = self.turn.wrapping_add(1);
        let plain = self.turn.is_multiple_of(EXPLORE_EVERY);
        // The search starts after the last choice, so that ties are broken round robin.
        let first = ConnId(self.last.0 + 1);
        let (mut best, mut best_score) = (ConnId(0), u64::MAX);
        for conn in set.from(first) {
            let index = usize::from(conn.0);
            let loads = self.load[index];
            let load = loads[ours] + loads[1 - ours] / OTHER_DIRECTION + cost;
            let weight = self.weight[index];
            let score = if plain { load * WEIGHT_MAX - weight } else { load * weight };
            if score < best_score {
                (best, best_score) = (conn, score);
            }
            // This connection has nothing outstanding and its path is fast: no connection can be
            // better, and equally good ones get their turn later.
            if !plain && score == cost * WEIGHT_ONE {
                break;
            }
        }
        self.last = best;
        best
    }
}

impl Table {
    /// Returns the connection for the next call, or `None` if no connection can take calls.
    ///
    /// The connection with the fewest outstanding bytes is chosen; ties are broken round robin.
    /// Connections of paths that are up come before those of suspect paths, connections of the
    /// call's class before those of the other class, and connections to the node on which the file
    /// is placed (`preferred`) before other nodes, unless `spread_reads` or `spread_writes` is set.
    /// On a slow path bytes count several times, and files leave a path that is much slower than
    /// others. A returning path takes only as many calls at once as its ramp allows.
    ///
    /// `bytes` is what the call will move: the payload of a WRITE, the count of a READ, otherwise
    /// 0. Call [`Table::sent`] next.
    pub fn pick(&mut self, class: Class, preferred: Option<NodeId>, bytes: u32) -> Option<ConnId> {
        if self.conns.len() <= u64::BITS as usize {
            self.pick_of::<1>(class, preferred, bytes)
        } else {
            self.pick_of::<WORDS>(class, preferred, bytes)
        }
    }

    /// Implements [`Table::pick`] for a table whose connections fit into `N` words.
    fn pick_of<const N: usize>(
        &mut self,
        class: Class,
        preferred: Option<NodeId>,
        bytes: u32,
    ) -> Option<ConnId> {
        let choice = &self.choice;
        let (own, spread) = match class {
            Class::Metadata => (&choice.metadata, false),
            Class::Read => (&choice.bulk, self.spread_reads),
            Class::Write => (&choice.bulk, self.spread_writes),
        };
        let own = own.first::<N>();
        let (on_preferred, quick) = match preferred {
            Some(node) if !spread => self.preferred::<N>(node, size_of(bytes)),
            _ => (Set::ALL, Set::ALL),
        };
        let (up, suspect) = (choice.up.first::<N>(), choice.suspect.first::<N>());
        let free = up & !choice.full.first();
        let free_own = free & own;
        let set = (free_own & on_preferred)
            .some()
            .or_else(|| (free_own & quick).some())
            .or_else(|| free_own.some())
            .or_else(|| free.some())
            .or_else(|| (up & own).some())
            .or_else(|| up.some())
            .or_else(|| (suspect & own & on_preferred).some())
            .or_else(|| (suspect & own).some())
            .or_else(|| suspect.some())?;
        Some(self.choice.least_loaded(set, class, u64::from(bytes) + CALL_COST))
    }

    /// Records that a call of `bytes` (as passed to [`Table::pick`]) was handed to this connection.
    pub fn sent(&mut self, now: Duration, conn: ConnId, class: Class, bytes: u32) {
        let index = usize::from(conn.0);
        self.choice.load[index][direction(class)] += u64::from(bytes) + CALL_COST;
        self.choice.calls[index] += 1;
        let path = self.conns[index].path;
        let counters = &mut self.path_mut(path).counters;
        counters.calls += 1;
        counters.bytes += u64::from(bytes);
        if self.choice.ramping.has(conn) {
            self.ramp(conn, now);
        }
    }

    /// Records that a call of `bytes` was answered on this connection, `latency` after it was sent
    /// there. Replies to calls that have been moved off the connection must not be reported.
    pub fn answered(&mut self, now: Duration, conn: ConnId, class: Class, bytes: u32, latency: Duration) {
        let index = usize::from(conn.0);
        let loads = &mut self.choice.load[index];
        let under_way: u64 = loads.iter().sum();
        let load = &mut loads[direction(class)];
        *load = load.saturating_sub(u64::from(bytes) + CALL_COST);
        let calls = &mut self.choice.calls[index];
        *calls = calls.saturating_sub(1);
        let drained = *calls == 0;
        let path = self.conns[index].path;
        let of_path = self.path_mut(path);
        // The connections of a path share its load evenly.
        let under_way = under_way.saturating_mul(u64::from(of_path.sharers));
        of_path.latency.sample(now, latency, bytes, under_way);
        self.note_silence(now, conn, latency);
        self.alive(now, conn);
        if self.choice.ramping.has(conn) {
            self.ramp(conn, now);
        }
        if drained && self.conns[index].draining().is_some() {
            self.fail_back(conn, now);
            self.rearm();
        }
    }

    /// Records the end of a silence during which a reply was expected for at most `waited`.
    #[inline]
    pub(super) fn note_silence(&mut self, now: Duration, conn: ConnId, waited: Duration) {
        let conn = &self.conns[usize::from(conn.0)];
        let Some(live) = conn.live() else { return };
        let (path, silence) = (conn.path, live.silence(now, live.last_alive).min(waited));
        self.path_mut(path).responses.silence.note(now, silence);
    }

    /// Records that a byte was received on this connection, or that a byte sent on it was
    /// acknowledged. Acknowledged keep-alive segments don't count: a stopped server still
    /// acknowledges those.
    pub fn alive(&mut self, now: Duration, conn: ConnId) {
        let of_conn = &mut self.conns[usize::from(conn.0)];
        let path = of_conn.path;
        let Some(live) = of_conn.live_mut() else { return };
        let was_silent = live.alive(now);
        let of_path = self.path_mut(path);
        of_path.responses.last_alive = now;
        if of_path.state() == State::Suspect {
            self.clear_suspicion(path, now);
        } else if was_silent {
            self.refresh(conn);
        }
    }

    /// Limits a connection of a returning path to 1, 2, 4, ... calls at once, up to 128 at the end
    /// of the ramp.
    pub(super) fn ramp(&mut self, conn: ConnId, now: Duration) {
        const STEPS: u32 = 8;
        let path = self.conns[usize::from(conn.0)].path;
        let Some(since) = self.path_ref(path).ramp_since() else { return };
        let step_length = (self.timing.ramp / STEPS).as_nanos().max(1);
        let step = now.saturating_sub(since).as_nanos() / step_length;
        if step >= u128::from(STEPS) {
            self.path_mut(path).end_ramp();
            self.refresh_path(path);
        } else {
            let is_full = self.choice.calls[usize::from(conn.0)] >= 1 << step;
            self.choice.full.set(conn, is_full);
        }
    }

    /// Recomputes the weight of the bytes on this connection, which is greater if its path is slow.
    ///
    /// The latencies of calls of similar size are compared. The latency of a path falls as the path
    /// is used less, so the weight approaches its target in steps: otherwise slow and fast would
    /// alternate.
    pub(super) fn weigh(&mut self, conn: ConnId, now: Duration) {
        if self.quickest_at != Some(now) {
            (self.quickest, self.quickest_at) = (self.quickest_ns(), Some(now));
        }
        let own = self.path_ref(self.conns[usize::from(conn.0)].path).latency.by_size_ns;
        let mut slower = None;
        for (&own, &best) in own.iter().zip(&self.quickest).filter(|(own, _)| **own != 0) {
            let times = (own * WEIGHT_ONE / best.clamp(1, own)).min(WEIGHT_MAX);
            slower = Some(slower.unwrap_or(times).min(times));
        }
        let aim = slower.filter(|&times| times >= 2 * WEIGHT_ONE).unwrap_or(WEIGHT_ONE);
        let weight = &mut self.choice.weight[usize::from(conn.0)];
        *weight = if aim > *weight {
            *weight + (aim - *weight).div_ceil(4)
        } else {
            *weight - (*weight - aim).div_ceil(4)
        };
    }

    /// The lowest latency of any path in use, by size of call; `u64::MAX` if none is known.
    fn quickest_ns(&self) -> [u64; SIZES] {
        let mut quickest = [u64::MAX; SIZES];
        for path in self.paths.iter().filter(|path| !path.members.is_empty()) {
            for (quickest, &own) in quickest.iter_mut().zip(&path.latency.by_size_ns) {
                *quickest = if own == 0 { *quickest } else { own.min(*quickest) };
            }
        }
        quickest
    }
}
