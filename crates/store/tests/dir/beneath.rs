//! Tests random operations through the store, and compares the store with the directory beneath
//! after each step. The store is closed and opened again at intervals, and the names of objects
//! remain valid.

use crate::again::as_root_and_not;
use crate::fixture::{Home, ROOT, mode, read};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use store::{
    Attributes, CreateMode, DirStore, FileKind, NewObject, ObjectId, SetAttributes, SetTime, Special,
    Stability, Store, Time, Wait,
};

/// An operation and three parameters.
type Step = (u8, u8, u8, u16);

const NAMES: [&[u8]; 5] = [b"a", b"with space", b"\xff\xfe", b"-", &[b'x'; 255]];

struct Sides {
    store: DirStore,
    /// Every object that was ever created, removed or not.
    objects: Vec<(ObjectId, FileKind)>,
}

impl Sides {
    fn pick(&self, at: u8, wanted: impl Fn(FileKind) -> bool) -> ObjectId {
        let fitting: Vec<_> = self.objects.iter().filter(|(_, kind)| wanted(*kind)).collect();
        fitting.get(usize::from(at) % fitting.len().max(1)).map_or(self.store.root(), |(object, _)| *object)
    }

    /// Runs an operation. The kernel decides whether the operation succeeds; the result on disk is
    /// compared afterwards.
    fn step(&mut self, (operation, at, name, more): Step) {
        let directory = self.pick(at, |kind| kind == FileKind::Directory);
        let other = self.pick(name, |kind| kind == FileKind::Directory);
        let any = self.pick(at, |_| true);
        let file = self.pick(at, |kind| kind == FileKind::Regular);
        let called = NAMES[usize::from(name) % NAMES.len()];
        let next = NAMES[usize::from(more) % NAMES.len()];
        let store = &self.store;
        let bits = u32::from(more) & 0o777 | 0o700;
        let made = match operation % 14 {
            0 | 1 => store
                .create(ROOT, directory, called, NewObject::File(CreateMode::Unchecked(mode(bits))))
                .1
                .ok(),
            2 => store
                .create(ROOT, directory, called, NewObject::File(CreateMode::Guarded(mode(bits & 0o577))))
                .1
                .ok(),
            3 => store.create(ROOT, directory, called, NewObject::Directory(mode(bits))).1.ok(),
            4 => store.create(ROOT, directory, called, NewObject::Symlink(mode(0), b"a/../\xff")).1.ok(),
            5 => store.create(ROOT, directory, called, NewObject::Special(mode(bits), Special::Fifo)).1.ok(),
            6 | 7 => {
                let data = vec![at; usize::from(more)];
                let how = [Stability::Unstable, Stability::DataSync, Stability::FileSync];
                let how = how[usize::from(name) % 3];
                let _ = store.write(ROOT, file, u64::from(more) * 3, &data, how, Wait::Allowed).unwrap();
                let _ = store.commit(file, 0, 0, Wait::Allowed).unwrap();
                None
            }
            8 => {
                let size = (name % 2 == 0).then_some(u64::from(more));
                let to = SetTime::To(Time { seconds: i64::from(more), nanoseconds: 5 });
                let mtime = if name % 3 == 0 { to } else { SetTime::Keep };
                let set = SetAttributes { mode: Some(bits), size, mtime, ..SetAttributes::default() };
                let _ = store.set_attributes(ROOT, any, &set, None);
                None
            }
            9 => {
                let _ = store.remove(ROOT, directory, called);
                None
            }
            10 => {
                let _ = store.remove_directory(ROOT, directory, called);
                None
            }
            11 | 12 => {
                let _ = store.rename(ROOT, (directory, called), (other, next));
                None
            }
            _ => {
                let _ = store.link(ROOT, any, other, called);
                None
            }
        };
        self.objects.extend(made.map(|made| (made.object, made.attributes.kind)));
    }

