//! EXCHANGE_ID, CREATE_SESSION, and the ends of sessions, clients and leases.

use super::consistency::check;
use super::*;

const NOW: Duration = Duration::from_secs(1000);

fn with_state(test: impl FnOnce(&State<&HeapWords>, &SingleProcess)) {
    let config = small_config();
    let memory = memory(&config);
    let state = create(&memory, &config);
    test(&state, &SingleProcess);
    check(&state);
}

/// RFC 8881 s18.35.4, s18.35.5
#[test]
fn each_case_of_exchange_id_has_its_result() {
    with_state(|state, host| {
        let ask = |verifier, principal, update| {
            let args = ExchangeIdArgs { owner: b"owner", verifier, principal, update, peer: None };
            state.exchange_id(host, NOW, args)
        };
        assert_eq!(ask(1, PRINCIPAL, true), Err(Error::NoClient), "7: an update of nothing");
        let first = ask(1, PRINCIPAL, false).expect("1: a new owner");
        assert!(!first.confirmed);
        assert_eq!(first.sequence, 1);
        let second = ask(1, PRINCIPAL, false).expect("4: never confirmed, replaced");
        assert_ne!(first.client, second.client);
        assert_eq!(
            state.create_session(host, NOW, &session_args(first.client, 1)),
            Err(Error::StaleClientId)
        );
        state.create_session(host, NOW, &session_args(second.client, 1)).expect("confirmed");
        let known = ask(1, PRINCIPAL, false).expect("2: the same again");
        assert_eq!((known.client, known.confirmed, known.sequence), (second.client, true, 2));
        assert_eq!(ask(1, PRINCIPAL, true).map(|known| known.client), Ok(second.client), "6: an update");
        assert_eq!(ask(2, PRINCIPAL, true), Err(Error::NotSame), "8: another verifier");
        assert_eq!(ask(1, 99, true), Err(Error::NotPermitted), "9: another principal");
        assert_eq!(ask(1, 99, false), Err(Error::ClientIdInUse), "3: another principal");
        let restarted = ask(2, PRINCIPAL, false).expect("5: a restart");
        assert!(!restarted.confirmed);
        assert_eq!(ask(1, PRINCIPAL, false).map(|known| known.confirmed), Ok(true), "the old one still is");
        let restarted = ask(2, PRINCIPAL, false).expect("5: once more");
        state.create_session(host, NOW, &session_args(restarted.client, 1)).expect("confirmed");
        let stale = state.create_session(host, NOW, &session_args(second.client, 2));
        assert_eq!(stale, Err(Error::StaleClientId), "the old incarnation is gone");
        assert_eq!(state.tick(host, NOW), Ok(Tick::Idle));
        assert_eq!(state.used(Kind::Client), 1);
    });
}

#[test]
fn another_principal_gets_the_name_of_a_client_that_has_nothing_or_is_silent() {
    with_state(|state, host| {
        let thief = ExchangeIdArgs { owner: b"a", verifier: 1, principal: 99, update: false, peer: None };
        let (_, session) = join(state, host, NOW, "a");
        assert_eq!(state.exchange_id(host, NOW, thief), Err(Error::ClientIdInUse));
        state.destroy_session(host, NOW, session).expect("its only session");
        state.exchange_id(host, NOW, thief).expect("nothing is lost");
        join(state, host, NOW, "b");
        let thief = ExchangeIdArgs { owner: b"b", ..thief };
        assert_eq!(state.exchange_id(host, NOW + seconds(90), thief), Err(Error::ClientIdInUse));
        state.exchange_id(host, NOW + seconds(91), thief).expect("its lease has ended");
    });
}

