//! What outlives the server: which clients have had state, so that they can reclaim it after a
//! restart, and nobody else gets it before. RFC 8881 s8.4.2
//!
//! A thread of its own writes the records, so that no loop waits for a disk. A client may open once
//! its record is written; until then it is told to wait.
//!
//! In a group of processes one of them has the file, and its thread asks the state what is to be
//! written, by whichever process that came about. When it ends, the thread of another one goes on.

mod file;

pub use file::RecoveryError;

use super::locks::Grants;
use super::place::{StateHost, StateWords};
use crate::clock;
use crate::shared_reply_cache::{GroupFile, ServerWord};
use file::{RecoveryFile, path_in};
use state::{ClientId, Output, RecoveryRecord, State};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often a write that failed is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// How long a call waits for its client's record, if it may: a disk writes it in less.
pub(super) const WRITE_WAIT: Duration = Duration::from_secs(2);
/// How often the process of a group that has the file looks what others want to be written.
const LOOK: Duration = Duration::from_millis(20);
/// How often the other processes look whether that one has ended.
const TAKE_OVER: Duration = Duration::from_millis(250);
/// How often a start looks whether the last process of the group has ended.
const LOCK_ATTEMPTS_MAX: u32 = 100;
const LOCK_RETRY: Duration = Duration::from_millis(10);

#[derive(Debug)]
enum Command {
    Persist(RecoveryRecord),
    Forget(ClientId),
    GraceEnded,
    /// Answers when all earlier commands are done, or is dropped when that failed.
    Flush(SyncSender<()>),
    /// In a group: there may be something to do for the state.
    Look,
    /// Writes what there is to write, and ends.
    End,
}

/// Whether the end of the grace period is on disk: from then on new state is given. A server that
/// gave it before, and ended, would let others reclaim what is in its way.
#[derive(Debug, Clone)]
pub(super) enum GraceRecorded {
    Single(Arc<AtomicBool>),
    Group(Arc<GroupFile>),
}

impl GraceRecorded {
    pub fn set(&self, is_recorded: bool) {
        match self {
            Self::Single(flag) => flag.store(is_recorded, Ordering::Release),
            Self::Group(file) => {
                if let Some(word) = file.server_word(ServerWord::GraceRecorded, 0) {
                    word.store(u64::from(is_recorded), Ordering::SeqCst);
                }
            }
        }
    }

    pub fn is_set(&self) -> bool {
        match self {
            Self::Single(flag) => flag.load(Ordering::Acquire),
            Self::Group(file) => file
                .server_word(ServerWord::GraceRecorded, 0)
                .is_some_and(|word| word.load(Ordering::SeqCst) != 0),
        }
    }
}

/// The records that are to be written, until the [end](Self::end): then they are written.
#[derive(Debug)]
pub(super) struct Recovery {
    commands: Sender<Command>,
    thread: Mutex<Option<JoinHandle<()>>>,
    grace_recorded: GraceRecorded,
}

/// What is known at the start.
pub(super) struct Recovered {
    file: RecoveryFile,
    pub identity: [u8; 16],
    pub epoch: u32,
    /// The clients that may reclaim.
    pub clients: Vec<RecoveryRecord>,
}

impl Recovered {
    /// Reads the file in a state directory, and begins an epoch there.
    pub fn read(directory: &Path) -> Result<Self, RecoveryError> {
        let file = RecoveryFile::open(directory)?;
        let (identity, epoch, clients) = (file.identity(), file.epoch(), file.reclaimable());
        Ok(Self { file, identity, epoch, clients })
    }

    /// As [`read`](Self::read), when the last process of the group may be about to end.
    pub fn read_in_group(directory: &Path) -> Result<Self, RecoveryError> {
        for _ in 0..LOCK_ATTEMPTS_MAX {
            match Self::read(directory) {
                Err(RecoveryError::InUse { .. }) => std::thread::sleep(LOCK_RETRY),
                done => return done,
            }
        }
        Self::read(directory)
    }

    pub fn path(&self) -> PathBuf {
        self.file.path()
    }
}

impl Recovery {
    /// Starts the thread that writes. In a group, another process may have the file.
    pub fn start(
        recovered: Option<Recovered>,
        directory: &Path,
        (state, host, grants): (Arc<State<StateWords>>, Arc<StateHost>, Grants),
        grace_recorded: GraceRecorded,
    ) -> std::io::Result<Self> {
        let (commands, receiver) = channel();
        let writer = Writer {
            file: recovered.map(|recovered| recovered.file),
            directory: directory.to_owned(),
            state,
            host,
            grants,
            grace_recorded: grace_recorded.clone(),
            ends_grace: false,
            ends: false,
            added: Vec::new(),
            gone: Vec::new(),
            flushes: Vec::new(),
            is_failing: false,
        };
        let thread = std::thread::Builder::new()
            .name("tl-nfs4-clients".to_owned())
            .spawn(move || writer.run(&receiver))?;
        Ok(Self { commands, thread: Mutex::new(Some(thread)), grace_recorded })
    }

    fn send(&self, command: Command) {
        // A worker that waits for its store may be left behind at the end of the server.
        if self.commands.send(command).is_err() {
            tracing::debug!("no more records of clients are written");
        }
    }

    pub fn persist(&self, record: RecoveryRecord) {
        self.send(Command::Persist(record));
    }

    pub fn forget(&self, id: ClientId) {
        self.send(Command::Forget(id));
    }

    pub fn end_grace(&self) {
        self.send(Command::GraceEnded);
    }

    /// In a group: has the state asked what is to be written, if this process has the file.
    pub fn look(&self) {
        self.send(Command::Look);
    }

