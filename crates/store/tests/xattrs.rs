//! Extended attributes of both stores. RFC 8276

#[path = "dir/fixture.rs"]
mod fixture;

use fixture::Home;
use proptest::prelude::*;
use std::collections::BTreeMap;
use store::{
    Caller, CreateMode, DirStore, MemStore, NewObject, ObjectId, Result, Rights, SetAttributes, SetXattr,
    Status, Store, Wait, XATTR_NAME_BYTES_MAX, XATTR_VALUE_BYTES_MAX,
};

const ANN: Caller<'static> = Caller { uid: 1000, gid: 100, gids: &[200] };
const BOB: Caller<'static> = Caller { uid: 1001, gid: 101, gids: &[] };

/// The user that runs the tests.
fn me() -> Caller<'static> {
    Caller { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw(), gids: &[] }
}

fn create(store: &dyn Store, name: &str, new: NewObject<'_>) -> ObjectId {
    store.create(me(), store.root(), name.as_bytes(), new).1.unwrap().object
}

fn file(store: &dyn Store, name: &str, mode: u32) -> ObjectId {
    let set = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
    create(store, name, NewObject::File(CreateMode::Guarded(set)))
}

fn value(store: &dyn Store, object: ObjectId, name: &[u8]) -> Result<Vec<u8>> {
    let mut out = b"kept".to_vec();
    store.xattr(me(), object, name, &mut out)?;
    assert_eq!(out.drain(..4).collect::<Vec<_>>(), b"kept", "the value is appended");
    Ok(out)
}

fn set(store: &dyn Store, object: ObjectId, name: &[u8], value: &[u8], how: SetXattr) -> Result<()> {
    let before = store.attributes(object, Wait::Allowed).unwrap().unwrap();
    let (effect, result) = store.set_xattr(me(), object, name, value, how);
    let (found, after) = (effect.before.unwrap(), effect.after.unwrap());
    if result.is_ok() {
        assert!(before.change < after.change && found.change < after.change);
        assert!(before.ctime <= after.ctime);
        assert_eq!(before.mtime, after.mtime, "the content has not changed");
    } else {
        assert_eq!(found.ctime, after.ctime);
    }
    result
}

/// All names, in pages of `page`.
fn names(store: &dyn Store, object: ObjectId, page: usize) -> Vec<Vec<u8>> {
    let (mut found, mut cookie) = (Vec::new(), 0);
    loop {
        let mut taken = 0;
        let eof = store
            .list_xattrs(me(), object, cookie, &mut |name, at| {
                if taken == page {
                    return false;
                }
                taken += 1;
                assert!(at > cookie && i64::try_from(at).is_ok());
                cookie = at;
                found.push(name.to_vec());
                true
            })
            .unwrap();
        if eof {
            return found;
        }
    }
}

fn sorted(mut names: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    names.sort();
    names
}

/// A directory store, unless the file system has no such attributes.
fn directory(home: &Home) -> Option<DirStore> {
    let store = home.open();
    if !store.capabilities().xattrs {
        eprintln!("skipped: the file system of {} has no extended attributes", home.path("").display());
        return None;
    }
    Some(store)
}

/// Both stores.
fn each(test: impl Fn(&dyn Store)) {
    test(&MemStore::new(64 << 20, me().uid, me().gid));
    for home in [Home::new(), Home::in_place(std::env::temp_dir())] {
        if let Some(store) = directory(&home) {
            test(&store);
        }
    }
}

