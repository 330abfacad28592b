//! A part of a history as panels show it: points in time, groups of operations, and paths.

use super::second::{Entry, badness};
use super::sum::Sum;
use super::{History, Second};
use crate::key::{Dimension, Key};
use crate::operations::Tally;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A dimension and its value. `None` stands for operations that have none.
pub type Condition = (Dimension, Option<String>);

/// Whether every condition holds.
pub(super) fn matches(key: &Key, conditions: &[Condition]) -> bool {
    conditions.iter().all(|(dimension, value)| key.of(*dimension) == value.as_deref())
}

/// A time, in milliseconds since 1970: what ends after `from_ms`, and not after `until_ms`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// The begin.
    pub from_ms: u64,
    /// The end.
    pub until_ms: u64,
}

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub struct Query<'a> {
    /// The time.
    pub range: Range,
    /// The dimension whose values are groups.
    pub by: Dimension,
    /// Only operations for which all of these hold.
    pub conditions: &'a [Condition],
    /// The most points: the seconds of a longer time are put together.
    pub points_max: usize,
    /// The most groups besides the rest.
    pub groups_max: usize,
}

/// What is found.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct View {
    /// The points, the oldest first.
    pub points: Vec<Point>,
    /// The length of a point in milliseconds, if seconds are put together.
    pub step_ms: u64,
    /// The groups, the busiest first; the last may be the rest.
    pub groups: Vec<Group>,
    /// The length of all seconds together.
    pub ms: u64,
    /// All operations for which the conditions hold.
    pub total: Tally,
    /// The paths and their states.
    pub paths: Vec<PathHistory>,
    /// Whether keys were counted with others in any of the seconds, to save memory.
    pub is_folded: bool,
}

/// One or several seconds that follow each other.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Point {
    /// The end of the last second, in milliseconds since 1970.
    pub end_ms: u64,
    /// The length of the seconds together.
    pub ms: u64,
    /// The processors used, on average.
    pub cpu: f64,
    /// The operations of all groups.
    pub total: Tally,
}

/// What operations did, without their latencies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Moved {
    /// Operations answered.
    pub count: u64,
    /// Of these, with another status than OK.
    pub errors: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
}

/// The operations that have one value of a dimension.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Group {
    /// The value; `None` if they have none, or if this is the rest.
    pub value: Option<Arc<str>>,
    /// How many values are together in this group; 0 if it is not the rest.
    pub rest_of: usize,
    /// All operations.
    pub total: Tally,
    /// The operations of each point.
    pub points: Vec<Moved>,
}

/// A path and its states.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathHistory {
    /// The local and the remote address.
    pub name: Arc<str>,
    /// The node that it leads to.
    pub node: Arc<str>,
    /// The worst state in each point; `None` where it was not there.
    pub states: Vec<Option<&'static str>>,
    /// The state at the end.
    pub last: &'static str,
}

/// The lengths of a point that are easy to read, in seconds.
const STEPS: [u64; 10] = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600];

/// The length of a point, so that a time has at most this many.
fn step_ms(length_ms: u64, points_max: usize) -> u64 {
    let least = length_ms.div_ceil(points_max.max(1) as u64);
    let fits = STEPS.into_iter().map(|seconds| seconds * 1000).find(|step| *step >= least);
    fits.unwrap_or_else(|| least.next_multiple_of(600_000))
}

impl History {
    /// A part of the history.
    #[must_use]
    pub fn view(&self, query: &Query<'_>) -> View {
        let Some(all) = self.range() else { return View::default() };
        let from_ms = query.range.from_ms.max(all.from_ms);
        let step_ms =
            step_ms(query.range.until_ms.min(all.until_ms).saturating_sub(from_ms), query.points_max);
        let mut view = View { step_ms, ..View::default() };
        let place_of = self.busiest(query);
        let is_rest = |place: usize| place == query.groups_max;
        let mut groups: BTreeMap<usize, (Group, Sum)> = BTreeMap::new();
        let mut points: Vec<Sum> = Vec::new();
        let mut rest = BTreeSet::new();
        let mut bucket = None;
        for second in self.within(query.range) {
            // A second may be a little longer or shorter: each is a point of its own.
            let this = if step_ms <= 1000 { second.end_ms } else { second.end_ms.div_ceil(step_ms) };
            if bucket.replace(this) != Some(this) {
                view.points.push(Point::default());
                points.push(Sum::default());
            }
            let number = view.points.len() - 1;
            view.add_second(second, &self.paths);
            second.entries.for_each(|id, entry| {
                let Some((place, value)) = place_of.get(id).and_then(Option::as_ref) else { return };
                let (group, sum) = groups.entry(*place).or_default();
                if is_rest(*place) {
                    rest.insert(value);
                } else if group.points.is_empty() {
                    group.value.clone_from(value);
                }
                group.add(number, entry);
                sum.add(entry);
                if let Some(point) = points.last_mut() {
                    point.add(entry);
                }
            });
        }
        view.points.iter_mut().zip(points).for_each(|(point, sum)| point.total = sum.into_tally());
        view.points.iter().for_each(|point| view.total.add(&point.total));
        let count = view.points.len();
        let groups = groups.into_values().map(|(group, sum)| Group { total: sum.into_tally(), ..group });
        view.groups = groups.collect();
        view.groups.iter_mut().for_each(|group| group.points.resize(count, Moved::default()));
        view.paths.iter_mut().for_each(|path| path.states.resize(count, None));
        if let Some(last) = view.groups.last_mut().filter(|_| !rest.is_empty()) {
            last.rest_of = rest.len();
        }
        view
    }

