//! Tests random operations on a store and on a simple model of it, and compares the two after each
//! step: for the memory store, and for a directory, which is closed and opened again at intervals
//! and keeps the names of its objects.
//!
//! The model is a map of nodes with their bytes in vectors. All operations run as root, so
//! permissions do not matter (`tree.rs` tests those). Some of the data that are read are held
//! during later steps and must not change.

use std::collections::BTreeMap;

use proptest::prelude::*;
use smallvec::SmallVec;
use store::{
    Caller, CreateMode, DirOptions, DirStore, FileKind, MemStore, NewObject, ObjectId, Result, Segment,
    SetAttributes, Stability, Status, Store, Wait,
};

const ROOT: Caller<'static> = Caller { uid: 0, gid: 0, gids: &[] };
const HELD_MAX: usize = 6;

#[derive(Debug, Clone)]
enum Step {
    CreateFile { at: usize, name: u8, guarded: bool, size: Option<u32> },
    CreateDirectory { at: usize, name: u8 },
    Symlink { at: usize, name: u8, target: Vec<u8> },
    Write { at: usize, offset: u32, len: u32, seed: u8, in_place: bool },
    Truncate { at: usize, size: u32 },
    Read { at: usize, offset: u32, count: u32 },
    Remove { at: usize, name: u8 },
    RemoveDirectory { at: usize, name: u8 },
    Rename { from: usize, from_name: u8, to: usize, to_name: u8 },
    Link { at: usize, to: usize, name: u8 },
    Release,
    Hold { at: usize },
    EndHold { at: usize },
    Restart,
}

fn offset() -> impl Strategy<Value = u32> {
    // Offsets near the boundaries of pages, extents and leaves, and anywhere else.
    let border = prop_oneof![Just(0u32), 0..80u32, Just(1024), 1020..1030u32];
    prop_oneof![
        (border, 0..40u32).prop_map(|(page, by)| (page * 4096 + by).saturating_sub(20)),
        (0..60u32).prop_map(|page| page * 4096),
        0..300_000u32,
    ]
}

fn length() -> impl Strategy<Value = u32> {
    prop_oneof![Just(4096u32), Just(65536), 1..200u32, 4000..4200u32, 1..150_000u32]
}

fn step() -> impl Strategy<Value = Step> {
    let at = 0..64usize;
    let name = 0..6u8;
    prop_oneof![
        3 => (at.clone(), name.clone(), any::<bool>(), proptest::option::of(offset()))
            .prop_map(|(at, name, guarded, size)| Step::CreateFile { at, name, guarded, size }),
        2 => (at.clone(), name.clone()).prop_map(|(at, name)| Step::CreateDirectory { at, name }),
        1 => (at.clone(), name.clone(), proptest::collection::vec(1u8.., 0..9))
            .prop_map(|(at, name, target)| Step::Symlink { at, name, target }),
        8 => (at.clone(), offset(), length(), any::<u8>(), any::<bool>())
            .prop_map(|(at, offset, len, seed, in_place)| Step::Write { at, offset, len, seed, in_place }),
        2 => (at.clone(), offset()).prop_map(|(at, size)| Step::Truncate { at, size }),
        4 => (at.clone(), offset(), length()).prop_map(|(at, offset, count)| Step::Read { at, offset, count }),
        2 => (at.clone(), name.clone()).prop_map(|(at, name)| Step::Remove { at, name }),
        1 => (at.clone(), name.clone()).prop_map(|(at, name)| Step::RemoveDirectory { at, name }),
        3 => (at.clone(), name.clone(), at.clone(), name.clone())
            .prop_map(|(from, from_name, to, to_name)| Step::Rename { from, from_name, to, to_name }),
        2 => (at.clone(), at.clone(), name).prop_map(|(at, to, name)| Step::Link { at, to, name }),
        2 => at.clone().prop_map(|at| Step::Hold { at }),
        2 => at.prop_map(|at| Step::EndHold { at }),
        2 => Just(Step::Release),
        1 => Just(Step::Restart),
    ]
}