#[test]
fn an_attribute_is_created_replaced_and_removed() {
    each(|store| {
        for object in [file(store, "f", 0o644), store.root()] {
            assert_eq!(value(store, object, b"a"), Err(Status::NoXattr));
            assert_eq!(set(store, object, b"a", b"1", SetXattr::Replace), Err(Status::NoXattr));
            assert_eq!(set(store, object, b"a", b"1", SetXattr::Create), Ok(()));
            assert_eq!(set(store, object, b"a", b"2", SetXattr::Create), Err(Status::Exists));
            assert_eq!(value(store, object, b"a").unwrap(), b"1");
            assert_eq!(set(store, object, b"a", b"22", SetXattr::Replace), Ok(()));
            assert_eq!(set(store, object, b"b", b"", SetXattr::Either), Ok(()));
            assert_eq!(value(store, object, b"a").unwrap(), b"22");
            assert_eq!(value(store, object, b"b").unwrap(), b"");
            assert_eq!(sorted(names(store, object, 1)), [b"a", b"b"]);
            let (effect, removed) = store.remove_xattr(me(), object, b"a");
            removed.unwrap();
            assert!(effect.before.unwrap().change < effect.after.unwrap().change);
            assert_eq!(store.remove_xattr(me(), object, b"a").1, Err(Status::NoXattr));
            assert_eq!(names(store, object, 9), [b"b"]);
            store.remove_xattr(me(), object, b"b").1.unwrap();
            assert!(names(store, object, 9).is_empty());
        }
    });
}

#[test]
fn names_and_values_have_bounds() {
    each(|store| {
        let object = file(store, "f", 0o644);
        let long = [b'n'; XATTR_NAME_BYTES_MAX + 1];
        assert_eq!(set(store, object, &long, b"", SetXattr::Either), Err(Status::NameTooLong));
        assert_eq!(set(store, object, &long[1..], b"v", SetXattr::Either), Ok(()));
        assert_eq!(value(store, object, &long[1..]).unwrap(), b"v");
        assert_eq!(value(store, object, &long), Err(Status::NameTooLong));
        assert_eq!(set(store, object, b"", b"", SetXattr::Either), Err(Status::Invalid));
        assert_eq!(set(store, object, b"a\0b", b"", SetXattr::Either), Err(Status::Invalid));
        let large = vec![7; XATTR_VALUE_BYTES_MAX + 1];
        assert_eq!(set(store, object, b"v", &large, SetXattr::Either), Err(Status::XattrTooBig));
        // A file system may have less room, and then says so.
        match set(store, object, b"v", &large[1..], SetXattr::Either) {
            Ok(()) => assert!(value(store, object, b"v").unwrap() == large[1..]),
            Err(error) => assert!(matches!(error, Status::XattrTooBig | Status::NoSpace), "{error}"),
        }
    });
}

#[test]
fn a_link_has_none_and_gets_none() {
    each(|store| {
        let new = NewObject::Symlink(SetAttributes::default(), b"target");
        let link = create(store, "l", new);
        assert_eq!(store.set_xattr(me(), link, b"a", b"", SetXattr::Either).1, Err(Status::NotPermitted));
        assert_eq!(value(store, link, b"a"), Err(Status::NoXattr));
        let wanted = Rights::READ_XATTRS | Rights::WRITE_XATTRS | Rights::LIST_XATTRS;
        assert_eq!(store.access(me(), link, wanted, Wait::Allowed).unwrap().unwrap().0, Rights::NONE);
    });
}

/// What callers with other rights may do, on a store that acts as each of them.
fn check_rights(store: &dyn Store) {
    let owner = SetAttributes { uid: Some(ANN.uid), gid: Some(ANN.gid), ..SetAttributes::default() };
    let object = file(store, "f", 0o644);
    store.set_attributes(me(), object, &owner, None).1.unwrap();
    let wanted = Rights::READ_XATTRS | Rights::WRITE_XATTRS | Rights::LIST_XATTRS;
    let rights = |caller| store.access(caller, object, wanted, Wait::Allowed).unwrap().unwrap().0;
    assert_eq!(rights(ANN), wanted);
    assert_eq!(rights(BOB), Rights::READ_XATTRS | Rights::LIST_XATTRS);
    store.set_xattr(ANN, object, b"a", b"ann", SetXattr::Either).1.unwrap();
    assert_eq!(store.set_xattr(BOB, object, b"a", b"bob", SetXattr::Either).1, Err(Status::Access));
    assert_eq!(store.remove_xattr(BOB, object, b"a").1, Err(Status::Access));
    let mut out = Vec::new();
    store.xattr(BOB, object, b"a", &mut out).unwrap();
    assert_eq!(out, b"ann");
    let secret = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
    store.set_attributes(me(), object, &secret, None).1.unwrap();
    assert_eq!(store.xattr(BOB, object, b"a", &mut out), Err(Status::Access));
    assert_eq!(store.list_xattrs(BOB, object, 0, &mut |_, _| true), Err(Status::Access));
    assert_eq!(rights(BOB), Rights::NONE);
    // In a sticky directory others may write, but not change what is the directory's.
    let sticky = SetAttributes { mode: Some(0o1777), ..SetAttributes::default() };
    store.set_attributes(me(), store.root(), &sticky, None).1.unwrap();
    let refused = store.set_xattr(BOB, store.root(), b"a", b"bob", SetXattr::Either).1;
    assert_eq!(refused, Err(Status::NotPermitted));
}

