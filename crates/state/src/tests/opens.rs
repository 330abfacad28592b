//! Opens, share reservations and stateids.

use super::*;

const NOW: Duration = Duration::from_secs(1000);
const BOTH: u8 = READ | WRITE;
const HOST: SingleProcess = SingleProcess;

/// RFC 8881 s18.16.3, s9.7
#[test]
fn access_and_deny_are_checked_against_all_other_opens() {
    for (access, deny, asked_access, asked_deny, is_denied) in [
        (READ, 0, WRITE, 0, false),
        (READ, WRITE, WRITE, 0, true),
        (READ, WRITE, READ, 0, false),
        (WRITE, 0, READ, WRITE, true),
        (WRITE, 0, READ, READ, false),
        (BOTH, BOTH, READ, 0, true),
        (READ, 0, READ, READ, true),
    ] {
        with_state(|state| {
            let mut first = Member::join(state, &HOST, NOW, "a");
            let mut second = Member::join(state, &HOST, NOW, "b");
            let id = first.open(state, NOW, "f", access, deny).expect("the first");
            let asked = second.open(state, NOW, "f", asked_access, asked_deny);
            assert_eq!(asked.err(), is_denied.then_some(Error::ShareDenied));
            second.open(state, NOW, "g", BOTH, BOTH).expect("another file");
            first.close(state, NOW, id).expect("open");
            second.open(state, NOW, "f", asked_access, asked_deny).expect("closed");
        });
    }
}

#[test]
fn an_owner_has_one_open_of_a_file_and_other_owners_have_theirs() {
    with_state(|state| {
        let mut member = Member::join(state, &HOST, NOW, "a");
        let first = member.open(state, NOW, "f", READ, WRITE).expect("open");
        assert_eq!(first.seqid, 1);
        let more = member.open(state, NOW, "f", BOTH, 0).expect("its own deny does not count");
        assert_eq!((more.other, more.seqid), (first.other, 2));
        let other = member.open_as(state, NOW, "another owner", "f", READ, 0).expect("it reads");
        assert_ne!(other.other, first.other, "never one open for two owners");
        let denied = member.open_as(state, NOW, "another owner", "f", WRITE, 0);
        assert_eq!(denied, Err(Error::ShareDenied), "an owner is denied by another of its client");
        assert_eq!((state.used(Kind::Open), state.used(Kind::Owner), state.used(Kind::File)), (2, 2, 1));
        member.close(state, NOW, more).expect("open");
        assert_eq!(member.close(state, NOW, more), Err(Error::BadStateId), "closed");
        member.close(state, NOW, other).expect("open");
        assert_eq!((state.used(Kind::Open), state.used(Kind::Owner), state.used(Kind::File)), (0, 0, 0));
    });
}

/// RFC 8881 s18.18.3
#[test]
fn a_downgrade_goes_to_a_union_of_opens_only() {
    with_state(|state| {
        let mut member = Member::join(state, &HOST, NOW, "a");
        let mut other = Member::join(state, &HOST, NOW, "b");
        let id = member.open(state, NOW, "f", BOTH, 0).expect("open");
        let downgrade = |member: &mut Member, id, access, deny| {
            member.act(state, &HOST, NOW, |ticket| state.downgrade(&HOST, NOW, ticket, id, access, deny))
        };
        let refused = downgrade(&mut member, id, READ, 0);
        assert!(matches!(refused, Err(Error::Invalid(_))), "it was never opened for reading only");
        let id = member.open(state, NOW, "f", READ, WRITE).expect("open");
        assert_eq!(other.open(state, NOW, "f", WRITE, 0), Err(Error::ShareDenied));
        let refused = downgrade(&mut member, id, READ, 0);
        assert!(matches!(refused, Err(Error::Invalid(_))), "not without the deny");
        let id = downgrade(&mut member, id, READ, WRITE).expect("as the second open");
        assert_eq!(id.seqid, 3);
        let refused = downgrade(&mut member, id, BOTH, WRITE);
        assert!(matches!(refused, Err(Error::Invalid(_))), "the first open is gone");
        let old = StateId { seqid: 2, ..id };
        assert_eq!(downgrade(&mut member, old, READ, WRITE), Err(Error::OldStateId));
        let new = StateId { seqid: 4, ..id };
        assert_eq!(downgrade(&mut member, new, READ, WRITE), Err(Error::BadStateId));
    });
}

