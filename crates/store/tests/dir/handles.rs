//! Tests names of objects: after restarts, of removed objects, invented names, and names of objects
//! outside the export.

use crate::again::as_root_and_not;
use crate::fixture::{Home, ROOT, directory, file, look, read, write};
use proptest::prelude::*;
use store::{
    CreateMode, DirOptions, DirStore, NAME_BYTES_MAX, NewObject, ObjectId, OpenError, Status, Store, Wait,
};

#[test]
fn names_remain_valid_after_a_restart_and_a_rename_through_the_store() {
    as_root_and_not("handles::names_remain_valid_after_a_restart_and_a_rename_through_the_store", || {
        let home = Home::new();
        let store = home.open();
        let root = store.root();
        let (outer, other) =
            (directory(&store, ROOT, root, "d", 0o755), directory(&store, ROOT, root, "e", 0o755));
        let inner = file(&store, ROOT, outer, "f", 0o644);
        write(&store, ROOT, inner, b"content").unwrap();
        store.rename(ROOT, (root, b"d"), (other, b"moved")).2.unwrap();
        let (verifier, secret) = (store.verifier(), store.handle_secret());
        drop(store);
        let store = home.open();
        assert_eq!((store.root(), store.verifier(), store.handle_secret()), (root, verifier, secret));
        assert_eq!(read(&store, ROOT, inner).unwrap(), b"content");
        assert_eq!(look(&store, outer, "f").unwrap().object, inner);
        assert_eq!(look(&store, outer, "..").unwrap().object, other);
    });
}

#[test]
fn a_removed_object_is_stale_at_once_whoever_removed_it() {
    as_root_and_not("handles::a_removed_object_is_stale_at_once_whoever_removed_it", || {
        let home = Home::new();
        let store = home.open();
        let root = store.root();
        let (through, beneath) = (file(&store, ROOT, root, "a", 0o644), file(&store, ROOT, root, "b", 0o644));
        let empty = directory(&store, ROOT, root, "d", 0o755);
        for object in [through, beneath] {
            write(&store, ROOT, object, b"held open").unwrap();
        }
        store.remove(ROOT, root, b"a").1.unwrap();
        std::fs::remove_file(home.path("b")).unwrap();
        std::fs::remove_dir(home.path("d")).unwrap();
        for object in [through, beneath] {
            assert_eq!(read(&store, ROOT, object), Err(Status::Stale));
            assert_eq!(write(&store, ROOT, object, b"x"), Err(Status::Stale));
        }
        assert_eq!(look(&store, empty, "x"), Err(Status::Stale));
        // A new object, perhaps in the same inode.
        let again = file(&store, ROOT, root, "a", 0o644);
        assert_ne!(again, through);
        assert_eq!(store.attributes(through, Wait::Allowed).unwrap(), Err(Status::Stale));
        drop(store);
        assert_eq!(home.open().attributes(through, Wait::Allowed).unwrap(), Err(Status::Stale));
    });
}

#[test]
fn objects_outside_the_export_are_stale_though_on_the_same_disk() {
    as_root_and_not("handles::objects_outside_the_export_are_stale_though_on_the_same_disk", || {
        let home = Home::new();
        std::fs::create_dir_all(home.path("inside/deep")).unwrap();
        std::fs::create_dir_all(home.path("outside/deep")).unwrap();
        std::fs::write(home.path("outside/file"), b"secret").unwrap();
        let whole = home.open();
        let outside = look(&whole, whole.root(), "outside").unwrap().object;
        let deep = look(&whole, outside, "deep").unwrap().object;
        let secret = look(&whole, outside, "file").unwrap().object;
        let narrow = home.open_at(home.path("inside"));
        assert_ne!(
            whole.handle_secret(),
            narrow.handle_secret(),
            "a handle of the other export would not open either"
        );
        for object in [whole.root(), outside, deep, secret] {
            assert_eq!(narrow.attributes(object, Wait::Allowed).unwrap(), Err(Status::Stale));
        }
        // A name of an object that was moved out is stale.
        let moved = look(&narrow, narrow.root(), "deep").unwrap().object;
        drop(narrow);
        std::fs::rename(home.path("inside/deep"), home.path("outside/was-deep")).unwrap();
        let narrow = home.open_at(home.path("inside"));
        assert_eq!(narrow.attributes(moved, Wait::Allowed).unwrap(), Err(Status::Stale));
    });
}

