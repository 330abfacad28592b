//! A guest as seen by the host: its commands, their streams, and how they end.

use super::frame::{Frame, Kind, PIECE_BYTES, Start};
use super::machine::{Hardware, Machine};
use super::{Accel, Error};
use rustix::process::Signal;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Output};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long a guest may take to start under emulation on a busy machine.
const BOOT_TIMEOUT: Duration = Duration::from_secs(600);

/// How long to wait for a guest on KVM before the emulation is used instead.
const BOOT_TIMEOUT_ON_KVM: Duration = Duration::from_secs(20);

/// The interval between checks whether to stop waiting.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Output of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Standard output.
    Out(Vec<u8>),
    /// Standard error.
    Err(Vec<u8>),
}

/// A message from the thread that reads the port.
#[derive(Debug)]
enum Message {
    Event(Event),
    Ended(i32),
    Refused(String),
}

#[derive(Debug)]
struct Shared {
    port: Mutex<UnixStream>,
    commands: Mutex<HashMap<u32, Sender<Message>>>,
    next: AtomicU32,
}

impl Shared {
    fn send(&self, frame: &Frame) -> std::io::Result<()> {
        frame.write(&mut *self.port.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn commands(&self) -> std::sync::MutexGuard<'_, HashMap<u32, Sender<Message>>> {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running virtual machine. It ends when dropped, and with the process that owns it.
#[derive(Debug)]
pub struct Guest {
    name: &'static str,
    shared: Arc<Shared>,
    machine: Machine,
    reader: Option<JoinHandle<()>>,
    environment: Vec<(OsString, OsString)>,
}

impl Guest {
    /// Starts QEMU; [`Guest::wait_until_up`] waits for the agent.
    pub(super) fn start(
        name: &'static str,
        hardware: Hardware<'_>,
        environment: Vec<(OsString, OsString)>,
    ) -> Result<(Self, Receiver<()>), Error> {
        let (machine, port) = Machine::start(hardware)?;
        let from = port.try_clone().map_err(Error::io("use the guest's port twice"))?;
        let shared =
            Arc::new(Shared { port: Mutex::new(port), commands: Mutex::default(), next: AtomicU32::new(1) });
        let (up_sender, up) = channel();
        let reader = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || read_port(from, &shared, &up_sender))
        };
        Ok((Self { name, shared, machine, reader: Some(reader), environment }, up))
    }

    /// Waits for the agent.
    pub(super) fn wait_until_up(
        &self,
        up: &Receiver<()>,
        accel: Accel,
        stop: &AtomicBool,
    ) -> Result<(), Error> {
        let start = Instant::now();
        let within = if accel == Accel::Tcg { BOOT_TIMEOUT } else { BOOT_TIMEOUT_ON_KVM };
        loop {
            match up.recv_timeout(POLL_INTERVAL) {
                Ok(()) => return Ok(()),
                Err(RecvTimeoutError::Timeout) if stop.load(Ordering::Relaxed) => {
                    return Err(Error::Interrupted);
                }
                Err(RecvTimeoutError::Timeout) if start.elapsed() < within && !self.machine.has_ended() => {}
                Err(ended) => {
                    // Its end of the port is closed a little before it has ended.
                    let is_gone = ended == RecvTimeoutError::Disconnected || self.machine.has_ended();
                    let why =
                        if is_gone { "QEMU ended".to_owned() } else { format!("not within {within:?}") };
                    let message = format!("{why}; it said: {}", self.machine.last_output());
                    return Err(Error::Boot { guest: self.name, message });
                }
            }
        }
    }

    /// `client` or `server`, or `guest` if it is the only one.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Variables that every command in this guest gets in addition to its own.
    #[must_use]
    pub fn environment(&self) -> &[(OsString, OsString)] {
        &self.environment
    }

    /// Starts a command: its program, arguments, directory and variables are kept. It runs as root
    /// in the guest, in the caller's directory unless it names another, with the caller's PATH
    /// after root's.
    ///
    /// # Errors
    /// If the guest is gone. If the command cannot be started, waiting for it returns the error.
    pub fn spawn(&self, command: &Command) -> Result<Running, Error> {
        self.spawn_on(command, None)
    }

    pub(super) fn spawn_on(&self, command: &Command, terminal: Option<(u16, u16)>) -> Result<Running, Error> {
        let here = || std::env::current_dir().map(OsString::from).unwrap_or_default();
        let mut environment = self.environment.clone();
        let given = command.get_envs().filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())));
        environment.extend(given);
        let start = Start {
            directory: command.get_current_dir().map_or_else(here, OsString::from),
            terminal,
            words: [command.get_program()]
                .into_iter()
                .chain(command.get_args())
                .map(OsStr::to_owned)
                .collect(),
            environment,
        };
        let id = self.shared.next.fetch_add(1, Ordering::Relaxed);
        let (sender, messages) = channel();
        self.shared.commands().insert(id, sender);
        let running = Running {
            name: command.get_program().to_string_lossy().into_owned(),
            guest: self.name,
            shared: Arc::clone(&self.shared),
            id,
            messages,
            status: None,
        };
        match self.shared.send(&Frame::new(Kind::Start, id, start.encode())) {
            Ok(()) => Ok(running),
            Err(_) => Err(self.gone_error()),
        }
    }

    /// Runs a command to its end, without input, and returns its output.
    ///
    /// # Errors
    /// If the command cannot be started, or the guest is gone.
    pub fn output(&self, command: &Command) -> Result<Output, Error> {
        let running = self.spawn(command)?;
        running.end_input();
        running
            .output()
            .map_err(|error| if matches!(error, Error::Gone { .. }) { self.gone_error() } else { error })
    }

    /// Runs a shell script to its end.
    ///
    /// # Errors
    /// If the guest is gone.
    pub fn sh(&self, script: &str) -> Result<Output, Error> {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", script]);
        self.output(&shell)
    }

    /// Takes the carrier off this guest's end of a link, counted from 1, or restores it, as if the
    /// cable were pulled or plugged in there.
    ///
    /// # Errors
    /// If there is no such link, or the guest is gone.
    pub fn set_link(&self, link: u8, up: bool) -> Result<(), Error> {
        self.machine.set_link(link, up)
    }

    /// Stops this guest in the middle of whatever it does, as a host that hangs: from now on, it
    /// executes nothing, reads nothing from its links, and its clocks stand still. Its commands
    /// wait, so nothing that asks the guest returns before [`Guest::resume`].
    ///
    /// # Errors
    /// If the guest is gone.
    pub fn pause(&self) -> Result<(), Error> {
        self.machine.pause()
    }

    /// Lets a paused guest go on where it stopped. The guest does not know that time has passed,
    /// except from others. What arrived on its links meanwhile is read now. Without effect on a
    /// guest that runs.
    ///
    /// # Errors
    /// If the guest is gone.
    pub fn resume(&self) -> Result<(), Error> {
        self.machine.resume()
    }

    /// The error for a guest that is gone, with its last output.
    pub(super) fn gone_error(&self) -> Error {
        Error::Gone { guest: self.name, message: self.machine.last_output() }
    }

    /// Whether the guest has ended by itself.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.machine.has_ended()
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.machine.kill();
        // The reader has seen the end by now, unless another process holds QEMU's end of the port.
        let _ = self.shared.port.lock().unwrap_or_else(PoisonError::into_inner).shutdown(Shutdown::Both);
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

