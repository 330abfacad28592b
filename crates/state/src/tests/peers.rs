//! What the clients of one address have together.

use super::consistency::check;
use super::*;
use std::net::{Ipv4Addr, Ipv6Addr};

const NOW: Duration = Duration::from_secs(1000);
const HOST: SingleProcess = SingleProcess;
const CROWD: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

fn with_room(test: impl FnOnce(&State<&HeapWords>)) {
    let bounds = Bounds { slots: 2048, ..Bounds::small() };
    let config = Config { bounds, ..small_config() };
    let memory = memory(&config);
    let state = create(&memory, &config);
    test(&state);
    check(&state);
}

fn ask(state: &State<&HeapWords>, now: Duration, name: &str, peer: IpAddr) -> ExchangeId {
    let args = ExchangeIdArgs { peer: Some(peer), ..exchange(name, 1) };
    state.exchange_id(&HOST, now, args).expect("a client id")
}

fn confirm(
    state: &State<&HeapWords>,
    now: Duration,
    client: ClientId,
    sequence: u32,
) -> Result<SessionId, Error> {
    state.create_session(&HOST, now, &session_args(client, sequence)).map(|made| made.session)
}

fn join_from(state: &State<&HeapWords>, now: Duration, name: &str, peer: IpAddr) -> Result<Member, Error> {
    let client = ask(state, now, name, peer).client;
    let session = confirm(state, now, client, 1)?;
    let mut member = Member { client, session, sequence: 0 };
    member.act(state, &HOST, now, |ticket| state.reclaim_complete(&HOST, now, ticket))?;
    state.persisted(&HOST, now, client)?;
    Ok(member)
}

#[test]
fn an_address_that_asks_for_many_ids_takes_none_of_others() {
    with_room(|state| {
        let others = ask(state, NOW, "other", OTHER);
        let mut last = None;
        for number in 0..100 {
            last = Some(ask(state, NOW, &format!("flood {number}"), CROWD));
            state.tick(&HOST, NOW).expect("freed");
            check(state);
        }
        // A quarter of the clients may be unconfirmed, and an address has a quarter of that.
        assert_eq!(state.used(Kind::Client) - 1, 4, "and those that ended are freed");
        confirm(state, NOW, others.client, 1).expect("its id is still good");
        confirm(state, NOW, last.expect("an id").client, 1).expect("the newest is too");
    });
}

#[test]
fn an_address_has_a_part_of_the_clients_and_the_silent_of_its_own_give_way() {
    with_room(|state| {
        let mut clients = Vec::new();
        for number in 0..16 {
            clients
                .push(join_from(state, NOW, &format!("client {number}"), CROWD).expect("within the bound"));
        }
        let more = join_from(state, NOW, "more", CROWD);
        assert_eq!(more.map(drop), Err(Error::PeerLimit(Kind::Client)));
        let mut other = join_from(state, NOW, "other", OTHER).expect("another address");
        other.open(state, NOW, "f", READ, 0).expect("open");
        // One that ends makes room at once.
        state.destroy_session(&HOST, NOW, clients[0].session).expect("a session");
        state.destroy_client_id(&HOST, NOW, clients[0].client).expect("a client");
        join_from(state, NOW, "in its place", CROWD).expect("room");
        // So does one whose lease has ended, but not one of another address.
        let later = NOW + seconds(91);
        join_from(state, later, "later", CROWD).expect("room");
        assert_eq!(other.open(state, later, "g", READ, 0).map(|id| id.seqid), Ok(1), "still there");
    });
}

#[test]
fn an_address_has_a_part_of_the_sessions_and_their_memory() {
    with_room(|state| {
        let mut sessions = Vec::new();
        let mut refused = None;
        for number in 0..8 {
            let client = ask(state, NOW, &format!("client {number}"), CROWD).client;
            for sequence in 1..=4 {
                match confirm(state, NOW, client, sequence) {
                    Ok(session) => sessions.push(session),
                    Err(error) => {
                        refused = refused.or(Some((sessions.len(), error)));
                        break;
                    }
                }
            }
        }
        assert_eq!(refused, Some((16, Error::PeerLimit(Kind::Session))), "a quarter of 64");
        join_from(state, NOW, "other", OTHER).expect("another address");
        state.destroy_session(&HOST, NOW, sessions[0]).expect("a session");
        let client = ask(state, NOW, "again", CROWD).client;
        confirm(state, NOW, client, 1).expect("room");
    });
}