#[derive(Debug, Clone)]
enum Body {
    File(Vec<u8>),
    Directory(BTreeMap<u8, ObjectId>),
    Symlink(Vec<u8>),
}

#[derive(Debug, Clone)]
struct Node {
    body: Body,
    links: u32,
    holds: u32,
}

struct Model {
    root: ObjectId,
    nodes: BTreeMap<u64, (ObjectId, Node)>,
}

impl Model {
    fn pick(&self, at: usize, wanted: impl Fn(&Body) -> bool) -> Option<ObjectId> {
        let all: Vec<ObjectId> =
            self.nodes.values().filter(|(_, node)| wanted(&node.body)).map(|(object, _)| *object).collect();
        all.get(at % all.len().max(1)).copied()
    }

    fn directory(&self, at: usize) -> ObjectId {
        self.pick(at, |body| matches!(body, Body::Directory(_))).unwrap_or(self.root)
    }

    fn node(&mut self, object: ObjectId) -> &mut Node {
        &mut self.nodes.get_mut(&object.fileid).unwrap().1
    }

    fn names(&mut self, object: ObjectId) -> &mut BTreeMap<u8, ObjectId> {
        match &mut self.node(object).body {
            Body::Directory(names) => names,
            other => panic!("{other:?} is no directory"),
        }
    }

    fn file(&mut self, object: ObjectId) -> &mut Vec<u8> {
        match &mut self.node(object).body {
            Body::File(bytes) => bytes,
            other => panic!("{other:?} is no file"),
        }
    }

    fn is_directory(&mut self, object: ObjectId) -> bool {
        matches!(self.node(object).body, Body::Directory(_))
    }

    fn is_empty(&mut self, object: ObjectId) -> bool {
        self.names(object).is_empty()
    }

    fn add(&mut self, at: ObjectId, name: u8, object: ObjectId, body: Body) {
        let directory = matches!(body, Body::Directory(_));
        self.names(at).insert(name, object);
        self.node(at).links += u32::from(directory);
        self.nodes.insert(object.fileid, (object, Node { body, links: 1 + u32::from(directory), holds: 0 }));
    }

    /// Whether `above` is `below` or one of its ancestors.
    fn holds(&mut self, above: ObjectId, below: ObjectId) -> bool {
        above == below
            || self.is_directory(above) && {
                let inside: Vec<ObjectId> = self.names(above).values().copied().collect();
                inside.into_iter().any(|object| self.holds(object, below))
            }
    }

    fn unlink(&mut self, at: ObjectId, name: u8, rmdir: bool) -> Result<()> {
        let object = *self.names(at).get(&name).ok_or(Status::NotFound)?;
        match (self.is_directory(object), rmdir) {
            (true, false) => return Err(Status::IsDirectory),
            (false, true) => return Err(Status::NotDirectory),
            (true, true) if !self.is_empty(object) => return Err(Status::NotEmpty),
            _ => {}
        }
        self.names(at).remove(&name);
        self.drop_link(at, object);
        Ok(())
    }

    fn drop_link(&mut self, at: ObjectId, object: ObjectId) {
        let directory = self.is_directory(object);
        self.node(at).links -= u32::from(directory);
        self.node(object).links -= 1;
        self.forget_unless_held(object);
    }

    fn forget_unless_held(&mut self, object: ObjectId) {
        let directory = self.is_directory(object);
        let node = self.node(object);
        if directory && node.links < 2 || node.links == 0 && node.holds == 0 {
            self.nodes.remove(&object.fileid);
        }
    }

