//! The parts of which attributes consist, RFC 8881 s3.2, s3.3, s5, s6.2; RFC 7862 s12.2; RFC 8275;
//! RFC 9754.

use super::Bitmap;
use crate::array::Array;
use crate::wire::{wire_enum, wire_fields};
use crate::{Status, Wire};
use fs::{FileKind, Time};
use xdr::{Reader, Result, Writer};

/// `nfs_ftype4`. RFC 8881 s5.8.1.2
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileType {
    /// NF4REG: a regular file.
    Regular,
    /// NF4DIR: a directory.
    Directory,
    /// NF4BLK: a block device.
    BlockDevice,
    /// NF4CHR: a character device.
    CharacterDevice,
    /// NF4LNK: a symbolic link.
    Symlink,
    /// NF4SOCK: a socket.
    Socket,
    /// NF4FIFO: a named pipe.
    Fifo,
    /// NF4ATTRDIR: a directory of named attributes.
    AttributeDirectory,
    /// NF4NAMEDATTR: a named attribute.
    NamedAttribute,
}

wire_enum!(FileType {
    Regular = 1,
    Directory = 2,
    BlockDevice = 3,
    CharacterDevice = 4,
    Symlink = 5,
    Socket = 6,
    Fifo = 7,
    AttributeDirectory = 8,
    NamedAttribute = 9,
});

impl FileType {
    /// The kind of the object as a file system speaks of it. A named attribute is like a file, and
    /// their directory like a directory.
    #[must_use]
    pub const fn kind(self) -> FileKind {
        match self {
            Self::Regular | Self::NamedAttribute => FileKind::Regular,
            Self::Directory | Self::AttributeDirectory => FileKind::Directory,
            Self::BlockDevice => FileKind::BlockDevice,
            Self::CharacterDevice => FileKind::CharacterDevice,
            Self::Symlink => FileKind::Symlink,
            Self::Socket => FileKind::Socket,
            Self::Fifo => FileKind::Fifo,
        }
    }
}

impl From<FileKind> for FileType {
    fn from(kind: FileKind) -> Self {
        match kind {
            FileKind::Regular => Self::Regular,
            FileKind::Directory => Self::Directory,
            FileKind::BlockDevice => Self::BlockDevice,
            FileKind::CharacterDevice => Self::CharacterDevice,
            FileKind::Symlink => Self::Symlink,
            FileKind::Socket => Self::Socket,
            FileKind::Fifo => Self::Fifo,
        }
    }
}

/// `change_info4`: a directory's change attribute before and after an operation. RFC 8881 s3.3.8
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ChangeInfo {
    /// Whether nothing else changed the directory between the two.
    pub atomic: bool,
    /// Before.
    pub before: u64,
    /// After.
    pub after: u64,
}

wire_fields!(ChangeInfo { atomic, before, after });

/// `fsid4`: the number of a file system. RFC 8881 s3.3.5
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Fsid {
    /// The first half.
    pub major: u64,
    /// The second half.
    pub minor: u64,
}

wire_fields!(Fsid { major, minor });

impl Fsid {
    /// The number folded into 64 bits, as [`fs::Attributes::fsid`] has it.
    #[must_use]
    pub const fn folded(self) -> u64 {
        self.major ^ self.minor.rotate_left(32)
    }
}

/// `settime4`: how to set a time. RFC 8881 s3.3.3
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetTime {
    /// SET_TO_SERVER_TIME4.
    ServerTime,
    /// SET_TO_CLIENT_TIME4: to this time.
    ClientTime(Time),
}

impl SetTime {
    /// From the language of a file system; `None` leaves the time as it is.
    #[must_use]
    pub const fn from_fs(time: fs::SetTime) -> Option<Self> {
        match time {
            fs::SetTime::Keep => None,
            fs::SetTime::Now => Some(Self::ServerTime),
            fs::SetTime::To(time) => Some(Self::ClientTime(time)),
        }
    }

