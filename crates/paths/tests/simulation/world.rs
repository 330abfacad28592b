//! A world for one table: nodes behind links that fail, callers, and a driver, on a virtual clock.
//!
//! The driver here does what a real driver does with sockets: it keeps a generation per connection,
//! so that nothing of an aborted connection is delivered, and checks that calls are moved only off
//! connections that are gone. Links serve calls one after the other; calls in flight on a silent
//! link wait until the link is back, as with TCP retransmissions.

use paths::{
    Class, Config, ConnId, ConnSpec, NodeId, Output, PathId, PathSpec, Placement, State, Table, Timing,
};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

pub const TICK: Duration = paths::timing::TICK;

/// xorshift64*.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) % bound.max(1)
    }

    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }
}

/// A fault of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing arrives any more, and neither end is notified.
    Silent,
    /// All connections break at once, and connects are refused.
    Reset,
    /// Restores the link to its initial state.
    Restore,
    /// The link is this many times slower.
    Slow(u32),
    /// The server process stops; its system still accepts connections.
    Frozen,
    /// An overloaded server: it answers pending requests only at this interval, while its system
    /// accepts connections.
    Stalls(Duration),
}

struct Link {
    latency: Duration,
    bytes_per_s: u64,
    slow: u32,
    silent: bool,
    frozen: bool,
    stalls: Option<Duration>,
    refuses: bool,
    free_at: Duration,
    parked: Vec<Event>,
    served_bytes: u64,
}

