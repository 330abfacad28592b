//! Tests the operations of the tree one by one: POSIX as Linux implements it, seen through RFC
//! 1813.

use store::{
    Caller, CreateMode, Device, FileKind, Found, MemStore, NewObject, ObjectId, Result, Rights,
    SetAttributes, SetTime, Special, Stability, Status, Store, Time, Wait,
};

const ROOT: Caller<'static> = Caller { uid: 0, gid: 0, gids: &[] };
const ANN: Caller<'static> = Caller { uid: 1000, gid: 100, gids: &[200] };
const BOB: Caller<'static> = Caller { uid: 1001, gid: 101, gids: &[] };

fn new_store() -> MemStore {
    MemStore::new(64 << 20, 1000, 100)
}

fn mode(mode: u32) -> SetAttributes {
    SetAttributes { mode: Some(mode), ..SetAttributes::default() }
}

fn file(store: &MemStore, caller: Caller<'_>, name: &[u8], bits: u32) -> Found {
    store.create(caller, store.root(), name, NewObject::File(CreateMode::Guarded(mode(bits)))).1.unwrap()
}

fn directory(store: &MemStore, caller: Caller<'_>, parent: ObjectId, name: &[u8], bits: u32) -> ObjectId {
    store.create(caller, parent, name, NewObject::Directory(mode(bits))).1.unwrap().object
}

fn write(store: &MemStore, caller: Caller<'_>, object: ObjectId, offset: u64, data: &[u8]) -> Result<u32> {
    store
        .write(caller, object, offset, data, Stability::Unstable, Wait::Allowed)
        .unwrap()
        .1
        .map(|written| written.count)
}

fn read(store: &MemStore, caller: Caller<'_>, object: ObjectId, offset: u64, count: u32) -> Result<Vec<u8>> {
    let mut out = smallvec::SmallVec::new();
    let end = store.read(caller, object, offset, count, &mut out, Wait::Allowed).unwrap()?;
    let bytes: Vec<u8> = out.iter().flat_map(|segment| segment.as_bytes().unwrap().to_vec()).collect();
    assert_eq!(bytes.len(), end.count as usize);
    Ok(bytes)
}

fn names(store: &MemStore, caller: Caller<'_>, object: ObjectId, cookie: u64) -> Result<Vec<(Vec<u8>, u64)>> {
    let mut found = Vec::new();
    let end = store.read_directory(caller, object, cookie, &mut |entry| {
        found.push((entry.name.to_vec(), entry.cookie));
        true
    })?;
    assert!(end.eof);
    Ok(found)
}

#[test]
fn a_new_store_has_an_empty_root_that_belongs_to_its_owner() {
    let store = new_store();
    let root = store.attributes(store.root(), Wait::Allowed).unwrap().unwrap();
    assert_eq!(
        (root.kind, root.mode, root.uid, root.gid, root.nlink),
        (FileKind::Directory, 0o755, 1000, 100, 2)
    );
    assert_eq!(names(&store, BOB, store.root(), 0).unwrap(), [(b".".to_vec(), 1), (b"..".to_vec(), 2)]);
    assert_eq!(
        store.lookup(BOB, store.root(), b"..", Wait::Allowed).unwrap().1.unwrap().object,
        store.root()
    );
    let stranger = ObjectId::new(77, 1);
    assert_eq!(store.attributes(stranger, Wait::Allowed).unwrap(), Err(Status::Stale));
    assert_eq!(store.attributes(ObjectId::new(u64::MAX, 1), Wait::Allowed).unwrap(), Err(Status::Stale));
    assert_eq!(store.attributes(ObjectId::new(0, 0), Wait::Allowed).unwrap(), Err(Status::Stale));
}

