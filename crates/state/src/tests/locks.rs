//! Byte-range locks, those who wait for them, and NLM.

use super::*;

const NOW: Duration = Duration::from_secs(1000);
const BOTH: u8 = READ | WRITE;
const HOST: SingleProcess = SingleProcess;
const ALL: (u64, u64) = (0, u64::MAX);

fn denied(result: Result<StateId, Error>) -> (Vec<u8>, u64, u64, bool) {
    match result {
        Err(Error::Denied(holder)) => (holder.owner, holder.offset, holder.length, holder.exclusive),
        other => panic!("{other:?} instead of a denial"),
    }
}

/// A client with the file open, and the lock owner's first locker.
fn opened(state: &State<&HeapWords>, name: &str) -> (Member, StateId) {
    let mut member = Member::join(state, &HOST, NOW, name);
    state.bind_back(&HOST, NOW, member.session).expect("a session");
    let id = member.open(state, NOW, "f", BOTH, 0).expect("open");
    (member, id)
}

fn new(open: StateId, owner: &str) -> Locker<'_> {
    Locker::New { open, owner: owner.as_bytes() }
}

#[test]
fn locks_of_others_are_denied_with_their_holder() {
    with_state(|state| {
        let (mut one, open) = opened(state, "a");
        let (mut two, other) = opened(state, "b");
        let id = one.lock(state, NOW, new(open, "x"), (10, 10), true).expect("free");
        assert_eq!(id.seqid, 1);
        let held = denied(two.lock(state, NOW, new(other, "x"), (19, u64::MAX), false));
        assert_eq!(held, (b"x".to_vec(), 10, 10, true), "the same owner string of another client");
        two.lock(state, NOW, new(other, "x"), (20, u64::MAX), true).expect("behind it");
        two.lock(state, NOW, new(other, "x"), (0, 10), true).expect("before it");
        let held = denied(one.lock(state, NOW, Locker::Known(id), ALL, true));
        assert_eq!((held.1, held.2), (20, u64::MAX));
        let query = |owner, offset, length| LockQuery { owner, file: b"f", offset, length, exclusive: true };
        let of = state.client(&HOST, NOW, one.client).expect("a client");
        assert_eq!(state.test_lock(&HOST, NOW, of, &query(b"x", 10, 10)), Ok(()), "its own");
        let holder_of = |result| match result {
            Err(Error::Denied(holder)) => holder.client,
            other => panic!("{other:?} instead of a denial"),
        };
        let holder = holder_of(state.test_lock(&HOST, NOW, of, &query(b"y", 10, 1)));
        assert_eq!(holder_of(state.test_lock(&HOST, NOW, of, &query(b"z", 11, 1))), holder);
        assert!(holder != one.client && holder != two.client, "others do not learn its client id");
        let owners = state.used(Kind::Owner);
        assert_eq!(owners, 4, "a test makes no owner");
    });
}

/// RFC 8881 s18.10.3, s18.12.3
#[test]
fn ranges_split_and_grow_together() {
    with_state(|state| {
        let (mut one, open) = opened(state, "a");
        let id = one.lock(state, NOW, new(open, "x"), (0, 10), true).expect("free");
        let id = one.lock(state, NOW, Locker::Known(id), (10, 10), true).expect("its neighbour");
        assert_eq!(state.used(Kind::Range), 1, "one range of 20");
        let id = one.lock(state, NOW, Locker::Known(id), (5, 5), false).expect("a downgrade within");
        assert_eq!(state.used(Kind::Range), 3);
        let (mut two, other) = opened(state, "b");
        let shared = two.lock(state, NOW, new(other, "y"), (5, 5), false).expect("shared by both");
        denied(two.lock(state, NOW, Locker::Known(shared), (4, 1), false));
        let id = one.unlock(state, NOW, id, (2, 1)).expect("a hole");
        assert_eq!(id.seqid, 4);
        assert_eq!(state.used(Kind::Range), 5);
        denied(one.lock(state, NOW, Locker::Known(id), (0, 20), true));
        let unlocked = two.unlock(state, NOW, shared, ALL).expect("all of it");
        two.unlock(state, NOW, unlocked, (100, 5)).expect("nothing is locked there, which is no error");
        let id = one.lock(state, NOW, Locker::Known(id), (0, 20), true).expect("upgraded");
        assert_eq!(state.used(Kind::Range), 1);
        for bad in [(5, 0), (5, u64::MAX - 1)] {
            assert!(matches!(one.unlock(state, NOW, id, bad), Err(Error::Invalid(_))), "{bad:?}");
        }
        one.unlock(state, NOW, id, ALL).expect("all of it");
        assert_eq!(state.used(Kind::Range), 0);
    });
}

