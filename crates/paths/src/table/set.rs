//! Bit sets of the connections of one table. A pick looks at all connections in a few words, or in
//! one word if the table has no more connections than a word has bits.

use crate::ConnId;
use std::ops::{BitAnd, BitOrAssign, Not, SubAssign};

/// Words of the full set.
pub(super) const WORDS: usize = super::CONNECTIONS_MAX / u64::BITS as usize;
const _: () = assert!(WORDS * u64::BITS as usize == super::CONNECTIONS_MAX);

/// See the module's documentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Set<const N: usize = WORDS>([u64; N]);

impl Set {
    /// The first `N` words of the set, which are all of it if the table has no more connections.
    #[inline]
    pub(super) fn first<const N: usize>(&self) -> Set<N> {
        const { assert!(N <= WORDS) };
        Set(std::array::from_fn(|word| self.0[word]))
    }
}

impl<const N: usize> Set<N> {
    pub(super) const EMPTY: Self = Self([0; N]);
    pub(super) const ALL: Self = Self([u64::MAX; N]);

    pub(super) fn is_empty(self) -> bool {
        self == Self::EMPTY
    }

    /// The set, or `None` if it is empty.
    pub(super) fn some(self) -> Option<Self> {
        (!self.is_empty()).then_some(self)
    }

    pub(super) fn has(self, conn: ConnId) -> bool {
        let (word, bit) = place::<N>(conn);
        self.0[word] & bit != 0
    }

    pub(super) fn set(&mut self, conn: ConnId, on: bool) {
        if on { *self |= conn } else { *self -= conn }
    }

    pub(super) fn len(self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// Its connections in ascending order.
    pub(super) fn iter(self) -> Round<N> {
        self.from(ConnId(0))
    }

    /// Its connections: those from `first` on, then those before `first`.
    pub(super) fn from(self, first: ConnId) -> Round<N> {
        let (word, bit) = place::<N>(first);
        Round { set: self, word, rest: self.0[word] & !(bit - 1), before: bit - 1, words_left: N }
    }
}

/// Iterates over the connections of a set once, wrapping around.
#[derive(Debug)]
pub(super) struct Round<const N: usize> {
    set: Set<N>,
    word: usize,
    /// The bits of `word` not visited yet.
    rest: u64,
    /// The bits of the first word that come last.
    before: u64,
    words_left: usize,
}

impl<const N: usize> Iterator for Round<N> {
    type Item = ConnId;

    #[inline]
    fn next(&mut self) -> Option<ConnId> {
        while self.rest == 0 {
            self.words_left = self.words_left.checked_sub(1)?;
            self.word = (self.word + 1) % N;
            self.rest = self.set.0[self.word] & if self.words_left == 0 { self.before } else { u64::MAX };
        }
        let bit = self.rest.trailing_zeros();
        self.rest &= self.rest - 1;
        Some(ConnId((self.word as u32 * u64::BITS + bit) as u16))
    }
}

/// The word of a connection, and its bit in that word.
const fn place<const N: usize>(conn: ConnId) -> (usize, u64) {
    let index = conn.0 as usize % (N * u64::BITS as usize);
    (index / u64::BITS as usize, 1 << (index % u64::BITS as usize))
}

impl<const N: usize> BitOrAssign<ConnId> for Set<N> {
    fn bitor_assign(&mut self, conn: ConnId) {
        let (word, bit) = place::<N>(conn);
        self.0[word] |= bit;
    }
}

impl<const N: usize> SubAssign<ConnId> for Set<N> {
    fn sub_assign(&mut self, conn: ConnId) {
        let (word, bit) = place::<N>(conn);
        self.0[word] &= !bit;
    }
}

impl<const N: usize> BitAnd for Set<N> {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(std::array::from_fn(|word| self.0[word] & other.0[word]))
    }
}

impl<const N: usize> Not for Set<N> {
    type Output = Self;

    fn not(self) -> Self {
        Self(self.0.map(|word| !word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const MAX: u16 = super::super::CONNECTIONS_MAX as u16;

    proptest! {
        #[test]
        fn it_holds_what_was_put_in_and_not_taken_out(
            steps in prop::collection::vec((0..MAX, any::<bool>()), 0..300),
            first in 0..MAX,
        ) {
            let (mut set, mut model) = (<Set>::EMPTY, BTreeSet::new());
            for (conn, on) in steps {
                set.set(ConnId(conn), on);
                if on { model.insert(conn) } else { model.remove(&conn) };
                prop_assert_eq!(set.has(ConnId(conn)), on);
            }
            let all: Vec<u16> = model.iter().copied().collect();
            prop_assert_eq!(set.iter().map(|conn| conn.0).collect::<Vec<_>>(), all);
            let round: Vec<u16> = model.range(first..).chain(model.range(..first)).copied().collect();
            prop_assert_eq!(set.from(ConnId(first)).map(|conn| conn.0).collect::<Vec<_>>(), round);
            prop_assert_eq!((set.len() as usize, set.is_empty()), (model.len(), model.is_empty()));
            prop_assert_eq!((set & Set::ALL, set & !set), (set, Set::EMPTY));
            let low: Vec<u16> = model.range(..64).copied().collect();
            prop_assert_eq!(set.first::<1>().iter().map(|conn| conn.0).collect::<Vec<_>>(), low);
            // The search continues after the last connection found, which may be past the end.
            let first = first % 65;
            let round: Vec<u16> = model.range(first % 64..64).chain(model.range(..first % 64)).copied().collect();
            prop_assert_eq!(set.first::<1>().from(ConnId(first)).map(|conn| conn.0).collect::<Vec<_>>(), round);
        }
    }
}
