//! Busy polling: a loop that expects an event within microseconds looks for it some times more before it sleeps.
//!
//! To sleep and be woken costs some microseconds, and many more where the processor goes idle in between: in a virtual
//! machine it leaves for its host. Where a peer answers sooner than that, the loop looks for its answer instead. It
//! does so only while it pays: sleeps that turn out short begin it, looks in vain end it, and when others want the
//! processor they get it.

use std::io;
use std::time::{Duration, Instant};

use crate::poll::{Events, Poller};

/// How long a loop looks for events before it sleeps, unless it is told otherwise.
pub const BUSY_POLL_DEFAULT: Duration = Duration::from_micros(100);
/// The longest that may be asked for: a processor is not to be kept from others for more.
pub const BUSY_POLL_MAX: Duration = Duration::from_millis(1);

/// A sleep is short when it takes at most so many times as long as a look: two wake-ups are part of it, one at each end,
/// and in a virtual machine each may take as long as several looks.
const SHORT_SLEEP_LOOKS: u32 = 10;
/// So many short sleeps in a row begin it.
const SHORT_SLEEPS: u32 = 4;
/// The most that it takes where it did not pay time and again.
const SHORT_SLEEPS_MAX: u32 = 1024;
/// So many looks in vain in a row end it. Not the first: where both ends sleep, neither is answered soon until both look.
const VAIN_LOOKS: u32 = 8;
/// After so many finds in a row the past is forgotten.
const FINDS: u32 = 64;
/// When a thread had no processor for this long, others ran there.
const OTHERS_RAN: Duration = Duration::from_micros(10);

/// Whether and how long a loop looks before it sleeps.
#[derive(Debug)]
pub struct BusyPoll {
    longest: Duration,
    policy: Policy,
}

impl BusyPoll {
    /// Looks for so long at most, [`BUSY_POLL_MAX`] if that is less; zero is never. On one processor whoever is waited
    /// for could not run meanwhile, so there it is never too.
    #[must_use]
    pub fn new(longest: Duration) -> Self {
        let alone = std::thread::available_parallelism().is_ok_and(|processors| processors.get() == 1);
        let longest = if alone { Duration::ZERO } else { longest.min(BUSY_POLL_MAX) };
        Self { longest, policy: Policy::new() }
    }

    /// Waits as [`Poller::wait`] does, and looks before.
    ///
    /// # Errors
    /// When the system refuses.
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

    /// Looks for events, or for what else `came`, as long as it pays, and not beyond the time. Says whether anything did.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn look(
        &mut self,
        poller: &Poller,
        events: &mut Events,
        timeout: Option<Duration>,
        came: impl Fn() -> bool,
    ) -> io::Result<bool> {
        let longest = timeout.map_or(self.longest, |timeout| timeout.min(self.longest));
        if !self.policy.looks || longest.is_zero() {
            return Ok(false);
        }
        let (began, used) = (Instant::now(), cpu_time());
        let mut looked = began;
        loop {
            poller.wait(events, Some(Duration::ZERO))?;
            if !events.is_empty() || came() {
                self.policy.found();
                return Ok(true);
            }
            // Whoever is waited for may have been put on this processor.
            std::thread::yield_now();
            let now = Instant::now();
            let passed = now.saturating_duration_since(began);
            let others_ran = now.saturating_duration_since(looked) >= OTHERS_RAN
                && passed.saturating_sub(cpu_time().saturating_sub(used)) >= OTHERS_RAN;
            if others_ran || passed >= longest {
                self.policy.in_vain(others_ran);
                return Ok(false);
            }
            looked = now;
        }
    }

    /// Waits without looking, and learns from how long it took.
    ///
    /// # Errors
    /// When the system refuses.
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
        self.policy.slept(!events.is_empty() && began.elapsed() <= self.longest * SHORT_SLEEP_LOOKS);
        Ok(())
    }
}