#[test]
fn arguments_that_no_client_may_send_are_refused() {
    with_state(|state| {
        let mut member = Member::join(state, &HOST, NOW, "a");
        for (access, deny) in [(0, 0), (4, 0), (1, 4)] {
            let refused = member.open(state, NOW, "f", access, deny);
            assert!(matches!(refused, Err(Error::Invalid(_))), "{access} {deny}: {refused:?}");
        }
        let long = "f".repeat(FILE_BYTES_MAX + 1);
        assert!(matches!(member.open(state, NOW, &long, READ, 0), Err(Error::TooLong(..))));
        let long = "o".repeat(OWNER_BYTES_MAX + 1);
        let refused = member.open_as(state, NOW, &long, "f", READ, 0);
        assert!(matches!(refused, Err(Error::TooLong(..))), "{refused:?}");
        member.open(state, NOW, &"f".repeat(FILE_BYTES_MAX), READ, 0).expect("just fits");
    });
}

/// RFC 8881 s8.2.4
#[test]
fn io_needs_a_current_stateid_of_the_same_client_and_file() {
    with_state(|state| {
        let mut member = Member::join(state, &HOST, NOW, "a");
        let other = Member::join(state, &HOST, NOW, "b");
        let of = |member: &Member| state.client(&HOST, NOW, member.client).expect("a client");
        let check = |member: &Member, id, file: &str, access| {
            state.check_state_io(&HOST, NOW, of(member), id, file.as_bytes(), access)
        };
        let id = member.open(state, NOW, "f", READ, 0).expect("open");
        assert_eq!(check(&member, id, "f", READ), Ok(()));
        assert_eq!(check(&member, StateId { seqid: 0, ..id }, "f", READ), Ok(()), "the newest");
        assert_eq!(check(&member, id, "f", WRITE), Err(Error::OpenMode));
        assert_eq!(check(&member, id, "g", READ), Err(Error::BadStateId), "another file");
        assert_eq!(check(&other, id, "f", READ), Err(Error::BadStateId), "another client");
        let newer = member.open(state, NOW, "f", WRITE, 0).expect("more access");
        assert_eq!(check(&member, id, "f", READ), Err(Error::OldStateId));
        assert_eq!(check(&member, newer, "f", BOTH), Ok(()));
        let mut stale = newer;
        stale.other[0] ^= 1;
        assert_eq!(check(&member, stale, "f", READ), Err(Error::StaleStateId));
        assert_eq!(state.test_state(&HOST, NOW, of(&member), stale), Err(Error::BadStateId), "never STALE");
        assert_eq!(state.test_state(&HOST, NOW, of(&member), newer), Ok(()));
        member.close(state, NOW, newer).expect("open");
        assert_eq!(check(&member, newer, "f", READ), Err(Error::BadStateId));
        let again = member.open(state, NOW, "f", READ, 0).expect("open");
        assert_eq!(check(&member, newer, "f", READ), Err(Error::BadStateId), "the record is another's");
        for byte in 4..12 {
            for bit in 0..8 {
                let mut guess = again;
                guess.other[byte] ^= 1 << bit;
                assert!(check(&member, guess, "f", READ).is_err());
            }
        }
    });
}

