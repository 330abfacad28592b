//! Busy polling: a loop that expects an event within microseconds polls for some time before it
//! sleeps.
//!
//! Sleeping and waking costs some microseconds, and many more if the processor goes idle in
//! between: in a virtual machine an idle processor returns to its host. If a peer answers sooner
//! than that, the loop polls for the answer instead, as long as this pays. Short sleeps start a
//! trial, whose looks take as long as such a sleep: two ends that both sleep, and take longer to
//! wake than a look takes, answer each other quickly only once both look. A trial continues if
//! events are found in time. Futile looks end it for a while, and so do other threads that need the
//! processor.

use std::io;
use std::time::{Duration, Instant};

use crate::poll::{Events, Poller};

/// How long a loop polls for events before it sleeps, unless configured otherwise.
pub const BUSY_POLL_DEFAULT: Duration = Duration::from_micros(100);
/// The longest time that may be configured: a loop must not keep a processor from others for
/// longer.
pub const BUSY_POLL_MAX: Duration = Duration::from_millis(1);

/// A sleep is short if it takes at most this many times as long as a look: two wake-ups are part of
/// it, one at each end, and in a virtual machine each may take as long as several looks.
const SHORT_SLEEP_LOOKS: u32 = 5;
/// This many consecutive short sleeps start a trial.
const SHORT_SLEEPS: u32 = 4;
/// This many consecutive looks without an event end it.
const LATE_LOOKS: u32 = 8;
/// After looks that did not pay, polling rests for this long, and twice as long each time,
const REST: Duration = Duration::from_millis(5);
/// up to this: if other threads need the processor, a look costs the whole time slice of the thread
/// that looks.
const REST_MAX: Duration = Duration::from_millis(320);
/// Polling that lasted this many times longer than its next rest would last has paid: the rest
/// starts at its minimum again.
const PAID_RESTS: u32 = 10;
/// How many consecutive times other threads must keep the processor before polling counts as
/// crowded out: in a virtual machine the host sometimes takes the processor, which looks the same.
const CROWDS: u32 = 3;
/// A thread that keeps the processor for less than this does not count: a system call takes as
/// long.
const CROWD_MIN: Duration = Duration::from_micros(10);

/// Whether and how long a loop polls before it sleeps.
#[derive(Debug)]
pub struct BusyPoll {
    longest: Duration,
    policy: Policy,
}

impl BusyPoll {
    /// Polls for at most `longest`, or [`BUSY_POLL_MAX`] if that is less; zero disables polling.
    /// With a single processor polling is also disabled, because the peer could not run meanwhile.
    #[must_use]
    pub fn new(longest: Duration) -> Self {
        let alone = std::thread::available_parallelism().is_ok_and(|processors| processors.get() == 1);
        let longest = if alone { Duration::ZERO } else { longest.min(BUSY_POLL_MAX) };
        Self { longest, policy: Policy::new() }
    }

    /// Waits like [`Poller::wait`], but polls first.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn wait(
        &mut self,
        poller: &Poller,
        events: &mut Events,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        if self.look(poller, events, timeout, || false)? {
            Ok(())
        } else {
            self.sleep(poller, events, timeout)
        }
    }

    /// Polls for events, or until `came` returns true, as long as this pays and within the timeout.
    /// Returns whether anything arrived.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn look(
        &mut self,
        poller: &Poller,
        events: &mut Events,
        timeout: Option<Duration>,
        came: impl Fn() -> bool,
    ) -> io::Result<bool> {
        if !self.policy.looks || self.longest.is_zero() || timeout.is_some_and(|timeout| timeout.is_zero()) {
            return Ok(false);
        }
        let span = if self.policy.trial { self.trial_span() } else { self.longest };
        let until = timeout.map_or(span, |timeout| timeout.min(span));
        let began = Instant::now();
        let mut before = began;
        loop {
            poller.wait(events, Some(Duration::ZERO))?;
            let looked = Instant::now();
            let found = !events.is_empty() || came();
            if before != began && looked.saturating_duration_since(before) >= self.longest.max(CROWD_MIN) {
                self.policy.crowded_out(looked);
                return Ok(found);
            }
            let passed = looked.saturating_duration_since(began);
            if found {
                if passed <= self.longest {
                    self.policy.found();
                } else {
                    self.policy.late(looked);
                }
                return Ok(true);
            }
            if passed >= until {
                // A look that a timer cut short says nothing.
                if until == span {
                    self.policy.late(looked);
                }
                return Ok(false);
            }
            // The awaited thread may have been scheduled on this processor, and then answers within
            // a look. A thread that keeps the processor for longer has other work.
            before = looked;
            std::thread::yield_now();
        }
    }

    /// How long the looks of a trial take.
    fn trial_span(&self) -> Duration {
        (self.longest * SHORT_SLEEP_LOOKS).min(BUSY_POLL_MAX)
    }

    /// Waits without polling, and learns from how long it took.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn sleep(
        &mut self,
        poller: &Poller,
        events: &mut Events,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        if self.longest.is_zero() || timeout.is_some_and(|timeout| timeout.is_zero()) {
            return poller.wait(events, timeout);
        }
        let began = Instant::now();
        poller.wait(events, timeout)?;
        let now = Instant::now();
        let took = now.saturating_duration_since(began);
        self.policy.slept(now, !events.is_empty() && took <= self.longest * SHORT_SLEEP_LOOKS);
        Ok(())
    }
}

