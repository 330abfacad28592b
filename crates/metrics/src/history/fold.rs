//! Makes the operations of a second fit: the rarest keys are counted with the others.

use super::second::write_tally;
use crate::key::{Key, OTHER_CLIENTS, SizeClass};
use crate::operations::{Operations, Tally};
use std::sync::Arc;

/// A second must be allowed this much: one key with every bin takes less.
pub(super) const BYTES_MIN: usize = 8 << 10;

/// The number of a key, as long as it can be.
const NUMBER_BYTES: usize = 5;

/// What a key becomes, one after the other until there is room: first without its client and its
/// path, then without its export and size, then without anything.
pub(super) const FOLDS: [fn(&Key) -> Key; 3] = [
    |key| Key { client: others(&key.client), path: others(&key.path), ..key.clone() },
    |key| Key {
        node: key.node.clone(),
        operation: key.operation.clone(),
        client: others(&key.client),
        path: others(&key.path),
        export: others(&key.export),
        size: key.size.map(|_| SizeClass::Others),
        file: others(&key.file),
    },
    |key| Key {
        node: others(&key.node),
        operation: others(&key.operation),
        client: others(&key.client),
        path: others(&key.path),
        export: others(&key.export),
        size: key.size.map(|_| SizeClass::Others),
        file: others(&key.file),
    },
];

fn others(value: &Option<Arc<str>>) -> Option<Arc<str>> {
    value.as_ref().map(|_| OTHER_CLIENTS.into())
}

/// The same operations in at most this many bytes (see [`BYTES_MIN`]), and whether any key was
/// counted with others for that.
pub(super) fn fit(rows: Vec<(Key, Tally)>, bytes_max: usize) -> (Vec<(Key, Tally)>, bool) {
    let mut rows = sized(rows);
    if total(&rows) <= bytes_max {
        return (rows.into_iter().map(|(_, key, tally)| (key, tally)).collect(), false);
    }
    // The keys of clients with most operations stay as long as possible.
    for fold in FOLDS {
        rows.sort_by_key(|(_, _, tally)| std::cmp::Reverse(tally.count));
        let mut used = 0;
        let kept = rows.iter().take_while(|(bytes, _, _)| {
            used += bytes;
            used <= bytes_max / 2
        });
        let rest = rows.split_off(kept.count());
        rows = sized(merged(rows, rest.into_iter().map(|(_, key, tally)| (fold(&key), tally))));
        if total(&rows) <= bytes_max {
            return (rows.into_iter().map(|(_, key, tally)| (key, tally)).collect(), true);
        }
    }
    let mut all = Tally::default();
    rows.iter().for_each(|(_, _, tally)| all.add(tally));
    let key = rows.last().map(|(_, key, _)| key.clone()).unwrap_or_default();
    (vec![(FOLDS[2](&key), all)], true)
}

type Sized = (usize, Key, Tally);

fn sized(rows: Vec<(Key, Tally)>) -> Vec<Sized> {
    let mut buffer = Vec::new();
    let rows = rows.into_iter().map(|(key, tally)| {
        buffer.clear();
        write_tally(&mut buffer, &tally);
        (buffer.len() + NUMBER_BYTES, key, tally)
    });
    rows.collect()
}

fn total(rows: &[Sized]) -> usize {
    rows.iter().map(|(bytes, _, _)| bytes).sum()
}

fn merged(kept: Vec<Sized>, folded: impl Iterator<Item = (Key, Tally)>) -> Vec<(Key, Tally)> {
    let mut all = Operations::default();
    kept.into_iter().for_each(|(_, key, tally)| all.add(key, &tally));
    folded.for_each(|(key, tally)| all.add(key, &tally));
    all.into_rows()
}
