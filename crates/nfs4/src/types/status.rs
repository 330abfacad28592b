//! Status numbers, RFC 8881 s15.1 (`nfsstat4`), RFC 7862 s11, RFC 8276 s8.3; and what they
//! are in the language of `fs`.

use crate::Wire;
use std::fmt;
use xdr::{Reader, Result, Writer};

/// `nfsstat4`: the outcome of an operation. A number that is not in the standards is kept, because
/// a client can only pass the number on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Status(pub u32);

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $number:literal;)+) => {
        impl Status {
            $($(#[$doc])* pub const $name: Self = Self($number);)+

            /// Every status of the standards.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// The name in the standards without its prefix; `None` for a number that is in none.
            #[must_use]
            pub const fn known_name(self) -> Option<&'static str> {
                match self {
                    $(Self::$name => Some(stringify!($name)),)+
                    _ => None,
                }
            }
        }
    };
}

statuses! {
    /// Success.
    OK = 0;
    /// Only the owner (or root) may do this.
    PERM = 1;
    /// No such file or directory.
    NOENT = 2;
    /// A hard error, such as of a disk.
    IO = 5;
    /// No such device, or nothing at that offset.
    NXIO = 6;
    /// Permission denied.
    ACCESS = 13;
    /// The name already exists.
    EXIST = 17;
    /// A hard link or a rename would cross file systems.
    XDEV = 18;
    /// Not a directory.
    NOTDIR = 20;
    /// A directory where none is allowed.
    ISDIR = 21;
    /// Invalid argument.
    INVAL = 22;
    /// Above the maximum file size.
    FBIG = 27;
    /// No space left.
    NOSPC = 28;
    /// A read-only file system.
    ROFS = 30;
    /// Too many hard links.
    MLINK = 31;
    /// The name is too long.
    NAMETOOLONG = 63;
    /// The directory is not empty.
    NOTEMPTY = 66;
    /// The quota is used up.
    DQUOT = 69;
    /// The handle's object is gone.
    STALE = 70;
    /// The handle does not belong to this server.
    BADHANDLE = 10001;
    /// The cookie of a listing is stale.
    BAD_COOKIE = 10003;
    /// A known operation or feature that the server does not support.
    NOTSUPP = 10004;
    /// The buffer or request is too small.
    TOOSMALL = 10005;
    /// A fault of the server that no other status describes.
    SERVERFAULT = 10006;
    /// A type that CREATE does not create.
    BADTYPE = 10007;
    /// The server cannot answer now: try again later.
    DELAY = 10008;
    /// NVERIFY: the attributes are the same.
    SAME = 10009;
    /// The lock is held by somebody else.
    DENIED = 10010;
    /// The lease, and the state with it, has expired.
    EXPIRED = 10011;
    /// A lock of somebody else forbids the I/O.
    LOCKED = 10012;
    /// The server is in its grace period.
    GRACE = 10013;
    /// A volatile handle has expired.
    FHEXPIRED = 10014;
    /// A share reservation forbids the access.
    SHARE_DENIED = 10015;
    /// The security flavor is not allowed here.
    WRONGSEC = 10016;
    /// Another principal uses this client owner.
    CLID_INUSE = 10017;
    /// Resources are exhausted; of version 4.0 only.
    RESOURCE = 10018;
    /// The file system is somewhere else.
    MOVED = 10019;
    /// There is no current file handle.
    NOFILEHANDLE = 10020;
    /// The minor version is not supported.
    MINOR_VERS_MISMATCH = 10021;
    /// The client id is unknown: the server has restarted, or forgotten it.
    STALE_CLIENTID = 10022;
    /// The stateid is of an earlier start of the server.
    STALE_STATEID = 10023;
    /// The stateid has been superseded by a newer one.
    OLD_STATEID = 10024;
    /// The stateid is not valid.
    BAD_STATEID = 10025;
    /// The sequence of an owner is wrong; of version 4.0 only.
    BAD_SEQID = 10026;
    /// VERIFY: the attributes are not the same.
    NOT_SAME = 10027;
    /// The lock's range is not supported.
    LOCK_RANGE = 10028;
    /// A symbolic link where a file or directory was expected.
    SYMLINK = 10029;
    /// RESTOREFH: there is no saved file handle; of version 4.0 only.
    RESTOREFH = 10030;
    /// A file system has moved; of version 4.0 only.
    LEASE_MOVED = 10031;
    /// An attribute is not supported.
    ATTRNOTSUPP = 10032;
    /// A reclaim outside of the grace period.
    NO_GRACE = 10033;
    /// The server cannot verify what is reclaimed.
    RECLAIM_BAD = 10034;
    /// What is reclaimed conflicts with other state.
    RECLAIM_CONFLICT = 10035;
    /// The arguments cannot be decoded.
    BADXDR = 10036;
    /// Locks are held on the file to close.
    LOCKS_HELD = 10037;
    /// The file is not open in that mode.
    OPENMODE = 10038;
    /// An owner or group is not known.
    BADOWNER = 10039;
    /// A character is not supported.
    BADCHAR = 10040;
    /// A name is not supported.
    BADNAME = 10041;
    /// The range of a lock is not supported by the server.
    BAD_RANGE = 10042;
    /// The server cannot up- or downgrade a lock atomically.
    LOCK_NOTSUPP = 10043;
    /// The operation's number is not in the minor version.
    OP_ILLEGAL = 10044;
    /// The lock would be a deadlock.
    DEADLOCK = 10045;
    /// The file is open, which forbids the operation.
    FILE_OPEN = 10046;
    /// An administrator has revoked the state.
    ADMIN_REVOKED = 10047;
    /// The callback path is down.
    CB_PATH_DOWN = 10048;
    /// The layout's I/O mode is wrong.
    BADIOMODE = 10049;
    /// The layout is wrong.
    BADLAYOUT = 10050;
    /// The digest of SET_SSV is wrong.
    BAD_SESSION_DIGEST = 10051;
    /// The session is unknown.
    BADSESSION = 10052;
    /// The slot is not in the session's table.
    BADSLOT = 10053;
    /// RECLAIM_COMPLETE was sent before.
    COMPLETE_ALREADY = 10054;
    /// The connection is not bound to the session.
    CONN_NOT_BOUND_TO_SESSION = 10055;
    /// The delegation is already wanted.
    DELEG_ALREADY_WANTED = 10056;
    /// Callbacks are outstanding.
    BACK_CHAN_BUSY = 10057;
    /// A layout may be had later.
    LAYOUTTRYLATER = 10058;
    /// No layout can be had for this file.
    LAYOUTUNAVAILABLE = 10059;
    /// The client has no matching layout.
    NOMATCHING_LAYOUT = 10060;
    /// The layout is being recalled.
    RECALLCONFLICT = 10061;
    /// The layout type is not supported.
    UNKNOWN_LAYOUTTYPE = 10062;
    /// The sequence id is not the slot's next one.
    SEQ_MISORDERED = 10063;
    /// SEQUENCE is not the first operation.
    SEQUENCE_POS = 10064;
    /// The request is longer than the session allows.
    REQ_TOO_BIG = 10065;
    /// The reply would be longer than the session allows.
    REP_TOO_BIG = 10066;
    /// The reply would be longer than what the session keeps.
    REP_TOO_BIG_TO_CACHE = 10067;
    /// A retry of a request whose reply was not kept.
    RETRY_UNCACHED_REP = 10068;
    /// The compound could not be recovered if the reply were lost.
    UNSAFE_COMPOUND = 10069;
    /// More operations than the session allows.
    TOO_MANY_OPS = 10070;
    /// The operation needs a SEQUENCE before it.
    OP_NOT_IN_SESSION = 10071;
    /// The hash algorithm is not supported.
    HASH_ALG_UNSUPP = 10072;
    /// The client id still has state.
    CLIENTID_BUSY = 10074;
    /// I/O to a hole of a sparse file layout.
    PNFS_IO_HOLE = 10075;
    /// A retry that differs from the original.
    SEQ_FALSE_RETRY = 10076;
    /// The request's highest slot is invalid.
    BAD_HIGH_SLOT = 10077;
    /// The session is dead: no new requests.
    DEADSESSION = 10078;
    /// The encryption algorithm is not supported.
    ENCR_ALG_UNSUPP = 10079;
    /// I/O to a data server without a layout.
    PNFS_NO_LAYOUT = 10080;
    /// The operation must be alone in its compound.
    NOT_ONLY_OP = 10081;
    /// The credential does not match the state's.
    WRONG_CRED = 10082;
    /// The object has the wrong type.
    WRONG_TYPE = 10083;
    /// A directory delegation cannot be had.
    DIRDELEG_UNAVAIL = 10084;
    /// The client refuses the delegation.
    REJECT_DELEG = 10085;
    /// LAYOUTGET while a return is outstanding.
    RETURNCONFLICT = 10086;
    /// The delegation or layout has been revoked.
    DELEG_REVOKED = 10087;
    /// COPY between servers is not supported.
    PARTNER_NOTSUPP = 10088;
    /// COPY between these servers is not authorized.
    PARTNER_NO_AUTH = 10089;
    /// The arm of a union is not supported.
    UNION_NOTSUPP = 10090;
    /// COPY_NOTIFY: the destination may not copy.
    OFFLOAD_DENIED = 10091;
    /// The label format is not supported.
    WRONG_LFS = 10092;
    /// The label is wrong.
    BADLABEL = 10093;
    /// COPY cannot meet the requirements.
    OFFLOAD_NO_REQS = 10094;
    /// There is no such extended attribute.
    NOXATTR = 10095;
    /// The extended attribute's value is too long.
    XATTR2BIG = 10096;
}

