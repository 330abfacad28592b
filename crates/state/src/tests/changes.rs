//! Changes that are under way, and delegations that others ask for meanwhile.

use super::*;
use crate::layout::head;

const NOW: Duration = Duration::from_secs(1000);
const HOST: SingleProcess = SingleProcess;

/// A client that can be called back.
fn reachable(state: &State<&HeapWords>, name: &str) -> Member {
    let member = Member::join(state, &HOST, NOW, name);
    state.bind_back(&HOST, NOW, member.session).expect("a session");
    member
}

/// What a client gets of a file that it opens.
fn ask(
    state: &State<&HeapWords>,
    member: &mut Member,
    host: &impl Host,
    now: Duration,
    file: &str,
) -> (StateId, Option<StateId>) {
    member.act(state, host, now, |ticket| {
        let file = file.as_bytes();
        let args = OpenArgs { owner: b"o", file, access: READ, deny: 0, reclaim: false, created: false };
        let id = state.open_file(host, now, ticket, &args).expect("open");
        (id, state.delegate(host, now, ticket, file).expect("no error"))
    })
}

fn give_back(state: &State<&HeapWords>, member: &mut Member, now: Duration, id: StateId) {
    member.act(state, &HOST, now, |ticket| state.return_delegation(&HOST, now, ticket, id)).expect("its own");
}

fn announced(memory: &HeapWords) -> usize {
    let layout = State::open(memory).expect("an arena").arena.layout;
    layout.all_changes().filter(|at| memory.load(*at) != 0).count()
}

#[test]
fn nothing_is_delegated_of_a_file_while_it_is_changed() {
    let config = small_config();
    let memory = memory(&config);
    let state = create(&memory, &config);
    let mut one = reachable(&state, "a");
    let first = state.begin_change(&HOST, NOW, None, b"f").expect("not delegated");
    let second = state.begin_change(&HOST, NOW, None, b"f").expect("not delegated");
    assert_eq!(announced(&memory), 1, "a process counts its changes");
    assert_eq!(ask(&state, &mut one, &HOST, NOW, "f").1, None);
    assert!(ask(&state, &mut one, &HOST, NOW, "g").1.is_some(), "another file");
    drop(first);
    assert_eq!(ask(&state, &mut one, &HOST, NOW, "f").1, None, "one is left");
    drop(second);
    assert_eq!(announced(&memory), 0);
    assert!(ask(&state, &mut one, &HOST, NOW, "f").1.is_some());
    consistency::check(&state);
}

#[test]
fn a_change_of_a_process_that_has_ended_is_in_nobodys_way_and_its_place_is_used_again() {
    let config = small_config();
    let memory = memory(&config);
    let state = create(&memory, &config);
    let machine = Machine::default();
    let mut one = reachable(&state, "a");
    let neighbour = machine.host(1000);
    for number in 1..=500 {
        let change = state.begin_change(&machine.host(number), NOW, None, b"f").expect("a place");
        assert_eq!(ask(&state, &mut one, &neighbour, NOW, "f").1, None);
        std::mem::forget(change);
        machine.kill(number);
    }
    assert_eq!(announced(&memory), 8, "as many as a set has");
    assert!(ask(&state, &mut one, &neighbour, NOW, "f").1.is_some());
}

#[test]
fn changes_that_find_no_place_of_their_own_keep_all_files_from_being_delegated() {
    let config = small_config();
    let memory = memory(&config);
    let state = create(&memory, &config);
    let machine = Machine::default();
    let mut one = reachable(&state, "a");
    let begin = |number| state.begin_change(&machine.host(number), NOW, None, b"f");
    let mut changes: Vec<_> = (1..=8).map(|number| begin(number).expect("a place")).collect();
    assert!(ask(&state, &mut one, &HOST, NOW, "g").1.is_some());
    changes.extend((9..=40).map(|number| begin(number).expect("a place among the others")));
    assert_eq!(ask(&state, &mut one, &HOST, NOW, "h").1, None);
    assert_eq!(begin(41).err(), Some(Error::Busy));
    changes.truncate(8);
    assert!(ask(&state, &mut one, &HOST, NOW, "h").1.is_some());
    drop(changes);
    assert_eq!(announced(&memory), 0);
    consistency::check(&state);
}