impl Link {
    /// When the server sends a reply that is ready at this time.
    fn served(&self, at: Duration) -> Duration {
        let Some(every) = self.stalls else { return at };
        Duration::from_nanos(at.as_nanos().next_multiple_of(every.as_nanos()) as u64)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Answer { conn: u16, generation: u32, call: usize },
    Reached { conn: u16, generation: u32 },
    Established { conn: u16, generation: u32 },
    Refused { conn: u16, generation: u32 },
    ProbeReached { path: u16 },
    ProbeAnswered { path: u16 },
    ProbeRefused { path: u16 },
    Tick,
    Fault(usize),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SlotState {
    Closed,
    Connecting,
    Live,
}

struct Slot {
    path: u16,
    generation: u32,
    state: SlotState,
    calls: Vec<usize>,
}

struct Call {
    caller: usize,
    class: Class,
    preferred_node: Option<NodeId>,
    bytes: u32,
    started: Duration,
    sent: Duration,
    moving_since: Duration,
    answers: u32,
}

/// How to build a world.
pub struct Plan {
    pub nodes: u16,
    /// The path of each connection of the table.
    pub connections: Vec<u16>,
    pub callers: usize,
    /// Each caller uses one file, which is placed on a node.
    pub files: bool,
    /// All files but one per node are placed on the first node.
    pub lopsided: bool,
    pub bytes: u32,
    pub seed: u64,
    pub faults: Vec<(Duration, u16, Fault)>,
    /// When callers stop calling.
    pub until: Duration,
}

pub struct World {
    pub now: Duration,
    pub table: Table,
    pub placement: Placement,
    pub outputs: u64,
    pub answered: u64,
    pub longest: Duration,
    pub failures: Vec<String>,
    plan: Plan,
    links: Vec<Link>,
    slots: Vec<Slot>,
    calls: Vec<Call>,
    waiting: VecDeque<usize>,
    events: BinaryHeap<Reverse<(Duration, u64, Event)>>,
    sequence: u64,
    preferred_nodes: Vec<Option<NodeId>>,
}

impl World {
    pub fn new(plan: Plan) -> Self {
        let mut random = Random::new(plan.seed);
        let spec = |&path: &u16| ConnSpec { path: PathId(path), node: NodeId(path), metadata: false };
        let config = Config {
            paths: (0..plan.nodes).map(|node| PathSpec { node: NodeId(node) }).collect(),
            connections: plan.connections.iter().map(spec).collect(),
            metadata_apart: false,
            spread_reads: !plan.files,
            spread_writes: !plan.files,
            timing: Timing::default(),
            seed: plan.seed,
        };
        let mut placement = Placement::new(plan.nodes, random.below(1000) as u16);
        let mut place = |file: u64| match placement.place(file) {
            _ if plan.lopsided && file >= u64::from(plan.nodes) => NodeId(0),
            node => node,
        };
        let preferred_nodes = (0..plan.callers as u64).map(|file| plan.files.then(|| place(file))).collect();
        let latency = Duration::from_micros(random.between(20, 400));
        let link = || Link {
            latency,
            bytes_per_s: 1_000_000_000,
            slow: 1,
            silent: false,
            frozen: false,
            stalls: None,
            refuses: false,
            free_at: Duration::ZERO,
            parked: Vec::new(),
            served_bytes: 0,
        };
        let slot = |&path: &u16| Slot { path, generation: 0, state: SlotState::Closed, calls: Vec::new() };
        let mut world = Self {
            now: Duration::ZERO,
            table: Table::new(config, Duration::ZERO),
            placement,
            outputs: 0,
            answered: 0,
            longest: Duration::ZERO,
            failures: Vec::new(),
            links: (0..plan.nodes).map(|_| link()).collect(),
            slots: plan.connections.iter().map(slot).collect(),
            calls: Vec::new(),
            waiting: VecDeque::new(),
            events: BinaryHeap::new(),
            sequence: 0,
            preferred_nodes,
            plan,
        };
        for index in 0..world.plan.faults.len() {
            world.at(world.plan.faults[index].0, Event::Fault(index));
        }
        world.at(TICK, Event::Tick);
        for caller in 0..world.plan.callers {
            world.start_call(caller);
        }
        world.settle();
        world
    }

    /// Runs until this time, or until the first violated invariant.
    pub fn run(&mut self, until: Duration) {
        while self.failures.is_empty() {
            let event_at = self.events.peek().map(|Reverse((at, ..))| *at);
            let wake = self.table.next_wake();
            let Some(next) = event_at
                .into_iter()
                .chain(wake)
                .min()
                .map(|at| at.max(self.now))
                .filter(|&next| next <= until)
            else {
                break;
            };
            self.now = next;
            if wake.is_some_and(|wake| wake <= next) {
                self.table.advance(next);
                self.settle();
                if self.table.next_wake().is_some_and(|wake| wake <= next) {
                    self.fail("advance leaves a wake that is due".to_owned());
                }
            }
            while let Some(Reverse((at, ..))) = self.events.peek() {
                if *at > next {
                    break;
                }
                let Some(Reverse((_, _, event))) = self.events.pop() else { break };
                self.handle(event);
                self.settle();
            }
        }
        self.now = self.now.max(until);
    }

    pub fn unanswered(&self) -> usize {
        self.calls.iter().filter(|call| call.answers == 0).count()
    }

    /// Returns the bytes served by each node since the last call, and resets the counters.
    pub fn take_served(&mut self) -> Vec<u64> {
        self.links.iter_mut().map(|link| std::mem::take(&mut link.served_bytes)).collect()
    }

    pub fn state(&self, path: u16) -> State {
        self.table.path(PathId(path)).map_or(State::Down, |status| status.state)
    }

    fn fail(&mut self, why: String) {
        self.failures.push(format!("at {:?}: {why}", self.now));
    }

    fn at(&mut self, time: Duration, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((time, self.sequence, event)));
    }

    fn start_call(&mut self, caller: usize) {
        if self.now >= self.plan.until {
            return;
        }
        self.calls.push(Call {
            caller,
            class: if caller.is_multiple_of(2) { Class::Read } else { Class::Write },
            preferred_node: self.preferred_nodes[caller],
            bytes: self.plan.bytes,
            started: self.now,
            sent: self.now,
            moving_since: self.now,
            answers: 0,
        });
        self.waiting.push_back(self.calls.len() - 1);
    }

    /// Drains outputs, then sends the waiting calls.
    fn settle(&mut self) {
        while let Some(output) = self.table.poll_output() {
            self.outputs += 1;
            self.perform(output);
        }
        while let Some(&call) = self.waiting.front() {
            let Call { class, preferred_node, bytes, .. } = self.calls[call];
            let Some(conn) = self.table.pick(class, preferred_node, bytes) else { break };
            self.waiting.pop_front();
            self.table.sent(self.now, conn, Class::Read, bytes);
            self.send(conn.0, call);
        }
    }

    fn send(&mut self, conn: u16, call: usize) {
        let slot = &mut self.slots[usize::from(conn)];
        if slot.state != SlotState::Live {
            let state = slot.state;
            return self.fail(format!("a call is sent on connection {conn}, which is {state:?}"));
        }
        if slot.calls.contains(&call) {
            return self.fail(format!("call {call} is on connection {conn} twice"));
        }
        slot.calls.push(call);
        let (path, generation) = (slot.path, slot.generation);
        self.calls[call].sent = self.now;
        let link = &mut self.links[usize::from(path)];
        let service = Duration::from_nanos(
            u64::from(self.calls[call].bytes + 2000) * 1_000_000_000 / link.bytes_per_s
                * u64::from(link.slow),
        );
        self.calls[call].moving_since = link.free_at.max(self.now) + link.latency * link.slow;
        link.free_at = link.free_at.max(self.now) + service;
        let at = link.free_at + 2 * link.latency * link.slow;
        self.at(at, Event::Answer { conn, generation, call });
    }

    fn perform(&mut self, output: Output) {
        match output {
            Output::Connect(ConnId(conn)) => self.connect(conn),
            Output::FailOver { conn: ConnId(conn), to: PathId(path) } => {
                if !self.slots[usize::from(conn)].calls.is_empty() {
                    self.fail(format!("connection {conn} is failed-over with calls in flight"));
                }
                self.slots[usize::from(conn)].path = path;
                self.connect(conn);
            }
            Output::Abort(ConnId(conn)) => {
                let slot = &mut self.slots[usize::from(conn)];
                slot.state = SlotState::Closed;
                slot.generation += 1;
            }
            Output::Move(ConnId(conn)) => {
                let slot = &mut self.slots[usize::from(conn)];
                let gone = slot.state == SlotState::Closed;
                let calls = std::mem::take(&mut slot.calls);
                self.waiting.extend(calls);
                if !gone {
                    self.fail(format!("calls leave connection {conn}, which is not fenced"));
                }
            }
            Output::Probe(PathId(path)) => {
                let link = &self.links[usize::from(path)];
                let reached = self.now + link.latency * link.slow;
                let at = link.served(self.now + 2 * link.latency * link.slow);
                let refused = link.refuses && !link.silent;
                if !refused {
                    self.at(reached, Event::ProbeReached { path });
                }
                self.at(
                    at,
                    if refused { Event::ProbeRefused { path } } else { Event::ProbeAnswered { path } },
                );
            }
            Output::StateChanged { .. } => {}
        }
    }

    fn connect(&mut self, conn: u16) {
        let slot = &mut self.slots[usize::from(conn)];
        if !slot.calls.is_empty() {
            return self.fail(format!("connection {conn} connects with calls in flight"));
        }
        slot.generation += 1;
        slot.state = SlotState::Connecting;
        let generation = slot.generation;
        let link = &self.links[usize::from(slot.path)];
        let reached = self.now + 2 * link.latency * link.slow;
        let at = link.served(self.now + 4 * link.latency * link.slow);
        let refused = link.refuses && !link.silent;
        if !refused {
            self.at(reached, Event::Reached { conn, generation });
        }
        let event = match refused {
            true => Event::Refused { conn, generation },
            false => Event::Established { conn, generation },
        };
        self.at(at, event);
    }

    fn path_of(&self, event: Event) -> Option<u16> {
        match event {
            Event::Answer { conn, .. }
            | Event::Reached { conn, .. }
            | Event::Established { conn, .. }
            | Event::Refused { conn, .. } => Some(self.slots[usize::from(conn)].path),
            Event::ProbeReached { path } | Event::ProbeAnswered { path } | Event::ProbeRefused { path } => {
                Some(path)
            }
            Event::Tick | Event::Fault(_) => None,
        }
    }

    fn current(&self, conn: u16, generation: u32) -> bool {
        self.slots[usize::from(conn)].generation == generation
    }

    fn handle(&mut self, event: Event) {
        if let Event::Answer { conn, generation, .. }
        | Event::Reached { conn, generation }
        | Event::Established { conn, generation }
        | Event::Refused { conn, generation } = event
            && !self.current(conn, generation)
        {
            return;
        }
        let by_the_system = matches!(event, Event::Reached { .. } | Event::ProbeReached { .. });
        if let Some(link) = self.path_of(event).map(|path| &mut self.links[usize::from(path)])
            && (link.silent || (link.frozen && !by_the_system))
        {
            link.parked.push(event);
            return;
        }
        let now = self.now;
        match event {
            Event::Answer { conn, call, .. } => self.answer(conn, call),
            Event::Established { conn, .. } => {
                self.slots[usize::from(conn)].state = SlotState::Live;
                self.table.connected(now, ConnId(conn));
            }
            Event::Reached { conn, .. } => self.table.reached(now, ConnId(conn)),
            Event::ProbeReached { path } => self.table.probe_reached(now, PathId(path)),
            Event::Refused { conn, .. } => self.break_connection(conn),
            Event::ProbeAnswered { path } => self.table.probe_answered(now, PathId(path)),
            Event::ProbeRefused { path } => self.table.probe_failed(now, PathId(path)),
            Event::Tick => self.tick(),
            Event::Fault(index) => self.strike(index),
        }
    }

    fn answer(&mut self, conn: u16, call: usize) {
        let now = self.now;
        let slot = &mut self.slots[usize::from(conn)];
        slot.calls.retain(|&other| other != call);
        self.links[usize::from(slot.path)].served_bytes += u64::from(self.calls[call].bytes);
        let of_call = &mut self.calls[call];
        of_call.answers += 1;
        let (answers, caller, bytes, sent) = (of_call.answers, of_call.caller, of_call.bytes, of_call.sent);
        self.longest = self.longest.max(now - of_call.started);
        self.answered += 1;
        self.table.answered(now, ConnId(conn), Class::Read, bytes, now - sent);
        if answers != 1 {
            self.fail(format!("call {call} was answered {answers} times"));
        }
        self.start_call(caller);
    }

    fn break_connection(&mut self, conn: u16) {
        let slot = &mut self.slots[usize::from(conn)];
        slot.state = SlotState::Closed;
        slot.generation += 1;
        self.table.disconnected(self.now, ConnId(conn));
    }

    fn tick(&mut self) {
        for index in 0..self.slots.len() {
            let slot = &self.slots[index];
            let oldest = slot.calls.iter().map(|&call| self.calls[call].sent).min();
            let link = &self.links[usize::from(slot.path)];
            let silent = link.silent || link.frozen || link.stalls.is_some();
            let moving = slot.calls.iter().any(|&call| self.calls[call].moving_since <= self.now);
            self.table.tick(self.now, ConnId(index as u16), oldest, moving && !silent);
            self.settle();
        }
        self.at(self.now + TICK, Event::Tick);
    }

    fn strike(&mut self, index: usize) {
        let (_, path, fault) = self.plan.faults[index];
        let now = self.now;
        let link = &mut self.links[usize::from(path)];
        match fault {
            Fault::Silent => link.silent = true,
            Fault::Slow(times) => link.slow = times,
            Fault::Frozen => link.frozen = true,
            Fault::Stalls(every) => link.stalls = Some(every),
            Fault::Restore => {
                link.silent = false;
                link.frozen = false;
                link.stalls = None;
                link.refuses = false;
                link.slow = 1;
                link.free_at = now;
                for event in std::mem::take(&mut link.parked) {
                    self.at(now, event);
                }
            }
            Fault::Reset => {
                link.refuses = true;
                link.silent = false;
                link.free_at = now;
                for conn in 0..self.slots.len() {
                    let slot = &self.slots[conn];
                    if slot.path == path && slot.state != SlotState::Closed {
                        self.break_connection(conn as u16);
                        self.settle();
                    }
                }
            }
        }
    }
}
