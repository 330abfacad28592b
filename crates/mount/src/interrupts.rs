//! Gives up requests whose process is being killed, so that it does not wait for the server.
//!
//! The kernel sends FUSE_INTERRUPT for a request when its thread has any signal pending: once,
//! whatever signals follow, and without the number of the signal. So FUSE_INTERRUPT only marks the
//! request. A marked request is examined regularly until it is answered. As soon as its thread has
//! SIGKILL pending (the kernel turns every fatal signal into SIGKILL), it is answered EINTR. No
//! other signal interrupts, as on a kernel mount of NFS; except the wait for a lock, which any
//! signal ends.
//!
//! Requests of asynchronous I/O are never marked, because no thread waits for them. They may also
//! outlive the thread that made them, so it is their process that counts. A request that is not
//! marked is examined once, to find its process, and rarely after that. Requests of the kernel's
//! own threads, such as those of a loop device, are never given up.

use slab::Slab;
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

/// How often requests are examined, and how old a request must be to be examined.
pub(crate) const TICK: Duration = Duration::from_millis(200);
/// The time that is left to requests of a process that is ending. Such a process has no pending
/// signals any more, so it is unknown whether it was killed or has exited with files open, whose
/// data should be on the server when it is gone.
const EXIT_GRACE: Duration = Duration::from_secs(5);
/// SIGKILL in the mask of pending signals.
const KILL_BIT: u64 = 1 << (libc::SIGKILL - 1);
/// The flag of a thread that is ending: PF_EXITING in linux/sched.h.
const EXITING_BIT: u64 = 0x4;
/// The flag of a thread of the kernel: PF_KTHREAD in linux/sched.h.
const KERNEL_BIT: u64 = 0x0020_0000;

/// The most marks that are kept of requests that do not wait: those are answered already, or are
/// about to wait.
const EARLY_MARKS_MAX: usize = 256;

/// All requests that wait.
#[derive(Debug, Default)]
pub(crate) struct Interrupts {
    all: Mutex<Requests>,
}

#[derive(Debug, Default)]
struct Requests {
    waiting: Slab<Arc<WaitingRequest>>,
    /// Numbers of requests that were marked and did not wait, oldest first.
    early_marks: VecDeque<u64>,
}

#[derive(Debug)]
struct WaitingRequest {
    /// The kernel's number of the request.
    unique: u64,
    thread: u32,
    since: Instant,
    ends_with: EndsWith,
    state: Mutex<State>,
}

/// Which signals give a request up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndsWith {
    /// Those that end the process.
    FatalSignal,
    /// Any.
    AnySignal,
}

#[derive(Debug, Default)]
struct State {
    /// The thread has a signal pending.
    marked: bool,
    examined_at: Option<Instant>,
    requester: Requester,
    abandoned: bool,
    waker: Option<Waker>,
}

/// The maker of a request.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Requester {
    /// Not examined yet: so far the server has answered in time.
    #[default]
    NotExamined,
    /// This process. The thread may end before it.
    Process(u32),
    /// The kernel, or a thread that was gone when it was examined first. Its process may live.
    Unknown,
}

impl Requester {
    /// The maker of a request, by what was found of its thread.
    fn of(found: &io::Result<Thread>) -> Self {
        match found {
            Ok(thread) if !thread.is_kernel_thread => Self::Process(thread.process),
            _ => Self::Unknown,
        }
    }
}

impl WaitingRequest {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its thread has a signal pending.
    fn mark(&self) {
        self.lock().marked = true;
        if self.ends_with == EndsWith::AnySignal {
            self.give_up();
        }
    }

