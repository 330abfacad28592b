//! Requests that wait: BLOCKED, then GRANTED; CANCEL; hosts that do not answer. RFC 1813 s6.3.2 to
//! s6.3.5

use super::host::{COOKIE, Called, Host, Services, Wanted, bytes, decoded, encoded, start};
use crate::nfs4::client::{Client, config_with_4, start_with};
use crate::peer::eventually;
use nfs4::{Range, Status as Status4};
use nlm::proc::{Reply, test};
use nlm::{NetObj, Procedure, Status};
use server::Config;

/// The lock that a call of GRANTED is about.
fn granted(called: &Called) -> test::Args<'_> {
    assert_eq!((called.program, called.procedure), (nlm::PROGRAM, Procedure::Granted.number()));
    decoded(&called.args)
}

#[test]
fn a_request_that_waits_is_called_back_when_it_has_its_lock() {
    for over_tcp in [false, true] {
        let services = Services::start(over_tcp);
        let (_server, address) = start(&services);
        let (mut one, mut other) = (Host::new(address, "one"), Host::new(address, "other"));
        let file = one.file("file");
        assert_eq!(one.lock(&file, 1, bytes(0, 0)), Status::GRANTED);
        assert_eq!(other.wait(&file, 2, bytes(5, 10)), Status::BLOCKED);
        assert_eq!(other.wait(&file, 2, bytes(5, 10)), Status::BLOCKED, "it asks again");
        assert_eq!(one.unlock(&file, 1, bytes(0, 0)), Status::GRANTED);
        let called = services.next();
        assert_eq!(called.over_tcp, over_tcp);
        let lock = granted(&called);
        assert!(lock.exclusive);
        // As it was asked for: a client finds its request by that.
        assert_eq!(lock.lock, other.lock_of(&file, 2, bytes(5, 10)));
        assert_eq!(one.lock(&file, 1, bytes(14, 1)), Status::DENIED, "the other has it");
        assert_eq!(one.lock(&file, 1, bytes(15, 1)), Status::GRANTED);
        assert_eq!(
            other.lock(&file, 2, bytes(5, 10)),
            Status::GRANTED,
            "a client that asks again has it too"
        );
        assert_eq!(other.unlock(&file, 2, bytes(5, 10)), Status::GRANTED);
        assert_eq!(one.lock(&file, 1, bytes(0, 0)), Status::GRANTED);
    }
}

#[test]
fn those_who_wait_get_their_locks_in_turn() {
    let services = Services::start(false);
    let (_server, address) = start(&services);
    let mut host = Host::new(address, "host");
    let file = host.file("file");
    assert_eq!(host.lock(&file, 1, bytes(0, 10)), Status::GRANTED);
    for svid in 2..5 {
        assert_eq!(host.wait(&file, svid, bytes(0, 10)), Status::BLOCKED);
    }
    for svid in 1..4 {
        assert_eq!(host.unlock(&file, svid, bytes(0, 10)), Status::GRANTED);
        assert_eq!(granted(&services.next()).lock.svid, svid + 1);
    }
}

#[test]
fn who_waits_for_a_client_of_version_4_is_called_back_too() {
    let services = Services::start(false);
    let (_server, address) = start_with(Config { clients_rpcbind: services.port, ..config_with_4() });
    let (mut host, mut client) = (Host::new(address, "host"), Client::new(address, "client"));
    let (file, open) = client.open("file", 3, 0).unwrap();
    let handle = host.file("file");
    let locker = client.first(open, "locker");
    client.lock(file, locker, true, Range { offset: 0, length: Range::TO_THE_END }).unwrap();
    let to_the_end = Wanted { exclusive: false, ..bytes(100, 0) };
    assert_eq!(host.wait(&handle, 3, to_the_end), Status::BLOCKED);
    assert_eq!(client.close(file, open), Status4::OK);
    let called = services.next();
    let lock = granted(&called);
    assert!(!lock.exclusive);
    assert_eq!(lock.lock, host.lock_of(&handle, 3, to_the_end));
}

