//! What volumes share: places and memory of a loop, of a connection, and of the way to the other
//! node. A volume whose drive hangs gives nothing back, so none gets all that there is.

use smallvec::SmallVec;
use std::collections::VecDeque;

/// A volume that has something leaves this part of what the others leave.
const LEFT_PART: usize = 4;

/// How much of something each volume has.
#[derive(Debug)]
pub(crate) struct Shares {
    total: usize,
    /// A volume that has something leaves at least so much.
    largest: usize,
    used: usize,
    /// By the place of the volume.
    of: Vec<usize>,
}

impl Shares {
    /// Shares of a total, of which one command needs no more than `largest`. So much is left for a
    /// volume that has nothing, if the total is at least twice that: then such a volume gets it as
    /// soon as others have given back enough, because they get nothing before.
    pub(crate) const fn new(total: usize, largest: usize) -> Self {
        let largest = if total / 2 >= largest { largest } else { 0 };
        Self { total, largest, used: 0, of: Vec::new() }
    }

    #[cfg(test)]
    const fn used(&self) -> usize {
        self.used
    }

    /// Whether a volume may have so much more. One that has nothing gets all that is left; what is
    /// more than there is at all it gets when nobody has anything.
    pub(crate) fn may_take(&self, volume: usize, amount: usize) -> bool {
        let own = self.of.get(volume).copied().unwrap_or_default();
        let left = self.total.saturating_sub(self.used - own);
        let kept = left.div_ceil(LEFT_PART).max(self.largest);
        let most = if own == 0 { left } else { left.saturating_sub(kept) };
        self.used == 0 || own.saturating_add(amount) <= most
    }

    pub(crate) fn take(&mut self, volume: usize, amount: usize) {
        if self.of.len() <= volume {
            self.of.resize(volume + 1, 0);
        }
        if let Some(of) = self.of.get_mut(volume) {
            *of += amount;
            self.used += amount;
        }
    }

    pub(crate) fn give_back(&mut self, volume: usize, amount: usize) {
        if let Some(of) = self.of.get_mut(volume) {
            let amount = amount.min(*of);
            *of -= amount;
            self.used -= amount;
        }
    }
}

/// One pass through commands that wait, in their order. Those of a volume that has no place are
/// passed over.
#[derive(Debug, Default)]
pub(crate) struct Pass {
    /// Where the next command is.
    at: usize,
    /// Volumes that have no place.
    full: SmallVec<[usize; 4]>,
}

impl Pass {
    /// Takes the next command out, with its volume, as `volume_of` names it.
    pub(crate) fn next(
        &mut self,
        waiting: &mut VecDeque<u16>,
        volume_of: impl Fn(u16) -> Option<usize>,
    ) -> Option<(u16, Option<usize>)> {
        loop {
            let tag = waiting.get(self.at).copied()?;
            let volume = volume_of(tag);
            if !volume.is_some_and(|volume| self.full.contains(&volume)) {
                waiting.remove(self.at);
                return Some((tag, volume));
            }
            self.at += 1;
        }
    }

    /// The command that was taken out last has no place, and no other one of its volume has.
    pub(crate) fn put_back(&mut self, waiting: &mut VecDeque<u16>, tag: u16, volume: Option<usize>) {
        // To start others may have ended some that wait.
        waiting.insert(self.at.min(waiting.len()), tag);
        self.full.extend(volume);
        self.at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take_all(shares: &mut Shares, volume: usize) -> usize {
        (0..)
            .take_while(|_| {
                let may = shares.may_take(volume, 1);
                if may {
                    shares.take(volume, 1);
                }
                may
            })
            .count()
    }

    #[test]
    fn volumes_that_give_nothing_back_leave_something_for_the_next_one() {
        let mut shares = Shares::new(1000, 1);
        assert_eq!(take_all(&mut shares, 7), 750);
        assert_eq!(take_all(&mut shares, 0), 187);
        for volume in 1..4 {
            assert!(take_all(&mut shares, volume) > 0, "{volume}");
        }
        assert!(shares.used() < 1000);
        // What one gives back is for all.
        shares.give_back(7, 700);
        assert!(take_all(&mut shares, 0) > 300);
    }

    #[test]
    fn a_busy_volume_does_not_keep_the_largest_command_of_another_one_waiting() {
        let mut shares = Shares::new(32, 16);
        assert_eq!(take_all(&mut shares, 1), 16);
        assert!(shares.may_take(2, 16));
        shares.take(2, 4);
        // What the first one gives back is not for it again until the third has had its turn.
        for _ in 0..4 {
            assert!(!shares.may_take(3, 16));
            shares.give_back(1, 1);
            assert!(!shares.may_take(1, 1) && !shares.may_take(2, 1));
        }
        assert!(shares.may_take(3, 16));
        // Where the largest command takes almost all, it waits until it is alone.
        let mut shares = Shares::new(20, 16);
        assert_eq!(take_all(&mut shares, 1), 15);
        assert!(shares.may_take(2, 5) && !shares.may_take(2, 6));
    }

    #[test]
    fn a_pass_goes_over_commands_of_full_volumes_and_keeps_their_order() {
        let mut waiting: VecDeque<u16> = [10, 20, 11, 30, 12, 21].into();
        let (mut pass, mut started) = (Pass::default(), Vec::new());
        while let Some((tag, volume)) = pass.next(&mut waiting, |tag| Some(usize::from(tag) / 10)) {
            if volume == Some(1) {
                pass.put_back(&mut waiting, tag, volume);
            } else {
                started.push(tag);
            }
        }
        assert_eq!((started, waiting), (vec![20, 30, 21], [10, 11, 12].into()));
    }

    #[test]
    fn who_has_nothing_gets_what_is_left_and_more_than_all_only_alone() {
        let mut shares = Shares::new(8, 1);
        shares.take(1, 6);
        assert!(!shares.may_take(1, 1));
        assert!(shares.may_take(2, 2) && !shares.may_take(2, 3));
        shares.give_back(1, 6);
        assert!(shares.may_take(2, 100));
        shares.take(2, 100);
        assert!(!shares.may_take(1, 1) && !shares.may_take(2, 1));
        shares.give_back(2, 1000);
        assert_eq!(shares.used(), 0);
    }
}
