//! Conversion of attributes and times between NFS and FUSE.

use fs::{Attributes, Device, FileKind, FileSystemInfo, SetTime, Time};
use fuser::{Errno, FileAttr, FileType as FuseType, INodeNo, TimeOrNow};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The largest file size that Linux supports.
pub(crate) const FILE_BYTES_MAX: u64 = i64::MAX.cast_unsigned();

/// The size of the largest file on a server. A server that reports none, or one that Linux does not
/// support, sets no limit of its own.
pub(crate) fn file_bytes_max(info: &FileSystemInfo) -> u64 {
    match info.file_bytes_max {
        0 => FILE_BYTES_MAX,
        reported => reported.min(FILE_BYTES_MAX),
    }
}

/// Checks that the kernel accepts these attributes. The kernel never forgets an object whose
/// attributes it has refused, and calculations here rely on sizes within the limit.
pub(crate) fn usable(attributes: Attributes) -> Result<Attributes, Errno> {
    if attributes.size > FILE_BYTES_MAX {
        tracing::warn!(
            fileid = attributes.fileid,
            size = attributes.size,
            "the server has returned a size that no file can have"
        );
        return Err(Errno::EIO);
    }
    Ok(attributes)
}

/// Converts attributes to the kernel's form.
pub(crate) fn to_fuse(number: u64, attributes: &Attributes, block_bytes: u32) -> FileAttr {
    FileAttr {
        ino: INodeNo(number),
        size: attributes.size,
        blocks: attributes.used.div_ceil(512),
        atime: time(attributes.atime),
        mtime: time(attributes.mtime),
        ctime: time(attributes.ctime),
        crtime: UNIX_EPOCH,
        kind: kind(attributes.kind),
        perm: (attributes.mode & 0o7777) as u16,
        nlink: attributes.nlink,
        uid: attributes.uid,
        gid: attributes.gid,
        rdev: join_device(attributes.rdev),
        blksize: block_bytes,
        flags: 0,
    }
}

/// Converts a kind of object.
pub(crate) const fn kind(kind: FileKind) -> FuseType {
    match kind {
        FileKind::Regular => FuseType::RegularFile,
        FileKind::Directory => FuseType::Directory,
        FileKind::BlockDevice => FuseType::BlockDevice,
        FileKind::CharacterDevice => FuseType::CharDevice,
        FileKind::Symlink => FuseType::Symlink,
        FileKind::Socket => FuseType::Socket,
        FileKind::Fifo => FuseType::NamedPipe,
    }
}

pub(crate) fn time(time: Time) -> SystemTime {
    let whole = Duration::from_secs(time.seconds.unsigned_abs());
    let second = if time.seconds < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
    // A time that this machine cannot represent is shown as 1970.
    let fraction = Duration::from_nanos(time.nanoseconds.min(999_999_999).into());
    second.and_then(|second| second.checked_add(fraction)).unwrap_or(UNIX_EPOCH)
}

/// The time that utimensat(2) sets.
pub(crate) fn set_time(requested: Option<TimeOrNow>) -> SetTime {
    match requested {
        None => SetTime::Keep,
        Some(TimeOrNow::Now) => SetTime::Now,
        Some(TimeOrNow::SpecificTime(time)) => SetTime::To(since_1970(time)),
    }
}

/// Converts a time. Before 1970, nanoseconds count forward from the preceding second.
pub(crate) fn since_1970(time: SystemTime) -> Time {
    let seconds = |of: Duration| i64::try_from(of.as_secs()).unwrap_or(i64::MAX);
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => Time { seconds: seconds(since), nanoseconds: since.subsec_nanos() },
        Err(before) => {
            let before = before.duration();
            match before.subsec_nanos() {
                0 => Time::from_seconds(-seconds(before)),
                part => Time { seconds: -seconds(before) - 1, nanoseconds: 1_000_000_000 - part },
            }
        }
    }
}

/// A device number as Linux packs it into 32 bits.
const fn join_device(device: Device) -> u32 {
    (device.minor & 0xff) | (device.major & 0xfff) << 8 | (device.minor & 0xfff_ff00) << 12
}

/// The inverse of `join_device`.
pub(crate) const fn split_device(device: u32) -> Device {
    Device { major: device >> 8 & 0xfff, minor: (device & 0xff) | (device >> 12 & 0xf_ff00) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_that_linux_has_not_is_an_error() {
        let of = |size| Attributes { size, ..Attributes::of(FileKind::Regular) };
        assert!(usable(of(FILE_BYTES_MAX)).is_ok());
        for size in [FILE_BYTES_MAX + 1, u64::MAX] {
            assert_eq!(usable(of(size)).map_err(Errno::code).err(), Some(libc::EIO));
        }
    }

    #[test]
    fn device_numbers_survive_the_round_trip() {
        for (major, minor) in [(1, 3), (8, 17), (0xfff, 0xf_ffff), (259, 300), (0, 0)] {
            assert_eq!(split_device(join_device(Device { major, minor })), Device { major, minor });
        }
    }

    #[test]
    fn times_before_1970_and_after_2106_are_converted_exactly() {
        let specific = |time| set_time(Some(TimeOrNow::SpecificTime(time)));
        for (seconds, nanoseconds) in [(0, 0), (-5, 0), (-5, 999_999_999), (1 << 40, 7), (951_782_400, 7)] {
            let at = Time { seconds, nanoseconds };
            assert_eq!(specific(time(at)), SetTime::To(at));
        }
        assert_eq!(set_time(Some(TimeOrNow::Now)), SetTime::Now);
        assert_eq!(set_time(None), SetTime::Keep);
    }
}
