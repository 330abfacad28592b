//! Damaged or foreign group files, and members that end at inconvenient points. Each member has its
//! own open file description, as each process has.

use super::file::checksum;
use super::layout::{
    BOOT_AT, CHANGE_LOCK, CHECKSUM_AT, CLIENTS_AT, EXPORTS_AT, GENERATION_AT, MAGIC_AT, MEMBERS_AT, SEED_AT,
    VERSION_AT, WINDOWS_AT, WORD, member_lock,
};
use super::*;
use drc::shared::{Host, MEMBERS_MAX, SharedBegin, Start, TABLE_WORDS};
use drc::{ADDRESS_WINDOWS_MAX, CallKey, ConnectionId, ForeignCall, LookupContext, Origin, Outcome, Stored};
use rpc::Xid;
use rpc::call::CallHeader;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
const NOW: Duration = Duration::from_secs(100_000);
const WHOLE: Xid = Xid(0x8000_0001);

struct Fixture(tempfile::TempDir);

impl Fixture {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("group")
    }

    fn join(&self) -> Result<SharedReplyCache, GroupError> {
        let export = ExportIdentity { fsid: 1, fingerprint: 5, path: "/e".to_owned(), verifier: 9 };
        SharedReplyCache::join(&self.path(), &[export], None)
    }

    fn file(&self) -> std::fs::File {
        std::fs::File::options().read(true).write(true).open(self.path().join("replies")).unwrap()
    }

    /// Changes a word of the head, and updates the code over the head if `sound`.
    fn put_in_head(&self, at: usize, value: u64, sound: bool) {
        let file = self.file();
        file.write_all_at(&value.to_ne_bytes(), (at * WORD) as u64).unwrap();
        if sound {
            let head: Vec<u64> = (0..CHECKSUM_AT).map(|at| read(&file, at)).collect();
            file.write_all_at(&checksum(&head).to_ne_bytes(), (CHECKSUM_AT * WORD) as u64).unwrap();
        }
    }
}

fn read(file: &std::fs::File, at: usize) -> u64 {
    let mut bytes = [0; WORD];
    file.read_exact_at(&mut bytes, (at * WORD) as u64).unwrap();
    u64::from_ne_bytes(bytes)
}

fn call(xid: u32) -> ForeignCall {
    let header = CallHeader {
        xid: Xid(xid),
        program: 100_003,
        version: 3,
        procedure: 12,
        credential_flavor: 1,
        credential_body: b"somebody",
    };
    let key = CallKey::new(&header, 17, HERE);
    ForeignCall { key, origin: Origin { connection: ConnectionId::NONE, path: 1 } }
}

fn context(member: &SharedReplyCache) -> LookupContext<'_> {
    LookupContext::new(member.connections(), NOW, NOW)
}

/// Executes a call of one of our own clients.
fn execute(member: &SharedReplyCache, id: u64, xid: Xid) {
    let client = member.client(id, HERE, NOW).unwrap();
    assert_eq!((client.begin(xid, NOW), client.start(xid)), (SharedBegin::Run, Start::Fresh));
    client.finish(xid, Outcome::Reply(b"done"));
}

fn knows(member: &SharedReplyCache, id: u64, xid: Xid) -> bool {
    let done = SharedBegin::Replay(Stored::Reply(b"done"[..].into()));
    member.client(id, HERE, NOW).unwrap().begin(xid, NOW) == done
}

#[test]
fn a_member_that_ended_is_dead_and_its_slot_is_used_again() {
    let fixture = Fixture::new();
    let first = fixture.join().unwrap();
    let (second, was) = (fixture.join().unwrap(), first.host().me());
    assert!(second.host().is_alive(was) && second.host().is_alive(second.host().me()));
    execute(&first, 7, WHOLE);
    drop(first);
    assert!(!second.host().is_alive(was));
    let again = fixture.join().unwrap();
    assert_eq!(again.host().me().member, was.member);
    assert!(!second.host().is_alive(was), "a successor does not bring it back to life");
    assert!(knows(&second, 7, WHOLE) && knows(&again, 7, WHOLE));
    drop((second, again));
    assert!(knows(&fixture.join().unwrap(), 7, WHOLE), "the file outlives all of them");
}

