//! A loop whose server is on the same machine takes turns with it while much is written, and makes room for others.
//!
//! If it took the processor at each of the short answers it would keep the server from the calls that it has. Whoever
//! reads, or waits for each answer, is quicker the sooner it runs (docs/PERFORMANCE.md).
//!
//! A loop that looks for answers never sleeps, so the scheduler does not place it anew: it may stay for some tenths of a second
//! on a processor where the ends of other connections talk to each other, and each of their calls waits for one of its turns.
//! It moves to the processor where its own packets come in, which is its server's as a rule.

use std::sync::Arc;
use std::time::Duration;

use transport::threads::{Hops, Turns, hop_to, processor, processors};

use crate::engine::Engine;
use crate::route::Route;

/// With so much to be written under way a loop takes turns.
const BYTES_MIN: usize = 128 << 10;
/// What is under way is looked at this often.
const LOOK: Duration = Duration::from_millis(50);
/// While a loop shares its processor it looks this often whether it belongs elsewhere,
const LOOK_ELSEWHERE: Duration = Duration::from_millis(1);
/// and goes where it belonged so shortly before too: some packets come in where the loop itself has released them.
const STEADY_FOR: Duration = Duration::from_millis(20);
/// With more processors than this the scheduler may know of an idle one, which is better; nothing was measured there.
const PROCESSORS_MAX: u32 = 2;
/// Of the loops of a mount one moves in so long.
const APART: Duration = Duration::from_millis(40);

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct BesideServer {
    route: Arc<Route>,
    turns: Turns,
    look_at: Duration,
    elsewhere: Elsewhere,
}

/// Where a loop had better run.
#[derive(Debug, Default)]
struct Elsewhere {
    /// Where packets came in, and when that was looked at.
    seen: Option<(u32, Duration)>,
    hops: Hops,
}

impl BesideServer {
    pub(super) fn new(route: Arc<Route>) -> Self {
        let (turns, elsewhere) = Default::default();
        Self { route, turns, look_at: Duration::ZERO, elsewhere }
    }

    /// Takes turns or not, by what is under way now. For the loop's own thread.
    pub(super) fn look(&mut self, engine: &Engine) {
        if engine.now() < self.look_at {
            return;
        }
        self.look_at = engine.now() + LOOK;
        if let Err(error) = self.turns.take(engine.bytes_to_write() >= BYTES_MIN) {
            tracing::debug!(%error, "a loop cannot take turns");
        }
    }

    /// Others share the processor: leaves it to them, if its packets come in on another one. For the loop's own thread.
    pub(super) fn move_over(&mut self, engine: &Engine) {
        let now = engine.now();
        if self.elsewhere.is_due(now)
            && let (Some(here), Some(there)) = (processor(), engine.hears_from())
            && self.elsewhere.is_better(here, there, now)
            && processors().is_some_and(|processors| processors <= PROCESSORS_MAX)
            && self.elsewhere.hops.take_hop(now)
            && self.route.moves.take(APART)
            && let Err(error) = hop_to(there)
        {
            // It may be bound to others.
            tracing::debug!(processor = there, %error, "a loop stays where it is");
        }
    }
}

impl Elsewhere {
    fn is_due(&self, now: Duration) -> bool {
        self.seen.is_none_or(|(_, then)| now >= then + LOOK_ELSEWHERE)
    }

    /// Packets come in there. Whether that is another place than here, and was so shortly before.
    fn is_better(&mut self, here: u32, there: u32, now: Duration) -> bool {
        let before = self.seen.replace((there, now));
        if here == there {
            self.hops.settled(now);
        }
        here != there && before.is_some_and(|(place, then)| place == there && now < then + STEADY_FOR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn another_place_is_better_once_packets_came_in_there_twice_in_a_row() {
        let mut elsewhere = Elsewhere::default();
        let mut seen = |here, there, at| elsewhere.is_better(here, there, ms(at));
        assert!(!seen(0, 1, 10), "once");
        assert!(seen(0, 1, 11));
        assert!(!seen(0, 0, 12), "it is there");
        assert!(!seen(0, 1, 13), "it was elsewhere before");
        assert!(!seen(0, 1, 40), "that was long ago");
        assert!(!seen(1, 1, 41));
    }

    #[test]
    fn it_is_looked_for_now_and_then() {
        let mut elsewhere = Elsewhere::default();
        assert!(elsewhere.is_due(ms(0)));
        elsewhere.is_better(0, 1, ms(7));
        assert!(!elsewhere.is_due(ms(7)) && elsewhere.is_due(ms(7) + LOOK_ELSEWHERE));
    }

    #[test]
    fn a_loop_that_is_moved_back_each_time_goes_less_and_less_often() {
        let mut elsewhere = Elsewhere::default();
        // It goes, is seen there, and is moved back.
        let mut hops_in = |milliseconds: std::ops::Range<u64>| {
            let mut hops = 0;
            for at in milliseconds.step_by(3) {
                elsewhere.is_better(0, 1, ms(at));
                if elsewhere.is_better(0, 1, ms(at + 1)) && elsewhere.hops.take_hop(ms(at + 1)) {
                    hops += 1;
                    elsewhere.is_better(1, 1, ms(at + 2));
                }
            }
            hops
        };
        let (first, later) = (hops_in(1000..2000), hops_in(2000..4000));
        assert!((3..10).contains(&first) && later < first, "{first} times, then {later}");
    }
}
