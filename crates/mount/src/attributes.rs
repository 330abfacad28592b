//! Attributes and times between NFS and FUSE.

use fuser::{Errno, FileAttr, FileType as FuseType, INodeNo, TimeOrNow};
use nfs3::types::{SetTime, SpecData};
use nfs3::{Fattr3, FileType, NfsTime};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The longest file that Linux has.
pub(crate) const FILE_BYTES_MAX: u64 = i64::MAX.cast_unsigned();

/// Attributes that the kernel would take. What it refuses it does not forget either, and a size beyond its own would be
/// counted on here.
pub(crate) fn usable(attributes: Fattr3) -> Result<Fattr3, Errno> {
    if attributes.size > FILE_BYTES_MAX {
        tracing::warn!(
            fileid = attributes.fileid,
            size = attributes.size,
            "the server tells a size that no file can have"
        );
        return Err(Errno::EIO);
    }
    Ok(attributes)
}

/// Attributes as the kernel takes them.
pub(crate) fn to_fuse(number: u64, attributes: &Fattr3, block_bytes: u32) -> FileAttr {
    FileAttr {
        ino: INodeNo(number),
        size: attributes.size,
        blocks: attributes.used.div_ceil(512),
        atime: time(attributes.atime),
        mtime: time(attributes.mtime),
        ctime: time(attributes.ctime),
        crtime: UNIX_EPOCH,
        kind: kind(attributes.file_type),
        perm: (attributes.mode & 0o7777) as u16,
        nlink: attributes.nlink,
        uid: attributes.uid,
        gid: attributes.gid,
        rdev: join_device(attributes.rdev),
        blksize: block_bytes,
        flags: 0,
    }
}

/// The kind of an object.
pub(crate) const fn kind(file_type: FileType) -> FuseType {
    match file_type {
        FileType::Regular => FuseType::RegularFile,
        FileType::Directory => FuseType::Directory,
        FileType::BlockDevice => FuseType::BlockDevice,
        FileType::CharacterDevice => FuseType::CharDevice,
        FileType::Symlink => FuseType::Symlink,
        FileType::Socket => FuseType::Socket,
        FileType::Fifo => FuseType::NamedPipe,
    }
}

fn time(time: NfsTime) -> SystemTime {
    UNIX_EPOCH + Duration::new(u64::from(time.seconds), time.nanoseconds.min(999_999_999))
}

/// What utimes asks for. Times before 1970 and after 2106 are not to be told in NFS version 3: the nearest is
/// taken, as on a kernel mount.
pub(crate) fn set_time(asked: Option<TimeOrNow>) -> SetTime {
    match asked {
        None => SetTime::DontChange,
        Some(TimeOrNow::Now) => SetTime::ServerTime,
        Some(TimeOrNow::SpecificTime(time)) => SetTime::ClientTime(match time.duration_since(UNIX_EPOCH) {
            Ok(since) => NfsTime {
                seconds: u32::try_from(since.as_secs()).unwrap_or(u32::MAX),
                nanoseconds: since.subsec_nanos(),
            },
            Err(_) => NfsTime { seconds: 0, nanoseconds: 0 },
        }),
    }
}

/// A device number as Linux packs it into 32 bits.
const fn join_device(device: SpecData) -> u32 {
    (device.minor & 0xff) | (device.major & 0xfff) << 8 | (device.minor & 0xfff_ff00) << 12
}

/// The opposite.
pub(crate) const fn split_device(device: u32) -> SpecData {
    SpecData { major: device >> 8 & 0xfff, minor: (device & 0xff) | (device >> 12 & 0xf_ff00) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_that_linux_has_not_is_an_error() {
        let of = |size| Fattr3 {
            file_type: FileType::Regular,
            mode: 0,
            nlink: 1,
            uid: 0,
            gid: 0,
            size,
            used: 0,
            rdev: SpecData { major: 0, minor: 0 },
            fsid: 0,
            fileid: 0,
            atime: NfsTime { seconds: 0, nanoseconds: 0 },
            mtime: NfsTime { seconds: 0, nanoseconds: 0 },
            ctime: NfsTime { seconds: 0, nanoseconds: 0 },
        };
        assert!(usable(of(FILE_BYTES_MAX)).is_ok());
        for size in [FILE_BYTES_MAX + 1, u64::MAX] {
            assert_eq!(usable(of(size)).map_err(Errno::code).err(), Some(libc::EIO));
        }
    }

    #[test]
    fn device_numbers_survive_the_round_trip() {
        for (major, minor) in [(1, 3), (8, 17), (0xfff, 0xf_ffff), (259, 300), (0, 0)] {
            assert_eq!(split_device(join_device(SpecData { major, minor })), SpecData { major, minor });
        }
    }

    #[test]
    fn times_out_of_range_become_the_nearest() {
        let specific = |time| set_time(Some(TimeOrNow::SpecificTime(time)));
        let early = UNIX_EPOCH - Duration::from_secs(5);
        assert_eq!(specific(early), SetTime::ClientTime(NfsTime { seconds: 0, nanoseconds: 0 }));
        let late = UNIX_EPOCH + Duration::new(1 << 40, 7);
        assert_eq!(specific(late), SetTime::ClientTime(NfsTime { seconds: u32::MAX, nanoseconds: 7 }));
        assert_eq!(set_time(Some(TimeOrNow::Now)), SetTime::ServerTime);
        assert_eq!(set_time(None), SetTime::DontChange);
    }
}