#[test]
fn io_without_an_open_is_denied_by_share_reservations_only() {
    with_state(|state| {
        let mut member = Member::join(state, &HOST, NOW, "a");
        let other = Member::join(state, &HOST, NOW, "b");
        let of = state.client(&HOST, NOW, other.client).expect("a client");
        let io = |access| state.check_io(&HOST, NOW, None, b"f", access);
        assert_eq!(io(BOTH), Ok(()));
        let id = member.open(state, NOW, "f", READ, WRITE).expect("open");
        assert_eq!((io(READ), io(WRITE)), (Ok(()), Err(Error::ShareDenied)));
        for special in [StateId::ANONYMOUS, StateId::BYPASS] {
            let write = state.check_state_io(&HOST, NOW, of, special, b"f", WRITE);
            assert_eq!(write, Err(Error::ShareDenied), "all ones bypass nothing");
        }
        member.close(state, NOW, id).expect("open");
        assert_eq!(io(BOTH), Ok(()));
        member.open(state, NOW, "f", READ, BOTH).expect("open");
        let late = NOW + seconds(91);
        assert_eq!(state.check_io(&HOST, late, None, b"f", READ), Ok(()), "its lease has ended");
        assert!(state.client(&HOST, late, member.client).is_err());
        state.tick(&HOST, late).expect("freed");
    });
}

#[test]
fn a_silent_client_keeps_its_opens_until_somebody_needs_the_file() {
    with_state(|state| {
        let mut silent = Member::join(state, &HOST, NOW, "a");
        let id = silent.open(state, NOW, "f", BOTH, BOTH).expect("open");
        let late = NOW + seconds(5000);
        let mut other = Member::join(state, &HOST, late, "b");
        state.tick(&HOST, late).expect("a tick");
        other.open(state, late, "g", BOTH, BOTH).expect("another file");
        let of = state.client(&HOST, late, silent.client).expect("a courtesy");
        assert_eq!(state.test_state(&HOST, late, of, id), Ok(()));
        silent.open(state, late, "h", READ, 0).expect("it is back, and has its lease again");
        assert_eq!(other.open(state, late, "f", READ, 0), Err(Error::ShareDenied));
        let later = late + seconds(5000);
        other.open(state, later, "f", READ, 0).expect("silent again");
        assert_eq!(state.client(&HOST, later, silent.client), Err(Error::StaleClientId));
        let gone = state.sequence(&HOST, later, &request(silent.session, 0, 9));
        assert_eq!(gone, Err(Error::BadSession));
        other.open(state, later, "h", BOTH, BOTH).expect("nothing of it counts");
        state.tick(&HOST, later).expect("freed");
        assert_eq!(state.used(Kind::Open), 3, "all are the other's");
        state.tick(&HOST, later + seconds(90_000)).expect("a day later");
        assert_eq!((state.used(Kind::Open), state.used(Kind::Client)), (0, 2), "to be forgotten");
    });
}

#[test]
fn a_client_that_opens_all_it_can_is_refused_and_others_are_not() {
    let bounds = Bounds { opens: 4000, files: 4000, opens_per_client: 3000, ..Bounds::small() };
    let config = Config { bounds, ..small_config() };
    let memory = memory(&config);
    let state = create(&memory, &config);
    let mut greedy = Member::join(&state, &HOST, NOW, "greedy");
    let mut other = Member::join(&state, &HOST, NOW, "other");
    for file in 0..3000 {
        greedy.open(&state, NOW, &format!("file {file}"), READ, 0).expect("within its bound");
    }
    let more = greedy.open(&state, NOW, "one more", READ, 0);
    assert_eq!(more, Err(Error::ClientLimit(Kind::Open)));
    assert_eq!(state.used(Kind::File), 3000, "nothing is left of what was refused");
    for file in 0..1000 {
        other.open(&state, NOW, &format!("other {file}"), READ, 0).expect("its share");
    }
    assert_eq!(other.open(&state, NOW, "full", READ, 0), Err(Error::Full(Kind::File)));
    let late = NOW + seconds(80);
    other.open(&state, late, "other 0", READ, 0).expect("what it has is no new record");
    let late = NOW + seconds(91);
    other.open(&state, late, "room", READ, 0).expect("the greedy client is silent, and makes room");
    assert!(state.used(Kind::Open) > 3000, "freed bit by bit");
    while state.tick(&HOST, late) == Ok(Tick::More) {}
    assert_eq!(state.used(Kind::Open), 1001);
    consistency::check(&state);
}

