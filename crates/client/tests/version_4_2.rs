//! What only version 4.2 has: holes, reserved storage, copies on the server, extended attributes;
//! and names of owners. With our own server, and with one that answers as it should not.

#[path = "support/fake4.rs"]
mod fake4;
#[path = "support/group.rs"]
mod group;

use std::net::IpAddr;
use std::thread::{JoinHandle, spawn};
use std::time::Duration;

use client::options::Version;
use client::{Error, Mount, SetXattr, Settings, Sought};
use fake4::{Fake, Request, root, root_attributes};
use fs::{FileHandle, SetAttributes, Stability, Status, Verifier};
use group::pattern;
use nfs4::op::copy::{Reply as Copied, Requirements, WriteResponse};
use nfs4::op::{Args, Reply, commit, getattr, seek, xattr};
use nfs4::types::attributes::number;
use nfs4::{Array, Attributes, Bitmap, Fattr, Operation, Owner, Stateid, Status as Nfs};
use server::{Config, Server};

const KIB: u64 = 1 << 10;

fn serve() -> (Server, Vec<IpAddr>, u16) {
    let versions = "3,4.1,4.2".parse().unwrap();
    group::serve(2, |listens| Config { versions, ..Config::quick(256 << 20, "/export", listens) })
}

fn mount(addresses: &[IpAddr], port: u16, minor: u32) -> Mount {
    let remotes = addresses.iter().copied().map(Into::into).collect();
    let version = Version::V4(Some(minor));
    let settings = Settings { remotes, nconnect: 2, version, ..Settings::new(addresses[0], port, "/export") };
    Mount::with_settings(settings).unwrap()
}

fn status<T: std::fmt::Debug>(result: client::Result<T>) -> Option<Status> {
    result.unwrap_err().status()
}

/// Whether a refusal is about one file or one moment.
fn is_declined<T>(result: &client::Result<T>) -> bool {
    matches!(result, Err(Error::Declined { .. }))
}

fn is_nonsense<T>(result: &client::Result<T>) -> bool {
    matches!(result, Err(Error::PeerMisbehaved { .. }))
}

// RFC 7862 s15.11
#[test]
fn holes_are_found_made_and_filled() {
    let (_server, addresses, port) = serve();
    let mount = mount(&addresses, port, 2);
    let file = mount.create_file(b"/holes", 0o644).unwrap();
    file.write_all_at(&pattern(64 << 10, 1), 0).unwrap();
    file.write_all_at(&pattern(64 << 10, 2), 1 << 20).unwrap();
    let (handle, end) = (file.handle(), (1 << 20) + 64 * KIB);
    assert_eq!(mount.seek(handle, 0, Sought::Hole).unwrap(), Some(64 * KIB));
    assert_eq!(mount.seek(handle, 64 * KIB, Sought::Data).unwrap(), Some(1 << 20));
    assert_eq!(mount.seek(handle, 1 << 20, Sought::Hole).unwrap(), Some(end));
    assert_eq!(status(mount.seek(handle, end, Sought::Data)), Some(Status::NoAddress));

    mount.deallocate(handle, 0..64 * KIB).unwrap();
    assert_eq!(mount.seek(handle, 0, Sought::Data).unwrap(), Some(1 << 20));
    mount.deallocate(handle, 1 << 20..end).unwrap();
    assert_eq!(mount.seek(handle, 0, Sought::Data).unwrap(), None, "nothing but a hole");
    assert_eq!(file.attributes().unwrap().size, end, "a hole does not shorten a file");
    let mut back = vec![1; end as usize];
    assert_eq!(file.read_all_at(&mut back, 0).unwrap(), back.len());
    assert!(back.iter().all(|byte| *byte == 0));

    mount.allocate(handle, end..2 * end).unwrap();
    assert_eq!(file.attributes().unwrap().size, 2 * end);
    file.write_all_at(b"data", 0).unwrap();
    mount.zero(handle, 0..1).unwrap();
    mount.zero_stably(handle, 1..2).unwrap();
    let mut back = [9; 4];
    file.read_all_at(&mut back, 0).unwrap();
    assert_eq!(&back, b"\0\0ta");
}

