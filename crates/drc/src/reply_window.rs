//! The window over calls whose second execution would give a different reply: CREATE, REMOVE and
//! the like.
//!
//! Plain data with one owner at a time. The window keeps whole replies; these calls are rare
//! compared with reads and writes, and their replies are small.

use super::class::{Counter, WINDOW_REPLY};
use super::{Begin, Refusal, ReplyTo, Stored, Token};

/// What is known of one call.
#[derive(Debug)]
enum Phase {
    /// The call is being executed; the newest connection that waits for it, if any.
    Running(Option<Token>),
    /// The call ended with this result.
    Ended(Stored),
    /// The call was neither executed nor answered, and may run.
    Dropped,
}

#[derive(Debug)]
struct Entry {
    counter: Counter,
    phase: Phase,
}

/// The window of one client.
#[derive(Debug, Default)]
pub(super) struct ReplyWindow {
    newest: Option<Counter>,
    /// Allocated at the first call: a client that only reads and writes needs none.
    ring: Vec<Option<Entry>>,
}

impl ReplyWindow {
    pub fn begin(&mut self, counter: Counter, token: Token) -> Begin {
        let newest = match self.newest {
            Some(newest) if !counter.is_after(newest) => newest,
            _ => *self.newest.insert(counter),
        };
        if newest.since(counter) >= WINDOW_REPLY {
            return Begin::Refused(Refusal::BelowWindow);
        }
        let slot = self.slot(counter);
        match slot {
            Some(entry) if entry.counter == counter => match &mut entry.phase {
                Phase::Running(waiter) => {
                    *waiter = Some(token);
                    return Begin::Attached;
                }
                Phase::Ended(stored) => return Begin::Replay(stored.clone()),
                Phase::Dropped => {}
            },
            // Any other entry in the slot of a call within the window is older by whole laps.
            Some(_) | None => {}
        }
        *slot = Some(Entry { counter, phase: Phase::Running(None) });
        Begin::Run
    }

    /// Ends a call; `stored` is `None` if the call was neither executed nor answered.
    pub fn finish(&mut self, counter: Counter, stored: Option<Stored>) -> ReplyTo {
        match self.slot(counter) {
            Some(Entry { counter: found, phase }) if *found == counter => {
                let Phase::Running(waiter) = *phase else { return ReplyTo::ORIGINAL };
                *phase = stored.map_or(Phase::Dropped, Phase::Ended);
                ReplyTo { waiter }
            }
            // The window moved past the call in the meantime; copies of it are refused.
            Some(_) | None => ReplyTo::ORIGINAL,
        }
    }

    fn slot(&mut self, counter: Counter) -> &mut Option<Entry> {
        if self.ring.is_empty() {
            self.ring.resize_with(WINDOW_REPLY as usize, || None);
        }
        // The index is less than the length because of the modulo.
        &mut self.ring[counter.slot(WINDOW_REPLY)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORIGINAL: Token = Token(1);
    const REPLAY: Token = Token(2);

    fn counter(value: u32) -> Counter {
        Counter::new(value)
    }

    fn reply(bytes: &[u8]) -> Stored {
        Stored::Reply(bytes.into())
    }

    #[test]
    fn a_replay_gets_the_reply_of_the_first_execution() {
        let mut window = ReplyWindow::default();
        assert_eq!(window.begin(counter(9), ORIGINAL), Begin::Run);
        assert_eq!(window.finish(counter(9), Some(reply(b"made"))), ReplyTo::ORIGINAL);
        assert_eq!(window.begin(counter(9), REPLAY), Begin::Replay(reply(b"made")));
        assert_eq!(window.begin(counter(9), REPLAY), Begin::Replay(reply(b"made")));
    }

    #[test]
    fn a_replay_of_a_running_call_is_answered_on_the_newest_connection() {
        let mut window = ReplyWindow::default();
        assert_eq!(window.begin(counter(9), ORIGINAL), Begin::Run);
        assert_eq!(window.begin(counter(9), REPLAY), Begin::Attached);
        assert_eq!(window.begin(counter(9), Token(3)), Begin::Attached);
        assert_eq!(window.finish(counter(9), Some(reply(b""))), ReplyTo { waiter: Some(Token(3)) });
    }

    #[test]
    fn a_dropped_call_may_run_again() {
        let mut window = ReplyWindow::default();
        assert_eq!(window.begin(counter(9), ORIGINAL), Begin::Run);
        assert_eq!(window.finish(counter(9), None), ReplyTo::ORIGINAL);
        assert_eq!(window.begin(counter(9), REPLAY), Begin::Run);
    }

    #[test]
    fn the_window_slides_over_the_end_of_the_counters_and_refuses_what_is_below() {
        let mut window = ReplyWindow::default();
        let start = u32::MAX - WINDOW_REPLY;
        for step in 0..3 * WINDOW_REPLY {
            let at = counter(start.wrapping_add(step));
            assert_eq!(window.begin(at, ORIGINAL), Begin::Run);
            window.finish(at, Some(reply(b"x")));
            let oldest = start.wrapping_add(step.saturating_sub(WINDOW_REPLY - 1));
            assert_eq!(window.begin(counter(oldest), REPLAY), Begin::Replay(reply(b"x")));
            if step >= WINDOW_REPLY {
                let below = window.begin(counter(oldest.wrapping_sub(1)), REPLAY);
                assert_eq!(below, Begin::Refused(Refusal::BelowWindow));
            }
        }
    }

    #[test]
    fn the_end_of_an_overtaken_call_does_not_end_the_newer_one() {
        let mut window = ReplyWindow::default();
        assert_eq!(window.begin(counter(3), ORIGINAL), Begin::Run);
        assert_eq!(window.begin(counter(3 + WINDOW_REPLY), ORIGINAL), Begin::Run);
        assert_eq!(window.finish(counter(3), Some(reply(b"old"))), ReplyTo::ORIGINAL);
        assert_eq!(window.begin(counter(3 + WINDOW_REPLY), REPLAY), Begin::Attached);
    }
}