#[test]
fn names_are_bytes_and_invalid_names_are_refused() {
    let store = new_store();
    let root = store.root();
    let odd = b"\xff\xfe\n\x01 \xc3(";
    let made = file(&store, ANN, odd, 0o644);
    assert_eq!(store.lookup(BOB, root, odd, Wait::Allowed).unwrap().1.unwrap().object, made.object);
    file(&store, ANN, &[b'x'; 255], 0o644);
    let bad: [(&[u8], Status); 6] = [
        (b"", Status::Access),
        (&[b'x'; 256], Status::NameTooLong),
        (b"a/b", Status::Invalid),
        (b"a\0b", Status::Invalid),
        (b".", Status::Exists),
        (b"..", Status::Exists),
    ];
    for (name, error) in bad {
        let new = NewObject::File(CreateMode::Guarded(SetAttributes::default()));
        assert_eq!(store.create(ANN, root, name, new).1, Err(error), "{name:?}");
    }
    assert_eq!(store.remove(ANN, root, b".").1, Err(Status::Access));
    // RFC 1813 s3.3.13
    assert_eq!(store.remove_directory(ANN, root, b".").1, Err(Status::Invalid));
    assert_eq!(store.remove_directory(ANN, root, b"..").1, Err(Status::Exists));
    assert_eq!(store.rename(ANN, (root, b"."), (root, b"a")).2, Err(Status::Invalid));
    assert_eq!(store.lookup(ANN, made.object, b"x", Wait::Allowed).unwrap().1, Err(Status::NotDirectory));
    assert_eq!(store.lookup(ANN, root, b"none", Wait::Allowed).unwrap().1, Err(Status::NotFound));
}

#[test]
fn the_mode_of_create_decides_what_happens_to_an_existing_file() {
    let store = new_store();
    let root = store.root();
    let made = file(&store, ANN, b"f", 0o640);
    write(&store, ANN, made.object, 0, b"hello").unwrap();
    let again = |new| store.create(ANN, root, b"f", new).1;
    assert_eq!(again(NewObject::File(CreateMode::Guarded(mode(0o600)))), Err(Status::Exists));
    let used = again(NewObject::File(CreateMode::Unchecked(mode(0o777)))).unwrap();
    assert_eq!((used.object, used.attributes.mode, used.attributes.size), (made.object, 0o640, 5));
    let cut = SetAttributes { size: Some(2), ..SetAttributes::default() };
    assert_eq!(again(NewObject::File(CreateMode::Unchecked(cut))).unwrap().attributes.size, 2);
    assert_eq!(
        store.create(BOB, root, b"f", NewObject::File(CreateMode::Unchecked(cut))).1,
        Err(Status::Access)
    );
    assert_eq!(again(NewObject::File(CreateMode::Exclusive([1; 8]))), Err(Status::Exists));
    assert_eq!(again(NewObject::Directory(mode(0o755))), Err(Status::Exists));
    assert_eq!(again(NewObject::Symlink(mode(0), b"t")), Err(Status::Exists));
}

// RFC 1813 s3.3.8
#[test]
fn an_exclusive_create_repeated_with_its_verifier_finds_its_file() {
    let store = new_store();
    let root = store.root();
    let first =
        store.create(ANN, root, b"f", NewObject::File(CreateMode::Exclusive(*b"verifier"))).1.unwrap();
    store.set_attributes(ANN, first.object, &mode(0o600), None).1.unwrap();
    let again =
        store.create(ANN, root, b"f", NewObject::File(CreateMode::Exclusive(*b"verifier"))).1.unwrap();
    assert_eq!(again.object, first.object);
    assert_eq!(
        store.create(ANN, root, b"f", NewObject::File(CreateMode::Exclusive(*b"reifirev"))).1,
        Err(Status::Exists)
    );
}

// RFC 1813 s4.4
#[test]
fn the_owner_may_always_use_the_data_and_execute_implies_read() {
    let store = new_store();
    let own = file(&store, ANN, b"own", 0o000).object;
    assert_eq!(write(&store, ANN, own, 0, b"data"), Ok(4));
    assert_eq!(read(&store, ANN, own, 0, 10), Ok(b"data".to_vec()));
    assert_eq!(
        store.access(ANN, own, Rights(0x3f), Wait::Allowed).unwrap().unwrap().0,
        Rights(0),
        "ACCESS reports the mode bits"
    );
    assert_eq!(read(&store, BOB, own, 0, 10), Err(Status::Access));
    assert_eq!(write(&store, BOB, own, 0, b"x"), Err(Status::Access));
    assert_eq!(read(&store, ROOT, own, 0, 10), Ok(b"data".to_vec()));
    store.set_attributes(ANN, own, &mode(0o711), None).1.unwrap();
    assert_eq!(read(&store, BOB, own, 0, 10), Ok(b"data".to_vec()));
    assert_eq!(store.access(BOB, own, Rights(0x3f), Wait::Allowed).unwrap().unwrap().0, Rights(0x20));
    assert_eq!(store.access(ROOT, own, Rights(0x3f), Wait::Allowed).unwrap().unwrap().0, Rights(0x2d));
}