#[test]
fn any_number_of_changes_of_one_process_is_counted() {
    let config = small_config();
    let memory = memory(&config);
    let state = create(&memory, &config);
    let begin = || state.begin_change(&HOST, NOW, None, b"f").expect("a place");
    let mut changes: Vec<_> = std::iter::repeat_with(begin).take(3000).collect();
    assert_eq!(announced(&memory), 3);
    changes.drain(..2999);
    assert_eq!(announced(&memory), 1);
    drop(changes);
    assert_eq!(announced(&memory), 0);
}

/// Without that, a client that opens and closes a file again and again would keep those waiting who
/// change it.
#[test]
fn a_file_that_was_recalled_is_not_delegated_at_once_though_nobody_has_it_open_meanwhile() {
    with_state(|state| {
        let mut one = reachable(state, "a");
        let (open, granted) = ask(state, &mut one, &HOST, NOW, "f");
        assert_eq!(state.begin_change(&HOST, NOW, None, b"f").err(), Some(Error::Delay));
        give_back(state, &mut one, NOW, granted.expect("nobody writes"));
        one.close(state, NOW, open).expect("open");
        assert_eq!(state.used(Kind::File), 0, "its record is gone");
        let mut again = |after| {
            let (open, granted) = ask(state, &mut one, &HOST, NOW + seconds(after), "f");
            one.close(state, NOW + seconds(after), open).expect("open");
            granted.is_some()
        };
        assert!(!again(0));
        assert!(!again(60));
        assert!(again(91));
    });
}

#[test]
fn only_who_changes_a_file_that_is_delegated_takes_the_lock() {
    let config = small_config();
    let memory = memory(&config);
    let state = create(&memory, &config);
    let machine = Machine::default();
    let mut one = reachable(&state, "a");
    ask(&state, &mut one, &HOST, NOW, "f").1.expect("nobody writes");
    let mut two = Member::join(&state, &HOST, NOW, "b");
    two.open(&state, NOW, "denied", READ, WRITE).expect("free");
    let host = machine.host(2);
    memory.store(head::LOCK, 1);
    let io = |file: &[u8], access| state.check_io(&host, NOW, None, file, access);
    let change = |file: &[u8]| state.begin_change(&host, NOW, None, file).map(drop);
    assert_eq!((io(b"f", READ), io(b"f", WRITE)), (Ok(()), Ok(())));
    assert_eq!((io(b"g", READ), io(b"denied", READ)), (Ok(()), Err(Error::Busy)));
    assert_eq!((change(b"g"), change(b"denied"), change(b"f")), (Ok(()), Ok(()), Err(Error::Busy)));
    memory.store(head::LOCK, 0);
    assert_eq!((io(b"denied", WRITE), change(b"f")), (Err(Error::ShareDenied), Err(Error::Delay)));
}

/// Who reads without the lock that nothing is delegated must not learn so of a change that is taken
/// back.
#[test]
fn that_nothing_is_delegated_any_more_is_seen_only_once_it_is_certain() {
    let config = small_config();
    let origin = memory(&config);
    let state = create(&origin, &config);
    let mut one = reachable(&state, "a");
    let id = ask(&state, &mut one, &HOST, NOW, "f").1.expect("nobody writes");
    for step in 0..2000 {
        let memory = kills::copy(&origin);
        let (process, machine) = (Process::new(&memory), Machine::default());
        let (dying, mut member) = (State::open(&process).expect("an arena"), one);
        let returned = process.killed_before(step, || {
            let host = machine.host(2);
            member.act(&dying, &host, NOW, |ticket| dying.return_delegation(&host, NOW, ticket, id))
        });
        // The other process still seems to live, and has the lock.
        let (state, other) = (State::open(&memory).expect("an arena"), machine.host(3));
        let seen = state.begin_change(&other, NOW, None, b"f").map(drop);
        if returned.is_some() {
            assert!(step > 20, "only {step} steps");
            assert_eq!(seen, Ok(()));
            return;
        }
        machine.kill(2);
        let _ = state.destroy_client_id(&other, NOW, ClientId(0));
        let is_left = state.used(Kind::Delegation) == 1;
        assert!(!is_left || seen != Ok(()), "at {step}: a change has begun, and the file is delegated");
    }
    panic!("no end");
}

