//! Attributes, RFC 8881 s5 and s3.3.7 (`fattr4`): a set of numbers, and then the values in
//! ascending order of the numbers.
//!
//! [`Attributes`] has a field for each attribute that this crate knows; a table at the end of this
//! file names them. A received `fattr4` is kept as bytes ([`RawFattr`]) and parsed when its turn
//! comes, because what a server makes of an attribute that it does not know depends on the
//! operation. Attributes without a field (`dacl`, `sacl`, `fs_status`, `layout_hint`,
//! `fs_locations_info`, `retention_*`) cannot be parsed: a server leaves them out
//! of `supported_attrs`, so it neither sends them nor accepts them, and a client does not ask for
//! them.

use super::{
    Ace, Bitmap, ChangeAttrType, FileType, Fsid, Locations, ModeMasked, ModeUmask, OpenArguments, Owner,
    SecurityLabel, SetTime, Threshold,
};
use crate::array::Array;
use crate::{Status, Wire};
use fs::{Device, FileHandle, Time};
use xdr::{Reader, Result, Writer};

/// Why received attributes cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AttributeError {
    /// An attribute that is not supported.
    #[error("attribute {0} is not supported")]
    NotSupported(u32),
    /// An attribute that cannot be set, or that cannot be compared.
    #[error("attribute {0} must not be given here")]
    NotAllowed(u32),
    /// The values cannot be decoded.
    #[error(transparent)]
    Xdr(#[from] xdr::Error),
}

impl AttributeError {
    /// The status of an operation that was given these attributes. RFC 8881 s15.1.15.1, s18.30.4
    #[must_use]
    pub const fn status(self) -> Status {
        match self {
            Self::NotSupported(_) => Status::ATTRNOTSUPP,
            Self::NotAllowed(_) => Status::INVAL,
            Self::Xdr(_) => Status::BADXDR,
        }
    }
}

/// A received `fattr4`: which attributes, and their values, which have not been looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RawFattr<'a> {
    /// The attributes (`attrmask`).
    pub mask: Bitmap,
    /// Their values (`attr_vals`).
    pub values: &'a [u8],
}

crate::wire::wire_fields!(RawFattr<'a> { mask, values });

impl<'a> RawFattr<'a> {
    /// Parses the values.
    ///
    /// # Errors
    /// An attribute of which this crate knows no type, or values that do not match the set.
    pub fn parse(&self) -> std::result::Result<Attributes<'a>, AttributeError> {
        if let Some(unknown) = self.mask.without(KNOWN).iter().next() {
            return Err(AttributeError::NotSupported(unknown));
        }
        if self.mask.has_beyond() {
            return Err(AttributeError::NotSupported(BEYOND));
        }
        let mut reader = Reader::new(self.values);
        let attributes = Attributes::decode_values(self.mask, &mut reader)?;
        reader.finish()?;
        Ok(attributes)
    }

    /// Parses values to be set: all of them must be in `supported` and in `settable`, which is
    /// [`SETTABLE`] or [`SETTABLE_AT_CREATION`]. RFC 8881 s18.30.4
    ///
    /// # Errors
    /// As [`RawFattr::parse`]; and an attribute that is in one of the two sets only, or in none.
    pub fn parse_settable(
        &self,
        supported: Bitmap,
        settable: Bitmap,
    ) -> std::result::Result<Attributes<'a>, AttributeError> {
        if let Some(number) = self.mask.without(supported).iter().next() {
            return Err(AttributeError::NotSupported(number));
        }
        if let Some(number) = (self.mask & KNOWN).without(settable).iter().next() {
            return Err(AttributeError::NotAllowed(number));
        }
        self.parse()
    }

    /// Parses values to be compared by VERIFY or NVERIFY: all of them must be in `supported`, and
    /// not write-only or `rdattr_error`. RFC 8881 s18.15.3, s18.31.3
    ///
    /// # Errors
    /// As [`RawFattr::parse`]; and an attribute outside of `supported`, or that cannot be compared.
    pub fn parse_comparable(&self, supported: Bitmap) -> std::result::Result<Attributes<'a>, AttributeError> {
        let refused = self.mask & (WRITE_ONLY | Bitmap::of(&[number::RDATTR_ERROR]));
        if let Some(number) = refused.iter().next() {
            return Err(AttributeError::NotAllowed(number));
        }
        if let Some(number) = self.mask.without(supported).iter().next() {
            return Err(AttributeError::NotSupported(number));
        }
        self.parse()
    }
}

