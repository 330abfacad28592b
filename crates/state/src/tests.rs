//! Processes that share an arena, each of which may end before any of its stores.

mod changes;
mod clients;
mod consistency;
mod grace;
mod kills;
mod locks;
mod memory;
mod opens;
mod oracle;
mod peers;
mod races;
mod recalls;
mod slots;
mod threads;
mod waits;

use super::*;
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// The panic payload that ends a process in the middle.
struct Killed;

/// The memory as one process sees it. A process that has ended changes nothing any more.
#[derive(Debug)]
pub(super) struct Process<'m> {
    memory: &'m HeapWords,
    steps: Cell<u64>,
    left: Cell<Option<u64>>,
    dead: Cell<bool>,
}

impl<'m> Process<'m> {
    pub fn new(memory: &'m HeapWords) -> Self {
        Self { memory, steps: Cell::new(0), left: Cell::new(None), dead: Cell::new(false) }
    }

    /// Returns false if the process has ended.
    fn step(&self) -> bool {
        if self.dead.get() {
            return false;
        }
        if self.left.get() == Some(0) {
            self.dead.set(true);
            resume_unwind(Box::new(Killed));
        }
        self.left.set(self.left.get().map(|left| left - 1));
        self.steps.set(self.steps.get() + 1);
        true
    }

    /// Acts until the process ends before its store number `steps`; returns `None` if it ended.
    pub fn killed_before<T>(&self, steps: u64, act: impl FnOnce() -> T) -> Option<T> {
        self.left.set(Some(steps));
        let end = catch_unwind(AssertUnwindSafe(act));
        self.left.set(None);
        match end {
            Ok(done) => Some(done),
            Err(cause) if cause.is::<Killed>() => None,
            Err(cause) => resume_unwind(cause),
        }
    }
}

impl Words for Process<'_> {
    fn word_count(&self) -> usize {
        self.memory.word_count()
    }

    fn load(&self, at: usize) -> u64 {
        self.memory.load(at)
    }

    fn store(&self, at: usize, value: u64) {
        if self.step() {
            self.memory.store(at, value);
        }
    }

    fn compare_exchange(&self, at: usize, from: u64, to: u64) -> Result<(), u64> {
        if self.step() { self.memory.compare_exchange(at, from, to) } else { Err(0) }
    }
}

/// Which processes have ended.
#[derive(Debug, Default)]
pub(super) struct Machine {
    dead: RefCell<HashSet<u32>>,
}

/// A process of a machine, by its number.
#[derive(Debug, Clone, Copy)]
pub(super) struct TestHost<'a> {
    machine: &'a Machine,
    number: u32,
}

impl Machine {
    pub fn host(&self, number: u32) -> TestHost<'_> {
        TestHost { machine: self, number }
    }

    pub fn kill(&self, number: u32) {
        self.dead.borrow_mut().insert(number);
    }
}

impl Host for TestHost<'_> {
    fn me(&self) -> Owner {
        Owner::new(self.number).expect("a number")
    }

    fn is_alive(&self, owner: Owner) -> bool {
        !self.machine.dead.borrow().contains(&owner.number())
    }

    fn pause(&self, round: u32) -> bool {
        round < 3
    }
}

pub(super) fn small_config() -> Config {
    Config { bounds: Bounds::small(), lease: seconds(90), courtesy: seconds(86_400) }
}

pub(super) fn memory(config: &Config) -> HeapWords {
    HeapWords::new(State::<HeapWords>::word_count(config).expect("usable bounds"))
}

/// A new arena without recovery records, and this process's view of it.
pub(super) fn create<'m>(memory: &'m HeapWords, config: &Config) -> State<&'m HeapWords> {
    let state = State::create(memory, config, 7, 0x5eed).expect("a new arena");
    state.begin_grace(&SingleProcess, seconds(0), &[]).expect("nothing to load");
    state
}

pub(super) fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(super) const PRINCIPAL: u64 = 11;

/// Each owner has an address of its own.
pub(super) fn exchange(owner: &str, verifier: u64) -> ExchangeIdArgs<'_> {
    let number = owner.bytes().fold(0_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    let peer = Some(IpAddr::from(number.to_be_bytes()));
    ExchangeIdArgs { owner: owner.as_bytes(), verifier, principal: PRINCIPAL, update: false, peer }
}

pub(super) fn channels(requests: u32) -> SessionChannels {
    let channel = ChannelAttributes {
        request_bytes: 1 << 20,
        response_bytes: 1 << 20,
        cached_bytes: 4096,
        operations: 8,
        requests,
    };
    SessionChannels { fore: channel, back: channel, back_channel: true }
}