#[test]
fn two_loops_of_an_older_or_a_newer_client_never_share_a_window() {
    let fixture = Fixture::new();
    let (first, second) = (fixture.join().unwrap(), fixture.join().unwrap());
    // Two loops that an older client numbers by the last 8 bits, and loops of newer clients whose
    // random identities end in the same bits.
    let loops =
        [0x0123_4567_89ab_cd01, 0x0123_4567_89ab_cd02, 0xfedc_ba98_7654_3201, 0xfedc_ba98_89ab_cd01_u64];
    // Each loop has its own xid space: the same xid is a different call, on each process.
    for id in loops {
        execute(&first, id, WHOLE);
    }
    for id in loops {
        assert!(knows(&first, id, WHOLE) && knows(&second, id, WHOLE), "{id:x}");
        execute(&second, id, Xid(WHOLE.0 + 1));
    }
}

#[test]
fn a_call_that_a_member_died_in_is_in_doubt_with_its_neighbour() {
    let fixture = Fixture::new();
    let (first, second) = (fixture.join().unwrap(), fixture.join().unwrap());
    let table = first.table();
    let (begin, at) = table.begin(first.host(), &call(1), &context(&first));
    assert_eq!((begin, table.start(first.host(), &call(1), at)), (SharedBegin::Run, Start::Fresh));
    assert_eq!(second.table().begin(second.host(), &call(1), &context(&second)).0, SharedBegin::Running);
    drop(first);
    let (begin, at) = second.table().begin(second.host(), &call(1), &context(&second));
    assert_eq!(
        (begin, second.table().start(second.host(), &call(1), at)),
        (SharedBegin::Run, Start::InDoubt)
    );
}

#[test]
fn a_stopped_holder_of_the_change_lock_delays_only_new_members() {
    let fixture = Fixture::new();
    let member = fixture.join().unwrap();
    let known = member.client(7, HERE, NOW).unwrap();
    let holder = fixture.file();
    assert!(members::try_lock(holder.as_fd(), CHANGE_LOCK).unwrap());
    assert!(member.client(8, HERE, NOW).is_none(), "a newcomer is turned away, and not kept waiting");
    assert_eq!(known.begin(WHOLE, NOW), SharedBegin::Run);
    assert!(member.client(7, HERE, NOW).is_some());
    // It ends, however it does.
    drop(holder);
    assert!(member.client(8, HERE, NOW).is_some());
    assert!(fixture.join().is_ok());
}

#[test]
fn a_file_of_another_version_or_host_is_recreated_unless_a_process_uses_it() {
    for (at, is) in [(VERSION_AT, "version"), (BOOT_AT, "host")] {
        let fixture = Fixture::new();
        let member = fixture.join().unwrap();
        execute(&member, 7, WHOLE);
        // Version 1 knew no neighbours.
        fixture.put_in_head(at, 1, true);
        let error = fixture.join().err().unwrap();
        match is {
            "version" => assert!(matches!(error, GroupError::Version { theirs: 1, ours: 2, .. }), "{error}"),
            _ => assert!(matches!(error, GroupError::Host { .. }), "{error}"),
        }
        drop(member);
        assert!(!knows(&fixture.join().unwrap(), 7, WHOLE), "another {is}'s memory is none");
    }
}

#[test]
fn an_incomplete_head_is_recreated_or_refused_and_never_used() {
    let fixture = Fixture::new();
    drop(fixture.join().unwrap());
    // The process that made the file ended before it wrote the magic number.
    fixture.put_in_head(MAGIC_AT, 0, false);
    let member = fixture.join().unwrap();
    fixture.put_in_head(MAGIC_AT, 0, false);
    assert!(
        matches!(fixture.join(), Err(GroupError::Damaged { .. })),
        "others use what cannot be read any more"
    );
    drop(member);
    let member = fixture.join().unwrap();
    drop(member);
    fixture.put_in_head(SEED_AT, 77, false);
    assert!(matches!(fixture.join(), Err(GroupError::Damaged { .. })));
    fixture.put_in_head(MAGIC_AT, 77, false);
    assert!(matches!(fixture.join(), Err(GroupError::Foreign { .. })));
}