    fn give_up(&self) {
        let mut state = self.lock();
        state.abandoned = true;
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Whether the request is to be examined now. If so, this counts as the last examination.
    fn is_due(&self, now: Instant) -> bool {
        let since = |then: Instant| now.saturating_duration_since(then);
        let mut state = self.lock();
        let is_due = since(self.since) >= TICK
            && (state.marked || state.examined_at.is_none_or(|then| since(then) >= EXIT_GRACE));
        if is_due {
            state.examined_at = Some(now);
        }
        is_due
    }

    /// Whether no program will see the answer.
    fn is_abandoned(&self) -> bool {
        let requester = self.lock().requester;
        if self.thread == 0 || requester == Requester::Unknown {
            return false;
        }
        let found = Thread::find(self.thread);
        let process = match requester {
            Requester::Process(process) => process,
            _ => {
                let requester = Requester::of(&found);
                self.lock().requester = requester;
                let Requester::Process(process) = requester else { return false };
                process
            }
        };
        match found {
            // The thread has ended, and a thread of another process has its number.
            Ok(thread) if thread.process != process => {}
            Ok(thread) if thread.is_killed => return true,
            Ok(thread) if !thread.is_ending => return false,
            Ok(_) => {}
            Err(error) if !is_gone(&error) => return false,
            Err(_) => {}
        }
        has_ended(process, self.since.elapsed() >= EXIT_GRACE)
    }
}

impl Interrupts {
    fn lock(&self) -> MutexGuard<'_, Requests> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks a request: the kernel has sent FUSE_INTERRUPT for it.
    pub(crate) fn mark(&self, unique: u64) {
        let mut all = self.lock();
        if let Some((_, waiting)) = all.waiting.iter().find(|(_, waiting)| waiting.unique == unique) {
            let waiting = Arc::clone(waiting);
            drop(all);
            waiting.mark();
            return;
        }
        if all.early_marks.len() == EARLY_MARKS_MAX {
            all.early_marks.pop_front();
        }
        all.early_marks.push_back(unique);
    }

    fn begin(&self, (unique, thread): (u64, u32), ends_with: EndsWith) -> (usize, Arc<WaitingRequest>) {
        let mut all = self.lock();
        let early = all.early_marks.iter().position(|marked| *marked == unique);
        if let Some(at) = early {
            all.early_marks.remove(at);
        }
        let state = Mutex::default();
        let waiting = Arc::new(WaitingRequest { unique, thread, since: Instant::now(), ends_with, state });
        if early.is_some() {
            waiting.mark();
        }
        (all.waiting.insert(Arc::clone(&waiting)), waiting)
    }

