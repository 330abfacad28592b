//! Random histories of several clients and processes, some of which end in the middle of an
//! operation, compared with a naive model: lists of opens, and one cell for each byte of a file.

mod model;

use super::consistency::check;
use super::*;
use crate::change::Change;
use model::{Expected, Model, Party};
use std::time::Instant;

/// The environment variable that says how long more histories are played: docs/TESTING.md.
const MINUTES: &str = "STATE_HISTORIES_MINUTES";

const CLIENTS: usize = 4;
const NLM_HOSTS: usize = 2;
const FILES: usize = 3;
const OWNERS: usize = 2;
/// The first bytes of a file; one more cell stands for all the others.
const BYTES: u64 = 12;

/// SplitMix64, so that a history is its seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn one_in(&mut self, many: usize) -> bool {
        self.below(many) == 0
    }

    fn range(&mut self) -> (u64, u64) {
        let offset = self.below(BYTES as usize) as u64;
        let rest = BYTES - offset;
        let length = if self.one_in(4) { u64::MAX } else { 1 + self.below(rest as usize) as u64 };
        (offset, length)
    }
}

fn file_name(file: usize) -> [u8; 2] {
    [b'f', file as u8]
}

fn owner_name(owner: usize) -> [u8; 2] {
    [b'o', owner as u8]
}

/// What an operation gives: a stateid, or nothing that is compared.
type Outcome = Result<Option<StateId>, Error>;

/// A change that a process has begun and not ended.
struct Begun {
    process: u32,
    file: usize,
    at: usize,
    mine: u64,
}

/// The real state, with the sessions of the clients.
struct History<'m> {
    memory: &'m HeapWords,
    machine: Machine,
    /// The process that acts.
    process: u32,
    random: Random,
    members: Vec<Option<Member>>,
    verifiers: u64,
    model: Model,
    /// Changes that are under way, also of processes that have ended.
    begun: Vec<Begun>,
    granted: u32,
    /// How often a client was kept from a file.
    kept: u32,
    /// No process ends now.
    is_safe: bool,
    log: Vec<String>,
}

