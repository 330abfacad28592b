//! Converts the types of NFS version 4 to those of [`fs`] and back.
//!
//! [`status`] names every status of the standards: what only a session or a lock can cause is an
//! error of this client or of its server here, because no open and no lock is kept.

use std::time::Duration;

use fs::{FileSystemInfo, Limits, Space, Special, TransferSizes};
use nfs4::op::create::What;
use nfs4::types::attributes::number;
use nfs4::{Attributes, Bitmap, Operation};

use crate::owners::Names;

/// The attributes of an object that [`object`] needs.
pub(super) const OBJECT: Bitmap = Bitmap::of(&[
    number::TYPE,
    number::CHANGE,
    number::SIZE,
    number::FSID,
    number::FILEID,
    number::MODE,
    number::NUMLINKS,
    number::OWNER,
    number::OWNER_GROUP,
    number::RAWDEV,
    number::SPACE_USED,
    number::TIME_ACCESS,
    number::TIME_METADATA,
    number::TIME_MODIFY,
]);

/// The attributes that [`info`] needs, and the duration of a lease.
pub(super) const INFO: Bitmap = Bitmap::of(&[
    number::LINK_SUPPORT,
    number::SYMLINK_SUPPORT,
    number::LEASE_TIME,
    number::CANSETTIME,
    number::HOMOGENEOUS,
    number::MAXFILESIZE,
    number::MAXREAD,
    number::MAXWRITE,
    number::TIME_DELTA,
]);

/// The attributes that [`limits`] needs.
pub(super) const LIMITS: Bitmap = Bitmap::of(&[
    number::CASE_INSENSITIVE,
    number::CASE_PRESERVING,
    number::CHOWN_RESTRICTED,
    number::MAXLINK,
    number::MAXNAME,
    number::NO_TRUNC,
]);

/// What a server that does not tell its limits is taken to have, as Linux has it.
const SIZE_UNTOLD: u32 = 1 << 20;
const LINKS_UNTOLD: u32 = 255;
const NAME_BYTES_UNTOLD: u32 = 255;
/// Transfers are aligned to this.
const MULTIPLE: u32 = 4096;
/// The preferred size of a page of a directory.
pub(crate) const DIRECTORY_BYTES: u32 = 64 << 10;

/// An object as a file system speaks of it; `None` without its type.
pub(super) fn object(told: &Attributes<'_>, names: &Names<'_>) -> Option<fs::Attributes> {
    told.object_of(|owner| names.user(owner), |owner| names.group(owner))
}

/// Space and objects. What the server does not tell is zero.
pub(super) fn space(told: &Attributes<'_>) -> Space {
    Space {
        total_bytes: told.space_total.unwrap_or(0),
        free_bytes: told.space_free.unwrap_or(0),
        available_bytes: told.space_avail.unwrap_or(0),
        total_files: told.files_total.unwrap_or(0),
        free_files: told.files_free.unwrap_or(0),
        available_files: told.files_avail.unwrap_or(0),
    }
}

pub(super) fn limits(told: &Attributes<'_>) -> Limits {
    Limits {
        links_max: told.maxlink.unwrap_or(LINKS_UNTOLD),
        name_bytes_max: told.maxname.unwrap_or(NAME_BYTES_UNTOLD),
        no_truncation: told.no_trunc.unwrap_or(true),
        chown_restricted: told.chown_restricted.unwrap_or(true),
        case_insensitive: told.case_insensitive.unwrap_or(false),
        case_preserving: told.case_preserving.unwrap_or(true),
    }
}

fn sizes(told: Option<u64>) -> TransferSizes {
    let max = told.map_or(SIZE_UNTOLD, |max| u32::try_from(max).unwrap_or(u32::MAX));
    TransferSizes { max, preferred: max, multiple: MULTIPLE }
}

pub(super) fn info(told: &Attributes<'_>) -> FileSystemInfo {
    let nanosecond = || Duration::from_nanos(1);
    let delta = told.time_delta.map(|delta| {
        let seconds = u64::try_from(delta.seconds).unwrap_or(0);
        Duration::new(seconds, delta.nanoseconds.min(999_999_999))
    });
    FileSystemInfo {
        read: sizes(told.maxread),
        write: sizes(told.maxwrite),
        directory_preferred: DIRECTORY_BYTES,
        file_bytes_max: told.maxfilesize.unwrap_or(i64::MAX.cast_unsigned()),
        time_delta: delta.unwrap_or_else(nanosecond),
        has_links: told.link_support.unwrap_or(true),
        has_symlinks: told.symlink_support.unwrap_or(true),
        is_homogeneous: told.homogeneous.unwrap_or(true),
        can_set_time: told.cansettime.unwrap_or(true),
    }
}

pub(super) const fn to_what(special: Special) -> What<'static> {
    match special {
        Special::BlockDevice(device) => What::BlockDevice(device),
        Special::CharacterDevice(device) => What::CharacterDevice(device),
        Special::Socket => What::Socket,
        Special::Fifo => What::Fifo,
    }
}

