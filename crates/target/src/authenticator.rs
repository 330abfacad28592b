//! The computations of authentication, on a thread of their own: with the largest group, one takes
//! tens of milliseconds, and on a loop that would delay the commands of all other connections.
//!
//! The gate of a queue goes to the thread with the message of the host, and comes back with what
//! follows from it. One thread is enough: a queue waits for its host meanwhile, and hosts that
//! connect in numbers take no more than one processor from those that are served. Nothing is
//! computed for a connection that has ended, so what waits is bounded by the connections.

use crate::mailbox::{Mailbox, Message, Place};
use chap::{Entropy, Gate, Outcome};
use nvme::{Sqe, Status};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;

/// The name of the thread.
const NAME: &str = "target-auth";

/// A message of a host, and the gate of the queue on which it came. A queue has one at a time.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) place: Place,
    pub(crate) gate: Box<Gate>,
    pub(crate) sqe: Sqe,
    pub(crate) message: Vec<u8>,
    /// The connection has the other end, as long as it is there.
    pub(crate) asker: Weak<()>,
}

/// What has become of it.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) gate: Box<Gate>,
    pub(crate) sqe: Sqe,
    /// Without random numbers there is nothing but a status.
    pub(crate) result: Result<Outcome, Status>,
}

#[derive(Debug)]
enum Command {
    Handle(Job),
    Stop,
}

/// Gives the thread work.
#[derive(Debug)]
pub(crate) struct Authenticator {
    commands: Sender<Command>,
    /// Until the thread has it.
    receiver: Mutex<Option<Receiver<Command>>>,
}

impl Authenticator {
    pub(crate) fn new() -> Self {
        let (commands, receiver) = channel();
        Self { commands, receiver: Mutex::new(Some(receiver)) }
    }

    /// Has a message handled; its end is posted to the loop of its queue. False if nobody will.
    pub(crate) fn handle(&self, job: Job) -> bool {
        self.commands.send(Command::Handle(job)).is_ok()
    }

    pub(crate) fn stop(&self) {
        // A thread that has ended need not be told.
        let _ = self.commands.send(Command::Stop);
    }

    /// Starts the thread.
    pub(crate) fn start(&self, mailboxes: Vec<Arc<Mailbox>>) -> std::io::Result<Option<JoinHandle<()>>> {
        let receiver = self.receiver.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(receiver) = receiver else { return Ok(None) };
        let run = move || {
            let mut sequence = None;
            while let Ok(Command::Handle(job)) = receiver.recv() {
                let Job { place, mut gate, sqe, message, asker } = job;
                if asker.strong_count() == 0 {
                    continue;
                }
                let result = Entropy::generate(&mut sequence, getrandom::fill)
                    .inspect_err(|error| {
                        tracing::error!(%error, "no random numbers: a host cannot be authenticated");
                    })
                    .map(|entropy| gate.handle_send(&message, &entropy))
                    .map_err(|_| Status::INTERNAL_ERROR);
                if let Some(mailbox) = mailboxes.get(place.event_loop) {
                    let done = Box::new(Done { gate, sqe, result });
                    mailbox.post(Message::Authenticated { token: place.token, done }, true);
                }
            }
        };
        std::thread::Builder::new().name(NAME.to_owned()).spawn(run).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mailbox::Token;
    use chap::{Algorithms, Credentials, Hash, Secret};
    use nvme::Nqn;
    use std::time::Duration;
    use transport::poll::{Poller, Waker};

    fn job(cid: u16, asker: Weak<()>) -> Job {
        let credentials = Credentials {
            host: Nqn::new("nqn.2026-11.test:host").expect("a name"),
            subsystem: Nqn::new("nqn.2026-11.test:array").expect("a name"),
            host_secret: Secret::new(Some(Hash::Sha256), &[7; 32]).expect("32 bytes"),
            controller_secret: None,
        };
        let gate = Box::new(Gate::new(Arc::new(credentials), Arc::new(Algorithms::default())));
        let place = Place { event_loop: 0, token: Token::new(1, 0) };
        Job { place, gate, sqe: Sqe::new(0, cid, 0), message: Vec::new(), asker }
    }

    #[test]
    fn nothing_is_computed_for_a_connection_that_has_ended() {
        let poller = Poller::new().expect("a poller");
        let mailbox = Arc::new(Mailbox::new(Waker::new(&poller, 7).expect("a waker")));
        let authenticator = Authenticator::new();
        let presence = Arc::new(());
        for asker in [Weak::new(), Arc::downgrade(&presence)] {
            let cid = u16::from(asker.strong_count() > 0);
            assert!(authenticator.handle(job(cid, asker)));
        }
        let thread = authenticator.start(vec![Arc::clone(&mailbox)]).expect("a thread").expect("the first");
        let mut done = Vec::new();
        testkit::Deadline::wait_until("what was asked", Duration::from_secs(60), || {
            mailbox.take(&mut done);
            (!done.is_empty()).then_some(())
        });
        authenticator.stop();
        thread.join().expect("it ends");
        mailbox.take(&mut Vec::new());
        let cids = done.iter().map(|message| match message {
            Message::Authenticated { done, .. } => done.sqe.cid,
            other => panic!("{other:?}"),
        });
        assert_eq!(cids.collect::<Vec<_>>(), [1]);
    }
}
