//! Files that lose their opens in every way.

#[path = "../../../tests/support/latched.rs"]
mod latched;

use super::*;
use store::{Caller, CreateMode, MemStore, NewObject, SetAttributes, Wait};

const ROOT: Caller<'static> = Caller { uid: 0, gid: 0, gids: &[] };

/// A file that has lost its name after an OPEN of it began, and whether it is still there.
fn unlinked(held: &HeldFiles, test: impl FnOnce(&dyn Fn() -> bool)) {
    let store: Arc<dyn Store> = Arc::new(MemStore::new(1 << 20, 0, 0));
    let new = NewObject::File(CreateMode::Guarded(SetAttributes::default()));
    let object = store.create(ROOT, store.root(), b"f", new).1.unwrap().object;
    assert_eq!(held.open(&store, object, b"f"), Ok(true));
    store.remove(ROOT, store.root(), b"f").1.unwrap();
    test(&|| store.attributes(object, Wait::Allowed).unwrap().is_ok());
}

#[test]
fn an_open_that_ends_during_another_is_looked_at_after_that() {
    for by_search in [false, true] {
        let held = HeldFiles::default();
        unlinked(&held, |is_there| {
            if by_search {
                while held.search(1, |_| false) {}
            } else {
                held.close(b"f", |_| false);
            }
            assert!(is_there(), "it is being opened");
            assert!(held.opened(b"f"));
            held.close(b"f", |_| true);
            assert!(is_there(), "another has it open");
            held.close(b"f", |_| false);
            assert!(!is_there());
        });
    }
}

#[test]
fn an_open_alone_needs_no_further_look() {
    let held = HeldFiles::default();
    unlinked(&held, |is_there| {
        assert!(!held.opened(b"f"));
        assert!(is_there());
        while held.search(1, |_| false) {}
        let deadline = std::time::Instant::now() + Duration::from_secs(60);
        while is_there() {
            assert!(std::time::Instant::now() < deadline, "the file is not released");
            std::thread::yield_now();
        }
    });
}

/// While a store does not answer, no more files wait for it than a bound, and none is lost.
#[test]
fn files_that_cannot_be_released_yet_are_found_again() {
    const FILES: usize = 3000;
    let latch = latched::Latch::default();
    let store: Arc<dyn Store> = Arc::from(latched::Latched::new(&latch) as Box<dyn Store>);
    let held = HeldFiles::default();
    for number in 0..FILES {
        let name = number.to_string();
        let new = NewObject::File(CreateMode::Guarded(SetAttributes::default()));
        let object = store.create(ROOT, store.root(), name.as_bytes(), new).1.unwrap().object;
        assert_eq!(held.open(&store, object, name.as_bytes()), Ok(true));
        assert!(!held.opened(name.as_bytes()));
    }
    let before = latch.done();
    latch.close();
    let left = || held.parts.iter().map(|part| part.lock().unwrap().len()).sum::<usize>();
    for _ in 0..10 * PARTS {
        assert!(held.search(1, |_| false), "there is more");
    }
    assert!(left() >= FILES - 1024, "{}", left());
    assert_eq!(latch.done(), before);
    latch.open();
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while latch.done() < before + FILES {
        assert!(std::time::Instant::now() < deadline, "{} are left", left());
        held.search(1, |_| false);
    }
    while held.search(1, |_| false) {}
    assert_eq!(left(), 0);
}
