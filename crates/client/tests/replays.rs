//! Calls that had to be sent again, on servers that don't know that they have done them already.

#[path = "support/fake.rs"]
mod fake;

use client::{Mount, Replays};
use fake::Fake;
use nfs3::{Procedure, Sattr3, Status};

/// The outcome of a change whose first answer is lost with its connection, and whose second is this status.
fn after_a_cut(
    status: Status,
    change: impl FnOnce(&Mount) -> client::Result<()> + Send,
) -> client::Result<()> {
    let fake = Fake::start(1);
    let mount = fake.mount();
    let outcome = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| change(&mount));
        let original = fake.next();
        original.cut();
        let replay = fake.next();
        assert_eq!((replay.xid, &replay.args), (original.xid, &original.args));
        replay.failed(status);
        waiting.join().unwrap()
    });
    let statistics = mount.statistics();
    let retransmissions: u64 = statistics.paths.iter().map(|path| path.counters.retransmissions).sum();
    assert_eq!(retransmissions, 1, "it went out again on the only path");
    let Replays { reconciled, undecided, unfenced } = statistics.replays;
    assert_eq!((reconciled, undecided), if outcome.is_ok() { (1, 0) } else { (0, 1) });
    assert_eq!(unfenced, 0, "its connection had ended");
    outcome
}

#[test]
fn a_removal_sent_again_that_finds_nothing_was_done() {
    after_a_cut(Status::NOENT, |mount| mount.remove(mount.root(), b"name")).unwrap();
    after_a_cut(Status::NOENT, |mount| mount.remove_directory(mount.root(), b"name")).unwrap();
}

#[test]
fn a_creation_sent_again_that_finds_the_name_taken_keeps_its_error() {
    let made = after_a_cut(Status::EXIST, |mount| {
        mount.make_directory(mount.root(), b"lock", Sattr3::default()).map(|_| ())
    });
    assert_eq!(made.unwrap_err().status(), Some(Status::EXIST));
}

#[test]
fn a_removal_sent_once_that_finds_nothing_is_an_error() {
    let fake = Fake::start(1);
    let mount = fake.mount();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| mount.remove(mount.root(), b"name"));
        let call = fake.next();
        assert_eq!(call.procedure, Procedure::Remove);
        call.failed(Status::NOENT);
        assert_eq!(waiting.join().unwrap().unwrap_err().status(), Some(Status::NOENT));
    });
    assert_eq!(mount.statistics().replays, Replays::default());
}