/// What this thread has had of the processors.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// When looking pays.
#[derive(Debug)]
struct Policy {
    looks: bool,
    short_sleeps: u32,
    /// How many of them it takes.
    wanted: u32,
    /// In a row, of one kind or the other.
    finds: u32,
    vain: u32,
}

impl Policy {
    const fn new() -> Self {
        Self { looks: false, short_sleeps: 0, wanted: SHORT_SLEEPS, finds: 0, vain: 0 }
    }

    /// A sleep ended, so soon that a look may find what ended it, or not.
    fn slept(&mut self, short: bool) {
        self.short_sleeps = if short { self.short_sleeps + 1 } else { 0 };
        if self.short_sleeps >= self.wanted {
            *self = Self { looks: true, wanted: self.wanted, ..Self::new() };
        }
    }

    fn found(&mut self) {
        (self.finds, self.vain) = (self.finds + 1, 0);
        if self.finds >= FINDS {
            (self.finds, self.wanted) = (0, SHORT_SLEEPS);
        }
    }

    fn in_vain(&mut self, others_ran: bool) {
        (self.finds, self.vain) = (0, self.vain + 1);
        if others_ran || self.vain >= VAIN_LOOKS {
            (self.looks, self.short_sleeps) = (false, 0);
            self.wanted = (self.wanted * 2).min(SHORT_SLEEPS_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poll::Waker;

    fn looking() -> Policy {
        let mut policy = Policy::new();
        (0..SHORT_SLEEPS).for_each(|_| policy.slept(true));
        assert!(policy.looks);
        policy
    }

    #[test]
    fn it_begins_after_some_short_sleeps_in_a_row() {
        let mut policy = Policy::new();
        for _ in 0..10 {
            (1..SHORT_SLEEPS).for_each(|_| policy.slept(true));
            policy.slept(false);
        }
        assert!(!policy.looks);
        (0..SHORT_SLEEPS).for_each(|_| policy.slept(true));
        assert!(policy.looks);
    }

    #[test]
    fn some_looks_in_vain_end_it_unless_one_between_them_finds() {
        let mut policy = looking();
        for _ in 0..10 {
            (1..VAIN_LOOKS).for_each(|_| policy.in_vain(false));
            policy.found();
        }
        assert!(policy.looks);
        (0..VAIN_LOOKS).for_each(|_| policy.in_vain(false));
        assert!(!policy.looks);
    }

    #[test]
    fn it_ends_at_once_where_others_want_the_processor() {
        let mut policy = looking();
        policy.in_vain(true);
        assert!(!policy.looks);
    }

    #[test]
    fn the_less_it_paid_the_more_it_takes_until_it_pays_again() {
        let mut policy = looking();
        (0..30).for_each(|_| policy.in_vain(true));
        assert_eq!(policy.wanted, SHORT_SLEEPS_MAX);
        (1..SHORT_SLEEPS_MAX).for_each(|_| policy.slept(true));
        assert!(!policy.looks);
        policy.slept(true);
        assert!(policy.looks);
        (0..FINDS).for_each(|_| policy.found());
        assert_eq!(policy.wanted, SHORT_SLEEPS);
    }

    /// One that looks, on any machine.
    fn busy() -> BusyPoll {
        BusyPoll { longest: Duration::from_secs(120), policy: looking() }
    }

    #[test]
    fn a_look_finds_an_event_and_what_else_came() {
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
    fn nothing_is_looked_for_beyond_the_time_nor_when_told_not_to() {
        let poller = Poller::new().unwrap();
        let mut events = Events::new();
        assert!(!busy().look(&poller, &mut events, Some(Duration::ZERO), || true).unwrap());
        let mut quiet = busy();
        assert!(!quiet.look(&poller, &mut events, Some(Duration::from_micros(1)), || false).unwrap());
        assert_eq!(quiet.policy.finds, 0);
        let mut never = BusyPoll::new(Duration::ZERO);
        (0..100).for_each(|_| never.policy.slept(true));
        assert!(!never.look(&poller, &mut events, None, || true).unwrap());
    }
}
