//! The agent in a guest: starts commands, passes their streams and signals on, and reports how they
//! ended. It is `trunkline lab guest`, started by the guest's first script; the guest ends when the
//! agent does.

use super::Error;
use super::frame::{Frame, Kind, PIECE_BYTES, Start};
use rustix::process::{Pid, Signal, kill_process_group};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long the port may take to appear after its driver was loaded.
const PORT_TIMEOUT: Duration = Duration::from_secs(120);

/// The interval between checks for the port.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// How long output is still read after a command has ended. A child that the command left running
/// keeps its streams open, possibly for ever.
const OUTPUT_AFTER_END: Duration = Duration::from_secs(10);

/// After this much silence, no more output is expected.
const SILENT_AFTER_END: Duration = Duration::from_secs(2);

/// An error is a sentence, sent in the frame [`Kind::Refused`].
type Started = Result<(Child, Option<File>), String>;

/// Serves the host until the host closes the port.
///
/// # Errors
/// If this is not a guest, or the port fails.
pub fn serve() -> Result<(), Error> {
    let path = port()?;
    let open = OpenOptions::new().read(true).write(true).open(&path);
    let mut port = open.map_err(Error::io(format!("open {}", path.display())))?;
    let writer = port.try_clone().map_err(Error::io("use the port twice"))?;
    let agent = Agent { port: Arc::new(Mutex::new(writer)), commands: Arc::default() };
    agent.send(Frame::new(Kind::Ready, 0, []));
    while let Some(frame) = Frame::read(&mut port).map_err(Error::io("read from the host"))? {
        agent.handle(frame);
    }
    Ok(())
}