#[test]
fn primary_and_supplementary_groups_give_rights() {
    let store = new_store();
    let made = file(&store, ANN, b"f", 0o060).object;
    let set = |gid| SetAttributes { gid: Some(gid), ..SetAttributes::default() };
    assert_eq!(store.set_attributes(ANN, made, &set(300), None).1, Err(Status::NotPermitted));
    store.set_attributes(ANN, made, &set(200), None).1.unwrap();
    let member = Caller { uid: 5, gid: 9, gids: &[7, 200] };
    assert_eq!(write(&store, member, made, 0, b"x"), Ok(1));
    let set_uid = SetAttributes { uid: Some(5), ..SetAttributes::default() };
    assert_eq!(store.set_attributes(ANN, made, &set_uid, None).1, Err(Status::NotPermitted));
    assert_eq!(store.set_attributes(ROOT, made, &set_uid, None).1, Ok(()));
}

#[test]
fn writing_and_giving_away_clear_set_id_bits() {
    let store = new_store();
    let made = file(&store, ANN, b"f", 0o6777).object;
    write(&store, BOB, made, 0, b"x").unwrap();
    assert_eq!(store.attributes(made, Wait::Allowed).unwrap().unwrap().mode, 0o777);
    store.set_attributes(ANN, made, &mode(0o6777), None).1.unwrap();
    write(&store, ROOT, made, 0, b"x").unwrap();
    assert_eq!(store.attributes(made, Wait::Allowed).unwrap().unwrap().mode, 0o6777);
    let set = SetAttributes { uid: Some(7), ..SetAttributes::default() };
    store.set_attributes(ROOT, made, &set, None).1.unwrap();
    assert_eq!(store.attributes(made, Wait::Allowed).unwrap().unwrap().mode, 0o777);
    // The caller is not a member of the file's group, so the set-group-ID bit is cleared.
    let own = file(&store, ANN, b"g", 0o644).object;
    let set = SetAttributes { gid: Some(300), ..SetAttributes::default() };
    store.set_attributes(ROOT, own, &set, None).1.unwrap();
    store.set_attributes(ANN, own, &mode(0o2755), None).1.unwrap();
    assert_eq!(store.attributes(own, Wait::Allowed).unwrap().unwrap().mode, 0o755);
}

#[test]
fn set_group_id_without_group_execute_stays_when_a_member_of_the_group_changes_the_file() {
    const BOB_IN_GROUP: Caller<'static> = Caller { gids: &[100], ..BOB };
    let store = new_store();
    let made = file(&store, ANN, b"f", 0o644).object;
    let bits = || store.attributes(made, Wait::Allowed).unwrap().unwrap().mode;
    let cases = [
        (ANN, 0o2644, 0o2644),
        (ANN, 0o6744, 0o2744),
        (ANN, 0o2755, 0o755),
        (BOB_IN_GROUP, 0o2666, 0o2666),
        (BOB, 0o2666, 0o666),
    ];
    for (caller, before, after) in cases {
        store.set_attributes(ANN, made, &mode(before), None).1.unwrap();
        write(&store, caller, made, 0, b"data").unwrap();
        assert_eq!(bits(), after, "{caller:?} writes {before:o}");
        store.set_attributes(ANN, made, &mode(before), None).1.unwrap();
        let size = SetAttributes { size: Some(1), ..SetAttributes::default() };
        store.set_attributes(caller, made, &size, None).1.unwrap();
        assert_eq!(bits(), after, "{caller:?} truncates {before:o}");
    }
}

#[test]
fn new_objects_inherit_the_group_of_a_set_group_id_directory() {
    let store = new_store();
    let shared = directory(&store, ANN, store.root(), b"shared", 0o2777);
    let set = SetAttributes { gid: Some(200), ..SetAttributes::default() };
    store.set_attributes(ANN, shared, &set, None).1.unwrap();
    let below = store.create(BOB, shared, b"d", NewObject::Directory(mode(0o755))).1.unwrap();
    let below = below.attributes;
    assert_eq!((below.gid, below.mode), (200, 0o2755));
    let inside =
        store.create(BOB, shared, b"f", NewObject::File(CreateMode::Unchecked(mode(0o2755)))).1.unwrap();
    let inside = inside.attributes;
    assert_eq!((inside.gid, inside.mode, inside.uid), (200, 0o755, 1001));
}

