//! Bounds of the requests that wait for locks, and of what is done for them under one hold of the
//! lock.

use super::*;
use crate::layout::head;

const NOW: Duration = Duration::from_secs(1000);
const HOST: SingleProcess = SingleProcess;

/// Memory that counts the loads of each hold of the lock.
struct Holds<'m> {
    memory: &'m HeapWords,
    loads: Cell<u64>,
    most: Cell<u64>,
}

impl Words for Holds<'_> {
    fn word_count(&self) -> usize {
        self.memory.word_count()
    }

    fn load(&self, at: usize) -> u64 {
        self.loads.set(self.loads.get() + 1);
        self.memory.load(at)
    }

    fn store(&self, at: usize, value: u64) {
        if at == head::LOCK && value == 0 {
            self.most.set(self.most.get().max(self.loads.get()));
        }
        self.memory.store(at, value);
    }

    fn compare_exchange(&self, at: usize, from: u64, to: u64) -> Result<(), u64> {
        let changed = self.memory.compare_exchange(at, from, to);
        if at == head::LOCK && changed.is_ok() {
            self.loads.set(0);
        }
        changed
    }
}

fn new(open: StateId, owner: &str) -> Locker<'_> {
    Locker::New { open, owner: owner.as_bytes() }
}

fn config() -> Config {
    let bounds = Bounds {
        owners: 2048,
        owners_per_client: 1024,
        locks: 2048,
        locks_per_client: 1024,
        ranges: 8192,
        ranges_per_client: 8192,
        waiters: 1024,
        waiters_per_client: 1024,
        blobs: 4096,
        ..Bounds::small()
    };
    Config { bounds, ..small_config() }
}

/// A client that has the file open.
fn opened(state: &State<&HeapWords>, now: Duration, name: &str) -> (Member, StateId) {
    let mut member = Member::join(state, &HOST, now, name);
    let id = member.open(state, now, "f", READ | WRITE, 0).expect("open");
    (member, id)
}

#[test]
fn what_one_client_locks_and_waits_for_never_holds_the_lock_for_long() {
    const RANGES: u64 = 4096;
    let config = config();
    let memory = memory(&config);
    let state = create(&memory, &config);
    let (mut silent, open) = opened(&state, NOW, "silent");
    for owner in 0..8 {
        let (owner, mut locker) = (format!("owner {owner}"), None);
        for at in 0..RANGES / 8 {
            let first = new(open, &owner);
            let place = (at * 32 + u64::from(owner.as_bytes()[6]) * 2, 1);
            let id = silent.lock(&state, NOW, locker.unwrap_or(first), place, true).expect("free");
            locker = Some(Locker::Known(id));
        }
    }
    assert_eq!(state.used(Kind::Range), RANGES);
    let (mut two, other) = opened(&state, NOW, "two");
    let held = two.lock(&state, NOW, new(other, "x"), (1 << 40, 1), true).expect("free");
    for waiter in 0..WAITERS_PER_FILE_MAX + 50 {
        let wanted = silent.lock(&state, NOW, new(open, &format!("waiter {waiter}")), (1 << 40, 1), false);
        assert!(matches!(wanted, Err(Error::Denied(_))), "{wanted:?}");
    }
    assert_eq!(state.used(Kind::Waiter), WAITERS_PER_FILE_MAX, "a file's bound");
    consistency::check(&state);
    let holds = Holds { memory: &memory, loads: Cell::new(0), most: Cell::new(0) };
    let watched = State::open(&holds).expect("an arena");
    let held = two.lock(&watched, NOW, Locker::Known(held), ((1 << 40) + 2, 1), true).expect("free");
    let late = NOW + seconds(89);
    two.unlock(&watched, late, held, ((1 << 40) + 2, 1)).expect("its own");
    let late = NOW + seconds(95);
    while watched.tick(&HOST, late) == Ok(Tick::More) {}
    assert_eq!(state.used(Kind::Waiter), 0, "nobody asked again");
    let late = NOW + seconds(100_000);
    while watched.tick(&HOST, late) == Ok(Tick::More) {}
    assert_eq!(state.used(Kind::Range), 0, "the time of courtesy is over");
    // Each range a few times, and not once for each waiter.
    assert!(holds.most.get() < 20 * RANGES, "{} loads under one hold", holds.most.get());
    consistency::check(&state);
}

#[test]
fn a_request_that_finds_no_place_to_wait_is_denied_and_leaves_nothing() {
    let bounds = [
        Bounds { waiters: 1, ..config().bounds },
        Bounds { owners: 4, ..config().bounds },
        Bounds { blobs: 6, ..config().bounds },
    ];
    for bounds in bounds {
        let config = Config { bounds, ..config() };
        let memory = memory(&config);
        let state = create(&memory, &config);
        let (mut one, open) = opened(&state, NOW, "a");
        let (mut two, other) = opened(&state, NOW, "b");
        one.lock(&state, NOW, new(open, "x"), (0, 10), true).expect("free");
        for waiter in 0..4 {
            let wanted = two.lock(&state, NOW, new(other, &format!("waiter {waiter}")), (0, 10), true);
            assert!(matches!(wanted, Err(Error::Denied(_))), "{wanted:?}");
            let nlm = NlmLock { host: b"h", owner: b"o", file: b"f", offset: 5, length: 1, exclusive: true };
            let how = NlmHow { wait: Some(waiter), ..NlmHow::default() };
            let wanted = state.nlm_lock(&HOST, NOW, &nlm, how);
            // By NLM nobody asks again who believes to wait.
            assert_eq!(wanted, Err(Error::ClientLimit(Kind::Waiter)));
        }
        assert_eq!(state.used(Kind::Waiter), 1, "there was room for one");
        consistency::check(&state);
    }
}
