//! A process that is being killed waits for no server.
//!
//! The kernel asks with FUSE_INTERRUPT, for any signal. It is answered ENOSYS (`file_system.rs`), and from then
//! on the kernel waits for every request to be answered, even where its process has been killed. So requests that
//! take long are looked at from here: where the thread that made one has SIGKILL pending (any fatal signal becomes
//! that one), the request is answered EINTR. As on a kernel mount of NFS, no other signal interrupts.
//!
//! Asynchronous I/O may outlive the thread that began it: then it is its process that counts. What a thread of the
//! kernel's asks for, such as a loop device's, is never given up.

use slab::Slab;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

/// How often requests are looked at, and how old they are then at least.
pub(crate) const TICK: Duration = Duration::from_millis(200);
/// A process that is ending has no pending signals any more: it may have been killed, or have come to its end by
/// itself with files open, whose data should be on the server when it is gone. Its requests have this long.
const ENDING_PATIENCE: Duration = Duration::from_secs(5);
/// SIGKILL in the mask of pending signals.
const KILL_BIT: u64 = 1 << (libc::SIGKILL - 1);
/// In a thread's flags: it is ending. PF_EXITING in linux/sched.h, as the next one
const EXITING_BIT: u64 = 0x4;
/// In a thread's flags: it is the kernel's own. PF_KTHREAD
const KERNEL_BIT: u64 = 0x0020_0000;

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
    asker: Asker,
    given_up: bool,
    waker: Option<Waker>,
}

/// Whose thread it is that made a request.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Asker {
    /// Nobody has looked yet: the server has answered in time so far.
    #[default]
    NotLookedAt,
    /// This process's. The thread may end before it.
    Process(u32),
    /// The kernel's, or one that was gone when it was first looked for, whose process may live.
    Unknown,
}

