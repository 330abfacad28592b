//! Read delegations, their recall, and the back channels that carry it.

use super::*;

const NOW: Duration = Duration::from_secs(1000);
const HOST: SingleProcess = SingleProcess;

fn delegated(state: &State<&HeapWords>, name: &str, file: &str) -> (Member, StateId, Option<StateId>) {
    let mut member = Member::join(state, &HOST, NOW, name);
    state.bind_back(&HOST, NOW, member.session).expect("a session");
    let (id, granted) = open_delegated(state, &mut member, NOW, file);
    (member, id, granted)
}

fn open_delegated(
    state: &State<&HeapWords>,
    member: &mut Member,
    now: Duration,
    file: &str,
) -> (StateId, Option<StateId>) {
    member.act(state, &HOST, now, |ticket| {
        let file = file.as_bytes();
        let args = OpenArgs { owner: b"o", file, access: READ, deny: 0, reclaim: false, created: false };
        let id = state.open_file(&HOST, now, ticket, &args).expect("open");
        (id, state.delegate(&HOST, now, ticket, file).expect("no error"))
    })
}

/// A change by somebody who has no delegation, from its beginning to its end.
fn change<W: Words>(state: &State<W>, host: &impl Host, now: Duration, file: &[u8]) -> Result<(), Error> {
    state.begin_change(host, now, None, file).map(drop)
}

fn recalls(state: &State<&HeapWords>, host: &impl Host, now: Duration) -> Vec<Recall> {
    let all = std::iter::from_fn(|| state.poll_output(host, now).expect("not damaged"));
    all.filter_map(|output| if let Output::Recall(recall) = output { Some(recall) } else { None }).collect()
}

#[test]
fn a_writer_waits_until_the_delegations_of_others_are_returned() {
    with_state(|state| {
        let (mut one, open, granted) = delegated(state, "a", "f");
        let granted = granted.expect("nobody writes");
        let (mut two, _, other) = delegated(state, "b", "f");
        let other = other.expect("several may read");
        let of = state.client(&HOST, NOW, one.client).expect("a client");
        assert_eq!(state.check_state_io(&HOST, NOW, of, granted, b"f", READ), Ok(()));
        assert_eq!(state.check_state_io(&HOST, NOW, of, granted, b"f", WRITE), Err(Error::OpenMode));
        assert_eq!(two.open(state, NOW, "f", WRITE, 0), Err(Error::Delay));
        let asked = recalls(state, &HOST, NOW);
        assert_eq!(asked.len(), 1, "its own is not recalled");
        assert_eq!((asked[0].client, asked[0].session, asked[0].state), (one.client, one.session, granted));
        assert_eq!(recalls(state, &HOST, NOW), [], "asked once");
        assert_eq!(recalls(state, &HOST, NOW + RECALL_RETRY).len(), 1, "and again after a while");
        assert_eq!(two.open(state, NOW, "f", WRITE, 0), Err(Error::Delay));
        one.act(state, &HOST, NOW, |ticket| state.return_delegation(&HOST, NOW, ticket, granted))
            .expect("its own");
        two.open(state, NOW, "f", WRITE, 0).expect("returned");
        let again = open_delegated(state, &mut one, NOW, "f").1;
        assert_eq!(again, None, "somebody writes");
        one.close(state, NOW, open).expect_err("a newer version");
        assert_eq!(state.test_state(&HOST, NOW, of, other), Err(Error::BadStateId), "another client's");
    });
}

#[test]
fn changes_by_other_protocols_recall_too() {
    with_state(|state| {
        let (_, _, granted) = delegated(state, "a", "f");
        assert!(granted.is_some());
        assert_eq!(change(state, &HOST, NOW, b"g"), Ok(()));
        assert_eq!(state.check_io(&HOST, NOW, None, b"f", READ), Ok(()));
        assert_eq!(state.check_io(&HOST, NOW, None, b"f", WRITE), Ok(()), "nobody denies it");
        assert_eq!(change(state, &HOST, NOW, b"f"), Err(Error::Delay));
        assert_eq!(recalls(state, &HOST, NOW).len(), 1);
    });
}

