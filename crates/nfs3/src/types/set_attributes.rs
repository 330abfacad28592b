//! The attributes to set, RFC 1813 s2.6 (`sattr3`).

use super::NfsTime;
use crate::Wire;
use crate::wire::wire_fields;
use xdr::{Reader, Result, Writer};

/// `set_atime` and `set_mtime`: how to set a time. RFC 1813 s2.6 (`time_how`)
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SetTime {
    /// DONT_CHANGE.
    #[default]
    DontChange,
    /// SET_TO_SERVER_TIME.
    ServerTime,
    /// SET_TO_CLIENT_TIME: to this time.
    ClientTime(NfsTime),
}

impl<'a> Wire<'a> for SetTime {
    fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        match reader.u32()? {
            0 => Ok(Self::DontChange),
            1 => Ok(Self::ServerTime),
            2 => NfsTime::decode(reader).map(Self::ClientTime),
            value => Err(xdr::Error::BadDiscriminant { name: "time_how", value }),
        }
    }

    fn encode(&self, writer: &mut Writer<'_>) {
        match self {
            Self::DontChange => writer.u32(0),
            Self::ServerTime => writer.u32(1),
            Self::ClientTime(time) => {
                writer.u32(2);
                time.encode(writer);
            }
        }
    }
}

/// `sattr3`: the attributes to set; absent ones are left unchanged. RFC 1813 s2.6
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sattr3 {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes.
    pub size: Option<u64>,
    /// Last access.
    pub atime: SetTime,
    /// Last change of the content.
    pub mtime: SetTime,
}

wire_fields!(Sattr3 { mode, uid, gid, size, atime, mtime });
