//! The rules of slots, and every way in which two processes can meet at one. RFC 8881 s2.10.6

use super::consistency::check;
use super::*;
use std::sync::{Arc, Condvar, Mutex};

const NOW: Duration = Duration::from_secs(1000);

#[test]
fn a_request_runs_once_and_its_retry_gets_the_reply_from_any_process() {
    let config = small_config();
    let memory = memory(&config);
    let state = create(&memory, &config);
    let machine = Machine::default();
    let (first, second) = (machine.host(1), machine.host(2));
    let (_, session) = join(&state, &first, NOW, "a");
    let args = request(session, 3, 1);
    assert_eq!(state.sequence(&first, NOW, &request(session, 3, 0)), Err(Error::SeqMisordered));
    assert_eq!(state.sequence(&first, NOW, &request(session, 3, 2)), Err(Error::SeqMisordered));
    let ticket = run(&state, &first, NOW, &args);
    assert_eq!(state.sequence(&second, NOW, &args), Err(Error::InProgress));
    assert_eq!(state.sequence(&second, NOW, &request(session, 3, 2)), Err(Error::SeqMisordered));
    assert!(state.finish(&first, &ticket, Some(b"the reply, longer than a word")));
    let replay = Sequence::Replay(b"the reply, longer than a word".to_vec());
    assert_eq!(state.sequence(&second, NOW, &args), Ok(replay.clone()));
    machine.kill(1);
    assert_eq!(state.sequence(&second, NOW, &args), Ok(replay));
    let other = SequenceArgs { digest: 5, ..args };
    assert_eq!(state.sequence(&second, NOW, &other), Err(Error::SeqFalseRetry));
    assert!(!state.finish(&first, &ticket, None), "it has ended");
    let next = run(&state, &second, NOW, &request(session, 3, 2));
    assert!(state.finish(&second, &next, None));
    assert_eq!(state.sequence(&second, NOW, &request(session, 3, 2)), Ok(Sequence::ReplayUncached));
    assert_eq!(state.status(session).map(|status| status.highest_slot), Ok(7));
    check(&state);
}

#[test]
fn a_reply_that_does_not_fit_is_not_kept() {
    let config = small_config();
    let memory = memory(&config);
    let (state, host) = (create(&memory, &config), SingleProcess);
    let (_, session) = join(&state, &host, NOW, "a");
    for (sequence, len, is_kept) in [(1, 256, true), (2, 257, false), (3, 0, true)] {
        let ticket = run(&state, &host, NOW, &request(session, 0, sequence));
        assert!(state.finish(&host, &ticket, Some(&vec![7; len])));
        let replay = state.sequence(&host, NOW, &request(session, 0, sequence));
        let kept = Sequence::Replay(vec![7; len]);
        assert_eq!(replay, Ok(if is_kept { kept } else { Sequence::ReplayUncached }), "{len} bytes");
    }
}

#[test]
fn sequence_ids_wrap_around() {
    let config = small_config();
    let memory = memory(&config);
    let (state, host) = (create(&memory, &config), SingleProcess);
    let (_, session) = join(&state, &host, NOW, "a");
    let ticket = run(&state, &host, NOW, &request(session, 0, 1));
    assert!(state.finish(&host, &ticket, None));
    let address = (0..memory.word_count()).find(|at| memory.load(*at) == 1 << 32 | 3).expect("the slot");
    memory.store(address, u64::from(u32::MAX) << 32 | 3);
    let ticket = run(&state, &host, NOW, &request(session, 0, 0));
    assert!(state.finish(&host, &ticket, Some(b"zero")));
    assert_eq!(state.sequence(&host, NOW, &request(session, 0, 0)), Ok(Sequence::Replay(b"zero".to_vec())));
}

