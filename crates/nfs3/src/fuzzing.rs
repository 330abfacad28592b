//! Bodies shared by the property tests, the golden tests and the fuzz targets.
//!
//! A message that decodes must encode to the same length, and decode from there to the same value.

use crate::proc::{
    access, commit, create, fsinfo, fsstat, getattr, link, lookup, mkdir, mknod, null, pathconf, read,
    readdir, readdirplus, readlink, remove, rename, rmdir, setattr, symlink, write,
};
use crate::{Fattr3, FileHandle, FileType, NfsTime, Outcome, Procedure, SpecData, Status, Wire, mount};
use std::fmt::Debug;
use xdr::{Reader, Result};

/// A procedure of either program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// A procedure of NFS.
    Nfs(Procedure),
    /// A procedure of MOUNT.
    Mount(mount::Procedure),
}

impl Which {
    /// All 28 procedures.
    pub fn all() -> impl Iterator<Item = Self> {
        let mount = mount::Procedure::ALL.into_iter().map(Self::Mount);
        Procedure::ALL.into_iter().map(Self::Nfs).chain(mount)
    }

    /// The byte by which [`call`] and [`reply`] select the procedure.
    ///
    /// # Panics
    /// Never: every procedure is in the table.
    #[must_use]
    pub fn selector(self) -> u8 {
        let position = Self::all().position(|one| one == self).expect("every procedure is in the table");
        u8::try_from(position).expect("28 procedures")
    }

    fn selected(by: u8) -> Option<Self> {
        Self::all().nth(usize::from(by) % 28)
    }
}

/// Decodes arguments; the first byte selects the procedure.
pub fn call(bytes: &[u8]) {
    if let Some((selector, body)) = bytes.split_first()
        && let Some(which) = Which::selected(*selector)
    {
        let _ = call_again(which, body, &mut Vec::new());
    }
}

/// Decodes results; the first byte selects the procedure.
pub fn reply(bytes: &[u8]) {
    if let Some((selector, body)) = bytes.split_first()
        && let Some(which) = Which::selected(*selector)
    {
        let _ = reply_again(which, body, &mut Vec::new());
    }
}

/// Decodes arguments and encodes them again into `written`. Returns how many bytes follow the
/// arguments.
///
/// # Errors
/// If the arguments do not decode.
pub fn call_again<'a>(which: Which, bytes: &'a [u8], written: &'a mut Vec<u8>) -> Result<usize> {
    match which {
        Which::Nfs(procedure) => match procedure {
            Procedure::Null => again::<null::Args>(bytes, written),
            Procedure::GetAttr => again::<getattr::Args>(bytes, written),
            Procedure::SetAttr => again::<setattr::Args>(bytes, written),
            Procedure::Lookup => again::<lookup::Args<'a>>(bytes, written),
            Procedure::Access => again::<access::Args>(bytes, written),
            Procedure::ReadLink => again::<readlink::Args>(bytes, written),
            Procedure::Read => again::<read::Args>(bytes, written),
            Procedure::Write => again::<write::Args>(bytes, written),
            Procedure::Create => again::<create::Args<'a>>(bytes, written),
            Procedure::MkDir => again::<mkdir::Args<'a>>(bytes, written),
            Procedure::SymLink => again::<symlink::Args<'a>>(bytes, written),
            Procedure::MkNod => again::<mknod::Args<'a>>(bytes, written),
            Procedure::Remove => again::<remove::Args<'a>>(bytes, written),
            Procedure::RmDir => again::<rmdir::Args<'a>>(bytes, written),
            Procedure::Rename => again::<rename::Args<'a>>(bytes, written),
            Procedure::Link => again::<link::Args<'a>>(bytes, written),
            Procedure::ReadDir => again::<readdir::Args>(bytes, written),
            Procedure::ReadDirPlus => again::<readdirplus::Args>(bytes, written),
            Procedure::FsStat => again::<fsstat::Args>(bytes, written),
            Procedure::FsInfo => again::<fsinfo::Args>(bytes, written),
            Procedure::PathConf => again::<pathconf::Args>(bytes, written),
            Procedure::Commit => again::<commit::Args>(bytes, written),
        },
        Which::Mount(procedure) => match procedure {
            mount::Procedure::Null => again::<mount::null::Args>(bytes, written),
            mount::Procedure::Mnt => again::<mount::mnt::Args<'a>>(bytes, written),
            mount::Procedure::Dump => again::<mount::dump::Args>(bytes, written),
            mount::Procedure::Umnt => again::<mount::umnt::Args<'a>>(bytes, written),
            mount::Procedure::UmntAll => again::<mount::umntall::Args>(bytes, written),
            mount::Procedure::Export => again::<mount::export::Args>(bytes, written),
        },
    }
}

