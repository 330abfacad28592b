//! One loop: its connections, the commands of their queues, and, on the first loop, the listeners
//! and the time of the controllers.
//!
//! ```text
//!  wait ─> messages ─> receive ─> turn of the volumes, answers ─> one gathered send each ─> wait
//! ```

/// What a connection may use of its loop. A macro, so that the connection itself stays borrowed.
macro_rules! context_of {
    ($this:expr) => {
        Context {
            queue: &mut $this.queue,
            volumes: &$this.volumes,
            routes: &$this.routes,
            outlet: &mut $this.outlet,
            buffers: &$this.buffers,
            budget: &mut $this.budget,
            places: &mut $this.places,
            shared: &$this.shared,
            now: $this.now,
            late: $this.late,
            has_output: false,
            needs_turn: false,
            has_room: false,
        }
    };
}

mod forwarding;

use crate::budget::Budget;
use crate::config::QUEUE_ENTRIES;
use crate::connection::{Connection, Context, Device, EndReason, FRESH, RdmaLink};
use crate::forward::{Inlet, Outlet, Route};
use crate::inbound::SCRATCH_BYTES;
use crate::mailbox::{Mailbox, Message, Place, Token};
use crate::outbound::Flushed;
use crate::pair::SLACK;
use crate::rdma_acceptor::{self, Pending};
use crate::shares::Shares;
use crate::target::{Listener, Shared, Way};
use forwarding::inlet_of;
use memory::Buffers;
use nvme::controller::Node;
use nvme::rdma::{RejectStatus, Request};
use slab::Slab;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use transport::poll::{Events, Interest, Poller};
use transport::rdma::Incoming;
use volumes::{Event, Volume};

/// Tokens of the poller that are no connection's: those have a serial number of 1 or more.
pub(crate) const WAKER: u64 = 0;
const QUEUE: u64 = 1;
/// The way to the process of the other node, and where it comes in.
const OUTLET: u64 = 2;
const DOOR: u64 = 3;
const LISTENERS: u64 = 16;

/// How often connections and controllers are looked at.
const SWEEP: Duration = Duration::from_secs(1);
/// How often commands are tried again for which there was no place.
const RETRY: Duration = Duration::from_millis(5);
/// How long a loop that stops waits for its connections.
const STOP: Duration = Duration::from_secs(5);
/// How long no connections are accepted when there are no descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// Connections that are accepted before others have their turn.
const ACCEPTS_MAX: usize = 64;
/// Turns of the volumes in one round: what is answered in one may start what is done in the next.
const TURNS_MAX: usize = 8;
/// When a connection is given up for which the system gets no acknowledgement.
const PROBE: Duration = Duration::from_secs(10);

pub(crate) struct EventLoop {
    index: usize,
    poller: Poller,
    mailbox: Arc<Mailbox>,
    mailboxes: Vec<Arc<Mailbox>>,
    shared: Arc<Shared>,
    queue: volumes::Queue,
    /// Those whose backing is here, by the place of the volume.
    volumes: Vec<Option<Volume>>,
    /// How volumes are reached, in the same order.
    routes: Vec<Route>,
    outlet: Outlet,
    inlets: Slab<Inlet>,
    /// Of the first loop: where the process of the other node connects.
    door: Option<OwnedFd>,
    buffers: Arc<Buffers>,
    budget: Budget,
    places: Shares,
    listeners: Vec<(Listener, Node)>,
    /// Listeners are not waited for until then.
    accepts_at: Option<Instant>,
    connections: Slab<Connection>,
    serial: u64,
    /// Connections that may have something to send.
    dirty: Vec<Token>,
    /// Connections that may have more to receive.
    more: Vec<Token>,
    /// Connections whose commands wait for memory or for a place.
    waiting: VecDeque<Token>,
    needs_turn: bool,
    has_room: bool,
    /// There is something to say to the process of the other node.
    has_output: bool,
    has_controllers: bool,
    now: Instant,
    /// The loop was late in this round.
    late: bool,
    swept: Instant,
    stops_at: Option<Instant>,
    fences: Vec<Fence>,
    messages: Vec<Message>,
    done: Vec<Event>,
    scratch: Vec<u8>,
}

