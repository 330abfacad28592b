//! Makes connections over RDMA and frees what is left of them, on a thread of its own.
//!
//! Queue pairs and registered memory take the system long to create and to destroy. On a loop that
//! would delay the calls of all other connections. A loop orders a connection, goes on, and finds
//! the connection in its [`ConnectResults`]; it hands over the [`Remains`] of a connection that has
//! ended already: the peer was told, and can place nothing any more in memory that is used again.
//!
//! One thread serves all loops of a mount. It starts with the first order and makes many
//! connections at a time: one that nobody answers holds up no other.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use transport::poll::{Events, Interest, Poller, Waker};
use transport::rdma::{Connecting, Requester};
use transport::{Address, AnyTransport, Remains};

use crate::call::{CallKey, ReadBuffer};

/// What carries the calls of a loop, and their replies.
pub(crate) type Wire = AnyTransport<CallKey, ReadBuffer, Requester<CallKey>>;

/// Identifies a requested connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ConnectId(pub u64);

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The calls of a loop. The server may have so many calls to this end outstanding.
    Calls { reverse_credits: u32 },
    /// One short call, to see whether the server answers.
    Probe,
}

/// A connection that a loop wants.
#[derive(Debug)]
pub(crate) struct ConnectRequest {
    pub local: Option<Address>,
    pub remote: SocketAddr,
    pub purpose: Purpose,
    /// Where the loop expects the result.
    pub to: Arc<ConnectResults>,
}

/// Makes connections for loops; none of this waits.
pub(crate) trait Connector: std::fmt::Debug + Send + Sync {
    /// Requests a connection.
    fn connect(&self, request: ConnectRequest) -> ConnectId;

    /// Cancels a request. The connection may be established already.
    fn cancel(&self, id: ConnectId);

    /// Frees what is left of a connection.
    fn free(&self, remains: Remains);
}

/// A connection that was made, or why it could not be made.
#[derive(Debug)]
pub(crate) struct ConnectResult {
    pub id: ConnectId,
    pub outcome: Result<Wire, transport::Error>,
}

/// The connections that were made for one loop.
#[derive(Debug)]
pub(crate) struct ConnectResults {
    results: Mutex<Vec<ConnectResult>>,
    waker: Waker,
}

impl ConnectResults {
    /// Adds itself to the loop's poller under a token.
    pub(crate) fn new(poller: &Poller, token: u64) -> std::io::Result<Self> {
        Ok(Self { results: Mutex::default(), waker: Waker::new(poller, token)? })
    }

    pub(crate) fn add(&self, result: ConnectResult) {
        self.results.lock().unwrap_or_else(PoisonError::into_inner).push(result);
        self.waker.wake();
    }

