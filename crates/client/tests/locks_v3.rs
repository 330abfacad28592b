//! Tests the locks of mounts of version 3, which the server keeps by NLM: between mounts, against
//! version 4, over restarts of the server, and when a mount or an address dies.

#[path = "support/group.rs"]
mod group;

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use client::options::Version;
use client::{Error, LockKind, LockOwner, LockRange, Mount, Settings};
use fs::{CreateMode, FileHandle, SetAttributes, Status};
use server::{Config, NodeId, Server};

const SOON: Duration = Duration::from_secs(120);
const ALL: LockRange = LockRange::ALL;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let (mut future, mut context) = (pin!(future), Context::from_waker(&waker));
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(outcome) => return outcome,
            Poll::Pending => std::thread::park(),
        }
    }
}

const fn owner(number: u64) -> LockOwner {
    LockOwner { number, of_flock: false }
}

const fn range(first: u64, last: u64) -> LockRange {
    LockRange { first, last }
}

/// A mount with a file.
struct Locking {
    mount: Mount,
    file: FileHandle,
}

impl Locking {
    fn new(addresses: &[IpAddr], port: u16) -> Self {
        Self::with_version(addresses, port, Version::V3)
    }

    fn with_version(addresses: &[IpAddr], port: u16, version: Version) -> Self {
        let mount = Mount::with_settings(Settings {
            remotes: addresses.iter().copied().map(Into::into).collect(),
            version,
            ..Settings::new(addresses[0], port, "/export")
        });
        let mount = mount.unwrap();
        let how = CreateMode::Unchecked(SetAttributes::mode(0o666));
        let (file, _) = mount.create(mount.root(), b"file", how).unwrap();
        Self { mount, file }
    }

    fn try_lock(&self, owner: LockOwner, range: LockRange, kind: LockKind) -> Result<bool, Error> {
        block_on(self.mount.operations(None).lock(self.file, owner, range, kind))
    }

    /// An exclusive lock.
    fn lock(&self, number: u64, range: LockRange) -> bool {
        self.try_lock(owner(number), range, LockKind::Exclusive).unwrap()
    }

    fn share(&self, number: u64, range: LockRange) -> bool {
        self.try_lock(owner(number), range, LockKind::Shared).unwrap()
    }

    fn unlock(&self, number: u64, range: LockRange) {
        block_on(self.mount.operations(None).unlock(self.file, owner(number), range)).unwrap();
    }

    fn test(&self, number: u64, range: LockRange) -> Option<(LockRange, LockKind)> {
        let operations = self.mount.operations(None);
        let tested = block_on(operations.test_lock(self.file, owner(number), range, LockKind::Exclusive));
        tested.unwrap().map(|conflict| (conflict.range, conflict.kind))
    }

    fn end(&self, number: u64) {
        block_on(self.mount.operations(None).end_locks(self.file, owner(number))).unwrap();
    }
}