#[test]
fn a_request_of_a_process_that_ended_goes_on_where_it_was() {
    let config = small_config();
    let memory = memory(&config);
    let state = create(&memory, &config);
    let machine = Machine::default();
    let (_, session) = join(&state, &machine.host(9), NOW, "a");
    let args = request(session, 0, 1);
    let first = machine.host(1);
    let ticket = run(&state, &first, NOW, &args);
    assert!(state.end_operations(&first, &ticket, 1, b"putfh"));
    assert!(state.start_operation(&first, &ticket, [1, 2, 3, 4, 5]));
    machine.kill(1);
    let second = machine.host(2);
    let Ok(Sequence::Continue(ticket, progress)) = state.sequence(&second, NOW, &args) else { panic!() };
    let (done, next, note, results) = (1, NextOperation::InDoubt, [1, 2, 3, 4, 5], b"putfh".to_vec());
    assert_eq!(progress, Progress { done, next, note, results });
    assert!(state.end_operations(&second, &ticket, 1, b"remove"));
    machine.kill(2);
    let third = machine.host(3);
    let Ok(Sequence::Continue(ticket, progress)) = state.sequence(&third, NOW, &args) else { panic!() };
    assert_eq!((progress.done, progress.next), (2, NextOperation::NotBegun));
    assert_eq!(progress.results, b"putfhremove");
    assert_eq!(progress.note, [0; NOTE_WORDS]);
    state.reclaim_complete(&third, NOW, &ticket).expect("a change of the state");
    machine.kill(3);
    let fourth = machine.host(4);
    let Ok(Sequence::Continue(ticket, progress)) = state.sequence(&fourth, NOW, &args) else { panic!() };
    assert_eq!((progress.done, progress.next), (2, NextOperation::Committed));
    assert!(!state.end_operations(&fourth, &ticket, 1, &[0; STEP_RESULT_BYTES]), "that does not fit");
    assert!(state.finish(&fourth, &ticket, Some(b"all")));
    assert_eq!(state.sequence(&fourth, NOW, &args), Ok(Sequence::Replay(b"all".to_vec())));
}

#[test]
fn a_request_that_its_client_gave_up_blocks_a_slot_only_while_it_runs() {
    let config = small_config();
    let memory = memory(&config);
    let state = create(&memory, &config);
    let machine = Machine::default();
    let (_, session) = join(&state, &machine.host(9), NOW, "a");
    let args = request(session, 0, 1);
    run(&state, &machine.host(1), NOW, &args);
    machine.kill(1);
    let second = machine.host(2);
    let probe = SequenceArgs { digest: 77, ..args };
    assert_eq!(state.sequence(&second, NOW, &probe), Err(Error::SeqFalseRetry));
    assert_eq!(state.sequence(&second, NOW, &args), Ok(Sequence::ReplayUncached), "given up");
    let ticket = run(&state, &second, NOW, &request(session, 0, 2));
    assert!(state.finish(&second, &ticket, None));
    run(&state, &second, NOW, &request(session, 0, 3));
    machine.kill(2);
    run(&state, &machine.host(3), NOW, &request(session, 0, 4));
}

#[test]
fn a_process_that_ends_before_any_step_leaves_a_slot_that_others_go_on_from() {
    let config = small_config();
    let origin = memory(&config);
    let machine = Machine::default();
    let (_, session) = join(&create(&origin, &config), &machine.host(9), NOW, "a");
    let args = request(session, 0, 1);
    for step in 0.. {
        let memory = super::kills::copy(&origin);
        let (process, machine) = (Process::new(&memory), Machine::default());
        let (state, mortal) = (State::open(&process).expect("an arena"), machine.host(1));
        let (started, executed, finished) = (Cell::new(false), Cell::new(false), Cell::new(false));
        let end = process.killed_before(step, || {
            let ticket = run(&state, &mortal, NOW, &args);
            started.set(state.start_operation(&mortal, &ticket, [3; NOTE_WORDS]));
            executed.set(true);
            assert!(state.end_operations(&mortal, &ticket, 1, b"made"));
            finished.set(state.finish(&mortal, &ticket, Some(b"made a file")));
        });
        machine.kill(1);
        let (state, survivor) = (State::open(&memory).expect("an arena"), machine.host(2));
        match state.sequence(&survivor, NOW, &args).expect("a verdict") {
            Sequence::Run(_) => assert!(!executed.get(), "at {step}: executed twice"),
            Sequence::Continue(_, progress) => match (progress.done, progress.next) {
                (0, NextOperation::NotBegun) => assert!(!executed.get(), "at {step}: executed twice"),
                (0, NextOperation::InDoubt) => assert_eq!(progress.note, [3; NOTE_WORDS]),
                (1, NextOperation::NotBegun) => {
                    assert!(executed.get() && progress.results == b"made", "at {step}");
                }
                other => panic!("at {step}: {other:?}"),
            },
            Sequence::Replay(reply) => assert!(executed.get() && reply == b"made a file", "at {step}"),
            Sequence::ReplayUncached => panic!("at {step}: the reply is lost"),
        }
        if end.is_some() {
            assert!(finished.get());
            assert!(step > 10, "only {step} steps");
            return;
        }
    }
}

