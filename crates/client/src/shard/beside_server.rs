//! A loop whose server is on the same machine takes turns with it while much is written, and makes room for others.
//!
//! If it took the processor at each of the short answers it would keep the server from the calls that it has. Whoever
//! reads, or waits for each answer, is quicker the sooner it runs (docs/PERFORMANCE.md).
//!
//! A loop that looks for answers never sleeps, so the scheduler does not place it anew: it may stay for some tenths of a second
//! on a processor where the ends of other connections talk to each other, and each of their calls waits for one of its turns.
//! It moves to the processor where its own packets come in, which is its server's.

use std::num::NonZero;
use std::time::Duration;

use transport::threads::{Hops, Turns, hop_to, processor};

use crate::engine::Engine;

/// With so much to be written under way a loop takes turns.
const BYTES_MIN: usize = 128 << 10;
/// What is under way is looked at this often.
const LOOK: Duration = Duration::from_millis(50);
/// While a loop shares its processor it looks this often whether it belongs elsewhere.
const LOOK_ELSEWHERE: Duration = Duration::from_millis(1);
/// With more processors than this the scheduler may know of an idle one, which is better; nothing was measured there.
const PROCESSORS_MAX: usize = 2;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct BesideServer {
    turns: Turns,
    look_at: Duration,
    moves: bool,
    look_elsewhere_at: Duration,
    hops: Hops,
}

impl Default for BesideServer {
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        Self {
            turns: Turns::default(),
            look_at: Duration::ZERO,
            moves: processors <= PROCESSORS_MAX,
            look_elsewhere_at: Duration::ZERO,
            hops: Hops::default(),
        }
    }
}

impl BesideServer {
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
        if !self.moves || engine.now() < self.look_elsewhere_at {
            return;
        }
        self.look_elsewhere_at = engine.now() + LOOK_ELSEWHERE;
        if let (Some(here), Some(there)) = (processor(), engine.hears_from())
            && self.belongs_there(here, there, engine.now())
            && let Err(error) = hop_to(there)
        {
            // It may be bound to others.
            tracing::debug!(processor = there, %error, "a loop stays where it is");
        }
    }

    /// Whether it is to go there now.
    fn belongs_there(&mut self, here: u32, there: u32, now: Duration) -> bool {
        if here == there {
            self.hops.settled();
        }
        here != there && self.hops.may_hop(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_moves_to_where_its_packets_come_in_less_often_when_it_is_moved_back() {
        let mut beside = BesideServer::default();
        let mut times_in = |here, there, milliseconds: std::ops::Range<u64>| {
            let mut belongs_there = |at| beside.belongs_there(here, there, Duration::from_millis(at));
            milliseconds.filter(|at| belongs_there(*at)).count()
        };
        assert_eq!(times_in(0, 0, 0..1000), 0, "it is there");
        let (first, later) = (times_in(0, 1, 1000..2000), times_in(0, 1, 2000..3000));
        assert!((2..10).contains(&first) && later < first, "{first} times, then {later}");
        assert_eq!(times_in(1, 1, 3000..3001), 0);
        assert!(times_in(0, 1, 5000..6000) >= first, "it had stayed");
    }
}
