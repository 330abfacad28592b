//! Tries a mount again if the server does not answer yet: `retry`, `fg` and `bg` of nfs(5).
//!
//! [`RetryPolicy`] is pure: it decides which errors are temporary, how long the next pause is, and
//! when to give up. Each try runs on a separate thread, so that a signal ends the wait at once, in
//! a pause as well as in a try.

use crate::error::Error;
use client::options::MountOptions;
use rustix::event::{PollFd, PollFlags, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::{Handle, Signals};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// For how many minutes mount(8) waits for a mount in the foreground, from nfs(5).
const FOREGROUND_MINUTES: u32 = 2;
/// For how many minutes a mount in the background is tried, about a week; from nfs(5).
const BACKGROUND_MINUTES: u32 = 10_000;
/// The pause before the second try. Each pause is twice the previous one.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
/// The longest pause, so that a server that returns after a long time is found soon.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// For how long a mount is tried, and how.
#[derive(Debug, Clone)]
pub struct RetryPolicy {
    minutes: u32,
    background: bool,
    pause: Duration,
}

impl RetryPolicy {
    /// As the options say. Without them, a mount by mount(8) has the defaults of nfs(5), which its
    /// users expect. `trunkline mount` on a command line reports the first error at once.
    pub fn new(options: &MountOptions, for_mount_8: bool) -> Self {
        let background = options.background;
        let minutes = options.retry_minutes.unwrap_or(match (background, for_mount_8) {
            (true, _) => BACKGROUND_MINUTES,
            (false, true) => FOREGROUND_MINUTES,
            (false, false) => 0,
        });
        Self { minutes, background, pause: PAUSE_FIRST }
    }

    /// Whether the caller does not wait after the first try.
    pub const fn is_background(&self) -> bool {
        self.background
    }

    /// Whether the error may be temporary.
    fn may_retry(&self, error: &Error) -> bool {
        match error {
            Error::Client(error) | Error::Mount(mount::Error::Client(error)) => match error {
                client::Error::Mount { cause, .. } => cause.may_pass(),
                client::Error::TimedOut { .. } => true,
                _ => false,
            },
            // As in nfs(5), so that mounts within mounts can be in any order.
            Error::Mount(mount::Error::Fuse { directory, source }) => {
                self.background && source.kind() == io::ErrorKind::NotFound && !directory.exists()
            }
            _ => false,
        }
    }

    /// The pause before the next try; `None` if there is no other. `elapsed` is the time since the
    /// first try began.
    fn next_pause(&mut self, elapsed: Duration) -> Option<Duration> {
        let left = Duration::from_secs(u64::from(self.minutes) * 60).saturating_sub(elapsed);
        let pause = self.pause.min(left);
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        (!pause.is_zero()).then_some(pause)
    }

    /// The message that the caller gets once.
    fn message(&self, error: &Error) -> String {
        let place = if self.background { " in the background" } else { "" };
        let many = if self.minutes == 1 { "" } else { "s" };
        format!("{}; trying again{place}, for {} minute{many}\n", error.one_line(), self.minutes)
    }
}

/// What a process that tries a mount waits for.
#[derive(Debug)]
enum Event<T> {
    Attempted(Result<T, Error>),
    Signal(i32),
    /// The caller is gone.
    CallerGone,
    /// The wait has ended.
    Stopped,
}

/// The events. Created before anything is mounted, so that no signal is missed.
#[derive(Debug)]
pub struct Events<T> {
    sender: Sender<Event<T>>,
    receiver: Receiver<Event<T>>,
    signals: Handle,
}

impl<T: Send + 'static> Events<T> {
    /// Catches the signals that end a mount, and the one that requests its statistics.
    pub fn catch() -> Result<Self, Error> {
        let mut signals = Signals::new([SIGTERM, SIGINT, SIGUSR1]).map_err(Error::Signals)?;
        let (sender, receiver) = channel();
        let (handle, to) = (signals.handle(), sender.clone());
        std::thread::spawn(move || {
            for signal in &mut signals {
                // The receiver may be gone by now.
                let _ = to.send(Event::Signal(signal));
            }
        });
        Ok(Self { sender, receiver, signals: handle })
    }

    /// Detects that standard output has no reader any more: the caller is gone without an answer.
    pub fn watch_caller(&self) {
        let to = self.sender.clone();
        std::thread::spawn(move || {
            // Errors are always reported, even if no event is requested.
            let stdout = rustix::stdio::stdout();
            let mut fds = [PollFd::new(&stdout, PollFlags::empty())];
            while poll(&mut fds, None) == Err(rustix::io::Errno::INTR) {}
            let _ = to.send(Event::CallerGone);
        });
    }

    /// Tries until an attempt succeeds or fails permanently, the time is over, or a signal ends the
    /// wait. `wait` gets the message for the caller when the wait begins, and returns whether the
    /// caller still waits.
    pub fn retry(
        &self,
        mut policy: RetryPolicy,
        attempt: impl Fn() -> Result<T, Error> + Send + Sync + 'static,
        mut wait: impl FnMut(&str) -> Result<bool, Error>,
    ) -> Result<T, Error> {
        let (attempt, start) = (Arc::new(attempt), Instant::now());
        let (mut has_reported, mut caller_waits) = (false, true);
        loop {
            let (attempt, to) = (Arc::clone(&attempt), self.sender.clone());
            let builder = std::thread::Builder::new().name("tl-try".into());
            builder
                .spawn(move || {
                    let _ = to.send(Event::Attempted(attempt()));
                })
                .map_err(mount::Error::Threads)?;
            let error = match self.next(caller_waits, None)? {
                Some(Ok(done)) => return Ok(done),
                Some(Err(error)) => error,
                None => return Err(interrupted(SIGHUP)),
            };
            if !policy.may_retry(&error) {
                return Err(error);
            }
            let Some(pause) = policy.next_pause(start.elapsed()) else { return Err(error) };
            tracing::info!(error = error.one_line(), ?pause, "it is tried again");
            if !has_reported {
                caller_waits = wait(&policy.message(&error))?;
                has_reported = true;
            }
            self.next(caller_waits, Some(pause))?;
        }
    }

    /// The outcome of a try, or `None` after a pause.
    fn next(&self, caller_waits: bool, pause: Option<Duration>) -> Result<Option<Result<T, Error>>, Error> {
        let until = pause.map(|pause| Instant::now() + pause);
        loop {
            let received = match until {
                None => self.receiver.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(until) => self.receiver.recv_timeout(until.saturating_duration_since(Instant::now())),
            };
            match received {
                Ok(Event::Attempted(outcome)) => return Ok(Some(outcome)),
                // There are no statistics yet.
                Ok(Event::Signal(SIGUSR1)) => {}
                Ok(Event::Signal(signal)) => return Err(interrupted(signal)),
                Ok(Event::CallerGone) if caller_waits => return Err(interrupted(SIGHUP)),
                Ok(Event::CallerGone | Event::Stopped) => {}
                Err(_) => return Ok(None),
            }
        }
    }

    /// Calls `act` for each signal from now on, until the handle is closed. Other events are
    /// ignored.
    pub fn handle_signals(self, mut act: impl FnMut(i32) + Send + 'static) -> SignalThread<T> {
        let Self { sender, receiver, signals } = self;
        let thread = std::thread::spawn(move || {
            for event in receiver {
                match event {
                    Event::Signal(signal) => act(signal),
                    Event::Stopped => break,
                    Event::Attempted(_) | Event::CallerGone => {}
                }
            }
        });
        SignalThread { sender, signals, thread }
    }
}