impl History<'_> {
    fn now(&self) -> Duration {
        Duration::from_millis(self.model.now)
    }

    fn state(&self) -> State<&HeapWords> {
        State::open(self.memory).expect("an arena")
    }

    /// Acts in the current process, which may end before some store; then another does the same.
    /// `act` must come to the same end if it is done again after it was not done.
    fn survive<T>(&mut self, mut act: impl FnMut(&State<&Process<'_>>, &TestHost<'_>) -> T) -> T {
        loop {
            let process = Process::new(self.memory);
            let state = State::open(&process).expect("an arena");
            let host = self.machine.host(self.process);
            let ends = !self.is_safe && self.random.one_in(3);
            let steps = if ends { self.random.below(150) as u64 } else { u64::MAX };
            if let Some(done) = process.killed_before(steps, || act(&state, &host)) {
                return done;
            }
            self.machine.kill(self.process);
            self.process += 1;
            self.log.push(format!("  process ended at {steps}"));
        }
    }

    /// Makes sure that a client is there.
    fn member(&mut self, client: usize) -> Member {
        if let Some(member) = self.members[client] {
            return member;
        }
        self.verifiers += 1;
        let (now, verifier, name) = (self.now(), self.verifiers, format!("client {client}"));
        let member = self.survive(|state, host| {
            let args = exchange(&name, verifier);
            let known = state.exchange_id(host, now, args).expect("room");
            let sequence = if known.confirmed { known.sequence - 1 } else { known.sequence };
            let made = state.create_session(host, now, &session_args(known.client, sequence));
            let session = made.expect("room").session;
            Member { client: known.client, session, sequence: 0 }
        });
        self.members[client] = Some(member);
        self.model.joined(client);
        let done = self
            .act(client, |state, host, now, ticket| state.reclaim_complete(host, now, ticket).map(|()| None));
        assert_eq!(done, Ok(None));
        self.survive(|state, host| state.persisted(host, now, member.client).expect("no error"));
        self.members[client].expect("just joined")
    }

    /// One operation in a request of its own.
    fn act(
        &mut self,
        client: usize,
        act: impl Fn(&State<&Process<'_>>, &TestHost<'_>, Duration, &Ticket) -> Outcome,
    ) -> Outcome {
        let now = self.now();
        let member = self.members[client].as_mut().expect("joined");
        member.sequence += 1;
        let args = request(member.session, 0, member.sequence);
        self.model.renewed(client);
        self.survive(|state, host| {
            let (ticket, done) = match state.sequence(host, now, &args).expect("its session lives") {
                Sequence::Run(ticket) => (ticket, None),
                Sequence::Continue(ticket, progress) if progress.next == NextOperation::Committed => {
                    (ticket, Some(State::<HeapWords>::committed_state(progress.note)))
                }
                Sequence::Continue(ticket, _) => (ticket, None),
                other => panic!("{other:?}"),
            };
            let outcome = match done {
                Some(id) if id.other == [0; 12] => Ok(None),
                Some(id) => Ok(Some(id)),
                None => act(state, host, now, &ticket),
            };
            assert!(state.finish(host, &ticket, None));
            outcome
        })
    }

    /// Compares a result with the model's, and which clients were dropped because of it.
    fn compare(&mut self, what: &str, outcome: &Outcome, expected: &Expected) {
        self.log.push(format!("{}: {what}: {outcome:?}", self.model.now));
        match (outcome, expected) {
            (Ok(None), Expected::Done) => {}
            (Ok(Some(id)), Expected::Version(seqid)) => assert_eq!(id.seqid, *seqid),
            (Err(Error::Denied(holder)), Expected::Denied(by)) => {
                assert!(by.iter().any(|by| self.is_holder(holder, *by)), "{holder:?} is none of {by:?}");
            }
            (Err(error), Expected::Refused(expected)) => assert_eq!(error, expected),
            (outcome, expected) => panic!("{outcome:?} instead of {expected:?}"),
        }
        let now = self.now();
        for client in 0..CLIENTS {
            let Some(member) = self.members[client] else { continue };
            let host = self.machine.host(self.process);
            if self.state().client(&host, now, member.client).is_err() {
                assert!(self.model.may_have_dropped(client), "client {client} was dropped");
                self.members[client] = None;
                self.model.left(client);
            } else {
                assert!(!self.model.must_have_dropped(client), "client {client} was kept");
            }
        }
        self.model.settled();
    }

    fn is_holder(&self, holder: &Holder, by: (Party, usize)) -> bool {
        let (state, host) = (self.state(), self.machine.host(self.process));
        let id = match by.0 {
            Party::Client(client) => self.members[client].map(|member| member.client),
            Party::Nlm(number) => {
                let name = format!("host {number}");
                let of = state.nlm_client(&host, self.now(), name.as_bytes()).expect("it holds a lock");
                Some(state.arena.client_id(of.record()).expect("in bounds"))
            }
        };
        Some(holder.client) == id.map(|id| state.arena.client_alias(id)) && holder.owner == owner_name(by.1)
    }

    fn open(&mut self, client: usize) {
        self.member(client);
        let (owner, file) = (self.random.below(OWNERS), self.random.below(FILES));
        let (access, deny) = (1 + self.random.below(3) as u8, self.random.below(12) as u8);
        let deny = if deny < 4 { deny } else { 0 };
        let (name, of) = (owner_name(owner), file_name(file));
        let outcome = self.act(client, |state, host, now, ticket| {
            let args = OpenArgs { owner: &name, file: &of, access, deny, reclaim: false, created: false };
            state.open_file(host, now, ticket, &args).map(Some)
        });
        let expected = self.model.open(client, owner, file, (access, deny), outcome.as_ref().ok());
        self.compare(&format!("open {client} {owner} {file} {access} {deny}"), &outcome, &expected);
    }

    fn delegate(&mut self, client: usize) {
        let member = self.member(client);
        let (file, now) = (self.random.below(FILES), self.now());
        self.survive(|state, host| state.bind_back(host, now, member.session).expect("a session"));
        let of = file_name(file);
        let granted = Cell::new(None);
        // A delegation is part of an OPEN, and of its note. Here it stands alone, without one.
        self.is_safe = true;
        let was = self.act(client, |state, host, now, ticket| {
            granted.set(state.delegate(host, now, ticket, &of).expect("no error"));
            Ok(None)
        });
        assert_eq!(was, Ok(None));
        self.is_safe = false;
        let changes = |begun: &Begun| begun.file == file && begun.process == self.process;
        let is_changed = self.begun.iter().any(changes);
        assert!(granted.get().is_none() || !is_changed, "file {file} is being changed");
        self.granted += u32::from(granted.get().is_some());
        self.model.delegate(client, file, granted.get());
        self.compare(&format!("delegate {client} {file}"), &Ok(None), &Expected::Done);
    }

    fn on_open(&mut self, client: usize) {
        self.member(client);
        let Some((owner, file, id)) = self.model.any_open(client, self.random.next()) else { return };
        if self.random.one_in(2) {
            let outcome = self
                .act(client, |state, host, now, ticket| state.close(host, now, ticket, id).map(|()| None));
            self.model.close(client, owner, file);
            self.compare(&format!("close {client} {owner} {file}"), &outcome, &Expected::Done);
        } else {
            let (access, deny) = (1 + self.random.below(3) as u8, self.random.below(4) as u8);
            let outcome = self.act(client, |state, host, now, ticket| {
                state.downgrade(host, now, ticket, id, access, deny).map(Some)
            });
            let is_done = outcome.as_ref().ok();
            let expected = self.model.downgrade(client, (owner, file), (access, deny), is_done);
            self.compare(&format!("downgrade {client} {owner} {file}"), &outcome, &expected);
        }
    }

    fn lock(&mut self, client: usize) {
        self.member(client);
        let (locker, exclusive, range) =
            (self.random.below(OWNERS), self.random.one_in(2), self.random.range());
        let Some((owner, file, open)) = self.model.any_open(client, self.random.next()) else { return };
        let by = self.random.below(OWNERS);
        let known = self.model.lock_id(client, locker, file, by).filter(|_| self.random.one_in(2));
        let name = owner_name(locker);
        let outcome = self.act(client, |state, host, now, ticket| {
            let locker = match known {
                Some((_, id)) => Locker::Known(id),
                None => Locker::New { open, owner: &name },
            };
            let (offset, length) = range;
            let args = LockArgs { locker, offset, length, exclusive, wait: false, reclaim: false };
            state.lock(host, now, ticket, &args).map(Some)
        });
        let by = known.map_or(owner, |(by, _)| by);
        let done = outcome.as_ref().ok();
        let expected = self.model.lock(client, (locker, file, by), (range, exclusive), done);
        let what = format!("lock {client} {locker} {file} {range:?} {exclusive} {known:?}");
        self.compare(&what, &outcome, &expected);
    }

    fn unlock(&mut self, client: usize) {
        self.member(client);
        let (locker, file, range) =
            (self.random.below(OWNERS), self.random.below(FILES), self.random.range());
        let by = self.random.below(OWNERS);
        let Some((by, id)) = self.model.lock_id(client, locker, file, by) else { return };
        let outcome =
            self.act(client, |state, host, now, ticket| state.unlock(host, now, ticket, id, range).map(Some));
        let expected = self.model.unlock(client, (locker, file, by), range, outcome.as_ref().ok());
        self.compare(&format!("unlock {client} {locker} {file} {range:?}"), &outcome, &expected);
    }

    fn test_lock(&mut self, client: usize) {
        self.member(client);
        let (locker, file) = (self.random.below(OWNERS), self.random.below(FILES));
        let ((offset, length), exclusive) = (self.random.range(), self.random.one_in(2));
        let (name, of) = (owner_name(locker), file_name(file));
        let outcome = self.act(client, |state, host, now, ticket| {
            let query = LockQuery { owner: &name, file: &of, offset, length, exclusive };
            state.test_lock(host, now, ticket.client(), &query).map(|()| None)
        });
        let party = (Party::Client(client), locker);
        let expected = self.model.conflicts(party, file, ((offset, length), exclusive));
        self.compare(&format!("test {client} {locker} {file} {offset} {length}"), &outcome, &expected);
    }

    fn nlm(&mut self) {
        let (number, owner, file) =
            (self.random.below(NLM_HOSTS), self.random.below(OWNERS), self.random.below(FILES));
        let ((offset, length), exclusive) = (self.random.range(), self.random.one_in(2));
        let (host_name, name, of) = (format!("host {number}"), owner_name(owner), file_name(file));
        let args = NlmLock { host: host_name.as_bytes(), owner: &name, file: &of, offset, length, exclusive };
        let (now, party) = (self.now(), (Party::Nlm(number), owner));
        let (outcome, expected) = match self.random.below(8) {
            0 => {
                self.survive(|state, host| {
                    state.nlm_forget(host, now, |name| name == args.host).expect("no error")
                });
                self.model.forget(number);
                (Ok(None), Expected::Done)
            }
            1..4 => {
                self.survive(|state, host| state.nlm_unlock(host, now, &args).expect("no error"));
                self.model.nlm_set((number, owner), file, (offset, length), None);
                (Ok(None), Expected::Done)
            }
            _ => {
                let outcome = self.survive(|state, host| state.nlm_lock(host, now, &args, NlmHow::default()));
                let recalled = if exclusive { self.model.change(file, None) } else { Expected::Done };
                let expected = match recalled {
                    Expected::Done => self.model.conflicts(party, file, ((offset, length), exclusive)),
                    refused => refused,
                };
                if outcome.is_ok() {
                    self.model.nlm_set((number, owner), file, (offset, length), Some(exclusive));
                }
                (outcome.map(|_| None), expected)
            }
        };
        let what = format!("nlm {number} {owner} {file} {offset} {length} {exclusive}");
        self.compare(&what, &outcome, &expected);
    }

    fn io(&mut self, client: usize) {
        let file = self.random.below(FILES);
        let (of, access, now) = (file_name(file), 1 + self.random.below(3) as u8, self.now());
        if self.random.one_in(2) {
            let is_again = Cell::new(false);
            let outcome = self.survive(|state, host| {
                // Without the lock it may see the end of a denial that a process, which has ended,
                // was about to make. That is right, but then nobody else is dropped for it.
                if is_again.replace(true) {
                    let unknown = state.destroy_client_id(host, now, ClientId(0));
                    assert_eq!(unknown, Err(Error::StaleClientId));
                }
                state.check_io(host, now, None, &of, access)?;
                let writes = access & WRITE != 0;
                if writes { state.begin_change(host, now, None, &of).map(drop) } else { Ok(()) }
            });
            let expected = self.model.io(file, access);
            self.compare(&format!("io {file} {access}"), &outcome.map(|()| None), &expected);
            return;
        }
        self.member(client);
        let Some((owner, its, id)) = self.model.any_open(client, self.random.next()) else { return };
        let outcome = self.act(client, |state, host, now, ticket| {
            state.check_state_io(host, now, ticket.client(), id, &of, access).map(|()| None)
        });
        let expected = self.model.state_io(client, (owner, its), file, access);
        self.compare(&format!("io by {client} {owner} {its} on {file}"), &outcome, &expected);
    }

    /// A change by a client, or by somebody else, which may be under way for long.
    fn change(&mut self, client: usize) {
        let (file, now) = (self.random.below(FILES), self.now());
        let by = self.random.one_in(2).then(|| self.member(client).client);
        let of = file_name(file);
        let outcome = self.survive(|state, host| {
            let by = by.map(|id| state.client(host, now, id).expect("it has just come"));
            let change = state.begin_change(host, now, by, &of)?;
            let place = (change.at, change.mine);
            // It ends later, or with its process.
            std::mem::forget(change);
            Ok(place)
        });
        if let Ok((at, mine)) = outcome {
            self.begun.push(Begun { process: self.process, file, at, mine });
        }
        let expected = self.model.change(file, by.map(|_| client));
        let what = format!("change {file} by {:?}", by.map(|_| client));
        self.compare(&what, &outcome.map(|_| None), &expected);
    }

    fn end_change(&mut self) {
        self.begun.retain(|begun| begun.process == self.process);
        let at = self.random.below(self.begun.len().max(1));
        if at < self.begun.len() {
            let Begun { file, at, mine, .. } = self.begun.swap_remove(at);
            self.log.push(format!("{}: end of a change of {file}", self.model.now));
            drop(Change { words: &self.memory, at, mine });
        }
    }

    /// A look at the attributes of a file, of which the client may have lost a delegation.
    fn look(&mut self, client: usize) {
        let any = (client, self.random.below(FILES));
        let lost = self.model.any_revoked(self.random.next());
        let (client, file) = lost.filter(|_| self.random.one_in(2)).unwrap_or(any);
        let (id, of, now) = (self.member(client).client, file_name(file), self.now());
        let outcome = self.survive(|state, host| {
            let client = state.client(host, now, id).expect("it has just come");
            state.check_revoked(host, now, client, &of)
        });
        let expected = self.model.look(client, file);
        self.kept += u32::from(outcome.is_err());
        self.compare(&format!("look {client} {file}"), &outcome.map(|()| None), &expected);
    }

    fn return_or_free(&mut self, client: usize) {
        self.member(client);
        let file = self.random.below(FILES);
        if let Some((id, is_revoked)) = self.model.delegation(client, file) {
            let outcome = self.act(client, |state, host, now, ticket| {
                let done = if is_revoked {
                    state.free_state(host, now, ticket, id)
                } else {
                    state.return_delegation(host, now, ticket, id)
                };
                done.map(|()| None)
            });
            self.model.returned(client, file);
            self.compare(&format!("return {client} {file}"), &outcome, &Expected::Done);
        } else if let Some((by, id)) = self.model.lock_id(client, 0, file, 0) {
            let outcome = self.act(client, |state, host, now, ticket| {
                state.free_state(host, now, ticket, id).map(|()| None)
            });
            let expected = self.model.free_lock(client, (0, file, by));
            self.compare(&format!("free {client} {file}"), &outcome, &expected);
        }
    }

    fn step(&mut self) {
        let client = self.random.below(CLIENTS);
        match self.random.below(29) {
            0 => {
                self.model.now += if self.random.one_in(3) { 40_000 } else { 2_000 };
            }
            1 => {
                let now = self.now();
                self.survive(|state, host| while state.tick(host, now) == Ok(Tick::More) {});
                self.model.tick();
                self.compare("tick", &Ok(None), &Expected::Done);
            }
            2 => {
                let now = self.now();
                while self.survive(|state, host| state.poll_output(host, now).expect("no error")).is_some() {}
            }
            3 if self.random.one_in(4) && self.members[client].is_some() => {
                // The client restarts: all it had is gone when its new session is there.
                self.members[client] = None;
                self.model.left(client);
                self.member(client);
            }
            3..8 => self.open(client),
            8..10 => self.on_open(client),
            10..14 => self.lock(client),
            14..16 => self.unlock(client),
            16 => self.test_lock(client),
            17..20 => self.nlm(),
            20 => self.delegate(client),
            21 => self.return_or_free(client),
            22 => self.change(client),
            23 => self.end_change(),
            24..26 => self.look(client),
            _ => self.io(client),
        }
    }
}