    fn rename(&mut self, from: ObjectId, from_name: u8, to: ObjectId, to_name: u8) -> Result<()> {
        let object = *self.names(from).get(&from_name).ok_or(Status::NotFound)?;
        if self.is_directory(object) && self.holds(object, to) {
            return Err(Status::Invalid);
        }
        let over = self.names(to).get(&to_name).copied();
        if let Some(over) = over {
            if self.is_directory(over) && self.holds(over, from) {
                return Err(Status::NotEmpty);
            }
            if over == object {
                return Ok(());
            }
            match (self.is_directory(object), self.is_directory(over)) {
                (true, false) => return Err(Status::NotDirectory),
                (false, true) => return Err(Status::IsDirectory),
                (true, true) if !self.is_empty(over) => return Err(Status::NotEmpty),
                _ => {}
            }
        }
        let directory = u32::from(self.is_directory(object));
        self.names(from).remove(&from_name);
        self.names(to).insert(to_name, object);
        self.node(from).links -= directory;
        self.node(to).links += directory;
        if let Some(over) = over {
            self.drop_link(to, over);
        }
        Ok(())
    }
}

struct Held {
    segments: SmallVec<[Segment; 1]>,
    bytes: Vec<u8>,
}

enum Subject {
    Mem(MemStore),
    /// A directory for the export and for the state of the store; the store is absent while it is
    /// reopened.
    Dir(tempfile::TempDir, Option<DirStore>),
}

impl Subject {
    fn mem() -> Subject {
        Subject::Mem(MemStore::new(64 << 20, 0, 0))
    }

    fn directory(base: &std::path::Path) -> Subject {
        let home = tempfile::tempdir_in(base).unwrap();
        std::fs::create_dir(home.path().join("export")).unwrap();
        let mut subject = Subject::Dir(home, None);
        subject.restart();
        subject
    }

    fn restart(&mut self) {
        if let Subject::Dir(home, store) = self {
            drop(store.take());
            let (path, state) = (home.path().join("export"), Some(home.path().join("state")));
            *store = Some(DirStore::open(&DirOptions { path, state, server_groups: false }).unwrap());
        }
    }
}

impl std::ops::Deref for Subject {
    type Target = dyn Store;

    fn deref(&self) -> &(dyn Store + 'static) {
        match self {
            Subject::Mem(store) => store,
            Subject::Dir(_, store) => store.as_ref().unwrap(),
        }
    }
}

struct Pair {
    store: Subject,
    model: Model,
    held: Vec<Held>,
}

fn name_of(name: u8) -> Vec<u8> {
    vec![b'n', 0x80 | name]
}

fn bytes_of(segments: &[Segment]) -> Vec<u8> {
    segments.iter().flat_map(|segment| segment.as_bytes().unwrap().to_vec()).collect()
}

fn content(len: u32, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at as u8).wrapping_mul(7).wrapping_add((at >> 8) as u8).wrapping_add(seed)).collect()
}

impl Pair {
    fn new(store: Subject) -> Pair {
        let root = store.root();
        let node = Node { body: Body::Directory(BTreeMap::new()), links: 2, holds: 0 };
        Pair {
            store,
            model: Model { root, nodes: BTreeMap::from([(root.fileid, (root, node))]) },
            held: Vec::new(),
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::CreateFile { at, name, guarded, size } => self.create_file(at, name, guarded, size),
            Step::CreateDirectory { at, name } => {
                let new = NewObject::Directory(SetAttributes::default());
                self.create(at, name, new, Body::Directory(BTreeMap::new()));
            }
            Step::Symlink { at, name, ref target } => {
                let new = NewObject::Symlink(SetAttributes::default(), target);
                self.create(at, name, new, Body::Symlink(target.clone()));
            }
            Step::Write { at, offset, len, seed, in_place } => {
                self.write(at, offset, &content(len, seed), in_place)
            }
            Step::Truncate { at, size } => self.truncate(at, size),
            Step::Read { at, offset, count } => self.read(at, offset, count),
            Step::Remove { at, name } => self.unlink(at, name, false),
            Step::RemoveDirectory { at, name } => self.unlink(at, name, true),
            Step::Rename { from, from_name, to, to_name } => {
                let (from, to) = (self.model.directory(from), self.model.directory(to));
                let names = (name_of(from_name), name_of(to_name));
                let (_, _, result) = self.store.rename(ROOT, (from, &names.0), (to, &names.1));
                assert_eq!(result, self.model.rename(from, from_name, to, to_name));
                self.compare_directory(from);
                self.compare_directory(to);
            }
            Step::Link { at, to, name } => self.link(at, to, name),
            Step::Hold { at } => self.hold(at),
            Step::EndHold { at } => self.end_hold(at),
            Step::Restart => self.restart(),
            Step::Release => self.held.truncate(self.held.len() / 2),
        }
        for held in &self.held {
            assert!(bytes_of(&held.segments) == held.bytes, "data that were read have changed");
        }
    }

