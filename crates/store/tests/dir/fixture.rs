//! A directory to serve, and short forms of the operations of tests.
#![allow(dead_code, reason = "each test program uses its part")]

use smallvec::SmallVec;
use std::path::PathBuf;
use store::{
    Caller, CreateMode, DirOptions, DirStore, Found, NewObject, ObjectId, Result, Segment, SetAttributes,
    Stability, Store, Wait,
};

pub const ROOT: Caller<'static> = Caller { uid: 0, gid: 0, gids: &[] };

pub struct Home {
    directory: tempfile::TempDir,
}

impl Home {
    pub fn new() -> Home {
        let shm = std::path::Path::new("/dev/shm");
        Home::in_place(if shm.is_dir() { shm.into() } else { std::env::temp_dir() })
    }

    pub fn in_place(base: PathBuf) -> Home {
        let directory = tempfile::tempdir_in(base).unwrap();
        std::fs::create_dir(directory.path().join("export")).unwrap();
        Home { directory }
    }

    /// The path of a name in the directory beneath.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join("export").join(name)
    }

    pub fn state(&self) -> PathBuf {
        self.directory.path().join("state")
    }

    pub fn beside(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn open(&self) -> DirStore {
        self.open_at(self.path(""))
    }

    pub fn open_at(&self, path: PathBuf) -> DirStore {
        DirStore::open(&DirOptions { path, state: Some(self.state()), server_groups: false }).unwrap()
    }
}

/// Whether the directory is on a tmpfs.
pub fn is_tmpfs(home: &Home) -> bool {
    rustix::fs::statfs(home.path("")).unwrap().f_type & 0xffff_ffff == 0x0102_1994
}

pub fn mode(mode: u32) -> SetAttributes {
    SetAttributes { mode: Some(mode), ..SetAttributes::default() }
}

pub fn size(size: u64) -> SetAttributes {
    SetAttributes { size: Some(size), ..SetAttributes::default() }
}

pub fn file(store: &DirStore, caller: Caller<'_>, parent: ObjectId, name: &str, bits: u32) -> ObjectId {
    store
        .create(caller, parent, name.as_bytes(), NewObject::File(CreateMode::Guarded(mode(bits))))
        .1
        .unwrap()
        .object
}

pub fn directory(store: &DirStore, caller: Caller<'_>, parent: ObjectId, name: &str, bits: u32) -> ObjectId {
    store.create(caller, parent, name.as_bytes(), NewObject::Directory(mode(bits))).1.unwrap().object
}

pub fn look(store: &DirStore, parent: ObjectId, name: &str) -> Result<Found> {
    store.lookup(ROOT, parent, name.as_bytes(), Wait::Allowed).unwrap().1
}

pub fn write(store: &DirStore, caller: Caller<'_>, object: ObjectId, data: &[u8]) -> Result<u32> {
    store
        .write(caller, object, 0, data, Stability::FileSync, Wait::Allowed)
        .unwrap()
        .1
        .map(|written| written.count)
}

pub fn read(store: &DirStore, caller: Caller<'_>, object: ObjectId) -> Result<Vec<u8>> {
    let mut segments: SmallVec<[Segment; 1]> = SmallVec::new();
    store.read(caller, object, 0, 1 << 20, &mut segments, Wait::Allowed).unwrap()?;
    Ok(segments.iter().flat_map(|segment| segment.as_bytes().unwrap().to_vec()).collect())
}

/// All names with their cookies, in pages of `page`.
pub fn list(store: &DirStore, object: ObjectId, page: usize) -> Result<Vec<(Vec<u8>, u64)>> {
    let mut found = Vec::new();
    let mut cookie = 0;
    loop {
        let mut taken = 0;
        let end = store.read_directory(ROOT, object, cookie, &mut |entry| {
            if taken == page {
                return false;
            }
            taken += 1;
            cookie = entry.cookie;
            found.push((entry.name.to_vec(), entry.cookie));
            true
        })?;
        if end.eof {
            return Ok(found);
        }
    }
}

/// Opens a directory that everybody may write to.
pub fn open_to_all(home: &Home) -> DirStore {
    let store = home.open();
    store.set_attributes(ROOT, store.root(), &mode(0o777), None).1.unwrap();
    store
}