    /// For each key its value and the place of its group, the busiest first; nothing for keys that
    /// the conditions leave out.
    fn busiest(&self, query: &Query<'_>) -> Vec<Option<(usize, Option<Arc<str>>)>> {
        let value_of = |key: &Key| {
            let value = key.only(&[query.by]);
            let text = [value.node, value.client, value.export, value.path, value.operation, value.file];
            let size = value.size.map(|size| Arc::from(size.name()));
            matches(key, query.conditions).then(|| text.into_iter().flatten().next().or(size))
        };
        let values = self.keys.all(value_of);
        let mut sums: BTreeMap<&Option<Arc<str>>, (u64, u64)> = BTreeMap::new();
        let (mut count, mut bytes) = (0_u64, 0_u64);
        for second in self.within(query.range) {
            second.entries.for_each(|id, entry| {
                let Some(value) = values.get(id).and_then(Option::as_ref) else { return };
                let moved = entry.received_bytes.saturating_add(entry.sent_bytes);
                let sum = sums.entry(value).or_default();
                *sum = (sum.0.saturating_add(entry.count), sum.1.saturating_add(moved));
                (count, bytes) = (count.saturating_add(entry.count), bytes.saturating_add(moved));
            });
        }
        // Its part of the operations and its part of the bytes.
        let share = |(own_count, own_bytes): (u64, u64)| {
            own_count as f64 / count.max(1) as f64 + own_bytes as f64 / bytes.max(1) as f64
        };
        let mut order: Vec<_> = sums.into_iter().collect();
        order.sort_by(|(_, a), (_, b)| share(*b).total_cmp(&share(*a)));
        let places: BTreeMap<_, _> = order.into_iter().map(|(value, _)| value).zip(0..).collect();
        let place = |value: &Option<Arc<str>>| {
            let place = places.get(value)?;
            Some((usize::min(*place, query.groups_max), value.clone()))
        };
        values.iter().map(|value| value.as_ref().and_then(place)).collect()
    }

    /// The dimensions of which any operation has a value.
    #[must_use]
    pub fn dimensions(&self) -> Vec<Dimension> {
        Dimension::ALL.into_iter().filter(|dimension| self.keys.has(*dimension)).collect()
    }
}

impl View {
    fn add_second(&mut self, second: &Second, paths: &[(Arc<str>, Arc<str>)]) {
        let number = self.points.len() - 1;
        self.ms += u64::from(second.ms);
        self.is_folded |= second.is_folded;
        if let Some(point) = self.points.last_mut() {
            let ms = point.ms + u64::from(second.ms);
            let used = point.cpu * point.ms as f64 + f64::from(second.cpu) * f64::from(second.ms);
            point.cpu = if ms > 0 { used / ms as f64 } else { 0.0 };
            (point.ms, point.end_ms) = (ms, second.end_ms);
        }
        for (path, state) in second.path_states() {
            let Some((name, node)) = paths.get(path) else { continue };
            let found = self.paths.iter().position(|other| other.name == *name);
            let place = found.unwrap_or_else(|| {
                let (name, node) = (Arc::clone(name), Arc::clone(node));
                self.paths.push(PathHistory { name, node, states: Vec::new(), last: state });
                self.paths.len() - 1
            });
            if let Some(path) = self.paths.get_mut(place) {
                path.add(number, state);
            }
        }
    }
}

impl PathHistory {
    fn add(&mut self, number: usize, state: &'static str) {
        self.last = state;
        self.states.resize(number + 1, None);
        if let Some(worst) = self.states.last_mut()
            && worst.is_none_or(|worst| badness(state) > badness(worst))
        {
            *worst = Some(state);
        }
    }
}

impl Group {
    fn add(&mut self, number: usize, entry: &Entry<'_>) {
        self.points.resize(number + 1, Moved::default());
        if let Some(moved) = self.points.last_mut() {
            moved.count = moved.count.saturating_add(entry.count);
            moved.errors = moved.errors.saturating_add(entry.errors);
            moved.received_bytes = moved.received_bytes.saturating_add(entry.received_bytes);
            moved.sent_bytes = moved.sent_bytes.saturating_add(entry.sent_bytes);
        }
    }
}
