//! The keys of a history, each kept once however many seconds have it.

use crate::key::{Dimension, Key};
use std::collections::BTreeMap;

/// The number of the key without any value, for operations of keys that find no room.
pub(super) const UNKNOWN: usize = 0;

/// The memory of a key besides its texts: the key twice, its number and its uses.
const KEY_BYTES: usize = 2 * size_of::<Key>() + 64;

#[derive(Debug)]
struct Slot {
    key: Key,
    /// In how many entries it is.
    uses: usize,
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Keys {
    numbers: BTreeMap<Key, usize>,
    slots: Vec<Slot>,
    free: Vec<usize>,
    bytes: usize,
    bytes_max: usize,
}

impl Keys {
    pub fn new(bytes_max: usize) -> Self {
        let unknown = Slot { key: Key::default(), uses: 1 };
        let numbers = BTreeMap::from([(Key::default(), UNKNOWN)]);
        Self { numbers, slots: vec![unknown], free: Vec::new(), bytes: KEY_BYTES, bytes_max }
    }

    /// The memory that they take.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The number of a key that one more entry has, if there is room for the key.
    pub fn acquire(&mut self, key: &Key) -> Option<usize> {
        if let Some(number) = self.numbers.get(key) {
            if let Some(slot) = self.slots.get_mut(*number) {
                slot.uses += 1;
            }
            return Some(*number);
        }
        if self.bytes + cost(key) > self.bytes_max {
            return None;
        }
        let slot = Slot { key: key.clone(), uses: 1 };
        let number = self.free.pop().unwrap_or(self.slots.len());
        match self.slots.get_mut(number) {
            Some(free) => *free = slot,
            None => self.slots.push(slot),
        }
        self.bytes += cost(key);
        self.numbers.insert(key.clone(), number);
        Some(number)
    }

    /// One entry less has the key of this number. A key that no entry has is forgotten.
    pub fn release(&mut self, number: usize) {
        let Some(slot) = self.slots.get_mut(number).filter(|_| number != UNKNOWN) else { return };
        slot.uses = slot.uses.saturating_sub(1);
        if slot.uses == 0 {
            let key = std::mem::take(&mut slot.key);
            self.numbers.remove(&key);
            self.bytes -= cost(&key);
            self.free.push(number);
        }
    }

    /// The key of a number.
    pub fn get(&self, number: usize) -> Option<&Key> {
        self.slots.get(number).filter(|slot| slot.uses > 0).map(|slot| &slot.key)
    }

    /// Something about each key, by its number.
    pub fn all<T>(&self, about: impl Fn(&Key) -> T) -> Vec<T> {
        self.slots.iter().map(|slot| about(&slot.key)).collect()
    }

    /// Whether any key has a value of this dimension.
    pub fn has(&self, dimension: Dimension) -> bool {
        self.numbers.keys().any(|key| key.of(dimension).is_some())
    }
}

fn cost(key: &Key) -> usize {
    let texts = [&key.node, &key.client, &key.export, &key.path, &key.operation, &key.file];
    KEY_BYTES + texts.into_iter().flatten().map(|text| text.len() + 16).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(client: &str) -> Key {
        Key { client: Some(client.into()), ..Key::default() }
    }

    #[test]
    fn a_key_is_kept_while_an_entry_has_it() {
        let mut keys = Keys::new(1 << 20);
        let number = keys.acquire(&key("a")).unwrap();
        assert_eq!(keys.acquire(&key("a")), Some(number));
        keys.release(number);
        assert_eq!(keys.get(number), Some(&key("a")));
        let before = keys.bytes();
        keys.release(number);
        assert_eq!(keys.get(number), None);
        assert!(keys.bytes() < before && !keys.has(Dimension::Client));
        assert_eq!(keys.acquire(&key("b")), Some(number));
    }

    #[test]
    fn a_key_without_room_is_refused_and_known_ones_are_not() {
        let mut keys = Keys::new(4 * KEY_BYTES);
        let numbers: Vec<_> = ["a", "b", "c", "d"].map(|name| keys.acquire(&key(name))).into();
        assert_eq!(numbers, [Some(1), Some(2), None, None]);
        assert_eq!(keys.acquire(&key("a")), Some(1));
        assert!(keys.bytes() <= 4 * KEY_BYTES);
    }
}
