//! Moves files off a preferred path that has become several times slower than another, and back.
//!
//! A file stays with its node so that it benefits from that server's caches. Behind a link that has
//! lost most of its speed this costs far more than it gains: every reader of such a file waits for
//! that link. So calls of a size that are much slower on that path than elsewhere leave the path.
//! The speed of an unused path cannot be known, so the path is tried from time to time with a few
//! of its files' calls, and then with more. If it keeps up, its files return.
//!
//! A path is slower than another by the lesser of two ratios: how much longer its calls take, and
//! how many fewer bytes per second it moves relative to the bytes in flight. The first ratio alone
//! would drive files off a path that is heavily used, the second alone off a path that is lightly
//! used.

use super::{Duration, PathId, Set, State, Table, WEIGHT_ONE};
use crate::NodeId;
use crate::status::{Latency, SIZES};
use crate::timing::{AWAY_MAX, AWAY_MIN, SLOW_AFTER, STABLE_AFTER, TRIAL};

/// Files leave a path that is this many times slower, in sixteenths, ...
const LEAVE: u64 = 4 * WEIGHT_ONE;
/// ... and return to a path that is less than this many times slower.
const RETURN: u64 = 2 * WEIGHT_ONE;
/// This many calls must have been answered before their latency is judged.
const SAMPLES_MIN: u32 = 8;
/// A path on trial takes one call at a time on each connection, and one more each time this many
/// calls were answered.
const MORE_AFTER: u32 = 4;
/// Older measurements are not used.
const FRESH: Duration = Duration::from_secs(2);

/// Where calls of one size go if their file prefers this path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Standing {
    /// To this path.
    #[default]
    Preferred,
    /// To this path, which has been slow since then.
    Slow { since: Duration },
    /// To other paths, until then.
    Away { until: Duration },
    /// To other paths, except for some trial calls, since then.
    Trial { since: Duration },
}

/// Whether files use their preferred path, for calls of one size.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Residence {
    standing: Standing,
    /// How long files stay away.
    hold: Duration,
    returned_at: Option<Duration>,
}

impl Residence {
    /// Whether files have left the path.
    pub(super) const fn left(self) -> bool {
        matches!(self.standing, Standing::Away { .. } | Standing::Trial { .. })
    }

    /// Whether the path is on trial for the return of its files.
    pub(super) const fn tried(self) -> bool {
        matches!(self.standing, Standing::Trial { .. })
    }

    fn leave(&mut self, now: Duration) {
        let again = self.left() || self.returned_at.is_some_and(|at| now.saturating_sub(at) < STABLE_AFTER);
        self.hold = if again { (self.hold * 2).clamp(AWAY_MIN, AWAY_MAX) } else { AWAY_MIN };
        self.standing = Standing::Away { until: now + self.hold };
    }
}

impl Table {
    /// For a file placed on this node, returns the connections there that its calls may take, and
    /// all connections on paths that files have not left.
    pub(super) fn preferred<const N: usize>(&self, node: NodeId, size: usize) -> (Set<N>, Set<N>) {
        let of_node = self.choice.by_node.get(usize::from(node.0)).map_or(Set::EMPTY, Set::first);
        let (left, tried) = (self.choice.left[size].first(), self.choice.tried[size].first());
        let mut on_preferred = of_node & !left;
        for conn in (of_node & tried).iter() {
            let latency = &self.path_ref(self.conn_ref(conn).path).latency;
            if self.choice.calls[usize::from(conn.0)] <= latency.samples[size] / MORE_AFTER {
                on_preferred |= conn;
            }
        }
        (on_preferred, !left)
    }

    /// Decides again whether files stay on a path. Called about every [`crate::timing::TICK`].
    pub(super) fn review(&mut self, path: PathId, now: Duration) {
        for size in 0..SIZES {
            let slower = self.times_slower(path, size, now);
            let of_path = self.path_mut(path);
            let latency = &mut of_path.latency;
            let enough = latency.samples[size] >= SAMPLES_MIN;
            let residence = &mut of_path.residence[size];
            let before = (residence.left(), residence.tried());
            match residence.standing {
                Standing::Preferred if slower >= LEAVE => {
                    residence.standing = Standing::Slow { since: now };
                    latency.samples[size] = 0;
                }
                Standing::Slow { .. } if slower < LEAVE => residence.standing = Standing::Preferred,
                Standing::Slow { since } if enough && now.saturating_sub(since) >= SLOW_AFTER => {
                    residence.leave(now);
                    of_path.counters.departures += 1;
                }
                Standing::Away { until } if until <= now => {
                    residence.standing = Standing::Trial { since: now };
                    latency.forget(size);
                }
                Standing::Trial { .. } if enough && slower >= RETURN => residence.leave(now),
                Standing::Trial { since } if enough && now.saturating_sub(since) >= TRIAL => {
                    residence.standing = Standing::Preferred;
                    residence.returned_at = Some(now);
                }
                _ => {}
            }
            let residence = of_path.residence[size];
            if before != (residence.left(), residence.tried()) {
                self.refresh_path(path);
            }
        }
    }

    /// How many times slower a path is than another, in sixteenths: the highest ratio over all
    /// other paths. 0 if nothing is known.
    fn times_slower(&self, path: PathId, size: usize, now: Duration) -> u64 {
        let this = usize::from(path.0);
        let known = |latency: &Latency| {
            latency.by_size_ns[size] != 0 && now.saturating_sub(latency.sampled_at[size]) < FRESH
        };
        let own = &self.paths[this].latency;
        if !known(own) {
            return 0;
        }
        let others = self.paths.iter().enumerate().filter(|(index, other)| {
            *index != this && other.state() == State::Up && !other.members.is_empty() && known(&other.latency)
        });
        others.map(|(_, other)| slower_than(own, &other.latency, size)).max().unwrap_or(0)
    }
}

/// By how much the calls of one path take longer than those of another, or move fewer bytes per
/// second: the lesser of the two ratios.
fn slower_than(own: &Latency, other: &Latency, size: usize) -> u64 {
    let times = |more: u128, less: u128| {
        u64::try_from(more.saturating_mul(u128::from(WEIGHT_ONE)) / less.max(1)).unwrap_or(u64::MAX)
    };
    let [own_ns, other_ns] = [own, other].map(|latency| u128::from(latency.by_size_ns[size]));
    let [own_load, other_load] = [own, other].map(|latency| u128::from(latency.load_by_size[size]));
    // Bytes in flight divided by the time of each call are bytes per second.
    let fewer_bytes = times(other_load.saturating_mul(own_ns), own_load.saturating_mul(other_ns));
    times(own_ns, other_ns).min(fewer_bytes)
}