#[test]
fn rubbish_anywhere_in_the_map_costs_answers_and_no_member() {
    let patterns = [u64::MAX, 1, 2, 3, 5, 0x0123_4567_89ab_cdef, 1 << 63 | 1, u64::MAX << 3];
    for pattern in patterns {
        let fixture = Fixture::new();
        let member = fixture.join().unwrap();
        execute(&member, 7, WHOLE);
        let words = member.host().words();
        for part in [GENERATION_AT..MEMBERS_AT + 256, EXPORTS_AT..WINDOWS_AT, WINDOWS_AT..WINDOWS_AT + 60_000]
        {
            words[part].iter().for_each(|word| word.store(pattern, Ordering::SeqCst));
        }
        // The answer is unspecified, but there must be one, and within bounds.
        let _ = member.first_verifier(1);
        let _ = member.client(9, HERE, NOW).map(|client| (client.begin(WHOLE, NOW), client.start(WHOLE)));
        member.upkeep(NOW);
        let (_, at) = member.table().begin(member.host(), &call(1), &context(&member));
        let _ = member.table().start(member.host(), &call(1), at);
        member.table().finish(member.host(), &call(1), at, Outcome::Done, NOW);
        // The head is sound, so another process may still join, and finds the exports unknown.
        assert!(fixture.join().is_ok(), "{pattern:x}");
    }
}

#[test]
fn locks_of_nobody_in_every_bucket_are_taken_over() {
    let fixture = Fixture::new();
    let member = fixture.join().unwrap();
    let buckets: Vec<&AtomicU64> =
        member.host().table().chunks(TABLE_WORDS / drc::shared::BUCKETS).map(|bucket| &bucket[0]).collect();
    for (round, pattern) in [(0, u64::MAX), (1, 1), (2, 0x0123_4567_89ab_cdef)] {
        buckets.iter().for_each(|lock| lock.store(pattern, Ordering::SeqCst));
        for xid in 0..200 {
            assert_eq!(
                member.table().begin(member.host(), &call(round << 16 | xid), &context(&member)).0,
                SharedBegin::Run
            );
        }
    }
}

#[test]
fn there_is_no_place_for_more_members_than_are_counted() {
    let fixture = Fixture::new();
    let member = fixture.join().unwrap();
    let others = fixture.file();
    for number in 1..=MEMBERS_MAX {
        let own = number == member.host().me().member;
        assert_eq!(members::try_lock(others.as_fd(), member_lock(number)).unwrap(), !own);
    }
    assert!(matches!(fixture.join(), Err(GroupError::Full)));
    drop(others);
    assert!(fixture.join().is_ok());
}

#[test]
fn one_address_has_so_many_windows_and_what_nobody_noted_for_long_goes_for_a_newcomer() {
    let fixture = Fixture::new();
    let (first, second) = (fixture.join().unwrap(), fixture.join().unwrap());
    let most = u64::try_from(ADDRESS_WINDOWS_MAX).unwrap();
    let held: Vec<_> = (0..most).map(|id| first.client(id, HERE, NOW).unwrap()).collect();
    assert!(second.client(most, HERE, NOW).is_none(), "each may be held by the other process");
    let later = NOW + Duration::from_secs(31);
    first.upkeep(later);
    assert!(second.client(most, HERE, later).is_none(), "they are, it says so");
    drop(held);
    first.upkeep(later);
    let client = second.client(most, HERE, later + Duration::from_secs(31)).unwrap();
    assert_eq!(client.begin(WHOLE, later), SharedBegin::Run);
    assert!(second.client(most + 1, [10, 0, 0, 1].into(), NOW).is_some(), "other addresses have their own");
}

#[test]
fn a_window_that_went_to_another_client_is_not_touched_by_its_former_client() {
    let fixture = Fixture::new();
    let member = fixture.join().unwrap();
    let client = member.client(7, HERE, NOW).unwrap();
    assert_eq!(client.begin(WHOLE, NOW), SharedBegin::Run);
    // As after a long stop: the entry names another client.
    member.host().words()[CLIENTS_AT].store(8, Ordering::SeqCst);
    assert!(!client.is_current(), "its connection is to ask for a fixture anew");
    assert_eq!(client.start(WHOLE), Start::Lost, "nothing guards it any more");
    assert!(matches!(client.begin(WHOLE, NOW), SharedBegin::Refused(_)));
}
