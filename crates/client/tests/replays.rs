//! Tests calls that are sent again to servers that do not know that they have executed them.

#[path = "support/fake.rs"]
mod fake;

use client::{Mount, Op, Replays, Settings};
use fake::{Fake, file};
use fs::SetAttributes;
use nfs3::{Procedure, Status};
use std::collections::{HashMap, HashSet};

/// The result of a change whose first reply is lost with its connection, and whose second reply has
/// this status.
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
    assert_eq!(retransmissions, 1, "the call was sent again on the only path");
    let Replays { reconciled, undecided, unfenced } = statistics.replays;
    assert_eq!((reconciled, undecided), if outcome.is_ok() { (1, 0) } else { (0, 1) });
    assert_eq!(unfenced, 0, "the connection had ended");
    outcome
}

#[test]
fn a_repeated_removal_that_finds_nothing_succeeds() {
    after_a_cut(Status::NOENT, |mount| mount.remove(mount.root(), b"name")).unwrap();
    after_a_cut(Status::NOENT, |mount| mount.remove_directory(mount.root(), b"name")).unwrap();
}

#[test]
fn a_repeated_creation_that_finds_the_name_taken_returns_the_error() {
    let made = after_a_cut(Status::EXIST, |mount| {
        mount.make_directory(mount.root(), b"lock", SetAttributes::default()).map(|_| ())
    });
    assert_eq!(made.unwrap_err().status(), Some(fs::Status::Exists));
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
        assert_eq!(waiting.join().unwrap().unwrap_err().status(), Some(fs::Status::NotFound));
    });
    assert_eq!(mount.statistics().replays, Replays::default());
}

#[test]
fn no_two_loops_share_an_identity_or_its_part_that_older_servers_use() {
    const LOOPS: usize = 3;
    let fake = Fake::start(1);
    let mounts = [0, 1].map(|_| Mount::with_settings(Settings { loops: LOOPS, ..fake.settings(6) }).unwrap());
    let mut by_identity: HashMap<u64, Vec<fake::Request>> = HashMap::new();
    for mount in &mounts {
        let file = file(mount);
        // READs go to the loops in turn, and on each loop to the connection with the fewest bytes
        // in flight.
        let pending =
            [(); 2 * LOOPS].map(|()| mount.submit(Op::Read { file, offset: 0, buffer: vec![0; 8].into() }));
        for _ in &pending {
            let request = fake.next();
            request.data_read(&[7; 8]);
            by_identity.entry(request.client_id.expect("our client's mark")).or_default().push(request);
        }
        assert!(pending.into_iter().all(|pending| pending.wait().result.is_ok()));
    }
    assert_eq!(by_identity.len(), mounts.len() * LOOPS);
    assert!(by_identity.values().all(|requests| requests.len() == 2), "one identity for all calls of a loop");
    // Older servers take the last 8 bits for the number of a loop, and the others for the mount.
    let of_mounts: HashSet<u64> = by_identity.keys().map(|id| id >> 8).collect();
    assert_eq!(of_mounts.len(), by_identity.len());
}
