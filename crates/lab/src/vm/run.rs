//! Runs a command in a lab, for `trunkline lab vm`.

use super::guest::{CommandHandle, Running, print_event};
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

/// How long a server in a guest may take until it prints `ready`.
const READY_TIMEOUT: Duration = Duration::from_secs(300);

/// The size of a terminal whose size is unknown.
const TERMINAL: (u16, u16) = (24, 80);

/// What to run in a lab.
#[derive(Debug)]
pub enum LabCommand {
    /// This command, with this process's standard streams.
    Command(Command),
    /// An interactive shell on this process's terminal.
    Shell,
}

/// Boots the guests, runs the work in the client, ends the guests, and returns the exit status.
///
/// `serve`, if given, is a shell command line. It runs meanwhile in the server (or in the only
/// guest), and must first print a line that begins with `ready`.
///
/// Signals (SIGINT, SIGTERM, SIGHUP) end the command, and with it the lab: the first one sends
/// SIGTERM, the second one SIGKILL.
///
/// # Errors
/// If the lab does not start, the command cannot be started, the server is not ready in time, or
/// there is no terminal for a shell.
pub fn run(spec: &Spec, serve: Option<&str>, work: &LabCommand) -> Result<ExitStatus, Error> {
    if matches!(work, LabCommand::Shell) && !isatty(std::io::stdin()) {
        return Err(Error::Misuse("a shell needs a terminal as its standard input".to_owned()));
    }
    let stop = Arc::new(Stop::default());
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(Error::io("catch signals"))?;
    let (watched, handle) = (Arc::clone(&stop), signals.handle());
    let watcher = thread::spawn(move || signals.forever().for_each(|_| watched.signal()));
    let outcome = run_until(spec, serve, work, &stop);
    handle.close();
    // The watcher only waits for the handle.
    let _ = watcher.join();
    outcome
}

fn run_until(spec: &Spec, serve: Option<&str>, work: &LabCommand, stop: &Stop) -> Result<ExitStatus, Error> {
    let vm = Vm::start_unless(spec, &stop.signalled)?;
    // Dropped before the lab, and ended with it.
    let _server = serve.map(|line| start_server(&vm, line)).transpose()?;
    let status = match work {
        LabCommand::Command(command) => supervise(vm.client().spawn(command)?, stop),
        LabCommand::Shell => run_on_terminal(&vm, stop),
    };
    status.map_err(|error| if matches!(error, Error::Gone { .. }) { vm.client().gone_error() } else { error })
}

/// The effect of signals: the lab is not started, or its command is ended.
#[derive(Debug, Default)]
struct Stop {
    signalled: AtomicBool,
    command: Mutex<Option<CommandHandle>>,
}

impl Stop {
    fn signal(&self) {
        let again = self.signalled.swap(true, Ordering::Relaxed);
        if let Some(command) = &*self.command.lock().unwrap_or_else(PoisonError::into_inner) {
            command.signal(if again { Signal::KILL } else { Signal::TERM });
        }
    }

    /// From now on signals are for this command. An earlier one is delivered.
    fn watch(&self, command: CommandHandle) {
        let mut watched = self.command.lock().unwrap_or_else(PoisonError::into_inner);
        if self.signalled.load(Ordering::Relaxed) {
            command.signal(Signal::TERM);
        }
        *watched = Some(command);
    }
}

/// Passes a command's output to standard output and error, and standard input to the command.
fn supervise(mut running: Running, stop: &Stop) -> Result<ExitStatus, Error> {
    stop.watch(running.handle());
    forward_input(running.handle());
    running.wait(|event| print_event(&event))
}

/// Passes on standard input until its end. The thread is not joined, because it may wait for ever.
fn forward_input(command: CommandHandle) {
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

/// Starts the server's command line and waits until it is ready. After that, its output goes to
/// standard error.
fn start_server(vm: &Vm, line: &str) -> Result<thread::JoinHandle<()>, Error> {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", line]);
    let mut running = vm.server().spawn(&shell)?;
    running.end_input();
    let message = running.wait_for_line("ready", READY_TIMEOUT)?;
    eprint!("{message}");
    Ok(thread::spawn(move || {
        // The server ends with its guest.
        let _ = running.wait(|event| match event {
            Event::Out(bytes) | Event::Err(bytes) => print_event(&Event::Err(bytes)),
        });
    }))
}

/// A shell on a terminal in the guest that is as large as this one, to which every key is passed.
fn run_on_terminal(vm: &Vm, stop: &Stop) -> Result<ExitStatus, Error> {
    let mut shell = Command::new("/bin/bash");
    shell.arg("-i");
    if let Some(kind) = std::env::var_os("TERM") {
        shell.env("TERM", kind);
    }
    let size = tcgetwinsize(std::io::stdin()).map_or(TERMINAL, |size| (size.ws_row, size.ws_col));
    let running = vm.client().spawn_on(&shell, Some(size))?;
    let _raw = RawMode::enter()?;
    supervise(running, stop)
}

/// The terminal in raw mode, until dropped.
struct RawMode(Termios);

impl RawMode {
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

impl Drop for RawMode {
    fn drop(&mut self) {
        // A closed terminal needs no settings.
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Drain, &self.0);
    }
}
