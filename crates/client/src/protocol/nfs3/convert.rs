//! Converts the types of NFS version 3 to those of [`fs`] and back: one function for each, by
//! exhaustive match.

use std::time::Duration;

use fs::{
    Attributes, Change, CreateMode, Device, FileHandle, FileKind, FileSystemInfo, Limits, SetAttributes,
    SetTime, Space, Special, Stability, Status, Time, TransferSizes, Version,
};
use nfs3::proc::create::How;
use nfs3::proc::mknod::What;
use nfs3::proc::write::Stable;
use nfs3::proc::{fsinfo, fsstat, pathconf};
use nfs3::{Fattr3, FileType, NfsTime, Sattr3, SpecData, WccAttr, WccData};

/// The handle sent to the server. No server of version 3 returns a handle that does not fit; a
/// handle that came from no server is sent as an empty handle, which the server does not know
/// either.
pub(super) fn to_handle(handle: FileHandle) -> nfs3::FileHandle {
    nfs3::FileHandle::new(handle.as_slice()).unwrap_or(nfs3::FileHandle::EMPTY)
}

/// A handle from a server.
pub(super) fn handle(given: nfs3::FileHandle) -> FileHandle {
    const { assert!(nfs3::HANDLE_BYTES_MAX as usize <= fs::HANDLE_BYTES_MAX, "each handle has room") };
    FileHandle::new(given.as_slice()).unwrap_or(FileHandle::EMPTY)
}

const fn time(time: NfsTime) -> Time {
    Time { seconds: time.seconds as i64, nanoseconds: time.nanoseconds }
}

/// Version 3 cannot express times before 1970 or after 2106: the nearest time is used, as on a
/// kernel mount.
pub(super) fn to_time(time: Time) -> NfsTime {
    if time.seconds < 0 {
        return NfsTime { seconds: 0, nanoseconds: 0 };
    }
    NfsTime { seconds: u32::try_from(time.seconds).unwrap_or(u32::MAX), nanoseconds: time.nanoseconds }
}

const fn kind(file_type: FileType) -> FileKind {
    match file_type {
        FileType::Regular => FileKind::Regular,
        FileType::Directory => FileKind::Directory,
        FileType::BlockDevice => FileKind::BlockDevice,
        FileType::CharacterDevice => FileKind::CharacterDevice,
        FileType::Symlink => FileKind::Symlink,
        FileType::Socket => FileKind::Socket,
        FileType::Fifo => FileKind::Fifo,
    }
}

pub(super) const fn attributes(of: &Fattr3) -> Attributes {
    Attributes {
        kind: kind(of.file_type),
        // A server may also send the bits of the file type.
        mode: of.mode & 0o7777,
        nlink: of.nlink,
        uid: of.uid,
        gid: of.gid,
        size: of.size,
        used: of.used,
        rdev: Device { major: of.rdev.major, minor: of.rdev.minor },
        fsid: of.fsid,
        fileid: of.fileid,
        atime: time(of.atime),
        mtime: time(of.mtime),
        ctime: time(of.ctime),
        // NFS version 3 has none.
        change: 0,
    }
}

fn to_set_time(how: SetTime) -> nfs3::SetTime {
    match how {
        SetTime::Keep => nfs3::SetTime::DontChange,
        SetTime::Now => nfs3::SetTime::ServerTime,
        SetTime::To(time) => nfs3::SetTime::ClientTime(to_time(time)),
    }
}

pub(super) fn to_sattr(new: SetAttributes) -> Sattr3 {
    let SetAttributes { mode, uid, gid, size, atime, mtime } = new;
    Sattr3 { mode, uid, gid, size, atime: to_set_time(atime), mtime: to_set_time(mtime) }
}

pub(super) fn to_how(mode: CreateMode) -> How {
    match mode {
        CreateMode::Unchecked(new) => How::Unchecked(to_sattr(new)),
        CreateMode::Guarded(new) => How::Guarded(to_sattr(new)),
        CreateMode::Exclusive(verifier) => How::Exclusive(verifier),
    }
}

pub(super) fn to_what(special: Special, new: SetAttributes) -> What {
    let numbers = |device: Device| SpecData { major: device.major, minor: device.minor };
    match special {
        Special::BlockDevice(device) => What::BlockDevice(to_sattr(new), numbers(device)),
        Special::CharacterDevice(device) => What::CharacterDevice(to_sattr(new), numbers(device)),
        Special::Socket => What::Socket(to_sattr(new)),
        Special::Fifo => What::Fifo(to_sattr(new)),
    }
}

pub(super) const fn stability(committed: Stable) -> Stability {
    match committed {
        Stable::Unstable => Stability::Unstable,
        Stable::DataSync => Stability::DataSync,
        Stable::FileSync => Stability::FileSync,
    }
}

pub(super) const fn to_stable(stability: Stability) -> Stable {
    match stability {
        Stability::Unstable => Stable::Unstable,
        Stability::DataSync => Stable::DataSync,
        Stability::FileSync => Stable::FileSync,
    }
}