/// RFC 8881 s18.36.4
#[test]
fn create_session_is_done_once_for_each_sequence_id() {
    with_state(|state, host| {
        let known = state.exchange_id(host, NOW, exchange("a", 1)).expect("a client");
        let args = session_args(known.client, 1);
        let ahead = state.create_session(host, NOW, &session_args(known.client, 2));
        assert_eq!(ahead, Err(Error::SeqMisordered));
        let nothing = state.create_session(host, NOW, &session_args(known.client, 0));
        assert_eq!(nothing, Err(Error::SeqMisordered), "there is no reply before the first");
        let intruder = CreateSessionArgs { principal: 99, ..args };
        assert_eq!(state.create_session(host, NOW, &intruder), Err(Error::ClientIdInUse));
        let made = state.create_session(host, NOW, &args).expect("a session");
        assert_eq!(state.create_session(host, NOW, &args), Ok(made), "a retry");
        assert_eq!(state.used(Kind::Session), 1);
        let mut small = session_args(known.client, 2);
        small.asked.fore.response_bytes = 8;
        assert_eq!(state.create_session(host, NOW, &small), Err(Error::TooSmall));
        let again = session_args(known.client, 2);
        assert_eq!(state.create_session(host, NOW, &again), Err(Error::TooSmall), "failures are kept too");
        state.create_session(host, NOW, &session_args(known.client, 3)).expect("another session");
        assert_eq!(state.create_session(host, NOW, &args), Err(Error::SeqMisordered));
        // The principal is compared when the client is confirmed, and not for further sessions.
        let user = CreateSessionArgs { principal: 99, ..session_args(known.client, 4) };
        let made = state.create_session(host, NOW, &user).expect("a session");
        assert_eq!(state.create_session(host, NOW, &user), Ok(made), "a retry");
    });
}

/// RFC 8881 s18.36.4
#[test]
fn a_session_that_is_refused_for_good_takes_its_sequence_id_and_one_for_lack_of_room_does_not() {
    with_state(|state, host| {
        let known = state.exchange_id(host, NOW, exchange("a", 1)).expect("a client");
        let create = |sequence, refused| {
            let args = CreateSessionArgs { refused, ..session_args(known.client, sequence) };
            state.create_session(host, NOW, &args).map(drop)
        };
        let unknown = Err(Error::Invalid("CREATE_SESSION has unknown flags"));
        assert_eq!(create(1, Some(SessionRefusal::Flags)), unknown);
        assert_eq!(create(1, None), unknown, "a retry");
        assert_eq!(create(2, Some(SessionRefusal::TooSmall)), Err(Error::TooSmall));
        assert_eq!(create(2, None), Err(Error::TooSmall), "a retry");
        let asked = state.exchange_id(host, NOW, exchange("a", 1)).expect("a client");
        assert!(!asked.confirmed, "no session has confirmed it");
        let create = |sequence| {
            state.create_session(host, NOW, &session_args(asked.client, sequence)).map(|made| made.session)
        };
        let first = create(1).expect("a session");
        for sequence in 2..=4 {
            create(sequence).expect("a session");
        }
        assert_eq!(create(5), Err(Error::ClientLimit(Kind::Session)));
        state.destroy_session(host, NOW, first).expect("a session");
        state.tick(host, NOW).expect("freed");
        assert_eq!(create(5), Err(Error::ClientLimit(Kind::Session)), "a retry");
        create(6).expect("the next request");
    });
    let config = Config { bounds: Bounds { sessions: 1, ..Bounds::small() }, ..small_config() };
    let memory = memory(&config);
    let (state, host) = (create(&memory, &config), &SingleProcess);
    let (_, session) = join(&state, host, NOW, "a");
    let known = state.exchange_id(host, NOW, exchange("b", 1)).expect("a client");
    let args = session_args(known.client, 1);
    assert_eq!(state.create_session(host, NOW, &args), Err(Error::Full(Kind::Session)));
    state.destroy_session(host, NOW, session).expect("a session");
    state.create_session(host, NOW, &args).expect("the same request, later");
}