#[test]
fn a_delegation_that_is_not_returned_is_revoked_after_a_lease() {
    with_state(|state| {
        let (mut one, _, granted) = delegated(state, "a", "f");
        let granted = granted.expect("nobody writes");
        assert_eq!(change(state, &HOST, NOW, b"f"), Err(Error::Delay));
        let late = NOW + seconds(89);
        one.open(state, late, "g", READ, 0).expect("it lives");
        state.tick(&HOST, late).expect("a tick");
        assert_eq!(change(state, &HOST, late, b"f"), Err(Error::Delay));
        let late = NOW + seconds(90);
        state.tick(&HOST, late).expect("a tick");
        assert_eq!(change(state, &HOST, late, b"f"), Ok(()));
        let flags = state.status(one.session).expect("a session").flags;
        assert_eq!(flags, Status::RECALLABLE_STATE_REVOKED);
        let of = state.client(&HOST, late, one.client).expect("a client");
        assert_eq!(state.test_state(&HOST, late, of, granted), Err(Error::DelegationRevoked));
        let read = state.check_state_io(&HOST, late, of, granted, b"f", READ);
        assert_eq!(read, Err(Error::DelegationRevoked));
        let returned =
            one.act(state, &HOST, late, |ticket| state.return_delegation(&HOST, late, ticket, granted));
        assert_eq!(returned, Err(Error::DelegationRevoked));
        let shared = open_delegated(state, &mut one, late, "f").1;
        assert_eq!(shared, None, "it still has the revoked one");
        one.act(state, &HOST, late, |ticket| state.free_state(&HOST, late, ticket, granted))
            .expect("revoked");
        assert_eq!(state.status(one.session).expect("a session").flags, 0);
        assert_eq!(recalls(state, &HOST, late), []);
    });
}

fn revoked(state: &State<&HeapWords>, now: Duration) -> (Member, StateId) {
    let (one, _, granted) = delegated(state, "a", "f");
    assert_eq!(change(state, &HOST, now, b"f"), Ok(()), "the client is silent");
    (one, granted.expect("nobody writes"))
}

/// Linux would take the attributes for those of the data that it has cached by the delegation.
#[test]
fn a_file_is_kept_from_a_client_until_it_frees_the_delegation_that_it_has_lost() {
    with_state(|state| {
        let now = NOW + seconds(91);
        let (mut one, granted) = revoked(state, now);
        let mut two = Member::join(state, &HOST, now, "b");
        let of = |member: &Member| state.client(&HOST, now, member.client).expect("a client");
        assert_eq!(state.check_revoked(&HOST, now, of(&one), b"f"), Err(Error::Delay));
        assert_eq!(state.check_revoked(&HOST, now, of(&one), b"g"), Ok(()), "another file");
        assert_eq!(state.check_revoked(&HOST, now, of(&two), b"f"), Ok(()), "another client");
        two.open(state, now, "f", WRITE, 0).expect("it is in nobody's way");
        one.act(state, &HOST, now, |ticket| state.free_state(&HOST, now, ticket, granted)).expect("revoked");
        assert_eq!(state.has_revoked(of(&one)), Ok(false));
        assert_eq!(state.check_revoked(&HOST, now, of(&one), b"f"), Ok(()));
    });
}

#[test]
fn a_client_that_never_frees_what_was_revoked_waits_for_a_lease() {
    with_state(|state| {
        let now = NOW + seconds(91);
        let (one, _) = revoked(state, now);
        let of = state.client(&HOST, now, one.client).expect("a client");
        // It comes back long after that, and comes again as clients do.
        let back = now + seconds(5000);
        for waited in (0..90).step_by(15) {
            let checked = state.check_revoked(&HOST, back + seconds(waited), of, b"f");
            assert_eq!(checked, Err(Error::Delay), "{waited}");
        }
        for waited in [90, 91, 10_000] {
            assert_eq!(state.check_revoked(&HOST, back + seconds(waited), of, b"f"), Ok(()), "{waited}");
        }
    });
}

#[test]
fn a_client_that_may_not_have_heard_of_the_revocation_is_kept_waiting_anew_but_not_for_ever() {
    with_state(|state| {
        let now = NOW + seconds(91);
        let (one, _) = revoked(state, now);
        let of = state.client(&HOST, now, one.client).expect("a client");
        // The answers do not reach it.
        let asks = (0..20).map(|time| state.check_revoked(&HOST, now + seconds(time * 100), of, b"f"));
        let asks: Vec<_> = asks.collect();
        assert!(asks[..8].iter().all(|asked| *asked == Err(Error::Delay)), "{asks:?}");
        assert!(asks[8..].iter().all(Result::is_ok), "{asks:?}");
    });
}

