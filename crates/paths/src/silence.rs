//! Estimates how long a live path has recently been silent, so that a slow server is not taken for
//! a dead one.

use std::time::Duration;

/// Shorter silences are ignored: the lower bounds of the timeouts are more than twice this.
const NOTED_MIN: Duration = Duration::from_millis(100);
/// The estimate halves in this time, so that a path that has become fast again fails over quickly.
const HALF_LIFE: Duration = Duration::from_secs(5);

/// The longest recent silence that ended with a sign of life.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SilenceEstimator {
    longest: Duration,
    at: Duration,
}

impl SilenceEstimator {
    /// Records a silence that ended while a reply was expected.
    #[inline]
    pub(crate) fn note(&mut self, now: Duration, silence: Duration) {
        if silence >= NOTED_MIN && silence > self.longest(now) {
            *self = Self { longest: silence, at: now };
        }
    }

    /// The longest recorded silence, reduced according to its age.
    pub(crate) fn longest(&self, now: Duration) -> Duration {
        let age = now.saturating_sub(self.at).as_secs_f64() / HALF_LIFE.as_secs_f64();
        self.longest.div_f64(1.0 + age)
    }

    /// How long to wait for a sign of life: twice the longest silence, clamped to these bounds.
    pub(crate) fn timeout(&self, now: Duration, least: Duration, most: Duration) -> Duration {
        (2 * self.longest(now)).clamp(least, most.max(least))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn the_longest_silence_is_kept_and_fades() {
        let mut silence = SilenceEstimator::default();
        assert_eq!(silence.timeout(ms(0), ms(300), ms(3000)), ms(300));
        silence.note(ms(1000), ms(700));
        silence.note(ms(1000), ms(200));
        assert_eq!(silence.timeout(ms(1000), ms(300), ms(3000)), ms(1400));
        assert_eq!(silence.timeout(ms(6000), ms(300), ms(3000)), ms(700));
        assert_eq!(silence.timeout(ms(600_000), ms(300), ms(3000)), ms(300));
        silence.note(ms(6000), ms(60_000));
        assert_eq!(silence.timeout(ms(6000), ms(300), ms(3000)), ms(3000));
    }
}
