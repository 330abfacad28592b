//! Limits how often a message is logged.
//!
//! A peer can cause the same message for each connection or call. Each place in the code that logs
//! at info or above may do so a few times in some seconds; further messages are counted, and one
//! line tells how many there were. Debug and trace are not limited, nor are the messages of the
//! program itself (its target), which nobody else can cause.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Filter};

/// The most messages of one place in a window.
const MESSAGES_MAX: u32 = 20;
/// The length of a window.
const WINDOW: Duration = Duration::from_secs(10);
/// The target of the messages of the program itself, and of the summaries.
const OWN_TARGET: &str = "trunkline";

/// The filter. Clones share their counts.
#[derive(Debug, Clone, Default)]
pub(super) struct RateLimit {
    windows: Arc<Mutex<HashMap<Identifier, Window>>>,
}

#[derive(Debug)]
struct Window {
    start: Instant,
    logged: u32,
    suppressed: u64,
}

/// What happens to a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Logged,
    /// The first one of its window that is not logged: a summary follows when the window ends.
    FirstSuppressed,
    Suppressed,
}

impl RateLimit {
    fn judge(&self, place: Identifier, now: Instant) -> Verdict {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = Window { start: now, logged: 0, suppressed: 0 };
        let window = windows.entry(place).or_insert(fresh);
        // A window with suppressed messages ends by its summary.
        if window.suppressed == 0 && now.duration_since(window.start) >= WINDOW {
            (window.start, window.logged) = (now, 0);
        }
        if window.logged < MESSAGES_MAX {
            window.logged += 1;
            return Verdict::Logged;
        }
        window.suppressed += 1;
        if window.suppressed == 1 { Verdict::FirstSuppressed } else { Verdict::Suppressed }
    }

    /// Ends a window, and returns the number of its messages that were not logged.
    fn end(&self, place: &Identifier) -> u64 {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        windows.remove(place).map_or(0, |window| window.suppressed)
    }

    /// Logs a summary when the window is over.
    fn summarize_later(&self, place: Identifier, level: Level, message: String) {
        let limit = self.clone();
        let summary = move || {
            std::thread::sleep(WINDOW);
            let (more, seconds) = (limit.end(&place), WINDOW.as_secs());
            if level == Level::INFO {
                tracing::info!(target: OWN_TARGET, "{more} more messages in {seconds} s like: {message}");
            } else {
                tracing::warn!(target: OWN_TARGET, "{more} more messages in {seconds} s like: {message}");
            }
        };
        // Without a thread the window never ends, and the place stays silent; the system is at its
        // limits then.
        let _ = std::thread::Builder::new().name("tl-log".to_owned()).spawn(summary);
    }
}

fn is_limited(metadata: &Metadata<'_>) -> bool {
    let own = metadata.target().strip_prefix(OWN_TARGET);
    *metadata.level() <= Level::INFO && own.is_none_or(|rest| !rest.is_empty() && !rest.starts_with("::"))
}

impl<S: Subscriber> Filter<S> for RateLimit {
    fn enabled(&self, _metadata: &Metadata<'_>, _context: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, event: &Event<'_>, _context: &Context<'_, S>) -> bool {
        let metadata = event.metadata();
        if !is_limited(metadata) {
            return true;
        }
        match self.judge(metadata.callsite(), Instant::now()) {
            Verdict::Logged => true,
            Verdict::Suppressed => false,
            Verdict::FirstSuppressed => {
                let mut message = Message::default();
                event.record(&mut message);
                self.summarize_later(metadata.callsite(), *metadata.level(), message.0);
                false
            }
        }
    }
}

/// The text of an event, without its fields.
#[derive(Debug, Default)]
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Callsite;

    /// Two places.
    fn places() -> [Identifier; 2] {
        struct Location;
        impl Callsite for Location {
            fn set_interest(&self, _interest: tracing::subscriber::Interest) {}
            fn metadata(&self) -> &Metadata<'_> {
                unreachable!("only identified")
            }
        }
        // A place is known by its address, so it needs a size.
        static ONE: (Location, u8) = (Location, 1);
        static OTHER: (Location, u8) = (Location, 2);
        [Identifier(&ONE.0), Identifier(&OTHER.0)]
    }

    #[test]
    fn a_place_may_log_so_many_messages_in_a_window_and_the_rest_are_counted() {
        let limit = RateLimit::default();
        let ([one, other], start) = (places(), Instant::now());
        for _ in 0..MESSAGES_MAX {
            assert_eq!(limit.judge(one.clone(), start), Verdict::Logged);
        }
        assert_eq!(limit.judge(one.clone(), start), Verdict::FirstSuppressed);
        assert_eq!(limit.judge(one.clone(), start), Verdict::Suppressed);
        assert_eq!(limit.judge(other.clone(), start), Verdict::Logged, "places count for themselves");
        // The summary may be late; until then nothing is lost from the count.
        assert_eq!(limit.judge(one.clone(), start + 3 * WINDOW), Verdict::Suppressed);
        assert_eq!((limit.end(&one), limit.end(&other)), (3, 0));
        assert_eq!(limit.judge(one, start + 3 * WINDOW), Verdict::Logged);
    }

    #[test]
    fn a_window_without_suppressed_messages_ends_by_itself() {
        let limit = RateLimit::default();
        let ([one, _], start) = (places(), Instant::now());
        for window in 0..3 {
            for _ in 0..MESSAGES_MAX {
                assert_eq!(limit.judge(one.clone(), start + window * WINDOW), Verdict::Logged);
            }
        }
    }
}