/// Commands on a namespace that have begun, and that the views do not allow any more.
struct Fence {
    nsid: u32,
    /// The place of the volume, if it loses its backing then.
    gives: Option<usize>,
    begun: Vec<(Token, u16)>,
}

/// What a loop is made of.
pub(crate) struct Parts {
    pub(crate) index: usize,
    pub(crate) poller: Poller,
    pub(crate) mailboxes: Vec<Arc<Mailbox>>,
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) queue: volumes::Queue,
    pub(crate) volumes: Vec<Option<Volume>>,
    pub(crate) budget_bytes: usize,
    pub(crate) listeners: Vec<(Listener, Node)>,
    pub(crate) buffers: Arc<Buffers>,
    pub(crate) way: Option<Way>,
}

impl EventLoop {
    pub(crate) fn new(parts: Parts) -> io::Result<Self> {
        let Parts { index, poller, mailboxes, mailbox, shared, queue, volumes, .. } = parts;
        let Parts { budget_bytes, listeners, buffers, way, .. } = parts;
        let (way, door) = way.map_or((None, None), |way| (Some((way.partner, way.numbers)), way.door));
        if let Some(door) = &door {
            poller.add(door, DOOR, Interest::READ)?;
        }
        poller.add(&queue, QUEUE, Interest::READ)?;
        for (at, (listener, _)) in listeners.iter().enumerate() {
            poller.add(listener, LISTENERS + at as u64, Interest::READ)?;
        }
        let now = Instant::now();
        Ok(Self {
            index,
            poller,
            mailbox,
            mailboxes,
            shared,
            places: Shares::new(queue.depth(), 1),
            queue,
            routes: vec![Route::Nowhere; volumes.len()],
            outlet: Outlet::new(way, Arc::clone(&buffers), OUTLET),
            inlets: Slab::new(),
            door,
            buffers,
            volumes,
            budget: Budget::new(budget_bytes),
            listeners,
            accepts_at: None,
            connections: Slab::new(),
            serial: 0,
            dirty: Vec::new(),
            more: Vec::new(),
            waiting: VecDeque::new(),
            needs_turn: false,
            has_room: false,
            has_output: false,
            has_controllers: false,
            now,
            late: false,
            swept: now,
            stops_at: None,
            fences: Vec::new(),
            messages: Vec::new(),
            done: Vec::new(),
            scratch: vec![0; SCRATCH_BYTES],
        })
    }