#[test]
fn the_rights_to_read_and_write_decide() {
    check_rights(&MemStore::new(64 << 20, me().uid, me().gid));
    if me().uid != 0 {
        eprintln!("skipped: only root acts as callers");
        return;
    }
    for home in [Home::new(), Home::in_place(std::env::temp_dir())] {
        if let Some(store) = directory(&home) {
            check_rights(&store);
        }
    }
}

#[test]
fn the_attributes_of_a_memory_store_count_and_end_with_their_object() {
    let store = MemStore::new(1 << 20, me().uid, me().gid);
    let empty = store.statistics();
    let object = file(&store, "f", 0o644);
    let plain = store.statistics().bytes_used;
    let large = vec![1; XATTR_VALUE_BYTES_MAX];
    let mut count = 0_u32;
    let full = loop {
        let before = store.statistics().bytes_used;
        match set(&store, object, &count.to_be_bytes().map(|byte| byte + 1), &large, SetXattr::Create) {
            Ok(()) => assert!(store.statistics().bytes_used >= before + large.len() as u64),
            Err(error) => break error,
        }
        count += 1;
    };
    assert_eq!((full, count), (Status::NoSpace, 15), "of 16 times 64 KiB");
    let used = store.statistics().bytes_used;
    let first = 0_u32.to_be_bytes().map(|byte| byte + 1);
    set(&store, object, &first, b"short", SetXattr::Replace).unwrap();
    assert!(store.statistics().bytes_used < used);
    for at in 0..count {
        store.remove_xattr(me(), object, &at.to_be_bytes().map(|byte| byte + 1)).1.unwrap();
    }
    assert_eq!(store.statistics().bytes_used, plain);
    set(&store, object, b"last", b"value", SetXattr::Create).unwrap();
    store.remove(me(), store.root(), b"f").1.unwrap();
    assert_eq!(store.statistics(), empty);
}

#[test]
fn an_object_of_a_memory_store_has_a_bounded_list_of_names() {
    let store = MemStore::new(64 << 20, me().uid, me().gid);
    let object = file(&store, "f", 0o644);
    let name = |at: usize| format!("{at:0>194}").into_bytes();
    let count =
        (0..1000).take_while(|&at| set(&store, object, &name(at), b"", SetXattr::Create).is_ok()).count();
    assert_eq!(count, (64 << 10) / 200);
    assert_eq!(set(&store, object, &name(count), b"", SetXattr::Create), Err(Status::NoSpace));
    assert_eq!(set(&store, object, &name(0), b"more", SetXattr::Replace), Ok(()));
}

#[test]
fn only_attributes_of_users_are_seen() {
    for home in [Home::new(), Home::in_place(std::env::temp_dir())] {
        let Some(store) = directory(&home) else { continue };
        let object = file(&store, "f", 0o644);
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(home.path("f"), c"user.local", b"seen", flags).unwrap();
        if rustix::fs::setxattr(home.path("f"), c"trusted.local", b"hidden", flags).is_err() {
            eprintln!("skipped in part: only root sets attributes that are not the user's");
        }
        assert_eq!(names(&store, object, 9), [b"local"]);
        assert_eq!(value(&store, object, b"local").unwrap(), b"seen");
        set(&store, object, b"remote", b"too", SetXattr::Create).unwrap();
        let mut local = [0; 9];
        assert_eq!(rustix::fs::getxattr(home.path("f"), c"user.remote", &mut local[..]), Ok(3));
    }
}

