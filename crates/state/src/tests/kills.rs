//! A process ends before each single store of each operation: the next process finds the state as
//! it was before the operation, or as it is after it, and nothing is lost.

use super::consistency::check;
use super::*;
use crate::layout::{UNDO_ENTRIES, head};

/// All words that mean anything.
pub(super) fn words(memory: &HeapWords) -> Vec<u64> {
    let log = head::WORDS..head::WORDS + 2 * UNDO_ENTRIES;
    let counts = [head::LOCK, head::UNDO_COUNT, head::CHANGES];
    let means = |at: &usize| !log.contains(at) && !counts.contains(at);
    (0..memory.word_count()).filter(means).map(|at| memory.load(at)).collect()
}

pub(super) fn copy(memory: &HeapWords) -> HeapWords {
    let copy = HeapWords::new(memory.word_count());
    for at in 0..memory.word_count() {
        let word = memory.load(at);
        if word != 0 {
            copy.store(at, word);
        }
    }
    copy
}

/// An operation, as tests repeat it.
pub(super) type Operation<'a> = &'a dyn Fn(&State<&Process<'_>>, &TestHost<'_>);

const MORTAL: u32 = 5;
const NEIGHBOUR: u32 = 6;

/// Does `act` to copies of an arena, and ends before each store of it in turn. `is_one_change` says
/// that there is nothing between before and after.
pub(super) fn kill_at_every_store(memory: &HeapWords, name: &str, is_one_change: bool, act: Operation<'_>) {
    let (before, whole) = (words(memory), copy(memory));
    let steps = {
        let (process, machine) = (Process::new(&whole), Machine::default());
        act(&State::open(&process).expect("an arena"), &machine.host(MORTAL));
        process.steps.get()
    };
    check(&State::open(&whole).expect("an arena"));
    let after = words(&whole);
    for step in 0..steps {
        let memory = copy(memory);
        let (process, machine) = (Process::new(&memory), Machine::default());
        let mortal = machine.host(MORTAL);
        let state = State::open(&process).expect("an arena");
        let ended = process.killed_before(step, || act(&state, &mortal));
        assert!(ended.is_none(), "{name}: at {step} of {steps}");
        machine.kill(MORTAL);
        let state = State::open(&memory).expect("an arena");
        // Any use of the lock restores what was left.
        let neighbour = machine.host(NEIGHBOUR);
        let unknown = state.destroy_client_id(&neighbour, seconds(0), ClientId(0));
        assert_eq!(unknown, Err(Error::StaleClientId), "{name}: at {step}");
        check(&state);
        let found = words(&memory);
        assert!(!is_one_change || found == before || found == after, "{name}: between, at {step}");
        // The survivor does the same, and comes to the same end.
        let (process, survivor) = (Process::new(&memory), machine.host(NEIGHBOUR));
        act(&State::open(&process).expect("an arena"), &survivor);
        check(&state);
    }
}

#[test]
fn a_process_that_ends_in_a_change_of_clients_and_sessions_leaves_all_or_nothing() {
    let config = small_config();
    let memory = memory(&config);
    let state = create(&memory, &config);
    let host = Machine::default();
    let host = host.host(1);
    let (client, session) = join(&state, &host, seconds(1), "a client with a name of more than one block");
    let (idle, _) = join(&state, &host, seconds(1), "b");
    let fresh = state.exchange_id(&host, seconds(1), exchange("c", 3)).expect("a client");
    let now = seconds(2);
    let operations: [(&str, bool, Operation<'_>); 9] = [
        ("new client", true, &|state, host| {
            let _ = state.exchange_id(host, now, exchange("a name that no other client has, and long", 9));
        }),
        ("known client", true, &|state, host| {
            let _ = state.exchange_id(host, now, exchange("b", 1));
        }),
        ("client restarts", true, &|state, host| {
            let _ = state.exchange_id(host, now, exchange("b", 2));
        }),
        ("first session", true, &|state, host| {
            let _ = state.create_session(host, now, &session_args(fresh.client, fresh.sequence));
        }),
        ("second session", true, &|state, host| {
            let _ = state.create_session(host, now, &session_args(client, 2));
        }),
        ("end of a session", true, &|state, host| {
            let _ = state.destroy_session(host, now, session);
        }),
        ("end of a client that is busy", true, &|state, host| {
            let _ = state.destroy_client_id(host, now, idle);
        }),
        ("all leases end", false, &|state, host| {
            let _ = state.tick(host, seconds(100_000));
        }),
        ("a restart is confirmed", false, &|state, host| {
            let again = state.exchange_id(host, now, exchange("b", 2));
            let Ok(again) = again else { return };
            let _ = state.create_session(host, now, &session_args(again.client, again.sequence));
            let _ = state.tick(host, now);
        }),
    ];
    for (name, is_one_change, act) in operations {
        kill_at_every_store(&memory, name, is_one_change, act);
    }
}

#[test]
fn a_process_that_is_stopped_with_the_lock_is_not_waited_for_without_end() {
    let config = small_config();
    let memory = memory(&config);
    let (process, machine) = (Process::new(&memory), Machine::default());
    let created = create(&memory, &config);
    let state = State::open(&process).expect("an arena");
    let stopped =
        process.killed_before(8, || state.exchange_id(&machine.host(1), seconds(1), exchange("a", 1)));
    assert!(stopped.is_none());
    let neighbour = machine.host(2);
    let waited = created.exchange_id(&neighbour, seconds(1), exchange("b", 1));
    assert_eq!(waited, Err(Error::Busy), "it may run again");
    machine.kill(1);
    created.exchange_id(&neighbour, seconds(1), exchange("b", 1)).expect("it has ended");
    check(&created);
}