#[test]
fn a_sticky_directory_protects_the_names_of_others() {
    let store = new_store();
    let shared = directory(&store, ANN, store.root(), b"tmp", 0o1777);
    let carl = Caller { uid: 1002, gid: 1, gids: &[] };
    store.create(BOB, shared, b"f", NewObject::File(CreateMode::Unchecked(mode(0o666)))).1.unwrap();
    assert_eq!(store.remove(carl, shared, b"f").1, Err(Status::NotPermitted));
    assert_eq!(store.rename(carl, (shared, b"f"), (shared, b"g")).2, Err(Status::NotPermitted));
    store.create(carl, shared, b"c", NewObject::File(CreateMode::Unchecked(mode(0o666)))).1.unwrap();
    assert_eq!(store.rename(carl, (shared, b"c"), (shared, b"f")).2, Err(Status::NotPermitted));
    assert_eq!(store.rename(BOB, (shared, b"f"), (shared, b"g")).2, Ok(()));
    assert_eq!(store.remove(ANN, shared, b"g").1, Ok(()), "the owner of the directory may remove it");
    assert_eq!(
        store.remove(BOB, store.root(), b"none").1,
        Err(Status::NotFound),
        "a missing name is reported first"
    );
    assert_eq!(store.remove(BOB, store.root(), b"tmp").1, Err(Status::Access));
    assert_eq!(store.remove(ANN, store.root(), b"tmp").1, Err(Status::IsDirectory));
}

#[test]
fn an_object_is_freed_with_its_last_link() {
    let store = new_store();
    let root = store.root();
    let made = file(&store, ANN, b"a", 0o644).object;
    write(&store, ANN, made, 0, &[7; 10_000]).unwrap();
    let (attributes, _, result) = store.link(ANN, made, root, b"b");
    assert_eq!((result, attributes.unwrap().nlink), (Ok(()), 2));
    assert_eq!(store.link(ANN, made, root, b"b").2, Err(Status::Exists));
    assert_eq!(store.link(ANN, root, root, b"c").2, Err(Status::IsDirectory));
    assert_eq!(
        store.rename(ANN, (root, b"a"), (root, b"b")).2,
        Ok(()),
        "both names are of one file, so the rename does nothing"
    );
    assert_eq!(store.attributes(made, Wait::Allowed).unwrap().unwrap().nlink, 2);
    store.remove(ANN, root, b"a").1.unwrap();
    assert_eq!(store.attributes(made, Wait::Allowed).unwrap().unwrap().nlink, 1);
    store.remove(ANN, root, b"b").1.unwrap();
    assert_eq!(store.attributes(made, Wait::Allowed).unwrap(), Err(Status::Stale));
    assert_eq!(write(&store, ANN, made, 0, b"x"), Err(Status::Stale));
    let next = file(&store, ANN, b"n", 0o644).object;
    assert_ne!(next, made, "a reused number has a new generation");
    assert_eq!(store.attributes(made, Wait::Allowed).unwrap(), Err(Status::Stale));
}

#[test]
fn renames_that_would_break_the_tree_are_refused() {
    let store = new_store();
    let root = store.root();
    let a = directory(&store, ANN, root, b"a", 0o755);
    let b = directory(&store, ANN, a, b"b", 0o755);
    let c = directory(&store, ANN, b, b"c", 0o755);
    let move_it = |from, to| store.rename(ANN, from, to).2;
    assert_eq!(move_it((root, b"a"), (c, b"x")), Err(Status::Invalid));
    assert_eq!(move_it((root, b"a"), (a, b"x")), Err(Status::Invalid));
    assert_eq!(move_it((b, b"c"), (root, b"a")), Err(Status::NotEmpty));
    assert_eq!(move_it((a, b"b"), (root, b"a")), Err(Status::NotEmpty));
    file(&store, ANN, b"f", 0o644);
    assert_eq!(move_it((root, b"f"), (root, b"a")), Err(Status::IsDirectory));
    assert_eq!(move_it((root, b"a"), (root, b"f")), Err(Status::NotDirectory));
    assert_eq!(move_it((root, b"none"), (root, b"x")), Err(Status::NotFound));
    assert_eq!(move_it((b, b"c"), (root, b"c")), Ok(()));
    assert_eq!(store.lookup(ANN, c, b"..", Wait::Allowed).unwrap().1.unwrap().object, root);
    let links = |object| store.attributes(object, Wait::Allowed).unwrap().unwrap().nlink;
    assert_eq!((links(root), links(a), links(b), links(c)), (4, 3, 2, 2));
    assert_eq!(move_it((root, b"c"), (a, b"b")), Ok(()), "over an empty directory");
    assert_eq!(store.attributes(b, Wait::Allowed).unwrap(), Err(Status::Stale));
    assert_eq!((links(root), links(a)), (3, 3));
    assert_eq!(store.remove_directory(ANN, root, b"a").1, Err(Status::NotEmpty));
    assert_eq!(store.remove_directory(ANN, root, b"f").1, Err(Status::NotDirectory));
    assert_eq!(store.remove_directory(ANN, a, b"b").1, Ok(()));
    assert_eq!(store.remove_directory(ANN, root, b"a").1, Ok(()));
    assert_eq!((links(root), store.statistics().objects), (2, 2));
}

