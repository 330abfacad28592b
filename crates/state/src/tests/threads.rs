//! Threads of several processes that use one arena at once.

use super::consistency::check;
use super::*;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const NOW: Duration = Duration::from_secs(1000);
const THREADS: u32 = 4;
const ROUNDS: u64 = 400;

/// A process that waits for others as long as they need.
#[derive(Clone, Copy)]
struct Patient(u32);

impl Host for Patient {
    fn me(&self) -> Owner {
        Owner::new(self.0).expect("a number")
    }

    fn is_alive(&self, _owner: Owner) -> bool {
        true
    }

    fn pause(&self, _round: u32) -> bool {
        std::thread::yield_now();
        true
    }
}

/// One thread's work: opens, locks and closes, each round in a request of its own. `guarded` is a
/// word that only the holder of the exclusive lock changes.
fn work(state: &State<&HeapWords>, host: Patient, mut member: Member, guarded: &AtomicU64) -> u64 {
    let of = state.client(&host, NOW, member.client).expect("a client");
    let mut held = 0;
    for round in 0..ROUNDS {
        let own = format!("file of {}", member.client.0);
        let file = if round % 2 == 0 { "shared" } else { own.as_str() };
        let args = OpenArgs {
            owner: b"o",
            file: file.as_bytes(),
            access: 3,
            deny: 0,
            reclaim: false,
            created: false,
        };
        let open = member.act(state, &host, NOW, |ticket| state.open_file(&host, NOW, ticket, &args));
        let open = open.expect("nobody denies");
        assert_eq!(state.check_state_io(&host, NOW, of, open, file.as_bytes(), WRITE), Ok(()));
        let locker = Locker::New { open, owner: b"x" };
        let args = LockArgs { locker, offset: 0, length: 1, exclusive: true, wait: false, reclaim: false };
        match member.act(state, &host, NOW, |ticket| state.lock(&host, NOW, ticket, &args)) {
            Ok(_) if file == "shared" => {
                let before = guarded.load(Ordering::SeqCst);
                std::thread::yield_now();
                guarded.store(before + 1, Ordering::SeqCst);
                held += 1;
            }
            Ok(_) => {}
            Err(Error::Denied(_)) => assert_eq!(file, "shared"),
            Err(other) => panic!("{other}"),
        }
        member.act(state, &host, NOW, |ticket| state.close(&host, NOW, ticket, open)).expect("open");
        assert_eq!(state.check_state_io(&host, NOW, of, open, file.as_bytes(), READ), Err(Error::BadStateId));
    }
    held
}

