//! CREATE: makes an object that is not a regular file. RFC 8881 s18.4

use crate::wire::wire_fields;
use crate::{Bitmap, ChangeInfo, Fattr, Status, Wire};
use fs::Device;
use xdr::{Reader, Writer};

/// `createtype4`: what to make. RFC 8881 s18.4
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What<'a> {
    /// NF4LNK: a symbolic link with this text. Over RDMA the text may travel in a chunk of its own.
    Symlink(&'a [u8]),
    /// NF4BLK: a block device.
    BlockDevice(Device),
    /// NF4CHR: a character device.
    CharacterDevice(Device),
    /// NF4SOCK: a socket.
    Socket,
    /// NF4FIFO: a named pipe.
    Fifo,
    /// NF4DIR: a directory.
    Directory,
    /// Any other type; the answer is NFS4ERR_BADTYPE.
    Other(u32),
}

impl<'a> Wire<'a> for What<'a> {
    fn decode(reader: &mut Reader<'a>) -> xdr::Result<Self> {
        Ok(match reader.u32()? {
            2 => Self::Directory,
            3 => Self::BlockDevice(Wire::decode(reader)?),
            4 => Self::CharacterDevice(Wire::decode(reader)?),
            5 => Self::Symlink(Wire::decode(reader)?),
            6 => Self::Socket,
            7 => Self::Fifo,
            other => Self::Other(other),
        })
    }

    fn encode(&self, writer: &mut Writer<'_>) {
        match self {
            Self::Directory => writer.u32(2),
            Self::BlockDevice(device) => {
                writer.u32(3);
                device.encode(writer);
            }
            Self::CharacterDevice(device) => {
                writer.u32(4);
                device.encode(writer);
            }
            Self::Symlink(text) => {
                writer.u32(5);
                text.encode(writer);
            }
            Self::Socket => writer.u32(6),
            Self::Fifo => writer.u32(7),
            Self::Other(number) => writer.u32(*number),
        }
    }
}

/// `CREATE4args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Args<'a> {
    /// What to make (`objtype`).
    pub what: What<'a>,
    /// Its name in the current directory.
    pub name: &'a [u8],
    /// The attributes to set.
    pub attributes: Fattr<'a>,
}

wire_fields!(Args<'a> { what, name, attributes });

/// `CREATE4resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Success {
    /// The directory before and after.
    pub directory: ChangeInfo,
    /// Which attributes were set (`attrset`).
    pub set: Bitmap,
}

wire_fields!(Success { directory, set });

/// `CREATE4res`.
pub type Reply = Result<Success, Status>;
