//! Makes connections over RDMA and frees what is left of them, on a thread of its own.
//!
//! Queue pairs and registered memory take the system long to create and to destroy. On a loop that
//! would delay the calls of all other connections. A loop orders a connection, goes on, and finds
//! the connection in its [`Arrivals`]; it hands over the [`Remains`] of a connection that has ended
//! already: the peer was told, and can place nothing any more in memory that is used again.
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

use crate::call::{CallKey, ReadLanding};

/// NFS version 3 has no calls of the server to its client.
pub(crate) const REVERSE_CREDITS: u32 = 0;

/// What carries the calls of a loop, and their replies.
pub(crate) type Wire = AnyTransport<CallKey, ReadLanding, Requester<CallKey>>;

/// Identifies a connection that was ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Ticket(pub u64);

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The calls of a loop.
    Calls,
    /// One short call, to see whether the server answers.
    Probe,
}

/// A connection that a loop wants.
#[derive(Debug)]
pub(crate) struct Order {
    pub local: Option<Address>,
    pub remote: SocketAddr,
    pub purpose: Purpose,
    /// Where the loop expects it.
    pub to: Arc<Arrivals>,
}

/// Makes connections for loops; none of this waits.
pub(crate) trait Connects: std::fmt::Debug + Send + Sync {
    /// Orders a connection.
    fn make(&self, order: Order) -> Ticket;

    /// Gives up an ordered connection. It may have arrived already.
    fn give_up(&self, ticket: Ticket);

    /// Frees what is left of a connection.
    fn free(&self, remains: Remains);
}

/// A connection that was made, or why it could not be made.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub ticket: Ticket,
    pub outcome: Result<Wire, transport::Error>,
}

/// The connections that were made for one loop.
#[derive(Debug)]
pub(crate) struct Arrivals {
    made: Mutex<Vec<Arrival>>,
    waker: Waker,
}

impl Arrivals {
    /// Adds itself to the loop's poller under a token.
    pub(crate) fn new(poller: &Poller, token: u64) -> std::io::Result<Self> {
        Ok(Self { made: Mutex::default(), waker: Waker::new(poller, token)? })
    }

    pub(crate) fn add(&self, arrival: Arrival) {
        self.made.lock().unwrap_or_else(PoisonError::into_inner).push(arrival);
        self.waker.wake();
    }

