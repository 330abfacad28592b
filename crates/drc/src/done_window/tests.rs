//! The done window alone: each state, the edges of the window, and threads that race.

use super::*;
use proptest::prelude::*;

const ORIGINAL: Token = Token(1);
const REPLAY: Token = Token(2);
const BELOW: Begin = Begin::Refused(Refusal::BelowWindow);

fn counter(value: u32) -> Counter {
    Counter::new(value)
}

#[test]
fn a_call_that_ended_is_not_run_again_and_keeps_its_status() {
    let window = DoneWindow::default();
    for (number, status, stored) in
        [(5, 0, Stored::Done), (6, 28, Stored::Failed(28)), (7, u32::MAX, Stored::Failed(STATUS_MAX))]
    {
        assert_eq!(window.begin(counter(number), ORIGINAL), Begin::Run);
        assert_eq!(window.finish(counter(number), status), ReplyTo::ORIGINAL);
        assert_eq!(window.begin(counter(number), REPLAY), Begin::Replay(stored));
    }
}

#[test]
fn a_replay_of_a_running_call_is_answered_on_the_newest_connection() {
    let window = DoneWindow::default();
    assert_eq!(window.begin(counter(5), ORIGINAL), Begin::Run);
    assert_eq!(window.begin(counter(5), REPLAY), Begin::Attached);
    assert_eq!(window.begin(counter(5), Token(3)), Begin::Attached);
    assert_eq!(window.begin(counter(6), ORIGINAL), Begin::Run);
    assert_eq!(window.finish(counter(6), 0), ReplyTo::ORIGINAL, "another call's waiter is not taken");
    assert_eq!(window.finish(counter(5), 0), ReplyTo { waiter: Some(Token(3)) });
    assert_eq!(window.waiting.load(Ordering::SeqCst), 0);
}

#[test]
fn a_dropped_call_may_run_again() {
    let window = DoneWindow::default();
    assert_eq!(window.begin(counter(5), ORIGINAL), Begin::Run);
    assert_eq!(window.begin(counter(5), REPLAY), Begin::Attached);
    assert_eq!(window.release(counter(5)), ReplyTo { waiter: Some(REPLAY) });
    assert_eq!(window.begin(counter(5), REPLAY), Begin::Run);
    assert_eq!(window.finish(counter(5), 0), ReplyTo::ORIGINAL);
    assert_eq!(window.begin(counter(5), ORIGINAL), Begin::Replay(Stored::Done));
}

#[test]
fn the_oldest_call_in_the_window_runs_and_the_one_below_is_refused() {
    let window = DoneWindow::default();
    assert_eq!(window.begin(counter(WINDOW_DONE), ORIGINAL), Begin::Run);
    assert_eq!(window.begin(counter(1), ORIGINAL), Begin::Run);
    assert_eq!(window.begin(counter(0), ORIGINAL), BELOW);
}

#[test]
fn a_running_call_that_is_overtaken_is_still_answered_and_not_run_again() {
    let window = DoneWindow::default();
    assert_eq!(window.begin(counter(5), ORIGINAL), Begin::Run);
    assert_eq!(window.begin(counter(5), REPLAY), Begin::Attached);
    assert_eq!(window.begin(counter(5 + WINDOW_DONE), ORIGINAL), Begin::Run);
    assert_eq!(window.begin(counter(5), REPLAY), BELOW);
    assert_eq!(window.finish(counter(5), 0), ReplyTo { waiter: Some(REPLAY) });
    assert_eq!(window.begin(counter(5 + WINDOW_DONE), REPLAY), Begin::Attached, "the newer call still runs");
}

#[test]
fn the_window_slides_over_the_end_of_the_counters() {
    let window = DoneWindow::default();
    let mut at = counter(u32::MAX - 2 * WINDOW_DONE);
    for _ in 0..4 * WINDOW_DONE {
        assert_eq!(window.begin(at, ORIGINAL), Begin::Run);
        window.finish(at, 0);
        assert_eq!(window.begin(at, REPLAY), Begin::Replay(Stored::Done));
        at = at.next();
    }
}

#[test]
fn a_client_that_never_writes_costs_no_ring() {
    assert!(DoneWindow::default().ring.get().is_none());
}

#[test]
fn threads_that_race_run_each_call_once_and_leave_no_waiter_unanswered() {
    const THREADS: u64 = 4;
    const CALLS: u32 = 40_000;
    let window = DoneWindow::default();
    let barrier = std::sync::Barrier::new(THREADS as usize);
    let race = |thread: u64| {
        barrier.wait();
        let (mut ran, mut attached) = (Vec::new(), Vec::new());
        for number in 0..CALLS {
            match window.begin(counter(number), Token(thread)) {
                Begin::Run => {
                    // Long enough for another thread to find it running.
                    std::thread::yield_now();
                    ran.push((number, window.finish(counter(number), 0).waiter));
                }
                Begin::Attached => attached.push(number),
                // A thread may lag by more than a window; refusing is what is asked of it then.
                Begin::Replay(Stored::Done) | BELOW => {}
                other => panic!("{other:?}"),
            }
        }
        (ran, attached)
    };
    let race = &race;
    let ends: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || race(thread))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let mut answers = BTreeMap::new();
    for (number, to) in ends.iter().flat_map(|(ran, _)| ran) {
        assert!(answers.insert(*number, *to).is_none(), "call {number} ran twice");
    }
    let mut waiters: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    for (thread, (_, attached)) in ends.iter().enumerate() {
        for number in attached {
            waiters.entry(*number).or_default().push(thread as u64);
        }
    }
    for (number, to) in answers {
        match waiters.remove(&number) {
            Some(threads) => assert!(threads.contains(&to.expect("an answer to the waiter").0)),
            None => assert_eq!(to, None, "call {number} is answered to its original"),
        }
    }
    assert!(waiters.is_empty(), "waiters of calls that never ran: {waiters:?}");
    assert_eq!(window.waiting.load(Ordering::SeqCst), 0);
}

proptest! {
    #[test]
    fn an_entry_keeps_lap_status_and_state(value in any::<u32>(), status in 0..=STATUS_MAX) {
        for state in [Phase::Unused, Phase::Running, Phase::Ended(status), Phase::Dropped] {
            let word = entry(counter(value), state);
            prop_assert_eq!(phase(word), state);
            prop_assert_eq!(laps_behind(word, counter(value)), 0);
            prop_assert_eq!(laps_behind(word, counter(value.wrapping_add(WINDOW_DONE))), 1);
        }
    }
}