impl Status {
    /// The name in the standards without its prefix; `UNKNOWN` for a number that is in none.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self.known_name() {
            Some(name) => name,
            None => "UNKNOWN",
        }
    }

    /// A failure as a file system speaks of it. What only this protocol has (sessions, leases,
    /// locks) stays a number: [`fs::Status::Other`].
    #[must_use]
    pub const fn to_fs(self) -> fs::Status {
        use fs::Status as Fs;
        match self {
            Self::PERM => Fs::NotPermitted,
            Self::NOENT => Fs::NotFound,
            Self::IO => Fs::Io,
            Self::NXIO => Fs::NoAddress,
            Self::ACCESS => Fs::Access,
            Self::EXIST => Fs::Exists,
            Self::XDEV => Fs::CrossDevice,
            Self::NOTDIR => Fs::NotDirectory,
            Self::ISDIR => Fs::IsDirectory,
            Self::INVAL => Fs::Invalid,
            Self::FBIG => Fs::FileTooBig,
            Self::NOSPC => Fs::NoSpace,
            Self::ROFS => Fs::ReadOnly,
            Self::MLINK => Fs::TooManyLinks,
            Self::NAMETOOLONG => Fs::NameTooLong,
            Self::NOTEMPTY => Fs::NotEmpty,
            Self::DQUOT => Fs::Quota,
            Self::STALE | Self::FHEXPIRED => Fs::Stale,
            Self::BADHANDLE => Fs::BadHandle,
            Self::BAD_COOKIE => Fs::BadCookie,
            Self::NOTSUPP | Self::ATTRNOTSUPP => Fs::NotSupported,
            Self::TOOSMALL => Fs::TooSmall,
            Self::SERVERFAULT => Fs::ServerFault,
            Self::BADTYPE => Fs::BadType,
            Self::NOXATTR => Fs::NoXattr,
            Self::XATTR2BIG => Fs::XattrTooBig,
            Self::DELAY => Fs::Later,
            Self(number) => Fs::Other(number),
        }
    }

    /// The status of a failure of a file system. Three statuses of version 3 are not in version 4:
    /// NODEV is NXIO here, as Linux has it; REMOTE and NOT_SYNC, which no operation of this version
    /// causes, are SERVERFAULT. So is a number that is in no standard: the receiver might refuse
    /// to decode it.
    #[must_use]
    pub const fn from_fs(status: fs::Status) -> Self {
        use fs::Status as Fs;
        match status {
            Fs::NotPermitted => Self::PERM,
            Fs::NotFound => Self::NOENT,
            Fs::Io => Self::IO,
            Fs::NoAddress | Fs::NoDevice => Self::NXIO,
            Fs::Access => Self::ACCESS,
            Fs::Exists => Self::EXIST,
            Fs::CrossDevice => Self::XDEV,
            Fs::NotDirectory => Self::NOTDIR,
            Fs::IsDirectory => Self::ISDIR,
            Fs::Invalid => Self::INVAL,
            Fs::FileTooBig => Self::FBIG,
            Fs::NoSpace => Self::NOSPC,
            Fs::ReadOnly => Self::ROFS,
            Fs::TooManyLinks => Self::MLINK,
            Fs::NameTooLong => Self::NAMETOOLONG,
            Fs::NotEmpty => Self::NOTEMPTY,
            Fs::Quota => Self::DQUOT,
            Fs::Stale => Self::STALE,
            Fs::BadHandle => Self::BADHANDLE,
            Fs::BadCookie => Self::BAD_COOKIE,
            Fs::NotSupported => Self::NOTSUPP,
            Fs::TooSmall => Self::TOOSMALL,
            Fs::ServerFault | Fs::Remote | Fs::NotSync => Self::SERVERFAULT,
            Fs::BadType => Self::BADTYPE,
            Fs::NoXattr => Self::NOXATTR,
            Fs::XattrTooBig => Self::XATTR2BIG,
            Fs::Later => Self::DELAY,
            Fs::Other(number) => match Self(number) {
                Self::OK => Self::SERVERFAULT,
                known if known.known_name().is_some() => known,
                _ => Self::SERVERFAULT,
            },
        }
    }
}