// RFC 7862 s15.2
#[test]
fn a_server_copies_between_its_files_and_within_one() {
    let (_server, addresses, port) = serve();
    let mount = mount(&addresses, port, 2);
    let data = pattern(40 << 20 | 4321, 5);
    let (source, target) =
        (mount.create_file(b"/source", 0o644).unwrap(), mount.create_file(b"/target", 0o644).unwrap());
    source.write_all_at(&data, 0).unwrap();
    let (from, to) = (source.handle(), target.handle());
    let len = data.len() as u64;
    assert_eq!(mount.copy((from, 1), (to, 7), len - 1, || true).unwrap(), len - 1);
    let mut back = vec![0; data.len() + 6];
    assert_eq!(target.read_all_at(&mut back, 0).unwrap(), back.len());
    assert!(back[..7] == [0; 7] && back[7..] == data[1..]);

    // A source that ends before, and one that has ended.
    assert_eq!(mount.copy((from, len - 10), (to, 0), 100, || true).unwrap(), 10);
    assert_eq!(mount.copy((from, len), (to, 0), 100, || true).unwrap(), 0);
    // A copy that is stopped has done its first piece.
    let stopped = mount.copy((from, 0), (to, 0), len, || false).unwrap();
    assert!(stopped > 0 && stopped < len, "{stopped}");
    assert_eq!(mount.copy((from, 0), (from, len), len, || true).unwrap(), len);
    assert_eq!(source.attributes().unwrap().size, 2 * len);
    assert_eq!(status(mount.copy((from, 0), (from, 5), 6, || true)), Some(Status::Invalid));
    assert_eq!(status(mount.copy((from, 0), (to, u64::MAX), 6, || true)), Some(Status::Invalid));
}

// RFC 8276
#[test]
fn extended_attributes_are_set_read_listed_and_removed() {
    let (_server, addresses, port) = serve();
    let mount = mount(&addresses, port, 2);
    let file = mount.create_file(b"/file", 0o644).unwrap().handle();
    let set = |name: &[u8], value: &[u8], how| mount.set_xattr(file, name, value, how);
    assert_eq!(status(mount.xattr(file, b"a")), Some(Status::NoXattr));
    set(b"a", b"one", SetXattr::Create).unwrap();
    assert_eq!(mount.xattr(file, b"a").unwrap(), b"one");
    assert_eq!(status(set(b"a", b"two", SetXattr::Create)), Some(Status::Exists));
    set(b"a", b"two", SetXattr::Replace).unwrap();
    assert_eq!(status(set(b"b", b"", SetXattr::Replace)), Some(Status::NoXattr));
    set(b"b", b"", SetXattr::Either).unwrap();
    assert_eq!(mount.xattr(file, b"a").unwrap(), b"two");
    assert_eq!(mount.xattr(file, b"b").unwrap(), b"");
    assert_eq!(status(mount.remove_xattr(file, b"none")), Some(Status::NoXattr));
    assert_eq!(status(set(b"big", &[0; (64 << 10) + 1], SetXattr::Either)), Some(Status::XattrTooBig));
    let big = pattern(64 << 10, 3);
    set(b"big", &big, SetXattr::Either).unwrap();
    assert_eq!(mount.xattr(file, b"big").unwrap(), big);
    mount.remove_xattr(file, b"b").unwrap();
    let mut names = mount.xattrs(file).unwrap();
    names.sort();
    assert_eq!(names, [&b"a"[..], b"big"]);
}

/// A session with short calls lists names in parts, and has no room for long values.
#[test]
fn names_that_do_not_fit_one_call_are_all_listed() {
    let (_server, addresses, port) = serve();
    let version = Version::V4(Some(2));
    let settings =
        Settings { rsize: 4096, wsize: 4096, version, ..Settings::new(addresses[0], port, "/export") };
    let mount = Mount::with_settings(settings).unwrap();
    let file = mount.create_file(b"/file", 0o644).unwrap().handle();
    let name = |number: usize| format!("{number:0200}").into_bytes();
    let all: Vec<Vec<u8>> = (0..100).map(name).collect();
    for name in &all {
        mount.set_xattr(file, name, b"value", SetXattr::Create).unwrap();
    }
    let mut names = mount.xattrs(file).unwrap();
    names.sort();
    assert_eq!(names, all);
    assert_eq!(mount.xattr(file, &all[50]).unwrap(), b"value");
    let long = mount.set_xattr(file, b"long", &[0; 5000], SetXattr::Either);
    assert_eq!(status(long), Some(Status::XattrTooBig));
}