pub(super) fn session_args(client: ClientId, sequence: u32) -> CreateSessionArgs<'static> {
    CreateSessionArgs {
        client,
        sequence,
        principal: PRINCIPAL,
        asked: channels(8),
        limits: channels(1024),
        callback_program: 0x4000_0000,
        callback_security: b"sys",
        refused: None,
    }
}

/// A confirmed client with a session.
pub(super) fn join<W: Words>(
    state: &State<W>,
    host: &impl Host,
    now: Duration,
    owner: &str,
) -> (ClientId, SessionId) {
    let known = state.exchange_id(host, now, exchange(owner, 1)).expect("a client");
    let args = session_args(known.client, known.sequence);
    (known.client, state.create_session(host, now, &args).expect("a session").session)
}

pub(super) fn request(session: SessionId, slot: u32, sequence: u32) -> SequenceArgs {
    SequenceArgs { session, slot, sequence, digest: u64::from(slot) << 32 | u64::from(sequence) }
}

/// Begins a request that must run.
pub(super) fn run<W: Words>(
    state: &State<W>,
    host: &impl Host,
    now: Duration,
    args: &SequenceArgs,
) -> Ticket {
    match state.sequence(host, now, args) {
        Ok(Sequence::Run(ticket)) => ticket,
        other => panic!("{other:?} instead of a new request"),
    }
}

/// A client that has ended its reclaim, with a session; its next sequence id on slot 0.
#[derive(Debug, Clone, Copy)]
pub(super) struct Member {
    pub client: ClientId,
    pub session: SessionId,
    pub sequence: u32,
}

impl Member {
    /// A client that may open.
    pub fn join<W: Words>(state: &State<W>, host: &impl Host, now: Duration, owner: &str) -> Self {
        let (client, session) = join(state, host, now, owner);
        let mut member = Self { client, session, sequence: 0 };
        member.act(state, host, now, |ticket| state.reclaim_complete(host, now, ticket)).expect("done");
        state.persisted(host, now, client).expect("written");
        member
    }

    /// Executes one operation in a request of its own.
    pub fn act<W: Words, T>(
        &mut self,
        state: &State<W>,
        host: &impl Host,
        now: Duration,
        act: impl FnOnce(&Ticket) -> T,
    ) -> T {
        self.sequence += 1;
        let ticket = run(state, host, now, &request(self.session, 0, self.sequence));
        let done = act(&ticket);
        assert!(state.finish(host, &ticket, None));
        done
    }

    pub fn open<W: Words>(
        &mut self,
        state: &State<W>,
        now: Duration,
        file: &str,
        access: u8,
        deny: u8,
    ) -> Result<StateId, Error> {
        self.open_as(state, now, "owner", file, access, deny)
    }

    pub fn open_as<W: Words>(
        &mut self,
        state: &State<W>,
        now: Duration,
        owner: &str,
        file: &str,
        access: u8,
        deny: u8,
    ) -> Result<StateId, Error> {
        let (owner, file) = (owner.as_bytes(), file.as_bytes());
        let args = OpenArgs { owner, file, access, deny, reclaim: false, created: false };
        self.act(state, &SingleProcess, now, |ticket| state.open_file(&SingleProcess, now, ticket, &args))
    }

    pub fn close<W: Words>(&mut self, state: &State<W>, now: Duration, id: StateId) -> Result<(), Error> {
        self.act(state, &SingleProcess, now, |ticket| state.close(&SingleProcess, now, ticket, id))
    }

    pub fn lock<W: Words>(
        &mut self,
        state: &State<W>,
        now: Duration,
        locker: Locker<'_>,
        (offset, length): (u64, u64),
        exclusive: bool,
    ) -> Result<StateId, Error> {
        let args = LockArgs { locker, offset, length, exclusive, wait: true, reclaim: false };
        self.act(state, &SingleProcess, now, |ticket| state.lock(&SingleProcess, now, ticket, &args))
    }

    pub fn unlock<W: Words>(
        &mut self,
        state: &State<W>,
        now: Duration,
        id: StateId,
        range: (u64, u64),
    ) -> Result<StateId, Error> {
        self.act(state, &SingleProcess, now, |ticket| state.unlock(&SingleProcess, now, ticket, id, range))
    }
}

pub(super) fn with_state(test: impl FnOnce(&State<&HeapWords>)) {
    let config = small_config();
    let memory = memory(&config);
    let state = create(&memory, &config);
    test(&state);
    consistency::check(&state);
}
