//! A transport with faults, for tests of what happens between a call and its reply.

use std::io;

use crate::poll::{Interest, Poller};
use crate::{Ended, Error, Expect, Flushed, ReceiveBuffer, Received, Scratch, Sink, Source, Transport};

/// A fault, counted in records from the moment it is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The connection breaks instead of sending the n-th record.
    BeforeSend(u32),
    /// The connection breaks after the n-th record was sent, before anything more is received.
    AfterSend(u32),
    /// The n-th record and all after it vanish, as does everything received: a silent death.
    Silence(u32),
}

/// Decorates a transport with at most one fault.
#[derive(Debug)]
pub struct Faulty<T> {
    inner: T,
    fault: Option<Fault>,
    pushed: u32,
    broken: bool,
    silent: bool,
}

impl<T> Faulty<T> {
    /// Wraps a transport, without a fault.
    pub const fn new(inner: T) -> Self {
        Self { inner, fault: None, pushed: 0, broken: false, silent: false }
    }

    /// Sets the fault, counting from now.
    pub const fn set(&mut self, fault: Fault) {
        self.fault = Some(fault);
        self.pushed = 0;
    }

    /// The wrapped transport.
    pub const fn inner(&self) -> &T {
        &self.inner
    }

    /// Returns the wrapped transport.
    pub fn into_inner(self) -> T {
        self.inner
    }
}

impl<P, L: ReceiveBuffer, T: Transport<P, L>> Transport<P, L> for Faulty<T> {
    fn register(&self, poller: &Poller, token: u64) -> io::Result<()> {
        self.inner.register(poller, token)
    }

    fn set_interest(&self, poller: &Poller, token: u64, interest: Interest) -> io::Result<()> {
        self.inner.set_interest(poller, token, interest)
    }

    fn wake(&mut self) {
        self.inner.wake();
    }

    fn receive(
        &mut self,
        scratch: &mut Scratch,
        sink: &mut impl Sink<ReceiveBuffer = L>,
        budget_bytes: usize,
    ) -> Result<Received, Error> {
        if self.broken {
            return Err(Error::Injected);
        }
        if self.silent {
            return Ok(Received::default());
        }
        self.inner.receive(scratch, sink, budget_bytes)
    }

    fn push(&mut self, payload: P, payload_len: usize, expect: Expect, head: impl FnOnce(&mut Vec<u8>)) {
        self.pushed += 1;
        match self.fault {
            Some(Fault::BeforeSend(at)) if self.pushed >= at => self.broken = true,
            Some(Fault::Silence(at)) if self.pushed >= at => self.silent = true,
            _ => {}
        }
        if !self.broken && !self.silent {
            self.inner.push(payload, payload_len, expect, head);
        }
    }

    fn flush(&mut self, source: &impl Source<P>, budget_bytes: usize) -> Result<Flushed, Error> {
        let flushed = self.inner.flush(source, budget_bytes)?;
        let all_sent = flushed == Flushed::All;
        if all_sent && matches!(self.fault, Some(Fault::AfterSend(at)) if self.pushed >= at) {
            self.broken = true;
        }
        if self.broken { Err(Error::Injected) } else { Ok(flushed) }
    }

    fn queued_bytes(&self) -> usize {
        self.inner.queued_bytes()
    }

    fn queued_records(&self) -> usize {
        self.inner.queued_records()
    }

    fn progress(&self) -> u64 {
        self.inner.progress()
    }

    fn unacknowledged_bytes(&self) -> Option<u64> {
        self.inner.unacknowledged_bytes()
    }

    fn ask(&mut self) -> Result<(), Error> {
        self.inner.ask()
    }

    fn end(self, reset: bool, poller: &Poller) -> Ended<L> {
        self.inner.end(reset, poller)
    }
}