#[test]
fn a_file_that_was_just_recalled_is_not_delegated_at_once() {
    with_state(|state| {
        let (mut one, _, granted) = delegated(state, "a", "f");
        assert_eq!(change(state, &HOST, NOW, b"f"), Err(Error::Delay));
        let granted = granted.expect("nobody writes");
        one.act(state, &HOST, NOW, |ticket| state.return_delegation(&HOST, NOW, ticket, granted))
            .expect("its own");
        assert_eq!(open_delegated(state, &mut one, NOW + seconds(80), "f").1, None);
        assert!(open_delegated(state, &mut one, NOW + seconds(90), "f").1.is_some());
    });
}

/// Only the delegation is lost: Linux would take it for valid while it recovers from the loss of
/// all its state, and would read old data from then on.
#[test]
fn a_silent_clients_delegation_is_revoked_without_a_recall() {
    with_state(|state| {
        let (mut one, open, granted) = delegated(state, "a", "f");
        let granted = granted.expect("nobody writes");
        let late = NOW + seconds(91);
        assert_eq!(change(state, &HOST, late, b"f"), Ok(()));
        assert_eq!(recalls(state, &HOST, late), []);
        let flags = |one: &Member| state.status(one.session).expect("a session").flags;
        assert_eq!(flags(&one), Status::RECALLABLE_STATE_REVOKED);
        one.act(state, &HOST, late, |ticket| {
            assert_eq!(state.test_state(&HOST, late, ticket.client(), open), Ok(()));
            let revoked = state.test_state(&HOST, late, ticket.client(), granted);
            assert_eq!(revoked, Err(Error::DelegationRevoked));
            state.free_state(&HOST, late, ticket, granted)
        })
        .expect("it was revoked");
        assert_eq!((flags(&one), state.used(Kind::Delegation)), (0, 0));
    });
}

/// Bounds for one file with more delegations than one change may log.
fn many(clients: u32) -> Config {
    let bounds = Bounds {
        clients: clients + 1,
        sessions: clients + 1,
        slots: (clients + 1) * 16,
        owners: clients + 1,
        opens: clients + 1,
        delegations: clients,
        blobs: 3 * clients,
        ..Bounds::small()
    };
    Config { bounds, ..small_config() }
}

/// Memory in which it is counted how many words change under one hold of the lock.
struct Held<'m> {
    memory: &'m HeapWords,
    changed: Cell<u64>,
    most: Cell<u64>,
}

impl<'m> Held<'m> {
    fn new(memory: &'m HeapWords) -> Self {
        Self { memory, changed: Cell::new(0), most: Cell::new(0) }
    }

    fn count(&self) {
        self.changed.set(self.changed.get() + 1);
        self.most.set(self.most.get().max(self.changed.get()));
    }
}

impl Words for Held<'_> {
    fn word_count(&self) -> usize {
        self.memory.word_count()
    }

    fn load(&self, at: usize) -> u64 {
        self.memory.load(at)
    }

    fn store(&self, at: usize, value: u64) {
        self.count();
        self.memory.store(at, value);
        if at == crate::layout::head::LOCK {
            self.changed.set(0);
        }
    }

    fn compare_exchange(&self, at: usize, from: u64, to: u64) -> Result<(), u64> {
        self.count();
        self.memory.compare_exchange(at, from, to)
    }
}

/// Words that may change under one hold of the lock, with the undo log: some tens of microseconds.
const HELD_MAX: u64 = 20_000;

#[test]
fn any_number_of_silent_clients_delegations_is_revoked_in_steps() {
    let clients = 1500;
    let config = many(clients);
    let memory = memory(&config);
    let state = create(&memory, &config);
    for number in 0..clients {
        delegated(&state, &number.to_string(), "f").2.expect("nobody writes");
    }
    assert_eq!(state.used(Kind::Delegation), u64::from(clients));
    let late = NOW + seconds(200);
    let mut writer = Member::join(&state, &HOST, late, "writer");
    let held = Held::new(&memory);
    writer.open(&State::open(&held).expect("an arena"), late, "f", WRITE, 0).expect("nobody lives");
    assert!(held.most.get() < HELD_MAX, "{} words under one hold of the lock", held.most.get());
    consistency::check(&state);
}

