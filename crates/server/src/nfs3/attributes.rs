//! Converts attributes of the store to the wire, and attributes set by clients to the store. RFC
//! 1813 s2.6

use crate::export::Export;
use nfs3::{Fattr3, FileType, NfsTime, Sattr3, SetTime as WireSetTime, SpecData, Status, WccAttr, WccData};
use store::{Attributes, Change, Kind, SetAttributes, SetTime, Time, WeakAttributes};

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

const fn file_type(kind: Kind) -> (FileType, SpecData) {
    const NONE: SpecData = SpecData { major: 0, minor: 0 };
    match kind {
        Kind::File => (FileType::Regular, NONE),
        Kind::Directory => (FileType::Directory, NONE),
        Kind::Symlink => (FileType::Symlink, NONE),
        Kind::BlockDevice(major, minor) => (FileType::BlockDevice, SpecData { major, minor }),
        Kind::CharacterDevice(major, minor) => (FileType::CharacterDevice, SpecData { major, minor }),
        Kind::Socket => (FileType::Socket, NONE),
        Kind::Fifo => (FileType::Fifo, NONE),
    }
}

/// The attributes of an object; the fsid is that of the export.
#[inline]
pub(crate) fn fattr(export: &Export, of: &Attributes) -> Fattr3 {
    let (file_type, rdev) = file_type(of.kind);
    Fattr3 {
        file_type,
        mode: of.mode,
        nlink: of.links,
        uid: of.uid,
        gid: of.gid,
        size: of.size,
        used: of.used,
        rdev,
        fsid: u64::from(export.config.fsid),
        fileid: of.object.fileid,
        atime: time(of.accessed),
        mtime: time(of.modified),
        ctime: time(of.changed),
    }
}

const fn wcc_attr(of: WeakAttributes) -> WccAttr {
    WccAttr { size: of.size, mtime: time(of.modified), ctime: time(of.changed) }
}

/// The attributes of an object before and after a change.
#[inline]
pub(crate) fn wcc(export: &Export, change: &Change) -> WccData {
    WccData { before: change.before.map(wcc_attr), after: change.after.map(|after| fattr(export, &after)) }
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
        accessed: set_time(set.atime)?,
        modified: set_time(set.mtime)?,
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