    /// In the language of a file system.
    #[must_use]
    pub const fn to_fs(time: Option<Self>) -> fs::SetTime {
        match time {
            None => fs::SetTime::Keep,
            Some(Self::ServerTime) => fs::SetTime::Now,
            Some(Self::ClientTime(time)) => fs::SetTime::To(time),
        }
    }
}

impl<'a> Wire<'a> for SetTime {
    fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        match reader.u32()? {
            0 => Ok(Self::ServerTime),
            1 => Time::decode(reader).map(Self::ClientTime),
            value => Err(xdr::Error::BadDiscriminant { name: "time_how4", value }),
        }
    }

    fn encode(&self, writer: &mut Writer<'_>) {
        match self {
            Self::ServerTime => writer.u32(0),
            Self::ClientTime(time) => {
                writer.u32(1);
                time.encode(writer);
            }
        }
    }
}

/// `nfsace4`: an entry of an access control list. RFC 8881 s6.2.1
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ace<'a> {
    /// Allow, deny, audit or alarm (`acetype4`).
    pub kind: u32,
    /// Inheritance, and whether `who` is a group (`aceflag4`).
    pub flags: u32,
    /// The rights (`acemask4`).
    pub mask: u32,
    /// The user, the group, or one of the special names such as `EVERYONE@`.
    pub who: &'a [u8],
}

wire_fields!(Ace<'a> { kind, flags, mask, who });

/// A path, component by component (`pathname4`). RFC 8881 s3.2
pub type Pathname<'a> = Array<'a, &'a [u8]>;

/// `fs_location4`: servers with the same path to a file system. RFC 8881 s11.16
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Location<'a> {
    /// The servers: names or addresses.
    pub servers: Array<'a, &'a [u8]>,
    /// The file system's root on these servers.
    pub root: Pathname<'a>,
}

wire_fields!(Location<'a> { servers, root });

/// `fs_locations4`: where a file system is. RFC 8881 s11.16
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Locations<'a> {
    /// The file system's root on this server (`fs_root`).
    pub root: Pathname<'a>,
    /// Where else it is.
    pub locations: Array<'a, Location<'a>>,
}

wire_fields!(Locations<'a> { root, locations });

/// `threshold_item4`: up to which size of a file, or of requests, a client gains nothing by a
/// layout of this type. RFC 8881 s3.3.22
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Threshold<'a> {
    /// The layout type.
    pub layout_type: u32,
    /// Which hints there are: [`Threshold::READ_SIZE`] and the others.
    pub hints: Bitmap,
    /// For each of them, in ascending order, 64 bits: bytes.
    pub values: &'a [u8],
}

wire_fields!(Threshold<'a> { layout_type, hints, values });

impl Threshold<'_> {
    /// `TH4_READ_SIZE`: files to be read. RFC 8881 s5.12.4
    pub const READ_SIZE: u32 = 0;
    /// `TH4_WRITE_SIZE`: files to be written.
    pub const WRITE_SIZE: u32 = 1;
    /// `TH4_READ_IOSIZE`: reads.
    pub const READ_IO_SIZE: u32 = 2;
    /// `TH4_WRITE_IOSIZE`: writes.
    pub const WRITE_IO_SIZE: u32 = 3;
}

/// `mode_masked4`: some bits of a mode. RFC 8881 s6.2.5
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ModeMasked {
    /// The bits' values (`mm_value_to_set`).
    pub value: u32,
    /// Which bits (`mm_mask_bits`).
    pub mask: u32,
}

wire_fields!(ModeMasked { value, mask });

/// `mode_umask4`: a mode at creation before the umask, and the umask. RFC 8275
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ModeUmask {
    /// The mode as the application gave it.
    pub mode: u32,
    /// The application's umask, which an inherited access control list replaces.
    pub umask: u32,
}

wire_fields!(ModeUmask { mode, umask });

/// `sec_label4`: a security label. RFC 7862 s12.2
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SecurityLabel<'a> {
    /// The label's format (`lfs_lfs`).
    pub format: u32,
    /// The policy identifier (`lfs_pi`).
    pub policy: u32,
    /// The label.
    pub label: &'a [u8],
}