    /// Waits until what was sent is written, or for as long as a call may wait for that.
    pub fn flush(&self) {
        let (done, is_done) = sync_channel(1);
        self.send(Command::Flush(done));
        let _ = is_done.recv_timeout(WRITE_WAIT);
    }

    /// Writes what is left, and gives the file back.
    pub fn end(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(thread) = thread else { return };
        self.send(Command::End);
        if thread.join().is_err() {
            tracing::error!("the thread that writes the records of clients ended by a panic");
        }
    }

    pub fn is_grace_recorded(&self) -> bool {
        self.grace_recorded.is_set()
    }
}

impl Drop for Recovery {
    fn drop(&mut self) {
        self.end();
    }
}

/// The thread. What it has to write is bounded by the clients that there can be.
struct Writer {
    /// In a group, `None` while another process has it.
    file: Option<RecoveryFile>,
    directory: PathBuf,
    state: Arc<State<StateWords>>,
    host: Arc<StateHost>,
    grants: Grants,
    grace_recorded: GraceRecorded,
    ends_grace: bool,
    ends: bool,
    added: Vec<RecoveryRecord>,
    gone: Vec<ClientId>,
    flushes: Vec<SyncSender<()>>,
    is_failing: bool,
}

impl Writer {
    fn run(mut self, commands: &Receiver<Command>) {
        while !self.ends {
            match self.wait(commands) {
                Ok(command) => self.take(command),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => self.ends = true,
            }
            commands.try_iter().for_each(|command| self.take(command));
            if matches!(self.grace_recorded, GraceRecorded::Group(_)) {
                if self.file.is_none() && !self.ends {
                    self.take_over();
                }
                self.look();
            }
            self.write();
        }
    }

    /// Waits for the next command, or for the next look.
    fn wait(&self, commands: &Receiver<Command>) -> Result<Command, RecvTimeoutError> {
        let wait = match (&self.grace_recorded, &self.file) {
            _ if self.is_failing => RETRY,
            (GraceRecorded::Single(_), _) => {
                return commands.recv().map_err(|_| RecvTimeoutError::Disconnected);
            }
            (GraceRecorded::Group(_), Some(_)) => LOOK,
            (GraceRecorded::Group(_), None) => TAKE_OVER,
        };
        commands.recv_timeout(wait)
    }

    /// Takes the file, if the process of the group that had it has ended.
    fn take_over(&mut self) {
        match RecoveryFile::take_over(&self.directory) {
            Ok(file) => {
                self.file = Some(file);
                self.is_failing = false;
                // That process may have ended while it wrote that the grace period is over.
                self.ends_grace = !self.grace_recorded.is_set() && !self.state.is_in_grace(clock::now());
                tracing::info!("this process writes the records of clients of NFS version 4 from now on");
            }
            Err(RecoveryError::InUse { .. }) => {}
            Err(error) => self.failed(&error),
        }
    }

    /// Asks the state what is to be written, and who is to have a lock by NLM that it has waited
    /// for.
    fn look(&mut self) {
        while self.file.is_some() {
            match self.state.poll_work(&*self.host, clock::now()) {
                Ok(Some(Output::Persist(record))) => self.take(Command::Persist(record)),
                Ok(Some(Output::Forget(id))) => self.take(Command::Forget(id)),
                Ok(Some(Output::GraceEnded)) => self.take(Command::GraceEnded),
                Ok(Some(Output::LockAvailable(available))) => self.grants.grant(available, clock::now()),
                Ok(Some(Output::Recall(_))) => {}
                Ok(None) => return,
                Err(error) => {
                    tracing::warn!(%error, "the state of clients cannot be read");
                    return;
                }
            }
        }
    }

    fn take(&mut self, command: Command) {
        match command {
            Command::Persist(record) => self.added.push(record),
            Command::Forget(id) => match self.added.iter().position(|record| record.client == id) {
                Some(at) => _ = self.added.swap_remove(at),
                None => self.gone.push(id),
            },
            Command::GraceEnded => self.ends_grace = true,
            Command::Flush(done) => self.flushes.push(done),
            Command::Look => {}
            Command::End => self.ends = true,
        }
    }

    fn write(&mut self) {
        let Some(file) = &mut self.file else { return };
        let is_idle = self.added.is_empty() && self.gone.is_empty() && !self.ends_grace;
        if is_idle && self.flushes.is_empty() && !self.is_failing {
            return;
        }
        let written = file.change(&self.added, &self.gone);
        let written = written.and_then(|()| if self.ends_grace { file.end_grace() } else { Ok(()) });
        match written {
            Ok(()) => self.written(),
            Err(error) => self.failed(&error),
        }
    }

    fn failed(&mut self, error: &dyn std::fmt::Display) {
        // Whoever waits asks again.
        self.flushes.clear();
        if !std::mem::replace(&mut self.is_failing, true) {
            tracing::error!(
                %error,
                "cannot write {}: clients of NFS version 4 that are new here, or reclaim, cannot open files \
                 until it can be written",
                path_in(&self.directory).display()
            );
        }
    }

    fn written(&mut self) {
        if std::mem::take(&mut self.is_failing) {
            tracing::info!("{} is written again", path_in(&self.directory).display());
        }
        self.gone.clear();
        for record in std::mem::take(&mut self.added) {
            match self.state.persisted(&*self.host, clock::now(), record.client) {
                Ok(()) => {}
                // Another process is stopped in the middle of a change: once more, later.
                Err(state::Error::Busy) => self.added.push(record),
                Err(error) => tracing::warn!(%error, "a client cannot open files"),
            }
        }
        if std::mem::take(&mut self.ends_grace) {
            self.grace_recorded.set(true);
            tracing::info!("the grace period is over");
        }
        for done in self.flushes.drain(..) {
            let _ = done.send(());
        }
    }
}
