//! Tests that the bound of a memory store holds for all that a client can make it keep, and not for
//! data alone: objects, names, targets, tables of files. The account is compared with what the
//! allocator really gave out.

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use smallvec::SmallVec;
use store::{
    Caller, CreateMode, FileKind, MemStore, NewObject, ObjectId, SetAttributes, Special, Stability, Status,
    Store, Wait,
};

/// Counts the bytes that the allocator has given out, with its own share.
struct Counting;

static HEAP: AtomicU64 = AtomicU64::new(0);
/// The allocator's word before each piece.
const HEADER_BYTES: u64 = 8;

/// What a piece of memory takes.
fn taken(start: *mut u8) -> u64 {
    // SAFETY: the piece was just given out, or is about to be given back.
    #[allow(unsafe_code)]
    let usable = unsafe { libc::malloc_usable_size(start.cast()) };
    usable as u64 + HEADER_BYTES
}

// SAFETY: passes everything to the system's allocator; counting allocates nothing.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract, which is the same.
        let start = unsafe { System.alloc(layout) };
        HEAP.fetch_add(taken(start), Ordering::Relaxed);
        start
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        HEAP.fetch_sub(taken(start), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(start, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// The allocator's count is of the whole process: one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

const ANN: Caller<'static> = Caller { uid: 1000, gid: 100, gids: &[] };
const MIB: u64 = 1 << 20;

fn set() -> SetAttributes {
    SetAttributes { mode: Some(0o755), ..SetAttributes::default() }
}

fn file() -> NewObject<'static> {
    NewObject::File(CreateMode::Guarded(set()))
}

fn make(store: &MemStore, at: ObjectId, name: &[u8], new: NewObject<'_>) -> Result<ObjectId, Status> {
    store.create(ANN, at, name, new).1.map(|found| found.object)
}

fn write(store: &MemStore, object: ObjectId, offset: u64, data: &[u8]) -> Result<(), Status> {
    store.write(ANN, object, offset, data, Stability::Unstable, Wait::Allowed).unwrap().1.map(drop)
}

fn truncate(store: &MemStore, object: ObjectId, size: u64) -> Result<(), Status> {
    let set = SetAttributes { size: Some(size), ..SetAttributes::default() };
    store.set_attributes(ANN, object, &set, None).1
}

/// Removes all below a directory, level by level.
fn remove_all(store: &MemStore, root: ObjectId) {
    let mut left = VecDeque::from([root]);
    let mut directories = Vec::new();
    while let Some(at) = left.pop_front() {
        let mut names = Vec::new();
        let visit = &mut |entry: store::Entry<'_>| {
            if entry.cookie > 2 {
                names.push((entry.name.to_vec(), *entry.found));
            }
            true
        };
        store.read_directory(ANN, at, 0, visit).unwrap();
        for (name, found) in names {
            if found.attributes.kind == FileKind::Directory {
                left.push_back(found.object);
                directories.push((at, name));
            } else {
                store.remove(ANN, at, &name).1.unwrap();
            }
        }
    }
    for (at, name) in directories.into_iter().rev() {
        store.remove_directory(ANN, at, &name).1.unwrap();
    }
}

/// Lets `grow` fill a store until it is full, compares its account with the heap and empties it.
/// `grow` makes its `n`th thing, and tells how many pages of data that took: they are no heap.
fn compare(what: &str, mut grow: impl FnMut(&MemStore, u64) -> Result<u64, Status>) {
    let _alone = alone();
    let store = MemStore::new(16 * MIB, 1000, 100);
    let (heap, account) = (HEAP.load(Ordering::Relaxed), store.statistics().bytes_used);
    let mut pages = 0;
    let mut things = 0;
    let error = loop {
        match grow(&store, things) {
            Ok(more) => pages += more,
            Err(error) => break error,
        }
        things += 1;
        assert!(things < 1 << 20, "{what}: the store is never full");
    };
    assert_eq!(error, Status::NoSpace, "{what}");
    let used = store.statistics().bytes_used;
    assert!(used <= store.space().total_bytes && used > 15 * MIB, "{what}: {used} bytes when full");
    let heap = HEAP.load(Ordering::Relaxed) - heap;
    let charged = used - account - pages * 4096;
    assert!(heap <= charged + charged / 4, "{what}: {things} took {heap} bytes, {charged} charged");
    assert!(charged <= heap + heap / 4, "{what}: {things} took {heap} bytes, {charged} charged");
    remove_all(&store, store.root());
    assert_eq!(store.statistics().bytes_used, account, "{what}: after the removal");
    assert_eq!(store.statistics().objects, 1, "{what}");
}