/// Decodes results and encodes them again into `written`. Returns how many bytes follow the
/// results.
///
/// # Errors
/// If the results do not decode.
pub fn reply_again<'a>(which: Which, bytes: &'a [u8], written: &'a mut Vec<u8>) -> Result<usize> {
    match which {
        Which::Nfs(procedure) => match procedure {
            Procedure::Null => again::<null::Reply>(bytes, written),
            Procedure::GetAttr => again::<getattr::Reply>(bytes, written),
            Procedure::SetAttr => again::<setattr::Reply>(bytes, written),
            Procedure::Lookup => again::<lookup::Reply>(bytes, written),
            Procedure::Access => again::<access::Reply>(bytes, written),
            Procedure::ReadLink => again::<readlink::Reply<'a>>(bytes, written),
            Procedure::Read => again::<read::Reply>(bytes, written),
            Procedure::Write => again::<write::Reply>(bytes, written),
            Procedure::Create => again::<create::Reply>(bytes, written),
            Procedure::MkDir => again::<mkdir::Reply>(bytes, written),
            Procedure::SymLink => again::<symlink::Reply>(bytes, written),
            Procedure::MkNod => again::<mknod::Reply>(bytes, written),
            Procedure::Remove => again::<remove::Reply>(bytes, written),
            Procedure::RmDir => again::<rmdir::Reply>(bytes, written),
            Procedure::Rename => again::<rename::Reply>(bytes, written),
            Procedure::Link => again::<link::Reply>(bytes, written),
            Procedure::ReadDir => again::<readdir::Reply<'a>>(bytes, written),
            Procedure::ReadDirPlus => again::<readdirplus::Reply<'a>>(bytes, written),
            Procedure::FsStat => again::<fsstat::Reply>(bytes, written),
            Procedure::FsInfo => again::<fsinfo::Reply>(bytes, written),
            Procedure::PathConf => again::<pathconf::Reply>(bytes, written),
            Procedure::Commit => again::<commit::Reply>(bytes, written),
        },
        Which::Mount(procedure) => match procedure {
            mount::Procedure::Null => again::<mount::null::Reply>(bytes, written),
            mount::Procedure::Mnt => again::<mount::mnt::Reply>(bytes, written),
            mount::Procedure::Dump => again::<mount::dump::Reply<'a>>(bytes, written),
            mount::Procedure::Umnt => again::<mount::umnt::Reply>(bytes, written),
            mount::Procedure::UmntAll => again::<mount::umntall::Reply>(bytes, written),
            mount::Procedure::Export => again::<mount::export::Reply<'a>>(bytes, written),
        },
    }
}

fn again<'a, T: Wire<'a> + PartialEq + Debug>(bytes: &'a [u8], written: &'a mut Vec<u8>) -> Result<usize> {
    let mut reader = Reader::new(bytes);
    let value = T::decode(&mut reader)?;
    written.clear();
    value.encode(&mut xdr::Writer::new(written));
    assert_eq!(written.len(), bytes.len() - reader.remaining(), "encoded as long as it came");
    let mut second = Reader::new(written);
    assert_eq!(T::decode(&mut second), Ok(value), "encoded to the same value");
    assert_eq!(second.remaining(), 0, "and to nothing more");
    Ok(reader.remaining())
}

/// Writes a listing within the bounds that the first bytes give, with names taken from the rest.
/// The reply must keep its bounds and contain exactly the entries that were accepted.
pub fn listing(bytes: &[u8]) {
    let mut reader = Reader::new(bytes);
    let (Ok(shape), Ok(dircount), Ok(maxcount)) = (reader.u32(), reader.u32(), reader.u32()) else { return };
    let (dircount, maxcount) = (dircount % 2048, maxcount % 4096);
    let with_attributes = shape & 1 == 1;
    let attributes = with_attributes.then_some(ATTRIBUTES);
    let handle = FileHandle::new(&[7; 29]).filter(|_| shape & 2 == 2);
    let names: Vec<_> = reader.rest().chunks(1 + shape as usize % 97).zip(1..).collect();
    // The present content of the buffer must be kept.
    let mut out = b"head".to_vec();
    let mut writer = readdirplus::EntryWriter::new(&mut out, *b"verifier", dircount, maxcount);
    let mut taken = 0;
    for &(name, cookie) in &names {
        let entry = readdirplus::Entry { fileid: cookie, name, cookie, attributes, handle };
        if !writer.add(&entry) {
            assert!(!writer.add(&entry), "nothing is taken behind a gap");
            break;
        }
        taken += 1;
    }
    assert_eq!(writer.entries(), taken);
    let eof = taken == names.len();
    let status = writer.finish(eof, attributes);
    assert_eq!(out.get(..4), Some(&b"head"[..]));
    let message = out.get(4..).unwrap_or_default();
    let mut reader = Reader::new(message);
    match readdirplus::Reply::decode(&mut reader).expect("a listing decodes") {
        Outcome::Ok(success) => {
            assert_eq!(status, Status::OK);
            assert!(message.len() - 4 <= maxcount as usize, "the result keeps to maxcount");
            assert!(taken > 0 || eof, "a listing gets on or ends");
            assert_eq!((success.attributes, success.verifier, success.eof), (attributes, *b"verifier", eof));
            assert!(
                success
                    .entries
                    .iter()
                    .map(|entry| (entry.name, entry.cookie))
                    .eq(names.into_iter().take(taken))
            );
            let counted =
                success.entries.iter().map(|entry| 20 + entry.name.len().next_multiple_of(4)).sum::<usize>();
            assert!(taken == 1 || counted <= dircount as usize, "the names keep to dircount");
        }
        Outcome::Fail(fault, after) => {
            assert_eq!((status, fault, after), (Status::TOOSMALL, Status::TOOSMALL, attributes));
            assert_eq!(taken, 0, "whatever fits is answered");
        }
    }
    assert_eq!(reader.remaining(), 0);
}

const ATTRIBUTES: Fattr3 = Fattr3 {
    file_type: FileType::Directory,
    mode: 0o755,
    nlink: 2,
    uid: 1,
    gid: 2,
    size: 3,
    used: 4,
    rdev: SpecData { major: 0, minor: 0 },
    fsid: 5,
    fileid: 6,
    atime: NfsTime { seconds: 7, nanoseconds: 8 },
    mtime: NfsTime { seconds: 9, nanoseconds: 10 },
    ctime: NfsTime { seconds: 11, nanoseconds: 12 },
};