#[test]
fn links_devices_and_pipes_have_the_kind_they_were_created_with() {
    let store = new_store();
    let root = store.root();
    let link = store.create(ANN, root, b"l", NewObject::Symlink(mode(0o600), b"../\xff")).1.unwrap();
    let made = link.attributes;
    assert_eq!((made.kind, made.size, made.mode), (FileKind::Symlink, 4, 0o777));
    let mut target = b"> ".to_vec();
    store.read_link(link.object, &mut target).unwrap();
    assert_eq!(target, b"> ../\xff");
    assert_eq!(store.read_link(root, &mut target), Err(Status::Invalid));
    assert_eq!(read(&store, ANN, link.object, 0, 1), Err(Status::Invalid));
    assert_eq!(read(&store, ANN, root, 0, 1), Err(Status::IsDirectory));
    let special = |caller, name: &[u8], special| {
        let made = store.create(caller, root, name, NewObject::Special(mode(0o644), special)).1;
        made.map(|made| (made.attributes.kind, made.attributes.rdev))
    };
    let (none, number) = (Device::default(), Device { major: 5, minor: 300 });
    assert_eq!(special(ANN, b"p", Special::Fifo), Ok((FileKind::Fifo, none)));
    assert_eq!(special(ANN, b"s", Special::Socket), Ok((FileKind::Socket, none)));
    assert_eq!(special(ANN, b"d", Special::BlockDevice(number)), Err(Status::NotPermitted));
    let device = Special::CharacterDevice(number);
    assert_eq!(special(ROOT, b"d", device), Ok((FileKind::CharacterDevice, number)));
    assert_eq!(store.create(ANN, root, b"e", NewObject::Symlink(mode(0), b"")).1, Err(Status::NotFound));
    let long = [b'x'; 4096];
    assert_eq!(store.create(ANN, root, b"e", NewObject::Symlink(mode(0), &long)).1, Err(Status::NameTooLong));
}

#[test]
fn a_listing_continues_where_it_stopped_while_returned_names_are_removed() {
    let store = new_store();
    let root = store.root();
    for number in 0..300 {
        file(&store, ANN, format!("f{number}").as_bytes(), 0o644);
    }
    let mut seen = Vec::new();
    let mut cookie = 0;
    let mut step = 0;
    loop {
        let mut budget = 7;
        let end = store.read_directory(ANN, root, cookie, &mut |entry| {
            budget -= 1;
            if budget == 0 {
                return false;
            }
            seen.push(entry.name.to_vec());
            cookie = entry.cookie;
            true
        });
        if end.unwrap().eof {
            break;
        }
        // Names that the listing has returned are removed. That must not affect the rest of the
        // listing.
        if let Some(gone) = seen.iter().filter(|name| name.starts_with(b"f")).nth(step) {
            let _ = store.remove(ANN, root, &gone.clone());
        }
        step += 1;
    }
    let mut all: Vec<Vec<u8>> = (0..300).map(|number| format!("f{number}").into_bytes()).collect();
    all.extend([b".".to_vec(), b"..".to_vec()]);
    all.sort();
    seen.sort();
    assert_eq!(seen, all);
    assert_eq!(store.read_directory(ANN, root, 100_000, &mut |_| true), Err(Status::BadCookie));
}

#[test]
fn a_name_replaced_by_rename_keeps_its_position_in_the_listing() {
    let store = new_store();
    let root = store.root();
    file(&store, ANN, b"a", 0o644);
    file(&store, ANN, b"b", 0o644);
    let before = names(&store, ANN, root, 0).unwrap();
    file(&store, ANN, b"new", 0o644);
    store.rename(ANN, (root, b"new"), (root, b"a")).2.unwrap();
    assert_eq!(names(&store, ANN, root, 0).unwrap(), before);
}