#[test]
fn an_open_in_a_session_that_ended_is_refused() {
    with_state(|state| {
        let member = Member::join(state, &HOST, NOW, "a");
        let ticket = run(state, &HOST, NOW, &request(member.session, 1, 1));
        let again = state.exchange_id(&HOST, NOW, exchange("a", 99)).expect("a restart");
        state.create_session(&HOST, NOW, &session_args(again.client, again.sequence)).expect("confirmed");
        let args =
            OpenArgs { owner: b"o", file: b"f", access: READ, deny: 0, reclaim: false, created: false };
        assert_eq!(state.open_file(&HOST, NOW, &ticket, &args), Err(Error::Expired));
        assert!(state.finish(&HOST, &ticket, None));
        state.tick(&HOST, NOW).expect("freed");
        assert_eq!(state.used(Kind::Session), 1);
    });
}

/// What is done after an OPEN may fail, and then the client does not learn of the open.
#[test]
fn an_open_that_is_taken_back_leaves_what_was_there() {
    with_state(|state| {
        let (mut one, mut two) = (Member::join(state, &HOST, NOW, "a"), Member::join(state, &HOST, NOW, "b"));
        let first = one.open(state, NOW, "f", READ, 0).expect("open");
        let begin = |member: &mut Member, file: &str| {
            let args = OpenArgs {
                owner: b"owner",
                file: file.as_bytes(),
                access: READ | WRITE,
                deny: READ,
                reclaim: false,
                created: false,
            };
            let done = |ticket: &Ticket| state.open_file_first(&HOST, NOW, ticket, &args);
            member.act(state, &HOST, NOW, done).expect("open")
        };
        let undo = |member: &mut Member, (id, undo): (StateId, UndoOpen)| {
            member
                .act(state, &HOST, NOW, |ticket| state.undo_open(&HOST, NOW, ticket, id, &undo))
                .expect("an open")
        };
        let more = begin(&mut one, "f");
        assert_eq!(two.open(state, NOW, "f", READ, 0), Err(Error::ShareDenied));
        undo(&mut one, more);
        two.open(state, NOW, "f", READ, WRITE).expect("nobody writes, nobody denies");
        let same = one.act(state, &HOST, NOW, |ticket| state.downgrade(&HOST, NOW, ticket, first, READ, 0));
        assert_eq!(same.map(|id| id.seqid), Ok(2), "the version that its client knows");
        let new = begin(&mut one, "g");
        undo(&mut one, new);
        assert_eq!(state.used(Kind::Open), 2, "a new open is gone");
        let new = begin(&mut one, "g");
        let again = one.open(state, NOW, "g", READ, 0).expect("open");
        undo(&mut one, new);
        one.close(state, NOW, again).expect("its client knows of it");
    });
}