fn eventually(what: &str, mut check: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !check() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn in_memory(nodes: u8, change: impl Fn(&mut Config)) -> (Server, Vec<IpAddr>, u16) {
    group::serve(nodes, |listens| {
        let mut config = Config::quick(64 << 20, "/export", listens);
        config.lease = server::config::LEASE_MIN;
        change(&mut config);
        config
    })
}

fn in_directory(home: &Path, listens: &[SocketAddr]) -> Config {
    let (data, state) = (home.join("data"), home.join("state"));
    std::fs::create_dir_all(&data).unwrap();
    let mut config = Config::quick_dir(&data, Some(&state), "/export", listens);
    config.exports[0].root_squash = false;
    config.lease = server::config::LEASE_MIN;
    config
}

/// Starts the server again, where it was.
fn again(addresses: &[IpAddr], port: u16, config: impl Fn(&[SocketAddr]) -> Config) -> Server {
    let listens: Vec<_> = addresses.iter().map(|address| SocketAddr::new(*address, port)).collect();
    let mut server = None;
    eventually("the address to be free", || {
        server = Server::start(config(&listens)).ok();
        server.is_some()
    });
    server.unwrap()
}

#[test]
fn locks_of_ranges_exclude_owners_of_the_same_and_of_other_mounts() {
    let (_server, addresses, port) = in_memory(1, |_| {});
    let (one, other) = (Locking::new(&addresses, port), Locking::new(&addresses, port));
    assert!(one.lock(1, range(0, 9)));
    assert!(!one.lock(2, range(9, 20)) && !other.lock(1, range(9, 20)));
    assert_eq!(other.test(1, ALL), Some((range(0, 9), LockKind::Exclusive)));
    assert_eq!(one.test(1, ALL), None, "its own");
    assert!(other.share(1, range(10, LockRange::END)) && one.share(2, range(10, 20)));
    assert!(!one.lock(1, range(15, 15)));
    // A lock of flock(2) has an owner of its own, even if the number is the same.
    let of_flock = LockOwner { of_flock: true, ..owner(1) };
    assert!(!one.try_lock(of_flock, range(0, 0), LockKind::Shared).unwrap());
    one.unlock(1, range(0, 4));
    assert!(other.lock(1, range(0, 4)) && !other.lock(1, range(5, 5)));
    assert_eq!(
        one.mount.operations(None).locks_held(one.file, owner(1)),
        [(range(5, 9), LockKind::Exclusive)]
    );
    one.end(1);
    one.end(2);
    assert!(other.lock(1, ALL));
    assert!(
        !one.mount.may_have_locks(one.file, owner(1)) && other.mount.may_have_locks(other.file, owner(1))
    );
}

#[test]
fn locks_of_versions_3_and_4_exclude_each_other() {
    let (_server, addresses, port) = in_memory(1, |config| config.versions = "3,4.2".parse().unwrap());
    let third = Locking::new(&addresses, port);
    let fourth = Locking::with_version(&addresses, port, Version::V4(Some(2)));
    assert!(third.lock(1, range(0, 9)));
    assert!(!fourth.lock(1, range(9, 9)) && fourth.lock(1, range(10, 19)));
    assert!(!third.lock(1, range(19, 19)));
    fourth.end(1);
    assert!(third.lock(1, ALL));
}

#[test]
fn a_server_without_nlm_refuses_locks() {
    let (_server, addresses, port) = in_memory(1, |config| config.nlm = false);
    let mut settings = Settings::new(addresses[0], port, "/export");
    // Nothing listens there.
    settings.rpcbind_port = Some(testkit::free_port());
    let mount = Mount::with_settings(settings).unwrap();
    let how = CreateMode::Unchecked(SetAttributes::mode(0o666));
    let (file, _) = mount.create(mount.root(), b"file", how).unwrap();
    let this = Locking { mount, file };
    let refused = this.try_lock(owner(1), ALL, LockKind::Exclusive).unwrap_err();
    assert_eq!(refused.status(), Some(Status::NotSupported));
    this.unlock(2, ALL);
}

#[test]
fn locks_go_on_at_another_address() {
    let (server, addresses, port) = in_memory(2, |_| {});
    let (one, other) = (Locking::new(&addresses, port), Locking::new(&addresses, port));
    assert!(one.lock(1, range(0, 9)));
    server.stop_node(NodeId(0)).unwrap();
    assert!(!other.lock(1, range(0, 0)), "the lock is still held");
    assert!(one.lock(1, range(10, 19)), "the same owner, although it calls from elsewhere");
    assert!(!one.mount.has_lost_locks(one.file));
    one.unlock(1, ALL);
    assert!(other.lock(1, ALL));
}

#[test]
fn locks_are_reclaimed_after_a_restart_of_the_server() {
    let home = testkit::temp_dir("locks-v3");
    let (server, addresses, port) = group::serve(1, |listens| in_directory(home.path(), listens));
    let one = Locking::new(&addresses, port);
    assert!(one.lock(1, range(0, 9)) && one.share(1, range(20, 29)));
    drop(server);
    let _server = again(&addresses, port, |listens| in_directory(home.path(), listens));
    let other = Locking::new(&addresses, port);
    // The first request is answered when the grace period is over.
    assert!(!other.lock(1, range(0, 0)));
    assert!(!other.lock(1, range(25, 25)) && other.share(1, range(25, 25)));
    assert!(!one.mount.has_lost_locks(one.file));
    assert!(one.lock(1, range(10, 19)));
}

#[test]
fn locks_that_the_server_does_not_have_any_more_are_lost_until_they_are_unlocked() {
    let (server, addresses, port) = in_memory(1, |_| {});
    let home = testkit::temp_dir("locks-v3");
    drop(server);
    let config = |listens: &[SocketAddr]| in_directory(home.path(), listens);
    let server = again(&addresses, port, config);
    let one = Locking::new(&addresses, port);
    assert!(one.lock(1, range(0, 9)));
    drop(server);
    // What it remembers of its clients is gone, as after another disk.
    for entry in std::fs::read_dir(home.path().join("state")).unwrap() {
        let _ = std::fs::remove_file(entry.unwrap().path().join("nfs4-clients"));
    }
    let _server = again(&addresses, port, config);
    eventually("the loss to be found out", || one.mount.has_lost_locks(one.file));
    let refused = one.try_lock(owner(1), range(50, 50), LockKind::Exclusive).unwrap_err();
    assert_eq!(refused.status(), Some(Status::Io));
    assert!(one.lock(2, range(0, 9)), "another owner begins anew");
    one.unlock(1, ALL);
    assert!(!one.mount.has_lost_locks(one.file));
    assert!(one.lock(1, range(50, 50)));
}

#[test]
fn the_locks_of_a_mount_that_has_died_end_with_its_lease() {
    let (_server, addresses, port) = in_memory(1, |_| {});
    let (dead, other) = (Locking::new(&addresses, port), Locking::new(&addresses, port));
    let alive = Locking::new(&addresses, port);
    assert!(dead.lock(1, range(0, 9)) && alive.lock(1, range(20, 29)));
    assert!(!other.lock(1, range(0, 0)));
    drop(dead);
    eventually("the lease to end", || other.lock(1, range(0, 9)));
    assert!(!other.lock(1, range(20, 20)), "a mount that lives keeps its locks");
}