#[test]
fn before_version_4_2_nothing_of_it_is_asked_for() {
    let fake = Fake::start(1, 16);
    let mount = Mount::with_settings(Settings { version: Version::V4(Some(1)), ..fake.settings() }).unwrap();
    let missing = Some(Status::NotSupported);
    assert_eq!(status(mount.seek(root(), 0, Sought::Data)), missing);
    assert_eq!(status(mount.allocate(root(), 0..1)), missing);
    assert_eq!(status(mount.deallocate(root(), 0..1)), missing);
    assert_eq!(status(mount.zero(root(), 0..1)), missing);
    assert_eq!(status(mount.copy((root(), 0), (root(), 9), 1, || true)), missing);
    assert_eq!(status(mount.xattr(root(), b"a")), missing);
    assert_eq!(status(mount.xattrs(root())), missing);
    assert_eq!(status(mount.set_xattr(root(), b"a", b"", SetXattr::Either)), missing);
    assert_eq!(status(mount.remove_xattr(root(), b"a")), missing);
    fake.nothing_more();
}

fn other() -> FileHandle {
    FileHandle::new(b"other").unwrap()
}

/// Runs something with a mount, which the test answers meanwhile.
fn asked<T: Send + 'static>(mount: &Mount, ask: impl FnOnce(&Mount) -> T + Send + 'static) -> JoinHandle<T> {
    let mount = mount.clone();
    spawn(move || ask(&mount))
}

fn copy(mount: &Mount, count: u64) -> JoinHandle<client::Result<u64>> {
    asked(mount, move |mount| mount.copy((root(), 0), (other(), 5), count, || true))
}

fn copied(count: u64, committed: Stability, verifier: Verifier) -> Copied {
    let how = Requirements { consecutive: true, synchronous: true };
    Copied::Done(WriteResponse { callback_id: None, count, committed, verifier }, how)
}

/// Answers the next compound, which copies.
fn answer_copy(fake: &Fake, result: Copied) -> Request {
    let request = fake.next();
    assert_eq!(
        request.operations,
        [Operation::Sequence, Operation::PutFh, Operation::SaveFh, Operation::PutFh, Operation::Copy]
    );
    assert!(request.sequence.cache, "a change is in no doubt");
    reply_copy(&request, result);
    request
}

fn reply_copy(request: &Request, result: Copied) {
    request.reply(&[Reply::PutFh(Ok(())), Reply::SaveFh(Ok(())), Reply::PutFh(Ok(())), Reply::Copy(result)]);
}

fn answer_commit(fake: &Fake, verifier: Verifier) {
    let request = fake.next();
    assert_eq!(request.operations, [Operation::Sequence, Operation::PutFh, Operation::Commit]);
    request.reply(&[Reply::PutFh(Ok(())), Reply::Commit(Ok(commit::Success { verifier }))]);
}

// RFC 7862 s15.2.3
#[test]
fn a_copy_goes_on_where_the_server_has_stopped_and_is_stable_at_the_end() {
    let fake = Fake::start(1, 16);
    let mount = fake.mount();
    let outcome = copy(&mount, 100);
    let request = answer_copy(&fake, copied(60, Stability::Unstable, [1; 8]));
    let Some(Args::Copy(first)) = request.arguments(Operation::Copy) else { panic!() };
    assert_eq!((first.source_offset, first.target_offset, first.count), (0, 5, 100));
    assert!(first.synchronous && first.consecutive && first.source_servers.is_empty());
    let request = answer_copy(&fake, copied(40, Stability::FileSync, [9; 8]));
    let Some(Args::Copy(rest)) = request.arguments(Operation::Copy) else { panic!() };
    assert_eq!((rest.source_offset, rest.target_offset, rest.count), (60, 65, 40));
    answer_commit(&fake, [1; 8]);
    assert_eq!(outcome.join().unwrap().unwrap(), 100);
    // What is stable already needs no COMMIT.
    let outcome = copy(&mount, 5);
    answer_copy(&fake, copied(5, Stability::FileSync, [1; 8]));
    assert_eq!(outcome.join().unwrap().unwrap(), 5);
    fake.nothing_more();
}