/// RFC 8881 s2.10.8.3, s18.37, s18.50
#[test]
fn a_client_and_its_sessions_are_ended_by_those_who_made_them() {
    with_state(|state, host| {
        let (client, own) = join(state, host, NOW, "a");
        let args = CreateSessionArgs { principal: 99, ..session_args(client, 2) };
        let users = state.create_session(host, NOW, &args).expect("another principal's session").session;
        assert_eq!(state.may_end_client(host, NOW, client, PRINCIPAL), Ok(()));
        assert_eq!(state.may_end_client(host, NOW, client, 99), Err(Error::WrongCredential));
        assert_eq!(state.may_end_client(host, NOW, ClientId(1), 99), Err(Error::StaleClientId));
        assert_eq!(state.may_control(own, PRINCIPAL), Ok(()));
        assert_eq!(state.may_control(own, 99), Err(Error::WrongCredential));
        assert_eq!(state.may_control(users, PRINCIPAL), Ok(()), "the client's");
        assert_eq!(state.may_control(users, 99), Ok(()), "its creator");
        assert_eq!(state.may_control(users, 98), Err(Error::WrongCredential));
        state.destroy_session(host, NOW, own).expect("a session");
        assert_eq!(state.may_control(own, PRINCIPAL), Err(Error::BadSession));
    });
}

#[test]
fn a_client_id_tells_nothing_about_others() {
    let config = small_config();
    let ids_of = |seed: u128| {
        let memory = memory(&config);
        let state = State::create(&memory, &config, 7, seed).expect("a new arena");
        state.begin_grace(&SingleProcess, NOW, &[]).expect("nothing to load");
        ["a", "b", "c"].map(|owner| join(&state, &SingleProcess, NOW, owner).0.0)
    };
    let first = ids_of(5);
    assert_eq!(ids_of(5), first, "all processes of an arena make the same");
    let other = ids_of(6);
    for (one, two) in [(first[0], first[1]), (first[1], first[2]), (first[0], other[0]), (first[1], other[1])]
    {
        // With a counter in it, or the epoch, half of the bits would be the same.
        for half in [one ^ two, (one ^ two) >> 32] {
            let differ = (half as u32).count_ones();
            assert!((5..28).contains(&differ), "{one:x} and {two:x} differ in {differ} of 32 bits");
        }
    }
}

#[test]
fn attributes_are_granted_up_to_the_limits_and_the_memory() {
    with_state(|state, host| {
        let known = state.exchange_id(host, NOW, exchange("a", 1)).expect("a client");
        let mut args = session_args(known.client, 1);
        args.asked = channels(1000);
        args.limits.fore.operations = 4;
        let made = state.create_session(host, NOW, &args).expect("a session");
        let granted = made.granted;
        assert_eq!(state.channels(made.session), Ok(granted));
        assert_eq!(state.channels(SessionId([0; 16])), Err(Error::BadSession));
        assert_eq!(granted.fore.operations, 4);
        assert_eq!(granted.fore.requests, 16, "the bound of a session");
        assert_eq!(granted.fore.cached_bytes, 256, "the bytes of a kept reply");
        assert_eq!(granted.back, args.asked.back);
        for sequence in 2..=4 {
            state.create_session(host, NOW, &session_args(known.client, sequence)).expect("a session");
        }
        let more = state.create_session(host, NOW, &session_args(known.client, 5));
        assert_eq!(more, Err(Error::ClientLimit(Kind::Session)));
    });
}

#[test]
fn a_client_ends_when_it_has_no_sessions() {
    with_state(|state, host| {
        let (client, session) = join(state, host, NOW, "a");
        assert_eq!(state.destroy_client_id(host, NOW, client), Err(Error::ClientIdBusy));
        state.destroy_session(host, NOW, session).expect("a session");
        assert_eq!(state.destroy_session(host, NOW, session), Err(Error::BadSession));
        assert_eq!(state.sequence(host, NOW, &request(session, 0, 1)), Err(Error::BadSession));
        state.destroy_client_id(host, NOW, client).expect("nothing left");
        assert_eq!(state.destroy_client_id(host, NOW, client), Err(Error::StaleClientId));
        state.tick(host, NOW).expect("freed");
        for kind in [Kind::Client, Kind::Session, Kind::Chunk, Kind::Blob] {
            assert_eq!(state.used(kind), 0, "{kind:?}");
        }
    });
}

