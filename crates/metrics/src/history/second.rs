//! One second, encoded.
//!
//! All numbers are LEB128: seven bits in a byte, the lowest first. An entry is the number of its
//! key, five counts, the length of its bins in bytes, and for each bin its distance to the bin
//! before and its count. A reader that needs no latencies skips the bins.

use crate::latency::Latency;
use crate::operations::Tally;

/// The memory of a second besides its entries.
pub(super) const OVERHEAD_BYTES: usize = size_of::<Second>() + 512;

/// The states of a path; their place is their number.
const STATES: [&str; 5] = ["unused", "up", "suspect", "probing", "down"];

/// One second.
#[derive(Debug, Default)]
pub(super) struct Second {
    /// When it ended, in milliseconds since 1970.
    pub end_ms: u64,
    /// How long it was: more than 1,000 if the counters could not be read in between.
    pub ms: u32,
    /// The processors used.
    pub cpu: f32,
    /// Whether keys were counted with the others, to save memory.
    pub is_folded: bool,
    /// For each path its number and that of its state.
    pub paths: Box<[u8]>,
    /// What was done.
    pub entries: Entries,
}

impl Second {
    /// The memory that it takes.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.paths.len() + self.entries.bytes()
    }

    /// Each path's number, and the name of its state.
    pub fn path_states(&self) -> impl Iterator<Item = (usize, &'static str)> {
        let mut rest = &self.paths[..];
        std::iter::from_fn(move || {
            let number = usize::try_from(read(&mut rest)?).ok()?;
            let state = usize::try_from(read(&mut rest)?).ok()?;
            Some((number, STATES.get(state).copied().unwrap_or("unused")))
        })
    }
}

/// The number of a path's state.
pub(super) fn state_number(state: &str) -> u64 {
    STATES.iter().position(|known| *known == state).unwrap_or(0) as u64
}

/// How bad a state is, to find the worst.
pub(super) fn badness(state: &str) -> u64 {
    state_number(state)
}

/// What was done, by the number of the key.
#[derive(Debug, Default)]
pub(super) struct Entries(Vec<u8>);

impl Entries {
    /// The memory that they take.
    pub fn bytes(&self) -> usize {
        self.0.capacity()
    }

    pub fn push(&mut self, key: usize, tally: &Tally) {
        write(&mut self.0, key as u64);
        write_tally(&mut self.0, tally);
    }

    pub fn shrink(&mut self) {
        self.0.shrink_to_fit();
    }

    pub fn for_each(&self, mut with: impl FnMut(usize, &Entry<'_>)) {
        let mut rest = &self.0[..];
        while let Some((key, entry)) = next(&mut rest) {
            with(key, &entry);
        }
    }
}

fn next<'a>(rest: &mut &'a [u8]) -> Option<(usize, Entry<'a>)> {
    let key = usize::try_from(read(rest)?).ok()?;
    let [count, errors, replayed, received_bytes, sent_bytes, length] =
        [read(rest)?, read(rest)?, read(rest)?, read(rest)?, read(rest)?, read(rest)?];
    let (bins, after) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    *rest = after;
    Some((key, Entry { count, errors, replayed, received_bytes, sent_bytes, bins }))
}

/// What the operations of one key did in a second. The latencies are still encoded.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry<'a> {
    pub count: u64,
    pub errors: u64,
    pub replayed: u64,
    pub received_bytes: u64,
    pub sent_bytes: u64,
    bins: &'a [u8],
}

impl Entry<'_> {
    /// The bins: the highest latency in each, and the number of latencies.
    pub fn bins(&self) -> impl Iterator<Item = (u64, u64)> {
        let (mut rest, mut end) = (self.bins, 0);
        std::iter::from_fn(move || {
            end += read(&mut rest)?;
            Some((end, read(&mut rest)?))
        })
    }

    /// The same without the latencies.
    pub fn counts(&self) -> Tally {
        Tally {
            count: self.count,
            errors: self.errors,
            replayed: self.replayed,
            received_bytes: self.received_bytes,
            sent_bytes: self.sent_bytes,
            latency: Latency::default(),
        }
    }

    /// All of it.
    pub fn tally(&self) -> Tally {
        Tally { latency: Latency::of_bins(self.bins()), ..self.counts() }
    }
}

/// Encodes a tally.
pub(super) fn write_tally(to: &mut Vec<u8>, tally: &Tally) {
    let Tally { count, errors, replayed, received_bytes, sent_bytes, latency } = tally;
    for number in [count, errors, replayed, received_bytes, sent_bytes] {
        write(to, *number);
    }
    let (mut bins, mut last) = (Vec::with_capacity(latency.bins().len() * 4), 0);
    for (end, count) in latency.bins() {
        write(&mut bins, end - last);
        write(&mut bins, *count);
        last = *end;
    }
    write(to, bins.len() as u64);
    to.extend(bins);
}

/// Encodes a number.
pub(super) fn write(to: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        to.push(number as u8 | 0x80);
        number >>= 7;
    }
    to.push(number as u8);
}

/// The next number, if there is one.
fn read(from: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = from.split_first()?;
        *from = rest;
        number |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(
            entries in prop::collection::vec(
                (any::<u32>(), any::<[u64; 5]>(), prop::collection::btree_map(any::<u64>(), 1..=u64::MAX, 0..20)),
                0..20,
            ),
        ) {
            let entries: Vec<_> = entries.into_iter().map(|(key, counts, bins)| {
                let [count, errors, replayed, received_bytes, sent_bytes] = counts;
                let latency = Latency::of_bins(bins.into_iter());
                (key as usize, Tally { count, errors, replayed, received_bytes, sent_bytes, latency })
            }).collect();
            let mut encoded = Entries::default();
            entries.iter().for_each(|(key, tally)| encoded.push(*key, tally));
            let mut found = Vec::new();
            encoded.for_each(|key, entry| found.push((key, entry.tally())));
            prop_assert_eq!(found, entries);
        }
    }

    #[test]
    fn states_have_numbers_and_unknown_ones_are_unused() {
        for state in STATES {
            assert_eq!(STATES[state_number(state) as usize], state);
        }
        assert_eq!(state_number("new"), 0);
        assert!(badness("down") > badness("suspect") && badness("suspect") > badness("up"));
    }
}