#[test]
fn a_copy_that_a_restart_has_lost_is_made_again() {
    let fake = Fake::start(1, 16);
    let mount = fake.mount();
    let outcome = copy(&mount, 10);
    answer_copy(&fake, copied(10, Stability::Unstable, [1; 8]));
    answer_commit(&fake, [2; 8]);
    answer_copy(&fake, copied(6, Stability::Unstable, [2; 8]));
    answer_copy(&fake, copied(4, Stability::Unstable, [3; 8]));
    // Parts with two verifiers are lost, whatever COMMIT says.
    answer_copy(&fake, copied(10, Stability::Unstable, [3; 8]));
    answer_commit(&fake, [3; 8]);
    assert_eq!(outcome.join().unwrap().unwrap(), 10);
    let outcome = copy(&mount, 10);
    for verifier in 1..=3 {
        answer_copy(&fake, copied(10, Stability::Unstable, [verifier; 8]));
        answer_commit(&fake, [9; 8]);
    }
    assert!(is_nonsense(&outcome.join().unwrap()));
}

#[test]
fn a_server_that_does_not_copy_as_it_is_asked_does_not_copy() {
    let fake = Fake::start(1, 16);
    let mount = fake.mount();
    let how = Requirements { consecutive: false, synchronous: false };
    // What is refused now, or for these files, is told from what is not supported at all.
    for refusal in [Copied::CannotMeet(how), Copied::Failed(Nfs::OFFLOAD_DENIED)] {
        let outcome = copy(&mount, 10);
        answer_copy(&fake, refusal);
        assert!(is_declined(&outcome.join().unwrap()), "{refusal:?}");
    }
    let outcome = copy(&mount, 10);
    answer_copy(&fake, Copied::Failed(Nfs::NOTSUPP));
    assert_eq!(status(outcome.join().unwrap()), Some(Status::NotSupported));
    // Nothing is copied of nothing; but if there is something, the server cannot.
    fake.hold_validations(true);
    for (size, is_refused) in [(0, false), (10, true)] {
        let outcome = copy(&mount, 10);
        answer_copy(&fake, copied(0, Stability::FileSync, [1; 8]));
        let told = Attributes { size: Some(size), ..Attributes::of_object(&root_attributes()) };
        let got = getattr::Success { attributes: Fattr::all(&told) };
        fake.next().reply(&[Reply::PutFh(Ok(())), Reply::GetAttr(Ok(got))]);
        let outcome = outcome.join().unwrap();
        assert_eq!((outcome.as_ref().ok(), is_declined(&outcome)), ((!is_refused).then_some(&0), is_refused));
    }
    fake.hold_validations(false);
    let outcome = copy(&mount, 10);
    answer_copy(&fake, Copied::Failed(Nfs::XDEV));
    assert_eq!(status(outcome.join().unwrap()), Some(Status::CrossDevice));
    // One that goes on after its answer is ended.
    let outcome = copy(&mount, 10);
    let callback_id = Some(Stateid { seqid: 1, other: [7; 12] });
    let response = WriteResponse { callback_id, count: 0, committed: Stability::Unstable, verifier: [1; 8] };
    answer_copy(&fake, Copied::Done(response, how));
    let cancel = fake.next();
    let Some(Args::OffloadCancel(of)) = cancel.arguments(Operation::OffloadCancel) else { panic!() };
    assert_eq!(Some(of.copy), callback_id);
    cancel.reply(&[Reply::PutFh(Ok(())), Reply::OffloadCancel(Ok(()))]);
    assert_eq!(status(outcome.join().unwrap()), Some(Status::NotSupported));
    // More than was asked for.
    let outcome = copy(&mount, 10);
    answer_copy(&fake, copied(11, Stability::FileSync, [1; 8]));
    assert!(is_nonsense(&outcome.join().unwrap()));
    // What has failed after a part was copied is told by the next copy.
    let outcome = copy(&mount, 10);
    answer_copy(&fake, copied(4, Stability::FileSync, [1; 8]));
    answer_copy(&fake, Copied::Failed(Nfs::NOSPC));
    assert_eq!(outcome.join().unwrap().unwrap(), 4);
}