#[test]
fn what_an_ended_request_left_half_changed_never_returns_over_the_next_one() {
    let config = small_config();
    let origin = memory(&config);
    let machine = Machine::default();
    let (_, session) = join(&create(&origin, &config), &machine.host(9), NOW, "a");
    for step in 0.. {
        let memory = super::kills::copy(&origin);
        let (process, machine) = (Process::new(&memory), Machine::default());
        let (state, mortal) = (State::open(&process).expect("an arena"), machine.host(1));
        let end = process.killed_before(step, || {
            let ticket = run(&state, &mortal, NOW, &request(session, 0, 1));
            state.reclaim_complete(&mortal, NOW, &ticket).expect("once");
        });
        machine.kill(1);
        let (state, second) = (State::open(&memory).expect("an arena"), machine.host(2));
        let next = request(session, 0, 2);
        let ticket = match state.sequence(&second, NOW, &next) {
            Ok(Sequence::Run(ticket)) => ticket,
            Err(Error::SeqMisordered) if step == 0 => continue,
            other => panic!("at {step}: {other:?}"),
        };
        assert!(state.start_operation(&second, &ticket, [7; NOTE_WORDS]), "at {step}");
        // A use of the lock restores what was left.
        let unknown = state.destroy_client_id(&second, NOW, ClientId(0));
        assert_eq!(unknown, Err(Error::StaleClientId), "at {step}");
        machine.kill(2);
        match state.sequence(&machine.host(3), NOW, &next) {
            Ok(Sequence::Continue(_, progress)) => {
                let found = (progress.done, progress.next, progress.note);
                assert_eq!(found, (0, NextOperation::InDoubt, [7; NOTE_WORDS]), "at {step}");
            }
            other => panic!("at {step}: {other:?}, and the operation runs twice"),
        }
        if end.is_some() {
            assert!(step > 10, "only {step} steps");
            return;
        }
    }
}

#[test]
fn the_notes_of_two_processes_that_end_are_never_mixed() {
    let config = small_config();
    let origin = memory(&config);
    let machine = Machine::default();
    let state = create(&origin, &config);
    let (_, session) = join(&state, &machine.host(9), NOW, "a");
    let args = request(session, 0, 1);
    let ticket = run(&state, &machine.host(1), NOW, &args);
    assert!(state.start_operation(&machine.host(1), &ticket, [1; NOTE_WORDS]));
    for step in 0.. {
        let memory = super::kills::copy(&origin);
        let (process, machine) = (Process::new(&memory), Machine::default());
        machine.kill(1);
        let (state, second) = (State::open(&process).expect("an arena"), machine.host(2));
        let end = process.killed_before(step, || {
            let begun = state.sequence(&second, NOW, &args);
            let Ok(Sequence::Continue(ticket, _)) = begun else { panic!("{begun:?}") };
            assert!(state.start_operation(&second, &ticket, [2; NOTE_WORDS]));
        });
        machine.kill(2);
        let state = State::open(&memory).expect("an arena");
        let begun = state.sequence(&machine.host(3), NOW, &args);
        let Ok(Sequence::Continue(_, progress)) = begun else { panic!("at {step}: {begun:?}") };
        let is_whole = match progress.next {
            NextOperation::NotBegun => progress.note == [0; NOTE_WORDS],
            _ => [[1; NOTE_WORDS], [2; NOTE_WORDS]].contains(&progress.note),
        };
        assert!(is_whole, "at {step}: {progress:?}");
        if end.is_some() {
            assert!(step >= 5, "only {step} steps");
            return;
        }
    }
}

/// Lets two threads take turns at the words of slots, in a given order.
#[derive(Debug, Default)]
struct Turns {
    next: Mutex<TurnState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct TurnState {
    /// Whose steps follow each other, from the first.
    order: Vec<usize>,
    at: usize,
    ended: [bool; 2],
}

impl Turns {
    fn wait(&self, me: usize) {
        let mut turns = self.next.lock().expect("no panic");
        while turns.order.get(turns.at).is_some_and(|whose| *whose != me && !turns.ended[*whose]) {
            turns = self.changed.wait(turns).expect("no panic");
        }
        turns.at += 1;
        self.changed.notify_all();
    }

