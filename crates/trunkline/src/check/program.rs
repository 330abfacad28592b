//! Runs a program of the system for its output, with a deadline.

use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Longer than any of these programs needs, unless it hangs on a device.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How often the end of a program is looked for.
const POLL: Duration = Duration::from_millis(5);
/// No output of these programs is longer.
const OUTPUT_BYTES_MAX: u64 = 4 << 20;

/// What a program printed and whether it succeeded, or why it did not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    pub succeeded: bool,
    pub stdout: String,
    pub stderr: String,
}

/// Runs a program.
pub fn run(words: &[&str]) -> Result<Output, String> {
    let Some((program, args)) = words.split_first() else { return Err("no program".to_owned()) };
    let mut command = Command::new(program);
    // Programs for administrators are often not on the path of users.
    let path = std::env::var("PATH").unwrap_or_default();
    command.args(args).env("PATH", format!("{path}:/usr/sbin:/sbin")).env("LC_ALL", "C");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => format!("{program} is not installed"),
        _ => format!("{program}: {error}"),
    })?;
    let (stdout, stderr) = (receive(child.stdout.take()), receive(child.stderr.take()));
    let deadline = Instant::now() + TIMEOUT;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < deadline => std::thread::sleep(POLL),
            Ok(None) => {
                // Nobody waits for it: in a call to a device that hangs it does not end even now.
                let _ = child.kill();
                return Err(format!("{program} did not end within {} s", TIMEOUT.as_secs()));
            }
            Err(error) => return Err(format!("{program}: {error}")),
        }
    };
    // A child of the program may keep its output open.
    let text = |output: Receiver<String>| output.recv_timeout(TIMEOUT).unwrap_or_default();
    Ok(Output { succeeded: status.success(), stdout: text(stdout), stderr: text(stderr) })
}

/// Reads a pipe to its end, on a thread of its own.
fn receive(pipe: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(pipe) = pipe {
            // What was read before an error counts.
            let _ = pipe.take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes);
        }
        // Nobody may wait any more.
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_and_success_are_told() {
        let output = run(&["sh", "-c", "echo out; echo err >&2; exit 3"]).unwrap();
        assert_eq!((output.succeeded, &*output.stdout, &*output.stderr), (false, "out\n", "err\n"));
        assert_eq!(run(&["no-such-program-here"]), Err("no-such-program-here is not installed".to_owned()));
    }
}