#[test]
fn the_account_is_what_objects_and_names_take() {
    compare("directories in one", |store, n| {
        make(store, store.root(), format!("d{n}").as_bytes(), NewObject::Directory(set())).map(|_| 0)
    });
    compare("files with long names", |store, n| {
        make(store, store.root(), format!("{n:0240}").as_bytes(), file()).map(|_| 0)
    });
    compare("links with targets", |store, n| {
        let target = vec![b'x'; 1 + n as usize % 4000];
        make(store, store.root(), format!("{n}").as_bytes(), NewObject::Symlink(set(), &target)).map(|_| 0)
    });
    compare("pipes", |store, n| {
        make(store, store.root(), format!("{n}").as_bytes(), NewObject::Special(set(), Special::Fifo))
            .map(|_| 0)
    });
}

#[test]
fn the_account_is_what_trees_and_hard_links_take() {
    let mut at = None;
    compare("directories with one directory each", |store, n| {
        let above = at.filter(|_| n % 100 > 0).unwrap_or(store.root());
        at = Some(make(store, above, format!("d{n}").as_bytes(), NewObject::Directory(set()))?);
        Ok(0)
    });
    let mut objects = Vec::new();
    compare("hard links", |store, n| {
        if n % 60_000 == 0 {
            objects.push(make(store, store.root(), format!("f{n}").as_bytes(), file())?);
        }
        store.link(ANN, *objects.last().unwrap(), store.root(), format!("l{n}").as_bytes()).2.map(|()| 0)
    });
    let mut object = None;
    compare("sparse files", |store, n| {
        if n == 0 {
            object = Some(make(store, store.root(), b"f", file())?);
        }
        write(store, object.unwrap(), n << 30, b"x").map(|()| 1)
    });
}

#[test]
fn names_that_come_and_go_leave_nothing() {
    let _alone = alone();
    let store = MemStore::new(16 * MIB, 1000, 100);
    let root = store.root();
    for n in 0..1000 {
        make(&store, root, format!("f{n}").as_bytes(), file()).unwrap();
    }
    let (heap, account) = (HEAP.load(Ordering::Relaxed), store.statistics().bytes_used);
    for n in 0..100_000 {
        let (old, new) = (format!("f{n}"), format!("f{}", n + 1000));
        store.rename(ANN, (root, old.as_bytes()), (root, new.as_bytes())).2.unwrap();
    }
    let (heap_after, account_after) = (HEAP.load(Ordering::Relaxed), store.statistics().bytes_used);
    assert!(heap_after < heap + 200_000, "{heap_after} bytes, {heap} before");
    assert!(account_after < account + 200_000, "{account_after} bytes, {account} before");
}

#[test]
fn what_a_directory_gained_is_given_back_while_it_still_has_names() {
    let _alone = alone();
    let store = MemStore::new(64 * MIB, 1000, 100);
    let account = store.statistics().bytes_used;
    for n in 0..50_000 {
        make(&store, store.root(), format!("f{n}").as_bytes(), file()).unwrap();
    }
    for n in 10..50_000 {
        store.remove(ANN, store.root(), format!("f{n}").as_bytes()).1.unwrap();
    }
    let used = store.statistics().bytes_used - account;
    assert!(used < 10_000, "ten names hold {used} bytes");
    for n in 0..10 {
        store.lookup(ANN, store.root(), format!("f{n}").as_bytes(), Wait::Allowed).unwrap().1.unwrap();
    }
}

/// A store without space for one more object, and with one file that has data.
fn full() -> (MemStore, ObjectId) {
    let store = MemStore::new(2 * MIB, 1000, 100);
    let object = make(&store, store.root(), b"data", file()).unwrap();
    make(&store, store.root(), b"directory", NewObject::Directory(set())).unwrap();
    write(&store, object, 0, &[7; 100_000]).unwrap();
    let mut n = 0;
    while make(&store, store.root(), format!("f{n}").as_bytes(), file()).is_ok() {
        n += 1;
    }
    (store, object)
}

#[test]
fn a_full_store_refuses_all_that_makes_something() {
    let _alone = alone();
    let (store, object) = full();
    let root = store.root();
    let long = [b'n'; 200];
    let before = store.statistics();
    let news = [
        file(),
        NewObject::File(CreateMode::Unchecked(set())),
        NewObject::File(CreateMode::Exclusive([1; 8])),
        NewObject::Directory(set()),
        NewObject::Symlink(set(), &[b't'; 300]),
        NewObject::Special(set(), Special::Fifo),
        NewObject::Special(set(), Special::Socket),
    ];
    for new in news {
        let (_, result) = store.create(ANN, root, &long, new);
        assert_eq!(result.unwrap_err(), Status::NoSpace, "{new:?}");
    }
    assert_eq!(store.link(ANN, object, root, &long).2, Err(Status::NoSpace));
    assert_eq!(write(&store, object, 1 << 40, b"x"), Err(Status::NoSpace));
    assert_eq!(store.statistics(), before, "nothing was taken");
    let space = store.space();
    assert!(space.free_files <= 2 && space.total_files == before.objects + space.free_files, "{space:?}");
    assert!(space.free_bytes < 500, "{space:?}");
}