/// Distributes frames from the guest until its end. Then all channels close, which tells their
/// commands.
fn read_port(mut port: UnixStream, shared: &Shared, up: &Sender<()>) {
    while let Ok(Some(frame)) = Frame::read(&mut port) {
        let id = frame.command;
        let message = match frame.kind {
            Kind::Ready => {
                // The receiver may have given up.
                let _ = up.send(());
                continue;
            }
            Kind::Out => Message::Event(Event::Out(frame.payload)),
            Kind::Err => Message::Event(Event::Err(frame.payload)),
            Kind::Ended => {
                let status = frame.payload.as_slice().try_into().map(i32::from_be_bytes);
                Message::Ended(status.unwrap_or(0xff00))
            }
            Kind::Refused => Message::Refused(String::from_utf8_lossy(&frame.payload).into_owned()),
            // These frames are sent in the other direction.
            Kind::Start | Kind::Input | Kind::EndOfInput | Kind::Signal => continue,
        };
        let mut commands = shared.commands();
        let last = matches!(message, Message::Ended(_) | Message::Refused(_));
        let listener = if last { commands.remove(&id) } else { commands.get(&id).cloned() };
        // There is no listener for a child that outlived its command, or for a dropped command.
        let _ = listener.map(|listener| listener.send(message));
    }
    shared.commands().clear();
}

/// A command in a guest. It is killed with its children when dropped before its end. Its output is
/// kept in memory until it is read.
#[derive(Debug)]
pub struct Running {
    name: String,
    guest: &'static str,
    shared: Arc<Shared>,
    id: u32,
    messages: Receiver<Message>,
    status: Option<ExitStatus>,
}