    /// Runs until the target stops.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut events = Events::new();
        loop {
            let timeout = self.timeout();
            self.poller.wait(&mut events, timeout)?;
            self.begin_round(timeout);
            // What a host was told was posted here before, so the command that it sends then finds
            // it in force.
            self.handle_messages();
            for token in std::mem::take(&mut self.more) {
                self.with(token, |connection, context, scratch| connection.receive(scratch, context));
            }
            for event in events.iter() {
                self.handle_event(event);
            }
            self.handle_messages();
            self.sweep();
            self.forward();
            self.work()?;
            self.end_fences();
            self.flush();
            self.flush_forwarded();
            let is_empty = self.connections.is_empty() && self.inlets.is_empty();
            if self.stops_at.is_some_and(|at| is_empty || self.now >= at) {
                return Ok(());
            }
        }
    }

    fn timeout(&self) -> Option<Duration> {
        let waits = !self.waiting.is_empty() || self.inlets.iter().any(|(_, inlet)| inlet.is_waiting());
        let may_start = self.has_room && waits;
        let is_busy = self.has_output || self.outlet.has_more;
        if !self.more.is_empty() || !self.dirty.is_empty() || self.needs_turn || may_start || is_busy {
            return Some(Duration::ZERO);
        }
        if waits {
            return Some(RETRY);
        }
        if self.accepts_at.is_some() {
            return Some(ACCEPT_PAUSE);
        }
        let idle = self.connections.is_empty()
            && self.inlets.is_empty()
            && !self.has_controllers
            && self.stops_at.is_none();
        let sweeps = (!idle).then(|| SWEEP.saturating_sub(self.now.duration_since(self.swept)).max(RETRY));
        sweeps.into_iter().chain(self.outlet.dials_in(self.now)).min()
    }

    /// Notes the time, and whether this loop stood still: longer than it wanted to wait.
    fn begin_round(&mut self, timeout: Option<Duration>) {
        let now = Instant::now();
        let passed = now.duration_since(std::mem::replace(&mut self.now, now));
        // Nobody knows when in that time the loop stood still, and so how old an event is.
        self.late = passed > FRESH;
        let late = timeout.map_or(Duration::ZERO, |timeout| passed.saturating_sub(timeout));
        self.has_room = true;
        // Hosts have this more time for their keep-alive.
        if self.index == 0 && late > SLACK {
            self.has_controllers = self.shared.controllers.tick(self.index, late);
        }
        if late <= self.shared.limits.stall {
            return;
        }
        tracing::warn!(late_ms = late.as_millis() as u64, "this process stood still; I/O connections end");
        for token in self.tokens() {
            self.with(token, |connection, context, _| {
                if connection.is_io() {
                    connection.end(&EndReason::Stall, context);
                }
            });
        }
    }

    fn tokens(&self) -> Vec<Token> {
        self.connections.iter().map(|(_, connection)| connection.token()).collect()
    }

    /// Does something with a connection, if it is still there, and notes what follows from it.
    fn with(&mut self, token: Token, act: impl FnOnce(&mut Connection, &mut Context<'_>, &mut [u8])) {
        let Some(connection) = self.connections.get_mut(token.key()) else { return };
        if connection.token() != token {
            return;
        }
        let mut context = context_of!(self);
        act(connection, &mut context, &mut self.scratch);
        let Context { needs_turn, has_room, has_output, .. } = context;
        self.needs_turn |= needs_turn;
        self.has_output |= has_output;
        self.has_room |= has_room;
        self.dirty.push(token);
        if connection.is_waiting() && !connection.is_listed {
            connection.is_listed = true;
            self.waiting.push_back(token);
        }
    }

    fn with_key(&mut self, key: usize, act: impl FnOnce(&mut Connection, &mut Context<'_>)) {
        if let Some(token) = self.connections.get(key).map(Connection::token) {
            self.with(token, |connection, context, _| act(connection, context));
        }
    }

    fn handle_event(&mut self, event: transport::poll::Event) {
        match event.token {
            WAKER => self.mailbox.clear_wake(),
            QUEUE => self.needs_turn = true,
            OUTLET => {
                self.has_output = true;
                self.receive_answers();
            }
            DOOR => self.accept_forwards(),
            token if token < 1 << Token::KEY_BITS => self.accept((token - LISTENERS) as usize),
            token if Token(token).is_inlet() => {
                self.with_inlet(Token(token), |inlet, context| inlet.receive(context));
            }
            token => {
                self.with(Token(token), |connection, context, scratch| {
                    if event.ended {
                        connection.receive_after_end(scratch, context);
                    } else if event.readable {
                        connection.receive(scratch, context);
                    }
                });
            }
        }
    }

    fn accept(&mut self, at: usize) {
        for _ in 0..ACCEPTS_MAX {
            let Some((listener, node)) = self.listeners.get(at) else { return };
            let accepted = match listener {
                Listener::Tcp(listener) => transport::socket::accept(listener.as_fd())
                    .map(|accepted| accepted.map(|(socket, peer)| self.distribute(socket, peer, *node)))
                    .map_err(|error| error.to_string()),
                Listener::Rdma(listener) => listener
                    .take()
                    .map(|incoming| incoming.map(|incoming| self.let_in(incoming, *node)))
                    .map_err(|error| error.to_string()),
            };
            match accepted {
                Ok(Some(())) => {}
                Ok(None) => return,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept connections");
                    self.accepts_at = Some(self.now + ACCEPT_PAUSE);
                    return self.set_listeners(Interest::NONE);
                }
            }
        }
    }

    /// Has a connection over RDMA made, if there is room for its queue.
    fn let_in(&self, incoming: Incoming, node: Node) {
        let request = match Request::check(incoming.private_data(), QUEUE_ENTRIES) {
            Ok(request) => request,
            Err(status) => return rdma_acceptor::refuse(incoming, status),
        };
        let (Some(acceptor), Some(on_loop)) = (&self.shared.rdma, self.least_loaded()) else {
            return rdma_acceptor::refuse(incoming, RejectStatus::NO_RESOURCES);
        };
        if !request.is_admin() && !self.shared.reserve_capsules() {
            return rdma_acceptor::refuse(incoming, RejectStatus::NO_RESOURCES);
        }
        if let Some(load) = self.shared.loads.get(on_loop) {
            load.fetch_add(1, Ordering::Relaxed);
        }
        let incoming = Box::new(incoming);
        if !acceptor.accept(Pending { incoming, request, node, on_loop }) {
            rdma_acceptor::forget(&self.shared, on_loop, &request);
        }
    }

    fn set_listeners(&self, interest: Interest) {
        for (at, (listener, _)) in self.listeners.iter().enumerate() {
            // A listener that is in the set stays there.
            let _ = self.poller.modify(listener, LISTENERS + at as u64, interest);
        }
    }

    /// Gives a connection to the loop that has the fewest.
    fn distribute(&self, socket: OwnedFd, peer: SocketAddr, node: Node) {
        let loads = &self.shared.loads;
        let Some(least) = self.least_loaded() else {
            tracing::warn!(%peer, "too many connections; this one is closed");
            return;
        };
        if let (Some(count), Some(mailbox)) = (loads.get(least), self.mailboxes.get(least)) {
            count.fetch_add(1, Ordering::Relaxed);
            mailbox.post(Message::Connected(socket, peer, node), least != self.index);
        }
    }

    /// The loop that has the fewest connections, unless there are too many.
    fn least_loaded(&self) -> Option<usize> {
        let loads = &self.shared.loads;
        let load = |at: &usize| loads.get(*at).map_or(usize::MAX, |load| load.load(Ordering::Relaxed));
        let all: usize = (0..loads.len()).map(|at| load(&at)).sum();
        if all >= self.shared.limits.connections {
            return None;
        }
        (0..loads.len()).min_by_key(load)
    }

    fn handle_messages(&mut self) {
        loop {
            let mut messages = std::mem::take(&mut self.messages);
            self.mailbox.take(&mut messages);
            if messages.is_empty() {
                self.messages = messages;
                return;
            }
            for message in messages.drain(..) {
                self.handle_message(message);
            }
            self.messages = messages;
        }
    }

    fn handle_message(&mut self, message: Message) {
        match message {
            Message::Connected(socket, peer, node) => self.adopt(socket, peer, node),
            Message::ConnectedRdma { device, request, peer, node } => {
                self.adopt_rdma(device, request, (peer, node));
            }
            Message::Destroyed { token } => {
                self.with(token, |connection, context, _| connection.destroyed(context));
            }
            Message::Respond { token, cqe, data } => {
                self.with(token, |connection, _, _| connection.answer(&cqe, &data));
            }
            Message::Dropped { token, cid } => {
                self.with(token, |connection, _, _| connection.dropped(cid));
            }
            Message::Authenticated { token, done } => {
                self.with(token, |connection, context, _| connection.authenticated(*done, context));
            }
            Message::NotAuthenticated { token } => self.with(token, |connection, context, _| {
                connection.end(&EndReason::NotAuthenticated, context);
            }),
            Message::Close { token, reason } => self.with(token, |connection, context, _| {
                connection.end(&EndReason::Controller(reason), context);
            }),
            Message::View { token, view } => {
                self.with(token, |connection, _, _| connection.set_view(view));
            }
            Message::Fence { nsid } => self.begin_fence(nsid, None),
            Message::Taken { at, volume } => {
                if let Some(place) = self.volumes.get_mut(at) {
                    *place = Some(volume);
                }
            }
            Message::Give { nsid, at } => self.begin_fence(nsid, Some(at)),
            Message::Reserved { token, tag, result } => {
                self.with(token, |connection, context, _| connection.reserved(tag, result, context));
            }
            Message::Forwards(socket) => self.adopt_inlet(socket),
            Message::Forward { token } => self.with_inlet(token, Inlet::welcome),
            Message::Reach { at, nsid, route } => self.set_route(at, nsid, route),
            Message::GuestView { token, guest, view } => {
                self.with_inlet(token, |inlet, _| inlet.set_view(guest, view));
            }
            Message::GuestReserved { token, guest, tag, result } => {
                self.with_inlet(token, |inlet, context| inlet.reserved(guest, tag, result, context));
            }
            Message::Tick => self.has_controllers = true,
            Message::Stop => {
                self.listeners.clear();
                self.stops_at = Some(self.now + STOP);
                for token in self.tokens() {
                    self.with(token, |connection, context, _| connection.end(&EndReason::Stop, context));
                }
                self.stop_forwarding();
            }
        }
    }

    /// Refuses what has not begun and is not allowed any more. What has begun has to end.
    fn begin_fence(&mut self, nsid: u32, gives: Option<usize>) {
        let mut begun = Vec::new();
        for token in self.tokens() {
            self.with(token, |connection, context, _| connection.fence(nsid, &mut begun, context));
        }
        for token in self.inlet_tokens() {
            self.with_inlet(token, |inlet, context| inlet.fence(nsid, &mut begun, context));
        }
        let fence = Fence { nsid, gives, begun };
        if fence.begun.is_empty() {
            self.end_fence(&fence);
        } else {
            self.fences.push(fence);
        }
    }

    /// Nothing is executed any more that the fence waited for.
    fn end_fence(&mut self, fence: &Fence) {
        let Some(at) = fence.gives else { return self.shared.controllers.fenced(self.index, fence.nsid) };
        for token in self.tokens() {
            self.with(token, |connection, _, _| connection.forget_volume(at as u64));
        }
        for token in self.inlet_tokens() {
            self.with_inlet(token, |inlet, _| inlet.forget_volume(at as u64));
        }
        if let Some(place) = self.volumes.get_mut(at) {
            *place = None;
        }
        self.shared.controllers.given(fence.nsid);
    }

    /// Tells the controllers of fences whose commands have all ended.
    fn end_fences(&mut self) {
        if self.fences.is_empty() {
            return;
        }
        let (connections, inlets) = (&self.connections, &self.inlets);
        let ended = self.fences.extract_if(.., |fence| {
            fence.begun.retain(|(token, tag)| {
                if token.is_inlet() {
                    let inlet = inlets.get(token.key() - Token::INLETS).filter(|one| one.token() == *token);
                    return inlet.is_some_and(|inlet| inlet.is_fenced_off(*tag));
                }
                let connection = connections.get(token.key()).filter(|one| one.token() == *token);
                connection.is_some_and(|connection| connection.is_fenced_off(*tag))
            });
            fence.begun.is_empty()
        });
        let ended: Vec<Fence> = ended.collect();
        ended.iter().for_each(|fence| self.end_fence(fence));
        self.handle_messages();
    }

    fn adopt(&mut self, socket: OwnedFd, peer: SocketAddr, node: Node) {
        let gone = || {
            if let Some(load) = self.shared.loads.get(self.index) {
                load.fetch_sub(1, Ordering::Relaxed);
            }
        };
        if self.stops_at.is_some() || self.connections.len() >= Token::INLETS {
            return gone();
        }
        self.serial += 1;
        let entry = self.connections.vacant_entry();
        let token = Token::new(self.serial, entry.key());
        // Without these options a dead peer is found by its silence only.
        let _ = transport::socket::set_deadlines(socket.as_fd(), PROBE, self.shared.limits.transfer);
        if let Err(error) = self.poller.add(&socket, token.0, Interest::READ) {
            tracing::warn!(%error, %peer, "cannot wait for a connection");
            return gone();
        }
        let place = Place { event_loop: self.index, token };
        entry.insert(Connection::new(place, socket, (peer, node), &self.shared));
    }

    fn adopt_rdma(&mut self, device: Box<Device>, request: Request, (peer, node): (SocketAddr, Node)) {
        if self.stops_at.is_some() || self.connections.len() >= Token::INLETS {
            return rdma_acceptor::forget(&self.shared, self.index, &request);
        }
        self.serial += 1;
        let entry = self.connections.vacant_entry();
        let token = Token::new(self.serial, entry.key());
        let link = RdmaLink::new(device, request, self.shared.controllers.now());
        if let Err(error) = link.register(&self.poller, token.0) {
            tracing::warn!(%error, %peer, "cannot wait for a connection");
            return rdma_acceptor::forget(&self.shared, self.index, &request);
        }
        let place = Place { event_loop: self.index, token };
        entry.insert(Connection::over_rdma(place, link, (peer, node)));
        // What has come before it was waited for is not told.
        self.more.push(token);
    }

    /// Looks at every connection, and lets the time of the controllers pass.
    fn sweep(&mut self) {
        if self.accepts_at.is_some_and(|at| self.now >= at) {
            self.accepts_at = None;
            self.set_listeners(Interest::READ);
        }
        if self.now.duration_since(self.swept) < SWEEP {
            return;
        }
        self.swept = self.now;
        for token in self.tokens() {
            self.with(token, |connection, context, _| connection.sweep(context));
        }
        if self.index == 0 {
            self.has_controllers = self.shared.controllers.tick(self.index, Duration::ZERO);
        }
        self.handle_messages();
    }

    /// Executes what was submitted, and answers what has ended.
    fn work(&mut self) -> io::Result<()> {
        for _ in 0..TURNS_MAX {
            if std::mem::take(&mut self.has_room) {
                self.start_waiting();
            }
            if !std::mem::take(&mut self.needs_turn) {
                break;
            }
            let (connections, inlets) = (&self.connections, &self.inlets);
            let late = self.late;
            inlets.iter().for_each(|(_, inlet)| inlet.begin_turn());
            let mut admit = |tag: u64| {
                if let Some(at) = inlet_of(tag) {
                    return inlets.get(at).is_some_and(Inlet::admits);
                }
                let connection = connections.get((tag >> 16) as usize);
                connection.is_some_and(|connection| connection.connected_at(tag as u16, late).is_some())
            };
            self.queue.turn(&mut admit, &mut self.done)?;
            let mut done = std::mem::take(&mut self.done);
            for event in done.drain(..) {
                match event {
                    Event::Done { tag, result } if inlet_of(tag).is_some() => {
                        self.with_inlet_of(tag, |inlet, context| inlet.done(tag as u16, result, context));
                    }
                    Event::Drained { tag } if inlet_of(tag).is_some() => {
                        self.with_inlet_of(tag, |inlet, context| inlet.drained(context));
                    }
                    Event::Done { tag, result } => {
                        self.with_key((tag >> 16) as usize, |connection, context| {
                            connection.done(tag as u16, result, context);
                        })
                    }
                    Event::Drained { tag } => {
                        self.with_key((tag >> 16) as usize, |connection, context| {
                            connection.drained(context);
                        });
                    }
                }
            }
            self.done = done;
            self.handle_messages();
        }
        Ok(())
    }

    /// Starts commands that wait, each connection in its turn.
    fn start_waiting(&mut self) {
        self.start_inlets();
        for _ in 0..self.waiting.len() {
            let Some(token) = self.waiting.pop_front() else { return };
            self.with(token, |connection, context, _| {
                connection.is_listed = false;
                connection.start_waiting(context);
            });
        }
    }

    /// Sends what connections have, and forgets those that are gone.
    fn flush(&mut self) {
        let mut dirty = std::mem::take(&mut self.dirty);
        dirty.sort_unstable();
        dirty.dedup();
        let mut again = Vec::new();
        for token in dirty.drain(..) {
            let mut flushed = Flushed::All;
            self.with(token, |connection, context, _| {
                if connection.has_output() {
                    flushed = connection.flush(context);
                }
            });
            if flushed == Flushed::OutOfTurn {
                again.push(token);
            }
            self.settle(token, flushed);
        }
        // What those here have put there is done.
        self.dirty = again;
        self.handle_messages();
    }

    /// What a connection waits for now.
    fn settle(&mut self, token: Token, flushed: Flushed) {
        let Some(connection) = self.connections.get_mut(token.key()) else { return };
        if connection.token() != token {
            return;
        }
        if let Some(remains) = connection.take_remains(&self.poller)
            && let Some(acceptor) = &self.shared.rdma
        {
            acceptor.destroy(remains, Place { event_loop: self.index, token });
        }
        if connection.is_gone() {
            self.connections.remove(token.key());
            if let Some(load) = self.shared.loads.get(self.index) {
                load.fetch_sub(1, Ordering::Relaxed);
            }
            return;
        }
        if connection.has_more && !self.more.contains(&token) {
            self.more.push(token);
        }
        let wanted = connection.wanted(flushed);
        if wanted != connection.interest
            && let Some(socket) = connection.socket()
            && self.poller.modify(socket, token.0, wanted).is_ok()
        {
            connection.interest = wanted;
        }
    }
}
