//! Tests mounts whose server delegates files: what they ask for while a file is delegated, and that
//! nothing old is seen once somebody else has changed it.

use crate::fixture::{MOUNT_TIMEOUT, Mounted, Server, shell};
use crate::semantics::pattern;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::time::Duration;
use testkit::Deadline;

/// So many opens that those that ask the server stand out.
const TURNS: u64 = 1000;
/// Names are looked up again now and then, and an idle mount renews its lease.
const CALLS_MAX: u64 = 40;

/// The number of calls of version 4 that `work` causes.
fn cost(server: &Server, work: impl FnOnce()) -> u64 {
    let before = server.compounds();
    work();
    server.compounds() - before
}

/// Opens a file until it is delegated: an open and a stat take no call.
fn have_delegated(server: &Server, mount: &Mounted, name: &str) {
    let open = || _ = File::open(mount.path(name)).unwrap().metadata().unwrap();
    Deadline::wait_until("a delegation", MOUNT_TIMEOUT, || {
        (cost(server, || (0..20).for_each(|_| open())) < 5).then_some(())
    });
}

#[test]
fn a_delegated_file_is_opened_and_read_again_without_a_call() {
    let server = Server::start_delegating(2);
    let mount = server.mount("m", "vers=4.2,nolock");
    let data = pattern(100_000, 1);
    fs::write(mount.path("f"), &data).unwrap();
    have_delegated(&server, &mount, "f");
    let calls = cost(&server, || {
        for _ in 0..TURNS {
            assert!(fs::read(mount.path("f")).unwrap() == data);
            assert_eq!(fs::metadata(mount.path("f")).unwrap().len(), data.len() as u64);
        }
    });
    assert!(calls <= CALLS_MAX, "{calls} calls for {TURNS} opens");
    // What an ordinary mount asks.
    let ordinary = server.mount("ordinary", "vers=4.2,nolock,noac");
    let calls = cost(&server, || (0..TURNS / 10).for_each(|_| drop(File::open(ordinary.path("f")).unwrap())));
    assert!(calls >= TURNS / 10, "{calls} calls");
}

#[test]
fn what_another_client_has_closed_is_seen_at_once_although_the_file_was_delegated() {
    let server = Server::start_delegating(2);
    let one = server.mount("one", "vers=4.2,nolock");
    let others = [server.mount("four", "vers=4.1,nolock"), server.mount("three", "vers=3,nolock")];
    fs::write(one.path("f"), b"before").unwrap();
    for (round, other) in (0_u8..).zip(&others) {
        have_delegated(&server, &one, "f");
        let open = File::open(one.path("f")).unwrap();
        let data = pattern(50_000 + usize::from(round) * 1000, round);
        fs::write(other.path("f"), &data).unwrap();
        assert!(fs::read(one.path("f")).unwrap() == data, "round {round}");
        assert_eq!(fs::metadata(one.path("f")).unwrap().len(), data.len() as u64);
        assert_eq!(open.metadata().unwrap().len(), data.len() as u64, "by the handle of before");
        // In place: the size stays the same.
        let file = fs::OpenOptions::new().write(true).open(other.path("f")).unwrap();
        have_delegated(&server, &one, "f");
        file.write_all_at(b"in the middle", 1000).unwrap();
        file.sync_all().unwrap();
        drop(file);
        let mut back = [0; 13];
        File::open(one.path("f")).unwrap().read_exact_at(&mut back, 1000).unwrap();
        assert_eq!(&back, b"in the middle", "round {round}");
    }
}

#[test]
fn changes_of_a_delegated_file_by_others_and_from_here_are_seen_here_at_once() {
    let server = Server::start_delegating(1);
    let (one, other) = (server.mount("one", "vers=4.2,nolock"), server.mount("other", "vers=4.2,nolock"));
    fs::write(one.path("f"), b"data").unwrap();
    let seen = || fs::metadata(one.path("f")).unwrap();
    let opened = || File::open(one.path("f")).unwrap().metadata().unwrap();
    have_delegated(&server, &one, "f");
    fs::set_permissions(other.path("f"), fs::Permissions::from_mode(0o640)).unwrap();
    assert_eq!((opened().mode() & 0o777, seen().mode() & 0o777), (0o640, 0o640));
    have_delegated(&server, &one, "f");
    fs::hard_link(other.path("f"), other.path("g")).unwrap();
    assert_eq!(opened().nlink(), 2);
    have_delegated(&server, &one, "f");
    fs::set_permissions(one.path("f"), fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(seen().mode() & 0o777, 0o600);
    have_delegated(&server, &one, "f");
    fs::remove_file(one.path("g")).unwrap();
    assert_eq!(opened().nlink(), 1);
    have_delegated(&server, &one, "f");
    let appends = fs::OpenOptions::new().append(true).open(one.path("f")).unwrap();
    shell(&one.directory, "printf more >> f");
    drop(appends);
    assert_eq!(fs::read(one.path("f")).unwrap(), b"datamore");
    assert_eq!(fs::read(other.path("f")).unwrap(), b"datamore");
    have_delegated(&server, &one, "f");
    fs::write(one.path("new"), b"new").unwrap();
    fs::rename(one.path("new"), one.path("f")).unwrap();
    assert_eq!(fs::read(one.path("f")).unwrap(), b"new");
    assert_eq!(fs::read(other.path("f")).unwrap(), b"new");
    have_delegated(&server, &one, "f");
    fs::remove_file(other.path("f")).unwrap();
    assert!(File::open(one.path("f")).is_err() || fs::read(one.path("f")).unwrap() == b"new");
    assert!(!other.path("f").exists());
}

#[test]
fn a_user_without_the_right_does_not_open_what_another_user_has_had_delegated() {
    let server = Server::start_delegating(1);
    let mount = server.mount("m", "vers=4.2,nolock");
    fs::write(mount.path("f"), b"secret").unwrap();
    fs::set_permissions(mount.path("f"), fs::Permissions::from_mode(0o600)).unwrap();
    have_delegated(&server, &mount, "f");
    let as_other = "setpriv --reuid 1000 --regid 1000 --clear-groups";
    shell(&mount.directory, &format!("for i in 1 2 3; do ! {as_other} cat f 2> /dev/null || exit 1; done"));
    fs::set_permissions(mount.path("f"), fs::Permissions::from_mode(0o644)).unwrap();
    shell(&mount.directory, &format!("test $({as_other} cat f) = secret"));
    have_delegated(&server, &mount, "f");
    fs::set_permissions(mount.path("f"), fs::Permissions::from_mode(0o600)).unwrap();
    shell(&mount.directory, &format!("! {as_other} cat f 2> /dev/null"));
}

#[test]
fn a_lock_that_another_mount_releases_is_granted_to_who_waits() {
    let server = Server::start_delegating(1);
    let (one, other) = (server.mount("one", "vers=4.2"), server.mount("other", "vers=4.2"));
    fs::write(one.path("f"), b"data").unwrap();
    let held = fs::OpenOptions::new().write(true).open(one.path("f")).unwrap();
    held.lock().unwrap();
    let waits = fs::OpenOptions::new().write(true).open(other.path("f")).unwrap();
    let (sender, granted) = std::sync::mpsc::channel();
    let waiter = std::thread::spawn(move || {
        waits.lock().unwrap();
        sender.send(()).unwrap();
    });
    // Long enough for the waits between two questions to be a second each.
    assert!(granted.recv_timeout(Duration::from_secs(4)).is_err());
    held.unlock().unwrap();
    granted.recv_timeout(MOUNT_TIMEOUT).unwrap();
    waiter.join().unwrap();
}