#[test]
fn a_listing_goes_on_while_names_come_and_go() {
    each(|store| {
        let object = file(store, "f", 0o644);
        for at in 0..40 {
            set(store, object, format!("n{at}").as_bytes(), b"", SetXattr::Create).unwrap();
        }
        let before = names(store, object, 100);
        let (mut seen, mut cookie) = (Vec::new(), 0);
        for round in 0.. {
            let mut next = None;
            let visit =
                &mut |name: &[u8], at: u64| next.is_none() && next.replace((name.to_vec(), at)).is_none();
            store.list_xattrs(me(), object, cookie, visit).unwrap();
            let Some((name, at)) = next else { break };
            cookie = at;
            store.remove_xattr(me(), object, &name).1.unwrap();
            set(store, object, format!("new{round}").as_bytes(), b"", SetXattr::Create).unwrap();
            seen.push(name);
            assert!(round < 1000, "it ends, as each new name has one place");
        }
        assert!(before.iter().all(|name| seen.iter().filter(|other| *other == name).count() == 1));
    });
}

#[derive(Debug, Clone)]
enum Step {
    Set { name: u8, len: usize, how: SetXattr },
    Remove { name: u8 },
    List { page: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let how = prop_oneof![Just(SetXattr::Either), Just(SetXattr::Create), Just(SetXattr::Replace)];
    prop_oneof![
        4 => (0..9_u8, 0..300_usize, how).prop_map(|(name, len, how)| Step::Set { name, len, how }),
        2 => (0..9_u8).prop_map(|name| Step::Remove { name }),
        1 => (1..5_usize).prop_map(|page| Step::List { page }),
    ]
}

fn check(store: &dyn Store, steps: &[Step]) {
    let object = file(store, "f", 0o644);
    let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    for (at, step) in steps.iter().enumerate() {
        match *step {
            Step::Set { name, len, how } => {
                let (name, bytes) = (vec![b'n', name + 1], vec![at as u8; len]);
                let expected = match (how, model.contains_key(&name)) {
                    (SetXattr::Create, true) => Err(Status::Exists),
                    (SetXattr::Replace, false) => Err(Status::NoXattr),
                    _ => Ok(()),
                };
                assert_eq!(set(store, object, &name, &bytes, how), expected);
                if expected.is_ok() {
                    model.insert(name, bytes);
                }
            }
            Step::Remove { name } => {
                let name = vec![b'n', name + 1];
                let expected = model.remove(&name).map(drop).ok_or(Status::NoXattr);
                assert_eq!(store.remove_xattr(me(), object, &name).1, expected);
            }
            Step::List { page } => {
                assert_eq!(sorted(names(store, object, page)), model.keys().cloned().collect::<Vec<_>>());
            }
        }
        for (name, bytes) in &model {
            assert_eq!(value(store, object, name).as_ref(), Ok(bytes));
        }
    }
    assert_eq!(sorted(names(store, object, 3)), model.into_keys().collect::<Vec<_>>());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn a_memory_store_does_what_a_map_does(steps in proptest::collection::vec(step(), 1..40)) {
        let store = MemStore::new(64 << 20, me().uid, me().gid);
        let empty = store.statistics();
        check(&store, &steps);
        store.remove(me(), store.root(), b"f").1.unwrap();
        assert_eq!(store.statistics(), empty);
    }

    #[test]
    fn a_directory_does_what_a_map_does(steps in proptest::collection::vec(step(), 1..40)) {
        let home = Home::new();
        if let Some(store) = directory(&home) {
            check(&store, &steps);
        }
    }
}