#[test]
fn a_request_that_is_cancelled_does_not_wait_any_more() {
    let services = Services::start(false);
    let (_server, address) = start(&services);
    let (mut one, mut other) = (Host::new(address, "one"), Host::new(address, "other"));
    let file = one.file("file");
    assert_eq!(one.lock(&file, 1, bytes(0, 10)), Status::GRANTED);
    assert_eq!(other.wait(&file, 2, bytes(0, 10)), Status::BLOCKED);
    assert_eq!(other.wait(&file, 3, bytes(0, 10)), Status::BLOCKED);
    assert_eq!(other.cancel(&file, 2, bytes(0, 11)), Status::DENIED, "nobody waits for that");
    assert_eq!(other.cancel(&file, 2, bytes(0, 10)), Status::GRANTED);
    assert_eq!(other.cancel(&file, 2, bytes(0, 10)), Status::DENIED, "it is cancelled");
    assert_eq!(one.unlock(&file, 1, bytes(0, 10)), Status::GRANTED);
    assert_eq!(granted(&services.next()).lock.svid, 3, "the one behind it");
}

#[test]
fn a_lock_that_its_host_does_not_want_any_more_is_freed() {
    let services = Services::start(false);
    let (_server, address) = start(&services);
    let (mut one, mut other) = (Host::new(address, "one"), Host::new(address, "other"));
    let file = one.file("file");
    assert_eq!(one.lock(&file, 1, bytes(0, 10)), Status::GRANTED);
    assert_eq!(other.wait(&file, 2, bytes(0, 10)), Status::BLOCKED);
    services.answer(Status::DENIED);
    assert_eq!(one.unlock(&file, 1, bytes(0, 10)), Status::GRANTED);
    assert_eq!(granted(&services.next()).lock.svid, 2);
    eventually("the lock to be free", || one.lock(&file, 1, bytes(0, 10)) == Status::GRANTED);
}

#[test]
fn a_host_that_does_not_answer_loses_its_turn_and_keeps_no_others_from_theirs() {
    let services = Services::start(false);
    let (_server, address) = start(&services);
    let (mut one, mut other) = (Host::new(address, "one"), Host::new(address, "other"));
    let file = one.file("file");
    assert_eq!(one.lock(&file, 1, bytes(0, 10)), Status::GRANTED);
    assert_eq!(other.wait(&file, 2, bytes(0, 10)), Status::BLOCKED);
    services.fall_silent();
    assert_eq!(one.unlock(&file, 1, bytes(0, 10)), Status::GRANTED);
    assert_eq!(one.lock(&file, 1, bytes(0, 10)), Status::DENIED, "it is the other's turn");
    eventually("the lock to be free", || {
        std::thread::sleep(std::time::Duration::from_millis(20));
        one.lock(&file, 1, bytes(0, 10)) == Status::GRANTED
    });
}

#[test]
fn messages_are_answered_by_calls() {
    let services = Services::start(false);
    let (_server, address) = start(&services);
    let mut host = Host::new(address, "host");
    let file = host.file("file");
    let lock = host.lock_args(&file, 1, bytes(0, 10), false, false);
    assert!(host.call(Procedure::LockMsg, &lock).is_empty());
    let called = services.next();
    assert_eq!((called.program, called.procedure), (nlm::PROGRAM, Procedure::LockRes.number()));
    let expected = Reply { cookie: NetObj(COOKIE), status: Status::GRANTED };
    assert_eq!(decoded::<Reply<'_>>(&called.args), expected);
    let denied = host.test_args(&file, 2, bytes(3, 1));
    assert!(host.call(Procedure::TestMsg, &denied).is_empty());
    let called = services.next();
    assert_eq!(called.procedure, Procedure::TestRes.number());
    match decoded::<test::Reply<'_>>(&called.args).outcome {
        test::Outcome::Denied(holder) => assert_eq!((holder.svid, holder.length), (1, 10)),
        test::Outcome::Other(status) => panic!("{status}"),
    }
    let unlock = encoded(&nlm::proc::unlock::Args {
        cookie: NetObj(COOKIE),
        lock: host.lock_of(&file, 1, bytes(0, 10)),
    });
    assert!(host.call(Procedure::UnlockMsg, &unlock).is_empty());
    assert_eq!(services.next().procedure, Procedure::UnlockRes.number());
    assert_eq!(host.test(&file, 2, bytes(3, 1)), Ok(()));
    // The answer to a call that this server does not make as a message.
    assert!(host.call(Procedure::GrantedRes, &encoded(&expected)).is_empty());
}