#[test]
fn any_number_of_delegations_is_recalled_told_and_revoked_in_steps() {
    let clients = 7000;
    let config = many(clients);
    let memory = memory(&config);
    let state = create(&memory, &config);
    for number in 0..clients {
        delegated(&state, &number.to_string(), "f").2.expect("nobody writes");
    }
    let held = Held::new(&memory);
    let watched = State::open(&held).expect("an arena");
    let recalls = |now| {
        let all = std::iter::from_fn(|| watched.poll_output(&HOST, now).expect("not damaged"));
        all.filter(|output| matches!(output, Output::Recall(_))).count()
    };
    assert_eq!(change(&watched, &HOST, NOW, b"f"), Err(Error::Delay));
    assert_eq!(recalls(NOW), clients as usize);
    assert_eq!(recalls(NOW + RECALL_RETRY), clients as usize, "all again");
    let late = NOW + seconds(90);
    let mut rounds = 1;
    while watched.tick(&HOST, late).expect("a tick") == Tick::More {
        rounds += 1;
    }
    assert!(rounds > 10, "some at a time");
    assert_eq!(change(&watched, &HOST, late, b"f"), Ok(()), "all are revoked");
    assert!(held.most.get() < HELD_MAX, "{} words under one hold of the lock", held.most.get());
    consistency::check(&state);
}

/// RFC 8881 s10.2: to delegate is to trust that the client gives back.
#[test]
fn who_does_not_return_what_is_recalled_gets_nothing_more() {
    with_state(|state| {
        let (mut one, _, granted) = delegated(state, "a", "f");
        let granted = granted.expect("nobody writes");
        let mut other = |now| {
            let given = open_delegated(state, &mut one, now, "g").1;
            if let Some(given) = given {
                one.act(state, &HOST, now, |ticket| state.return_delegation(&HOST, now, ticket, given))
                    .expect("its own");
            }
            given.is_some()
        };
        assert_eq!(change(state, &HOST, NOW, b"f"), Err(Error::Delay));
        assert!(other(NOW + seconds(9)), "it may be about to return it");
        assert!(!other(NOW + seconds(10)));
        let late = NOW + seconds(90);
        assert!(!other(late - seconds(1)));
        state.tick(&HOST, late).expect("a tick");
        assert!(!other(late), "it has lost one");
        one.act(state, &HOST, late, |ticket| state.free_state(&HOST, late, ticket, granted))
            .expect("revoked");
        let mut given = Vec::new();
        for minutes in 0..20 {
            let now = late + seconds(60 * minutes);
            if open_delegated(state, &mut one, now, "h").1.is_some() {
                given.push(minutes);
            }
        }
        assert_eq!(given, [15], "after ten leases it is trusted again");
    });
}

#[test]
fn who_does_not_answer_call_backs_gets_nothing() {
    with_state(|state| {
        let (mut one, _, granted) = delegated(state, "a", "f");
        assert!(granted.is_some());
        state.set_back_fault(&HOST, NOW, one.session, true).expect("a session");
        assert_eq!(open_delegated(state, &mut one, NOW, "g").1, None);
        // EXCHANGE_ID took the number 1 of the client's sessions.
        let again = session_args(one.client, 2);
        let other = state.create_session(&HOST, NOW, &again).expect("another").session;
        assert_eq!(open_delegated(state, &mut one, NOW, "g").1, None);
        state.bind_back(&HOST, NOW, other).expect("a session");
        assert!(open_delegated(state, &mut one, NOW, "g").1.is_some(), "it can be called back there");
        state.set_back_fault(&HOST, NOW, other, true).expect("a session");
        assert_eq!(open_delegated(state, &mut one, NOW, "h").1, None);
    });
}

#[test]
fn without_a_slot_to_call_back_on_nothing_is_delegated() {
    with_state(|state| {
        let known = state.exchange_id(&HOST, NOW, exchange("a", 1)).expect("a client");
        let mut args = session_args(known.client, known.sequence);
        args.asked.back.requests = 0;
        let made = state.create_session(&HOST, NOW, &args).expect("a session");
        assert_eq!(made.granted.back.requests, 0);
        let mut one = Member { client: known.client, session: made.session, sequence: 0 };
        one.act(state, &HOST, NOW, |ticket| state.reclaim_complete(&HOST, NOW, ticket)).expect("done");
        state.persisted(&HOST, NOW, known.client).expect("written");
        state.bind_back(&HOST, NOW, made.session).expect("a session");
        assert_eq!(open_delegated(state, &mut one, NOW, "f").1, None);
    });
}

