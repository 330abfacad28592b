//! Tests a mount of our own server as programs see it: the promises of docs/SEMANTICS.md, programs
//! that people run, the life of a mount from a line of fstab to a kill, and random operations
//! compared with a local directory. Needs root and FUSE; `cargo xtask test` runs these tests, plain
//! `cargo test` does not.

#[path = "mount/caches.rs"]
mod caches;
#[path = "mount/coherence.rs"]
mod coherence;
#[path = "mount/delegations.rs"]
mod delegations;
#[path = "mount/fetched.rs"]
mod fetched;
#[path = "mount/fio.rs"]
mod fio;
#[path = "mount/fixture.rs"]
mod fixture;
#[path = "mount/fstab.rs"]
mod fstab;
#[path = "mount/group.rs"]
mod group;
#[path = "mount/hostile.rs"]
mod hostile;
#[path = "mount/io500.rs"]
mod io500;
#[path = "mount/killed.rs"]
mod killed;
#[path = "mount/lacking.rs"]
mod lacking;
#[path = "mount/life.rs"]
mod life;
#[path = "mount/limits.rs"]
mod limits;
#[path = "mount/listing.rs"]
mod listing;
#[path = "mount/locks.rs"]
mod locks;
#[path = "mount/model.rs"]
mod model;
#[path = "mount/mounts.rs"]
mod mounts;
#[path = "mount/ordinary_user.rs"]
mod ordinary_user;
#[path = "mount/programs.rs"]
mod programs;
#[path = "mount/refusals.rs"]
mod refusals;
#[path = "mount/replaced.rs"]
mod replaced;
#[path = "mount/replacing.rs"]
mod replacing;
#[path = "mount/retry.rs"]
mod retry;
#[path = "mount/semantics.rs"]
mod semantics;
#[path = "mount/silent.rs"]
mod silent;
#[path = "mount/status.rs"]
mod status;
#[path = "mount/umount.rs"]
mod umount;
#[path = "mount/version_4.rs"]
mod version_4;
#[path = "mount/version_4_2.rs"]
mod version_4_2;
#[path = "mount/watched.rs"]
mod watched;

/// Checks that each promise of the document names a test, and that the test exists.
#[test]
fn every_promise_has_its_test() {
    let sources = [
        include_str!("group/delegations.rs"),
        include_str!("group/locked.rs"),
        include_str!("group/taken_over.rs"),
        include_str!("group/under_load.rs"),
        include_str!("group/version_4.rs"),
        include_str!("mount/caches.rs"),
        include_str!("mount/coherence.rs"),
        include_str!("mount/delegations.rs"),
        include_str!("mount/fetched.rs"),
        include_str!("mount/fio.rs"),
        include_str!("mount/fstab.rs"),
        include_str!("mount/group.rs"),
        include_str!("mount/killed.rs"),
        include_str!("mount/lacking.rs"),
        include_str!("mount/life.rs"),
        include_str!("mount/limits.rs"),
        include_str!("mount/listing.rs"),
        include_str!("mount/locks.rs"),
        include_str!("mount/model.rs"),
        include_str!("mount/ordinary_user.rs"),
        include_str!("mount/programs.rs"),
        include_str!("mount/refusals.rs"),
        include_str!("mount/replaced.rs"),
        include_str!("mount/replacing.rs"),
        include_str!("mount/retry.rs"),
        include_str!("mount/semantics.rs"),
        include_str!("mount/silent.rs"),
        include_str!("mount/status.rs"),
        include_str!("mount/umount.rs"),
        include_str!("mount/version_4.rs"),
        include_str!("mount/version_4_2.rs"),
        include_str!("vm_rdma/two_kernels.rs"),
        include_str!("../../client/src/path_losses.rs"),
        include_str!("../../client/tests/bad_answers.rs"),
        include_str!("../../client/tests/call_backs.rs"),
        include_str!("../../client/tests/delegations.rs"),
        include_str!("../../client/tests/locks_v3.rs"),
        include_str!("../../client/tests/nfs4.rs"),
        include_str!("../../client/tests/sessions.rs"),
        include_str!("../../client/tests/stable_writes.rs"),
        include_str!("../../server/src/addresses.rs"),
        include_str!("../../server/tests/server/nfs4/call_backs.rs"),
        include_str!("../../server/tests/server/nfs4/delegations.rs"),
        include_str!("../../server/tests/server/nlm/conflicts.rs"),
        include_str!("../../server/tests/server/nlm/group.rs"),
        include_str!("../../server/tests/server/nlm/hostile.rs"),
        include_str!("../../server/tests/server/nlm/registration.rs"),
        include_str!("../../server/tests/server/nlm/restart.rs"),
        include_str!("../../server/tests/server/nlm/waiting.rs"),
        include_str!("../../client/tests/version_4_2.rs"),
        include_str!("../../client/src/owners.rs"),
        include_str!("../../client/src/owners/asking.rs"),
        include_str!("../../server/tests/server/nfs4/group.rs"),
        include_str!("../../server/tests/server/nfs4/copies.rs"),
        include_str!("../../server/tests/server/nfs4/denials.rs"),
        include_str!("../../server/tests/server/nfs4/locations.rs"),
        include_str!("../../server/tests/server/nfs4/restart.rs"),
        include_str!("../../server/tests/server/nfs4/space.rs"),
        include_str!("../../server/tests/server/nfs4/unlinked.rs"),
        include_str!("../../server/tests/server/nfs4/xattrs.rs"),
        include_str!("../../state/src/tests/races.rs"),
        include_str!("../../state/src/tests/recalls.rs"),
        include_str!("../../state/src/tests/threads.rs"),
        include_str!("../../store/src/dir/changes/tests.rs"),
        include_str!("../../store/tests/change.rs"),
        include_str!("../../store/tests/held.rs"),
        include_str!("../../store/tests/holes.rs"),
        include_str!("../../store/tests/xattrs.rs"),
    ];
    let document = include_str!("../../../docs/SEMANTICS.md");
    let mut named = 0;
    for line in document.lines().filter(|line| line.starts_with("| ")) {
        let Some(tests) = line.rsplit('|').nth(1).and_then(|cell| cell.trim().strip_prefix('`')) else {
            continue;
        };
        for test in tests.trim_end_matches('`').split("`, `") {
            let found = sources.iter().any(|source| source.contains(&format!("fn {test}()")));
            assert!(found, "docs/SEMANTICS.md names {test}, which does not exist");
            named += 1;
        }
    }
    assert!(named >= 20, "{named} promises with a test");
}