    /// Takes the results.
    pub(crate) fn take(&self) -> Vec<ConnectResult> {
        self.waker.clear();
        std::mem::take(&mut *self.results.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The token of the thread's waker; ids count up from 0.
const WAKER_TOKEN: u64 = u64::MAX;

#[derive(Debug)]
enum Command {
    Connect(ConnectId, ConnectRequest),
    Cancel(ConnectId),
    Free(Remains),
    End,
}

/// The commands of the loops for the thread.
#[derive(Debug)]
struct CommandQueue {
    waiting: Mutex<Vec<Command>>,
    waker: Waker,
}

impl CommandQueue {
    fn send(&self, command: Command) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push(command);
        self.waker.wake();
    }

    fn take(&self) -> Vec<Command> {
        self.waker.clear();
        std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[derive(Debug)]
struct Running {
    commands: Arc<CommandQueue>,
    thread: JoinHandle<()>,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct RdmaConnector {
    running: Mutex<Option<Running>>,
    next_id: AtomicU64,
}

impl RdmaConnector {
    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connector for RdmaConnector {
    fn connect(&self, request: ConnectRequest) -> ConnectId {
        let id = ConnectId(self.next_id.fetch_add(1, Ordering::Relaxed));
        let mut running = self.running();
        if running.is_none() {
            match start() {
                Ok(started) => *running = Some(started),
                Err(error) => {
                    request.to.add(ConnectResult { id, outcome: Err(error.into()) });
                    return id;
                }
            }
        }
        if let Some(running) = &*running {
            running.commands.send(Command::Connect(id, request));
        }
        id
    }

    fn cancel(&self, id: ConnectId) {
        if let Some(running) = &*self.running() {
            running.commands.send(Command::Cancel(id));
        }
    }

    fn free(&self, remains: Remains) {
        if let (false, Some(running)) = (remains.is_empty(), &*self.running()) {
            running.commands.send(Command::Free(remains));
        }
    }
}

impl Drop for RdmaConnector {
    fn drop(&mut self) {
        if let Some(Running { commands, thread }) = self.running().take() {
            commands.send(Command::End);
            // What was handed over is freed when the mount is gone.
            if thread.join().is_err() {
                tracing::error!("the thread that makes connections over RDMA ended by a panic");
            }
        }
    }
}

fn start() -> std::io::Result<Running> {
    let poller = Poller::new()?;
    let commands =
        Arc::new(CommandQueue { waiting: Mutex::default(), waker: Waker::new(&poller, WAKER_TOKEN)? });
    let receiver = Arc::clone(&commands);
    let thread = std::thread::Builder::new()
        .name("tl-rdma-connect".to_owned())
        .spawn(move || Worker { poller, pending: HashMap::new() }.run(&receiver))?;
    Ok(Running { commands, thread })
}

/// The thread, with the connections that are being made.
struct Worker {
    poller: Poller,
    pending: HashMap<ConnectId, (Connecting, Arc<ConnectResults>)>,
}

impl Worker {
    fn run(&mut self, commands: &CommandQueue) {
        let mut events = Events::new();
        loop {
            if let Err(error) = self.poller.wait(&mut events, None) {
                tracing::error!(%error, "no more connections over RDMA can be made");
                return;
            }
            for event in events.iter() {
                if event.token != WAKER_TOKEN {
                    self.advance(ConnectId(event.token));
                    continue;
                }
                for command in commands.take() {
                    match command {
                        Command::Connect(id, request) => self.begin(id, request),
                        Command::Cancel(id) => drop(self.pending.remove(&id)),
                        Command::Free(remains) => drop(remains),
                        Command::End => return,
                    }
                }
            }
        }
    }

    fn begin(&mut self, id: ConnectId, request: ConnectRequest) {
        let ConnectRequest { local, remote, purpose, to } = request;
        let started = match purpose {
            Purpose::Calls { reverse_credits } => Connecting::start(local, remote, reverse_credits),
            Purpose::Probe => Connecting::start_to_ask(local, remote),
        };
        let waited_for = started.and_then(|connecting| {
            self.poller.add(connecting.fd(), id.0, Interest::READ)?;
            Ok(connecting)
        });
        match waited_for {
            Ok(connecting) => drop(self.pending.insert(id, (connecting, to))),
            Err(error) => to.add(ConnectResult { id, outcome: Err(error.into()) }),
        }
    }

    fn advance(&mut self, id: ConnectId) {
        let Some((connecting, to)) = self.pending.remove(&id) else { return };
        match connecting.advance() {
            Ok(Err(connecting)) => drop(self.pending.insert(id, (connecting, to))),
            Ok(Ok(requester)) => {
                let requester = Box::new(requester);
                requester.leave(&self.poller);
                to.add(ConnectResult { id, outcome: Ok(Wire::Rdma(requester)) });
            }
            Err(error) => to.add(ConnectResult { id, outcome: Err(error.into()) }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_cannot_be_made_arrives_as_an_error_and_the_thread_ends_with_its_owner() {
        let poller = Poller::new().unwrap();
        let connect_results = Arc::new(ConnectResults::new(&poller, 7).unwrap());
        let connector = RdmaConnector::default();
        // Without a device, or with a device but nobody who listens.
        let remote = SocketAddr::from(([127, 0, 0, 1], 1));
        let request =
            |purpose| ConnectRequest { local: None, remote, purpose, to: Arc::clone(&connect_results) };
        let cancelled = connector.connect(request(Purpose::Calls { reverse_credits: 0 }));
        connector.cancel(cancelled);
        let id = connector.connect(request(Purpose::Probe));
        let mut outcome = None;
        while outcome.is_none() {
            let mut events = Events::new();
            poller.wait(&mut events, Some(Duration::from_secs(120))).unwrap();
            assert!(!events.is_empty(), "nothing has arrived");
            outcome = connect_results.take().into_iter().find(|result| result.id == id);
        }
        assert!(outcome.is_some_and(|result| result.outcome.is_err()));
        let running = connector.running().as_ref().map(|running| Arc::clone(&running.commands));
        drop(connector);
        let commands = running.expect("a request has started the thread");
        assert_eq!(Arc::strong_count(&commands), 1, "the thread has ended");
    }
}
