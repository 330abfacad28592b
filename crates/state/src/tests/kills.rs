//! A process ends before each single store of each operation: the next process finds the state as
//! it was before the operation, or as it is after it, and nothing is lost.

use super::consistency::check;
use super::*;
use crate::layout::{UNDO_ENTRIES, head};

/// All words that mean anything and that change with the lock only.
pub(super) fn words(memory: &HeapWords) -> Vec<u64> {
    let log = head::WORDS..head::WORDS + 2 * UNDO_ENTRIES;
    let counts = [head::LOCK, head::UNDO_COUNT, head::CHANGES];
    let layout = &State::open(memory).expect("an arena").arena.layout;
    let chunk = |index| {
        let record = crate::record::Record { kind: Kind::Chunk, index };
        layout.address(record, 0).expect("in bounds")
    };
    let chunks = chunk(1)..chunk(2) + (chunk(2) - chunk(1)) * (layout.count(Kind::Chunk) as usize - 1);
    let lease = |index| {
        let record = crate::record::Record { kind: Kind::Client, index };
        layout.address(record, crate::record::client::LEASE).expect("in bounds")
    };
    let leases: HashSet<usize> = (1..=layout.count(Kind::Client)).map(lease).collect();
    let announced = layout.all_changes();
    let means = |at: &usize| {
        !announced.contains(at)
            && !log.contains(at)
            && !counts.contains(at)
            && !chunks.contains(at)
            && !leases.contains(at)
    };
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

/// What an operation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Is {
    /// Several changes, after each of which the state is consistent.
    Steps,
    /// There is nothing between before and after.
    OneChange,
    /// As `OneChange`; and if it is asked for again, it is not done again.
    Once,
}

