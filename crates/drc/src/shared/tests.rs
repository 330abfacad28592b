//! Two processes on the same memory, each of which may end before any of its steps.

use super::*;
use crate::{
    CallKey, ConnectionId, ConnectionTable, ForeignCall, LookupContext, Origin, Outcome, TABLE_AGE_MAX,
};
use proptest::prelude::*;
use rpc::Xid;
use rpc::call::CallHeader;
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

thread_local! {
    /// Steps until this thread's process ends.
    static LEFT: Cell<Option<u32>> = const { Cell::new(None) };
}

/// The panic payload that ends a process in the middle.
struct Killed;

pub(super) fn step() {
    LEFT.with(|left| match left.get() {
        Some(0) => {
            left.set(None);
            resume_unwind(Box::new(Killed));
        }
        Some(steps) => left.set(Some(steps - 1)),
        None => {}
    });
}

/// Runs `act` in a process that ends before step number `steps`; returns `None` if it ended.
fn killed_at<T>(steps: Option<u32>, act: impl FnOnce() -> T) -> Option<T> {
    LEFT.set(steps);
    let end = catch_unwind(AssertUnwindSafe(act));
    LEFT.set(None);
    match end {
        Ok(done) => Some(done),
        Err(cause) if cause.is::<Killed>() => None,
        Err(cause) => resume_unwind(cause),
    }
}

#[derive(Debug, Default)]
struct Machine {
    dead: RefCell<HashSet<(u8, u32)>>,
}

struct Process<'a> {
    machine: &'a Machine,
    me: Owner,
}

impl Host for Process<'_> {
    fn me(&self) -> Owner {
        self.me
    }

    fn is_alive(&self, owner: Owner) -> bool {
        owner.member != 0 && !self.machine.dead.borrow().contains(&(owner.member, owner.generation))
    }

    fn pause(&self, round: u32) -> bool {
        round < 3
    }
}

impl Machine {
    fn process(&self, member: u8, generation: u32) -> Process<'_> {
        Process { machine: self, me: Owner { member, generation } }
    }

    fn kill(&self, process: &Process<'_>) {
        self.dead.borrow_mut().insert((process.me.member, process.me.generation));
    }
}

fn memory(words: usize) -> Vec<AtomicU64> {
    std::iter::repeat_with(AtomicU64::default).take(words).collect()
}

const DONE: Xid = Xid(0x4000_0007);
const WHOLE: Xid = Xid(0x8000_0007);
const NOW: Duration = Duration::from_secs(1000);

fn reply(bytes: &[u8]) -> SharedBegin {
    SharedBegin::Replay(Stored::Reply(bytes.into()))
}

/// A call that always comes over the same path.
fn call(xid: u32) -> ForeignCall {
    let header = CallHeader {
        xid: Xid(xid),
        program: 100_003,
        version: 3,
        procedure: 12,
        credential_flavor: 1,
        credential_body: b"somebody",
    };
    let key = CallKey::new(&header, 17, [192, 0, 2, 1].into());
    ForeignCall { key, origin: Origin { connection: ConnectionId::NONE, path: 1 } }
}

fn context<'a>(host: &'a Process<'_>, now: Duration) -> LookupContext<'a> {
    LookupContext::new(ConnectionTable::new(&[], host), now, now)
}

/// Either cache, for tests that hold for both.
enum Cache<'m> {
    Window(SharedWindow<'m>, Xid),
    Table(SharedTable<'m>, ForeignCall),
}

impl Cache<'_> {
    fn begin(&self, host: &Process<'_>) -> SharedBegin {
        match self {
            Cache::Window(window, xid) => window.begin(host, *xid),
            Cache::Table(table, call) => table.begin(host, call, &context(host, NOW)).0,
        }
    }

    fn start(&self, host: &Process<'_>) -> Start {
        match self {
            Cache::Window(window, xid) => window.start(host, *xid),
            Cache::Table(table, call) => table.start(host, call, None),
        }
    }

    fn cancel_start(&self, host: &Process<'_>) {
        match self {
            Cache::Window(window, xid) => window.cancel_start(host, *xid),
            Cache::Table(table, call) => table.cancel_start(host, call, None),
        }
    }

    fn forget(&self, host: &Process<'_>) {
        match self {
            Cache::Window(window, xid) => window.forget(host, *xid),
            Cache::Table(table, call) => table.forget(host, call, None),
        }
    }

    fn finish(&self, host: &Process<'_>, outcome: Outcome<'_>) {
        match self {
            Cache::Window(window, xid) => window.finish(host, *xid, outcome),
            Cache::Table(table, call) => table.finish(host, call, None, outcome, NOW),
        }
    }

    fn record_pre_op(&self, seen: PreOpState) {
        match self {
            Cache::Window(window, xid) => window.record_pre_op(*xid, seen),
            Cache::Table(table, call) => table.record_pre_op(call, None, seen),
        }
    }

    fn pre_op(&self) -> Option<PreOpState> {
        match self {
            Cache::Window(window, xid) => window.pre_op(*xid),
            Cache::Table(table, call) => table.pre_op(call, None),
        }
    }
}