#[test]
fn a_file_is_open_until_its_last_open_and_delegation_have_ended() {
    with_state(|state| {
        let is_open = |now, file: &[u8]| state.is_open(&HOST, now, file).expect("no error");
        let mut one = Member::join(state, &HOST, NOW, "a");
        let mut other = Member::join(state, &HOST, NOW, "b");
        assert!(!is_open(NOW, b"f"));
        let first = one.open(state, NOW, "f", BOTH, 0).expect("open");
        let second = other.open(state, NOW, "f", READ, 0).expect("open");
        one.close(state, NOW, first).expect("open");
        assert!(is_open(NOW, b"f") && !is_open(NOW, b"g"));
        other.close(state, NOW, second).expect("open");
        assert!(!is_open(NOW, b"f"));
        assert_eq!(state.dropped_opens(), 0, "all were closed");
        state.bind_back(&HOST, NOW, one.session).expect("a session");
        let third = one.open(state, NOW, "g", READ, 0).expect("open");
        let granted = one.act(state, &HOST, NOW, |ticket| state.delegate(&HOST, NOW, ticket, b"g"));
        let delegation = granted.expect("no error").expect("nothing speaks against it");
        one.close(state, NOW, third).expect("open");
        assert!(is_open(NOW, b"g"), "by the delegation");
        one.act(state, &HOST, NOW, |ticket| state.return_delegation(&HOST, NOW, ticket, delegation))
            .expect("it has it");
        assert!(!is_open(NOW, b"g"));
    });
}

#[test]
fn opens_that_end_with_their_client_are_counted() {
    with_state(|state| {
        let mut silent = Member::join(state, &HOST, NOW, "silent");
        let mut other = Member::join(state, &HOST, NOW, "other");
        for file in ["f", "g", "h"] {
            silent.open(state, NOW, file, BOTH, BOTH).expect("open");
        }
        let late = NOW + seconds(100);
        assert!(state.is_open(&HOST, late, b"g").expect("no error"), "as a courtesy");
        assert_eq!(state.dropped_opens(), 0);
        other.open(state, late, "f", READ, 0).expect("its lease has ended");
        while state.tick(&HOST, late) == Ok(Tick::More) {}
        assert_eq!(state.dropped_opens(), 3);
        assert!(!state.is_open(&HOST, late, b"g").expect("no error"));
        assert!(state.is_open(&HOST, late, b"f").expect("no error"), "by the other");
    });
}

#[test]
fn whether_there_is_room_for_an_open_is_told_before_it_and_takes_none() {
    with_state(|state| {
        let mut member = Member::join(state, &HOST, NOW, "client");
        let has_room = |member: &mut Member, owner: &str| {
            member.act(state, &HOST, NOW, |ticket| {
                state.has_room_for_open(&HOST, NOW, ticket, owner.as_bytes())
            })
        };
        let used = |kind| state.used(kind);
        let before = [Kind::Open, Kind::File, Kind::Owner, Kind::Blob].map(used);
        assert_eq!(has_room(&mut member, "owner"), Ok(()));
        assert_eq!([Kind::Open, Kind::File, Kind::Owner, Kind::Blob].map(used), before);
        consistency::check(state);
        let long = "o".repeat(crate::OWNER_BYTES_MAX + 1);
        assert!(matches!(has_room(&mut member, &long), Err(Error::TooLong(..))));
        let mut opened = 0;
        let refused = loop {
            let room = has_room(&mut member, "owner");
            let open = member.open(state, NOW, &format!("file {opened}"), READ, 0);
            assert_eq!(open.map(drop), room);
            match room {
                Ok(()) => opened += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(refused, Error::ClientLimit(_) | Error::PeerLimit(_)), "{refused:?}");
        assert!(opened > 10);
    });
}

/// However many silent clients are in the way of an OPEN, it need not be sent again.
#[test]
fn an_open_drops_all_silent_clients_in_its_way() {
    let bounds = Bounds { clients: 512, sessions: 512, slots: 8192, blobs: 2048, ..Bounds::small() };
    let config = Config { bounds, ..small_config() };
    let memory = memory(&config);
    let state = create(&memory, &config);
    for number in 0..200 {
        let mut silent = Member::join(&state, &HOST, NOW, &format!("silent {number}"));
        silent.open(&state, NOW, "f", WRITE, 0).expect("open");
    }
    let later = NOW + seconds(91);
    let mut breaker = Member::join(&state, &HOST, later, "breaker");
    breaker.open(&state, later, "f", READ, WRITE).expect("nobody else is left");
    consistency::check(&state);
    assert_eq!(state.dropped_opens(), 200);
}
