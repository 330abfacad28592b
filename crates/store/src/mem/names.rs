//! The table of names in one directory: in the order of their cookies, and by hash.
//!
//! Its memory is two arrays whose sizes are known, so that the bound of the store can count them
//! exactly: the entries by cookie, and their positions by hash (open addressing, linear probing). A
//! name that is taken out leaves its entry empty until the entries are next packed. The arrays grow
//! only in [`Names::make_room`], which asks first, and shrink as names go.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, LazyLock};

use super::cost::heap_bytes;
use super::table::Number;
use crate::interface::{Result, Status};

/// What precedes the bytes of a name on the heap: two counts of references.
const NAME_HEADER_BYTES: usize = 2 * size_of::<usize>();
/// A place of the index without an entry.
const NONE: u32 = u32::MAX;
/// Entries are packed and given back when fewer than one in this many is used.
const USED_SHARE_MIN: usize = 4;
/// Entries that stay, however few of them are used.
const KEPT_ENTRIES: usize = 8;
/// The keys are secret, so that no client can choose names that all have one hash.
static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// See the module.
#[derive(Default)]
pub(super) struct Names {
    /// In the order of their cookies.
    entries: Vec<Entry>,
    /// Positions of the entries that have a name; each from the place of its hash on.
    index: Box<[u32]>,
    used: usize,
}

struct Entry {
    cookie: u64,
    generation: u64,
    /// Absent once it was taken out.
    name: Option<Arc<[u8]>>,
    fileid: u32,
    hash: u32,
}

impl Entry {
    fn number(&self) -> Number {
        Number { fileid: self.fileid, generation: self.generation }
    }
}

impl Names {
    /// What the bytes of a name take on the heap.
    pub const fn name_bytes(name: usize) -> u64 {
        heap_bytes(NAME_HEADER_BYTES + name)
    }

    /// What the two arrays take on the heap.
    pub fn bytes(&self) -> u64 {
        Names::bytes_of(self.entries.capacity())
    }

    /// What the arrays for so many names take on the heap.
    pub const fn bytes_of(capacity: usize) -> u64 {
        heap_bytes(capacity * size_of::<Entry>()) + heap_bytes(index_places(capacity) * size_of::<u32>())
    }

    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    pub fn find(&self, name: &[u8]) -> Option<Number> {
        self.entries.get(self.position(name)?.1).map(Entry::number)
    }

    /// Makes room for one more name, unless `charge` refuses the bytes that the arrays grow by.
    pub fn make_room(&mut self, charge: impl Fn(u64) -> bool) -> Result<()> {
        let capacity = self.entries.capacity();
        if self.entries.len() < capacity {
            return Ok(());
        }
        let empty = self.entries.len() - self.used;
        if empty > 0 && empty >= capacity / USED_SHARE_MIN {
            self.pack();
            return Ok(());
        }
        // Small steps when the store is nearly full.
        for more in [capacity / 2 + 2, capacity / 16 + 1, capacity / 128 + 1] {
            let grown = capacity + more;
            if grown < NONE as usize && charge(Names::bytes_of(grown) - self.bytes()) {
                self.resize(grown);
                return Ok(());
            }
        }
        if empty == 0 {
            return Err(Status::NoSpace);
        }
        self.pack();
        Ok(())
    }

    /// Removes the entries without a name.
    pub fn pack(&mut self) {
        self.resize(self.entries.capacity());
    }

    /// Adds a name that is not there yet, and for which room was made.
    pub fn add(&mut self, name: &[u8], cookie: u64, number: Number) {
        debug_assert!(self.entries.len() < self.entries.capacity(), "room was made");
        let hash = hash_of(name);
        let Number { fileid, generation } = number;
        self.entries.push(Entry { cookie, generation, name: Some(name.into()), fileid, hash });
        self.used += 1;
        place(&mut self.index, hash, (self.entries.len() - 1) as u32);
    }

    /// Lets an existing name refer to another object; false when there is no such name.
    pub fn replace(&mut self, name: &[u8], number: Number) -> bool {
        let Some(entry) = self.position(name).and_then(|(_, at)| self.entries.get_mut(at)) else {
            return false;
        };
        Number { fileid: entry.fileid, generation: entry.generation } = number;
        true
    }

    /// Takes a name out. The arrays keep their sizes until [`Names::trim`].
    pub fn take(&mut self, name: &[u8]) {
        let Some((place, at)) = self.position(name) else { return };
        self.vacate(place);
        if let Some(entry) = self.entries.get_mut(at) {
            entry.name = None;
        }
        self.used -= 1;
        while self.entries.last().is_some_and(|entry| entry.name.is_none()) {
            self.entries.pop();
        }
    }

    /// Gives back what so few names do not need.
    pub fn trim(&mut self) {
        if self.used == 0 {
            (self.entries, self.index) = (Vec::new(), Box::default());
        } else if self.entries.capacity() > self.used.saturating_mul(USED_SHARE_MIN).max(KEPT_ENTRIES) {
            self.resize(self.used + self.used / 2 + 2);
        }
    }

    /// The names with a cookie below `end`, the highest cookie first.
    pub fn before(&self, end: u64) -> impl Iterator<Item = (u64, &Arc<[u8]>, Number)> {
        let below = self.entries.partition_point(|entry| entry.cookie < end);
        let entries = self.entries.iter().take(below).rev();
        entries.filter_map(|entry| Some((entry.cookie, entry.name.as_ref()?, entry.number())))
    }

