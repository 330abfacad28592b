//! The back channel of our client's mount over RDMA on our server (RFC 8167): a delegation is
//! recalled, and a waiter is told of a free lock. All of the mount's connections are over RDMA, so
//! the server has no other way. The tests run themselves in the guest.

use crate::guest::{is_in_guest, passes_in};
use crate::{alone, lab};
use client::{LockKind, LockOwner, LockRange, Mount, Recalled, Settings};
use server::{Config, Server};
use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::task::{Context, Poll, Wake};
use std::time::Duration;
use testkit::Deadline;
use verbs::{Alive, alive};

/// Less than a lease of 90 s, after which the server goes on without an answer.
const TIMEOUT: Duration = Duration::from_secs(60);
const CONNECTIONS: usize = 2;
/// Several, because a file is not delegated again soon after a recall.
const NAMES: [&[u8]; 4] = [b"a", b"b", b"c", b"d"];

#[test]
fn a_delegation_of_a_mount_over_rdma_is_recalled_before_others_write() {
    if is_in_guest() {
        delegations();
        return assert_eq!(alive(), Alive::default());
    }
    let _turn = alone();
    passes_in(
        lab().client(),
        "rdma_call_backs::a_delegation_of_a_mount_over_rdma_is_recalled_before_others_write",
    );
}

#[test]
fn a_mount_over_rdma_that_waits_for_a_lock_is_told_when_it_is_free() {
    if is_in_guest() {
        locks();
        return assert_eq!(alive(), Alive::default());
    }
    let _turn = alone();
    passes_in(
        lab().client(),
        "rdma_call_backs::a_mount_over_rdma_that_waits_for_a_lock_is_told_when_it_is_free",
    );
}

/// A server, a mount over RDMA that is called back, and another over TCP with these options. What
/// is recalled is sent to `recalled`.
fn ends(other: &str, recalled: Sender<Recalled>) -> (Server, Mount, Mount) {
    let mut config = Config::quick(16 << 20, "/export", &["10.77.1.2:12082".parse().expect("an address")]);
    config.add_rdma(&["10.77.1.2:20082".parse().expect("an address")]);
    config.versions = "3,4.1,4.2".parse().expect("versions");
    config.exports[0].delegations = true;
    let server = Server::start(config).expect("the guest has a device");
    let before = alive().queue_pairs;
    let options = format!("vers=4.2,proto=rdma,port=20082,nconnect={CONNECTIONS}");
    let settings = Settings::from_options("10.77.1.2:/export", &options).expect("options");
    let mount = Mount::with_settings(Settings { call_backs: true, ..settings }).expect("the server answers");
    mount.on_recall(move |one| _ = recalled.send(one));
    Deadline::wait_until("a back channel", TIMEOUT, || mount.may_be_delegated().then_some(()));
    // Each connection has a queue pair at each end.
    assert_eq!(alive().queue_pairs - before, 2 * CONNECTIONS);
    let options = format!("port=12082,{other}");
    let other = Mount::connect("10.77.1.2:/export", &options).expect("the server answers");
    (server, mount, other)
}

/// The other mount has no opens, which would be in the way of a delegation.
fn delegations() {
    let (sender, recalls) = channel::<Recalled>();
    let (server, holder, other) = ends("vers=3,mountport=12082", sender);
    for name in NAMES {
        let written = other.create_file(name, 0o644).expect("the export is writable");
        written.write_all_at(b"old data", 0).expect("nobody else has the file");
        let file = holder.lookup(holder.root(), name).expect("the file exists").0;
        let open = || block_on(holder.operations(None).open_delegated(file)).expect("the file opens").1;
        Deadline::wait_until("a delegation", TIMEOUT, open);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| written.write_all_at(b"new data", 0));
            let recalled = recalls.recv_timeout(TIMEOUT).expect("the delegation is recalled");
            assert_eq!((recalled.file, recalled.is_about_to_change), (file, true));
            assert_eq!(holder.delegation(file), None, "it is not used from the recall on");
            block_on(holder.operations(None).return_delegation(recalled)).expect("it is returned");
            writer.join().expect("the writer ends").expect("the file is written");
        });
        let mut data = [0; 8];
        holder.open(name).expect("opens").read_all_at(&mut data, 0).expect("reads");
        assert_eq!(&data, b"new data");
    }
    let counts = holder.statistics().delegations;
    let all = NAMES.len() as u64;
    assert_eq!((counts.held, counts.granted, counts.recalled), (0, all, all));
    drop((other, holder, server));
}

fn locks() {
    let (server, waiter, other) = ends("vers=4.1", channel().0);
    let (sender, told) = channel();
    waiter.on_lock_available(move |file| _ = sender.send(file));
    other.create_file(b"f", 0o644).expect("the export is writable");
    let theirs = other.lookup(other.root(), b"f").expect("the file exists").0;
    let file = waiter.lookup(waiter.root(), b"f").expect("the file exists").0;
    let owner = LockOwner { number: 1, of_flock: false };
    let (all, exclusive) = (LockRange::ALL, LockKind::Exclusive);
    for round in 0..10 {
        let has = block_on(other.operations(None).lock(theirs, owner, all, exclusive)).expect("locks");
        assert!(has, "round {round}: nobody has the lock");
        let gets =
            || block_on(waiter.operations(None).lock_to_wait(file, owner, all, exclusive)).expect("asks");
        assert!(!gets(), "round {round}: another mount has the lock");
        assert!(told.try_recv().is_err(), "round {round}: it is not free yet");
        block_on(other.operations(None).unlock(theirs, owner, all)).expect("unlocks");
        assert_eq!(told.recv_timeout(TIMEOUT), Ok(file), "round {round}");
        assert!(gets(), "round {round}: the lock is kept for the one who was told");
        block_on(waiter.operations(None).unlock(file, owner, all)).expect("unlocks");
    }
    drop((other, waiter, server));
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let (mut context, mut future) = (Context::from_waker(&waker), pin!(future));
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}
