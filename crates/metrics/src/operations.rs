//! Operations and what they moved, by [`Key`].

use crate::key::{Dimension, Key, OTHER_CLIENTS};
use crate::latency::Latency;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What the operations of one key did.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Tally {
    /// Operations answered.
    pub count: u64,
    /// Of these, with another status than OK.
    #[serde(default)]
    pub errors: u64,
    /// Of these, answered from the reply cache.
    #[serde(default)]
    pub replayed: u64,
    /// Bytes that this process received: calls at a server, payload at a client.
    #[serde(default)]
    pub received_bytes: u64,
    /// Bytes that this process sent.
    #[serde(default)]
    pub sent_bytes: u64,
    /// The latencies that were measured, in nanoseconds.
    #[serde(default)]
    pub latency: Latency,
}

impl Tally {
    /// Adds another's counts.
    pub fn add(&mut self, other: &Self) {
        let counts = [
            (&mut self.count, other.count),
            (&mut self.errors, other.errors),
            (&mut self.replayed, other.replayed),
            (&mut self.received_bytes, other.received_bytes),
            (&mut self.sent_bytes, other.sent_bytes),
        ];
        // What other machines tell may be any number.
        for (ours, theirs) in counts {
            *ours = ours.saturating_add(theirs);
        }
        self.latency.add(&other.latency);
    }

    /// The counts since `earlier`. A count that has become smaller, as after a restart, counts from
    /// zero.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        if self.count < earlier.count {
            return self.clone();
        }
        Self {
            count: self.count - earlier.count,
            errors: self.errors.saturating_sub(earlier.errors),
            replayed: self.replayed.saturating_sub(earlier.replayed),
            received_bytes: self.received_bytes.saturating_sub(earlier.received_bytes),
            sent_bytes: self.sent_bytes.saturating_sub(earlier.sent_bytes),
            latency: self.latency.since(&earlier.latency),
        }
    }

    /// The part of a total, 0 to 1: of the bytes, or of the operations where no bytes move.
    #[must_use]
    pub const fn share_of(&self, total: &Self) -> f64 {
        let (part, whole) =
            if total.bytes() > 0 { (self.bytes(), total.bytes()) } else { (self.count, total.count) };
        if whole > 0 { part as f64 / whole as f64 } else { 0.0 }
    }

    /// Bytes received and sent.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.received_bytes.saturating_add(self.sent_bytes)
    }
}

/// Operations by key. Each key is there once.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Operations(BTreeMap<Key, Tally>);

impl Operations {
    /// Adds operations of a key.
    pub fn add(&mut self, key: Key, tally: &Tally) {
        self.0.entry(key).or_default().add(tally);
    }

    /// The keys in order, each with its operations.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, &Tally)> {
        self.0.iter()
    }

    /// The keys in order, each with its operations.
    #[must_use]
    pub fn into_rows(self) -> Vec<(Key, Tally)> {
        self.0.into_iter().collect()
    }

    /// The operations of one key.
    #[must_use]
    pub fn of(&self, key: &Key) -> Option<&Tally> {
        self.0.get(key)
    }

    /// The number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no operation.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The operations that match every condition, told apart by these dimensions only.
    #[must_use]
    pub fn by(&self, by: &[Dimension], conditions: &[(Dimension, String)]) -> Self {
        let mut grouped = Self::default();
        for (key, tally) in self.0.iter().filter(|(key, _)| key.matches(conditions)) {
            grouped.add(key.only(by), tally);
        }
        grouped
    }

    /// The dimensions of which any key has a value.
    #[must_use]
    pub fn dimensions(&self) -> Vec<Dimension> {
        let has = |dimension: &Dimension| self.0.keys().any(|key| key.of(*dimension).is_some());
        Dimension::ALL.into_iter().filter(has).collect()
    }

    /// All operations together.
    #[must_use]
    pub fn total(&self) -> Tally {
        let mut total = Tally::default();
        self.0.values().for_each(|tally| total.add(tally));
        total
    }

    /// The operations since `earlier`; keys without any are left out.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let before = earlier.with_folded_as_in(self);
        let differences = self.0.iter().map(|(key, tally)| {
            let difference = before.0.get(key).map_or_else(|| tally.clone(), |before| tally.since(before));
            (key.clone(), difference)
        });
        Self(differences.filter(|(_, tally)| tally.count > 0 || !tally.latency.is_empty()).collect())
    }
}

impl Operations {
    /// The same with what clients and files lost until `later` counted with the others, as the
    /// process does. A client may lose only a part of its counts: each event loop decides for
    /// itself.
    fn with_folded_as_in(&self, later: &Self) -> Self {
        let mut folded = Self::default();
        for (key, tally) in &self.0 {
            let left = later.0.get(key).cloned().unwrap_or_default();
            let is_other = |value: &Option<Arc<str>>| value.as_deref() == Some(OTHER_CLIENTS);
            let is_folded = match &key.file {
                Some(_) => !is_other(&key.file),
                None => key.client.is_some() && !is_other(&key.client),
            };
            if !is_folded || left.count >= tally.count {
                folded.add(key.clone(), tally);
                continue;
            }
            let others = |value: &Option<Arc<str>>| value.as_ref().map(|_| OTHER_CLIENTS.into());
            let others = Key { client: others(&key.client), file: others(&key.file), ..key.clone() };
            folded.add(others, &tally.since(&left));
            folded.add(key.clone(), &left);
        }
        folded
    }
}