#[test]
fn a_lock_needs_an_open_that_allows_it_and_ends_with_it() {
    with_state(|state| {
        let mut one = Member::join(state, &HOST, NOW, "a");
        let open = one.open(state, NOW, "f", READ, 0).expect("open");
        assert_eq!(one.lock(state, NOW, new(open, "x"), ALL, true), Err(Error::OpenMode));
        let id = one.lock(state, NOW, new(open, "x"), ALL, false).expect("free");
        let free = |one: &mut Member, id| {
            one.act(state, &HOST, NOW, |ticket| state.free_state(&HOST, NOW, ticket, id))
        };
        assert_eq!(free(&mut one, id), Err(Error::LocksHeld));
        assert_eq!(free(&mut one, open), Err(Error::LocksHeld), "an open is closed, not freed");
        let of = state.client(&HOST, NOW, one.client).expect("a client");
        assert_eq!(state.check_state_io(&HOST, NOW, of, id, b"f", READ), Ok(()));
        assert_eq!(state.check_state_io(&HOST, NOW, of, id, b"f", WRITE), Err(Error::OpenMode));
        let id = one.unlock(state, NOW, id, ALL).expect("all of it");
        free(&mut one, id).expect("no locks");
        assert_eq!(free(&mut one, id), Err(Error::BadStateId));
        let id = one.lock(state, NOW, new(open, "x"), ALL, false).expect("free");
        one.close(state, NOW, open).expect("open");
        assert_eq!(one.unlock(state, NOW, id, ALL), Err(Error::BadStateId), "closed with its open");
        assert_eq!((state.used(Kind::Range), state.used(Kind::Lock)), (0, 0));
    });
}

#[test]
fn the_ranges_of_an_owner_are_bounded() {
    let bounds = Bounds { ranges: 3000, ranges_per_client: 2000, ..Bounds::small() };
    let config = Config { bounds, ..small_config() };
    let memory = memory(&config);
    let state = create(&memory, &config);
    let (mut one, open) = opened(&state, "a");
    let mut locker = new(open, "x");
    for at in 0..RANGES_PER_LOCK_MAX {
        let id = one.lock(&state, NOW, locker, (at * 2, 1), true).expect("within the bound");
        locker = Locker::Known(id);
    }
    let more = one.lock(&state, NOW, locker, (1 << 40, 1), true);
    assert_eq!(more, Err(Error::ClientLimit(Kind::Range)));
    let Locker::Known(id) = locker else { panic!() };
    let id = one.lock(&state, NOW, Locker::Known(id), ALL, true).expect("all grow together");
    assert_eq!(state.used(Kind::Range), 1);
    one.unlock(&state, NOW, id, (7, 1)).expect("a hole");
    consistency::check(&state);
    one.close(&state, NOW, open).expect("open");
    consistency::check(&state);
}

#[test]
fn a_silent_clients_locks_give_way_to_others() {
    with_state(|state| {
        let (mut silent, open) = opened(state, "a");
        silent.lock(state, NOW, new(open, "x"), (0, 100), true).expect("free");
        let late = NOW + seconds(200);
        let mut two = Member::join(state, &HOST, late, "b");
        let other = two.open(state, late, "f", BOTH, 0).expect("no conflict with the open");
        let of = state.client(&HOST, late, two.client).expect("a client");
        two.lock(state, late, new(other, "y"), (200, 1), true).expect("elsewhere");
        state.client(&HOST, late, silent.client).expect("still there");
        let query = LockQuery { owner: b"z", file: b"f", offset: 5, length: 1, exclusive: false };
        assert_eq!(state.test_lock(&HOST, late, of, &query), Ok(()));
        assert!(state.client(&HOST, late, silent.client).is_err(), "gone");
        two.lock(state, late, new(other, "y"), ALL, true).expect("nobody else");
        state.tick(&HOST, late).expect("freed");
        assert_eq!(state.used(Kind::Lock), 1);
    });
}