#[test]
fn an_address_opens_and_locks_a_part() {
    with_room(|state| {
        let mut opened = 0;
        let mut refused = None;
        let mut members = Vec::new();
        for number in 0..4 {
            let mut member = join_from(state, NOW, &format!("client {number}"), CROWD).expect("a client");
            for file in 0..63 {
                match member.open(state, NOW, &format!("file {file}"), READ, 0) {
                    Ok(id) => {
                        opened += 1;
                        members.push((number, id));
                    }
                    Err(error) => refused = refused.or(Some(error)),
                }
            }
            if refused.is_some() {
                let mut other = join_from(state, NOW, "other", OTHER).expect("another address");
                other.open(state, NOW, "file 0", READ, 0).expect("open");
                let (_, id) = *members.iter().rev().find(|(of, _)| *of == number).expect("an open");
                member.close(state, NOW, id).expect("open");
                member.open(state, NOW, "file 62", READ, 0).expect("room for one");
                break;
            }
        }
        assert_eq!((opened, refused), (128, Some(Error::PeerLimit(Kind::Open))), "half of 256");
    });
}

#[test]
fn long_names_of_owners_count() {
    with_room(|state| {
        let mut member = join_from(state, NOW, "crowd", CROWD).expect("a client");
        let mut refused = None;
        for number in 0..30 {
            let owner = format!("{number:0>1024}");
            if let Err(error) = member.open_as(state, NOW, &owner, "f", READ, 0) {
                refused = refused.or(Some((number, error)));
            }
        }
        // 22 blocks each, of the half of 512.
        assert_eq!(refused, Some((11, Error::PeerLimit(Kind::Blob))));
        let mut other = join_from(state, NOW, "other", OTHER).expect("another address");
        other.open_as(state, NOW, &"o".repeat(1024), "f", READ, 0).expect("room");
    });
}

/// A client that restarts takes the place of its earlier incarnation, at any bound and whatever
/// that one had.
#[test]
fn a_client_that_restarts_does_not_count_twice() {
    with_room(|state| {
        let mut clients = Vec::new();
        for number in 0..16 {
            clients
                .push(join_from(state, NOW, &format!("client {number}"), CROWD).expect("within the bound"));
        }
        for file in 0..60 {
            clients[0].open(state, NOW, &format!("file {file}"), READ, 0).expect("open");
        }
        for verifier in 2..6 {
            let args = ExchangeIdArgs { peer: Some(CROWD), ..exchange("client 0", verifier) };
            let again = state.exchange_id(&HOST, NOW, args).expect("a client id");
            confirm(state, NOW, again.client, again.sequence).expect("its own place");
            check(state);
        }
        let more = join_from(state, NOW, "more", CROWD);
        assert_eq!(more.map(drop), Err(Error::PeerLimit(Kind::Client)), "the bound is what it was");
    });
}

#[test]
fn a_client_that_restarts_gets_the_session_of_its_earlier_incarnation() {
    with_room(|state| {
        let mut names = Vec::new();
        'all: for number in 0.. {
            let name = format!("client {number}");
            let client = ask(state, NOW, &name, CROWD).client;
            for sequence in 1..=4 {
                if confirm(state, NOW, client, sequence).is_err() {
                    break 'all;
                }
            }
            names.push(name);
        }
        assert_eq!(names.len(), 4, "a quarter of 64 sessions");
        let args = ExchangeIdArgs { peer: Some(CROWD), ..exchange(&names[1], 2) };
        let again = state.exchange_id(&HOST, NOW, args).expect("a client id");
        confirm(state, NOW, again.client, again.sequence).expect("a session");
    });
}

/// One host may have all addresses of its network.
#[test]
fn addresses_of_one_ipv6_network_are_one() {
    with_room(|state| {
        let address = |network: u16, host: u16| Ipv6Addr::new(0xfd00, 0, 0, network, 0, 0, 0, host).into();
        let others = ask(state, NOW, "other", address(2, 1));
        for number in 0..100 {
            ask(state, NOW, &format!("flood {number}"), address(1, number));
            state.tick(&HOST, NOW).expect("freed");
        }
        assert_eq!(state.used(Kind::Client) - 1, 4, "as from one address");
        confirm(state, NOW, others.client, 1).expect("its id is still good");
    });
}