#[test]
fn a_recall_goes_to_a_session_whose_client_answers() {
    let config = small_config();
    let memory = memory(&config);
    let state = create(&memory, &config);
    let machine = Machine::default();
    let (first, second) = (machine.host(1), machine.host(2));
    let (one, _, granted) = delegated(&state, "a", "f");
    assert!(granted.is_some());
    state.unbind_back(&HOST, NOW, one.session).expect("a session");
    let args = session_args(one.client, 2);
    let other = state.create_session(&HOST, NOW, &args).expect("another").session;
    for id in [one.session, other] {
        state.bind_back(&first, NOW, id).expect("a session");
    }
    assert_eq!(change(&state, &first, NOW, b"f"), Err(Error::Delay));
    let asked = |host: &TestHost<'_>, round: u32| {
        recalls(&state, host, NOW + RECALL_RETRY * round)
            .iter()
            .map(|recall| recall.session)
            .collect::<Vec<_>>()
    };
    assert_eq!(asked(&first, 0), [one.session]);
    // All slots of that one are in use, and then it is known that nobody answers there.
    let slots = std::iter::from_fn(|| state.begin_call_back(&first, NOW, one.session).expect("a session"));
    assert_eq!(slots.count(), 8);
    assert_eq!(asked(&first, 1), [other]);
    state.set_back_fault(&first, NOW, one.session, true).expect("a session");
    assert_eq!(asked(&first, 2), [other]);
    // Another process has the connection that works.
    state.unbind_back(&first, NOW, other).expect("a session");
    state.bind_back(&second, NOW, other).expect("a session");
    assert_eq!((asked(&first, 3), asked(&second, 3)), (vec![], vec![other]));
    state.unbind_back(&second, NOW, other).expect("a session");
    assert_eq!(asked(&first, 4), [one.session], "there is no other");
    consistency::check(&state);
}

#[test]
fn without_a_back_channel_nothing_is_delegated() {
    with_state(|state| {
        let (mut one, _, granted) = delegated(state, "a", "f");
        assert!(granted.is_some());
        state.bind_back(&HOST, NOW, one.session).expect("a second connection");
        state.unbind_back(&HOST, NOW, one.session).expect("one has ended");
        assert_eq!(state.status(one.session).expect("a session").flags, 0);
        state.unbind_back(&HOST, NOW, one.session).expect("both have ended");
        let flags = state.status(one.session).expect("a session").flags;
        assert_eq!(flags, Status::CB_PATH_DOWN_SESSION | Status::CB_PATH_DOWN);
        assert_eq!(open_delegated(state, &mut one, NOW, "g").1, None);
    });
}

#[test]
fn a_recall_goes_out_by_a_process_that_has_the_back_channel() {
    let config = small_config();
    let memory = memory(&config);
    let state = create(&memory, &config);
    let machine = Machine::default();
    let (first, second) = (machine.host(1), machine.host(2));
    let (mut one, _, granted) = delegated(&state, "a", "f");
    assert!(granted.is_some());
    state.unbind_back(&HOST, NOW, one.session).expect("a session");
    let one_process = state.bind_back(&second, NOW, one.session);
    one_process.expect("a session");
    assert_eq!(change(&state, &first, NOW, b"f"), Err(Error::Delay));
    assert_eq!(recalls(&state, &first, NOW), [], "it has no connection");
    assert_eq!(recalls(&state, &second, NOW).len(), 1);
    machine.kill(2);
    assert_eq!(state.status(one.session).expect("a session").flags, 0, "nobody knows yet");
    state.forget_ended_processes(&first, NOW).expect("not damaged");
    let flags = state.status(one.session).expect("a session").flags;
    assert_eq!(flags, Status::CB_PATH_DOWN_SESSION | Status::CB_PATH_DOWN);
    assert_eq!(open_delegated(&state, &mut one, NOW, "g").1, None);
    state.bind_back(&first, NOW, one.session).expect("a session");
    assert_eq!(recalls(&state, &first, NOW + RECALL_RETRY).len(), 1, "nobody knows whether it was sent");
    consistency::check(&state);
}

