//! Files that are held: they can be used after their last name is gone, until they are released.

#[path = "dir/fixture.rs"]
mod fixture;

use fixture::Home;
use smallvec::SmallVec;
use store::{
    Caller, CreateMode, DirStore, MemStore, NewObject, ObjectId, Result, SetAttributes, Stability, Status,
    Store, Wait,
};

/// The user that runs the tests.
fn me() -> Caller<'static> {
    Caller { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw(), gids: &[] }
}

fn file(store: &dyn Store, name: &str) -> ObjectId {
    let set = SetAttributes { mode: Some(0o644), ..SetAttributes::default() };
    let new = NewObject::File(CreateMode::Guarded(set));
    store.create(me(), store.root(), name.as_bytes(), new).1.unwrap().object
}

fn write(store: &dyn Store, object: ObjectId, data: &[u8]) -> Result<u32> {
    store
        .write(me(), object, 0, data, Stability::FileSync, Wait::Allowed)
        .unwrap()
        .1
        .map(|written| written.count)
}

fn read(store: &dyn Store, object: ObjectId) -> Result<Vec<u8>> {
    let mut segments = SmallVec::new();
    store.read(me(), object, 0, 1 << 16, &mut segments, Wait::Allowed).unwrap()?;
    Ok(segments.iter().flat_map(|segment| segment.as_bytes().unwrap().to_vec()).collect())
}

fn links(store: &dyn Store, object: ObjectId) -> Result<u32> {
    store.attributes(object, Wait::Allowed).unwrap().map(|attributes| attributes.nlink)
}

/// Both stores.
fn each(test: impl Fn(&dyn Store)) {
    let me = me();
    test(&MemStore::new(64 << 20, me.uid, me.gid));
    test(&Home::new().open());
    test(&Home::in_place(std::env::temp_dir()).open());
}

/// The file has no name, and can be used.
fn check_use(store: &dyn Store, object: ObjectId) {
    assert_eq!(links(store, object), Ok(0));
    assert_eq!(write(store, object, b"written without a name"), Ok(22));
    assert_eq!(read(store, object).unwrap(), b"written without a name");
    let set = SetAttributes { size: Some(7), ..SetAttributes::default() };
    store.set_attributes(me(), object, &set, None).1.unwrap();
    assert_eq!(read(store, object).unwrap(), b"written");
    store.commit(object, 0, 0, Wait::Allowed).unwrap().1.unwrap();
    let (_, _, linked) = store.link(me(), object, store.root(), b"again");
    assert_eq!(linked, Err(Status::NotFound), "a file without a name gets none");
}

#[test]
fn a_held_file_lives_until_it_is_released_as_often_as_it_was_held() {
    each(|store| {
        let object = file(store, "f");
        write(store, object, b"before").unwrap();
        store.hold(object).unwrap();
        store.hold(object).unwrap();
        store.remove(me(), store.root(), b"f").1.unwrap();
        assert_eq!(read(store, object).unwrap(), b"before");
        check_use(store, object);
        store.release(object);
        check_use(store, object);
        store.release(object);
        assert_eq!(read(store, object), Err(Status::Stale));
        assert_eq!(links(store, object), Err(Status::Stale));
        assert_eq!(store.hold(object), Err(Status::Stale));
    });
}

#[test]
fn a_held_file_that_a_rename_replaces_lives_too() {
    each(|store| {
        let (object, other) = (file(store, "f"), file(store, "g"));
        store.hold(object).unwrap();
        store.rename(me(), (store.root(), b"g"), (store.root(), b"f")).2.unwrap();
        check_use(store, object);
        assert_eq!(links(store, other), Ok(1));
        store.release(object);
        assert_eq!(links(store, object), Err(Status::Stale));
    });
}

#[test]
fn a_released_file_with_a_name_stays() {
    each(|store| {
        let object = file(store, "f");
        store.hold(object).unwrap();
        store.release(object);
        store.release(object);
        assert_eq!(links(store, object), Ok(1));
        store.remove(me(), store.root(), b"f").1.unwrap();
        assert_eq!(links(store, object), Err(Status::Stale), "one release too many does not count");
    });
}

#[test]
fn only_files_are_held() {
    each(|store| {
        assert_eq!(store.hold(store.root()), Err(Status::IsDirectory));
        let new = NewObject::Symlink(SetAttributes::default(), b"target");
        let link = store.create(me(), store.root(), b"l", new).1.unwrap().object;
        assert_eq!(store.hold(link), Err(Status::Invalid));
    });
}

#[test]
fn a_memory_store_has_its_space_back_after_the_release() {
    let store = MemStore::new(64 << 20, me().uid, me().gid);
    let empty = store.statistics();
    let object = file(&store, "f");
    write(&store, object, &[1; 50_000]).unwrap();
    store.hold(object).unwrap();
    store.remove(me(), store.root(), b"f").1.unwrap();
    assert!(store.statistics().bytes_used > empty.bytes_used + 50_000);
    store.release(object);
    assert_eq!(store.statistics(), empty);
}

/// Two processes that serve one directory, as two stores of this one.
fn two(home: &Home) -> (DirStore, DirStore) {
    (home.open(), home.open())
}

#[test]
fn a_held_file_survives_its_removal_by_a_local_program() {
    for home in [Home::new(), Home::in_place(std::env::temp_dir())] {
        let store = home.open();
        let object = file(&store, "f");
        store.hold(object).unwrap();
        std::fs::remove_file(home.path("f")).unwrap();
        check_use(&store, object);
        store.release(object);
        assert_eq!(links(&store, object), Err(Status::Stale));
    }
}

#[test]
fn a_file_that_one_process_holds_can_be_held_by_another_after_its_removal() {
    for home in [Home::new(), Home::in_place(std::env::temp_dir())] {
        let (one, other) = two(&home);
        if !one.notes().iter().all(|note| !note.contains("cannot be opened here")) {
            eprintln!("skipped: the kernel's file handles cannot be opened here");
            continue;
        }
        let object = file(&one, "f");
        write(&one, object, b"data").unwrap();
        one.hold(object).unwrap();
        other.remove(me(), other.root(), b"f").1.unwrap();
        assert_eq!(links(&other, object), Err(Status::Stale), "it does not hold the file");
        other.hold(object).unwrap();
        // The first process ends.
        drop(one);
        assert_eq!(read(&other, object).unwrap(), b"data");
        check_use(&other, object);
        other.release(object);
        assert_eq!(other.hold(object), Err(Status::Stale), "nobody has it open any more");
    }
}

#[test]
fn a_process_that_holds_a_file_before_it_removes_it_needs_no_other() {
    let home = Home::new();
    let (one, other) = two(&home);
    let object = file(&one, "f");
    one.hold(object).unwrap();
    other.hold(object).unwrap();
    other.remove(me(), other.root(), b"f").1.unwrap();
    drop(one);
    check_use(&other, object);
}
