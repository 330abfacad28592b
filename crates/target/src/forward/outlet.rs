//! The end of a loop that forwards: its connection to the process of the other node.

use super::door::Numbers;
use super::flights::{Flight, Flights, Host};
use super::stream::{Next, Stream};
use super::wire::{Command, Message};
use super::{Route, stamp};
use crate::mailbox::Token;
use crate::outbound::Flushed;
use memory::{Buffer, Buffers};
use nvme::Status;
use nvme::controller::Node;
use smallvec::SmallVec;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use transport::poll::{Interest, Poller};
use volumes::Payload;

/// How often a process that is not there is dialled.
const DIAL: Duration = Duration::from_millis(50);
/// Messages that are taken before others have their turn.
const MESSAGES_MAX: usize = 256;

/// Who forwards, and where to.
#[derive(Debug)]
pub(crate) struct Partner {
    /// This node.
    pub(crate) node: Node,
    /// Where the instances of its controllers begin.
    pub(crate) instance: u64,
    /// Which of its loops this is.
    pub(crate) outlet: u32,
    /// The socket of the other node.
    pub(crate) path: PathBuf,
}

/// The end of a forwarded command.
#[derive(Debug)]
pub(crate) enum Answered {
    /// As the owner says. Of a pair, the status of the first half as well.
    ByOwner { status: Status, first: Status, payload: Option<Buffer> },
    /// The connection to the owner has ended, and what it had begun is over.
    Settled,
    /// It has not ended: the owner asks whether its host is still connected.
    Asked { id: u16 },
}

/// What is to be forwarded.
#[derive(Debug)]
pub(crate) struct Sending<'a> {
    pub(crate) flight: Flight,
    pub(crate) host: &'a Arc<Host>,
    /// When the host was last known to be connected.
    pub(crate) connected_at: Instant,
    /// All but what is known here: identifier, host and stamp.
    pub(crate) command: Command,
    pub(crate) payload: Payload,
}

/// Whether a command can be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    Yes,
    /// The owner takes no more now, of this volume or at all.
    Full,
    /// There is no connection to it, for so long.
    Down(Duration),
}

#[derive(Debug)]
enum State {
    /// Dialled again at this time.
    Down {
        dials_at: Instant,
    },
    /// It has not said what it takes.
    Greeting(Stream),
    Open(Stream),
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Outlet {
    /// `None` where this process is both nodes.
    partner: Option<(Partner, Numbers)>,
    buffers: Arc<Buffers>,
    /// Of the poller.
    token: u64,
    state: State,
    down_since: Instant,
    flights: Flights,
    /// The answer whose payload is being received.
    current: Option<(u16, Status, Status)>,
    /// The owner can be asked for something.
    wanted: bool,
    pub(crate) has_more: bool,
}

impl Outlet {
    pub(crate) fn new(partner: Option<(Partner, Numbers)>, buffers: Arc<Buffers>, token: u64) -> Self {
        let now = Instant::now();
        Self {
            partner,
            buffers,
            token,
            state: State::Down { dials_at: now },
            down_since: now,
            flights: Flights::default(),
            current: None,
            wanted: false,
            has_more: false,
        }
    }

    /// Whether any volume is served by the other process.
    pub(crate) const fn set_wanted(&mut self, wanted: bool, now: Instant) {
        // While nothing was to be asked for, nobody has dialled.
        if wanted && !self.wanted {
            self.down_since = now;
        }
        self.wanted = wanted;
    }

    /// When it is to be dialled.
    pub(crate) fn dials_in(&self, now: Instant) -> Option<Duration> {
        match self.state {
            State::Down { dials_at } if self.wanted && self.partner.is_some() => {
                Some(dials_at.saturating_duration_since(now))
            }
            _ => None,
        }
    }

    /// Dials, if it is time for it.
    pub(crate) fn dial(&mut self, poller: &Poller, now: Instant) {
        if self.dials_in(now) != Some(Duration::ZERO) {
            return;
        }
        self.state = State::Down { dials_at: now + DIAL };
        let Some((partner, numbers)) = &mut self.partner else { return };
        let Partner { node, instance, outlet, .. } = *partner;
        let hello = Message::Hello { node, instance, outlet };
        match numbers.dial(&partner.path, &hello) {
            Ok(Some(socket)) => match poller.add(&socket, self.token, Interest::READ) {
                Ok(()) => self.state = State::Greeting(Stream::new(socket)),
                Err(error) => tracing::warn!(%error, "cannot wait for the other node"),
            },
            Ok(None) => numbers.hang_up(),
            Err(error) => {
                numbers.hang_up();
                tracing::warn!(%error, "cannot connect to the other node");
            }
        }
    }

    /// Whether a command for the volume at a place can be sent whose payloads have so many bytes.
    pub(crate) fn room(&self, at: usize, cost: usize, now: Instant) -> Sent {
        match self.state {
            State::Open(_) if self.flights.has_room(at, cost) => Sent::Yes,
            State::Open(_) => Sent::Full,
            _ => Sent::Down(now.saturating_duration_since(self.down_since)),
        }
    }

    /// Sends a command. There must be [room](Self::room); false if
    /// there is none.
    pub(crate) fn send(&mut self, sending: Sending<'_>) -> bool {
        let State::Open(stream) = &mut self.state else { return false };
        let Sending { flight, host, connected_at, command, payload } = sending;
        let introduced = self.flights.introduce(host);
        if let Some(host) = introduced.gone {
            stream.put(&Message::HostGone { host }, &[]);
        }
        if introduced.is_new {
            let (nqn, host_id) = &**host;
            let name = nqn.to_string();
            let bytes = u32::try_from(name.len()).unwrap_or(u32::MAX);
            let host = Message::Host { host: introduced.number, host_id: *host_id, bytes };
            stream.put(&host, name.as_bytes());
        }
        let Some(id) = self.flights.begin(flight, introduced.number, command.cost()) else { return false };
        let command = Command { id, host: introduced.number, stamp: stamp(connected_at), ..command };
        stream.push(&Message::Command(command), payload, 0);
        true
    }

