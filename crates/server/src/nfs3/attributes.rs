//! Converts attributes of the store to the wire, and attributes set by clients to the store. RFC
//! 1813 s2.6

use crate::export::Export;
use fs::{Attributes, Effect, FileKind, SetAttributes, SetTime, Time, Version};
use nfs3::{Fattr3, FileType, NfsTime, Sattr3, SetTime as WireSetTime, SpecData, Status, WccAttr, WccData};

/// Permission bits with set-user-id, set-group-id and sticky. RFC 1813 s2.6 (mode3)
const MODE_BITS: u32 = 0o7777;
const NANOSECONDS: u32 = 1_000_000_000;

/// NFS version 3 cannot express times before 1970 or after 2106; they become the nearest valid
/// time. RFC 1813 s2.6
const fn time(time: Time) -> NfsTime {
    if time.seconds < 0 {
        return NfsTime { seconds: 0, nanoseconds: 0 };
    }
    if time.seconds > u32::MAX as i64 {
        return NfsTime { seconds: u32::MAX, nanoseconds: 0 };
    }
    NfsTime { seconds: time.seconds as u32, nanoseconds: time.nanoseconds }
}

/// Decodes a time; a nanosecond part of a second or more is invalid.
pub(crate) const fn time_from_wire(time: NfsTime) -> Result<Time, Status> {
    if time.nanoseconds >= NANOSECONDS {
        return Err(Status::INVAL);
    }
    Ok(Time { seconds: time.seconds as i64, nanoseconds: time.nanoseconds })
}

const fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::Regular => FileType::Regular,
        FileKind::Directory => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
        FileKind::BlockDevice => FileType::BlockDevice,
        FileKind::CharacterDevice => FileType::CharacterDevice,
        FileKind::Socket => FileType::Socket,
        FileKind::Fifo => FileType::Fifo,
    }
}

/// The attributes of an object; the fsid is that of the export.
#[inline]
pub(crate) fn fattr(export: &Export, of: &Attributes) -> Fattr3 {
    Fattr3 {
        file_type: file_type(of.kind),
        mode: of.mode,
        nlink: of.nlink,
        uid: of.uid,
        gid: of.gid,
        size: of.size,
        used: of.used,
        rdev: SpecData { major: of.rdev.major, minor: of.rdev.minor },
        fsid: u64::from(export.config.fsid),
        fileid: of.fileid,
        atime: time(of.atime),
        mtime: time(of.mtime),
        ctime: time(of.ctime),
    }
}

const fn wcc_attr(of: Version) -> WccAttr {
    WccAttr { size: of.size, mtime: time(of.mtime), ctime: time(of.ctime) }
}

/// The attributes of an object before and after an operation.
#[inline]
pub(crate) fn wcc(export: &Export, effect: &Effect) -> WccData {
    WccData { before: effect.before.map(wcc_attr), after: effect.after.map(|after| fattr(export, &after)) }
}

const fn set_time(how: WireSetTime) -> Result<SetTime, Status> {
    match how {
        WireSetTime::DontChange => Ok(SetTime::Keep),
        WireSetTime::ServerTime => Ok(SetTime::Now),
        WireSetTime::ClientTime(to) => match time_from_wire(to) {
            Ok(to) => Ok(SetTime::To(to)),
            Err(status) => Err(status),
        },
    }
}

/// The attributes that a client sets. NFS3ERR_INVAL for an invalid time.
pub(crate) fn set_attributes(set: &Sattr3) -> Result<SetAttributes, Status> {
    Ok(SetAttributes {
        mode: set.mode.map(|mode| mode & MODE_BITS),
        uid: set.uid,
        gid: set.gid,
        size: set.size,
        atime: set_time(set.atime)?,
        mtime: set_time(set.mtime)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 1813 s2.6
    #[test]
    fn times_out_of_range_become_the_nearest() {
        let on_the_wire = |seconds, nanoseconds| {
            let NfsTime { seconds, nanoseconds } = time(Time { seconds, nanoseconds });
            (seconds, nanoseconds)
        };
        assert_eq!(on_the_wire(-5, 7), (0, 0));
        assert_eq!(on_the_wire(1 << 32, 7), (u32::MAX, 0));
        assert_eq!(on_the_wire(0xffff_ffff, 7), (u32::MAX, 7));
        assert_eq!(on_the_wire(951_782_400, 7), (951_782_400, 7));
    }
}
