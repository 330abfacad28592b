//! Memory for the data of commands: of a loop, and of one connection in it.

use crate::shares::Shares;

/// A connection has no more than this part of its loop's memory, so that a host that neither sends
/// what it was asked for nor reads what it has asked for does not stop the others.
const CONNECTION_PART: usize = 8;

/// The memory of one loop, in bytes.
#[derive(Debug)]
pub(crate) struct Budget {
    bytes: usize,
    used: usize,
    /// What commands have of it that have not ended.
    pub(crate) volumes: Shares,
}

impl Budget {
    pub(crate) const fn new(bytes: usize) -> Self {
        Self { bytes, used: 0, volumes: Shares::new(bytes) }
    }

    /// What the volumes share of a connection's part.
    pub(crate) const fn shares_of_connection(&self) -> Shares {
        Shares::new(self.bytes / CONNECTION_PART)
    }

    /// Takes memory for a connection that has `held` already. A command that is larger than the
    /// bounds gets it when nothing else is held, so that it is never stuck.
    pub(crate) const fn take(&mut self, bytes: usize, held: &mut usize) -> bool {
        let of_connection = *held == 0 || *held + bytes <= self.bytes / CONNECTION_PART;
        let of_loop = self.used == 0 || self.used + bytes <= self.bytes;
        if !of_connection || !of_loop {
            return false;
        }
        *held += bytes;
        self.used += bytes;
        true
    }

    /// Gives memory back.
    pub(crate) const fn give_back(&mut self, bytes: usize, held: &mut usize) {
        *held = held.saturating_sub(bytes);
        self.used = self.used.saturating_sub(bytes);
    }

    #[cfg(test)]
    const fn used(&self) -> usize {
        self.used
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_gets_a_part_and_all_connections_get_the_whole() {
        let mut budget = Budget::new(800);
        let mut held = [0; 9];
        for held in held.iter_mut().take(8) {
            assert!(budget.take(60, held) && !budget.take(60, held), "a part is 100");
            assert!(budget.take(40, held));
        }
        assert!(!budget.take(1, &mut held[8]), "the loop has no more");
        budget.give_back(60, &mut held[0]);
        assert!(budget.take(60, &mut held[8]));
        assert_eq!(budget.used(), 800);
    }

    #[test]
    fn a_command_larger_than_everything_is_not_stuck() {
        let mut budget = Budget::new(10);
        let (mut one, mut other) = (0, 0);
        assert!(budget.take(1000, &mut one));
        assert!(!budget.take(1, &mut other));
        budget.give_back(1000, &mut one);
        assert!(budget.take(1000, &mut other));
    }
}
