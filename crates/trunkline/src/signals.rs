//! The signals that end a command early: the first stops it in an orderly way.

use crate::error::Error;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread::JoinHandle;

/// Waits for SIGINT and SIGTERM: the first stops the work in an orderly way, the second ends the
/// program at once.
pub struct SignalWatch {
    handle: Handle,
    thread: JoinHandle<()>,
    seen: Arc<AtomicI32>,
}

impl SignalWatch {
    /// Starts to wait; `stop` is called at the first signal.
    pub fn start(stop: impl Fn() + Send + 'static) -> Result<Self, Error> {
        let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(Error::Signals)?;
        let (handle, seen) = (signals.handle(), Arc::new(AtomicI32::new(0)));
        let first = Arc::clone(&seen);
        let thread = std::thread::Builder::new()
            .name("tl-signals".to_owned())
            .spawn(move || {
                for signal in &mut signals {
                    if first.swap(signal, Ordering::SeqCst) != 0 {
                        std::process::exit(128 + signal);
                    }
                    tracing::warn!("stopping; a second signal ends it at once");
                    stop();
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