#[test]
fn a_copy_ends_although_the_server_makes_hardly_any_progress() {
    let fake = Fake::start(1, 16);
    let mount = fake.mount();
    // A byte at a time is not waited for, however many there are.
    let outcome = copy(&mount, 1000);
    let mut answers = 0;
    while !outcome.is_finished() {
        if let Some(request) = fake.next_within(Duration::from_millis(10)) {
            reply_copy(&request, copied(1, Stability::FileSync, [1; 8]));
            answers += 1;
        }
    }
    assert_eq!((outcome.join().unwrap().unwrap(), answers), (256, 256));
    // Nor is a source that becomes shorter whenever its end was passed.
    fake.hold_validations(true);
    let (outcome, mut size) = (copy(&mount, 1000), 1000);
    while !outcome.is_finished() {
        if let Some(request) = fake.next_within(Duration::from_millis(10)) {
            if request.operations.contains(&Operation::Copy) {
                reply_copy(&request, Copied::Failed(Nfs::INVAL));
                continue;
            }
            size -= 1;
            let told = Attributes { size: Some(size), ..Attributes::of_object(&root_attributes()) };
            let got = getattr::Success { attributes: Fattr::all(&told) };
            request.reply(&[Reply::PutFh(Ok(())), Reply::GetAttr(Ok(got))]);
        }
    }
    assert_eq!((status(outcome.join().unwrap()), size), (Some(Status::Invalid), 1000 - 257));
}

/// Answers the next compound, which seeks.
fn answer_seek(fake: &Fake, what: seek::What, found: seek::Success) {
    let request = fake.next();
    assert!(!request.sequence.cache, "nothing changes");
    let Some(Args::Seek(asked)) = request.arguments(Operation::Seek) else { panic!() };
    assert_eq!((asked.what, asked.offset), (what, 100));
    request.reply(&[Reply::PutFh(Ok(())), Reply::Seek(Ok(found))]);
}

#[test]
fn a_place_before_the_one_that_is_asked_for_is_not_believed() {
    let fake = Fake::start(1, 16);
    let mount = fake.mount();
    let seek = |sought, what, eof, offset| {
        let outcome = asked(&mount, move |mount| mount.seek(root(), 100, sought));
        answer_seek(&fake, what, seek::Success { eof, offset });
        outcome.join().unwrap()
    };
    let (data, hole) = (seek::What::Data, seek::What::Hole);
    assert_eq!(seek(Sought::Data, data, false, 100).unwrap(), Some(100));
    assert_eq!(seek(Sought::Data, data, true, 0).unwrap(), None);
    assert_eq!(seek(Sought::Hole, hole, true, 200).unwrap(), Some(200));
    assert!(is_declined(&seek(Sought::Data, data, false, 99)));
    assert!(is_declined(&seek(Sought::Hole, hole, true, 0)));
}

#[test]
fn a_hole_where_the_server_also_finds_data_is_not_believed() {
    let fake = Fake::start(1, 16);
    let mount = fake.mount();
    for (data_at, expected) in [(100, None), (101, Some(100))] {
        let outcome = asked(&mount, |mount| mount.seek(root(), 100, Sought::Hole));
        answer_seek(&fake, seek::What::Hole, seek::Success { eof: false, offset: 100 });
        answer_seek(&fake, seek::What::Data, seek::Success { eof: false, offset: data_at });
        let found = outcome.join().unwrap();
        match expected {
            Some(_) => assert_eq!(found.unwrap(), expected),
            None => assert!(is_declined(&found)),
        }
    }
}

// RFC 7862 s11, s15.11.3
#[test]
fn what_is_refused_for_one_file_is_told_from_what_is_not_supported() {
    let fake = Fake::start(1, 16);
    let mount = fake.mount();
    let refused = |refusal| {
        let outcome = asked(&mount, |mount| mount.seek(root(), 0, Sought::Data));
        fake.next().reply(&[Reply::PutFh(Ok(())), Reply::Seek(Err(refusal))]);
        outcome.join().unwrap()
    };
    assert!(is_declined(&refused(Nfs::UNION_NOTSUPP)));
    assert_eq!(status(refused(Nfs::NOTSUPP)), Some(Status::NotSupported));
    assert_eq!(status(refused(Nfs::OP_ILLEGAL)), Some(Status::NotSupported));
    for of_one_file in [Nfs::INVAL, Nfs::WRONG_TYPE] {
        assert_eq!(status(refused(of_one_file)), Some(Status::Invalid));
    }
}