/// RFC 8881 s18.46.1
#[test]
fn a_session_says_what_is_wrong_with_its_back_channel() {
    with_state(|state| {
        let one = Member::join(state, &HOST, NOW, "a");
        let flags = |id| state.status(id).expect("a session").flags;
        let (fault, down) = (Status::BACKCHANNEL_FAULT, Status::CB_PATH_DOWN_SESSION);
        // EXCHANGE_ID took the number 1 of the client's sessions.
        let again = session_args(one.client, 2);
        let other = state.create_session(&HOST, NOW, &again).expect("another").session;
        for id in [one.session, other] {
            state.bind_back(&HOST, NOW, id).expect("a session");
        }
        state.set_back_fault(&HOST, NOW, one.session, true).expect("a session");
        assert_eq!((flags(one.session), flags(other)), (fault, 0));
        state.set_back_fault(&HOST, NOW, one.session, false).expect("a session");
        assert_eq!(flags(one.session), 0);
        state.set_back_fault(&HOST, NOW, one.session, true).expect("a session");
        state.unbind_back(&HOST, NOW, one.session).expect("a session");
        assert_eq!(flags(one.session), fault | down, "the client has another session");
        state.unbind_back(&HOST, NOW, other).expect("a session");
        assert_eq!(flags(one.session), fault | down | Status::CB_PATH_DOWN);
        state.bind_back(&HOST, NOW, one.session).expect("a session");
        assert_eq!(flags(one.session), 0, "a new connection is given a chance");
        assert_eq!(state.set_back_fault(&HOST, NOW, SessionId([0; 16]), true), Err(Error::BadSession));
    });
}

/// Two processes poll, and each is handed out what it can do.
#[test]
fn work_and_call_backs_can_be_asked_for_apart() {
    let config = small_config();
    let memory = memory(&config);
    let state = create(&memory, &config);
    let machine = Machine::default();
    let (first, second) = (machine.host(1), machine.host(2));
    let (one, _, granted) = delegated(&state, "a", "f");
    assert!(granted.is_some());
    state.unbind_back(&HOST, NOW, one.session).expect("it was the first process");
    state.bind_back(&second, NOW, one.session).expect("a session");
    assert!(!state.has_call_backs());
    assert_eq!(change(&state, &first, NOW, b"f"), Err(Error::Delay));
    assert!(state.has_call_backs());
    assert_eq!(state.poll_work(&second, NOW), Ok(None));
    assert_eq!(state.poll_call_back(&first, NOW), Ok(None));
    let Ok(Some(Output::Recall(recall))) = state.poll_call_back(&second, NOW) else { panic!("no recall") };
    assert_eq!((recall.session, recall.file), (one.session, b"f".to_vec()));
    assert!(!state.has_call_backs(), "it was handed out");
}

/// RFC 8881 s2.10.6, s20.9
#[test]
fn a_call_back_slot_advances_only_when_the_client_has_executed() {
    let config = small_config();
    let memory = memory(&config);
    let state = create(&memory, &config);
    let machine = Machine::default();
    let (first, second) = (machine.host(1), machine.host(2));
    let known = state.exchange_id(&HOST, NOW, exchange("a", 1)).expect("a client");
    let mut args = session_args(known.client, known.sequence);
    args.asked.back.requests = 2;
    let session = state.create_session(&HOST, NOW, &args).expect("a session").session;
    let target = state.call_back_target(&first, NOW, session).expect("a session");
    assert_eq!(target, CallBackTarget { program: 0x4000_0000, security: b"sys".to_vec() });
    let begin = |host: &TestHost<'_>| state.begin_call_back(host, NOW, session).expect("a session");
    let one = begin(&first).expect("free");
    let two = begin(&second).expect("free");
    assert_eq!((one.slot, one.sequence, two.slot, two.sequence), (0, 1, 1, 1));
    assert_eq!(begin(&first), None);
    state.end_call_back(&first, NOW, session, one, false).expect("not executed");
    assert_eq!(begin(&first), Some(one), "the same sequence id again");
    state.end_call_back(&first, NOW, session, one, true).expect("executed");
    assert_eq!(begin(&first).map(|slot| slot.sequence), Some(2));
    machine.kill(2);
    let doubtful = begin(&first).expect("its user has ended");
    assert_eq!(doubtful, CallBackSlot { slot: 1, sequence: 1, in_doubt: true });
    consistency::check(&state);
}
