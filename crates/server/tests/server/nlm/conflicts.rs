//! Locks of several hosts, and of clients of version 4. RFC 1813 s6.3

use super::host::{Host, Services, Wanted, bytes, start};
use crate::nfs4::client::{Client, config_with_4, start_with};
use crate::nfs4::delegations::Holder;
use nfs4::{Range, Status as Status4};
use nlm::{Procedure, Status};
use server::Config;

#[test]
fn a_range_is_locked_by_one_owner_until_it_is_unlocked() {
    let services = Services::start(false);
    let (server, address) = start(&services);
    assert!(server.serves_nlm());
    let (mut one, mut other) = (Host::new(address, "one"), Host::new(address, "other"));
    let file = one.file("file");
    assert_eq!(one.lock(&file, 1, bytes(10, 10)), Status::GRANTED);
    assert_eq!(one.lock(&file, 1, bytes(10, 10)), Status::GRANTED, "again, as after a lost reply");
    assert_eq!(one.lock(&file, 2, bytes(19, 1)), Status::DENIED, "another process of the host");
    assert_eq!(other.lock(&file, 1, bytes(19, 1)), Status::DENIED, "another host");
    assert_eq!(other.lock(&file, 1, bytes(20, 5)), Status::GRANTED);
    assert_eq!(other.test(&file, 1, bytes(0, 0)), Err((1, 10, 10)));
    assert_eq!(other.test(&file, 1, bytes(20, 0)), Ok(()), "its own");
    assert_eq!(one.unlock(&file, 1, bytes(0, 15)), Status::GRANTED);
    assert_eq!(other.lock(&file, 1, bytes(10, 5)), Status::GRANTED);
    assert_eq!(other.lock(&file, 1, bytes(15, 5)), Status::DENIED, "the other half is locked");
    assert_eq!(one.unlock(&file, 1, bytes(0, 0)), Status::GRANTED);
    assert_eq!(one.unlock(&file, 1, bytes(0, 0)), Status::GRANTED, "nothing is locked any more");
    assert_eq!(other.lock(&file, 1, bytes(0, 0)), Status::GRANTED);
}

#[test]
fn readers_share_and_exclude_writers() {
    let services = Services::start(false);
    let (_server, address) = start(&services);
    let (mut one, mut other) = (Host::new(address, "one"), Host::new(address, "other"));
    let file = one.file("file");
    let shared = Wanted { exclusive: false, ..bytes(0, 10) };
    assert_eq!(one.lock(&file, 1, shared), Status::GRANTED);
    assert_eq!(other.nm_lock(&file, 1, shared), Status::GRANTED);
    assert_eq!(one.lock(&file, 1, bytes(0, 10)), Status::DENIED, "the other reads");
    assert_eq!(other.test(&file, 1, bytes(5, 1)), Err((1, 0, 10)));
    assert_eq!(other.unlock(&file, 1, shared), Status::GRANTED);
    assert_eq!(one.lock(&file, 1, bytes(0, 10)), Status::GRANTED);
    assert_eq!(other.lock(&file, 1, shared), Status::DENIED);
}

#[test]
fn locks_of_versions_3_and_4_exclude_each_other() {
    let services = Services::start(false);
    let (_server, address) = start_with(Config { clients_rpcbind: services.port, ..config_with_4() });
    let (mut host, mut client) = (Host::new(address, "host"), Client::new(address, "client"));
    let (file, open) = client.open("file", 3, 0).unwrap();
    let handle = host.file("file");
    assert_eq!(handle, file.as_slice(), "the same handle");
    let range = |offset, length| Range { offset, length };
    assert_eq!(host.lock(&handle, 7, bytes(0, 10)), Status::GRANTED);
    let locker = client.first(open, "locker");
    assert_eq!(client.lock(file, locker, false, range(9, 1)), Err(Status4::DENIED));
    let held = client.lock(file, locker, true, range(10, 10)).unwrap();
    assert_eq!(host.lock(&handle, 7, bytes(0, 0)), Status::DENIED);
    assert_eq!(host.test(&handle, 7, bytes(0, 0)), Err((0, 10, 10)), "a client of version 4 has no process");
    let known = nfs4::op::lock::Locker::Existing { lock: held, lock_seqid: 0 };
    assert_eq!(host.unlock(&handle, 7, bytes(0, 10)), Status::GRANTED);
    assert!(client.lock(file, known, true, range(0, 10)).is_ok());
    assert_eq!(client.close(file, open), Status4::OK);
    assert_eq!(host.lock(&handle, 7, bytes(0, 0)), Status::GRANTED, "they end with their open");
}

/// RFC 8881 s10.4: a client with a delegation locks for reading by itself.
#[test]
fn an_exclusive_lock_waits_until_a_delegation_is_returned() {
    let services = Services::start(false);
    let (_server, address) = start_with(Config { clients_rpcbind: services.port, ..config_with_4() });
    let (mut host, mut holder) = (Host::new(address, "host"), Holder::new(address, "holder"));
    let opened = holder.delegated("file");
    // The same in both versions.
    let handle = opened.file.as_slice().to_vec();
    let shared = Wanted { exclusive: false, ..bytes(0, 10) };
    assert_eq!(host.lock(&handle, 1, shared), Status::GRANTED, "both read");
    let both = (Status::DENIED_GRACE_PERIOD, Status::GRANTED);
    holder.conflicts("LOCK", &opened, both, || host.lock(&handle, 7, bytes(20, 10)));
}

#[test]
fn reservations_are_refused() {
    let services = Services::start(false);
    let (_server, address) = start(&services);
    let mut host = Host::new(address, "host");
    let file = host.file("file");
    assert_eq!(host.share(Procedure::Share, &file), Status::FAILED);
    assert_eq!(host.share(Procedure::Unshare, &file), Status::FAILED);
}

#[test]
fn a_host_that_has_restarted_or_frees_all_has_no_locks_and_others_keep_theirs() {
    let services = Services::start(false);
    let (_server, address) = start(&services);
    let (mut one, mut other) = (Host::new(address, "one"), Host::new(address, "other"));
    let file = one.file("file");
    for (says, at) in [("notify", 0), ("free_all", 100)] {
        assert_eq!(one.lock(&file, 1, bytes(at, 10)), Status::GRANTED);
        assert_eq!(other.lock(&file, 1, bytes(at + 10, 10)), Status::GRANTED);
        match says {
            // As Linux says it: with its domain.
            "notify" => other.notify("one.example.org"),
            _ => other.free_all("one"),
        }
        assert_eq!(other.lock(&file, 1, bytes(at, 10)), Status::GRANTED, "{says}");
        assert_eq!(
            one.lock(&file, 1, bytes(at + 10, 10)),
            Status::DENIED,
            "{says}: the other's are still held"
        );
    }
    one.notify("nobody");
    assert_eq!(one.lock(&file, 1, bytes(0, 10)), Status::DENIED);
}

#[test]
fn without_nlm_the_programs_are_not_served() {
    let services = Services::start(false);
    let off = Config { nlm: false, ..super::host::config_of(&services) };
    let only_4 = Config { versions: "4.2".parse().unwrap(), ..super::host::config_of(&services) };
    for config in [off, only_4] {
        let (server, address) = start_with(config);
        assert!(!server.serves_nlm());
        let mut host = Host::new(address, "host");
        for program in [nlm::PROGRAM, nlm::nsm::PROGRAM] {
            let (body, _) = host.peer.call_any(program, 1, 0, &[]);
            assert_eq!(body, rpc::reply::Body::Accepted(rpc::reply::Accept::ProgUnavail));
        }
    }
}
