//! The commands of a host's queue that were not completed, by their identifiers, whatever carries
//! them.

/// The largest queue: the upper bits of an identifier tell a command from its predecessor.
pub const ENTRIES_MAX: u16 = 1 << SLOT_BITS;

const SLOT_BITS: u32 = 12;

/// The data of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostData {
    /// None.
    None,
    /// This many bytes, at least one, for the controller.
    ToController(u32),
    /// This many bytes, at least one, from the controller.
    FromController(u32),
}

/// Why a command was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HostMisuse {
    /// The connection does not take commands (yet, or any more).
    #[error("the connection takes no commands")]
    NotReady,
    /// As many as the queue has room for are outstanding.
    #[error("the queue is full")]
    Full,
    /// More data than a command may have.
    #[error("{0} bytes are more than a command may move")]
    TooLong(u32),
}

#[derive(Debug)]
struct Slot<T> {
    generation: u16,
    command: Option<T>,
}

/// Commands of a queue.
#[derive(Debug)]
pub(crate) struct Outstanding<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u16>,
}

const fn place_of(cid: u16) -> u16 {
    cid & (ENTRIES_MAX - 1)
}

impl<T> Outstanding<T> {
    /// Of a queue with this many entries. One stays free, so that a full queue and an empty one
    /// differ.
    pub(crate) fn new(entries: u16) -> Self {
        let entries = entries.clamp(2, ENTRIES_MAX);
        let slots = (0..entries).map(|_| Slot { generation: 0, command: None }).collect();
        Self { slots, free: (0..entries - 1).rev().collect() }
    }

    /// Takes a command in and says its identifier; `None` if the queue is full.
    pub(crate) fn insert(&mut self, command: T) -> Option<u16> {
        let slot = self.slots.get_mut(usize::from(*self.free.last()?))?;
        let place = self.free.pop()?;
        slot.generation = slot.generation.wrapping_add(1);
        slot.command = Some(command);
        Some(place | slot.generation << SLOT_BITS)
    }

    /// The command with this identifier.
    pub(crate) fn get_mut(&mut self, cid: u16) -> Option<&mut T> {
        let slot = self.slots.get_mut(usize::from(place_of(cid)))?;
        let is_this = cid == place_of(cid) | slot.generation << SLOT_BITS;
        slot.command.as_mut().filter(|_| is_this)
    }

    /// Takes the command with this identifier out.
    pub(crate) fn remove(&mut self, cid: u16) -> Option<T> {
        self.get_mut(cid)?;
        self.free.push(place_of(cid));
        self.slots.get_mut(usize::from(place_of(cid)))?.command.take()
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|slot| slot.command.as_ref())
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        // One entry is never used.
        self.slots.len() - 1 - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identifier_comes_again_only_after_fifteen_others() {
        let mut queue = Outstanding::new(2);
        let first = queue.insert('a').expect("room");
        assert_eq!((queue.insert('b'), queue.len()), (None, 1));
        assert_eq!((queue.remove(first), queue.remove(first), queue.len()), (Some('a'), None, 0));
        for _ in 0..15 {
            let next = queue.insert('c').expect("room");
            assert!(next != first && queue.get_mut(first).is_none());
            queue.remove(next);
        }
        assert_eq!(queue.insert('d'), Some(first));
        assert_eq!(queue.get_mut(first ^ 1), None);
    }
}