impl Running {
    /// The next piece of output; `None` once the command has ended.
    ///
    /// # Errors
    /// If the command could not be started, the guest is gone, or nothing happens within this time.
    pub fn next_within(&mut self, time: Duration) -> Result<Option<Event>, Error> {
        if self.status.is_some() {
            return Ok(None);
        }
        match self.messages.recv_timeout(time) {
            Ok(Message::Event(event)) => Ok(Some(event)),
            Ok(Message::Ended(status)) => {
                self.status = Some(ExitStatus::from_raw(status));
                Ok(None)
            }
            Ok(Message::Refused(message)) => Err(Error::Refused { command: self.name.clone(), message }),
            Err(RecvTimeoutError::Timeout) => {
                Err(Error::Timeout(format!("{} did nothing within {time:?}", self.name)))
            }
            Err(RecvTimeoutError::Disconnected) => {
                Err(Error::Gone { guest: self.guest, message: format!("while {} ran", self.name) })
            }
        }
    }

    /// Passes on each piece of output until the command ends; returns its status.
    ///
    /// # Errors
    /// If the command could not be started, or the guest is gone.
    pub fn wait(&mut self, mut forward: impl FnMut(Event)) -> Result<ExitStatus, Error> {
        loop {
            match self.next_within(Duration::from_secs(3600)) {
                Ok(Some(event)) => forward(event),
                // A server may be silent for an hour.
                Err(Error::Timeout(_)) => {}
                outcome => {
                    outcome?;
                    return Ok(self.status.unwrap_or_default());
                }
            }
        }
    }

    /// Waits for the end and returns all output.
    ///
    /// # Errors
    /// If the command could not be started, or the guest is gone.
    pub fn output(mut self) -> Result<Output, Error> {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let status = self.wait(|event| match event {
            Event::Out(bytes) => stdout.extend(bytes),
            Event::Err(bytes) => stderr.extend(bytes),
        })?;
        Ok(Output { status, stdout, stderr })
    }

    /// Waits for a line of standard output that begins with `start`; returns all output until then.
    ///
    /// # Errors
    /// If the time is over, the command ends before, or the guest is gone.
    pub fn wait_for_line(&mut self, start: &str, within: Duration) -> Result<String, Error> {
        let began = Instant::now();
        let (mut seen, mut errors) = (String::new(), String::new());
        loop {
            let left = within.saturating_sub(began.elapsed());
            match self.next_within(left)? {
                Some(Event::Out(bytes)) => {
                    seen.push_str(&String::from_utf8_lossy(&bytes));
                    if seen.lines().any(|line| line.starts_with(start)) {
                        return Ok(seen);
                    }
                }
                Some(Event::Err(bytes)) => errors.push_str(&String::from_utf8_lossy(&bytes)),
                None => {
                    let why =
                        format!("{} ended before it said {start:?}; it said: {seen}{errors}", self.name);
                    return Err(Error::Timeout(why));
                }
            }
        }
    }

    /// Sends input to the command.
    pub fn input(&self, bytes: &[u8]) {
        for piece in bytes.chunks(PIECE_BYTES) {
            // If the guest is gone, waiting for the command returns the error.
            let _ = self.shared.send(&Frame::new(Kind::Input, self.id, piece));
        }
    }

    /// Ends the command's input.
    pub fn end_input(&self) {
        let _ = self.shared.send(&Frame::new(Kind::EndOfInput, self.id, []));
    }

    /// Sends a signal to the command and its children.
    pub fn signal(&self, signal: Signal) {
        self.handle().signal(signal);
    }

    /// A handle with which another thread can send input and signals.
    pub(super) fn handle(&self) -> CommandHandle {
        CommandHandle { shared: Arc::clone(&self.shared), id: self.id }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.status.is_none() && self.shared.commands().remove(&self.id).is_some() {
            self.signal(Signal::KILL);
        }
    }
}

/// Sends input and signals to a running command from another thread.
#[derive(Debug, Clone)]
pub(super) struct CommandHandle {
    shared: Arc<Shared>,
    id: u32,
}

impl CommandHandle {
    pub(super) fn signal(&self, signal: Signal) {
        let number = u8::try_from(signal.as_raw()).unwrap_or(0);
        // If the guest is gone, waiting for the command returns the error.
        let _ = self.shared.send(&Frame::new(Kind::Signal, self.id, [number]));
    }

    pub(super) fn input(&self, bytes: &[u8]) -> std::io::Result<()> {
        self.shared.send(&Frame::new(Kind::Input, self.id, bytes))
    }

    pub(super) fn end_input(&self) {
        let _ = self.shared.send(&Frame::new(Kind::EndOfInput, self.id, []));
    }
}

/// Passes output on and flushes it. Errors are ignored: a closed terminal must not block a guest.
pub(super) fn print_event(event: &Event) {
    let _ = match event {
        Event::Out(bytes) => {
            let mut out = std::io::stdout().lock();
            out.write_all(bytes).and_then(|()| out.flush())
        }
        Event::Err(bytes) => std::io::stderr().lock().write_all(bytes),
    };
}
