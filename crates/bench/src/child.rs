//! Waits for a program that this process has started, and ends it after a stop.

use std::io;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::stop::Stop;

/// How often a program is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How long a program may take to end after a signal. The kernel does not let go of a program that
/// waits for a file system without an answer, so that not even SIGKILL ends it.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// How the wait ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The program ended by itself.
    Itself(ExitStatus),
    /// The run is to stop, and the program was ended.
    Stopped,
    /// The time was over, and the program was ended.
    TimedOut,
}

/// Waits until a program ends. After a stop or at the deadline it is sent `signal`, and SIGKILL if
/// that does not end it.
///
/// # Errors
/// If the system cannot say whether the program has ended.
pub(crate) fn wait(
    child: &mut Child,
    stop: &Stop,
    deadline: Option<Instant>,
    signal: Signal,
) -> io::Result<Ended> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Ended::Itself(status));
        }
        let ended = if stop.is_requested() {
            Ended::Stopped
        } else if deadline.is_some_and(|deadline| Instant::now() > deadline) {
            Ended::TimedOut
        } else {
            std::thread::sleep(POLL_INTERVAL);
            continue;
        };
        end(child, signal)?;
        return Ok(ended);
    }
}

fn end(child: &mut Child, signal: Signal) -> io::Result<()> {
    for signal in [signal, Signal::KILL] {
        kill_process(Pid::from_child(child), signal)?;
        let until = Instant::now() + END_TIMEOUT;
        while Instant::now() < until {
            if child.try_wait()?.is_some() {
                return Ok(());
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
    tracing::warn!(process = child.id(), "a program does not end, because the kernel holds it");
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    use super::*;

    fn shell(script: &str) -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap()
    }

    #[test]
    fn a_program_ends_by_itself_after_a_stop_and_at_its_deadline() {
        let stop = Stop::default();
        let ended = wait(&mut shell("exit 3"), &stop, None, Signal::TERM).unwrap();
        assert!(matches!(ended, Ended::Itself(status) if status.code() == Some(3)), "{ended:?}");
        let ended = wait(&mut shell("exec sleep 1000"), &stop, Some(Instant::now()), Signal::TERM).unwrap();
        assert!(matches!(ended, Ended::TimedOut), "{ended:?}");
        stop.request();
        let mut child = shell("exec sleep 1000");
        assert!(matches!(wait(&mut child, &stop, None, Signal::TERM).unwrap(), Ended::Stopped));
        assert!(child.try_wait().unwrap().is_some(), "it has been waited for");
    }

    #[test]
    fn a_program_that_ignores_the_signal_is_killed() {
        let stop = Stop::default();
        let mut child = shell("trap '' TERM; echo ready; exec sleep 1000");
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        stop.request();
        assert!(matches!(wait(&mut child, &stop, None, Signal::TERM).unwrap(), Ended::Stopped));
        assert!(child.try_wait().unwrap().is_some());
    }
}
