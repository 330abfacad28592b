//! What callers hold.

use crate::config::Config;
use crate::engine::{Engine, WAKER};
use crate::error::Error;
use crate::request::{Completion, Operation, Reply};
use crate::shared::{Message, Namespace, PathCounters, PathState, Shared};
use crate::task::{Running, Task};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use transport::poll::{Poller, Waker};

/// A subsystem to which this host is attached. It ends when it is dropped: what is under way then
/// fails, and its outcome is not known.
#[derive(Debug)]
pub struct Attachment {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Attachment {
    /// Begins to connect to all addresses. [`Attachment::volume`] waits until that has succeeded.
    ///
    /// # Errors
    /// [`Error::NoAddress`], [`Error::Start`].
    pub fn start(config: Config) -> Result<Self, Error> {
        if config.addresses.is_empty() {
            return Err(Error::NoAddress);
        }
        let failed = |error: std::io::Error| Error::Start(error.to_string());
        let poller = Poller::new().map_err(failed)?;
        let waker = Waker::new(&poller, WAKER).map_err(failed)?;
        let shared = Arc::new(Shared::new(waker, config.addresses.len()));
        let engine = Engine::new(config, Arc::clone(&shared), poller);
        let builder = std::thread::Builder::new().name("initiator".to_owned());
        let thread = builder.spawn(move || engine.run()).map_err(failed)?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// The namespace with this number, or the first one, once a path reaches it.
    ///
    /// # Errors
    /// [`Error::Refused`] if every address refuses for good, [`Error::NoNamespace`],
    /// [`Error::Unreachable`].
    pub fn volume(&self, nsid: Option<u32>, within: Duration) -> Result<Volume, Error> {
        let namespace = self.shared.wait_until_reachable(nsid, within)?;
        Ok(Volume { shared: Arc::clone(&self.shared), namespace })
    }

    /// The namespaces that were found.
    #[must_use]
    pub fn namespaces(&self) -> Vec<Namespace> {
        self.shared.namespaces()
    }

    /// Whether nothing can have an effect any more that an earlier attachment of this host has
    /// left, or a lost controller of this one. An attachment that ends before that is as good as
    /// killed for the next one: [`Config::after_crash`].
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.shared.is_settled()
    }

    /// How the paths are.
    #[must_use]
    pub fn paths(&self) -> Vec<PathState> {
        self.shared.paths()
    }

    /// What each path has completed so far, in the order of the addresses.
    #[must_use]
    pub fn counters(&self) -> Vec<PathCounters> {
        self.shared.counters()
    }

    /// The system's number of the loop's thread, by which its processor time is known; 0 until it
    /// runs.
    #[must_use]
    pub fn thread(&self) -> u32 {
        self.shared.thread.load(Ordering::Relaxed)
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        self.shared.end();
        if let Some(thread) = self.thread.take() {
            // A loop that has panicked has ended as well.
            let _ = thread.join();
        }
    }
}

/// A namespace of an attachment.
#[derive(Debug, Clone)]
pub struct Volume {
    shared: Arc<Shared>,
    namespace: Namespace,
}

impl Volume {
    /// What it is.
    #[must_use]
    pub const fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Begins an operation; its completion is sent under this cookie.
    pub fn submit(&self, operation: Operation, cookie: u64, reply: &Sender<Completion>) {
        let nsid = self.namespace.nsid;
        self.shared.submit(Message { nsid, operation, cookie, reply: Reply::Channel(reply.clone()) });
    }

    /// Runs a task on the loop of the attachment.
    pub fn spawn(&self, task: Box<dyn Task>) {
        self.shared.spawn(Running { nsid: self.namespace.nsid, task, outstanding: 0 });
    }

    /// Executes an operation; returns the memory of a read.
    ///
    /// # Errors
    /// [`Error`].
    pub fn execute(&self, operation: Operation) -> Result<Vec<u8>, Error> {
        let (reply, completion) = channel();
        self.submit(operation, 0, &reply);
        drop(reply);
        completion.recv().map_err(|_| Error::Ended)?.result
    }

    /// Reads this many bytes.
    ///
    /// # Errors
    /// [`Error`].
    pub fn read(&self, offset: u64, bytes: usize) -> Result<Vec<u8>, Error> {
        self.execute(Operation::Read { offset, memory: vec![0; bytes] })
    }

    /// Writes.
    ///
    /// # Errors
    /// [`Error`]; which of the blocks were written is not known then.
    pub fn write(&self, offset: u64, data: Vec<u8>) -> Result<(), Error> {
        self.execute(Operation::Write { offset, data: Arc::new(data), durable: false }).map(drop)
    }

    /// Makes completed writes durable.
    ///
    /// # Errors
    /// [`Error`].
    pub fn flush(&self) -> Result<(), Error> {
        self.execute(Operation::Flush).map(drop)
    }
}
