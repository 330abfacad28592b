//! Opens and locks of several clients. RFC 8881 s9

use super::client::{Client, after_sequence, put, start};
use nfs4::op::{self, Args, kind};
use nfs4::{Array, OwnerId, Range, StateOwner, Stateid, Status};

const ALL: Range = Range { offset: 0, length: Range::TO_THE_END };

// RFC 8881 s9.7
#[test]
fn an_open_may_deny_others_what_they_want() {
    let (_server, address) = start();
    let (mut one, mut other) = (Client::new(address, "one"), Client::new(address, "other"));
    let (file, open) = one.open("file", 3, 2).unwrap();
    assert_eq!(other.open("file", 2, 0), Err(Status::SHARE_DENIED));
    let (_, reading) = other.open("file", 1, 0).unwrap();
    assert_eq!(other.write(file, reading, 0, b"x"), Err(Status::OPENMODE));
    assert_eq!(other.write(file, Stateid::ANONYMOUS, 0, b"x"), Err(Status::LOCKED));
    assert_eq!(one.write(file, open, 0, b"x"), Ok(1));
    let down = op::close::DowngradeArgs { open, seqid: 0, access: 1, deny: 2 };
    let status = one.run(|to| _ = to.push(&put(file)).push(&Args::OpenDowngrade(down)));
    assert_eq!(status, Status::INVAL, "no open had that");
    assert_eq!(one.close(file, open), Status::OK);
    assert_eq!(other.write(file, Stateid::ANONYMOUS, 0, b"x"), Ok(1));
    assert_eq!(one.write(file, open, 0, b"x"), Err(Status::BAD_STATEID));
}

// RFC 8881 s18.10 to s18.12
#[test]
fn a_range_is_locked_by_one_owner_until_it_is_unlocked() {
    let (_server, address) = start();
    let (mut one, mut other) = (Client::new(address, "one"), Client::new(address, "other"));
    let (file, open) = one.open("file", 3, 0).unwrap();
    let (_, others) = other.open("file", 3, 0).unwrap();
    let range = |offset, length| Range { offset, length };
    let first = one.first(open, "holder");
    let held = one.lock(file, first, true, range(10, 10)).unwrap();
    let theirs = other.first(others, "waiter");
    assert_eq!(other.lock(file, theirs, false, range(19, 1)), Err(Status::DENIED));
    assert_eq!(other.lock(file, theirs, true, range(0, 0)), Err(Status::INVAL));
    assert!(other.lock(file, theirs, true, range(20, 5)).is_ok());

    let owner = StateOwner { client: other.id, owner: OwnerId::new(b"waiter").unwrap() };
    let test = op::lock::TestArgs { lock_type: op::lock::LockType::Read, range: ALL, owner };
    let results = other.send(|to| _ = to.push(&put(file)).push(&Args::LockT(test)));
    let mut reader = after_sequence(&results);
    reader.expect::<kind::PutFh>().unwrap().unwrap();
    match reader.expect::<kind::LockT>().unwrap() {
        op::lock::Outcome::Denied(conflict) => {
            assert_eq!((conflict.range, conflict.owner.owner.as_slice()), (range(10, 10), &b"holder"[..]));
        }
        other => panic!("{other:?}"),
    }

    let unlock = |lock| {
        let lock_type = op::lock::LockType::Write;
        Args::LockU(op::lock::UnlockArgs { lock_type, seqid: 0, lock, range: range(10, 5) })
    };
    assert_eq!(one.run(|to| _ = to.push(&put(file)).push(&unlock(held))), Status::OK);
    assert!(other.lock(file, theirs, true, range(10, 5)).is_ok());
    assert_eq!(one.run(|to| _ = to.push(&put(file)).push(&unlock(held))), Status::OLD_STATEID);
    // The locks end with the open.
    assert_eq!(one.close(file, open), Status::OK);
    assert!(other.lock(file, theirs, true, ALL).is_ok());
}

// RFC 8881 s18.48, s18.38
#[test]
fn stateids_are_tested_and_freed() {
    let (_server, address) = start();
    let mut client = Client::new(address, "test");
    let (file, open) = client.open("file", 3, 0).unwrap();
    let unknown = Stateid { seqid: 1, other: [5; 12] };
    let asked = [open, Stateid { seqid: 9, ..open }, unknown, Stateid::ANONYMOUS];
    let args = Args::TestStateid(op::stateid::TestArgs { stateids: Array::from(&asked) });
    let results = client.send(|to| _ = to.push(&args));
    let tested = after_sequence(&results).expect::<kind::TestStateid>().unwrap().unwrap();
    let bad = Status::BAD_STATEID;
    assert_eq!(tested.statuses.iter().collect::<Vec<_>>(), [Status::OK, bad, bad, bad]);
    let free = |stateid| Args::FreeStateid(op::stateid::FreeArgs { stateid });
    assert_eq!(client.run(|to| _ = to.push(&free(open))), Status::LOCKS_HELD);
    assert_eq!(client.close(file, open), Status::OK);
    assert_eq!(client.run(|to| _ = to.push(&free(open))), Status::BAD_STATEID);
}