/// Sets a range of a file of so many bytes to zeros.
fn zero(
    fake: &Fake,
    mount: &Mount,
    size: u64,
    range: std::ops::Range<u64>,
) -> JoinHandle<client::Result<()>> {
    fake.hold_validations(true);
    let outcome = asked(mount, move |mount| mount.zero(root(), range));
    let told = Attributes { size: Some(size), ..Attributes::of_object(&root_attributes()) };
    let got = getattr::Success { attributes: Fattr::all(&told) };
    fake.next().reply(&[Reply::PutFh(Ok(())), Reply::GetAttr(Ok(got))]);
    fake.hold_validations(false);
    outcome
}

// RFC 7862 s15.1, s15.4
#[test]
fn a_server_that_reserves_no_storage_is_not_asked_for_a_hole_first() {
    use Operation as Op;
    let fake = Fake::start(1, 16);
    let mount = fake.mount();
    let all = [Op::Sequence, Op::PutFh, Op::Allocate, Op::Deallocate, Op::Allocate];
    let reserved = |request: &Request| {
        let Some(Args::Allocate(args)) = request.arguments(Op::Allocate) else { panic!() };
        (args.range.offset, args.range.length)
    };
    let outcome = zero(&fake, &mount, 100, 50..200);
    let request = fake.next();
    assert_eq!((&request.operations[..], reserved(&request)), (&all[..], (50, 50)), "within the file");
    request.reply(&[Reply::PutFh(Ok(())), Reply::Allocate(Err(Nfs::NOTSUPP))]);
    assert_eq!(status(outcome.join().unwrap()), Some(Status::NotSupported));
    let outcome = zero(&fake, &mount, 100, 0..100);
    let done = [Reply::Allocate(Ok(())), Reply::Deallocate(Ok(())), Reply::Allocate(Ok(()))];
    fake.next().reply(&[&[Reply::PutFh(Ok(()))][..], &done].concat());
    outcome.join().unwrap().unwrap();
    // A hole that is to be stable is one compound with its COMMIT.
    let outcome = asked(&mount, |mount| mount.deallocate_stably(root(), 0..100));
    let request = fake.next();
    assert_eq!(request.operations[2..], [Op::Deallocate, Op::Commit]);
    let committed = commit::Success { verifier: [1; 8] };
    let hole = [Reply::PutFh(Ok(())), Reply::Deallocate(Ok(())), Reply::Commit(Ok(committed))];
    request.reply(&hole);
    outcome.join().unwrap().unwrap();
    let outcome = asked(&mount, |mount| mount.deallocate_stably(root(), 0..100));
    fake.next().reply(&[Reply::PutFh(Ok(())), Reply::Deallocate(Ok(())), Reply::Commit(Err(Nfs::IO))]);
    assert_eq!(status(outcome.join().unwrap()), Some(Status::Io));
    // Behind the end there are zeros already.
    let outcome = zero(&fake, &mount, 100, 100..200);
    let request = fake.next();
    assert_eq!((&request.operations[..], reserved(&request)), (&all[..3], (100, 100)));
    request.reply(&[Reply::PutFh(Ok(())), Reply::Allocate(Ok(()))]);
    outcome.join().unwrap().unwrap();
    fake.nothing_more();
}

// RFC 8276 s8.2.1
#[test]
fn a_file_system_has_extended_attributes_if_its_server_says_so() {
    let fake = Fake::start(1, 16);
    let mount = fake.mount();
    fake.hold_file_systems(true);
    for told in [None, Some(false), Some(true)] {
        let asking = asked(&mount, |mount| mount.has_xattrs(root()));
        let request = fake.next();
        let Some(Args::GetAttr(args)) = request.arguments(Operation::GetAttr) else { panic!() };
        assert_eq!(args.wanted, Bitmap::of(&[number::XATTR_SUPPORT]));
        let told_all = Attributes { xattr_support: told, ..Attributes::default() };
        let got = getattr::Success { attributes: Fattr::all(&told_all) };
        request.reply(&[Reply::PutFh(Ok(())), Reply::GetAttr(Ok(got))]);
        assert_eq!(asking.join().unwrap().unwrap(), told == Some(true));
    }
}