pub(super) fn change(told: &WccData) -> Change {
    let version =
        |at: WccAttr| Version { size: at.size, mtime: time(at.mtime), ctime: time(at.ctime), change: 0 };
    Change { before: told.before.map(version), after: told.after.map(|after| attributes(&after).version()) }
}

pub(super) const fn space(of: &fsstat::Success) -> Space {
    Space {
        total_bytes: of.total_bytes,
        free_bytes: of.free_bytes,
        available_bytes: of.available_bytes,
        total_files: of.total_files,
        free_files: of.free_files,
        available_files: of.available_files,
    }
}

pub(super) const fn limits(of: &pathconf::Success) -> Limits {
    Limits {
        links_max: of.links_max,
        name_bytes_max: of.name_bytes_max,
        no_truncation: of.no_truncation,
        chown_restricted: of.chown_restricted,
        case_insensitive: of.case_insensitive,
        case_preserving: of.case_preserving,
    }
}

pub(super) fn info(of: &fsinfo::Success) -> FileSystemInfo {
    let has = |property: u32| of.properties & property != 0;
    FileSystemInfo {
        read: TransferSizes { max: of.read_max, preferred: of.read_preferred, multiple: of.read_multiple },
        write: TransferSizes {
            max: of.write_max,
            preferred: of.write_preferred,
            multiple: of.write_multiple,
        },
        directory_preferred: of.directory_preferred,
        file_bytes_max: of.file_bytes_max,
        time_delta: Duration::new(of.time_delta.seconds.into(), of.time_delta.nanoseconds),
        has_links: has(fsinfo::LINK),
        has_symlinks: has(fsinfo::SYMLINK),
        is_homogeneous: has(fsinfo::HOMOGENEOUS),
        can_set_time: has(fsinfo::CAN_SET_TIME),
    }
}

/// The statuses of MOUNT are a subset of these. RFC 1813 s2.6, s5.1.5
pub(super) const fn status(told: nfs3::Status) -> Status {
    use nfs3::Status as Nfs;
    match told {
        Nfs::PERM => Status::NotPermitted,
        Nfs::NOENT => Status::NotFound,
        Nfs::IO => Status::Io,
        Nfs::NXIO => Status::NoAddress,
        Nfs::ACCES => Status::Access,
        Nfs::EXIST => Status::Exists,
        Nfs::XDEV => Status::CrossDevice,
        Nfs::NODEV => Status::NoDevice,
        Nfs::NOTDIR => Status::NotDirectory,
        Nfs::ISDIR => Status::IsDirectory,
        Nfs::INVAL => Status::Invalid,
        Nfs::FBIG => Status::FileTooBig,
        Nfs::NOSPC => Status::NoSpace,
        Nfs::ROFS => Status::ReadOnly,
        Nfs::MLINK => Status::TooManyLinks,
        Nfs::NAMETOOLONG => Status::NameTooLong,
        Nfs::NOTEMPTY => Status::NotEmpty,
        Nfs::DQUOT => Status::Quota,
        Nfs::STALE => Status::Stale,
        Nfs::REMOTE => Status::Remote,
        Nfs::BADHANDLE => Status::BadHandle,
        Nfs::NOT_SYNC => Status::NotSync,
        Nfs::BAD_COOKIE => Status::BadCookie,
        Nfs::NOTSUPP => Status::NotSupported,
        Nfs::TOOSMALL => Status::TooSmall,
        Nfs::SERVERFAULT => Status::ServerFault,
        Nfs::BADTYPE => Status::BadType,
        Nfs::JUKEBOX => Status::Later,
        Nfs(number) => Status::Other(number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_status_keeps_its_name_and_an_unknown_one_its_number() {
        let mut seen = Vec::new();
        for &told in nfs3::Status::ALL.iter().filter(|told| **told != nfs3::Status::OK) {
            assert_eq!(status(told).to_string(), told.to_string());
            seen.push(status(told));
        }
        // What only later versions tell.
        let later = [Status::NoXattr, Status::XattrTooBig];
        let known: Vec<Status> = Status::ALL.iter().copied().filter(|known| !later.contains(known)).collect();
        assert_eq!(seen, known);
        assert_eq!(status(nfs3::Status(4711)), Status::Other(4711));
    }

    #[test]
    fn times_out_of_range_become_the_nearest_valid_time() {
        let to = |seconds, nanoseconds| {
            let NfsTime { seconds, nanoseconds } = to_time(Time { seconds, nanoseconds });
            (seconds, nanoseconds)
        };
        assert_eq!(to(-5, 7), (0, 0));
        assert_eq!(to(1 << 40, 7), (u32::MAX, 7));
        assert_eq!(to(951_782_400, 7), (951_782_400, 7));
        assert_eq!(time(NfsTime { seconds: u32::MAX, nanoseconds: 7 }).seconds, 0xffff_ffff);
    }

    #[test]
    fn a_handle_too_long_for_version_3_is_sent_as_an_empty_one() {
        let sent = |bytes: &[u8]| to_handle(FileHandle::new(bytes).unwrap()).as_slice().to_vec();
        assert_eq!(sent(&[7; 64]), [7; 64]);
        assert!(sent(&[7; 65]).is_empty());
    }
}