    fn hold(&mut self, at: usize) {
        let Some(object) = self.model.pick(at, |_| true) else { return };
        let expected = match self.model.node(object).body {
            Body::File(_) => Ok(()),
            Body::Directory(_) => Err(Status::IsDirectory),
            Body::Symlink(_) => Err(Status::Invalid),
        };
        assert_eq!(self.store.hold(object), expected);
        self.model.node(object).holds += u32::from(expected.is_ok());
    }

    fn end_hold(&mut self, at: usize) {
        let held: Vec<ObjectId> =
            self.model.nodes.values().filter(|(_, node)| node.holds > 0).map(|(object, _)| *object).collect();
        let Some(&object) = held.get(at % held.len().max(1)) else { return };
        self.store.release(object);
        self.model.node(object).holds -= 1;
        self.model.forget_unless_held(object);
        if !self.model.nodes.contains_key(&object.fileid) {
            assert_eq!(self.store.attributes(object, Wait::Allowed).unwrap(), Err(Status::Stale));
        }
    }

    /// A process that ends holds nothing any more.
    fn restart(&mut self) {
        if matches!(self.store, Subject::Mem(_)) {
            return;
        }
        self.store.restart();
        self.model.nodes.retain(|_, (_, node)| {
            node.holds = 0;
            node.links > 0
        });
    }

    fn create_file(&mut self, at: usize, name: u8, guarded: bool, size: Option<u32>) {
        let set = SetAttributes { size: size.map(u64::from), ..SetAttributes::default() };
        let directory = self.model.directory(at);
        let existing = self.model.names(directory).get(&name).copied();
        let new = if guarded {
            NewObject::File(CreateMode::Guarded(set))
        } else {
            NewObject::File(CreateMode::Unchecked(set))
        };
        let Some(object) = existing.filter(|_| !guarded) else {
            let size = size.unwrap_or(0) as usize;
            return self.create(at, name, new, Body::File(vec![0; size]));
        };
        let (_, result) = self.store.create(ROOT, directory, &name_of(name), new);
        assert_eq!(result.unwrap().object, object);
        if let (Body::File(bytes), Some(size)) = (&mut self.model.node(object).body, size) {
            bytes.resize(size as usize, 0);
            self.compare_file(object);
        }
    }

    fn create(&mut self, at: usize, name: u8, new: NewObject<'_>, body: Body) {
        let directory = self.model.directory(at);
        let (_, result) = self.store.create(ROOT, directory, &name_of(name), new);
        if self.model.names(directory).contains_key(&name) {
            assert_eq!(result, Err(Status::Exists));
        } else if matches!(&body, Body::Symlink(target) if target.is_empty()) {
            assert_eq!(result, Err(Status::NotFound));
        } else {
            self.model.add(directory, name, result.unwrap().object, body);
        }
        self.compare_directory(directory);
    }