impl From<fs::Status> for Status {
    fn from(status: fs::Status) -> Self {
        Self::from_fs(status)
    }
}

impl From<Status> for fs::Status {
    fn from(status: Status) -> Self {
        status.to_fs()
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

/// Formats the name, or the number if there is no name.
impl fmt::Display for Status {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.known_name() {
            Some(name) => formatter.write_str(name),
            None => write!(formatter, "status {}", self.0),
        }
    }
}

impl<'a> Wire<'a> for Status {
    #[inline]
    fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        reader.u32().map(Self)
    }

    #[inline]
    fn encode(&self, writer: &mut Writer<'_>) {
        writer.u32(self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 8881 s15.1, RFC 7862 s11, RFC 8276 s8.3
    #[test]
    fn the_numbers_ascend_and_have_the_gaps_of_the_standards() {
        assert!(Status::ALL.is_sorted());
        let own = Status::ALL.iter().filter(|status| status.0 >= 10_000).map(|status| status.0);
        let missing: Vec<_> =
            (10_001..=10_096).filter(|number| !own.clone().any(|one| one == *number)).collect();
        assert_eq!(missing, [10_002, 10_073]);
        assert_eq!(Status::ALL.len(), 19 + 94);
    }

    #[test]
    fn what_a_file_system_says_comes_back_unless_version_4_lacks_it() {
        use fs::Status as Fs;
        for &status in fs::Status::ALL {
            let back = Status::from_fs(status).to_fs();
            match status {
                Fs::NoDevice => assert_eq!(back, Fs::NoAddress),
                Fs::Remote | Fs::NotSync => assert_eq!(back, Fs::ServerFault),
                other => assert_eq!(back, other),
            }
        }
    }

    #[test]
    fn what_only_this_protocol_says_stays_its_number_both_ways() {
        assert_eq!(Status::GRACE.to_fs(), fs::Status::Other(10_013));
        assert_eq!(Status::from_fs(fs::Status::Other(10_013)), Status::GRACE);
        assert_eq!(Status::from_fs(fs::Status::Other(4711)), Status::SERVERFAULT);
        assert_eq!(Status::from_fs(fs::Status::Other(0)), Status::SERVERFAULT);
        for &status in Status::ALL.iter().filter(|status| **status != Status::OK) {
            let back = Status::from_fs(status.to_fs());
            let folded = [Status::FHEXPIRED, Status::ATTRNOTSUPP].contains(&status);
            assert_eq!(back == status, !folded, "{status}");
        }
    }
}