#[test]
fn a_full_store_still_removes_truncates_and_renames() {
    let _alone = alone();
    let (store, object) = full();
    let root = store.root();
    // A size alone takes no memory.
    truncate(&store, object, 1 << 40).unwrap();
    truncate(&store, object, 50_001).unwrap();
    let mut held = SmallVec::new();
    store.read(ANN, object, 0, 65_536, &mut held, Wait::Allowed).unwrap().unwrap();
    while write(&store, object, 1 << 30, &[1; 4096]).is_ok() {
        truncate(&store, object, 50_001).unwrap();
        let set = NewObject::File(CreateMode::Guarded(set()));
        let name = format!("more{}", store.statistics().objects);
        if make(&store, root, name.as_bytes(), set).is_err() {
            break;
        }
    }
    store.rename(ANN, (root, b"f0"), (root, b"f1")).2.unwrap();
    // A client removes an open file by renaming it first.
    store.rename(ANN, (root, b"f1"), (root, b".nfs0000000000000000000000001234")).2.unwrap();
    let directory = store.lookup(ANN, root, b"directory", Wait::Allowed).unwrap().1.unwrap().object;
    store.rename(ANN, (root, b"f2"), (directory, b"f2")).2.unwrap();
    store.rename(ANN, (root, b"f3"), (directory, b"f2")).2.unwrap();
    truncate(&store, object, 30_001).unwrap();
    truncate(&store, object, 0).unwrap();
    remove_all(&store, root);
    drop(held);
    let empty = MemStore::new(2 * MIB, 1000, 100);
    assert_eq!(store.statistics(), empty.statistics());
}

/// Small pseudo-random numbers, the same in each run.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % bound
    }
}

/// One random operation below some directories. True unless the store had no space.
fn step(store: &MemStore, tops: &[ObjectId], draw: &mut Draw) -> bool {
    let top = tops[draw.below(tops.len() as u64) as usize];
    let other = tops[draw.below(tops.len() as u64) as usize];
    let name = |draw: &mut Draw| {
        let number = draw.below(2000);
        format!("{number}{}", "n".repeat((number % 100) as usize)).into_bytes()
    };
    let (from, to) = (name(draw), name(draw));
    let found = store.lookup(ANN, top, &from, Wait::Allowed).unwrap().1.map(|found| found.object);
    let result = match draw.below(10) {
        0 => make(store, top, &from, file()).map(drop),
        1 => make(store, top, &from, NewObject::Directory(set())).map(drop),
        2 => make(store, top, &from, NewObject::Symlink(set(), &to.repeat(10))).map(drop),
        3 => store.rename(ANN, (top, &from), (other, &to)).2,
        4 => found.and_then(|object| store.link(ANN, object, other, &to).2),
        5 | 6 => found.and_then(|object| write(store, object, draw.below(1 << 33), &from)),
        7 => found.and_then(|object| truncate(store, object, draw.below(1 << 33))),
        8 if draw.below(4) == 0 => store.remove(ANN, top, &from).1,
        _ => make(store, top, &from, NewObject::File(CreateMode::Exclusive([3; 8]))).map(drop),
    };
    result != Err(Status::NoSpace)
}

#[test]
fn the_account_is_exact_after_threads_filled_a_store_and_emptied_it() {
    let _alone = alone();
    for round in 0..8u64 {
        let store = &MemStore::new((1 + round % 3) * MIB, 1000, 100);
        let start = store.statistics();
        let tops: Vec<ObjectId> = (0..4)
            .map(|n| make(store, store.root(), format!("top{n}").as_bytes(), NewObject::Directory(set())))
            .collect::<Result<_, _>>()
            .unwrap();
        thread::scope(|scope| {
            for seed in 0..4 {
                let tops = &tops;
                scope.spawn(move || {
                    let mut draw = Draw(round * 16 + seed);
                    let mut refused = 0;
                    for _ in 0..100_000 {
                        refused += u32::from(!step(store, tops, &mut draw));
                        let used = store.statistics().bytes_used;
                        assert!(used <= store.space().total_bytes, "{used} bytes");
                        if refused == 500 {
                            return;
                        }
                    }
                    panic!("the store never was full");
                });
            }
        });
        remove_all(store, store.root());
        assert_eq!(store.statistics(), start, "round {round}");
    }
}