/// Does `act` to copies of an arena, and ends before each store of it in turn.
pub(super) fn kill_at_every_store(memory: &HeapWords, name: &str, is: Is, act: Operation<'_>) {
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
        assert!(is == Is::Steps || found == before || found == after, "{name}: between, at {step}");
        // The survivor does the same, and comes to the same end.
        let (process, survivor) = (Process::new(&memory), machine.host(NEIGHBOUR));
        act(&State::open(&process).expect("an arena"), &survivor);
        check(&state);
        let has_one_end = is == Is::Once || is == Is::OneChange && found == before;
        assert!(!has_one_end || words(&memory) == after, "{name}: another end, at {step}");
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
    let operations: [(&str, Is, Operation<'_>); 9] = [
        ("new client", Is::OneChange, &|state, host| {
            let _ = state.exchange_id(host, now, exchange("a name that no other client has, and long", 9));
        }),
        ("known client", Is::OneChange, &|state, host| {
            let _ = state.exchange_id(host, now, exchange("b", 1));
        }),
        ("client restarts", Is::OneChange, &|state, host| {
            let _ = state.exchange_id(host, now, exchange("b", 2));
        }),
        ("first session", Is::OneChange, &|state, host| {
            let _ = state.create_session(host, now, &session_args(fresh.client, fresh.sequence));
        }),
        ("second session", Is::OneChange, &|state, host| {
            let _ = state.create_session(host, now, &session_args(client, 2));
        }),
        ("end of a session", Is::OneChange, &|state, host| {
            let _ = state.destroy_session(host, now, session);
        }),
        ("end of a client that is busy", Is::OneChange, &|state, host| {
            let _ = state.destroy_client_id(host, now, idle);
        }),
        ("all leases end", Is::Steps, &|state, host| {
            let _ = state.tick(host, seconds(100_000));
        }),
        ("a restart is confirmed", Is::Steps, &|state, host| {
            let again = state.exchange_id(host, now, exchange("b", 2));
            let Ok(again) = again else { return };
            let _ = state.create_session(host, now, &session_args(again.client, again.sequence));
            let _ = state.tick(host, now);
        }),
    ];
    for (name, is, act) in operations {
        kill_at_every_store(&memory, name, is, act);
    }
}

/// One operation in a request of its own, which a survivor continues.
fn request_of<W: Words>(
    state: &State<W>,
    host: &impl Host,
    now: Duration,
    args: &SequenceArgs,
    act: impl FnOnce(&Ticket),
) {
    match state.sequence(host, now, args).expect("a verdict") {
        Sequence::Run(ticket) => {
            act(&ticket);
            assert!(state.finish(host, &ticket, None));
        }
        Sequence::Continue(ticket, progress) => {
            if progress.next == NextOperation::NotBegun {
                act(&ticket);
            }
            assert!(state.finish(host, &ticket, None));
        }
        Sequence::Replay(_) | Sequence::ReplayUncached => {}
    }
}

#[test]
fn a_process_that_ends_in_a_change_of_opens_locks_or_delegations_leaves_all_or_nothing() {
    let config = small_config();
    let memory = memory(&config);
    let state = create(&memory, &config);
    let (host, now) = (SingleProcess, seconds(1000));
    let mut one = Member::join(&state, &host, now, "one");
    let mut two = Member::join(&state, &host, now, "two");
    let silent = &mut Member::join(&state, &host, seconds(500), "silent");
    state.bind_back(&host, now, one.session).expect("a session");
    silent.open(&state, seconds(500), "silent's", READ, READ | WRITE).expect("open");
    let open = one.open(&state, now, "f", READ | WRITE, 0).expect("open");
    one.open(&state, now, "f", READ, 0).expect("once more");
    let open = StateId { seqid: 0, ..open };
    let other = two.open(&state, now, "f", READ | WRITE, 0).expect("open");
    let held = one.lock(&state, now, Locker::New { open, owner: b"x" }, (0, 10), true).expect("free");
    let held = one.lock(&state, now, Locker::Known(held), (20, 10), true).expect("free");
    let held = StateId { seqid: 0, ..held };
    two.lock(&state, now, Locker::New { open: other, owner: b"y" }, (5, 1), true).expect_err("held");
    one.open(&state, now, "g", READ, 0).expect("open");
    let granted = one.act(&state, &host, now, |ticket| state.delegate(&host, now, ticket, b"g"));
    let granted = granted.expect("no error").expect("nobody writes");
    let nlm = NlmLock { host: b"h", owner: b"o", file: b"n", offset: 0, length: 10, exclusive: true };
    state.nlm_lock(&host, now, &nlm, NlmHow::default()).expect("free");
    check(&state);
    let (ask_one, ask_two) =
        (request(one.session, 0, one.sequence + 1), request(two.session, 0, two.sequence + 1));
    let open_args =
        |file, access, deny| OpenArgs { owner: b"o", file, access, deny, reclaim: false, created: false };
    let lock_args = |locker, offset, length, exclusive| LockArgs {
        locker,
        offset,
        length,
        exclusive,
        wait: true,
        reclaim: false,
    };
    let operations: [(&str, Is, Operation<'_>); 15] = [
        ("first open", Is::Once, &|state, host| {
            request_of(state, host, now, &ask_one, |ticket| {
                state.open_file(host, now, ticket, &open_args(b"new", READ, WRITE)).expect("open");
            });
        }),
        ("open and delegation", Is::Steps, &|state, host| {
            request_of(state, host, now, &ask_one, |ticket| {
                state.open_file(host, now, ticket, &open_args(b"new", READ, 0)).expect("open");
                state.delegate(host, now, ticket, b"new").expect("no error").expect("granted");
            });
        }),
        ("another owner's open", Is::Once, &|state, host| {
            request_of(state, host, now, &ask_one, |ticket| {
                state.open_file(host, now, ticket, &open_args(b"g", READ, WRITE)).expect("open");
            });
        }),
        ("downgrade", Is::Once, &|state, host| {
            request_of(state, host, now, &ask_one, |ticket| {
                state.downgrade(host, now, ticket, open, READ, 0).expect("opened so");
            });
        }),
        ("close with locks, for which others wait", Is::Once, &|state, host| {
            request_of(state, host, now, &ask_one, |ticket| {
                state.close(host, now, ticket, open).expect("open");
            });
        }),
        ("lock that splits and grows", Is::Once, &|state, host| {
            request_of(state, host, now, &ask_one, |ticket| {
                let args = lock_args(Locker::Known(held), 5, 20, false);
                state.lock(host, now, ticket, &args).expect("its own");
            });
        }),
        ("first lock of an owner", Is::Once, &|state, host| {
            request_of(state, host, now, &ask_two, |ticket| {
                let locker = Locker::New { open: other, owner: b"new" };
                state.lock(host, now, ticket, &lock_args(locker, 12, 3, true)).expect("free");
            });
        }),
        ("wait", Is::Once, &|state, host| {
            request_of(state, host, now, &ask_two, |ticket| {
                let locker = Locker::New { open: other, owner: b"new" };
                state.lock(host, now, ticket, &lock_args(locker, 1, 3, true)).expect_err("held");
            });
        }),
        ("unlock that splits and wakes", Is::Once, &|state, host| {
            request_of(state, host, now, &ask_one, |ticket| {
                state.unlock(host, now, ticket, held, (4, 3)).expect("its own");
            });
        }),
        ("recall", Is::Once, &|state, host| {
            assert_eq!(state.begin_change(host, now, None, b"g").err(), Some(Error::Delay));
        }),
        ("changes of files that are not delegated", Is::OneChange, &|state, host| {
            let change = state.begin_change(host, now, None, b"f").expect("not delegated");
            let other = state.begin_change(host, now, None, b"f").expect("not delegated");
            drop((change, other));
        }),
        ("return of a delegation", Is::Once, &|state, host| {
            request_of(state, host, now, &ask_one, |ticket| {
                state.return_delegation(host, now, ticket, granted).expect("its own");
            });
        }),
        ("open in place of a silent client", Is::Steps, &|state, host| {
            request_of(state, host, now, &ask_one, |ticket| {
                state.open_file(host, now, ticket, &open_args(b"silent's", READ, 0)).expect("open");
            });
        }),
        ("locks by NLM", Is::Steps, &|state, host| {
            state.nlm_lock(host, now, &NlmLock { offset: 20, ..nlm }, NlmHow::default()).expect("free");
            state.nlm_unlock(host, now, &NlmLock { length: u64::MAX, ..nlm }).expect("its own");
        }),
        ("the end of all", Is::Steps, &|state, host| {
            while state.tick(host, seconds(1_000_000)) == Ok(Tick::More) {}
            while state.poll_output(host, seconds(1_000_000)).expect("not damaged").is_some() {}
        }),
    ];
    for (name, is, act) in operations {
        kill_at_every_store(&memory, name, is, act);
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