wire_fields!(SecurityLabel<'a> { format, policy, label });

/// `change_attr_type4`: what the change attribute is. An unknown number means nothing is promised.
/// RFC 7862 s12.2
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ChangeAttrType(pub u32);

impl ChangeAttrType {
    /// It only ever increases.
    pub const MONOTONIC_INCR: Self = Self(0);
    /// It increases by one with each change.
    pub const VERSION_COUNTER: Self = Self(1);
    /// The same, but not while a file is written through data servers.
    pub const VERSION_COUNTER_NOPNFS: Self = Self(2);
    /// It is made of the time of the last change of the attributes.
    pub const TIME_METADATA: Self = Self(3);
    /// Nothing is promised.
    pub const UNDEFINED: Self = Self(4);
}

impl<'a> Wire<'a> for ChangeAttrType {
    fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        reader.u32().map(Self)
    }

    fn encode(&self, writer: &mut Writer<'_>) {
        writer.u32(self.0);
    }
}

/// `open_arguments4`: what OPEN supports. RFC 9754 s3
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpenArguments {
    /// `oa_share_access`.
    pub access: Bitmap,
    /// `oa_share_deny`.
    pub deny: Bitmap,
    /// `oa_share_access_want`.
    pub want: Bitmap,
    /// `oa_open_claim`.
    pub claim: Bitmap,
    /// `oa_create_mode`.
    pub create_mode: Bitmap,
}

wire_fields!(OpenArguments { access, deny, want, claim, create_mode });

/// `netaddr4`: a network id, such as "tcp", and a universal address. RFC 8881 s3.3.9
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NetAddr<'a> {
    /// `na_r_netid`.
    pub netid: &'a [u8],
    /// `na_r_addr`.
    pub address: &'a [u8],
}

wire_fields!(NetAddr<'a> { netid, address });

/// `nfs_impl_id4`: which program a peer is. RFC 8881 s3.3.21
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ImplementationId<'a> {
    /// The maker's domain (`nii_domain`).
    pub domain: &'a [u8],
    /// The program (`nii_name`).
    pub name: &'a [u8],
    /// When it was built (`nii_date`).
    pub date: Time,
}

wire_fields!(ImplementationId<'a> { domain, name, date });

/// A range of a file: `offset4` and `length4`. A length of all ones reaches to the end of the file,
/// however long it will be. RFC 8881 s3.2
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Range {
    /// The first byte.
    pub offset: u64,
    /// The number of bytes.
    pub length: u64,
}

wire_fields!(Range { offset, length });

impl Range {
    /// The length that reaches to the end of the file. RFC 8881 s3.1 (NFS4_UINT64_MAX)
    pub const TO_THE_END: u64 = u64::MAX;

    /// The last byte, checked as the standard asks of locks: the length is not 0, and offset and
    /// length together are within 64 bits. RFC 8881 s18.10.3
    ///
    /// # Errors
    /// [`Status::INVAL`].
    pub const fn last(self) -> std::result::Result<u64, Status> {
        match (self.length, self.offset.checked_add(self.length)) {
            (Self::TO_THE_END, _) => Ok(u64::MAX),
            (0, _) | (_, None) => Err(Status::INVAL),
            (_, Some(end)) => Ok(end - 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 8881 s18.10.3
    #[test]
    fn a_range_has_a_byte_and_does_not_wrap() {
        let last = |offset, length| Range { offset, length }.last();
        assert_eq!(last(7, 1), Ok(7));
        assert_eq!(last(7, u64::MAX), Ok(u64::MAX));
        assert_eq!(last(u64::MAX, 1), Err(Status::INVAL));
        assert_eq!(last(2, u64::MAX - 2), Ok(u64::MAX - 1));
        assert_eq!(last(0, 0), Err(Status::INVAL));
        assert_eq!(last(2, u64::MAX - 1), Err(Status::INVAL));
    }

    #[test]
    fn times_to_set_are_the_same_in_both_languages() {
        let to = fs::SetTime::To(Time::from_seconds(-1));
        for time in [fs::SetTime::Keep, fs::SetTime::Now, to] {
            assert_eq!(SetTime::to_fs(SetTime::from_fs(time)), time);
        }
    }
}
