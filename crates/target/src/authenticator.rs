//! The computations of authentication, on a thread of their own: with the largest group, one takes
//! tens of milliseconds, and on a loop that would delay the commands of all other connections.
//!
//! The gate of a queue goes to the thread with the message of the host, and comes back with what
//! follows from it. One thread is enough: a queue waits for its host meanwhile, and hosts that
//! connect in numbers take no more than one processor from those that are served.

use crate::mailbox::{Mailbox, Message, Place};
use chap::{Entropy, Gate, Outcome};
use nvme::{Sqe, Status};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// The name of the thread.
const NAME: &str = "target-auth";

/// A message of a host, and the gate of the queue on which it came. A queue has one at a time, so
/// that there are no more than connections.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) place: Place,
    pub(crate) gate: Box<Gate>,
    pub(crate) sqe: Sqe,
    pub(crate) message: Vec<u8>,
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
                let Job { place, mut gate, sqe, message } = job;
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
