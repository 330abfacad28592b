//! A child process that ends with the test that started it.
//!
//! The child is the leader of its own process group, and the whole group is killed on drop, so a
//! server's own children end too. If the test program itself is killed, the kernel ends the child
//! (`setpriv --pdeathsig`, from util-linux, which every Debian has). That signal depends on the
//! *thread* that spawned the child, and a test's thread ends with the test, so one thread that
//! lives as long as the program spawns all children.

use crate::failure_reporter;
use crate::program::find_program;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, pidfd_open, waitid,
};
use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use crate::Deadline;

/// How long output is read after a child has ended. Its own output is there at once, but a
/// grandchild that keeps the streams open could do so for ever.
const OUTPUT_AFTER_END: Duration = Duration::from_secs(20);

/// The stream of a line of output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// The lines that a child has printed so far.
#[derive(Debug, Default)]
struct Output {
    lines: Vec<(Stream, String)>,
    open_streams: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Shared {
    output: Mutex<Output>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Output> {
        self.output.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn all_output(&self) -> String {
        text(&self.lock(), None)
    }
}

/// A running child; killed with its whole group when dropped.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    shared: Arc<Shared>,
    status: Option<ExitStatus>,
    /// Whether this program has killed the child.
    killed: Arc<AtomicBool>,
}

impl Process {
    /// Starts a program with captured output and no input. The command's arguments, directory and
    /// variables are kept; its `env_clear` is not.
    ///
    /// # Panics
    /// If the program cannot be started.
    #[must_use]
    #[track_caller]
    pub fn spawn(command: Command) -> Self {
        let name = command.get_program().to_string_lossy().into_owned();
        let mut command = ending_with_us(command);
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = match spawn_on_permanent_thread(command) {
            Ok(child) => child,
            Err(error) => panic!("cannot start {name}: {error}"),
        };
        let shared = Arc::new(Shared::default());
        failure_reporter::started(&name, child.id(), Arc::downgrade(&shared));
        if let Some(out) = child.stdout.take() {
            collect(&shared, Stream::Out, out);
        }
        if let Some(err) = child.stderr.take() {
            collect(&shared, Stream::Err, err);
        }
        Self { name, child, shared, status: None, killed: Arc::default() }
    }

    /// Calls `report` on another thread if the child ends before it is killed: a test that waits
    /// for an answer of a dead server could otherwise wait for ever.
    ///
    /// # Panics
    /// If the kernel cannot watch processes (Linux before 5.4).
    pub fn on_early_end(&self, report: impl FnOnce() + Send + 'static) {
        let pidfd = pidfd_open(Pid::from_child(&self.child), PidfdFlags::empty());
        let pidfd = pidfd.expect("a process that has not been waited for");
        let killed = Arc::clone(&self.killed);
        thread::spawn(move || {
            // The child stays a zombie for `try_wait`, which asks for its status.
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            while let Err(rustix::io::Errno::INTR) = waitid(WaitId::PidFd(pidfd.as_fd()), options) {}
            if !killed.load(Ordering::Acquire) {
                report();
            }
        });
    }

    /// The child's process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the first line that contains `part`, on either stream, and returns the line.
    ///
    /// # Panics
    /// If the time is over, or the child closes its output before; the message has all of the
    /// output.
    #[track_caller]
    pub fn wait_for_line(&self, part: &str, within: Duration) -> String {
        match self.line(&format!("{part:?}"), |line| line.contains(part), within) {
            Ok(line) => line,
            Err(output) => panic!("{output}"),
        }
    }

    /// Waits for the first line for which `matches` returns true, on either stream. Otherwise
    /// returns why there is no such line, with all output. `what` names the line.
    ///
    /// # Errors
    /// If the time is over, or the child closes its output before.
    pub fn line(
        &self,
        what: &str,
        matches: impl Fn(&str) -> bool,
        within: Duration,
    ) -> Result<String, String> {
        let deadline = Deadline::after(within);
        let mut seen = 0;
        let mut output = self.shared.lock();
        loop {
            if let Some((_, line)) = output.lines.iter().skip(seen).find(|(_, line)| matches(line)) {
                return Ok(line.clone());
            }
            seen = output.lines.len();
            let why = match deadline.left() {
                Some(_) if output.open_streams == 0 => "ended without",
                Some(left) => {
                    let waited = self.shared.changed.wait_timeout(output, left);
                    output = waited.unwrap_or_else(PoisonError::into_inner).0;
                    continue;
                }
                None => "was too slow in",
            };
            let output = text(&output, None);
            return Err(format!("{} {why} printing {what} within {within:?}; it said:\n{output}", self.name));
        }
    }