    fn write(&mut self, at: usize, offset: u32, data: &[u8], in_place: bool) {
        let Some(object) = self.model.pick(at, |body| matches!(body, Body::File(_))) else { return };
        let (_, result) = if in_place {
            let mut receive_buffer = self.store.receive_buffer(u64::from(offset), data.len() as u32).unwrap();
            let mut slices = SmallVec::new();
            receive_buffer.unfilled(0, &mut slices);
            let mut rest = data;
            for slice in &mut slices {
                let (now, later) = rest.split_at(slice.len());
                slice.copy_from_slice(now);
                rest = later;
            }
            drop(slices);
            self.store
                .write_received(ROOT, object, &mut Some(receive_buffer), Stability::Unstable, Wait::Allowed)
                .unwrap()
        } else {
            self.store
                .write(ROOT, object, u64::from(offset), data, Stability::Unstable, Wait::Allowed)
                .unwrap()
        };
        assert_eq!(result.unwrap().count as usize, data.len());
        let bytes = self.model.file(object);
        let (start, end) = (offset as usize, offset as usize + data.len());
        bytes.resize(bytes.len().max(end), 0);
        bytes[start..end].copy_from_slice(data);
        self.compare_file(object);
    }

    fn truncate(&mut self, at: usize, size: u32) {
        let Some(object) = self.model.pick(at, |body| matches!(body, Body::File(_))) else { return };
        let set = SetAttributes { size: Some(u64::from(size)), ..SetAttributes::default() };
        self.store.set_attributes(ROOT, object, &set, None).1.unwrap();
        self.model.file(object).resize(size as usize, 0);
        self.compare_file(object);
    }

    fn read(&mut self, at: usize, offset: u32, count: u32) {
        let Some(object) = self.model.pick(at, |body| matches!(body, Body::File(_))) else { return };
        let mut segments = SmallVec::new();
        let end = self
            .store
            .read(ROOT, object, u64::from(offset), count, &mut segments, Wait::Allowed)
            .unwrap()
            .unwrap();
        let bytes = self.model.file(object);
        let start = (offset as usize).min(bytes.len());
        let stop = (offset as usize + count as usize).min(bytes.len()).max(start);
        let expected = bytes[start..stop].to_vec();
        assert_eq!((end.count as usize, end.eof), (expected.len(), stop == bytes.len()));
        assert!(bytes_of(&segments) == expected);
        if self.held.len() < HELD_MAX {
            self.held.push(Held { segments, bytes: expected });
        }
    }

    fn unlink(&mut self, at: usize, name: u8, rmdir: bool) {
        let directory = self.model.directory(at);
        let name_bytes = name_of(name);
        let (_, result) = if rmdir {
            self.store.remove_directory(ROOT, directory, &name_bytes)
        } else {
            self.store.remove(ROOT, directory, &name_bytes)
        };
        assert_eq!(result, self.model.unlink(directory, name, rmdir));
        self.compare_directory(directory);
    }

    fn link(&mut self, at: usize, to: usize, name: u8) {
        let Some(object) = self.model.pick(at, |_| true) else { return };
        let directory = self.model.directory(to);
        let (_, _, result) = self.store.link(ROOT, object, directory, &name_of(name));
        let expected = if self.model.is_directory(object) {
            Err(Status::IsDirectory)
        } else if self.model.names(directory).keys().any(|&taken| taken == name) {
            Err(Status::Exists)
        } else if self.model.node(object).links == 0 {
            Err(Status::NotFound)
        } else {
            self.model.names(directory).insert(name, object);
            self.model.node(object).links += 1;
            Ok(())
        };
        assert_eq!(result, expected);
        self.compare_directory(directory);
    }

    fn compare_file(&mut self, object: ObjectId) {
        let attributes = self.store.attributes(object, Wait::Allowed).unwrap().unwrap();
        let links = self.model.node(object).links;
        let expected = self.model.file(object);
        assert_eq!((attributes.size, attributes.nlink), (expected.len() as u64, links));
        // A file system may use more space for metadata of the file.
        let spare = if matches!(self.store, Subject::Mem(_)) { 0 } else { 64 << 10 };
        assert!(attributes.used <= (expected.len() as u64).next_multiple_of(4096) + spare);
        let mut segments = SmallVec::new();
        self.store.read(ROOT, object, 0, u32::MAX, &mut segments, Wait::Allowed).unwrap().unwrap();
        let mut rest = &expected[..];
        for segment in &segments {
            let (now, later) = rest.split_at(segment.len());
            assert!(segment.as_bytes().unwrap() == now, "content differs");
            rest = later;
        }
        assert!(rest.is_empty());
    }