/// RFC 8881 s10.4: a client with a delegation locks for reading by itself.
#[test]
fn an_exclusive_lock_by_nlm_recalls_and_keeps_others_from_a_delegation() {
    with_state(|state| {
        let mut one = reachable(state, "a");
        let granted = ask(state, &mut one, &HOST, NOW, "f").1.expect("nobody writes");
        let lock = NlmLock { host: b"h", owner: b"o", file: b"f", offset: 0, length: 1, exclusive: true };
        let take = |lock| state.nlm_lock(&HOST, NOW, &lock, NlmHow { wait: Some(1), ..NlmHow::default() });
        let reading = NlmLock { owner: b"reader", exclusive: false, offset: 9, ..lock };
        assert_eq!(take(reading), Ok(NlmLocked::Granted));
        assert_eq!(take(lock), Err(Error::Delay));
        let Ok(Some(Output::Recall(recall))) = state.poll_output(&HOST, NOW) else { panic!("no recall") };
        assert_eq!(recall.state, granted);
        give_back(state, &mut one, NOW, granted);
        assert_eq!(take(lock), Ok(NlmLocked::Granted));
        let late = NOW + seconds(91);
        assert_eq!(ask(state, &mut one, &HOST, late, "f").1, None, "somebody writes");
        state.nlm_unlock(&HOST, late, &lock).expect("its own");
        assert!(ask(state, &mut one, &HOST, late, "f").1.is_some(), "locks for reading are in nobody's way");
    });
}

#[test]
fn nothing_is_delegated_while_a_lock_is_waited_for() {
    with_state(|state| {
        let mut one = reachable(state, "a");
        let lock = NlmLock { host: b"h", owner: b"o", file: b"f", offset: 0, length: 1, exclusive: false };
        state.nlm_lock(&HOST, NOW, &lock, NlmHow::default()).expect("free");
        let waiting = NlmLock { host: b"i", exclusive: true, ..lock };
        let how = NlmHow { wait: Some(1), ..NlmHow::default() };
        assert_eq!(state.nlm_lock(&HOST, NOW, &waiting, how), Ok(NlmLocked::Waits));
        assert_eq!(ask(state, &mut one, &HOST, NOW, "f").1, None);
        assert_eq!(state.nlm_cancel(&HOST, NOW, &waiting), Ok(true));
        assert!(ask(state, &mut one, &HOST, NOW, "f").1.is_some());
    });
}

/// An OPEN that has created its file is not asked for again: GUARDED4 would find the file.
#[test]
fn who_has_created_a_file_opens_it_and_changes_it_when_the_recall_has_ended() {
    with_state(|state| {
        let (mut one, mut two) = (reachable(state, "a"), reachable(state, "b"));
        let granted = ask(state, &mut one, &HOST, NOW, "f").1.expect("nobody writes");
        let args =
            OpenArgs { owner: b"o", file: b"f", access: WRITE, deny: 0, reclaim: false, created: false };
        let mut open = |created| {
            let args = OpenArgs { created, ..args };
            two.act(state, &HOST, NOW, |ticket| state.open_file(&HOST, NOW, ticket, &args))
        };
        assert_eq!(open(false), Err(Error::Delay));
        let id = open(true).expect("its own file");
        let Ok(Some(Output::Recall(recall))) = state.poll_output(&HOST, NOW) else { panic!("no recall") };
        assert_eq!(recall.state, granted);
        let of = state.client(&HOST, NOW, two.client).expect("a client");
        assert_eq!(state.check_state_io(&HOST, NOW, of, id, b"f", WRITE), Ok(()));
        assert_eq!(state.begin_change(&HOST, NOW, Some(of), b"f").err(), Some(Error::Delay));
        let locker = Locker::New { open: id, owner: b"x" };
        assert_eq!(two.lock(state, NOW, locker, (0, 1), true), Err(Error::Delay));
        give_back(state, &mut one, NOW, granted);
        assert_eq!(state.begin_change(&HOST, NOW, Some(of), b"f").map(drop), Ok(()));
        two.lock(state, NOW, locker, (0, 1), true).expect("free");
    });
}

#[test]
fn what_cannot_be_asked_for_again_is_changed_while_it_is_recalled() {
    with_state(|state| {
        let mut one = reachable(state, "a");
        let granted = ask(state, &mut one, &HOST, NOW, "f").1.expect("nobody writes");
        let change = state.go_on_with_change(&HOST, NOW, None, b"f").expect("at once");
        let Ok(Some(Output::Recall(recall))) = state.poll_output(&HOST, NOW) else { panic!("no recall") };
        assert_eq!(recall.state, granted);
        give_back(state, &mut one, NOW, granted);
        let late = NOW + seconds(91);
        assert_eq!(ask(state, &mut one, &HOST, late, "f").1, None, "it is under way");
        drop(change);
        assert!(ask(state, &mut one, &HOST, late, "f").1.is_some());
    });
}
