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
            let args = ExchangeIdArgs { owner: b"owner", verifier, principal, update };
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
        let thief = ExchangeIdArgs { owner: b"a", verifier: 1, principal: 99, update: false };
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
    });
}

#[test]
fn attributes_are_granted_up_to_the_limits_and_the_memory() {
    with_state(|state, host| {
        let known = state.exchange_id(host, NOW, exchange("a", 1)).expect("a client");
        let mut args = session_args(known.client, 1);
        args.asked = channels(1000);
        args.limits.fore.operations = 4;
        let granted = state.create_session(host, NOW, &args).expect("a session").granted;
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
        let mut refused = 0;
        for number in 0..1000 {
            let now = NOW + Duration::from_millis(500 * number);
            state
                .sequence(host, now, &request(session, 0, number as u32 + 1))
                .map(|sequence| {
                    let Sequence::Run(ticket) = sequence else { panic!("{sequence:?}") };
                    assert!(state.finish(host, &ticket, None));
                })
                .expect("the busy client is served");
            match state.exchange_id(host, now, exchange(&format!("silent {number}"), 1)) {
                Ok(_) => {}
                Err(Error::Full(Kind::Client)) => refused += 1,
                Err(other) => panic!("{other}"),
            }
            assert!(state.used(Kind::Client) <= bound);
        }
        // 63 places, each for a lease of 90 seconds: two calls a second are too many.
        assert!((500..700).contains(&refused), "{refused} refused");
    });
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
