//! Busy polling: a loop that expects an event within microseconds polls for some time before it
//! sleeps.
//!
//! Sleeping and waking costs some microseconds, and many more if the processor goes idle in
//! between: in a virtual machine an idle processor returns to its host. If a peer answers sooner
//! than that, the loop polls for the answer instead, as long as this pays.
//!
//! The rule: some short sleeps in a row start polling, as many looks in vain in a row end polling,
//! and the longer those looks took, the longer polling rests. A look is in vain if no event arrives
//! in time, or if other threads keep the processor for as long as a look takes. Polling starts with
//! a trial, whose looks take as long as a short sleep: two ends that both sleep, and take longer to
//! wake than a look takes, answer each other quickly only once both look. The first event that is
//! found in time ends the trial.

use std::io;
use std::time::{Duration, Instant};

use crate::poll::{Events, Poller};

/// How long a loop polls for events before it sleeps, unless configured otherwise.
pub const BUSY_POLL_DEFAULT: Duration = Duration::from_micros(100);
/// The longest time that may be configured: a loop must not keep a processor from others for
/// longer.
pub const BUSY_POLL_MAX: Duration = Duration::from_millis(1);

/// A sleep is short if it takes at most this many times as long as a look, and the looks of a trial
/// take as long: two wake-ups are part of such a sleep, one at each end, and in a virtual machine
/// each may take as long as several looks.
const SHORT_SLEEP_LOOKS: u32 = 5;
/// This many consecutive short sleeps start polling, and this many consecutive looks in vain end
/// polling: in a virtual machine the host sometimes takes the processor, which looks like both.
const IN_A_ROW: u32 = 4;
/// After looks in vain polling rests for this many times as long as those looks took: looks that
/// never pay take three per cent of the time.
const REST_PER_LOSS: u32 = 30;

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
            let passed = looked.saturating_duration_since(began);
            if before != began && looked.saturating_duration_since(before) >= self.longest {
                self.policy.looked_in_vain(looked, passed);
                return Ok(found);
            }
            if found {
                if passed <= self.longest {
                    self.policy.found();
                } else {
                    self.policy.looked_in_vain(looked, passed);
                }
                return Ok(true);
            }
            if passed >= until {
                // A look that a timer cut short says nothing.
                if until == span {
                    self.policy.looked_in_vain(looked, passed);
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
    /// No event has been found in time yet.
    trial: bool,
    /// Consecutive short sleeps.
    short_sleeps: u32,
    /// Consecutive looks in vain, and how long they took.
    in_vain: u32,
    lost: Duration,
    rests_until: Option<Instant>,
}

impl Policy {
    const fn new() -> Self {
        Self {
            looks: false,
            trial: false,
            short_sleeps: 0,
            in_vain: 0,
            lost: Duration::ZERO,
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
        if self.short_sleeps >= IN_A_ROW {
            (self.looks, self.trial, self.short_sleeps) = (true, true, 0);
        }
    }

    /// Records that an event arrived within a look.
    const fn found(&mut self) {
        (self.trial, self.in_vain, self.lost) = (false, 0, Duration::ZERO);
    }

    /// Records a look in vain that took this long.
    fn looked_in_vain(&mut self, now: Instant, took: Duration) {
        self.in_vain += 1;
        self.lost += took;
        if self.in_vain >= IN_A_ROW {
            self.rests_until = Some(now + self.lost * REST_PER_LOSS);
            (self.looks, self.in_vain, self.lost) = (false, 0, Duration::ZERO);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poll::Waker;

    const LOOK: Duration = BUSY_POLL_DEFAULT;

    fn looking() -> Policy {
        let mut policy = Policy::new();
        sleep(&mut policy, IN_A_ROW);
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
            sleep(&mut policy, IN_A_ROW - 1);
            policy.slept(Instant::now(), false);
        }
        assert!(!policy.looks);
        sleep(&mut policy, IN_A_ROW);
        assert!(policy.looks);
    }

    #[test]
    fn some_looks_that_find_nothing_end_polling_unless_one_between_them_succeeds() {
        let mut policy = looking();
        for _ in 0..10 {
            (1..IN_A_ROW).for_each(|_| policy.looked_in_vain(Instant::now(), LOOK));
            policy.found();
        }
        assert!(policy.looks);
        (0..IN_A_ROW).for_each(|_| policy.looked_in_vain(Instant::now(), LOOK));
        assert!(!policy.looks);
    }

    #[test]
    fn the_first_looks_are_long_until_one_succeeds_in_time() {
        let mut busy = BusyPoll { longest: BUSY_POLL_DEFAULT, policy: looking() };
        assert!(busy.policy.trial);
        assert_eq!(busy.trial_span(), BUSY_POLL_DEFAULT * SHORT_SLEEP_LOOKS);
        busy.policy.looked_in_vain(Instant::now(), LOOK);
        assert!(busy.policy.trial);
        busy.policy.found();
        assert!(!busy.policy.trial && busy.policy.looks);
    }

    #[test]
    fn polling_rests_where_others_want_the_processor_and_longer_the_longer_they_keep_it() {
        let mut policy = looking();
        let mut now = Instant::now();
        for took in [LOOK, LOOK * 10, LOOK * 100].repeat(3) {
            (1..IN_A_ROW).for_each(|_| policy.looked_in_vain(now, took));
            assert!(policy.looks, "once may be caused by the host of a virtual machine");
            policy.looked_in_vain(now, took);
            let rest = took * IN_A_ROW * REST_PER_LOSS;
            (0..100).for_each(|_| policy.slept(now + rest - Duration::from_micros(1), true));
            assert!(!policy.looks, "rests for {rest:?}");
            now += rest;
            sleep_at(&mut policy, now, IN_A_ROW);
            assert!(policy.looks);
        }
        // Some events found before do not mean that polling pays now.
        (0..1000).for_each(|_| policy.found());
        (0..IN_A_ROW).for_each(|_| policy.looked_in_vain(now, LOOK));
        assert_eq!(policy.rests_until, Some(now + LOOK * IN_A_ROW * REST_PER_LOSS));
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
                    policy.looked_in_vain(now, apart);
                } else {
                    policy.slept(now, true);
                }
            }
            assert!(looked < Duration::from_millis(500), "{looked:?} of 10 s with events {apart:?} apart");
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