#[test]
fn threads_of_several_processes_exclude_each_other() {
    let config = small_config();
    let memory = memory(&config);
    let state = create(&memory, &config);
    let guarded = AtomicU64::new(0);
    let held: u64 = std::thread::scope(|scope| {
        let workers: Vec<_> = (1..=THREADS)
            .map(|number| {
                let host = Patient(number);
                let member = Member::join(&state, &host, NOW, &format!("client {number}"));
                let (state, guarded) = (&state, &guarded);
                scope.spawn(move || work(state, host, member, guarded))
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().expect("no panic")).sum()
    });
    assert_eq!(guarded.load(Ordering::SeqCst), held, "two held the lock at once");
    assert!(held > 0);
    assert_eq!((state.used(Kind::Open), state.used(Kind::Lock), state.used(Kind::File)), (0, 0, 0));
    check(&state);
}

#[test]
fn sessions_that_end_while_they_are_used_leave_nothing_behind() {
    let config = small_config();
    let memory = memory(&config);
    let state = create(&memory, &config);
    let is_over = AtomicBool::new(false);
    let current = AtomicU64::new(0);
    let (client, first) = join(&state, &SingleProcess, NOW, "a");
    let sessions = std::sync::Mutex::new(first);
    std::thread::scope(|scope| {
        for number in 1..=2 {
            let (state, is_over, current, sessions) = (&state, &is_over, &current, &sessions);
            scope.spawn(move || {
                let host = Patient(number);
                while !is_over.load(Ordering::SeqCst) {
                    let session = *sessions.lock().expect("no panic");
                    // A retry of what the other sends is answered or told to wait.
                    let sequence = current.load(Ordering::SeqCst) as u32 % 7 + 1;
                    match state.sequence(&host, NOW, &request(session, 0, sequence)) {
                        Ok(Sequence::Run(ticket)) => {
                            assert!(state.finish(&host, &ticket, Some(b"reply")), "it is its own");
                            current.fetch_add(1, Ordering::SeqCst);
                        }
                        Ok(Sequence::Replay(reply)) => assert_eq!(reply, b"reply"),
                        Ok(other) => panic!("{other:?}"),
                        Err(Error::BadSession | Error::SeqMisordered | Error::InProgress) => {
                            current.fetch_add(1, Ordering::SeqCst);
                        }
                        Err(other) => panic!("{other}"),
                    }
                }
            });
        }
        let host = Patient(9);
        for sequence in 2..200 {
            let made = state.create_session(&host, NOW, &session_args(client, sequence)).expect("room");
            let old = std::mem::replace(&mut *sessions.lock().expect("no panic"), made.session);
            std::thread::yield_now();
            state.destroy_session(&host, NOW, old).expect("a session");
            state.tick(&host, NOW).expect("not damaged");
        }
        is_over.store(true, Ordering::SeqCst);
    });
    state.tick(&SingleProcess, NOW).expect("freed");
    assert_eq!((state.used(Kind::Session), state.used(Kind::Chunk)), (1, 1));
    check(&state);
}

/// A process that counts how often it asks whether another lives.
struct Asking {
    asked: Cell<u32>,
}

impl Host for Asking {
    fn me(&self) -> Owner {
        Owner::new(2).expect("a number")
    }

    fn is_alive(&self, _owner: Owner) -> bool {
        self.asked.set(self.asked.get() + 1);
        true
    }

    fn pause(&self, round: u32) -> bool {
        round < 79
    }
}

#[test]
fn who_waits_for_the_lock_reads_it_and_seldom_asks_whether_its_holder_lives() {
    let config = small_config();
    let memory = memory(&config);
    let state = create(&memory, &config);
    memory.store(crate::layout::head::LOCK, 1);
    let process = Process::new(&memory);
    let waiting = State::open(&process).expect("an arena");
    let host = Asking { asked: Cell::new(0) };
    assert_eq!(waiting.exchange_id(&host, NOW, exchange("a", 1)), Err(Error::Busy));
    assert_eq!(process.steps.get(), 0, "a lock that is held is only read");
    assert_eq!(host.asked.get(), 10, "once in eight pauses");
    memory.store(crate::layout::head::LOCK, 0);
    state.exchange_id(&host, NOW, exchange("a", 1)).expect("the lock is free");
    check(&state);
}

/// Changes what is only to be changed while nobody has a delegation: it is odd in the middle.
/// `tried` counts what was tried. Returns how often it was done.
fn write(
    state: &State<&HeapWords>,
    host: Patient,
    (data, tried): (&AtomicU64, &AtomicU64),
    clock: &AtomicU64,
) -> u64 {
    let mut changes = 0;
    loop {
        let now = clock.load(Ordering::SeqCst);
        if now == u64::MAX {
            return changes;
        }
        match state.begin_change(&host, seconds(now), None, b"f") {
            Ok(change) => {
                data.fetch_add(1, Ordering::SeqCst);
                std::hint::spin_loop();
                data.fetch_add(1, Ordering::SeqCst);
                drop(change);
                changes += 1;
            }
            Err(Error::Delay) => {}
            Err(other) => panic!("{other}"),
        }
        tried.fetch_add(1, Ordering::SeqCst);
        std::thread::yield_now();
    }
}

#[test]
fn what_is_delegated_stays_as_it_is_while_others_want_to_change_it() {
    // Leases last for a second, so that files are delegated again at once.
    let config = Config { lease: seconds(1), ..small_config() };
    let memory = memory(&config);
    let state = create(&memory, &config);
    let (data, tried, clock) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(1000));
    let host = Patient(9);
    let mut member = Member::join(&state, &host, NOW, "reader");
    state.bind_back(&host, NOW, member.session).expect("a session");
    member.open(&state, NOW, "f", READ, 0).expect("open");
    let wait_for_tries = || {
        let until = tried.load(Ordering::SeqCst) + 3;
        while tried.load(Ordering::SeqCst) < until {
            std::thread::yield_now();
        }
    };
    let (mut granted, mut changes) = (0, 0);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (1..=2)
            .map(|number| {
                let (state, data, clock) = (&state, (&data, &tried), &clock);
                scope.spawn(move || write(state, Patient(number), data, clock))
            })
            .collect();
        for _ in 0..ROUNDS {
            // Later than any recall.
            let now = seconds(clock.fetch_add(2, Ordering::SeqCst) + 2);
            let ask = |ticket: &Ticket| state.delegate(&host, now, ticket, b"f").expect("no error");
            if let Some(id) = member.act(&state, &host, now, ask) {
                granted += 1;
                let before = data.load(Ordering::SeqCst);
                assert_eq!(before % 2, 0, "a change is under way");
                wait_for_tries();
                assert_eq!(data.load(Ordering::SeqCst), before, "it was changed");
                let done = |ticket: &Ticket| state.return_delegation(&host, now, ticket, id);
                member.act(&state, &host, now, done).expect("its own");
            }
            wait_for_tries();
        }
        clock.store(u64::MAX, Ordering::SeqCst);
        changes = writers.into_iter().map(|writer| writer.join().expect("no panic")).sum();
    });
    assert!(granted > 10 && changes > 10, "{granted} delegations, {changes} changes");
    check(&state);
}