/// What stands for an attribute number of 96 or above, which is not kept.
const BEYOND: u32 = 96;

/// `fattr4`, received or to be sent. RFC 8881 s3.3.7
#[derive(Debug, Clone, Copy)]
pub enum Fattr<'a> {
    /// As it came.
    Received(RawFattr<'a>),
    /// To be sent.
    Send {
        /// The values.
        values: &'a Attributes<'a>,
        /// Which of them to send, as far as there is a value.
        wanted: Bitmap,
    },
}

impl<'a> Fattr<'a> {
    /// No attributes.
    pub const EMPTY: Self = Self::Received(RawFattr { mask: Bitmap::EMPTY, values: &[] });

    /// All values that `values` has.
    #[must_use]
    pub const fn all(values: &'a Attributes<'a>) -> Self {
        Self::Send { values, wanted: KNOWN }
    }

    /// Which attributes there are.
    #[must_use]
    pub fn mask(&self) -> Bitmap {
        match self {
            Self::Received(raw) => raw.mask,
            Self::Send { values, wanted } => values.mask() & *wanted,
        }
    }

    /// The received bytes; none for attributes to be sent, which their sender knows.
    #[must_use]
    pub const fn raw(&self) -> RawFattr<'a> {
        match self {
            Self::Received(raw) => *raw,
            Self::Send { .. } => RawFattr { mask: Bitmap::EMPTY, values: &[] },
        }
    }

    /// The values.
    ///
    /// # Errors
    /// As [`RawFattr::parse`].
    pub fn parse(&self) -> std::result::Result<Attributes<'a>, AttributeError> {
        match self {
            Self::Received(raw) => raw.parse(),
            Self::Send { values, wanted } => Ok(values.only(*wanted)),
        }
    }
}

impl Default for Fattr<'_> {
    fn default() -> Self {
        Self::EMPTY
    }
}

/// Compares values, so that attributes to be sent and the same attributes received are equal.
impl PartialEq for Fattr<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Received(one), Self::Received(two)) => one == two,
            _ => self.mask() == other.mask() && self.parse() == other.parse(),
        }
    }
}

impl Eq for Fattr<'_> {}

impl<'a> Wire<'a> for Fattr<'a> {
    #[inline]
    fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        RawFattr::decode(reader).map(Self::Received)
    }

    #[inline]
    fn encode(&self, writer: &mut Writer<'_>) {
        match self {
            Self::Received(raw) => raw.encode(writer),
            Self::Send { values, wanted } => values.encode_some(*wanted, writer),
        }
    }
}

impl Attributes<'_> {
    /// Writes `fattr4` with those of the `wanted` attributes that have a value.
    #[inline]
    pub fn encode_some(&self, wanted: Bitmap, writer: &mut Writer<'_>) {
        let mask = self.mask() & wanted;
        mask.encode(writer);
        let at = writer.len();
        writer.u32(0);
        self.encode_values(mask, writer);
        let bytes = writer.len() - at - 4;
        // Values are a few KiB: texts in them are names and labels.
        writer.set_u32(at, u32::try_from(bytes).unwrap_or(u32::MAX));
    }
}

/// Attributes that can only be set, never read. RFC 8881 s5.5
pub const WRITE_ONLY: Bitmap = Bitmap::of(&[
    number::TIME_ACCESS_SET,
    number::TIME_MODIFY_SET,
    number::MODE_SET_MASKED,
    number::MODE_UMASK,
]);

