//! Memory for the data of commands: of a loop, and of one connection in it.

use crate::config::TRANSFER_BYTES;
use crate::shares::Shares;

/// A connection has no more than this part of its loop's memory, so that a host that neither sends
/// what it was asked for nor reads what it has asked for does not stop the others. But it has enough
/// for some of the largest commands, if the loop has.
const CONNECTION_PART: usize = 8;
const CONNECTION_BYTES_MIN: usize = 4 * TRANSFER_BYTES as usize;

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
        Self { bytes, used: 0, volumes: Shares::new(bytes, TRANSFER_BYTES as usize) }
    }

    /// What one connection may have.
    const fn part(&self) -> usize {
        let part = self.bytes / CONNECTION_PART;
        let part = if part < CONNECTION_BYTES_MIN { CONNECTION_BYTES_MIN } else { part };
        if part < self.bytes { part } else { self.bytes }
    }

    /// What the volumes share of a connection's part.
    pub(crate) const fn shares_of_connection(&self) -> Shares {
        Shares::new(self.part(), TRANSFER_BYTES as usize)
    }

    /// Takes memory for a connection that has `held` already. A command that is larger than the
    /// bounds gets it when nothing else is held, so that it is never stuck.
    pub(crate) const fn take(&mut self, bytes: usize, held: &mut usize) -> bool {
        let of_connection = *held == 0 || *held + bytes <= self.part();
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
        const MIB: usize = 1 << 20;
        let mut budget = Budget::new(64 * MIB);
        let mut held = [0; 9];
        for held in held.iter_mut().take(8) {
            assert!(budget.take(5 * MIB, held) && !budget.take(4 * MIB, held), "a part is 8 MiB");
            assert!(budget.take(3 * MIB, held));
        }
        assert!(!budget.take(1, &mut held[8]), "the loop has no more");
        budget.give_back(5 * MIB, &mut held[0]);
        assert!(budget.take(5 * MIB, &mut held[8]));
        assert_eq!(budget.used(), 64 * MIB);
        for (bytes, part) in [(8, 4), (4, 4), (1, 1)] {
            let (mut budget, mut held) = (Budget::new(bytes * MIB), 0);
            let taken = (0..).take_while(|_| budget.take(MIB / 2, &mut held)).count();
            assert_eq!(taken, 2 * part, "{bytes} MiB");
        }
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
