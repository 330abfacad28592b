//! What happens between two steps of a reader that takes no lock, at each of its steps.

use super::*;
use crate::record::{CHUNK_SLOTS, Record, client};

const NOW: Duration = Duration::from_secs(1000);
const HOST: SingleProcess = SingleProcess;

/// Memory in which something happens after a number of loads.
struct Meddled<'m> {
    memory: &'m HeapWords,
    left: Cell<u64>,
    act: &'m dyn Fn(),
    /// Words that are changed through this memory.
    changed: RefCell<Vec<usize>>,
}

impl<'m> Meddled<'m> {
    fn new(memory: &'m HeapWords, loads: u64, act: &'m dyn Fn()) -> Self {
        Self { memory, left: Cell::new(loads), act, changed: RefCell::default() }
    }
}

impl Words for Meddled<'_> {
    fn word_count(&self) -> usize {
        self.memory.word_count()
    }

    fn load(&self, at: usize) -> u64 {
        let word = self.memory.load(at);
        let left = self.left.get();
        self.left.set(left.saturating_sub(1));
        if left == 1 {
            (self.act)();
        }
        word
    }

    fn store(&self, at: usize, value: u64) {
        self.changed.borrow_mut().push(at);
        self.memory.store(at, value);
    }

    fn compare_exchange(&self, at: usize, from: u64, to: u64) -> Result<(), u64> {
        let changed = self.memory.compare_exchange(at, from, to);
        if changed.is_ok() {
            self.changed.borrow_mut().push(at);
        }
        changed
    }
}

/// Loads that opening an arena takes.
fn loads_to_open(memory: &HeapWords) -> u64 {
    let meddled = Meddled::new(memory, u64::MAX, &|| {});
    State::open(&meddled).expect("an arena");
    u64::MAX - meddled.left.get()
}

#[test]
fn a_lease_never_gets_shorter_when_two_processes_renew_it() {
    let config = small_config();
    let memory = memory(&config);
    let state = create(&memory, &config);
    let (_, session) = join(&state, &HOST, NOW, "a");
    let record = Record { kind: Kind::Client, index: 1 };
    let lease = state.arena.address(record, client::LEASE).expect("in bounds");
    let opening = loads_to_open(&memory);
    let late = NOW + seconds(80);
    for loads in 1..60 {
        memory.store(lease, 1_000_000);
        let sequence = loads as u32;
        let act = || {
            let begun = state.sequence(&HOST, late, &request(session, 1, sequence));
            let Ok(Sequence::Run(ticket)) = begun else { panic!("{begun:?}") };
            assert!(state.finish(&HOST, &ticket, None));
        };
        let meddled = Meddled::new(&memory, opening + loads, &act);
        let early = State::open(&meddled).expect("an arena");
        let ticket = run(&early, &HOST, NOW + seconds(10), &request(session, 0, sequence));
        assert!(early.finish(&HOST, &ticket, None));
        if meddled.left.get() > 0 {
            assert!(loads > 10, "only {loads} loads");
            return;
        }
        assert_eq!(memory.load(lease), 1_080_000, "after {loads} loads");
    }
    panic!("no end");
}

#[test]
fn to_undo_a_change_does_not_take_back_a_renewal() {
    let config = small_config();
    let origin = memory(&config);
    let (client, session) = join(&create(&origin, &config), &HOST, NOW, "a");
    let late = NOW + seconds(85);
    for step in 0..1000 {
        let memory = super::kills::copy(&origin);
        let (process, machine) = (Process::new(&memory), Machine::default());
        let (state, mortal) = (State::open(&process).expect("an arena"), machine.host(1));
        let end = process.killed_before(step, || {
            state.exchange_id(&mortal, NOW + seconds(1), exchange("a", 1)).expect("known");
            state.create_session(&mortal, NOW + seconds(1), &session_args(client, 2)).expect("a session");
        });
        machine.kill(1);
        let (state, survivor) = (State::open(&memory).expect("an arena"), machine.host(2));
        // Takes no lock, so what the first process left is undone after it.
        let ticket = run(&state, &survivor, late, &request(session, 0, 1));
        assert!(state.finish(&survivor, &ticket, None));
        state.tick(&survivor, late + seconds(80)).expect("a tick");
        assert!(state.client(&survivor, late, client).is_ok(), "at {step}: its lease was renewed");
        if end.is_some() {
            assert!(step > 20, "only {step} steps");
            return;
        }
    }
    panic!("no end");
}

#[test]
fn a_late_request_changes_no_slot_of_a_session_in_the_same_memory() {
    let config = small_config();
    let origin = memory(&config);
    let (_, session) = join(&create(&origin, &config), &HOST, NOW, "a");
    let opening = loads_to_open(&origin);
    let mut reused = 0;
    for loads in 1..200 {
        let memory = super::kills::copy(&origin);
        let state = State::open(&memory).expect("an arena");
        let act = || {
            state.destroy_session(&HOST, NOW, session).expect("a session");
            while state.tick(&HOST, NOW) == Ok(Tick::More) {}
            let (_, other) = join(&state, &HOST, NOW, "b");
            assert_ne!(other, session);
        };
        let meddled = Meddled::new(&memory, opening + loads, &act);
        let late = State::open(&meddled).expect("an arena");
        let begun = late.sequence(&HOST, NOW, &request(session, 0, 1));
        if meddled.left.get() > 0 {
            assert!(loads > 10 && reused > 5, "only {loads} loads, {reused} in memory of another");
            return;
        }
        let chunk = Record { kind: Kind::Chunk, index: 1 };
        let slots = state.arena.address(chunk, 1).expect("in bounds");
        let end = slots + CHUNK_SLOTS * 100;
        assert!(begun.is_ok() || begun == Err(Error::BadSession), "after {loads} loads: {begun:?}");
        // A slot that was taken in time keeps its session's memory.
        let is_reused = state.used(Kind::Session) == 1;
        reused += u32::from(is_reused);
        let touched = meddled.changed.borrow().iter().any(|at| (slots..end).contains(at));
        assert!(!is_reused || !touched, "after {loads} loads, another session's slot is changed");
    }
    panic!("no end");
}