fn next_available(state: &State<&HeapWords>, now: Duration) -> Option<Available> {
    loop {
        match state.poll_output(&HOST, now).expect("not damaged")? {
            Output::LockAvailable(available) => return Some(available),
            Output::Persist(_) | Output::Forget(_) | Output::GraceEnded => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn who_waits_is_told_by_a_process_that_has_its_back_channel() {
    with_state(|state| {
        let (mut one, open_one) = opened(state, "a");
        let (mut two, open_two) = opened(state, "b");
        state.unbind_back(&HOST, NOW, two.session).expect("a session");
        let held = one.lock(state, NOW, new(open_one, "x"), ALL, true).expect("free");
        denied(two.lock(state, NOW, new(open_two, "y"), ALL, true));
        one.unlock(state, NOW, held, ALL).expect("its own");
        assert!(state.has_call_backs());
        assert_eq!(next_available(state, NOW), None, "another process may have it");
        state.bind_back(&HOST, NOW, two.session).expect("a session");
        assert_eq!(next_available(state, NOW).expect("now").session, Some(two.session));
        assert_eq!(next_available(state, NOW), None, "told once");
    });
}

#[test]
fn those_who_wait_get_their_locks_in_order() {
    with_state(|state| {
        let (mut one, open_one) = opened(state, "a");
        let (mut two, open_two) = opened(state, "b");
        let (mut three, open_three) = opened(state, "c");
        let held = one.lock(state, NOW, new(open_one, "x"), (0, 10), true).expect("free");
        denied(two.lock(state, NOW, new(open_two, "y"), (0, 10), true));
        denied(two.lock(state, NOW, new(open_two, "y"), (0, 10), true));
        denied(three.lock(state, NOW, new(open_three, "z"), (5, 10), true));
        assert_eq!(state.used(Kind::Waiter), 2, "asking again is not another request");
        assert_eq!(next_available(state, NOW), None);
        one.unlock(state, NOW, held, ALL).expect("its own");
        let available = next_available(state, NOW).expect("the first who waits");
        assert_eq!((available.client, available.owner.as_slice()), (two.client, b"y".as_slice()));
        assert_eq!((available.offset, available.length, available.exclusive), (0, 10, true));
        assert_eq!(available.session, Some(two.session));
        assert_eq!(next_available(state, NOW), None, "the other conflicts with the first");
        let reserved = denied(one.lock(state, NOW, new(open_one, "x"), (9, 1), false));
        assert_eq!(reserved.0, b"y", "reserved, though nobody holds it");
        let got = two.lock(state, NOW, new(open_two, "y"), (0, 10), true).expect("reserved for it");
        two.unlock(state, NOW, got, ALL).expect("its own");
        let available = next_available(state, NOW).expect("the second");
        assert_eq!(available.client, three.client);
        let later = NOW + RESERVATION;
        one.lock(state, later, new(open_one, "x"), (9, 1), false).expect("the reservation is over");
        state.tick(&HOST, later).expect("a tick");
        assert_eq!(state.used(Kind::Waiter), 0, "neither waits any longer: {later:?}");
    });
}

#[test]
fn those_who_wait_for_a_silent_client_do_not_wait_for_ever() {
    with_state(|state| {
        let (mut silent, open) = opened(state, "a");
        silent.lock(state, NOW, new(open, "x"), ALL, true).expect("free");
        let lock = NlmLock { host: b"h", owner: b"o", file: b"f", offset: 3, length: 4, exclusive: true };
        let waits = state.nlm_lock(&HOST, NOW, &lock, NlmHow { wait: Some(77), ..NlmHow::default() });
        assert_eq!(waits, Ok(NlmLocked::Waits));
        state.tick(&HOST, NOW + seconds(80)).expect("a tick");
        assert_eq!(next_available(state, NOW + seconds(80)), None);
        state.tick(&HOST, NOW + seconds(100)).expect("a tick");
        let available = next_available(state, NOW + seconds(100)).expect("the silent client is gone");
        let (nlm_host, session) = (available.nlm_host.as_deref(), available.session);
        assert_eq!((available.cookie, nlm_host, session), (77, Some(&b"h"[..]), None));
        state
            .nlm_lock(&HOST, NOW + seconds(100), &lock, NlmHow { wait: Some(77), ..NlmHow::default() })
            .expect("granted");
        assert_eq!(state.used(Kind::Waiter), 0);
    });
}

#[test]
fn nlm_and_nfs4_share_one_table() {
    with_state(|state| {
        let (mut one, open) = opened(state, "a");
        let lock = NlmLock { host: b"h", owner: b"o", file: b"f", offset: 0, length: 10, exclusive: true };
        state.nlm_lock(&HOST, NOW, &lock, NlmHow::default()).expect("free");
        let again = NlmLock { offset: 20, ..lock };
        state.nlm_lock(&HOST, NOW, &again, NlmHow::default()).expect("free");
        let held = denied(one.lock(state, NOW, new(open, "x"), (5, 1), false));
        assert_eq!(held.0, b"o");
        let id = one.lock(state, NOW, new(open, "x"), (10, 10), true).expect("between");
        let across = NlmLock { offset: 0, length: u64::MAX, ..lock };
        assert!(matches!(state.nlm_test(&HOST, NOW, &across), Err(Error::Denied(_))));
        let other = NlmLock { host: b"other", ..across };
        assert!(matches!(state.nlm_test(&HOST, NOW, &other), Err(Error::Denied(_))));
        // NLM hosts have no lease.
        let late = NOW + seconds(80);
        one.unlock(state, late, id, ALL).expect("its own");
        state.tick(&HOST, NOW + seconds(1_000_000)).expect("a tick");
        assert_eq!(state.used(Kind::Range), 2);
        state.nlm_unlock(&HOST, NOW, &NlmLock { offset: 2, length: 3, ..lock }).expect("a hole");
        assert_eq!(state.used(Kind::Range), 3);
        state.nlm_unlock(&HOST, NOW, &NlmLock { owner: b"nobody", ..across }).expect("no error");
        state.nlm_unlock(&HOST, NOW, &across).expect("all");
        assert!(state.nlm_client(&HOST, NOW, b"h").is_err(), "a host without locks is forgotten");
        state.nlm_lock(&HOST, NOW, &lock, NlmHow::default()).expect("free");
        state.nlm_forget(&HOST, NOW, |name| name == b"h").expect("the host has restarted");
        state.nlm_forget(&HOST, NOW, |name| name == b"h").expect("twice");
        assert_eq!((state.used(Kind::Range), state.used(Kind::Owner), state.used(Kind::File)), (0, 0, 0));
    });
}

#[test]
fn a_wait_that_is_cancelled_is_over() {
    with_state(|state| {
        let lock = NlmLock { host: b"h", owner: b"o", file: b"f", offset: 0, length: 10, exclusive: true };
        let other = NlmLock { host: b"g", ..lock };
        state.nlm_lock(&HOST, NOW, &lock, NlmHow::default()).expect("free");
        let wait = NlmHow { wait: Some(5), ..NlmHow::default() };
        assert_eq!(state.nlm_lock(&HOST, NOW, &other, wait), Ok(NlmLocked::Waits));
        let elsewhere = NlmLock { offset: 1, ..other };
        assert_eq!(state.nlm_cancel(&HOST, NOW, &elsewhere), Ok(false), "another request");
        assert_eq!(state.nlm_cancel(&HOST, NOW, &other), Ok(true));
        assert_eq!(state.nlm_cancel(&HOST, NOW, &other), Ok(false), "it is over");
        assert_eq!(state.used(Kind::Waiter), 0);
        state.nlm_unlock(&HOST, NOW, &lock).expect("its own");
        assert_eq!(next_available(state, NOW), None);
        state.nlm_forget(&HOST, NOW, |name| name == b"g").expect("freed");
    });
}

fn host_at(name: &[u8], peer: Option<std::net::IpAddr>) -> NlmMonitor<'_> {
    NlmMonitor { name, peer, reclaim: false, is_leased: false }
}

/// As the server has a host monitored before its first lock.
fn monitor(state: &State<&HeapWords>, now: Duration, name: &[u8]) -> Option<RecoveryRecord> {
    let is_recorded = state.nlm_monitor(&HOST, now, host_at(name, None)).expect("room");
    let Some(Output::Persist(record)) = state.poll_output(&HOST, now).expect("not damaged") else {
        assert!(is_recorded);
        return None;
    };
    assert!(!is_recorded);
    state.persisted(&HOST, now, record.client).expect("written");
    Some(record)
}

#[test]
fn a_host_is_recorded_before_its_first_lock_and_forgotten_when_it_has_had_nothing_for_a_while() {
    with_state(|state| {
        let lock = NlmLock { host: b"h", owner: b"o", file: b"f", offset: 0, length: 10, exclusive: true };
        let how = NlmHow { monitored: true, ..NlmHow::default() };
        assert_eq!(state.nlm_lock(&HOST, NOW, &lock, how), Err(Error::NotRecorded), "unknown");
        assert_eq!(state.nlm_monitor(&HOST, NOW, host_at(b"h", None)), Ok(false));
        assert_eq!(state.nlm_lock(&HOST, NOW, &lock, how), Err(Error::NotRecorded), "not written yet");
        let record = monitor(state, NOW, b"h").expect("to be written");
        assert_eq!((&record.owner[..], record.is_nlm), (&b"h"[..], true));
        state.nlm_lock(&HOST, NOW, &lock, how).expect("free");
        state.nlm_unlock(&HOST, NOW, &lock).expect("its own");
        assert_eq!(monitor(state, NOW, b"h"), None, "it is still known");
        let late = NOW + NLM_HOST_IDLE - seconds(1);
        state.tick(&HOST, late).expect("a tick");
        assert_eq!(state.poll_output(&HOST, late), Ok(None));
        state.tick(&HOST, NOW + NLM_HOST_IDLE).expect("a tick");
        assert_eq!(state.poll_output(&HOST, NOW), Ok(Some(Output::Forget(record.client))));
        assert_eq!(state.used(Kind::Client), 0);
    });
}

#[test]
fn a_host_with_a_lease_keeps_its_locks_while_it_renews_that() {
    with_state(|state| {
        let lock = NlmLock { host: b"h", owner: b"o", file: b"f", offset: 0, length: 10, exclusive: true };
        let other = NlmLock { host: b"g", ..lock };
        let leased = NlmMonitor { is_leased: true, ..host_at(b"h", None) };
        assert_eq!(state.nlm_monitor(&HOST, NOW, leased), Ok(false));
        state.nlm_lock(&HOST, NOW, &lock, NlmHow::default()).expect("free");
        // What was never locked is unlocked, and that is a sign of life.
        let renewal = NlmLock { owner: b"nobody", ..lock };
        let (first, second) = (NOW + seconds(60), NOW + seconds(120));
        state.nlm_unlock(&HOST, NOW + seconds(30), &renewal).expect("known");
        assert_eq!(state.nlm_cancel(&HOST, first, &renewal), Ok(false), "so is a cancelled request");
        let denied = state.nlm_lock(&HOST, second, &other, NlmHow::default());
        assert!(matches!(denied, Err(Error::Denied(_))), "{denied:?}");
        let late = first + seconds(91);
        state.tick(&HOST, late).expect("a tick");
        assert_eq!(state.used(Kind::Range), 1, "nobody wants it");
        assert_eq!(state.nlm_lock(&HOST, late, &other, NlmHow::default()), Ok(NlmLocked::Granted));
    });
}

#[test]
fn what_is_reclaimed_late_is_granted_if_the_owner_has_it() {
    with_state(|state| {
        let lock = NlmLock { host: b"h", owner: b"o", file: b"f", offset: 5, length: 10, exclusive: true };
        let reclaim = NlmHow { reclaim: true, ..NlmHow::default() };
        let again = |lock: &NlmLock<'_>| state.nlm_lock(&HOST, NOW, lock, reclaim);
        assert_eq!(again(&lock), Err(Error::NoGrace));
        state.nlm_lock(&HOST, NOW, &lock, NlmHow::default()).expect("free");
        assert_eq!(again(&lock), Ok(NlmLocked::Granted));
        assert_eq!(again(&NlmLock { offset: 6, length: 3, ..lock }), Ok(NlmLocked::Granted));
        for other in [
            NlmLock { length: 11, ..lock },
            NlmLock { offset: 4, ..lock },
            NlmLock { exclusive: false, ..lock },
            NlmLock { owner: b"other", ..lock },
            NlmLock { file: b"other", ..lock },
            NlmLock { host: b"other", ..lock },
        ] {
            assert_eq!(again(&other), Err(Error::NoGrace), "{other:?}");
        }
    });
}

#[test]
fn hosts_of_one_address_are_a_quarter_at_most() {
    with_state(|state| {
        let (here, elsewhere) = ("10.0.0.1".parse().ok(), "10.0.0.2".parse().ok());
        for number in 0..16 {
            let name = format!("host {number}");
            assert_eq!(state.nlm_monitor(&HOST, NOW, host_at(name.as_bytes(), here)), Ok(false));
        }
        let more = state.nlm_monitor(&HOST, NOW, host_at(b"more", here));
        assert_eq!(more, Err(Error::PeerLimit(Kind::Client)));
        assert_eq!(state.nlm_monitor(&HOST, NOW, host_at(b"more", elsewhere)), Ok(false));
        assert_eq!(state.nlm_forget(&HOST, NOW, |name| name.starts_with(b"host ")), Ok(16));
        assert_eq!(state.nlm_monitor(&HOST, NOW, host_at(b"again", here)), Ok(false));
        let long = [7; OWNER_BYTES_MAX + 1];
        let refused = Error::TooLong("the host's name", OWNER_BYTES_MAX);
        assert_eq!(state.nlm_monitor(&HOST, NOW, host_at(&long, here)), Err(refused));
    });
}

/// RFC 8881 s18.2.3
#[test]
fn locks_end_with_the_open_by_which_they_were_made() {
    with_state(|state| {
        let (mut one, first) = opened(state, "a");
        let second = one.open_as(state, NOW, "second", "f", BOTH, 0).expect("open");
        let (mut two, other) = opened(state, "b");
        let by_first = one.lock(state, NOW, new(first, "x"), (0, 10), true).expect("free");
        let by_second = one.lock(state, NOW, new(second, "x"), (10, 10), true).expect("free");
        assert_ne!(by_first.other, by_second.other);
        one.close(state, NOW, first).expect("open");
        let held = denied(two.lock(state, NOW, new(other, "y"), ALL, true));
        assert_eq!((held.1, held.2), (10, 10), "by the open that is left");
        two.lock(state, NOW, new(other, "y"), (0, 10), true).expect("released");
        one.close(state, NOW, second).expect("open");
        two.lock(state, NOW, new(other, "y"), ALL, true).expect("released");
    });
}

/// RFC 8881 s9.1.4, s18.12.3
#[test]
fn an_owner_has_one_set_of_locks_by_whatever_opens() {
    with_state(|state| {
        let (mut one, first) = opened(state, "a");
        let second = one.open_as(state, NOW, "second", "f", BOTH, 0).expect("open");
        let (mut two, other) = opened(state, "b");
        one.lock(state, NOW, new(first, "x"), (0, 20), true).expect("free");
        let id = one.lock(state, NOW, new(second, "x"), (5, 5), false).expect("its own");
        assert_eq!(state.used(Kind::Range), 3);
        two.lock(state, NOW, new(other, "y"), (5, 5), false).expect("a downgrade");
        denied(two.lock(state, NOW, new(other, "y"), (4, 1), false));
        denied(two.lock(state, NOW, new(other, "y"), (10, 1), false));
        one.unlock(state, NOW, id, (0, 15)).expect("all of the owner's");
        two.lock(state, NOW, new(other, "y"), (0, 15), true).expect("unlocked");
        let held = denied(two.lock(state, NOW, new(other, "y"), ALL, true));
        assert_eq!((held.1, held.2), (15, 5));
    });
}

#[test]
fn an_owner_locks_by_a_bounded_number_of_opens() {
    let bounds =
        Bounds { owners_per_client: 128, opens_per_client: 128, locks_per_client: 128, ..Bounds::small() };
    let config = Config { bounds, ..small_config() };
    let memory = memory(&config);
    let state = &create(&memory, &config);
    let mut one = Member::join(state, &HOST, NOW, "a");
    for number in 0..=OPENS_PER_LOCK_OWNER_MAX {
        let open = one.open_as(state, NOW, &format!("owner {number}"), "f", BOTH, 0).expect("open");
        let at = (number as u64, 1);
        let locked = one.lock(state, NOW, new(open, "x"), at, true).map(|id| id.seqid);
        let expected =
            if number < OPENS_PER_LOCK_OWNER_MAX { Ok(1) } else { Err(Error::ClientLimit(Kind::Lock)) };
        assert_eq!(locked, expected, "{number}");
    }
    consistency::check(state);
}