// RFC 8276 s8.4.3
#[test]
fn names_of_attributes_are_listed_in_parts_and_a_list_without_progress_ends() {
    let fake = Fake::start(1, 16);
    let mount = fake.mount();
    let answer = |cookie: u64, names: &[&[u8]], next: u64, eof: bool| {
        let request = fake.next();
        let Some(Args::ListXattrs(args)) = request.arguments(Operation::ListXattrs) else { panic!() };
        assert_eq!(args.cookie, cookie);
        let page = xattr::ListSuccess { cookie: next, names: Array::from(names), eof };
        request.reply(&[Reply::PutFh(Ok(())), Reply::ListXattrs(Ok(page))]);
    };
    let listed = asked(&mount, |mount| mount.xattrs(root()));
    answer(0, &[b"a", b"b"], 2, false);
    answer(2, &[b"c"], 3, true);
    assert_eq!(listed.join().unwrap().unwrap(), [b"a", b"b", b"c"]);
    // The last one has a name, and begins where it has begun.
    for names in [&[][..], &[&b""[..]], &[&b"a\0"[..]], &[&b"a"[..]]] {
        let listed = asked(&mount, |mount| mount.xattrs(root()));
        answer(0, names, 0, false);
        assert!(is_nonsense(&listed.join().unwrap()), "{names:?}");
    }
    let value = asked(&mount, |mount| mount.xattr(root(), b"a"));
    let request = fake.next();
    request.reply(&[Reply::PutFh(Ok(())), Reply::GetXattr(Ok(&[0; (64 << 10) + 1]))]);
    assert_eq!(status(value.join().unwrap()), Some(Status::XattrTooBig));
    for too_big in [Nfs::REP_TOO_BIG, Nfs::XATTR2BIG] {
        let value = asked(&mount, |mount| mount.xattr(root(), b"a"));
        fake.next().reply(&[Reply::PutFh(Ok(())), Reply::GetXattr(Err(too_big))]);
        assert_eq!(status(value.join().unwrap()), Some(Status::XattrTooBig));
    }
}

/// A session that is lost with an attribute's removal under way: the repeated call finds it done.
#[test]
fn an_attribute_that_is_gone_when_its_removal_is_repeated_was_removed() {
    let fake = Fake::start(1, 16);
    let mount = fake.mount();
    let removed = asked(&mount, |mount| mount.remove_xattr(root(), b"a"));
    let lost = fake.next();
    assert!(lost.sequence.cache);
    fake.lose_session();
    lost.cut();
    fake.next().reply(&[Reply::PutFh(Ok(())), Reply::RemoveXattr(Err(Nfs::NOXATTR))]);
    removed.join().unwrap().unwrap();
    assert_eq!(mount.statistics().replays.reconciled, 1);
}

/// The number of a user of this host.
fn user_of_this_host(name: &str) -> u32 {
    let all = std::fs::read_to_string("/etc/passwd").unwrap();
    let line = all.lines().find(|line| line.split(':').next() == Some(name)).unwrap();
    line.split(':').nth(2).unwrap().parse().unwrap()
}

// RFC 8881 s5.9
#[test]
fn names_of_owners_have_the_numbers_of_this_host() {
    let fake = Fake::start(1, 16);
    let mount = mounted_in_domain(&fake);
    fake.hold_validations(true);
    let answer = |owner: &'static [u8], group: &'static [u8]| {
        let asking = asked(&mount, |mount| mount.attributes(root()));
        let told = Attributes {
            owner: Some(Owner::Name(owner)),
            owner_group: Some(Owner::Name(group)),
            ..Attributes::of_object(&root_attributes())
        };
        let got = getattr::Success { attributes: Fattr::all(&told) };
        fake.next().reply(&[Reply::PutFh(Ok(())), Reply::GetAttr(Ok(got))]);
        let attributes = asking.join().unwrap().unwrap();
        (attributes.uid, attributes.gid)
    };
    let daemon = user_of_this_host("daemon");
    assert_ne!(daemon, 0);
    for _ in 0..2 {
        assert_eq!(answer(b"daemon@example.org", b"root@EXAMPLE.ORG"), (daemon, 0));
    }
    assert_eq!(answer(b"daemon@example.com", b"no such group@example.org"), (65_534, 65_534));
    assert_eq!(answer(b"1234@example.org", b"root"), (1234, 65_534));
    fake.nothing_more();
}

