//! QEMU's monitor, which changes a running machine.
//!
//! The protocol is QMP: one JSON object per line. The machine sends a greeting, and accepts
//! commands after capabilities were negotiated. Events may arrive between a command and its answer.

use super::Error;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// The time within which even an emulated machine on a busy host answers.
const REPLY_TIMEOUT: Duration = Duration::from_secs(120);

/// The host's end of a machine's monitor.
#[derive(Debug)]
pub(super) struct Monitor {
    stream: BufReader<UnixStream>,
    negotiated: bool,
}

impl Monitor {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self { stream: BufReader::new(stream), negotiated: false }
    }

    /// Takes the carrier off a network interface of the machine, or restores it.
    pub(super) fn set_link(&mut self, interface: &str, up: bool) -> Result<(), Error> {
        self.execute(&json!({ "execute": "set_link", "arguments": { "name": interface, "up": up } }))
    }

    /// Stops the machine's processors and clocks. When this returns, none of them runs.
    pub(super) fn pause(&mut self) -> Result<(), Error> {
        self.execute(&json!({ "execute": "stop" }))
    }

    /// Lets a paused machine go on.
    pub(super) fn resume(&mut self) -> Result<(), Error> {
        self.execute(&json!({ "execute": "cont" }))
    }

    /// Executes a command, after the capabilities that come before the first one.
    fn execute(&mut self, command: &Value) -> Result<(), Error> {
        if !self.negotiated {
            self.exchange(&json!({ "execute": "qmp_capabilities" }))?;
            self.negotiated = true;
        }
        self.exchange(command)
    }

    fn exchange(&mut self, command: &Value) -> Result<(), Error> {
        let io = || Error::io("speak with QEMU's monitor");
        self.stream.get_ref().set_read_timeout(Some(REPLY_TIMEOUT)).map_err(io())?;
        writeln!(self.stream.get_ref(), "{command}").map_err(io())?;
        loop {
            let mut line = String::new();
            if self.stream.read_line(&mut line).map_err(io())? == 0 {
                return Err(Error::Unsupported("QEMU's monitor has closed".into()));
            }
            match answer(&line) {
                Some(Ok(())) => return Ok(()),
                Some(Err(message)) => {
                    return Err(Error::Unsupported(format!("QEMU refuses {command}: {message}")));
                }
                None => {}
            }
        }
    }
}

/// The answer to a command in this line; `None` if the line is a greeting or an event.
fn answer(line: &str) -> Option<Result<(), String>> {
    let message: Value = serde_json::from_str(line).ok()?;
    if message.get("return").is_some() {
        return Some(Ok(()));
    }
    let error = message.get("error")?;
    Some(Err(error.get("desc").and_then(Value::as_str).unwrap_or("without a reason").to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    /// A monitor that sends a greeting, and an event before each answer, and has one interface.
    fn machine(stream: UnixStream) -> Vec<String> {
        let mut answers = stream.try_clone().unwrap();
        writeln!(answers, "{}", json!({ "QMP": { "version": {}, "capabilities": [] } })).unwrap();
        let mut received = Vec::new();
        for line in BufReader::new(stream).lines() {
            let line = line.unwrap();
            writeln!(answers, "{}", json!({ "event": "NIC_RX_FILTER_CHANGED" })).unwrap();
            let answer = if line.contains("\"n9\"") {
                json!({ "error": { "class": "DeviceNotFound", "desc": "Device 'n9' not found" } })
            } else {
                json!({ "return": {} })
            };
            writeln!(answers, "{answer}").unwrap();
            received.push(line);
        }
        received
    }

    #[test]
    fn a_link_is_set_and_a_refusal_is_an_error() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let machine = thread::spawn(|| machine(theirs));
        let mut monitor = Monitor::new(ours);
        monitor.set_link("n2", false).unwrap();
        let refused = monitor.set_link("n9", true).unwrap_err().to_string();
        assert!(refused.contains("Device 'n9' not found"), "{refused}");
        drop(monitor);
        let received = machine.join().unwrap();
        assert_eq!(received.len(), 3, "it is greeted once: {received:?}");
        assert!(received[1].contains("set_link") && received[1].contains("\"up\":false"), "{received:?}");
    }

    #[test]
    fn a_machine_is_paused_and_resumed() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let machine = thread::spawn(|| machine(theirs));
        let mut monitor = Monitor::new(ours);
        monitor.pause().unwrap();
        monitor.resume().unwrap();
        drop(monitor);
        let received = machine.join().unwrap();
        let commands = ["qmp_capabilities", "stop", "cont"];
        let expected = commands.map(|command| json!({ "execute": command }).to_string());
        assert_eq!(received, expected);
    }

    #[test]
    fn a_monitor_that_has_closed_is_an_error() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        theirs.shutdown(std::net::Shutdown::Write).unwrap();
        let gone_error = Monitor::new(ours).set_link("n1", true).unwrap_err().to_string();
        assert!(gone_error.contains("has closed"), "{gone_error}");
    }
}