/// Decides when polling pays.
#[derive(Debug)]
struct Policy {
    looks: bool,
    /// When polling started.
    since: Option<Instant>,
    /// No event has been found within a look yet.
    trial: bool,
    short_sleeps: u32,
    /// Consecutive late or crowded looks.
    late: u32,
    crowds: u32,
    rest: Duration,
    rests_until: Option<Instant>,
}

impl Policy {
    const fn new() -> Self {
        Self {
            looks: false,
            since: None,
            trial: false,
            short_sleeps: 0,
            late: 0,
            crowds: 0,
            rest: REST,
            rests_until: None,
        }
    }

    /// Records a sleep. `short` says that a look might have found the event that ended it.
    fn slept(&mut self, now: Instant, short: bool) {
        if self.rests_until.is_some_and(|until| now < until) {
            return;
        }
        self.rests_until = None;
        self.short_sleeps = if short { self.short_sleeps + 1 } else { 0 };
        if self.short_sleeps >= SHORT_SLEEPS {
            (self.looks, self.since, self.trial, self.short_sleeps) = (true, Some(now), true, 0);
        }
    }

    /// Records that an event arrived within a look.
    fn found(&mut self) {
        (self.trial, self.late, self.crowds) = (false, 0, 0);
    }

    /// Records that no event arrived within a look.
    fn late(&mut self, now: Instant) {
        self.late += 1;
        if self.late >= LATE_LOOKS {
            self.end(now);
        }
    }

    /// Records that other threads had the processor for as long as a look takes.
    fn crowded_out(&mut self, now: Instant) {
        self.crowds += 1;
        if self.crowds >= CROWDS {
            self.end(now);
        }
    }