fn mounted_in_domain(fake: &Fake) -> Mount {
    let owner_domain = Some("example.org".to_owned());
    Mount::with_settings(Settings { owner_domain, ..fake.settings() }).unwrap()
}

fn chown(mount: &Mount, uid: u32) -> JoinHandle<client::Result<()>> {
    let new = SetAttributes { uid: Some(uid), ..SetAttributes::default() };
    asked(mount, move |mount| mount.set_attributes(root(), new, None))
}

/// Answers the next compound, which sets this owner.
fn answer_chown(fake: &Fake, expected: Owner<'_>, refusal: Option<Nfs>) {
    let request = fake.next();
    let Some(Args::SetAttr(set)) = request.arguments(Operation::SetAttr) else { panic!() };
    assert_eq!(set.attributes.parse().unwrap().owner, Some(expected));
    let (status, set) = (refusal.unwrap_or(Nfs::OK), Bitmap::of(&[number::OWNER]));
    let set = Reply::SetAttr(getattr::SetReply { status, set });
    let told = Attributes::of_object(&root_attributes());
    let got = Reply::GetAttr(Ok(getattr::Success { attributes: Fattr::all(&told) }));
    let all = [Reply::PutFh(Ok(())), set, got];
    request.reply(if refusal.is_some() { &all[..2] } else { &all });
}

// RFC 8881 s15.1.15.2
#[test]
fn owners_are_set_by_name_where_the_server_takes_no_numbers() {
    let fake = Fake::start(1, 16);
    let mount = mounted_in_domain(&fake);
    let daemon = user_of_this_host("daemon");
    let by_name = Owner::Name(b"daemon@example.org");
    let first = chown(&mount, daemon);
    answer_chown(&fake, Owner::Id(daemon), Some(Nfs::BADOWNER));
    answer_chown(&fake, by_name, None);
    first.join().unwrap().unwrap();
    // From then on a name goes first.
    let second = chown(&mount, daemon);
    answer_chown(&fake, by_name, None);
    second.join().unwrap().unwrap();
    // A number without a name stays one, and is refused.
    let third = chown(&mount, 3_999_999_999);
    answer_chown(&fake, Owner::Id(3_999_999_999), Some(Nfs::BADOWNER));
    assert_eq!(status(third.join().unwrap()), Some(Status::NotPermitted));
    fake.nothing_more();
}

/// nfs-ganesha sends names and takes both: a number would be that of another user there.
// RFC 8881 s5.9
#[test]
fn owners_are_set_by_name_once_the_server_has_sent_one() {
    let fake = Fake::start(1, 16);
    let mount = mounted_in_domain(&fake);
    let daemon = user_of_this_host("daemon");
    let by_number = chown(&mount, daemon);
    answer_chown(&fake, Owner::Id(daemon), None);
    by_number.join().unwrap().unwrap();
    fake.hold_validations(true);
    let asking = asked(&mount, |mount| mount.attributes(root()));
    let owner = Some(Owner::Name(b"root@example.org"));
    let told = Attributes { owner, ..Attributes::of_object(&root_attributes()) };
    let got = getattr::Success { attributes: Fattr::all(&told) };
    fake.next().reply(&[Reply::PutFh(Ok(())), Reply::GetAttr(Ok(got))]);
    assert_eq!(asking.join().unwrap().unwrap().uid, 0);
    let by_name = chown(&mount, daemon);
    answer_chown(&fake, Owner::Name(b"daemon@example.org"), None);
    by_name.join().unwrap().unwrap();
    // Who has no name here has a number alone.
    let nameless = chown(&mount, 3_999_999_999);
    answer_chown(&fake, Owner::Id(3_999_999_999), None);
    nameless.join().unwrap().unwrap();
    // The name is unknown there. The number may be somebody else's.
    let unknown = chown(&mount, daemon);
    answer_chown(&fake, Owner::Name(b"daemon@example.org"), Some(Nfs::BADOWNER));
    assert_eq!(status(unknown.join().unwrap()), Some(Status::NotPermitted));
    fake.nothing_more();
}
