//! A process that is being killed waits for no server.
//!
//! The kernel asks with FUSE_INTERRUPT, for any signal. It is answered ENOSYS (`file_system.rs`), and from then
//! on the kernel waits for every request to be answered, even where its process has been killed. So requests that
//! take long are looked at from here: where the thread that made one has SIGKILL pending (any fatal signal becomes
//! that one), the request is answered EINTR. As on a kernel mount of NFS, no other signal interrupts.

use slab::Slab;
use std::future::Future;
use std::io::ErrorKind;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

/// How often requests are looked at, and how old they are then at least.
pub(crate) const TICK: Duration = Duration::from_millis(200);
/// A thread that is ending has no pending signals any more: it may have been killed, or have come to its end by
/// itself with files open, whose data should be on the server when it is gone. Its requests have this long.
const ENDING_PATIENCE: Duration = Duration::from_secs(5);
/// SIGKILL in the mask of pending signals.
const KILL_BIT: u64 = 1 << (libc::SIGKILL - 1);

/// All requests that wait.
#[derive(Debug, Default)]
pub(crate) struct Interrupts {
    waiting: Mutex<Slab<Arc<Waiting>>>,
}

#[derive(Debug)]
struct Waiting {
    thread: u32,
    since: Instant,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    given_up: bool,
    waker: Option<Waker>,
}

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Interrupts {
    fn lock(&self) -> MutexGuard<'_, Slab<Arc<Waiting>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for `work`, or for the end of the thread that asked for it; nothing then.
    pub(crate) async fn guard<T>(&self, thread: u32, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        let mut entry: Option<(usize, Arc<Waiting>)> = None;
        let done = std::future::poll_fn(|context| {
            if let Poll::Ready(done) = work.as_mut().poll(context) {
                return Poll::Ready(Some(done));
            }
            let (_, waiting) = entry.get_or_insert_with(|| {
                let waiting = Arc::new(Waiting { thread, since: Instant::now(), state: Mutex::default() });
                let key = self.lock().insert(Arc::clone(&waiting));
                (key, waiting)
            });
            let mut state = waiting.lock();
            if state.given_up {
                return Poll::Ready(None);
            }
            state.waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
        if let Some((key, _)) = entry {
            self.lock().try_remove(key);
        }
        done
    }

    /// Gives up what killed threads wait for.
    pub(crate) fn tick(&self) {
        let old: Vec<Arc<Waiting>> = self
            .lock()
            .iter()
            .filter(|(_, waiting)| waiting.since.elapsed() >= TICK)
            .map(|(_, waiting)| Arc::clone(waiting))
            .collect();
        for waiting in old {
            if waiting.thread != 0 && has_ended(waiting.thread, waiting.since.elapsed()) {
                let mut state = waiting.lock();
                state.given_up = true;
                let waker = state.waker.take();
                drop(state);
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
        }
    }
}

/// Whether nobody will look at the answer.
fn has_ended(thread: u32, waited: Duration) -> bool {
    match std::fs::read_to_string(format!("/proc/{thread}/status")) {
        Ok(status) => is_killed(&status) || (waited >= ENDING_PATIENCE && is_ending(&status)),
        // What else stands in the way, such as no descriptor left, says nothing of the thread.
        Err(error) => error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH),
    }
}

fn is_killed(status: &str) -> bool {
    status
        .lines()
        .filter_map(|line| line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:")))
        .filter_map(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .any(|mask| mask & KILL_BIT != 0)
}

/// A process gives its memory back before its files.
fn is_ending(status: &str) -> bool {
    !status.lines().any(|line| line.starts_with("VmSize:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sigkill_counts_as_killed() {
        let status = |own: &str, shared: &str| {
            format!("VmSize:\t1 kB\nSigPnd:\t{own}\nShdPnd:\t{shared}\nSigBlk:\t0000000000000100\n")
        };
        assert!(is_killed(&status("0000000000000100", "0000000000000000")));
        assert!(is_killed(&status("0000000000000000", "0000000000000100")));
        assert!(!is_killed(&status("0000000000004000", "0000000000000002")));
        assert!(!is_ending(&status("0", "0")));
        assert!(is_ending("Name:\tx\nState:\tD\n"));
    }

    #[test]
    fn a_request_of_a_thread_that_is_gone_is_given_up() {
        let interrupts = Arc::new(Interrupts::default());
        let (seen, ticking) = (Arc::clone(&interrupts), Arc::clone(&interrupts));
        // No thread has this number: pid_max is 2^22 at most.
        let waiter = std::thread::spawn(move || {
            crate::executor::block_on(seen.guard(u32::MAX, std::future::pending::<()>()))
        });
        while !waiter.is_finished() {
            ticking.tick();
            std::thread::yield_now();
        }
        assert_eq!(waiter.join().unwrap(), None);
        assert!(interrupts.lock().is_empty());
    }
}