/// Attributes of this crate that SETATTR can set. RFC 8881 s5.6, s5.7, RFC 7862 s12.2, RFC 9754 s5
pub const SETTABLE: Bitmap = Bitmap::of(&[
    number::SIZE,
    number::ACL,
    number::ARCHIVE,
    number::HIDDEN,
    number::MIMETYPE,
    number::MODE,
    number::OWNER,
    number::OWNER_GROUP,
    number::SYSTEM,
    number::TIME_ACCESS_SET,
    number::TIME_BACKUP,
    number::TIME_CREATE,
    number::TIME_MODIFY_SET,
    number::MODE_SET_MASKED,
    number::SEC_LABEL,
    number::TIME_DELEG_ACCESS,
    number::TIME_DELEG_MODIFY,
]);

/// Attributes of this crate that CREATE and OPEN can set. RFC 8881 s5.6, s5.7, RFC 7862 s12.2,
/// RFC 8275
pub const SETTABLE_AT_CREATION: Bitmap = Bitmap::of(&[
    number::SIZE,
    number::ACL,
    number::ARCHIVE,
    number::HIDDEN,
    number::MIMETYPE,
    number::MODE,
    number::OWNER,
    number::OWNER_GROUP,
    number::SYSTEM,
    number::TIME_ACCESS_SET,
    number::TIME_BACKUP,
    number::TIME_CREATE,
    number::TIME_MODIFY_SET,
    number::MODE_SET_MASKED,
    number::SEC_LABEL,
    number::MODE_UMASK,
]);

/// The room of a file system: objects and bytes, total and free. RFC 8881 s5.8.2
pub const SPACE: Bitmap = Bitmap::of(&[
    number::FILES_AVAIL,
    number::FILES_FREE,
    number::FILES_TOTAL,
    number::SPACE_AVAIL,
    number::SPACE_FREE,
    number::SPACE_TOTAL,
]);

/// The attributes that every server has. RFC 8881 s5.6
pub const REQUIRED: Bitmap = Bitmap::of(&[
    number::SUPPORTED_ATTRS,
    number::TYPE,
    number::FH_EXPIRE_TYPE,
    number::CHANGE,
    number::SIZE,
    number::LINK_SUPPORT,
    number::SYMLINK_SUPPORT,
    number::NAMED_ATTR,
    number::FSID,
    number::UNIQUE_HANDLES,
    number::LEASE_TIME,
    number::RDATTR_ERROR,
    number::FILEHANDLE,
    number::SUPPATTR_EXCLCREAT,
]);

