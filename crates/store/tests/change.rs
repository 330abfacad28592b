//! The change attribute: of both stores, after every operation that changes an object. RFC 8881
//! s5.8.1.4

#[path = "dir/fixture.rs"]
mod fixture;

use fixture::{Home, mode, size};
use std::path::PathBuf;
use std::time::Duration;
use store::{
    Attributes, Caller, CreateMode, Effect, MemStore, NewObject, ObjectId, Result, SetAttributes, SetTime,
    Stability, Store, Time, Wait,
};
use testkit::Deadline;

/// The user that runs the tests.
fn me() -> Caller<'static> {
    Caller { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw(), gids: &[] }
}

fn attributes(store: &dyn Store, object: ObjectId) -> Attributes {
    store.attributes(object, Wait::Allowed).unwrap().unwrap()
}

fn change(store: &dyn Store, object: ObjectId) -> u64 {
    attributes(store, object).change
}

fn create(store: &dyn Store, parent: ObjectId, name: &str, new: NewObject<'_>) -> ObjectId {
    store.create(me(), parent, name.as_bytes(), new).1.unwrap().object
}

const FILE: NewObject<'static> = NewObject::File(CreateMode::Guarded(SetAttributes {
    mode: Some(0o644),
    uid: None,
    gid: None,
    size: None,
    atime: SetTime::Keep,
    mtime: SetTime::Keep,
}));

/// Both stores.
fn each(test: impl Fn(&dyn Store)) {
    let me = me();
    test(&MemStore::new(64 << 20, me.uid, me.gid));
    // One in memory, and one on a disk.
    test(&Home::new().open());
    test(&Home::in_place(std::env::temp_dir()).open());
}

/// The effect of an operation that changed its object, as it was before and is now.
fn check_effect(store: &dyn Store, object: ObjectId, before: u64, effect: Effect) -> u64 {
    let (found, left) = (effect.before.unwrap().change, effect.after.unwrap().change);
    assert!(before <= found && found < left, "{before}, {found}, {left}");
    if effect.atomic {
        assert_eq!((before, change(store, object)), (found, left), "nobody else was there");
    }
    assert_eq!(effect.atomic, store.capabilities().change_grows, "so it is with these two");
    let now = change(store, object);
    assert!(left <= now);
    now
}

#[test]
fn every_change_of_a_file_changes_its_attribute() {
    each(|store| {
        let file = create(store, store.root(), "f", FILE);
        let mut last = change(store, file);
        for step in 0..40_u64 {
            let (effect, result): (Effect, Result<()>) = match step % 4 {
                0 => {
                    let written = store
                        .write(me(), file, 0, b"same length", Stability::Unstable, Wait::Allowed)
                        .unwrap();
                    (written.0, written.1.map(drop))
                }
                1 => store.set_attributes(me(), file, &mode(0o600), None),
                2 => store.set_attributes(me(), file, &size(11), None),
                _ => {
                    let mtime = SetTime::To(Time::from_seconds(5));
                    let set = SetAttributes { mtime, ..SetAttributes::default() };
                    store.set_attributes(me(), file, &set, None)
                }
            };
            result.unwrap();
            last = check_effect(store, file, last, effect);
        }
        let (_, _, linked) = store.link(me(), file, store.root(), b"g");
        linked.unwrap();
        assert!(change(store, file) > last, "the number of links has changed");
    });
}

#[test]
fn every_change_of_names_changes_the_attribute_of_the_directory() {
    each(|store| {
        let here = create(store, store.root(), "d", NewObject::Directory(mode(0o755)));
        let there = create(store, store.root(), "e", NewObject::Directory(mode(0o755)));
        let mut last = change(store, here);
        for _ in 0..5 {
            let (effect, made) = store.create(me(), here, b"f", FILE);
            let file = made.unwrap().object;
            last = check_effect(store, here, last, effect);
            let (_, effect, linked) = store.link(me(), file, here, b"g");
            linked.unwrap();
            last = check_effect(store, here, last, effect);
            let (one, other, renamed) = store.rename(me(), (here, b"f"), (here, b"h"));
            renamed.unwrap();
            assert_eq!(one, other);
            last = check_effect(store, here, last, one);
            let before = change(store, there);
            let (from, to, renamed) = store.rename(me(), (here, b"h"), (there, b"h"));
            renamed.unwrap();
            last = check_effect(store, here, last, from);
            check_effect(store, there, before, to);
            let (effect, removed) = store.remove(me(), here, b"g");
            removed.unwrap();
            last = check_effect(store, here, last, effect);
            store.remove(me(), there, b"h").1.unwrap();
        }
    });
}

#[test]
fn what_changes_nothing_leaves_the_attribute_of_a_memory_store() {
    let store = MemStore::new(64 << 20, me().uid, me().gid);
    let file = create(&store, store.root(), "f", FILE);
    let last = change(&store, file);
    let (effect, empty) = store.set_attributes(me(), file, &SetAttributes::default(), None);
    empty.unwrap();
    assert_eq!((effect.before.unwrap().change, effect.after.unwrap().change), (last, last));
    let (effect, refused) = store.create(me(), store.root(), b"f", FILE);
    refused.unwrap_err();
    assert_eq!(effect.before.unwrap().change, effect.after.unwrap().change);
    let (effect, _) = store.commit(file, 0, 0, Wait::Allowed).unwrap();
    assert_eq!(effect.after.unwrap().change, last);
}

#[test]
fn a_file_that_rests_has_one_attribute_over_restarts() {
    for base in ["/dev/shm".into(), std::env::temp_dir()] {
        let base: PathBuf = base;
        if !base.is_dir() {
            continue;
        }
        let home = Home::in_place(base);
        let store = home.open();
        let file = create(&store, store.root(), "f", FILE);
        // It counts as settled only once the clock has moved on, which nobody can hurry.
        let mut last = change(&store, file);
        let settled = Deadline::wait_until("a file that has settled", Duration::from_secs(20), || {
            let before = std::mem::replace(&mut last, change(&store, file));
            assert!(before <= last);
            (before == last).then_some(last)
        });
        drop(store);
        let store = home.open();
        assert_eq!(change(&store, file), settled);
        // A local program changes it.
        std::fs::write(home.path("f"), "more").unwrap();
        let local = change(&store, file);
        assert!(local > settled);
        drop(store);
        let store = home.open();
        assert!(change(&store, file) >= local);
        let listed = {
            let mut found = None;
            let visit = &mut |entry: store::Entry<'_>| {
                if entry.name == b"f" {
                    found = Some(entry.found.attributes.change);
                }
                true
            };
            store.read_directory(me(), store.root(), 0, visit).unwrap();
            found.unwrap()
        };
        assert!(listed >= local);
    }
}