#[test]
fn a_session_with_a_running_request_is_freed_when_the_request_has_ended() {
    with_state(|state, host| {
        let (_, session) = join(state, host, NOW, "a");
        let ticket = run(state, host, NOW, &request(session, 2, 1));
        state.destroy_session(host, NOW, session).expect("a session");
        state.tick(host, NOW).expect("nothing to free");
        assert_eq!(state.used(Kind::Session), 1);
        assert!(state.finish(host, &ticket, Some(b"done")));
        state.tick(host, NOW).expect("freed");
        assert_eq!((state.used(Kind::Session), state.used(Kind::Chunk)), (0, 0));
    });
}

#[test]
fn sessions_that_end_with_running_requests_count_until_they_are_freed() {
    with_state(|state, host| {
        let known = state.exchange_id(host, NOW, exchange("a", 1)).expect("a client");
        let mut running = Vec::new();
        for sequence in 1..=4 {
            let made = state.create_session(host, NOW, &session_args(known.client, sequence));
            let session = made.expect("within the bound").session;
            running.push(run(state, host, NOW, &request(session, 0, 1)));
            state.destroy_session(host, NOW, session).expect("a session");
        }
        state.tick(host, NOW).expect("nothing to free");
        let more = state.create_session(host, NOW, &session_args(known.client, 5));
        assert_eq!(more, Err(Error::ClientLimit(Kind::Session)));
        let (_, other) = join(state, host, NOW, "b");
        let last = running.pop().expect("four");
        assert!(state.finish(host, &last, None));
        state.tick(host, NOW).expect("one is freed");
        state.create_session(host, NOW, &session_args(known.client, 6)).expect("in its place");
        // The client may end before its sessions, and another one gets its record.
        let again = state.exchange_id(host, NOW, exchange("a", 2)).expect("a restart");
        state.create_session(host, NOW, &session_args(again.client, 1)).expect("confirmed");
        state.tick(host, NOW).expect("the old client is freed");
        let reused = state.exchange_id(host, NOW, exchange("c", 1)).expect("a client");
        state.create_session(host, NOW, &session_args(reused.client, 1)).expect("a session");
        for ticket in running {
            assert!(state.finish(host, &ticket, None));
        }
        state.tick(host, NOW).expect("freed");
        assert_eq!(state.used(Kind::Session), 3);
        run(state, host, NOW, &request(other, 0, 1));
    });
}

#[test]
fn many_ended_sessions_that_are_in_use_do_not_hide_one_that_is_free() {
    let bounds = Bounds { clients: 512, sessions: 512, slots: 512 * 16, ..Bounds::small() };
    let config = Config { bounds, ..small_config() };
    let memory = memory(&config);
    let (state, host) = (create(&memory, &config), &SingleProcess);
    let end = |number: u32, is_running: bool| {
        let (_, session) = join(&state, host, NOW, &number.to_string());
        let ticket = is_running.then(|| run(&state, host, NOW, &request(session, 0, 1)));
        state.destroy_session(host, NOW, session).expect("a session");
        ticket
    };
    let running: Vec<Ticket> = (0..300).filter_map(|number| end(number, true)).collect();
    end(300, false);
    let mut ticks = 0;
    while state.used(Kind::Session) == 301 {
        state.tick(host, NOW).expect("a tick");
        ticks += 1;
        assert!(ticks < 20, "it is never looked at");
    }
    assert!(ticks > 1, "a bounded number is looked at each time");
    for ticket in running {
        assert!(state.finish(host, &ticket, None));
    }
    while state.used(Kind::Session) > 0 {
        state.tick(host, NOW).expect("a tick");
    }
    check(&state);
}

#[test]
fn an_id_of_an_earlier_arena_or_a_guess_is_no_session() {
    with_state(|state, host| {
        let (_, session) = join(state, host, NOW, "a");
        for byte in 0..16 {
            let mut other = session;
            other.0[byte] ^= 1;
            let refused = state.sequence(host, NOW, &request(other, 0, 1));
            assert_eq!(refused, Err(Error::BadSession), "byte {byte}");
        }
        assert_eq!(state.sequence(host, NOW, &request(session, 8, 1)), Err(Error::BadSlot));
    });
}

