//! Arbitrary values of the types of which messages consist.

use nfs3::proc::write::Stable;
use nfs3::{
    Created, DirOpArgs, Fattr3, FileHandle, FileType, NfsTime, PostOpAttr, Sattr3, SetTime, SpecData, Status,
    Verifier, WccAttr, WccData,
};
use proptest::collection::vec;
use proptest::prelude::*;

/// Enough parts for any message.
#[derive(Debug, Clone)]
pub struct Parts {
    pub handles: [FileHandle; 2],
    pub names: [Vec<u8>; 2],
    pub target: Vec<u8>,
    pub attributes: [PostOpAttr; 2],
    pub full: Fattr3,
    pub wcc: [WccData; 2],
    pub set: Sattr3,
    pub time: NfsTime,
    pub guard: Option<NfsTime>,
    pub device: SpecData,
    pub stable: Stable,
    pub verifier: Verifier,
    pub failure: Status,
    pub long: [u64; 6],
    pub short: [u32; 8],
    pub flags: [bool; 4],
}

impl Parts {
    pub fn at(&self, index: usize) -> DirOpArgs<'_> {
        DirOpArgs { directory: self.handles[index], name: &self.names[index] }
    }

    pub fn created(&self) -> Created {
        let object = self.flags[0].then_some(self.handles[0]);
        Created { object, attributes: self.attributes[0], directory: self.wcc[0] }
    }
}

pub fn parts() -> impl Strategy<Value = Parts> {
    let bytes = (
        [handle(), handle()],
        [vec(any::<u8>(), 0..300), vec(any::<u8>(), 0..300)],
        vec(any::<u8>(), 0..=1024),
        any::<Verifier>(),
    );
    let attributes = (
        [proptest::option::of(fattr()), proptest::option::of(fattr())],
        fattr(),
        [wcc(), wcc()],
        set(),
        proptest::option::of(time()),
    );
    let stable = prop_oneof![Just(Stable::Unstable), Just(Stable::DataSync), Just(Stable::FileSync)];
    let numbers = (time(), device(), stable, 1_u32..20_000, any::<([u64; 6], [u32; 8], [bool; 4])>());
    (bytes, attributes, numbers).prop_map(|(bytes, attributes, numbers)| {
        let (handles, names, target, verifier) = bytes;
        let (optional, full, wcc, set, guard) = attributes;
        let (time, device, stable, failure, (long, short, flags)) = numbers;
        let failure = Status(failure);
        let attributes = optional;
        Parts {
            handles,
            names,
            target,
            attributes,
            full,
            wcc,
            set,
            time,
            guard,
            device,
            stable,
            verifier,
            failure,
            long,
            short,
            flags,
        }
    })
}

fn handle() -> impl Strategy<Value = FileHandle> {
    vec(any::<u8>(), 0..=64).prop_map(|bytes| FileHandle::new(&bytes).unwrap())
}

fn time() -> impl Strategy<Value = NfsTime> {
    any::<(u32, u32)>().prop_map(|(seconds, nanoseconds)| NfsTime { seconds, nanoseconds })
}

fn device() -> impl Strategy<Value = SpecData> {
    any::<(u32, u32)>().prop_map(|(major, minor)| SpecData { major, minor })
}

fn file_type() -> impl Strategy<Value = FileType> {
    prop_oneof![
        Just(FileType::Regular),
        Just(FileType::Directory),
        Just(FileType::BlockDevice),
        Just(FileType::CharacterDevice),
        Just(FileType::Symlink),
        Just(FileType::Socket),
        Just(FileType::Fifo),
    ]
}

fn fattr() -> impl Strategy<Value = Fattr3> {
    let words = any::<([u32; 4], [u64; 4])>();
    (file_type(), words, device(), [time(), time(), time()]).prop_map(
        |(file_type, ([mode, nlink, uid, gid], [size, used, fsid, fileid]), rdev, [atime, mtime, ctime])| {
            Fattr3 { file_type, mode, nlink, uid, gid, size, used, rdev, fsid, fileid, atime, mtime, ctime }
        },
    )
}

fn wcc() -> impl Strategy<Value = WccData> {
    let before =
        (any::<u64>(), time(), time()).prop_map(|(size, mtime, ctime)| WccAttr { size, mtime, ctime });
    (proptest::option::of(before), proptest::option::of(fattr()))
        .prop_map(|(before, after)| WccData { before, after })
}

fn set() -> impl Strategy<Value = Sattr3> {
    let how = || {
        prop_oneof![
            Just(SetTime::DontChange),
            Just(SetTime::ServerTime),
            time().prop_map(SetTime::ClientTime)
        ]
    };
    (any::<(Option<u32>, Option<u32>, Option<u32>, Option<u64>)>(), how(), how())
        .prop_map(|((mode, uid, gid, size), atime, mtime)| Sattr3 { mode, uid, gid, size, atime, mtime })
}
