//! A lab around a command: what `trunkline lab vm` does.

use super::guest::{Remote, Running, show};
use super::{Error, Event, Spec, Vm};
use rustix::process::Signal;
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::Read;
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// How long a server in a guest may take until it says `ready`.
const READY_WITHIN: Duration = Duration::from_secs(300);

/// A terminal of which nothing is known.
const TERMINAL: (u16, u16) = (24, 80);

/// What to do in a lab.
#[derive(Debug)]
pub enum Work {
    /// Run this, with our standard streams.
    Command(Command),
    /// A shell for a person, on our terminal.
    Shell,
}

/// Boots the guests, runs the work in the client, ends the guests, and gives how it ended.
///
/// `serve`, where given, is a shell command line that runs beside it in the server (the same guest
/// where there is one) and must print a line that begins with `ready` first.
///
/// Signals (interrupt, terminate, hang-up) end the command, and with it the lab: the first asks,
/// the second kills.
///
/// # Errors
/// A lab that does not start, a command that cannot be started, a server that is not ready in time,
/// no terminal for a shell.
pub fn run(spec: &Spec, serve: Option<&str>, work: &Work) -> Result<ExitStatus, Error> {
    if matches!(work, Work::Shell) && !isatty(std::io::stdin()) {
        return Err(Error::Misuse("a shell needs a terminal as its standard input".to_owned()));
    }
    let stop = Arc::new(Stop::default());
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(Error::io("catch signals"))?;
    let (watched, handle) = (Arc::clone(&stop), signals.handle());
    let watcher = thread::spawn(move || signals.forever().for_each(|_| watched.signal()));
    let outcome = run_until(spec, serve, work, &stop);
    handle.close();
    // It only waits for the handle.
    let _ = watcher.join();
    outcome
}

fn run_until(spec: &Spec, serve: Option<&str>, work: &Work, stop: &Stop) -> Result<ExitStatus, Error> {
    let vm = Vm::start_unless(spec, &stop.asked)?;
    // Dropped before the lab, and ended with it.
    let _server = serve.map(|line| start_server(&vm, line)).transpose()?;
    let status = match work {
        Work::Command(command) => attend(vm.client().spawn(command)?, stop),
        Work::Shell => on_our_terminal(&vm, stop),
    };
    status.map_err(|error| if matches!(error, Error::Gone { .. }) { vm.client().gone() } else { error })
}

/// What signals do: ask the lab not to start, or its command to end.
#[derive(Debug, Default)]
struct Stop {
    asked: AtomicBool,
    command: Mutex<Option<Remote>>,
}

impl Stop {
    fn signal(&self) {
        let again = self.asked.swap(true, Ordering::Relaxed);
        if let Some(command) = &*self.command.lock().unwrap_or_else(PoisonError::into_inner) {
            command.signal(if again { Signal::KILL } else { Signal::TERM });
        }
    }

    /// From now on signals are for this command. One that came before is delivered.
    fn watch(&self, command: Remote) {
        let mut watched = self.command.lock().unwrap_or_else(PoisonError::into_inner);
        if self.asked.load(Ordering::Relaxed) {
            command.signal(Signal::TERM);
        }
        *watched = Some(command);
    }
}

/// Streams a command's output to ours and our input to it.
fn attend(mut running: Running, stop: &Stop) -> Result<ExitStatus, Error> {
    stop.watch(running.remote());
    pass_input(running.remote());
    running.wait(|event| show(&event))
}

/// Our standard input, until its end. The thread is left alone with what may be an endless wait.
fn pass_input(command: Remote) {
    thread::spawn(move || {
        let mut piece = [0; 4096];
        let mut input = std::io::stdin().lock();
        while let Ok(count @ 1..) = input.read(&mut piece) {
            if command.input(piece.get(..count).unwrap_or_default()).is_err() {
                return;
            }
        }
        command.end_input();
    });
}

/// Starts the server's command line and waits until it is ready; from then on its output goes to
/// standard error.
fn start_server(vm: &Vm, line: &str) -> Result<thread::JoinHandle<()>, Error> {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", line]);
    let mut running = vm.server().spawn(&shell)?;
    running.end_input();
    let said = running.wait_for_line("ready", READY_WITHIN)?;
    eprint!("{said}");
    Ok(thread::spawn(move || {
        // It ends with its guest.
        let _ = running.wait(|event| match event {
            Event::Out(bytes) | Event::Err(bytes) => show(&Event::Err(bytes)),
        });
    }))
}

/// A shell whose terminal in the guest is as large as ours; ours passes every key on meanwhile.
fn on_our_terminal(vm: &Vm, stop: &Stop) -> Result<ExitStatus, Error> {
    let mut shell = Command::new("/bin/bash");
    shell.arg("-i");
    if let Some(kind) = std::env::var_os("TERM") {
        shell.env("TERM", kind);
    }
    let size = tcgetwinsize(std::io::stdin()).map_or(TERMINAL, |size| (size.ws_row, size.ws_col));
    let running = vm.client().spawn_on(&shell, Some(size))?;
    let _raw = Raw::enter()?;
    attend(running, stop)
}

/// Our terminal without its own ideas about keys, until dropped.
struct Raw(Termios);

impl Raw {
    fn enter() -> Result<Self, Error> {
        let before = tcgetattr(std::io::stdin()).map_err(std::io::Error::from);
        let before = before.map_err(Error::io("read the terminal's settings"))?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(std::io::stdin(), OptionalActions::Drain, &raw)
            .map_err(std::io::Error::from)
            .map_err(Error::io("change the terminal's settings"))?;
        Ok(Self(before))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // A terminal that is gone needs no settings.
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Drain, &self.0);
    }
}