    /// The place in the index of a name, and its entry.
    fn position(&self, name: &[u8]) -> Option<(usize, usize)> {
        if self.index.is_empty() {
            return None;
        }
        let hash = hash_of(name);
        let mut place = home(hash, self.index.len());
        loop {
            let at = self.index[place];
            if at == NONE {
                return None;
            }
            let entry = &self.entries[at as usize];
            if entry.hash == hash && entry.name.as_deref() == Some(name) {
                return Some((place, at as usize));
            }
            place = next(place, self.index.len());
        }
    }

    /// Empties a place of the index, and closes the gap: an entry that lies behind it, because the
    /// place was taken, moves up.
    fn vacate(&mut self, place: usize) {
        let places = self.index.len();
        let distance = |from: usize, to: usize| (to + places - from) % places;
        let (mut gap, mut at) = (place, place);
        loop {
            at = next(at, places);
            let position = self.index[at];
            if position == NONE {
                break;
            }
            let home = home(self.entries[position as usize].hash, places);
            if distance(home, at) >= distance(gap, at) {
                self.index[gap] = position;
                gap = at;
            }
        }
        self.index[gap] = NONE;
    }

    /// Packs the entries into arrays for `capacity` names.
    fn resize(&mut self, capacity: usize) {
        let packed = self.used < self.entries.len();
        if packed {
            self.entries.retain(|entry| entry.name.is_some());
        }
        match capacity.checked_sub(self.entries.capacity()) {
            None => self.entries.shrink_to(capacity),
            Some(_) => self.entries.reserve_exact(capacity - self.entries.len()),
        }
        debug_assert_eq!(self.entries.capacity(), capacity, "an array is as large as was asked");
        let places = index_places(self.entries.capacity());
        if packed || places != self.index.len() {
            // The old one is gone before the new one is made.
            self.index = Box::default();
            self.index = vec![NONE; places].into_boxed_slice();
            for (entry, at) in self.entries.iter().zip(0..) {
                place(&mut self.index, entry.hash, at);
            }
        }
    }
}

/// Places in the index for so many names: a third more, so that searches are short.
const fn index_places(capacity: usize) -> usize {
    if capacity == 0 { 0 } else { capacity + capacity / 3 + 1 }
}

fn hash_of(name: &[u8]) -> u32 {
    HASHER.hash_one(name) as u32
}

/// Where the search for a hash starts.
fn home(hash: u32, places: usize) -> usize {
    ((u64::from(hash) * places as u64) >> u32::BITS) as usize
}

fn next(place: usize, places: usize) -> usize {
    if place + 1 == places { 0 } else { place + 1 }
}

/// Puts a position into the first empty place from that of the hash on. There always is one.
fn place(index: &mut [u32], hash: u32, position: u32) {
    let mut at = home(hash, index.len());
    while index[at] != NONE {
        at = next(at, index.len());
    }
    index[at] = position;
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn number(of: u64) -> Number {
        Number { fileid: of as u32, generation: of }
    }

    #[test]
    fn names_that_come_and_go_are_found_like_those_of_a_map() {
        let mut names = Names::default();
        let mut map: BTreeMap<Vec<u8>, (u64, Number)> = BTreeMap::new();
        let mut state = 1u64;
        for cookie in 1..50_000u64 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let name = ((state >> 33) % 600).to_string().into_bytes();
            // Grows for a while, then shrinks, again and again.
            let grows = (cookie / 5000).is_multiple_of(2) || state >> 62 == 0;
            if !grows {
                names.take(&name);
                names.trim();
                map.remove(&name);
            } else if names.replace(&name, number(cookie)) {
                map.get_mut(&name).unwrap().1 = number(cookie);
            } else {
                names.make_room(|_| true).unwrap();
                names.add(&name, cookie, number(cookie));
                map.insert(name.clone(), (cookie, number(cookie)));
            }
            assert_eq!(names.find(&name), map.get(&name).map(|entry| entry.1));
            assert_eq!(names.is_empty(), map.is_empty());
            if cookie.is_multiple_of(500) {
                let mut all: Vec<_> = map.iter().map(|(name, of)| (of.0, name.clone(), of.1)).collect();
                all.sort_by_key(|entry| std::cmp::Reverse(entry.0));
                let listed = names.before(u64::MAX).map(|(cookie, name, of)| (cookie, name.to_vec(), of));
                assert!(listed.eq(all));
            }
        }
    }

    #[test]
    fn without_bytes_for_more_the_places_of_names_that_went_are_used() {
        let mut names = Names::default();
        for at in 0..100u64 {
            names.make_room(|_| true).unwrap();
            names.add(&at.to_be_bytes(), at, number(at));
        }
        let mut cookies = 100u64..;
        let add = |names: &mut Names, cookie: u64| -> Result<()> {
            names.make_room(|_| false)?;
            names.add(&cookie.to_be_bytes(), cookie, number(cookie));
            Ok(())
        };
        let (bytes, full) = (names.bytes(), cookies.find(|&cookie| add(&mut names, cookie).is_err()));
        for (old, cookie) in (0..full.unwrap()).zip(cookies) {
            names.take(&old.to_be_bytes());
            assert_eq!(add(&mut names, cookie), Ok(()));
        }
        assert_eq!(names.bytes(), bytes);
        assert_eq!(names.make_room(|_| false), Err(Status::NoSpace));
    }
}