    /// All output on one stream so far.
    #[must_use]
    pub fn output(&self, stream: Stream) -> String {
        text(&self.shared.lock(), Some(stream))
    }

    /// All output on both streams so far, in the order in which it was read.
    #[must_use]
    pub fn all_output(&self) -> String {
        self.shared.all_output()
    }

    /// Sends a signal to the child only.
    pub fn signal(&self, signal: Signal) {
        if self.status.is_none() {
            // An error means that the child is gone, which the next wait reports.
            let _ = kill_process(Pid::from_child(&self.child), signal);
        }
    }

    /// Whether the child has not ended yet.
    ///
    /// # Panics
    /// If the system does not report the state.
    pub fn is_running(&mut self) -> bool {
        self.poll().is_none()
    }

    /// Waits for the child to end by itself, and for the end of its output.
    ///
    /// # Panics
    /// If the time is over; the message has all of the output.
    #[track_caller]
    pub fn wait(&mut self, within: Duration) -> ExitStatus {
        self.wait_at_most(within).unwrap_or_else(|| {
            panic!("{} has not ended within {within:?}; it said:\n{}", self.name, self.all_output())
        })
    }

    /// The same; `None` if the time is over.
    ///
    /// # Panics
    /// If the system does not report the child's state.
    pub fn wait_at_most(&mut self, within: Duration) -> Option<ExitStatus> {
        let deadline = Deadline::after(within);
        loop {
            if let Some(status) = self.poll() {
                self.wait_for_end_of_output();
                return Some(status);
            }
            deadline.left()?;
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Sends SIGTERM to the child, and waits for its end.
    ///
    /// # Panics
    /// If the time is over.
    #[track_caller]
    pub fn terminate(&mut self, within: Duration) -> ExitStatus {
        self.signal(Signal::TERM);
        self.wait(within)
    }

    /// Kills the child and its group at once.
    pub fn kill(&mut self) {
        self.killed.store(true, Ordering::Release);
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        if self.status.is_none() {
            self.status = self.child.wait().ok();
        }
    }

    fn poll(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            self.status = match self.child.try_wait() {
                Ok(status) => status,
                Err(error) => panic!("cannot wait for {}: {error}", self.name),
            };
        }
        self.status
    }

    fn wait_for_end_of_output(&self) {
        let deadline = Deadline::after(OUTPUT_AFTER_END);
        let mut output = self.shared.lock();
        while output.open_streams > 0 {
            let Some(left) = deadline.left() else { return };
            let waited = self.shared.changed.wait_timeout(output, left);
            output = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("--- output of {} ---\n{}---", self.name, self.all_output());
        }
        self.kill();
    }
}

/// The same command, to be ended by the kernel when this program ends.
fn ending_with_us(command: Command) -> Command {
    let Some(setpriv) = find_program("setpriv") else { return command };
    if find_program(&command.get_program().to_string_lossy()).is_none()
        && !std::path::Path::new(command.get_program()).exists()
    {
        // The command is unchanged, so that the error is the system's own and not setpriv's.
        return command;
    }
    let mut wrapped = Command::new(setpriv);
    wrapped.args(["--pdeathsig", "KILL", "--"]).arg(command.get_program()).args(command.get_args());
    for (key, value) in command.get_envs() {
        match value {
            Some(value) => wrapped.env(key, value),
            None => wrapped.env_remove(key),
        };
    }
    if let Some(directory) = command.get_current_dir() {
        wrapped.current_dir(directory);
    }
    wrapped
}

type SpawnRequest = (Command, Sender<std::io::Result<Child>>);

fn spawn_on_permanent_thread(command: Command) -> std::io::Result<Child> {
    static REQUESTS: OnceLock<Sender<SpawnRequest>> = OnceLock::new();
    let requests = REQUESTS.get_or_init(|| {
        let (requests, inbox) = channel::<SpawnRequest>();
        thread::spawn(move || {
            for (mut command, answer) in inbox {
                // The requesting thread waits for the answer. If it is gone, the child is not
                // needed and killed.
                if let Err(unheard) = answer.send(command.spawn())
                    && let Ok(mut child) = unheard.0
                {
                    let _ = child.kill();
                }
            }
        });
        requests
    });
    let (answer, answered) = channel();
    let gone = |_| std::io::Error::other("the spawning thread is gone");
    requests.send((command, answer)).map_err(|_| gone(()))?;
    answered.recv().map_err(|_| gone(()))?
}

fn collect(shared: &Arc<Shared>, stream: Stream, from: impl Read + Send + 'static) {
    shared.lock().open_streams += 1;
    let shared = Arc::clone(shared);
    thread::spawn(move || {
        let mut from = BufReader::new(from);
        let mut line = Vec::new();
        while matches!(from.read_until(b'\n', &mut line), Ok(read) if read > 0) {
            let whole = String::from_utf8_lossy(&line).trim_end_matches('\n').to_owned();
            shared.lock().lines.push((stream, whole));
            shared.changed.notify_all();
            line.clear();
        }
        shared.lock().open_streams -= 1;
        shared.changed.notify_all();
    });
}

fn text(output: &Output, stream: Option<Stream>) -> String {
    let wanted = output.lines.iter().filter(|(from, _)| stream.is_none_or(|stream| *from == stream));
    wanted.fold(String::new(), |mut text, (_, line)| {
        text.push_str(line);
        text.push('\n');
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(60);

    fn shell(script: &str) -> Process {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Process::spawn(command)
    }

    #[test]
    fn an_end_is_reported_unless_the_child_was_killed() {
        let (sender, reports) = channel();
        let both = sender.clone();
        let _ended = {
            let process = shell("read line; exit 3");
            process.on_early_end(move || sender.send("ended").unwrap());
            process
        };
        assert_eq!(reports.recv_timeout(TIMEOUT), Ok("ended"));
        let mut killed = shell("exec sleep infinity");
        killed.on_early_end(move || both.send("killed").unwrap());
        killed.kill();
        // Both senders are gone, and nothing more was sent.
        assert_eq!(reports.recv_timeout(TIMEOUT), Err(std::sync::mpsc::RecvTimeoutError::Disconnected));
    }

    #[test]
    fn a_line_is_waited_for_and_output_is_kept() {
        let mut process = shell("echo ready; echo oops >&2; exit 3");
        assert_eq!(process.wait_for_line("rea", TIMEOUT), "ready");
        assert_eq!(process.wait(TIMEOUT).code(), Some(3));
        assert_eq!(process.output(Stream::Out), "ready\n");
        assert_eq!(process.output(Stream::Err), "oops\n");
    }

    #[test]
    fn dropping_ends_the_whole_group() {
        let process = shell("sleep 1000 & echo child $!; wait");
        let line = process.wait_for_line("child", TIMEOUT);
        let grandchild = line.trim_start_matches("child ").to_owned();
        drop(process);
        Deadline::wait_until("the grandchild's end", TIMEOUT, || {
            let state = std::fs::read_to_string(format!("/proc/{grandchild}/stat"));
            state.map_or(true, |state| state.contains(") Z ")).then_some(())
        });
    }

    #[test]
    fn a_polite_end_is_told_by_its_signal() {
        use std::os::unix::process::ExitStatusExt;
        let mut process = shell("echo up; exec sleep 1000");
        process.wait_for_line("up", TIMEOUT);
        assert!(process.is_running());
        assert_eq!(process.terminate(TIMEOUT).signal(), Some(Signal::TERM.as_raw()));
    }

    #[test]
    #[should_panic(expected = "ended without printing")]
    fn a_child_that_ends_early_is_not_waited_for() {
        shell("echo something else").wait_for_line("ready", TIMEOUT);
    }
}