#[test]
fn the_whole_seed_decides_about_the_ids_of_sessions_and_half_of_an_id_is_secret() {
    let config = small_config();
    let session_of = |seed: u128| {
        let memory = memory(&config);
        let state = State::create(&memory, &config, 7, seed).expect("a new arena");
        state.begin_grace(&SingleProcess, NOW, &[]).expect("nothing to load");
        join(&state, &SingleProcess, NOW, "a").1.0
    };
    let first = session_of(5);
    assert_eq!(session_of(5), first, "all processes of an arena make the same");
    for seed in [4, 5 | 1 << 64, 5 | 1 << 127] {
        let other = session_of(seed);
        assert_eq!(other[..8], first[..8], "the place");
        let differ: u32 = other[8..].iter().zip(&first[8..]).map(|(one, two)| (one ^ two).count_ones()).sum();
        assert!((10..54).contains(&differ), "{differ} of 64 bits");
    }
}

#[test]
fn a_name_may_be_as_long_as_the_protocol_allows() {
    with_state(|state, host| {
        let name = "n".repeat(OWNER_BYTES_MAX);
        let (client, _) = join(state, host, NOW, &name);
        assert_eq!(state.exchange_id(host, NOW, exchange(&name, 1)).map(|known| known.client), Ok(client));
        let long = "n".repeat(OWNER_BYTES_MAX + 1);
        let refused = state.exchange_id(host, NOW, exchange(&long, 1));
        assert!(matches!(refused, Err(Error::TooLong(..))), "{refused:?}");
    });
}

#[test]
fn clients_that_never_renew_make_room_for_others_and_hurt_nobody() {
    with_state(|state, host| {
        let (_, session) = join(state, host, NOW, "busy");
        let bound = u64::from(state.bound(Kind::Client));
        let mut most = 0;
        for number in 0..1000 {
            let now = NOW + Duration::from_millis(500 * number);
            state
                .sequence(host, now, &request(session, 0, number as u32 + 1))
                .map(|sequence| {
                    let Sequence::Run(ticket) = sequence else { panic!("{sequence:?}") };
                    assert!(state.finish(host, &ticket, None));
                })
                .expect("the busy client is served");
            state.exchange_id(host, now, exchange(&format!("silent {number}"), 1)).expect("a client id");
            state.tick(host, now).expect("a tick");
            most = most.max(state.used(Kind::Client));
        }
        assert_eq!(most, bound / 4 + 1, "those that are not confirmed have a quarter of the places");
    });
}

/// Bounds with as many sessions as clients.
fn roomy() -> Config {
    Config { bounds: Bounds { slots: 1024, ..Bounds::small() }, ..small_config() }
}

#[test]
fn whoever_only_asks_for_client_ids_keeps_nobody_out() {
    let config = roomy();
    let memory = memory(&config);
    let (state, host) = (&create(&memory, &config), &SingleProcess);
    for number in 0..1000 {
        state.exchange_id(host, NOW, exchange(&format!("flood {number}"), 1)).expect("a client id");
    }
    for number in 0..40 {
        join(state, host, NOW, &number.to_string());
    }
    let (client, last) = join(state, host, NOW, "last");
    run(state, host, NOW, &request(last, 0, 1));
    assert!(state.client(host, NOW, client).is_ok());
    check(state);
}

#[test]
fn a_full_table_of_clients_gives_the_place_of_one_that_is_not_confirmed() {
    let bounds = Bounds { clients: 8, ..roomy().bounds };
    let config = Config { bounds, ..small_config() };
    let memory = memory(&config);
    let (state, host) = (create(&memory, &config), &SingleProcess);
    for number in 0..6 {
        join(&state, host, NOW, &number.to_string());
    }
    for number in 0..20 {
        state.exchange_id(host, NOW, exchange(&format!("flood {number}"), 1)).expect("a client id");
    }
    join(&state, host, NOW, "seventh");
    join(&state, host, NOW, "eighth");
    let full = state.exchange_id(host, NOW, exchange("ninth", 1));
    assert_eq!(full, Err(Error::Full(Kind::Client)), "all are confirmed, and their leases run");
    check(&state);
}