/// Runs the same test with a window and with a table, each in its own memory.
fn with_both(mut act: impl FnMut(&Machine, Cache<'_>)) {
    let words = memory(WINDOW_WORDS);
    act(&Machine::default(), Cache::Window(SharedWindow::new(&words, 9), WHOLE));
    let words = memory(TABLE_WORDS);
    act(&Machine::default(), Cache::Table(SharedTable::new(&words, 5), call(3)));
}

#[test]
fn a_neighbour_and_a_process_started_again_answer_a_replay_from_the_cache() {
    with_both(|machine, cache| {
        let (first, second) = (machine.process(1, 1), machine.process(2, 2));
        assert_eq!(cache.begin(&first), SharedBegin::Run);
        assert_eq!(cache.start(&first), Start::Fresh);
        cache.finish(&first, Outcome::Reply(b"removed"));
        machine.kill(&first);
        assert_eq!(cache.begin(&second), reply(b"removed"));
        assert_eq!(cache.begin(&machine.process(1, 3)), reply(b"removed"));
    });
}

#[test]
fn what_ends_with_a_status_is_answered_with_it() {
    let words = memory(WINDOW_WORDS);
    let (machine, window) = (Machine::default(), SharedWindow::new(&words, 9));
    let host = machine.process(1, 1);
    for (xid, outcome, stored) in [
        (DONE, Outcome::Done, Stored::Done),
        (Xid(DONE.0 + 1), Outcome::Failed(70), Stored::Failed(70)),
        (WHOLE, Outcome::Failed(10_006), Stored::Failed(10_006)),
        (Xid(WHOLE.0 + 1), Outcome::Reply(&[7; REPLY_BYTES_MAX + 1]), Stored::Failed(10_006)),
    ] {
        assert_eq!(window.begin(&host, xid), SharedBegin::Run);
        assert_eq!(window.start(&host, xid), Start::Fresh);
        window.finish(&host, xid, outcome);
        assert_eq!(window.begin(&host, xid), SharedBegin::Replay(stored));
    }
    assert_eq!(window.begin(&host, Xid(5)), SharedBegin::Run, "what is repeatable leaves no trace");
    assert_eq!(window.begin(&host, Xid(u32::MAX)), SharedBegin::Refused(Refusal::UnknownClass));
}

#[test]
fn a_call_that_waits_in_a_queue_is_taken_over_and_one_that_runs_is_not() {
    with_both(|machine, cache| {
        let (first, second) = (machine.process(1, 1), machine.process(2, 2));
        assert_eq!(cache.begin(&first), SharedBegin::Run);
        assert_eq!(cache.begin(&first), SharedBegin::Running, "its own queue has it");
        assert_eq!(cache.begin(&second), SharedBegin::Run);
        assert_eq!(cache.start(&first), Start::Lost);
        assert_eq!(cache.start(&second), Start::Fresh);
        assert_eq!(cache.begin(&first), SharedBegin::Running);
        cache.cancel_start(&second);
        assert_eq!(cache.begin(&first), SharedBegin::Run, "it was not executed after all");
        assert_eq!(cache.start(&second), Start::Lost);
    });
}

#[test]
fn a_call_given_up_is_anybodys() {
    with_both(|machine, cache| {
        let (first, second) = (machine.process(1, 1), machine.process(2, 2));
        assert_eq!(cache.begin(&first), SharedBegin::Run);
        cache.forget(&first);
        assert_eq!(cache.start(&first), Start::Lost);
        assert_eq!(cache.begin(&first), SharedBegin::Run);
        cache.forget(&first);
        assert_eq!(cache.begin(&second), SharedBegin::Run);
        assert_eq!(cache.start(&second), Start::Fresh);
    });
}

#[test]
fn a_call_of_a_process_that_ended_is_in_doubt_with_what_was_seen_first() {
    with_both(|machine, cache| {
        let (first, second, third) = (machine.process(1, 1), machine.process(2, 2), machine.process(1, 3));
        assert_eq!(cache.begin(&first), SharedBegin::Run);
        assert_eq!(cache.start(&first), Start::Fresh);
        assert_eq!(cache.pre_op(), None);
        cache.record_pre_op(PreOpState::Object(4, 5));
        assert_eq!(cache.begin(&second), SharedBegin::Running);
        machine.kill(&first);
        assert_eq!(cache.begin(&second), SharedBegin::Run);
        assert_eq!(cache.start(&second), Start::InDoubt);
        machine.kill(&second);
        assert_eq!((cache.begin(&third), cache.start(&third)), (SharedBegin::Run, Start::InDoubt));
        assert_eq!(cache.pre_op(), Some(PreOpState::Object(4, 5)));
        cache.finish(&first, Outcome::Reply(b"late"));
        cache.finish(&third, Outcome::Reply(b"settled"));
        assert_eq!(cache.begin(&third), reply(b"settled"));
    });
}

#[test]
fn a_process_that_ends_before_any_step_leaves_what_others_can_go_on_from() {
    let mut executed_then_doubt = 0;
    with_both(|machine, cache| {
        let neighbour = machine.process(200, 1);
        for steps in 0..120 {
            // Each time another process with another call, in the memory that earlier ones left.
            let mortal = machine.process(1, steps + 1);
            let cache = match &cache {
                Cache::Window(window, _) => Cache::Window(*window, Xid(WHOLE.0 + steps)),
                Cache::Table(table, _) => Cache::Table(*table, call(steps)),
            };
            let (executed, replied) = (Cell::new(0), Cell::new(false));
            killed_at(Some(steps), || {
                if cache.begin(&mortal) == SharedBegin::Run && cache.start(&mortal) == Start::Fresh {
                    cache.record_pre_op(PreOpState::Absent);
                    executed.set(executed.get() + 1);
                    cache.finish(&mortal, Outcome::Reply(b"a reply of some length"));
                    replied.set(true);
                }
            });
            machine.kill(&mortal);
            match cache.begin(&neighbour) {
                SharedBegin::Replay(stored) => {
                    assert_eq!(stored, Stored::Reply(b"a reply of some length"[..].into()), "at {steps}");
                    assert_eq!(executed.get(), 1);
                }
                SharedBegin::Run => {
                    assert!(!replied.get(), "at {steps}: a call that was answered is never begun again");
                    match cache.start(&neighbour) {
                        Start::Fresh => assert_eq!(executed.get(), 0, "at {steps}: executed without doubt"),
                        Start::InDoubt => {
                            executed_then_doubt += executed.get();
                            let seen = cache.pre_op();
                            assert!(
                                executed.get() == 0 || seen == Some(PreOpState::Absent),
                                "at {steps}: {seen:?}"
                            );
                        }
                        Start::Lost => panic!("at {steps}: begun and lost"),
                    }
                    cache.finish(&neighbour, Outcome::Reply(b"again"));
                }
                other => panic!("at {steps}: {other:?}"),
            }
            assert!(matches!(cache.begin(&neighbour), SharedBegin::Replay(_)), "at {steps}");
        }
    });
    assert!(executed_then_doubt >= 10, "the interesting place was met");
}

#[test]
fn any_word_of_any_value_leads_to_an_answer_or_to_doubt() {
    let words = memory(WINDOW_WORDS);
    let (machine, window) = (Machine::default(), SharedWindow::new(&words, 9));
    let host = machine.process(1, 1);
    machine.kill(&machine.process(0xff, 0x3f_ffff));
    for pattern in [1, 2, 3, 4, 5, 6, 7, u64::MAX, u64::MAX << 3, 0x0123_4567_89ab_cdef] {
        for xid in [DONE, WHOLE] {
            words.iter().for_each(|word| word.store(pattern, Ordering::SeqCst));
            // The newest counter is then far off, and every call is refused; so reset the counters.
            words[0].store(0, Ordering::SeqCst);
            words[1].store(0, Ordering::SeqCst);
            let begin = window.begin(&host, xid);
            if begin == SharedBegin::Run {
                assert_ne!(window.start(&host, xid), Start::Lost, "{pattern:x}");
                window.finish(&host, xid, Outcome::Failed(5));
                assert_eq!(window.begin(&host, xid), SharedBegin::Replay(Stored::Failed(5)));
            }
        }
    }
    let short = memory(100);
    assert_eq!(
        SharedWindow::new(&short, 9).begin(&host, WHOLE),
        SharedBegin::Refused(Refusal::UnknownClass),
        "memory that is too short has no windows"
    );
    assert_eq!(
        SharedTable::new(&short, 9).begin(&host, &call(1), &context(&host, NOW)).0,
        SharedBegin::Refused(Refusal::TableFull)
    );
}

#[test]
fn a_reply_whose_bytes_changed_is_in_doubt_and_not_answered() {
    let words = memory(WINDOW_WORDS);
    let (machine, window) = (Machine::default(), SharedWindow::new(&words, 9));
    let host = machine.process(1, 1);
    assert_eq!((window.begin(&host, WHOLE), window.start(&host, WHOLE)), (SharedBegin::Run, Start::Fresh));
    window.finish(&host, WHOLE, Outcome::Reply(b"whole"));
    let at = words.iter().position(|word| word.load(Ordering::SeqCst).to_le_bytes().starts_with(b"whole"));
    words[at.unwrap()].fetch_xor(1 << 20, Ordering::SeqCst);
    assert_eq!((window.begin(&host, WHOLE), window.start(&host, WHOLE)), (SharedBegin::Run, Start::InDoubt));
}

#[test]
fn windows_slide_and_refuse_what_is_below() {
    let words = memory(WINDOW_WORDS);
    let (machine, window) = (Machine::default(), SharedWindow::new(&words, 9));
    let host = machine.process(1, 1);
    for (class, size) in [(1_u32, crate::WINDOW_DONE), (2, crate::WINDOW_REPLY)] {
        let at = |step: u32| Xid(class << 30 | 0x3fff_fff0_u32.wrapping_add(step) & 0x3fff_ffff);
        for step in 0..3 * size {
            assert_eq!(window.begin(&host, at(step)), SharedBegin::Run);
            assert_eq!(window.start(&host, at(step)), Start::Fresh);
            window.finish(&host, at(step), Outcome::Failed(5));
            let oldest = step.saturating_sub(size - 1);
            assert_eq!(window.begin(&host, at(oldest)), SharedBegin::Replay(Stored::Failed(5)));
            if step >= size {
                assert_eq!(window.begin(&host, at(oldest - 1)), SharedBegin::Refused(Refusal::BelowWindow));
            }
        }
    }
}

#[test]
fn a_table_drops_what_ended_first_and_nothing_that_runs() {
    let words = memory(TABLE_WORDS);
    let (machine, table) = (Machine::default(), SharedTable::new(&words, 5));
    let host = machine.process(1, 1);
    let running = call(0);
    assert_eq!(table.begin(&host, &running, &context(&host, NOW)).0, SharedBegin::Run);
    assert_eq!(table.start(&host, &running, None), Start::Fresh);
    let calls = 40 * u32::try_from(BUCKETS).unwrap();
    for xid in 1..calls {
        let (begin, place) = table.begin(
            &host,
            &call(xid),
            &context(&host, NOW + Duration::from_secs(u64::from(xid / 20_000))),
        );
        assert_eq!(begin, SharedBegin::Run, "{xid}");
        assert_eq!(table.start(&host, &call(xid), place), Start::Fresh);
        table.finish(&host, &call(xid), place, Outcome::Done, NOW);
    }
    assert_eq!(table.begin(&host, &running, &context(&host, NOW)).0, SharedBegin::Running);
    assert_eq!(
        table.begin(&host, &call(calls - 1), &context(&host, NOW)).0,
        SharedBegin::Replay(Stored::Done)
    );
    assert_eq!(
        table.begin(&host, &call(calls - 1), &context(&host, NOW + TABLE_AGE_MAX)).0,
        SharedBegin::Run,
        "it is old"
    );
}

#[test]
fn a_call_that_comes_again_when_its_reply_is_too_old_runs_again_wherever_it_is_resumed() {
    let words = memory(TABLE_WORDS);
    let (machine, table) = (Machine::default(), SharedTable::new(&words, 5));
    let host = machine.process(1, 1);
    for round in 0..3 {
        let context = context(&host, NOW + TABLE_AGE_MAX * round);
        assert_eq!(table.begin(&host, &call(7), &context).0, SharedBegin::Run, "round {round}");
        // A worker, which does not know the slot.
        assert_eq!(table.start(&host, &call(7), None), Start::Fresh, "round {round}");
        table.finish(&host, &call(7), None, Outcome::Reply(b"answer"), context.now);
        assert_eq!(table.begin(&host, &call(7), &context).0, reply(b"answer"), "round {round}");
    }
}

#[test]
fn the_lock_of_a_process_that_ended_is_taken_over_and_one_that_stands_still_is_not_waited_for() {
    let words = memory(TABLE_WORDS);
    let (machine, table) = (Machine::default(), SharedTable::new(&words, 5));
    let (first, second) = (machine.process(1, 1), machine.process(2, 1));
    // The process ends or stops right after it took the lock.
    assert!(killed_at(Some(1), || table.begin(&first, &call(1), &context(&first, NOW))).is_none());
    assert_eq!(
        table.begin(&second, &call(1), &context(&second, NOW)).0,
        SharedBegin::Refused(Refusal::TableFull)
    );
    machine.kill(&first);
    assert_eq!(table.begin(&second, &call(1), &context(&second, NOW)).0, SharedBegin::Run);
}

/// One step of the model: a process (0 to 2), its action, the call, and the step before which the
/// process ends.
type Step = (u8, u8, u8, Option<u32>);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Three processes that come and go: a call that ended is never executed again, and a running
    /// call is executed by one process only.
    #[test]
    fn no_call_is_executed_twice_without_doubt(
        steps in proptest::collection::vec(
            (0..3_u8, 0..4_u8, 0..4_u8, proptest::option::weighted(0.3, 0..40_u32)), 1..120,
        ),
        in_table in any::<bool>(),
    ) {
        let words = memory(if in_table { TABLE_WORDS } else { WINDOW_WORDS });
        let machine = Machine::default();
        let cache = |number: u8| if in_table {
            Cache::Table(SharedTable::new(&words, 5), call(u32::from(number)))
        } else {
            Cache::Window(SharedWindow::new(&words, 9), Xid(WHOLE.0 + u32::from(number)))
        };
        let mut generation = [1_u32; 3];
        // For each call: how often it was executed, which process executes it, and whether it was
        // answered.
        let mut executed = [0; 4];
        let mut executing: [Option<(u8, u32)>; 4] = [None; 4];
        let mut answered = [false; 4];
        for (member, what, call, steps) in steps as Vec<Step> {
            let host = machine.process(member + 1, generation[usize::from(member)]);
            let (of, this) = (cache(call), usize::from(call));
            let mine = executing[this] == Some((member, host.me.generation));
            let done = killed_at(steps, || match what {
                0 => match of.begin(&host) {
                    SharedBegin::Run => 0,
                    SharedBegin::Replay(_) => 1,
                    SharedBegin::Running => 2,
                    SharedBegin::Refused(_) => 3,
                },
                1 => match of.start(&host) {
                    Start::Fresh => 10,
                    Start::InDoubt => 11,
                    Start::Lost => 12,
                },
                2 if mine => {
                    of.finish(&host, Outcome::Reply(b"done"));
                    20
                }
                3 if !mine => {
                    of.forget(&host);
                    30
                }
                _ => 40,
            });
            match done {
                Some(0) => prop_assert!(!answered[this], "an answered call was begun again"),
                Some(1) => {
                    prop_assert!(executed[this] > 0, "an answer to a call that never ran");
                    answered[this] = true;
                }
                Some(10 | 11) => {
                    let other = executing[this].filter(|(member, generation)| {
                        host.is_alive(Owner { member: member + 1, generation: *generation })
                    });
                    prop_assert!(other.is_none(), "two processes that live execute it");
                    prop_assert!(executed[this] == 0 || done == Some(11), "executed again without doubt");
                    executed[this] += 1;
                    executing[this] = Some((member, host.me.generation));
                }
                Some(20) => {
                    executing[this] = None;
                    answered[this] = true;
                }
                Some(_) => {}
                None => {
                    machine.kill(&host);
                    generation[usize::from(member)] += 1;
                    // The process may have ended between moving the entry and executing the call.
                    if what == 1 && !mine {
                        executing[this] = executing[this].filter(|(by, _)| *by != member);
                    }
                }
            }
        }
    }
}
