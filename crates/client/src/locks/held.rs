//! The ranges that an owner has locked in a file.

use super::{LockKind, LockRange};

/// Ranges that do not overlap, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Held(Vec<(LockRange, LockKind)>);

impl Held {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (LockRange, LockKind)> {
        self.0.iter().copied()
    }

    /// Locks a range as this, or releases it, whatever it was.
    pub(crate) fn set(&mut self, range: LockRange, kind: Option<LockKind>) {
        let mut all = Vec::with_capacity(self.0.len() + 2);
        for (held, of) in self.0.drain(..) {
            if held.last < range.first || range.last < held.first {
                all.push((held, of));
                continue;
            }
            if held.first < range.first {
                all.push((LockRange { first: held.first, last: range.first - 1 }, of));
            }
            if held.last > range.last {
                all.push((LockRange { first: range.last + 1, last: held.last }, of));
            }
        }
        all.extend(kind.map(|kind| (range, kind)));
        all.sort_by_key(|(held, _)| held.first);
        // Neighbours of one kind are one lock.
        for (held, of) in all {
            match self.0.last_mut() {
                Some((before, kind)) if *kind == of && before.last.checked_add(1) == Some(held.first) => {
                    before.last = held.last;
                }
                _ => self.0.push((held, of)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use LockKind::{Exclusive, Shared};

    fn range(first: u64, last: u64) -> LockRange {
        LockRange { first, last }
    }

    #[test]
    fn locks_of_one_owner_replace_each_other() {
        let mut held = Held::default();
        held.set(range(0, 99), Some(Shared));
        held.set(range(10, 19), Some(Exclusive));
        let expected = [(range(0, 9), Shared), (range(10, 19), Exclusive), (range(20, 99), Shared)];
        assert_eq!(held.iter().collect::<Vec<_>>(), expected);
        held.set(range(10, 19), Some(Shared));
        assert_eq!(held.iter().collect::<Vec<_>>(), [(range(0, 99), Shared)]);
        held.set(range(50, LockRange::END), None);
        assert_eq!(held.iter().collect::<Vec<_>>(), [(range(0, 49), Shared)]);
        held.set(LockRange::ALL, None);
        assert!(held.is_empty());
    }

    /// Compared with a kind for each byte.
    #[test]
    fn any_sequence_of_locks_and_releases_leaves_each_byte_as_it_was_set_last() {
        const BYTES: u64 = 12;
        let (mut held, mut bytes) = (Held::default(), [None; BYTES as usize]);
        let mut random = 7_u64;
        for _ in 0..5000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (first, more) = ((random >> 33) % BYTES, (random >> 43) % BYTES);
            let last = (first + more).min(BYTES - 1);
            let kind = [None, Some(Shared), Some(Exclusive)][(random >> 53) as usize % 3];
            held.set(range(first, last), kind);
            bytes[first as usize..=last as usize].fill(kind);
            let found: Vec<_> = (0..BYTES)
                .map(|at| {
                    held.iter().find(|(held, _)| (held.first..=held.last).contains(&at)).map(|(_, of)| of)
                })
                .collect();
            assert_eq!(found, bytes);
            assert!(held.0.is_sorted_by(|(one, _), (next, _)| one.last < next.first));
        }
    }
}