/// A failure of a call. The checks of a removal's type fail with what NVERIFY and VERIFY say.
/// RFC 8881 s18.15.4, s18.31.4
pub(super) const fn failure(of: Operation, told: nfs4::Status) -> fs::Status {
    match (of, told) {
        (Operation::Remove, nfs4::Status::SAME) => fs::Status::IsDirectory,
        (Operation::Remove, nfs4::Status::NOT_SAME) => fs::Status::NotDirectory,
        // What sets owners sends a name in place of a number. See `is_bad_owner`.
        (Operation::SetAttr, nfs4::Status::BADOWNER) => fs::Status::Other(nfs4::Status::BADOWNER.0),
        (_, told) => status(told),
    }
}

/// A failure as a file system speaks of it. [`fs::Status::Later`] is what waiting helps against.
/// RFC 8881 s15.1, RFC 7862 s11, RFC 8276 s8.3
pub(crate) const fn status(told: nfs4::Status) -> fs::Status {
    use fs::Status as Fs;
    use nfs4::Status as Nfs;
    match told {
        Nfs::PERM | Nfs::BADOWNER | Nfs::WRONG_CRED => Fs::NotPermitted,
        Nfs::NOENT => Fs::NotFound,
        Nfs::IO => Fs::Io,
        Nfs::NXIO => Fs::NoAddress,
        // What another client has denied or locked, this one may not access now.
        Nfs::ACCESS
        | Nfs::WRONGSEC
        | Nfs::SHARE_DENIED
        | Nfs::LOCKED
        | Nfs::DENIED
        | Nfs::OPENMODE
        | Nfs::FILE_OPEN => Fs::Access,
        Nfs::EXIST => Fs::Exists,
        Nfs::XDEV => Fs::CrossDevice,
        Nfs::NOTDIR => Fs::NotDirectory,
        Nfs::ISDIR => Fs::IsDirectory,
        Nfs::INVAL | Nfs::SYMLINK | Nfs::WRONG_TYPE | Nfs::BADCHAR | Nfs::BADNAME => Fs::Invalid,
        Nfs::FBIG => Fs::FileTooBig,
        Nfs::NOSPC => Fs::NoSpace,
        Nfs::ROFS => Fs::ReadOnly,
        Nfs::MLINK => Fs::TooManyLinks,
        Nfs::NAMETOOLONG => Fs::NameTooLong,
        Nfs::NOTEMPTY => Fs::NotEmpty,
        Nfs::DQUOT => Fs::Quota,
        Nfs::STALE | Nfs::FHEXPIRED => Fs::Stale,
        Nfs::MOVED => Fs::Remote,
        Nfs::BADHANDLE => Fs::BadHandle,
        Nfs::NOT_SAME => Fs::NotSync,
        Nfs::BAD_COOKIE => Fs::BadCookie,
        // What is refused for one file alone, such as UNION_NOTSUPP, is none of these.
        Nfs::NOTSUPP | Nfs::ATTRNOTSUPP | Nfs::OP_ILLEGAL => Fs::NotSupported,
        Nfs::TOOSMALL => Fs::TooSmall,
        Nfs::SERVERFAULT => Fs::ServerFault,
        Nfs::BADTYPE => Fs::BadType,
        Nfs::NOXATTR => Fs::NoXattr,
        Nfs::XATTR2BIG => Fs::XattrTooBig,
        // A server that has just started lets other clients reclaim first. RFC 8881 s8.4.2.1
        Nfs::DELAY | Nfs::GRACE => Fs::Later,
        Nfs(number) => Fs::Other(number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nfs4::Status as Nfs;

    // RFC 8881 s15.1
    #[test]
    fn statuses_of_files_are_as_everywhere_and_those_of_state_are_told_apart() {
        for &told in Nfs::ALL.iter().filter(|told| **told != Nfs::OK) {
            let plain = told.to_fs();
            if !matches!(plain, fs::Status::Other(_)) {
                assert_eq!(status(told), plain, "{told}");
            }
        }
        assert_eq!(failure(Operation::Remove, Nfs::SAME), fs::Status::IsDirectory);
        assert_eq!(failure(Operation::Remove, Nfs::NOT_SAME), fs::Status::NotDirectory);
        assert_eq!(failure(Operation::SetAttr, Nfs::NOT_SAME), fs::Status::NotSync);
        assert_eq!(status(Nfs::GRACE), fs::Status::Later);
        assert_eq!(status(Nfs::LOCKED), fs::Status::Access);
        assert_eq!(status(Nfs::BADSESSION), fs::Status::Other(10_052));
        assert_eq!(status(Nfs(4711)), fs::Status::Other(4711));
    }

    #[test]
    fn what_a_server_leaves_out_has_a_usable_value() {
        let nothing = Attributes::default();
        let told = info(&nothing);
        assert_eq!((told.read.max, told.write.max), (1 << 20, 1 << 20));
        assert!(told.has_links && told.file_bytes_max > 1 << 40);
        assert_eq!(limits(&nothing).name_bytes_max, 255);
        assert_eq!(space(&nothing), Space::default());
        assert_eq!(object(&nothing, &Names::none()), None);
        let huge = Attributes { maxread: Some(u64::MAX), ..nothing };
        assert_eq!(info(&huge).read.max, u32::MAX);
    }
}