    /// Takes what has arrived.
    pub(crate) fn take(&self) -> Vec<Arrival> {
        self.waker.clear();
        std::mem::take(&mut *self.made.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The token of the thread's waker; tickets count up from 0.
const WAKER_TOKEN: u64 = u64::MAX;

#[derive(Debug)]
enum Job {
    Make(Ticket, Order),
    GiveUp(Ticket),
    Free(Remains),
    End,
}

/// What the loops have for the thread.
#[derive(Debug)]
struct Jobs {
    waiting: Mutex<Vec<Job>>,
    waker: Waker,
}

impl Jobs {
    fn send(&self, job: Job) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push(job);
        self.waker.wake();
    }

    fn take(&self) -> Vec<Job> {
        self.waker.clear();
        std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[derive(Debug)]
struct Running {
    jobs: Arc<Jobs>,
    thread: JoinHandle<()>,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct RdmaConnector {
    running: Mutex<Option<Running>>,
    tickets: AtomicU64,
}

impl RdmaConnector {
    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connects for RdmaConnector {
    fn make(&self, order: Order) -> Ticket {
        let ticket = Ticket(self.tickets.fetch_add(1, Ordering::Relaxed));
        let mut running = self.running();
        if running.is_none() {
            match start() {
                Ok(started) => *running = Some(started),
                Err(error) => {
                    order.to.add(Arrival { ticket, outcome: Err(error.into()) });
                    return ticket;
                }
            }
        }
        if let Some(running) = &*running {
            running.jobs.send(Job::Make(ticket, order));
        }
        ticket
    }

    fn give_up(&self, ticket: Ticket) {
        if let Some(running) = &*self.running() {
            running.jobs.send(Job::GiveUp(ticket));
        }
    }

    fn free(&self, remains: Remains) {
        if let (false, Some(running)) = (remains.is_empty(), &*self.running()) {
            running.jobs.send(Job::Free(remains));
        }
    }
}

impl Drop for RdmaConnector {
    fn drop(&mut self) {
        if let Some(Running { jobs, thread }) = self.running().take() {
            jobs.send(Job::End);
            // What was handed over is freed when the mount is gone.
            if thread.join().is_err() {
                tracing::error!("the thread that makes connections over RDMA ended by a panic");
            }
        }
    }
}

fn start() -> std::io::Result<Running> {
    let poller = Poller::new()?;
    let jobs = Arc::new(Jobs { waiting: Mutex::default(), waker: Waker::new(&poller, WAKER_TOKEN)? });
    let taken = Arc::clone(&jobs);
    let thread = std::thread::Builder::new()
        .name("tl-rdma-connect".to_owned())
        .spawn(move || Worker { poller, pending: HashMap::new() }.run(&taken))?;
    Ok(Running { jobs, thread })
}

/// The thread, with the connections that are being made.
struct Worker {
    poller: Poller,
    pending: HashMap<Ticket, (Connecting, Arc<Arrivals>)>,
}

impl Worker {
    fn run(&mut self, jobs: &Jobs) {
        let mut events = Events::new();
        loop {
            if let Err(error) = self.poller.wait(&mut events, None) {
                tracing::error!(%error, "no more connections over RDMA can be made");
                return;
            }
            for event in events.iter() {
                if event.token != WAKER_TOKEN {
                    self.advance(Ticket(event.token));
                    continue;
                }
                for job in jobs.take() {
                    match job {
                        Job::Make(ticket, order) => self.begin(ticket, order),
                        Job::GiveUp(ticket) => drop(self.pending.remove(&ticket)),
                        Job::Free(remains) => drop(remains),
                        Job::End => return,
                    }
                }
            }
        }
    }

    fn begin(&mut self, ticket: Ticket, order: Order) {
        let Order { local, remote, purpose, to } = order;
        let started = match purpose {
            Purpose::Calls => Connecting::start(local, remote, REVERSE_CREDITS),
            Purpose::Probe => Connecting::start_to_ask(local, remote),
        };
        let waited_for = started.and_then(|connecting| {
            self.poller.add(connecting.fd(), ticket.0, Interest::READ)?;
            Ok(connecting)
        });
        match waited_for {
            Ok(connecting) => drop(self.pending.insert(ticket, (connecting, to))),
            Err(error) => to.add(Arrival { ticket, outcome: Err(error.into()) }),
        }
    }

    fn advance(&mut self, ticket: Ticket) {
        let Some((connecting, to)) = self.pending.remove(&ticket) else { return };
        match connecting.advance() {
            Ok(Err(connecting)) => drop(self.pending.insert(ticket, (connecting, to))),
            Ok(Ok(requester)) => {
                let requester = Box::new(requester);
                requester.leave(&self.poller);
                to.add(Arrival { ticket, outcome: Ok(Wire::Rdma(requester)) });
            }
            Err(error) => to.add(Arrival { ticket, outcome: Err(error.into()) }),
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
        let arrivals = Arc::new(Arrivals::new(&poller, 7).unwrap());
        let connector = RdmaConnector::default();
        // Without a device, or with a device but nobody who listens.
        let remote = SocketAddr::from(([127, 0, 0, 1], 1));
        let order = |purpose| Order { local: None, remote, purpose, to: Arc::clone(&arrivals) };
        let given_up = connector.make(order(Purpose::Calls));
        connector.give_up(given_up);
        let ticket = connector.make(order(Purpose::Probe));
        let mut outcome = None;
        while outcome.is_none() {
            let mut events = Events::new();
            poller.wait(&mut events, Some(Duration::from_secs(120))).unwrap();
            assert!(!events.is_empty(), "nothing has arrived");
            outcome = arrivals.take().into_iter().find(|arrival| arrival.ticket == ticket);
        }
        assert!(outcome.is_some_and(|arrival| arrival.outcome.is_err()));
        let running = connector.running().as_ref().map(|running| Arc::clone(&running.jobs));
        drop(connector);
        let jobs = running.expect("an order has started the thread");
        assert_eq!(Arc::strong_count(&jobs), 1, "the thread has ended");
    }
}