    /// Waits for `work`. Returns `None` if the request is given up first. The request is its
    /// number, and the thread that made it.
    pub(crate) async fn guard<T>(
        &self,
        request: (u64, u32),
        ends_with: EndsWith,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        let mut work = pin!(work);
        let mut entry: Option<(usize, Arc<WaitingRequest>)> = None;
        let done = std::future::poll_fn(|context| {
            if let Poll::Ready(done) = work.as_mut().poll(context) {
                return Poll::Ready(Some(done));
            }
            let (_, waiting) = entry.get_or_insert_with(|| self.begin(request, ends_with));
            let mut state = waiting.lock();
            if state.abandoned {
                return Poll::Ready(None);
            }
            state.waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
        if let Some((key, _)) = entry {
            self.lock().waiting.try_remove(key);
        }
        done
    }

    /// Examines the requests that are due, and gives up those for which no program waits any more.
    pub(crate) fn tick(&self) {
        let now = Instant::now();
        let due: Vec<Arc<WaitingRequest>> = self
            .lock()
            .waiting
            .iter()
            .filter(|(_, waiting)| waiting.is_due(now))
            .map(|(_, waiting)| Arc::clone(waiting))
            .collect();
        for waiting in due {
            if waiting.is_abandoned() {
                waiting.give_up();
            }
        }
    }
}

/// What proc(5) says about a thread.
#[derive(Debug, PartialEq, Eq)]
struct Thread {
    process: u32,
    is_kernel_thread: bool,
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
        // The second field is the name in brackets, which may contain brackets. The flags are the
        // ninth field.
        let flags: u64 = stat.rsplit(") ").next()?.split_whitespace().nth(6)?.parse().ok()?;
        let process = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()?;
        let is_kernel_thread = flags & KERNEL_BIT != 0;
        let is_ending = flags & EXITING_BIT != 0 && !is_kernel_thread;
        Some(Self { process, is_kernel_thread, is_killed: is_killed(status), is_ending })
    }
}

fn is_killed(status: &str) -> bool {
    status
        .lines()
        .filter_map(|line| line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:")))
        .filter_map(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .any(|mask| mask & KILL_BIT != 0)
}

/// Whether a thread or process is gone. Other errors, such as a lack of descriptors, do not show
/// that.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

/// Whether a process is gone or, once the grace period is over, each of its threads is about to
/// end.
/// The first thread may end long before the others; its entry in /proc stays until they have ended.
fn has_ended(process: u32, grace_is_over: bool) -> bool {
    let threads = match std::fs::read_dir(format!("/proc/{process}/task")) {
        Ok(threads) => threads,
        Err(error) => return is_gone(&error),
    };
    grace_is_over
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

    /// The number of a request.
    const NUMBER: u64 = 7;

    fn status(own: &str, shared: &str) -> String {
        format!(
            "Name:\tx\nTgid:\t71\nPid:\t72\nSigPnd:\t{own}\nShdPnd:\t{shared}\nSigBlk:\t0000000000000100\n"
        )
    }

    fn stat(flags: u64) -> String {
        // A program may give itself such a name.
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
        let living = Thread { process: 71, is_kernel_thread: false, is_killed: false, is_ending: false };
        // The flags of a shell, of a thread that exits, and of kthreadd.
        assert_eq!(parsed(0x0040_0100), living);
        assert_eq!(parsed(0x0040_0104), Thread { is_ending: true, ..living });
        let kernels = Thread { is_kernel_thread: true, ..living };
        assert_eq!(parsed(0x0020_8040), kernels);
        assert_eq!(parsed(0x0020_8044), kernels);
        assert_eq!(Requester::of(&Ok(parsed(0x0020_8040))), Requester::Unknown);
        assert_eq!(Requester::of(&Ok(living)), Requester::Process(71));
        assert_eq!(Thread::parse(&status("0", "0"), "72 (x) R 1"), None);
        assert_eq!(Thread::parse("Name:\tx\n", &stat(0)), None);
    }

    #[test]
    fn a_process_has_ended_when_it_is_gone_or_all_of_it_is_ending() {
        let mut child = Command::new("true").spawn().unwrap();
        // The child has ended and was not waited for, so it still has an entry, as ending.
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
            crate::executor::block_on(interrupts.guard(
                (NUMBER, thread),
                EndsWith::FatalSignal,
                std::future::pending::<()>(),
            ))
        })
    }

    /// When each request was last examined.
    fn examinations(interrupts: &Interrupts) -> Vec<Option<Instant>> {
        interrupts.lock().waiting.iter().map(|(_, waiting)| waiting.lock().examined_at).collect()
    }

    #[test]
    fn a_request_is_examined_once_and_again_and_again_when_it_is_marked() {
        let interrupts = Interrupts::default();
        let mut request = pin!(interrupts.guard(
            (NUMBER, std::process::id()),
            EndsWith::FatalSignal,
            std::future::pending::<()>()
        ));
        let mut context = Context::from_waker(Waker::noop());
        assert!(request.as_mut().poll(&mut context).is_pending());
        tick_until(&interrupts, || examinations(&interrupts) != [None]);
        let first = examinations(&interrupts);
        interrupts.tick();
        interrupts.mark(NUMBER + 1);
        interrupts.tick();
        assert_eq!(examinations(&interrupts), first, "another is marked");
        interrupts.mark(NUMBER);
        tick_until(&interrupts, || examinations(&interrupts) != first);
        assert!(request.as_mut().poll(&mut context).is_pending(), "the process lives");
    }

    #[test]
    fn a_mark_that_comes_before_its_request_waits_counts_and_marks_do_not_pile_up() {
        let interrupts = Interrupts::default();
        (0..2 * EARLY_MARKS_MAX as u64).for_each(|number| interrupts.mark(number));
        assert_eq!(interrupts.lock().early_marks.len(), EARLY_MARKS_MAX);
        let marked = [5, 2 * EARLY_MARKS_MAX as u64 - 1]
            .map(|number| interrupts.begin((number, 1), EndsWith::FatalSignal).1.lock().marked);
        assert_eq!(marked, [false, true]);
        assert_eq!(interrupts.lock().early_marks.len(), EARLY_MARKS_MAX - 1);
    }

    fn tick_until(interrupts: &Interrupts, mut done: impl FnMut() -> bool) {
        while !done() {
            interrupts.tick();
            std::thread::yield_now();
        }
    }

    fn requesters(interrupts: &Interrupts) -> Vec<Requester> {
        interrupts.lock().waiting.iter().map(|(_, waiting)| waiting.lock().requester).collect()
    }

    /// A process that lives until its standard input is closed, or it is killed.
    fn process() -> Child {
        Command::new("cat").stdin(Stdio::piped()).spawn().unwrap()
    }

    #[test]
    fn a_request_is_given_up_when_the_process_that_made_it_is_gone() {
        let interrupts = Arc::new(Interrupts::default());
        let mut process = process();
        let waiter = wait_for_ever(&interrupts, process.id());
        tick_until(&interrupts, || requesters(&interrupts) == [Requester::Process(process.id())]);
        assert!(!waiter.is_finished());
        process.kill().unwrap();
        process.wait().unwrap();
        interrupts.mark(NUMBER);
        tick_until(&interrupts, || waiter.is_finished());
        assert_eq!(waiter.join().unwrap(), None);
        assert!(interrupts.lock().waiting.is_empty());
    }

    #[test]
    fn a_request_outlives_the_thread_that_made_it_as_long_as_its_process_lives() {
        let interrupts = Arc::new(Interrupts::default());
        let (release, wait) = std::sync::mpsc::channel::<()>();
        let (sender, number) = std::sync::mpsc::channel();
        let requesting = std::thread::spawn(move || {
            sender.send(rustix::thread::gettid().as_raw_pid() as u32).unwrap();
            let _ = wait.recv();
        });
        let number = number.recv().unwrap();
        let mut request =
            pin!(interrupts.guard((NUMBER, number), EndsWith::FatalSignal, std::future::pending::<()>()));
        let mut context = Context::from_waker(Waker::noop());
        assert!(request.as_mut().poll(&mut context).is_pending());
        tick_until(&interrupts, || requesters(&interrupts) == [Requester::Process(std::process::id())]);
        drop(release);
        requesting.join().unwrap();
        tick_until(&interrupts, || Thread::find(number).is_err());
        interrupts.tick();
        assert!(request.as_mut().poll(&mut context).is_pending());
    }

    #[test]
    fn a_request_of_an_unknown_thread_is_not_given_up() {
        let interrupts = Interrupts::default();
        // No thread has this number: pid_max is at most 2^22.
        let mut request =
            pin!(interrupts.guard((NUMBER, u32::MAX), EndsWith::FatalSignal, std::future::pending::<()>()));
        let mut context = Context::from_waker(Waker::noop());
        assert!(request.as_mut().poll(&mut context).is_pending());
        tick_until(&interrupts, || requesters(&interrupts) == [Requester::Unknown]);
        interrupts.tick();
        assert!(request.as_mut().poll(&mut context).is_pending());
    }

    #[test]
    fn any_signal_ends_the_wait_for_a_lock_whether_it_comes_before_or_during_it() {
        let interrupts = Interrupts::default();
        let request = (NUMBER, std::process::id());
        let mut context = Context::from_waker(Waker::noop());
        for is_early in [true, false] {
            let mut wait = pin!(interrupts.guard(request, EndsWith::AnySignal, std::future::pending::<()>()));
            if is_early {
                interrupts.mark(NUMBER);
            } else {
                assert!(wait.as_mut().poll(&mut context).is_pending());
                interrupts.mark(NUMBER);
            }
            assert_eq!(wait.as_mut().poll(&mut context), Poll::Ready(None));
        }
        interrupts.mark(NUMBER);
        let mut other = pin!(interrupts.guard(request, EndsWith::FatalSignal, std::future::pending::<()>()));
        assert!(other.as_mut().poll(&mut context).is_pending());
    }
}