    fn end(&mut self, now: Instant) {
        (self.looks, self.late, self.crowds) = (false, 0, 0);
        let lasted = self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        if lasted >= self.rest * PAID_RESTS {
            self.rest = REST;
        }
        self.rests_until = Some(now + self.rest);
        self.rest = (self.rest * 2).min(REST_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poll::Waker;

    fn looking() -> Policy {
        let mut policy = Policy::new();
        sleep(&mut policy, SHORT_SLEEPS);
        assert!(policy.looks);
        policy
    }

    fn sleep(policy: &mut Policy, times: u32) {
        sleep_at(policy, Instant::now(), times);
    }

    fn sleep_at(policy: &mut Policy, now: Instant, times: u32) {
        (0..times).for_each(|_| policy.slept(now, true));
    }

    #[test]
    fn polling_begins_after_some_short_sleeps_in_a_row() {
        let mut policy = Policy::new();
        for _ in 0..10 {
            sleep(&mut policy, SHORT_SLEEPS - 1);
            policy.slept(Instant::now(), false);
        }
        assert!(!policy.looks);
        sleep(&mut policy, SHORT_SLEEPS);
        assert!(policy.looks);
    }

    #[test]
    fn some_looks_that_find_nothing_end_polling_unless_one_between_them_succeeds() {
        let mut policy = looking();
        for _ in 0..10 {
            (1..LATE_LOOKS).for_each(|_| policy.late(Instant::now()));
            policy.found();
        }
        assert!(policy.looks);
        (0..LATE_LOOKS).for_each(|_| policy.late(Instant::now()));
        assert!(!policy.looks);
    }

    #[test]
    fn the_first_looks_are_long_until_one_succeeds_in_time() {
        let mut busy = BusyPoll { longest: BUSY_POLL_DEFAULT, policy: looking() };
        assert!(busy.policy.trial);
        assert_eq!(busy.trial_span(), BUSY_POLL_DEFAULT * SHORT_SLEEP_LOOKS);
        busy.policy.late(Instant::now());
        assert!(busy.policy.trial);
        busy.policy.found();
        assert!(!busy.policy.trial && busy.policy.looks);
    }

    #[test]
    fn polling_pauses_where_others_want_the_processor_and_longer_each_time() {
        let mut policy = looking();
        let mut now = Instant::now();
        let mut rest = REST;
        for _ in 0..10 {
            (1..CROWDS).for_each(|_| policy.crowded_out(now));
            assert!(policy.looks, "once may be caused by the host of a virtual machine");
            policy.crowded_out(now);
            (0..100).for_each(|_| policy.slept(now + rest - Duration::from_micros(1), true));
            assert!(!policy.looks, "rests for {rest:?}");
            now += rest;
            (0..SHORT_SLEEPS).for_each(|_| policy.slept(now, true));
            assert!(policy.looks);
            rest = (rest * 2).min(REST_MAX);
        }
        // Some events found between two looks that were crowded out do not mean that polling pays.
        (0..1000).for_each(|_| policy.found());
        (0..CROWDS).for_each(|_| policy.crowded_out(now + Duration::from_millis(30)));
        assert_eq!(policy.rest, REST_MAX);
        now += Duration::from_secs(1);
        sleep_at(&mut policy, now, SHORT_SLEEPS);
        (0..CROWDS).for_each(|_| policy.crowded_out(now + REST_MAX * PAID_RESTS));
        assert_eq!(policy.rest, REST * 2, "polling had paid for long enough");
    }

    /// A peer that sends something at a fixed interval, whichever interval it chooses.
    #[test]
    fn looks_that_never_pay_take_a_small_share_of_the_time() {
        for apart in [150, 300, 500].map(Duration::from_micros) {
            let (mut policy, began) = (Policy::new(), Instant::now());
            let (mut now, mut looked) = (began, Duration::ZERO);
            while now - began < Duration::from_secs(10) {
                now += apart;
                if policy.looks {
                    looked += apart;
                    policy.late(now);
                } else {
                    policy.slept(now, true);
                }
            }
            assert!(looked < Duration::from_secs(1), "{looked:?} of 10 s with events {apart:?} apart");
        }
    }

    /// A busy poller that looks, on any machine.
    fn busy() -> BusyPoll {
        BusyPoll { longest: Duration::from_secs(120), policy: looking() }
    }

    #[test]
    fn a_look_finds_an_event_or_other_work() {
        let poller = Poller::new().unwrap();
        let waker = Waker::new(&poller, 7).unwrap();
        let mut events = Events::new();
        waker.wake();
        assert!(busy().look(&poller, &mut events, None, || false).unwrap());
        assert_eq!(events.iter().map(|event| event.token).collect::<Vec<_>>(), [7]);
        waker.clear();
        assert!(busy().look(&poller, &mut events, None, || true).unwrap());
        assert!(events.is_empty());
    }

    #[test]
    fn a_look_ends_at_its_limit_and_a_limit_of_zero_disables_polling() {
        let poller = Poller::new().unwrap();
        let mut events = Events::new();
        assert!(!busy().look(&poller, &mut events, Some(Duration::ZERO), || true).unwrap());
        let mut quiet = busy();
        assert!(!quiet.look(&poller, &mut events, Some(Duration::from_micros(1)), || false).unwrap());
        assert!(quiet.policy.trial, "nothing was found");
        let mut never = BusyPoll::new(Duration::ZERO);
        sleep(&mut never.policy, 100);
        assert!(!never.look(&poller, &mut events, None, || true).unwrap());
    }
}
