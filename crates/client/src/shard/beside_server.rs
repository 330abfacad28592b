//! A loop whose server is on the same machine takes turns with it while much is written.
//!
//! If it took the processor at each of the short answers it would keep the server from the calls that it has. Whoever
//! reads, or waits for each answer, is quicker the sooner it runs (docs/PERFORMANCE.md).

use std::time::Duration;

use transport::threads::Turns;

use crate::engine::Engine;

/// With so much to be written under way a loop takes turns.
const BYTES_MIN: usize = 128 << 10;
/// What is under way is looked at this often.
const LOOK: Duration = Duration::from_millis(50);

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct BesideServer {
    turns: Turns,
    look_at: Duration,
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
}
