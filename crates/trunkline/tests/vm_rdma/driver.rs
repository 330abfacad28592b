//! A test in the guest `client` that is driven from outside by lines. Each line names a condition,
//! and is answered when the condition holds.

use crate::pair::{TIMEOUT, pair, state_of};
use lab::vm::{Event, Running};
use rustix::process::Signal;
use std::process::Command;
use std::time::Instant;

/// The client as seen from outside; killed when dropped.
pub struct Driver {
    running: Running,
    said: String,
}

impl Driver {
    /// Runs a command in the guest `client`, and waits until its load has begun.
    #[track_caller]
    pub fn start(command: &Command) -> Self {
        let running = pair().client().spawn(command).expect("the guest runs");
        let mut this = Self { running, said: String::new() };
        this.wait_for_answer("under load");
        this
    }

    /// Sends a line and waits until its condition holds.
    #[track_caller]
    pub fn send_command(&mut self, line: &str) {
        self.running.input(format!("{line}\n").as_bytes());
        self.wait_for_answer(&format!("done: {line}"));
    }

    /// Ends the load; the test must have passed in the guest.
    #[track_caller]
    pub fn end(mut self) {
        self.send_command("end");
        let status = self.running.wait(|event| self.said.push_str(&text(&event))).expect("the guest runs");
        assert!(status.success() && self.said.contains("1 passed"), "{status}: {}", self.said);
    }

    /// Kills the client at once.
    pub fn kill(mut self) {
        self.running.signal(Signal::KILL);
        let _ = self.running.wait(drop);
    }

    #[track_caller]
    fn wait_for_answer(&mut self, line: &str) {
        let began = Instant::now();
        // Text after the line is kept: it may contain the next expected line.
        let after = |said: &str| {
            let said = format!("\n{said}");
            said.split_once(&format!("\n{line}\n")).map(|(_, rest)| rest.to_owned())
        };
        loop {
            if let Some(rest) = after(&self.said) {
                self.said = rest;
                return;
            }
            match self.running.next_within(TIMEOUT.saturating_sub(began.elapsed())) {
                Ok(Some(event)) => self.said.push_str(&text(&event)),
                other => {
                    let [ours, theirs] = [pair().client(), pair().server()].map(state_of);
                    panic!(
                        "waited for {line:?}: {other:?}\n{}\nclient:\n{ours}\nserver:\n{theirs}",
                        self.said
                    );
                }
            }
        }
    }
}

fn text(event: &Event) -> String {
    let (Event::Out(bytes) | Event::Err(bytes)) = event;
    let text = String::from_utf8_lossy(bytes).into_owned();
    print!("{text}");
    text
}