// RFC 1813 s2.6
#[test]
fn each_change_has_its_own_ctime_and_returns_the_attributes_before_and_after() {
    let store = new_store();
    let made = file(&store, ANN, b"f", 0o644);
    let mut last = made.attributes.ctime;
    for round in 0..1000 {
        let (change, result) =
            store.write(ANN, made.object, 0, &[round as u8], Stability::FileSync, Wait::Allowed).unwrap();
        assert_eq!(result.unwrap().committed, Stability::FileSync);
        let (before, after) = (change.before.unwrap(), change.after.unwrap());
        assert_eq!(before.ctime, last);
        assert!(after.ctime > last && after.mtime == after.ctime);
        last = after.ctime;
    }
    let (change, result) =
        store.write(BOB, made.object, 0, b"x", Stability::Unstable, Wait::Allowed).unwrap();
    assert_eq!(result, Err(Status::Access));
    assert_eq!(change.before.unwrap().ctime, change.after.unwrap().ctime);
    let root = store.attributes(store.root(), Wait::Allowed).unwrap().unwrap();
    let (change, _) = store.remove(ANN, store.root(), b"f");
    assert_eq!(change.before.unwrap().ctime, root.ctime);
    assert!(change.after.unwrap().ctime > root.ctime);
}

#[test]
fn set_attributes_checks_its_guard_and_the_rights_of_the_caller() {
    let store = new_store();
    let made = file(&store, ANN, b"f", 0o622);
    let object = made.object;
    let set = |caller, set: SetAttributes, guard| store.set_attributes(caller, object, &set, guard).1;
    let stale = Time { seconds: 1, nanoseconds: 1 };
    // RFC 1813 s3.3.2
    assert_eq!(set(ANN, mode(0o600), Some(stale)), Err(Status::NotSync));
    assert_eq!(set(ANN, mode(0o622), Some(made.attributes.ctime)), Ok(()));
    assert_eq!(set(BOB, mode(0o600), None), Err(Status::NotPermitted));
    let now = SetAttributes { mtime: SetTime::Now, ..SetAttributes::default() };
    assert_eq!(set(BOB, now, None), Ok(()), "a caller that may write may set the time to now");
    let to = SetAttributes { mtime: SetTime::To(stale), ..SetAttributes::default() };
    assert_eq!(set(BOB, to, None), Err(Status::NotPermitted));
    assert_eq!(set(ANN, to, None), Ok(()));
    assert_eq!(store.attributes(object, Wait::Allowed).unwrap().unwrap().mtime, stale);
    let before = store.attributes(object, Wait::Allowed).unwrap().unwrap();
    assert_eq!(set(ANN, SetAttributes::default(), None), Ok(()));
    assert_eq!(
        store.attributes(object, Wait::Allowed).unwrap().unwrap(),
        before,
        "an empty change changes nothing"
    );
    let size = |size| SetAttributes { size: Some(size), ..SetAttributes::default() };
    assert_eq!(set(ANN, size(u64::MAX), None), Err(Status::FileTooBig));
    assert_eq!(store.set_attributes(ANN, store.root(), &size(1), None).1, Err(Status::IsDirectory));
}

#[test]
fn the_access_time_is_updated_by_the_first_read_after_a_change() {
    let store = new_store();
    let object = file(&store, ANN, b"f", 0o644).object;
    write(&store, ANN, object, 0, b"x").unwrap();
    let accessed = || store.attributes(object, Wait::Allowed).unwrap().unwrap().atime;
    read(&store, ANN, object, 0, 1).unwrap();
    let first = accessed();
    assert!(first > store.attributes(object, Wait::Allowed).unwrap().unwrap().mtime);
    read(&store, ANN, object, 0, 1).unwrap();
    assert_eq!(accessed(), first);
    write(&store, ANN, object, 0, b"x").unwrap();
    read(&store, ANN, object, 0, 1).unwrap();
    assert!(accessed() > first);
}

#[test]
fn each_store_has_its_own_verifier_and_commit_returns_it() {
    let (one, other) = (new_store(), new_store());
    assert_ne!(one.verifier(), other.verifier());
    let object = file(&one, ANN, b"f", 0o644).object;
    assert_eq!(one.commit(object, 0, 0, Wait::Allowed).unwrap().1, Ok(one.verifier()));
    assert_eq!(one.commit(one.root(), 0, 0, Wait::Allowed).unwrap().1, Err(Status::IsDirectory));
}