/// The guest's only virtio-serial port.
fn port() -> Result<PathBuf, Error> {
    let start = Instant::now();
    loop {
        let ports = std::fs::read_dir("/sys/class/virtio-ports").into_iter().flatten().flatten();
        let mut names = ports.filter(|port| {
            std::fs::read_to_string(port.path().join("name")).is_ok_and(|name| name.trim() == "trunkline")
        });
        if let Some(port) = names.next() {
            return Ok(PathBuf::from("/dev").join(port.file_name()));
        }
        if start.elapsed() > PORT_TIMEOUT || !std::path::Path::new("/run/enter").exists() {
            return Err(Error::Misuse("this is no guest of `trunkline lab vm`".to_owned()));
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// A running command.
#[derive(Debug)]
struct Running {
    group: Pid,
    input: Option<Sender<Vec<u8>>>,
}

#[derive(Debug, Clone)]
struct Agent {
    port: Arc<Mutex<File>>,
    commands: Arc<Mutex<HashMap<u32, Running>>>,
}

impl Agent {
    /// Sends a frame. An error is ignored: if the host has closed the port, the guest ends soon.
    fn send(&self, frame: Frame) {
        let mut port = self.port.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = frame.write(&mut *port);
    }

    fn handle(&self, frame: Frame) {
        let id = frame.command;
        let mut commands = self.commands.lock().unwrap_or_else(PoisonError::into_inner);
        match frame.kind {
            Kind::Start => {
                drop(commands);
                self.start(id, &frame.payload);
            }
            Kind::Input => {
                let input = commands.get(&id).and_then(|running| running.input.as_ref());
                // A command that no longer reads loses its input.
                let _ = input.map(|input| input.send(frame.payload));
            }
            Kind::EndOfInput => {
                if let Some(running) = commands.get_mut(&id) {
                    running.input = None;
                }
            }
            Kind::Signal => {
                let signal =
                    frame.payload.first().and_then(|number| Signal::from_named_raw(i32::from(*number)));
                if let (Some(running), Some(signal)) = (commands.get(&id), signal) {
                    // An error means that the command has just ended.
                    let _ = kill_process_group(running.group, signal);
                }
            }
            // These frames are sent in the other direction.
            Kind::Ready | Kind::Out | Kind::Err | Kind::Ended | Kind::Refused => {}
        }
    }

    fn start(&self, id: u32, payload: &[u8]) {
        let start = Start::decode(payload).ok_or_else(|| "its description is broken".to_owned());
        let started = start.and_then(|start| match start.terminal {
            Some(size) => spawn_on_terminal(&start, size),
            None => spawn_on_pipes(&start),
        });
        match started {
            Ok((child, terminal)) => self.supervise(id, child, terminal),
            Err(why) => self.send(Frame::new(Kind::Refused, id, why)),
        }
    }

    /// Starts a thread for each stream of the command, and one that waits for its end.
    fn supervise(&self, id: u32, mut child: Child, terminal: Option<File>) {
        let (give, input) = channel();
        let running = Running { group: Pid::from_child(&child), input: Some(give) };
        self.commands.lock().unwrap_or_else(PoisonError::into_inner).insert(id, running);
        let (open, closed) = channel::<()>();
        let copy = terminal.as_ref().and_then(|terminal| terminal.try_clone().ok());
        if let Some(terminal) = copy {
            self.forward(id, Kind::Out, terminal, open.clone());
        }
        if let Some(out) = child.stdout.take() {
            self.forward(id, Kind::Out, out, open.clone());
        }
        if let Some(err) = child.stderr.take() {
            self.forward(id, Kind::Err, err, open.clone());
        }
        drop(open);
        match (terminal, child.stdin.take()) {
            (Some(terminal), _) => write_input(terminal, input),
            (None, Some(stdin)) => write_input(stdin, input),
            (None, None) => {}
        }
        let agent = self.clone();
        thread::spawn(move || {
            let status = child.wait().map_or(0, ExitStatusExt::into_raw);
            let ended = Instant::now();
            // Waits until all streams are closed, were silent for a while, or a child keeps
            // printing for too long.
            while closed.recv_timeout(SILENT_AFTER_END).is_ok() && ended.elapsed() < OUTPUT_AFTER_END {}
            agent.commands.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
            agent.send(Frame::new(Kind::Ended, id, status.to_be_bytes()));
        });
    }

    /// Passes a stream of a command to the host; `open` lives as long as the stream.
    fn forward(&self, id: u32, kind: Kind, mut from: impl Read + Send + 'static, open: Sender<()>) {
        let agent = self.clone();
        thread::spawn(move || {
            let mut piece = vec![0; PIECE_BYTES];
            // Reading a terminal that has no user any more fails with EIO, which is its end.
            while let Ok(count @ 1..) = from.read(&mut piece) {
                agent.send(Frame::new(kind, id, piece.get(..count).unwrap_or_default()));
                // There was output, so there may be more.
                let _ = open.send(());
            }
        });
    }
}

/// Passes input to a command; a command that does not read blocks only this thread.
fn write_input(mut to: impl Write + Send + 'static, input: Receiver<Vec<u8>>) {
    thread::spawn(move || {
        for piece in input {
            if to.write_all(&piece).and_then(|()| to.flush()).is_err() {
                break;
            }
        }
    });
}

fn command_of(start: &Start, before: &[&str]) -> Result<Command, String> {
    let mut words = before.iter().map(std::ffi::OsString::from).chain(start.words.iter().cloned());
    let program = words.next().ok_or_else(|| "no command is named".to_owned())?;
    let mut command = Command::new(program);
    command.args(words).envs(start.environment.iter().map(|(name, value)| (name, value)));
    if !start.directory.is_empty() {
        command.current_dir(&start.directory);
    }
    Ok(command)
}

fn spawn_on_pipes(start: &Start) -> Started {
    let mut command = command_of(start, &[])?;
    command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().map_err(|error| error.to_string())?;
    Ok((child, None))
}

/// Starts the command on a new terminal, as the leader of its session.
fn spawn_on_terminal(start: &Start, (rows, columns): (u16, u16)) -> Started {
    let (ours, theirs) = terminal(rows, columns).map_err(|error| format!("there is no terminal: {error}"))?;
    let mut command = command_of(start, &["setsid", "--ctty", "--wait"])?;
    let copy = || theirs.try_clone().map(Stdio::from).map_err(|error| error.to_string());
    command.stdin(copy()?).stdout(copy()?).stderr(copy()?);
    let child = command.spawn().map_err(|error| error.to_string())?;
    Ok((child, Some(ours)))
}

fn terminal(rows: u16, columns: u16) -> io::Result<(File, OwnedFd)> {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&ours)?;
    unlockpt(&ours)?;
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&ours, size)?;
    let name = ptsname(&ours, Vec::new())?;
    let path = std::ffi::OsStr::from_bytes(name.as_bytes());
    let theirs = OpenOptions::new().read(true).write(true).open(path)?;
    Ok((File::from(ours), OwnedFd::from(theirs)))
}