    fn end(&self, me: usize) {
        self.next.lock().expect("no panic").ended[me] = true;
        self.changed.notify_all();
    }
}

/// Memory in which each step at a word of slots waits for its turn.
struct Scheduled {
    memory: Arc<HeapWords>,
    slots: std::ops::Range<usize>,
    turns: Arc<Turns>,
    me: usize,
}

impl Scheduled {
    fn step(&self, at: usize) {
        if self.slots.contains(&at) {
            self.turns.wait(self.me);
        }
    }
}

impl Words for Scheduled {
    fn word_count(&self) -> usize {
        self.memory.word_count()
    }

    fn load(&self, at: usize) -> u64 {
        self.step(at);
        self.memory.load(at)
    }

    fn store(&self, at: usize, value: u64) {
        self.step(at);
        self.memory.store(at, value);
    }

    fn compare_exchange(&self, at: usize, from: u64, to: u64) -> Result<(), u64> {
        self.step(at);
        self.memory.compare_exchange(at, from, to)
    }
}

struct Numbered(u32);

impl Host for Numbered {
    fn me(&self) -> Owner {
        Owner::new(self.0).expect("a number")
    }

    fn is_alive(&self, _owner: Owner) -> bool {
        true
    }

    fn pause(&self, _round: u32) -> bool {
        true
    }
}

/// All orders of `a` steps of one and `b` of the other.
fn orders(a: usize, b: usize) -> Vec<Vec<usize>> {
    if a == 0 || b == 0 {
        return vec![[vec![0; a], vec![1; b]].concat()];
    }
    let first =
        |who: usize, rest: Vec<Vec<usize>>| rest.into_iter().map(move |rest| [vec![who], rest].concat());
    first(0, orders(a - 1, b)).chain(first(1, orders(a, b - 1))).collect()
}

/// What one process did with the request: `Some(reply)` if it ran or was answered.
fn serve(words: Scheduled, args: &SequenceArgs) -> (bool, Option<Vec<u8>>) {
    let (turns, me) = (Arc::clone(&words.turns), words.me);
    let host = Numbered(me as u32 + 1);
    let state = State::open(words).expect("an arena");
    let result = match state.sequence(&host, NOW, args) {
        Ok(Sequence::Run(ticket)) => {
            let reply = vec![me as u8 + 1; 8];
            assert!(state.finish(&host, &ticket, Some(&reply)));
            (true, Some(reply))
        }
        Ok(Sequence::Replay(reply)) => (false, Some(reply)),
        Err(Error::InProgress) => (false, None),
        other => panic!("{other:?}"),
    };
    turns.end(me);
    result
}

#[test]
fn in_every_order_of_the_steps_of_two_processes_a_request_runs_once() {
    let config = small_config();
    let origin = memory(&config);
    let (_, session) = join(&create(&origin, &config), &SingleProcess, NOW, "a");
    let args = request(session, 0, 1);
    let slots = {
        let state = State::open(&origin).expect("an arena");
        let record = crate::record::Record { kind: Kind::Session, index: 1 };
        let at = state.arena.slot_at(record, 0).expect("a slot").address;
        at..at + 100
    };
    let mut outcomes = HashSet::new();
    for order in orders(8, 7) {
        let memory = Arc::new(super::kills::copy(&origin));
        let turns = Arc::new(Turns::default());
        turns.next.lock().expect("no panic").order.clone_from(&order);
        let words = |me| Scheduled {
            memory: Arc::clone(&memory),
            slots: slots.clone(),
            turns: Arc::clone(&turns),
            me,
        };
        let (one, other) = std::thread::scope(|scope| {
            let one = scope.spawn(|| serve(words(0), &args));
            let other = scope.spawn(|| serve(words(1), &args));
            (one.join().expect("no panic"), other.join().expect("no panic"))
        });
        assert!(one.0 != other.0, "{order:?}: {one:?} {other:?}");
        let replies: HashSet<_> = [one.1.clone(), other.1.clone()].into_iter().flatten().collect();
        assert_eq!(replies.len(), 1, "{order:?}");
        outcomes.insert((one.0, one.1.is_some() && other.1.is_some()));
    }
    assert_eq!(outcomes.len(), 4, "each process runs it, and the other is answered or told to wait");
}