#[test]
fn io_by_a_state_that_ends_meanwhile_has_a_bad_stateid_and_nothing_is_damaged() {
    let config = small_config();
    let origin = memory(&config);
    let state = create(&origin, &config);
    let mut one = Member::join(&state, &HOST, NOW, "a");
    let open = one.open(&state, NOW, "f", READ, 0).expect("open");
    let locker = Locker::New { open, owner: b"x" };
    let held = one.lock(&state, NOW, locker, (0, 1), false).expect("free");
    let of = state.client(&HOST, NOW, one.client).expect("a client");
    let opening = loads_to_open(&origin);
    let of_all = |id| (0..400).step_by(9).flat_map(move |step| (1..50).map(move |loads| (id, step, loads)));
    let mut ends = 0;
    for (id, step, loads) in [open, held].into_iter().flat_map(of_all) {
        let memory = super::kills::copy(&origin);
        let (state, closer) = (State::open(&memory).expect("an arena"), RefCell::new(one));
        let (process, machine) = (Process::new(&memory), Machine::default());
        // The records are free, or a process that is stopped takes them into use again.
        let act = || {
            let mut member = closer.borrow_mut();
            member.close(&state, NOW, open).expect("open");
            let stopped = State::open(&process).expect("an arena");
            process.killed_before(step, || {
                let nlm =
                    NlmLock { host: b"h", owner: b"o", file: b"g", offset: 0, length: 1, exclusive: true };
                let args = OpenArgs {
                    owner: b"o",
                    file: b"f",
                    access: READ,
                    deny: 0,
                    reclaim: false,
                    created: false,
                };
                let ticket = run(&state, &HOST, NOW, &request(member.session, 1, 1));
                if id == open {
                    let _ = stopped.open_file(&machine.host(2), NOW, &ticket, &args);
                } else {
                    let _ = stopped.nlm_lock(&machine.host(2), NOW, &nlm, NlmHow::default());
                }
            });
        };
        let meddled = Meddled::new(&memory, opening + loads, &act);
        let reader = State::open(&meddled).expect("an arena");
        let checked = reader.check_state_io(&HOST, NOW, of, id, b"f", READ);
        if meddled.left.get() > 0 {
            ends += 1;
            continue;
        }
        let is_right = matches!(checked, Ok(()) | Err(Error::BadStateId));
        assert!(is_right, "after {loads} loads and {step} stores: {checked:?}");
    }
    assert!(ends > 100, "all loads were tried");
}

/// What two processes do at once: a thing that is done, or refused.
type Act<'a> = &'a dyn Fn(&State<&dyn Words>) -> bool;

/// At each step of the one, the other happens as a whole.
#[test]
fn of_a_change_and_a_delegation_that_begin_at_once_one_sees_the_other() {
    let config = small_config();
    let origin = memory(&config);
    let state = create(&origin, &config);
    let mut one = Member::join(&state, &HOST, NOW, "a");
    state.bind_back(&HOST, NOW, one.session).expect("a session");
    one.open(&state, NOW, "f", READ, 0).expect("open");
    let (opening, machine) = (loads_to_open(&origin), Machine::default());
    let change: Act<'_> =
        &|state| match state.begin_change(&machine.host(1), NOW, None, b"f").map(std::mem::forget) {
            Ok(()) => true,
            Err(Error::Delay | Error::Busy) => false,
            Err(other) => panic!("{other}"),
        };
    let delegate: Act<'_> = &|state| {
        let (mut member, host) = (one, machine.host(2));
        match member.act(state, &host, NOW, |ticket| state.delegate(&host, NOW, ticket, b"f")) {
            Ok(granted) => granted.is_some(),
            Err(Error::Busy) => false,
            Err(other) => panic!("{other}"),
        }
    };
    for (first, second) in [(change, delegate), (delegate, change)] {
        let (mut firsts, mut seconds, mut loads) = (0, 0, 0);
        loop {
            loads += 1;
            let memory = super::kills::copy(&origin);
            let done = Cell::new(None);
            let act = || {
                let words: &dyn Words = &memory;
                done.set(Some(second(&State::open(words).expect("an arena"))));
            };
            let meddled = Meddled::new(&memory, opening + loads, &act);
            let words: &dyn Words = &meddled;
            let is_first = first(&State::open(words).expect("an arena"));
            let Some(is_second) = done.get() else { break };
            assert!(!(is_first && is_second), "neither has seen the other, after {loads} loads");
            firsts += u32::from(is_first);
            seconds += u32::from(is_second);
        }
        assert!(firsts > 0 && seconds > 0, "{loads} loads: {firsts} of the one, {seconds} of the other");
    }
}