#[test]
fn hosts_of_nlm_are_half_of_the_clients_at_most() {
    let config = roomy();
    let memory = memory(&config);
    let (state, host) = (&create(&memory, &config), &SingleProcess);
    let name = |number: u32| number.to_string().into_bytes();
    let lock = |host_name: &[u8], offset| {
        let lock = NlmLock { host: host_name, owner: b"o", file: b"f", offset, length: 1, exclusive: true };
        state.nlm_lock(host, NOW, &lock, NlmHow::default())
    };
    for number in 0..32 {
        lock(&name(number), u64::from(number)).expect("within the bound");
    }
    assert_eq!(lock(b"more", 99), Err(Error::HostLimit));
    for number in 0..30 {
        join(state, host, NOW, &format!("client {number}"));
    }
    state.nlm_forget(host, NOW, |host| host == name(0)).expect("it has restarted");
    lock(b"more", 99).expect("in its place");
    check(state);
}

#[test]
fn a_search_for_room_in_vain_is_not_repeated_and_a_favour_drops_no_client() {
    let bounds = Bounds { opens: 2, delegations: 1, ..roomy().bounds };
    let config = Config { bounds, ..small_config() };
    let memory = memory(&config);
    let (state, host) = (create(&memory, &config), &SingleProcess);
    let mut silent = Member::join(&state, host, NOW, "silent");
    state.bind_back(host, NOW, silent.session).expect("a session");
    silent.open(&state, NOW, "f", READ, 0).expect("open");
    let delegate = |member: &mut Member, now, file: &[u8]| {
        member.act(&state, host, now, |ticket| state.delegate(host, now, ticket, file)).expect("no error")
    };
    assert!(delegate(&mut silent, NOW, b"f").is_some());
    let late = NOW + seconds(100);
    let mut idle = Vec::new();
    for number in 0..20 {
        idle.push(Member::join(&state, host, NOW, &format!("idle {number}")));
    }
    let mut two = Member::join(&state, host, late, "two");
    state.bind_back(host, late, two.session).expect("a session");
    two.open(&state, late, "g", READ, 0).expect("open");
    assert_eq!(delegate(&mut two, late, b"g"), None, "the table is full");
    assert!(state.client(host, late, silent.client).is_ok(), "and stays so: nobody is dropped for it");
    two.open(&state, late, "h", READ, 0).expect("in place of the silent client's open");
    assert!(state.client(host, late, silent.client).is_err());
    assert_eq!(two.open(&state, late, "i", READ, 0), Err(Error::Full(Kind::Open)));
    let next = state.arena.words.load(crate::layout::head::EXPIRY + Kind::Open as usize);
    assert!(next > late.as_millis() as u64, "no search before a lease may have ended");
    drop(idle);
    check(&state);
}

#[test]
fn leases_are_renewed_by_requests_that_succeed_and_end_otherwise() {
    with_state(|state, host| {
        let (client, session) = join(state, host, NOW, "a");
        let later = NOW + seconds(80);
        run(state, host, later, &request(session, 0, 1));
        state.tick(host, NOW + seconds(150)).expect("a tick");
        assert!(state.client(host, NOW, client).is_ok(), "renewed");
        let late = NOW + seconds(169);
        assert_eq!(state.sequence(host, late, &request(session, 0, 9)), Err(Error::SeqMisordered));
        state.tick(host, NOW + seconds(171)).expect("a tick");
        assert_eq!(state.client(host, NOW, client), Err(Error::StaleClientId), "an error renews nothing");
        assert_eq!(state.used(Kind::Session), 1, "its request is still running");
    });
}

#[test]
fn sessions_that_have_ended_do_not_count_against_their_client() {
    with_state(|state, host| {
        let (client, mut session) = join(state, host, NOW, "client");
        for sequence in 2..100 {
            state.destroy_session(host, NOW, session).expect("a session");
            let made = state.create_session(host, NOW, &session_args(client, sequence));
            session = made.expect("room for one").session;
        }
    });
}