/// Returns how many delegations were granted, and how often a client was kept from a file.
fn play(seed: u64, steps: usize) -> (u32, u32) {
    let config = small_config();
    let memory = memory(&config);
    create(&memory, &config);
    let mut history = History {
        memory: &memory,
        machine: Machine::default(),
        process: 100,
        random: Random(seed),
        members: vec![None; CLIENTS],
        verifiers: 0,
        model: Model::new(),
        begun: Vec::new(),
        granted: 0,
        kept: 0,
        is_safe: false,
        log: Vec::new(),
    };
    let end = catch_unwind(AssertUnwindSafe(|| {
        for step in 0..steps {
            history.step();
            if step % 16 == 0 {
                // Whoever takes the lock takes back what an ended process left.
                let host = history.machine.host(history.process);
                let unknown = history.state().destroy_client_id(&host, seconds(0), ClientId(0));
                assert_eq!(unknown, Err(Error::StaleClientId));
                check(&history.state());
            }
        }
    }));
    if let Err(cause) = end {
        let tail = history.log.len().saturating_sub(40);
        eprintln!("seed {seed}, the last steps:\n{}", history.log[tail..].join("\n"));
        resume_unwind(cause);
    }
    (history.granted, history.kept)
}

/// Other and longer histories than those of each run, for ten minutes or as [`MINUTES`] says.
#[test]
#[ignore = "runs for ten minutes: the suite state-long"]
fn random_histories_are_those_of_a_naive_model_for_as_long_as_is_asked() {
    let minutes = std::env::var(MINUTES).map_or(10, |minutes| minutes.parse().expect("minutes"));
    let (end, mut played) = (Instant::now() + seconds(60 * minutes), (0, 0, 0));
    for seed in 1000.. {
        if Instant::now() >= end {
            break;
        }
        let (granted, kept) = play(seed, 1000);
        played = (played.0 + 1, played.1 + granted, played.2 + kept);
    }
    let (histories, granted, kept) = played;
    println!("{histories} histories of 1000 steps: {granted} delegations, {kept} looks were kept waiting");
}

#[test]
fn random_histories_are_those_of_a_naive_model() {
    let played = (0..200).map(|seed| play(seed, 250));
    let (granted, kept) = played.fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1));
    assert!(granted > 50, "{granted} delegations in all");
    assert!(kept > 10, "kept from a file {kept} times");
}