#[test]
fn a_tree_may_be_deeper_than_any_path() {
    as_root_and_not("handles::a_tree_may_be_deeper_than_any_path", || {
        let home = Home::new();
        let store = home.open();
        let mut at = vec![store.root()];
        // 20 names of 255 bytes are longer than any path may be.
        for _ in 0..20 {
            let name = "d".repeat(255);
            at.push(directory(&store, ROOT, *at.last().unwrap(), &name, 0o755));
        }
        let deepest = *at.last().unwrap();
        let made = file(&store, ROOT, deepest, "f", 0o644);
        drop(store);
        let store = home.open();
        assert!(store.attributes(made, Wait::Allowed).unwrap().is_ok());
        assert_eq!(look(&store, deepest, "..").unwrap().object, at[19]);
        store.remove(ROOT, deepest, b"f").1.unwrap();
        for parent in at[..20].iter().rev() {
            store.remove_directory(ROOT, *parent, "d".repeat(255).as_bytes()).1.unwrap();
        }
    });
}

#[test]
fn no_name_leads_out_of_the_export() {
    as_root_and_not("handles::no_name_leads_out_of_the_export", || {
        let home = Home::new();
        std::fs::create_dir_all(home.path("in/d")).unwrap();
        std::os::unix::fs::symlink("/", home.path("in/link")).unwrap();
        let store = home.open_at(home.path("in"));
        let root = store.root();
        assert_eq!(look(&store, root, "..").unwrap().object, root, "the root is its own parent");
        let inner = look(&store, root, "d").unwrap().object;
        assert_eq!(look(&store, inner, "..").unwrap().object, root);
        let link = look(&store, root, "link").unwrap().object;
        assert_eq!(look(&store, link, "etc"), Err(Status::NotDirectory), "the client follows links");
        assert_eq!(look(&store, root, "d/../.."), Err(Status::Invalid));
        assert_eq!(look(&store, root, ""), Err(Status::Access));
        assert_eq!(look(&store, root, "a\0b"), Err(Status::Invalid));
        assert_eq!(look(&store, root, &"x".repeat(256)), Err(Status::NameTooLong));
        let through =
            store.create(ROOT, root, b"link", NewObject::File(CreateMode::Unchecked(Default::default()))).1;
        assert_eq!(through.unwrap().object, link, "no object is created behind a link");
    });
}

#[test]
fn invented_names_are_stale() {
    as_root_and_not("handles::invented_names_are_stale", || {
        let home = Home::new();
        let store = home.open();
        let real = file(&store, ROOT, store.root(), "f", 0o644);
        let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
            failure_persistence: None,
            ..ProptestConfig::default()
        });
        let made_up = (any::<u64>(), proptest::collection::vec(any::<u8>(), 0..NAME_BYTES_MAX), 0..4_u8);
        let run = runner.run(&made_up, |(fileid, mut name, first)| {
            if let Some(byte) = name.first_mut() {
                *byte = first;
            }
            let object = ObjectId::named(fileid, &name).unwrap();
            prop_assert!(store.attributes(object, Wait::Allowed).unwrap().is_err());
            // A real name, with one byte changed or cut off.
            let mut changed = real.name().to_vec();
            let at = usize::from(fileid as u8) % changed.len();
            changed[at] ^= first.max(1);
            prop_assert!(
                store
                    .attributes(ObjectId::named(real.fileid, &changed).unwrap(), Wait::Allowed)
                    .unwrap()
                    .is_err()
            );
            let cut = ObjectId::named(real.fileid, &real.name()[..at]).unwrap();
            prop_assert!(store.attributes(cut, Wait::Allowed).unwrap().is_err());
            prop_assert!(
                store
                    .attributes(ObjectId::named(real.fileid ^ 1, real.name()).unwrap(), Wait::Allowed)
                    .unwrap()
                    .is_err()
            );
            Ok(())
        });
        run.unwrap_or_else(|error| panic!("{error}"));
        assert!(store.attributes(real, Wait::Allowed).unwrap().is_ok());
    });
}

#[test]
fn directories_that_cannot_be_served_are_refused() {
    let home = Home::new();
    let open = |path, state| {
        DirStore::open(&DirOptions { path, state: Some(state), server_groups: false }).err().unwrap()
    };
    assert!(matches!(open(home.path("absent"), home.state()), OpenError::Root { .. }));
    std::fs::write(home.path("file"), b"").unwrap();
    assert!(matches!(open(home.path("file"), home.state()), OpenError::Root { .. }));
    let inside = open(home.path(""), home.path("state"));
    assert!(matches!(inside, OpenError::StateInside { .. }), "the key would be exported");
    assert!(!home.path("state").exists());
    let no_directory = open(home.path(""), home.path("file").join("x"));
    assert!(matches!(no_directory, OpenError::State { .. } | OpenError::StateInside { .. }));
}