/// A thread that waits for signals.
#[derive(Debug)]
pub struct SignalThread<T> {
    sender: Sender<Event<T>>,
    signals: Handle,
    thread: std::thread::JoinHandle<()>,
}

impl<T> SignalThread<T> {
    /// Ends the thread. The thread that watches the caller may still hold a sender.
    pub fn end(self) {
        self.signals.close();
        // An error means that the thread has ended.
        let _ = self.sender.send(Event::Stopped);
        let _ = self.thread.join();
    }
}

fn interrupted(signal: i32) -> Error {
    Error::Interrupted {
        cause: "nothing is mounted yet".to_owned(),
        advice: "-o retry=N        to go on trying for N minutes at most".to_owned(),
        signal: u8::try_from(signal).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::MountError;

    fn policy(options: &str, for_mount_8: bool) -> RetryPolicy {
        RetryPolicy::new(&options.parse().unwrap(), for_mount_8)
    }

    /// The pauses if tries take no time.
    fn pauses(mut policy: RetryPolicy) -> Vec<Duration> {
        let mut elapsed = Duration::ZERO;
        std::iter::from_fn(|| {
            let pause = policy.next_pause(elapsed)?;
            elapsed += pause;
            Some(pause)
        })
        .collect()
    }

    #[test]
    fn one_try_is_made_unless_mount_8_or_an_option_asks_for_more() {
        let minutes = |options, for_mount_8| {
            let all: Duration = pauses(policy(options, for_mount_8)).iter().sum();
            all.as_secs() / 60
        };
        assert_eq!((minutes("", false), minutes("", true)), (0, 2));
        assert_eq!((minutes("fg", false), minutes("fg", true)), (0, 2));
        assert_eq!((minutes("bg", false), minutes("bg", true)), (10_000, 10_000));
        assert_eq!((minutes("retry=7", false), minutes("bg,retry=7", true)), (7, 7));
        assert_eq!((minutes("retry=0", true), minutes("bg,retry=0", true)), (0, 0));
        assert_eq!(minutes("bg,fg", true), 2);
    }

    #[test]
    fn pauses_grow_and_the_last_try_is_made_when_the_time_is_over() {
        let pauses: Vec<u64> = pauses(policy("retry=2", false)).iter().map(Duration::as_secs).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30, 29]);
        assert_eq!(policy("retry=1", false).next_pause(Duration::from_secs(60)), None);
    }

    fn of(cause: MountError) -> Error {
        Error::Client(client::Error::Mount { target: "nas:/data".to_owned(), cause })
    }

    #[test]
    fn only_what_may_pass_is_tried_again() {
        let address = ([127, 0, 0, 1], 2049).into();
        let connect = |kind: io::ErrorKind| of(MountError::Connect { address, source: kind.into() });
        let reason = || "no".to_owned();
        let (fg, bg) = (policy("retry=1", false), policy("bg", false));
        for kind in
            [io::ErrorKind::ConnectionRefused, io::ErrorKind::HostUnreachable, io::ErrorKind::TimedOut]
        {
            assert!(fg.may_retry(&connect(kind)), "{kind}");
        }
        assert!(!fg.may_retry(&connect(io::ErrorKind::PermissionDenied)));
        let here = String::new();
        assert!(fg.may_retry(&of(MountError::NoMountProgram { address, here, reason: reason() })));
        let export = String::new();
        assert!(!bg.may_retry(&of(MountError::Refused { address, export, reason: reason() })));
        assert!(!bg.may_retry(&of(MountError::Protocol { address, reason: reason() })));
        let bad = client::Error::from("frobnicate".parse::<MountOptions>().unwrap_err());
        assert!(!bg.may_retry(&Error::Client(bad)));
        let absent = || {
            let (directory, source) = ("/absent/of/course".into(), io::ErrorKind::NotFound.into());
            Error::Mount(mount::Error::Fuse { directory, source })
        };
        assert!(bg.may_retry(&absent()) && !fg.may_retry(&absent()));
    }

    #[test]
    fn the_caller_gets_the_reason_and_for_how_long() {
        let address = ([127, 0, 0, 1], 2049).into();
        let error = of(MountError::Connect { address, source: io::ErrorKind::ConnectionRefused.into() });
        let why = "cannot mount nas:/data: 127.0.0.1:2049 does not accept connections: connection refused";
        let message = |options| policy(options, false).message(&error);
        assert_eq!(message("retry=1"), format!("{why}; trying again, for 1 minute\n"));
        assert_eq!(message("bg"), format!("{why}; trying again in the background, for 10000 minutes\n"));
    }
}