/// One entry of the list that a snapshot's JSON has.
#[derive(Serialize, Deserialize)]
struct Row {
    #[serde(flatten)]
    key: Key,
    #[serde(flatten)]
    tally: Tally,
}

impl Serialize for Operations {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer
            .collect_seq(self.0.iter().map(|(key, tally)| Row { key: key.clone(), tally: tally.clone() }))
    }
}

impl<'de> Deserialize<'de> for Operations {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut operations = Self::default();
        for row in Vec::<Row>::deserialize(deserializer)? {
            if !row.tally.latency.is_sound() {
                return Err(serde::de::Error::custom("the bins of a latency are not in order"));
            }
            operations.add(row.key, &row.tally);
        }
        Ok(operations)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(node: &str, operation: &str) -> Key {
        Key { node: Some(node.into()), operation: Some(operation.into()), ..Key::default() }
    }

    fn tally(count: u64) -> Tally {
        let mut histogram = crate::latency::histogram();
        histogram.record_n(1000, count).unwrap();
        Tally { count, sent_bytes: count * 100, latency: Latency::of(&histogram), ..Tally::default() }
    }

    fn example() -> Operations {
        let mut operations = Operations::default();
        operations.add(key("a", "READ"), &tally(5));
        operations.add(key("a", "WRITE"), &tally(2));
        operations.add(key("b", "READ"), &tally(1));
        operations
    }

    #[test]
    fn groups_are_sums_of_their_keys() {
        let by_operation = example().by(&[Dimension::Operation], &[]);
        let read = Key { operation: Some("READ".into()), ..Key::default() };
        assert_eq!(by_operation.of(&read), Some(&tally(6)));
        assert_eq!(by_operation.len(), 2);
        let on_a = example().by(&[], &[(Dimension::Node, "a".into())]);
        assert_eq!(on_a.of(&Key::default()), Some(&tally(7)));
        assert_eq!(example().total(), tally(8));
    }

    #[test]
    fn a_difference_leaves_out_what_did_nothing() {
        let before = example();
        let mut after = before.clone();
        after.add(key("b", "READ"), &tally(3));
        after.add(key("c", "READ"), &tally(1));
        let since = after.since(&before);
        assert_eq!(since.of(&key("b", "READ")), Some(&tally(3)));
        assert_eq!(since.of(&key("c", "READ")), Some(&tally(1)));
        assert_eq!(since.len(), 2);
    }

    #[test]
    fn what_a_client_did_before_it_was_counted_with_the_others_is_not_counted_twice() {
        let of = |client: &str| Key { client: Some(client.into()), ..Key::default() };
        let (mut before, mut after) = (Operations::default(), Operations::default());
        before.add(of("10.0.0.7"), &tally(900));
        before.add(of("others"), &tally(5));
        after.add(of("others"), &tally(907));
        let since = after.since(&before);
        assert_eq!(since.of(&of("others")), Some(&tally(2)));
        assert_eq!(since.total().count, 2);
        // One of two loops forgets the client, which had 400 calls there.
        let mut partly = Operations::default();
        partly.add(of("10.0.0.7"), &tally(500));
        partly.add(of("others"), &tally(407));
        assert_eq!(partly.since(&before).total(), tally(2));
    }

    #[test]
    fn what_happened_to_a_file_before_it_was_counted_with_the_others_is_not_counted_twice() {
        let of = |client: &str, file: &str| Key {
            client: Some(client.into()),
            file: Some(file.into()),
            ..Key::default()
        };
        let (mut before, mut after) = (Operations::default(), Operations::default());
        before.add(of("10.0.0.7", "/a"), &tally(900));
        after.add(of("others", "others"), &tally(903));
        assert_eq!(after.since(&before).total(), tally(3));
    }

    #[test]
    fn a_share_is_of_the_bytes_or_of_the_operations_where_no_bytes_move() {
        let of = |count, sent_bytes| Tally { count, sent_bytes, ..Tally::default() };
        assert!((of(1, 30).share_of(&of(2, 40)) - 0.75).abs() < 1e-9);
        assert!((of(1, 0).share_of(&of(2, 0)) - 0.5).abs() < 1e-9);
        assert!(of(0, 0).share_of(&of(0, 0)) == 0.0);
    }

    #[test]
    fn a_counter_that_began_again_counts_from_zero() {
        assert_eq!(tally(3).since(&tally(10)), tally(3));
    }

    #[test]
    fn rows_survive_json_and_disordered_bins_are_refused() {
        let text = serde_json::to_string(&example()).unwrap();
        assert_eq!(serde_json::from_str::<Operations>(&text).unwrap(), example());
        let bad = r#"[{"operation":"READ","count":2,"latency":[[20,1],[10,1]]}]"#;
        assert!(serde_json::from_str::<Operations>(bad).unwrap_err().to_string().contains("not in order"));
    }
}