    /// The host of a command has gone: the command is not to be begun any more. Its end comes all
    /// the same.
    pub(crate) fn cancel(&mut self, token: Token, tag: u16) {
        if let State::Open(stream) = &mut self.state
            && let Some(id) = self.flights.find(token, tag)
        {
            stream.put(&Message::Cancel { id }, &[]);
        }
    }

    /// Takes what the owner says; appends what has ended.
    pub(crate) fn receive(
        &mut self,
        now: Instant,
        route: impl Fn(usize) -> Route,
        ended: &mut Vec<(Flight, Answered)>,
    ) {
        self.has_more = false;
        match self.take(ended) {
            Ok(true) => {}
            Ok(false) => {
                tracing::info!("the connection to the other node has ended");
                self.lose(now, route, ended);
            }
            Err(error) => {
                tracing::error!(%error, "the connection to the other node has failed");
                self.lose(now, route, ended);
            }
        }
    }

    fn lose(&mut self, now: Instant, route: impl Fn(usize) -> Route, ended: &mut Vec<(Flight, Answered)>) {
        self.state = State::Down { dials_at: now + DIAL };
        self.down_since = now;
        if let Some((_, numbers)) = &mut self.partner {
            numbers.hang_up();
        }
        self.current = None;
        let settled = self.flights.lose(route);
        ended.extend(settled.into_iter().map(|flight| (flight, Answered::Settled)));
    }

    /// False if the connection has ended.
    fn take(&mut self, ended: &mut Vec<(Flight, Answered)>) -> io::Result<bool> {
        let unexpected = || io::Error::from(io::ErrorKind::InvalidData);
        for _ in 0..MESSAGES_MAX {
            let (State::Greeting(stream) | State::Open(stream)) = &mut self.state else { return Ok(true) };
            match stream.next()? {
                Next::Nothing => return Ok(true),
                Next::End => return Ok(false),
                Next::Malformed => return Err(unexpected()),
                Next::Message(message) => {
                    if !self.handle(message, ended) {
                        return Err(unexpected());
                    }
                }
                Next::Payload(parts) => {
                    let (id, status, first) = self.current.take().ok_or_else(unexpected)?;
                    let flight = self.flights.answer(id).ok_or_else(unexpected)?;
                    let payload = parts.into_iter().next();
                    ended.push((flight, Answered::ByOwner { status, first, payload }));
                }
            }
        }
        self.has_more = true;
        Ok(true)
    }

    /// False if it may not be said.
    fn handle(&mut self, message: Message, ended: &mut Vec<(Flight, Answered)>) -> bool {
        let here = self.partner.as_ref().map(|(partner, _)| partner.node);
        match (message, &mut self.state) {
            (Message::Welcome { node, instance, commands, window }, State::Greeting(_))
                if Some(node) != here =>
            {
                let down = State::Down { dials_at: self.down_since };
                if let State::Greeting(stream) = std::mem::replace(&mut self.state, down) {
                    self.state = State::Open(stream);
                }
                let count = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
                let settled = self.flights.open(instance, count(commands), count(window));
                ended.extend(settled.into_iter().map(|flight| (flight, Answered::Settled)));
                true
            }
            (Message::Answer { id, status, first, bytes }, State::Open(stream)) => {
                // The owner counts a payload until all of it is sent, so it has the memory here as long.
                if bytes > 0 && self.flights.flight(id).is_some() {
                    let bytes = bytes as usize;
                    let parts = SmallVec::from_iter([self.buffers.take(bytes)]);
                    stream.expect(parts, bytes);
                    self.current = Some((id, status, first));
                    return true;
                }
                let flight = self.flights.answer(id).filter(|_| bytes == 0);
                let answered = Answered::ByOwner { status, first, payload: None };
                ended.extend(flight.map(|flight| (flight, answered)));
                flight.is_some()
            }
            (Message::Ask { id }, State::Open(_)) => {
                let flight = self.flights.flight(id);
                ended.extend(flight.map(|flight| (flight, Answered::Asked { id })));
                flight.is_some()
            }
            _ => false,
        }
    }

    /// The host of a command was connected at that time.
    pub(crate) fn confirm(&mut self, id: u16, at: Instant) {
        if let State::Open(stream) = &mut self.state {
            stream.put(&Message::Fresh { id, stamp: stamp(at) }, &[]);
        }
    }

    /// The volume at a place is reached like this from now on; appends what is settled by that.
    pub(crate) fn settle(&mut self, at: usize, route: Route, ended: &mut Vec<(Flight, Answered)>) {
        let settled = self.flights.settle(at, route);
        ended.extend(settled.into_iter().map(|flight| (flight, Answered::Settled)));
    }

    /// Sends what there is; false if the rest has to wait for others.
    pub(crate) fn flush(
        &mut self,
        poller: &Poller,
        now: Instant,
        route: impl Fn(usize) -> Route,
        ended: &mut Vec<(Flight, Answered)>,
    ) -> bool {
        let State::Open(stream) = &mut self.state else { return true };
        match stream.flush(now) {
            Ok((flushed, _)) => {
                stream.wait(poller, self.token, flushed);
                flushed != Flushed::OutOfTurn
            }
            // What it has said before is still to be read.
            Err(_) => {
                self.receive(now, &route, ended);
                if matches!(self.state, State::Open(_)) {
                    self.lose(now, route, ended);
                }
                true
            }
        }
    }
}