impl Asker {
    /// Of a thread, by what was found of it.
    fn of(found: &io::Result<Thread>) -> Self {
        match found {
            Ok(thread) if !thread.is_kernels => Self::Process(thread.process),
            _ => Self::Unknown,
        }
    }
}

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nobody will look at the answer.
    fn is_for_nobody(&self) -> bool {
        let asker = self.lock().asker;
        if self.thread == 0 || asker == Asker::Unknown {
            return false;
        }
        let found = Thread::find(self.thread);
        let process = match asker {
            Asker::Process(process) => process,
            _ => {
                let asker = Asker::of(&found);
                self.lock().asker = asker;
                let Asker::Process(process) = asker else { return false };
                process
            }
        };
        match found {
            // Another process's thread has the number by now.
            Ok(thread) if thread.process != process => {}
            Ok(thread) if thread.is_killed => return true,
            Ok(thread) if !thread.is_ending => return false,
            Ok(_) => {}
            Err(error) if !is_gone(&error) => return false,
            Err(_) => {}
        }
        has_ended(process, self.since.elapsed() >= ENDING_PATIENCE)
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
            if waiting.is_for_nobody() {
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

/// What proc(5) tells of a thread.
#[derive(Debug, PartialEq, Eq)]
struct Thread {
    process: u32,
    is_kernels: bool,
    is_killed: bool,
    is_ending: bool,
}

impl Thread {
    fn find(thread: u32) -> io::Result<Self> {
        let read = |name: &str| std::fs::read_to_string(format!("/proc/{thread}/{name}"));
        let (status, stat) = (read("status")?, read("stat")?);
        Self::parse(&status, &stat).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    fn parse(status: &str, stat: &str) -> Option<Self> {
        // The name is the second field, in brackets, and may have brackets in it. The flags are the ninth.
        let flags: u64 = stat.rsplit(") ").next()?.split_whitespace().nth(6)?.parse().ok()?;
        let process = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()?;
        let is_kernels = flags & KERNEL_BIT != 0;
        let is_ending = flags & EXITING_BIT != 0 && !is_kernels;
        Some(Self { process, is_kernels, is_killed: is_killed(status), is_ending })
    }
}

fn is_killed(status: &str) -> bool {
    status
        .lines()
        .filter_map(|line| line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:")))
        .filter_map(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .any(|mask| mask & KILL_BIT != 0)
}

/// What else stands in the way, such as no descriptor left, says nothing of a thread.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

/// Whether a process is gone, or, if there was patience enough, each of its threads is about to be. Its first thread may
/// end long before the others, and its number is there until they have.
fn has_ended(process: u32, patience_is_over: bool) -> bool {
    let threads = match std::fs::read_dir(format!("/proc/{process}/task")) {
        Ok(threads) => threads,
        Err(error) => return is_gone(&error),
    };
    patience_is_over
        && threads.into_iter().all(|entry| {
            let number = entry.ok().and_then(|entry| entry.file_name().to_str()?.parse().ok());
            number.is_some_and(|number| match Thread::find(number) {
                Ok(thread) => thread.is_killed || thread.is_ending,
                Err(error) => is_gone(&error),
            })
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};
    use std::task::Context;

    fn status(own: &str, shared: &str) -> String {
        format!(
            "Name:\tx\nTgid:\t71\nPid:\t72\nSigPnd:\t{own}\nShdPnd:\t{shared}\nSigBlk:\t0000000000000100\n"
        )
    }

    fn stat(flags: u64) -> String {
        // A name that a program may give itself.
        format!("72 (a) R 1 (b) S 71 71 71 0 -1 {flags} 103 0 0 0 0 0\n")
    }

    #[test]
    fn only_sigkill_counts_as_killed() {
        assert!(is_killed(&status("0000000000000100", "0000000000000000")));
        assert!(is_killed(&status("0000000000000000", "0000000000000100")));
        assert!(!is_killed(&status("0000000000004000", "0000000000000002")));
    }

    #[test]
    fn a_thread_is_ending_by_its_flags_unless_it_is_the_kernels() {
        let parsed = |flags| Thread::parse(&status("0", "0"), &stat(flags)).unwrap();
        let living = Thread { process: 71, is_kernels: false, is_killed: false, is_ending: false };
        // As a shell, one that exits, and kthreadd have them.
        assert_eq!(parsed(0x0040_0100), living);
        assert_eq!(parsed(0x0040_0104), Thread { is_ending: true, ..living });
        let kernels = Thread { is_kernels: true, ..living };
        assert_eq!(parsed(0x0020_8040), kernels);
        assert_eq!(parsed(0x0020_8044), kernels);
        assert_eq!(Asker::of(&Ok(parsed(0x0020_8040))), Asker::Unknown);
        assert_eq!(Asker::of(&Ok(living)), Asker::Process(71));
        assert_eq!(Thread::parse(&status("0", "0"), "72 (x) R 1"), None);
        assert_eq!(Thread::parse("Name:\tx\n", &stat(0)), None);
    }

    #[test]
    fn a_process_has_ended_when_it_is_gone_or_all_of_it_is_ending() {
        let mut child = Command::new("true").spawn().unwrap();
        // It has ended and was not waited for: there it is still, ending.
        while !Thread::find(child.id()).unwrap().is_ending {
            std::thread::yield_now();
        }
        assert!(!has_ended(child.id(), false));
        assert!(has_ended(child.id(), true));
        child.wait().unwrap();
        assert!(has_ended(child.id(), false));
        assert!(!has_ended(std::process::id(), true));
    }

    /// Waits for a request of this thread until it is given up.
    fn wait_for_ever(interrupts: &Arc<Interrupts>, thread: u32) -> std::thread::JoinHandle<Option<()>> {
        let interrupts = Arc::clone(interrupts);
        std::thread::spawn(move || {
            crate::executor::block_on(interrupts.guard(thread, std::future::pending::<()>()))
        })
    }

    fn tick_until(interrupts: &Interrupts, mut done: impl FnMut() -> bool) {
        while !done() {
            interrupts.tick();
            std::thread::yield_now();
        }
    }

    fn askers(interrupts: &Interrupts) -> Vec<Asker> {
        interrupts.lock().iter().map(|(_, waiting)| waiting.lock().asker).collect()
    }

    /// Lives as long as what is given here, and no longer.
    fn process() -> Child {
        Command::new("cat").stdin(Stdio::piped()).spawn().unwrap()
    }

    #[test]
    fn a_request_is_given_up_when_the_process_that_made_it_is_gone() {
        let interrupts = Arc::new(Interrupts::default());
        let mut process = process();
        let waiter = wait_for_ever(&interrupts, process.id());
        tick_until(&interrupts, || askers(&interrupts) == [Asker::Process(process.id())]);
        assert!(!waiter.is_finished());
        process.kill().unwrap();
        process.wait().unwrap();
        tick_until(&interrupts, || waiter.is_finished());
        assert_eq!(waiter.join().unwrap(), None);
        assert!(interrupts.lock().is_empty());
    }

    #[test]
    fn a_request_outlives_the_thread_that_made_it_as_long_as_its_process_lives() {
        let interrupts = Arc::new(Interrupts::default());
        let (told, wait) = std::sync::mpsc::channel::<()>();
        let (tell, number) = std::sync::mpsc::channel();
        let asking = std::thread::spawn(move || {
            tell.send(rustix::thread::gettid().as_raw_pid() as u32).unwrap();
            let _ = wait.recv();
        });
        let number = number.recv().unwrap();
        let mut request = pin!(interrupts.guard(number, std::future::pending::<()>()));
        let mut context = Context::from_waker(Waker::noop());
        assert!(request.as_mut().poll(&mut context).is_pending());
        tick_until(&interrupts, || askers(&interrupts) == [Asker::Process(std::process::id())]);
        drop(told);
        asking.join().unwrap();
        tick_until(&interrupts, || Thread::find(number).is_err());
        interrupts.tick();
        assert!(request.as_mut().poll(&mut context).is_pending());
    }

    #[test]
    fn a_request_of_a_thread_that_nobody_has_ever_seen_is_not_given_up() {
        let interrupts = Interrupts::default();
        // No thread has this number: pid_max is 2^22 at most.
        let mut request = pin!(interrupts.guard(u32::MAX, std::future::pending::<()>()));
        let mut context = Context::from_waker(Waker::noop());
        assert!(request.as_mut().poll(&mut context).is_pending());
        tick_until(&interrupts, || askers(&interrupts) == [Asker::Unknown]);
        interrupts.tick();
        assert!(request.as_mut().poll(&mut context).is_pending());
    }
}