    /// Walks the store and the directory beneath; both must agree about each name.
    fn compare(&self, at: ObjectId, beneath: &Path, seen: &mut BTreeMap<u64, ObjectId>) {
        let mut names = BTreeMap::new();
        let mut collect = |entry: store::Entry<'_>| {
            names.insert(entry.name.to_vec(), *entry.found);
            true
        };
        self.store.read_directory(ROOT, at, 0, &mut collect).unwrap();
        names.remove(&b"."[..]);
        names.remove(&b".."[..]);
        let mut count = 0;
        for entry in std::fs::read_dir(beneath).unwrap() {
            let entry = entry.unwrap();
            count += 1;
            let listed = names[entry.file_name().as_bytes()];
            let found =
                self.store.lookup(ROOT, at, entry.file_name().as_bytes(), Wait::Allowed).unwrap().1.unwrap();
            assert_eq!(found.object, listed.object);
            let path = entry.path();
            let meta = std::fs::symlink_metadata(&path).unwrap();
            assert_same(&found.attributes, &meta);
            assert_same(&self.store.attributes(found.object, Wait::Allowed).unwrap().unwrap(), &meta);
            seen.insert(meta.ino(), found.object);
            match found.attributes.kind {
                FileKind::Directory => self.compare(found.object, &path, seen),
                FileKind::Regular => {
                    assert!(read(&self.store, ROOT, found.object).unwrap() == std::fs::read(&path).unwrap());
                }
                FileKind::Symlink => {
                    let mut target = Vec::new();
                    self.store.read_link(found.object, &mut target).unwrap();
                    assert_eq!(target, std::fs::read_link(&path).unwrap().as_os_str().as_bytes());
                }
                _ => {}
            }
        }
        assert_eq!(count, names.len());
    }

    /// Every name that was ever returned leads to its object, or is stale when the object is gone.
    fn compare_names(&self, seen: &BTreeMap<u64, ObjectId>) {
        for (object, _) in &self.objects {
            let there = seen.get(&object.fileid) == Some(object) || *object == self.store.root();
            let expected = if there { Ok(object.fileid) } else { Err(store::Status::Stale) };
            assert_eq!(
                self.store.attributes(*object, Wait::Allowed).unwrap().map(|found| found.fileid),
                expected
            );
        }
    }
}

fn assert_same(found: &Attributes, meta: &std::fs::Metadata) {
    assert_eq!(
        (found.fileid, found.size, found.mode, u64::from(found.nlink), found.uid, found.gid),
        (meta.ino(), meta.len(), meta.mode() & 0o7777, meta.nlink(), meta.uid(), meta.gid()),
    );
    let modified = (found.mtime.seconds, i64::from(found.mtime.nanoseconds));
    assert_eq!(modified, (meta.mtime(), meta.mtime_nsec()));
    assert_eq!(found.used, meta.blocks() * 512);
}

fn run(home: &Home, steps: &[Step]) {
    let store = home.open();
    let root = store.root();
    let mut sides = Sides { objects: vec![(root, FileKind::Directory)], store };
    for (index, step) in steps.iter().enumerate() {
        sides.step(*step);
        if index % 8 == 7 {
            drop(sides.store);
            sides.store = home.open();
        }
        let mut seen = BTreeMap::new();
        sides.compare(root, &home.path(""), &mut seen);
        sides.compare_names(&seen);
    }
}

pub fn many(cases: u32, steps: usize, home: impl Fn() -> Home) {
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let steps = proptest::collection::vec(any::<Step>(), 1..steps);
    TestRunner::new(config)
        .run(&steps, |steps| {
            run(&home(), &steps);
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn the_store_and_a_directory_in_memory_never_differ() {
    as_root_and_not("beneath::the_store_and_a_directory_in_memory_never_differ", || many(24, 60, Home::new));
}

#[test]
fn the_store_and_a_directory_on_disk_never_differ() {
    as_root_and_not("beneath::the_store_and_a_directory_on_disk_never_differ", || {
        many(2, 40, || Home::in_place(std::env::temp_dir()));
    });
}