macro_rules! attributes {
    ($($(#[$doc:meta])* $constant:ident = $number:literal, $field:ident: $type:ty;)+) => {
        /// The numbers of the attributes. RFC 8881 s5.6, s5.7
        pub mod number {
            $($(#[$doc])* pub const $constant: u32 = $number;)+
        }

        /// The attributes of which this crate knows the type.
        pub const KNOWN: Bitmap = Bitmap::of(&[$($number),+]);

        /// The numbers and names of the attributes, ascending.
        pub const NAMES: &[(u32, &str)] = &[$(($number, stringify!($field))),+];

        /// The values of attributes; those that are absent were not asked for, or are not known.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct Attributes<'a> {
            $($(#[$doc])* pub $field: Option<$type>,)+
        }

        impl<'a> Attributes<'a> {
            /// Which attributes have a value.
            #[must_use]
            pub fn mask(&self) -> Bitmap {
                let mut mask = Bitmap::EMPTY;
                $(if self.$field.is_some() {
                    mask.insert($number);
                })+
                mask
            }

            /// Those of the values that are `wanted`.
            #[must_use]
            pub fn only(&self, wanted: Bitmap) -> Self {
                Self { $($field: self.$field.filter(|_| wanted.contains($number)),)+ }
            }

            /// Decodes the values of attributes that are all known.
            fn decode_values(mask: Bitmap, reader: &mut Reader<'a>) -> Result<Self> {
                let mut values = Self::default();
                $(if mask.contains($number) {
                    values.$field = Some(Wire::decode(reader)?);
                })+
                Ok(values)
            }

            fn encode_values(&self, mask: Bitmap, writer: &mut Writer<'_>) {
                $(if mask.contains($number) {
                    if let Some(value) = &self.$field {
                        value.encode(writer);
                    }
                })+
            }
        }
    };
}

// RFC 8881 s5.6 and s5.7; the values are encoded in this order.
attributes! {
    /// Which attributes the server has for this object.
    SUPPORTED_ATTRS = 0, supported_attrs: Bitmap;
    /// What the object is (`type`).
    TYPE = 1, file_type: FileType;
    /// When handles expire: 0 for never.
    FH_EXPIRE_TYPE = 2, fh_expire_type: u32;
    /// Changes whenever the object does.
    CHANGE = 3, change: u64;
    /// The size in bytes.
    SIZE = 4, size: u64;
    /// Whether there are hard links.
    LINK_SUPPORT = 5, link_support: bool;
    /// Whether there are symbolic links.
    SYMLINK_SUPPORT = 6, symlink_support: bool;
    /// Whether the object has named attributes.
    NAMED_ATTR = 7, named_attr: bool;
    /// The file system's number.
    FSID = 8, fsid: Fsid;
    /// Whether two handles are always two objects.
    UNIQUE_HANDLES = 9, unique_handles: bool;
    /// The duration of a lease, in seconds.
    LEASE_TIME = 10, lease_time: u32;
    /// READDIR: why the attributes of an entry cannot be had.
    RDATTR_ERROR = 11, rdattr_error: Status;
    /// The access control list.
    ACL = 12, acl: Array<'a, Ace<'a>>;
    /// Which kinds of entries of access control lists are supported.
    ACLSUPPORT = 13, aclsupport: u32;
    /// Whether the object has been archived.
    ARCHIVE = 14, archive: bool;
    /// Whether times can be set.
    CANSETTIME = 15, cansettime: bool;
    /// Whether names that differ only in case are the same.
    CASE_INSENSITIVE = 16, case_insensitive: bool;
    /// Whether the case of names is kept.
    CASE_PRESERVING = 17, case_preserving: bool;
    /// Whether only root may give a file to another owner.
    CHOWN_RESTRICTED = 18, chown_restricted: bool;
    /// The object's handle.
    FILEHANDLE = 19, filehandle: FileHandle;
    /// The object's number within the file system.
    FILEID = 20, fileid: u64;
    /// Objects that the caller may still create.
    FILES_AVAIL = 21, files_avail: u64;
    /// Objects that can still be created.
    FILES_FREE = 22, files_free: u64;
    /// Total objects.
    FILES_TOTAL = 23, files_total: u64;
    /// Where the file system is.
    FS_LOCATIONS = 24, fs_locations: Locations<'a>;
    /// Whether the object is hidden.
    HIDDEN = 25, hidden: bool;
    /// Whether the attributes of the file system are the same for all its objects.
    HOMOGENEOUS = 26, homogeneous: bool;
    /// The largest file, in bytes.
    MAXFILESIZE = 27, maxfilesize: u64;
    /// The maximum number of hard links.
    MAXLINK = 28, maxlink: u32;
    /// The longest name, in bytes.
    MAXNAME = 29, maxname: u32;
    /// The maximum size of a READ.
    MAXREAD = 30, maxread: u64;
    /// The maximum size of a WRITE.
    MAXWRITE = 31, maxwrite: u64;
    /// The MIME type of the content.
    MIMETYPE = 32, mimetype: &'a [u8];
    /// Permission bits, with set-user-id, set-group-id and sticky: the low 12 bits.
    MODE = 33, mode: u32;
    /// Whether a longer name is an error rather than truncated.
    NO_TRUNC = 34, no_trunc: bool;
    /// Hard links.
    NUMLINKS = 35, numlinks: u32;
    /// The owner.
    OWNER = 36, owner: Owner<'a>;
    /// The group.
    OWNER_GROUP = 37, owner_group: Owner<'a>;
    /// Bytes until the hard limit of the quota.
    QUOTA_AVAIL_HARD = 38, quota_avail_hard: u64;
    /// Bytes until the soft limit of the quota.
    QUOTA_AVAIL_SOFT = 39, quota_avail_soft: u64;
    /// Bytes of the quota that are used.
    QUOTA_USED = 40, quota_used: u64;
    /// The numbers of a device.
    RAWDEV = 41, rawdev: Device;
    /// Bytes available to the caller.
    SPACE_AVAIL = 42, space_avail: u64;
    /// Bytes free.
    SPACE_FREE = 43, space_free: u64;
    /// Total bytes.
    SPACE_TOTAL = 44, space_total: u64;
    /// Bytes of storage that the object uses.
    SPACE_USED = 45, space_used: u64;
    /// Whether the object is a system file.
    SYSTEM = 46, system: bool;
    /// Last access.
    TIME_ACCESS = 47, time_access: Time;
    /// Sets the last access; write-only.
    TIME_ACCESS_SET = 48, time_access_set: SetTime;
    /// Last backup.
    TIME_BACKUP = 49, time_backup: Time;
    /// Creation.
    TIME_CREATE = 50, time_create: Time;
    /// The resolution of times.
    TIME_DELTA = 51, time_delta: Time;
    /// Last change of the attributes.
    TIME_METADATA = 52, time_metadata: Time;
    /// Last change of the content.
    TIME_MODIFY = 53, time_modify: Time;
    /// Sets the last change of the content; write-only.
    TIME_MODIFY_SET = 54, time_modify_set: SetTime;
    /// The number of the directory that a file system is mounted on, and otherwise `fileid`.
    MOUNTED_ON_FILEID = 55, mounted_on_fileid: u64;
    /// How late a change of a directory may be notified.
    DIR_NOTIF_DELAY = 56, dir_notif_delay: Time;
    /// How late a change of an entry's attributes may be notified.
    DIRENT_NOTIF_DELAY = 57, dirent_notif_delay: Time;
    /// Which policies a file system has had: two numbers that change with them.
    CHANGE_POLICY = 60, change_policy: Fsid;
    /// The layout types of the file system.
    FS_LAYOUT_TYPES = 62, fs_layout_types: Array<'a, u32>;
    /// The layout types of the file.
    LAYOUT_TYPES = 64, layout_types: Array<'a, u32>;
    /// The preferred block size of layouts.
    LAYOUT_BLKSIZE = 65, layout_blksize: u32;
    /// The preferred alignment of layouts.
    LAYOUT_ALIGNMENT = 66, layout_alignment: u32;
    /// Which files are too small for a layout (`mdsthreshold`). RFC 8881 s5.12.4
    MDSTHRESHOLD = 68, mdsthreshold: Array<'a, Threshold<'a>>;
    /// Sets some permission bits; write-only.
    MODE_SET_MASKED = 74, mode_set_masked: ModeMasked;
    /// Which attributes an exclusive creation may set.
    SUPPATTR_EXCLCREAT = 75, suppattr_exclcreat: Bitmap;
    /// Which character sets names may have.
    FS_CHARSET_CAP = 76, fs_charset_cap: u32;
    /// The block size of CLONE. RFC 7862 s12.2
    CLONE_BLKSIZE = 77, clone_blksize: u32;
    /// Bytes that would be free if the file were removed. RFC 7862 s12.2
    SPACE_FREED = 78, space_freed: u64;
    /// What the change attribute is. RFC 7862 s12.2
    CHANGE_ATTR_TYPE = 79, change_attr_type: ChangeAttrType;
    /// The security label. RFC 7862 s12.2
    SEC_LABEL = 80, sec_label: SecurityLabel<'a>;
    /// The mode and the umask at creation; write-only. RFC 8275
    MODE_UMASK = 81, mode_umask: ModeUmask;
    /// Whether there are extended attributes. RFC 8276 s8.2
    XATTR_SUPPORT = 82, xattr_support: bool;
    /// Whether the data are not at hand, such as on tape. RFC 9754 s2
    OFFLINE = 83, offline: bool;
    /// A last access that the holder of a delegation knows. RFC 9754 s5
    TIME_DELEG_ACCESS = 84, time_deleg_access: Time;
    /// A last change that the holder of a delegation knows. RFC 9754 s5
    TIME_DELEG_MODIFY = 85, time_deleg_modify: Time;
    /// What OPEN supports. RFC 9754 s3
    OPEN_ARGUMENTS = 86, open_arguments: OpenArguments;
}

mod convert;
#[cfg(test)]
mod tests;