    fn compare_directory(&mut self, object: ObjectId) {
        if !self.model.nodes.contains_key(&object.fileid) {
            assert_eq!(self.store.attributes(object, Wait::Allowed).unwrap(), Err(Status::Stale));
            return;
        }
        let mut found = BTreeMap::new();
        let visit = &mut |entry: store::Entry<'_>| {
            if !matches!(entry.name, b"." | b"..") {
                found.insert(entry.name.to_vec(), entry.found.object);
            }
            true
        };
        self.store.read_directory(ROOT, object, 0, visit).unwrap();
        let expected: BTreeMap<Vec<u8>, ObjectId> =
            self.model.names(object).iter().map(|(&name, &object)| (name_of(name), object)).collect();
        assert_eq!(found, expected);
        assert_eq!(
            self.store.attributes(object, Wait::Allowed).unwrap().unwrap().nlink,
            self.model.node(object).links
        );
    }

    /// Compares everything, then removes everything.
    fn end(mut self) {
        let all: Vec<ObjectId> = self.model.nodes.values().map(|(object, _)| *object).collect();
        if let Subject::Mem(store) = &self.store {
            assert_eq!(store.statistics().objects, all.len() as u64);
        }
        for &object in &all {
            match &self.model.node(object).body {
                Body::File(_) => self.compare_file(object),
                Body::Directory(_) => self.compare_directory(object),
                Body::Symlink(expected) => {
                    let expected = expected.clone();
                    let mut target = Vec::new();
                    assert_eq!(self.store.read_link(object, &mut target).unwrap().kind, FileKind::Symlink);
                    assert_eq!(target, expected);
                }
            }
        }
        self.held.clear();
        self.clear(self.model.root);
        while self.model.nodes.values().any(|(_, node)| node.holds > 0) {
            self.end_hold(0);
        }
        if let Subject::Mem(store) = &self.store {
            let end = store.statistics();
            let empty = MemStore::new(64 << 20, 0, 0).statistics();
            assert_eq!((end.pins, end.arenas), (0, 0));
            assert_eq!((end.objects, end.bytes_used), (1, empty.bytes_used));
        }
    }

    fn clear(&mut self, directory: ObjectId) {
        for (name, object) in self.model.names(directory).clone() {
            let is_directory = self.model.is_directory(object);
            if is_directory {
                self.clear(object);
            }
            self.model.unlink(directory, name, is_directory).unwrap();
            let name = name_of(name);
            let (_, result) = if is_directory {
                self.store.remove_directory(ROOT, directory, &name)
            } else {
                self.store.remove(ROOT, directory, &name)
            };
            result.unwrap();
        }
    }
}

fn check(store: Subject, steps: &[Step]) {
    let mut pair = Pair::new(store);
    for step in steps {
        pair.step(step);
    }
    pair.end();
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_store_does_what_the_model_does(steps in proptest::collection::vec(step(), 1..80)) {
        check(Subject::mem(), &steps);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..ProptestConfig::default() })]

    /// On tmpfs if there is one, because a sync costs nothing there.
    #[test]
    fn a_directory_in_memory_does_what_the_model_does(steps in proptest::collection::vec(step(), 1..80)) {
        let shm = std::path::Path::new("/dev/shm");
        let base = if shm.is_dir() { shm.into() } else { std::env::temp_dir() };
        check(Subject::directory(&base), &steps);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 8, ..ProptestConfig::default() })]

    #[test]
    fn a_directory_on_disk_does_what_the_model_does(steps in proptest::collection::vec(step(), 1..40)) {
        check(Subject::directory(&std::env::temp_dir()), &steps);
    }
}
