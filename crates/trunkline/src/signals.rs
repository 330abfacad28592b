//! The signals that end a command early: the first stops it in an orderly way.

use crate::error::Error;
use crate::output;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread::JoinHandle;

/// Waits for signals: the first stops the work in an orderly way, the second ends the program at
/// once.
pub struct SignalWatch {
    handle: Handle,
    thread: JoinHandle<()>,
    seen: Arc<AtomicI32>,
}

impl SignalWatch {
    /// Starts to wait for SIGINT and SIGTERM; `stop` is called at the first signal.
    pub fn start(stop: impl Fn() + Send + 'static) -> Result<Self, Error> {
        Self::start_for(&[SIGINT, SIGTERM], stop, |_| String::new())
    }

    /// Starts to wait for SIGINT, SIGTERM and, unless who started the program has it ignored
    /// (`nohup`), SIGHUP: the terminal is closed. Before the second signal ends the program,
    /// `last_words` of it are printed to standard error.
    pub fn with_hangup(
        stop: impl Fn() + Send + 'static,
        last_words: impl Fn(i32) -> String + Send + 'static,
    ) -> Result<Self, Error> {
        let all = [SIGINT, SIGTERM, SIGHUP];
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let signals = if is_ignored(&status, SIGHUP) { &all[..2] } else { &all[..] };
        Self::start_for(signals, stop, last_words)
    }

    fn start_for(
        signals: &[i32],
        stop: impl Fn() + Send + 'static,
        last_words: impl Fn(i32) -> String + Send + 'static,
    ) -> Result<Self, Error> {
        let mut signals = Signals::new(signals).map_err(Error::Signals)?;
        let (handle, seen) = (signals.handle(), Arc::new(AtomicI32::new(0)));
        let first = Arc::clone(&seen);
        let thread = std::thread::Builder::new()
            .name("tl-signals".to_owned())
            .spawn(move || {
                for signal in &mut signals {
                    if first.swap(signal, Ordering::SeqCst) != 0 {
                        output::print_to_stderr_unlocked(&last_words(signal));
                        std::process::exit(128 + signal);
                    }
                    stop();
                    tracing::warn!("stopping; a second signal ends it at once");
                }
            })
            .map_err(Error::Signals)?;
        Ok(Self { handle, thread, seen })
    }

    /// Stops waiting; returns the signal received, or 0.
    pub fn end(self) -> i32 {
        self.handle.close();
        // The thread ends with its signals; a panic in it has already been reported.
        let _ = self.thread.join();
        self.seen.load(Ordering::SeqCst)
    }
}

/// Whether a process with this `/proc/PID/status` ignores a signal. proc_pid_status(5)
fn is_ignored(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    mask >> (signal - 1) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_status() {
        let status = "Name:\tx\nSigBlk:\t0000000000000001\nSigIgn:\t0000000000001000\n";
        assert!(!is_ignored(status, SIGHUP) && is_ignored(status, 13));
        assert!(is_ignored("SigIgn:\t0000000000000001\n", SIGHUP));
        assert!(!is_ignored("", SIGHUP) && !is_ignored("SigIgn:\tnone\n", SIGHUP));
    }
}
