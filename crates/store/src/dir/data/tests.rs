//! Concurrent syncs of one file, of which one fails. The device need not fail: the result of that
//! sync is injected.

use crate::dir::fault::status;
use crate::dir::find::PATH_FLAGS;
use crate::dir::node::Node;
use crate::dir::{DirOptions, DirStore};
use crate::interface::{
    Caller, CreateMode, NewObject, ObjectId, Result, SetAttributes, Stability, Store, Wait, Written,
};
use rustix::fs::{Mode, SeekFrom};
use rustix::io::Errno;
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;
use testkit::{Deadline, TempDir};

const PATIENCE: Duration = Duration::from_secs(20);
const DATA: &[u8] = b"on its way to the device";

/// The user that runs the tests.
fn me() -> Caller<'static> {
    Caller { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw(), gids: &[] }
}

/// A served directory with one file, `file`.
struct Served {
    home: TempDir,
    store: DirStore,
    file: ObjectId,
}

impl Served {
    fn new() -> Self {
        let home = testkit::temp_dir("syncs");
        let path = home.path().join("export");
        std::fs::create_dir(&path).unwrap();
        let state = Some(home.path().join("state"));
        let store = DirStore::open(&DirOptions { path, state, server_groups: false }).unwrap();
        let set = SetAttributes { mode: Some(0o644), ..SetAttributes::default() };
        let file = store
            .create(me(), store.root(), b"file", NewObject::File(CreateMode::Guarded(set)))
            .1
            .unwrap()
            .object;
        Self { home, store, file }
    }

    fn write(&self, stability: Stability) -> Result<Written> {
        self.store.write(me(), self.file, 0, DATA, stability, Wait::Allowed).unwrap().1
    }

    fn commit(&self) -> Result<u64> {
        self.store.commit(self.file, 0, 0, Wait::Allowed).unwrap().1
    }

    /// Runs `act`, which syncs the file, while another sync is in progress; that sync ends with
    /// `told` once `act` waits for it.
    fn beside_a_sync<T: Send>(&self, told: rustix::io::Result<()>, act: impl FnOnce(&Self) -> T + Send) -> T {
        let shared = &self.store.shared;
        let node = shared.get(self.file).unwrap();
        thread::scope(|scope| {
            let mut thread = None;
            let other = shared.sync_by(&node, || {
                let thread = thread.insert(scope.spawn(|| act(self)));
                wait_until_it_waits(&node, thread);
                told
            });
            assert_eq!(other, told.map_err(status));
            thread.unwrap().join().unwrap()
        })
    }
}

/// Waits until `thread` waits for the sync in progress. While a sync is waited for, no other sync
/// begins, or the wait might never end.
fn wait_until_it_waits<T>(node: &Node, thread: &ScopedJoinHandle<'_, T>) {
    Deadline::wait_until("a sync that waits for the other one", PATIENCE, || {
        assert!(!thread.is_finished(), "it did not wait for the sync that is under way");
        node.syncs.try_read().is_err().then_some(())
    });
}

#[test]
fn a_stable_write_is_synced_through_an_open_file_of_its_own_and_waits_for_no_other_sync() {
    let served = Served::new();
    let shared = &served.store.shared;
    let node = shared.get(served.file).unwrap();
    for stability in [Stability::DataSync, Stability::FileSync] {
        let stat = node.stat().unwrap();
        let (count, own) = shared.write_in(me(), &node, &stat, 0, DATA, stability).unwrap();
        assert_eq!(count as usize, DATA.len());
        let Some(own) = own else {
            assert!(shared.memory, "only there is nothing to sync");
            continue;
        };
        // Two descriptors of one open file description would share one position.
        rustix::fs::seek(&own, SeekFrom::Start(5)).unwrap();
        assert_eq!(rustix::fs::tell(node.opened_to_write().unwrap()), Ok(0), "{stability:?}");
        let beside = shared.sync_by(&node, || {
            let written = served.write(stability).unwrap();
            assert_eq!((written.committed, written.verifier), (stability, served.store.verifier()));
            Ok(())
        });
        assert_eq!(beside, Ok(()));
    }
    let (_, own) = shared.write_in(me(), &node, &node.stat().unwrap(), 0, DATA, Stability::Unstable).unwrap();
    assert!(own.is_none(), "a COMMIT syncs it");
}

#[test]
fn a_commit_shows_the_loss_that_anothers_sync_was_told_of() {
    let served = Served::new();
    let written = served.write(Stability::Unstable).unwrap();
    assert_eq!(served.beside_a_sync(Ok(()), Served::commit), Ok(written.verifier));
    let verifier = served.beside_a_sync(Err(Errno::IO), Served::commit).unwrap();
    assert_ne!(verifier, written.verifier, "the client writes its data anew");
    assert_eq!(verifier, served.store.verifier());
}

#[test]
fn a_failed_sync_of_a_files_attributes_counts_as_a_loss_of_its_data() {
    let served = Served::new();
    let open =
        || rustix::fs::open(served.home.path().join("export/file"), PATH_FLAGS, Mode::empty()).unwrap();
    let stat = rustix::fs::fstat(open()).unwrap();
    let node = Node::new(served.file, open(), &stat, &served.store.shared.changes);
    // A descriptor opened with `O_PATH` cannot be synced.
    node.adopt(open());
    let before = served.store.verifier();
    assert!(served.store.shared.sync_attributes(&node).is_err());
    assert_ne!(served.store.verifier(), before);
}
