//! MKNOD: creates a device, a socket or a named pipe. RFC 1813 s3.3.11

use crate::wire::wire_fields;
use crate::{Created, DirOpArgs, FileType, Outcome, Sattr3, SpecData, WccData, Wire};
use xdr::{Reader, Result, Writer};

/// `mknoddata3`: what to create. RFC 1813 s3.3.11
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// NF3CHR: a character device.
    CharacterDevice(Sattr3, SpecData),
    /// NF3BLK: a block device.
    BlockDevice(Sattr3, SpecData),
    /// NF3SOCK: a socket.
    Socket(Sattr3),
    /// NF3FIFO: a named pipe.
    Fifo(Sattr3),
    /// NF3REG, NF3DIR or NF3LNK: valid on the wire, but not created by MKNOD: NFS3ERR_BADTYPE.
    Other(FileType),
}

impl What {
    /// The type of the object.
    #[must_use]
    pub const fn file_type(&self) -> FileType {
        match self {
            Self::CharacterDevice(..) => FileType::CharacterDevice,
            Self::BlockDevice(..) => FileType::BlockDevice,
            Self::Socket(_) => FileType::Socket,
            Self::Fifo(_) => FileType::Fifo,
            Self::Other(file_type) => *file_type,
        }
    }
}

impl<'a> Wire<'a> for What {
    fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        Ok(match FileType::decode(reader)? {
            FileType::CharacterDevice => Self::CharacterDevice(Wire::decode(reader)?, Wire::decode(reader)?),
            FileType::BlockDevice => Self::BlockDevice(Wire::decode(reader)?, Wire::decode(reader)?),
            FileType::Socket => Self::Socket(Wire::decode(reader)?),
            FileType::Fifo => Self::Fifo(Wire::decode(reader)?),
            other @ (FileType::Regular | FileType::Directory | FileType::Symlink) => Self::Other(other),
        })
    }

    fn encode(&self, writer: &mut Writer<'_>) {
        self.file_type().encode(writer);
        match self {
            Self::CharacterDevice(attributes, device) | Self::BlockDevice(attributes, device) => {
                attributes.encode(writer);
                device.encode(writer);
            }
            Self::Socket(attributes) | Self::Fifo(attributes) => attributes.encode(writer),
            Self::Other(_) => {}
        }
    }
}

/// `MKNOD3args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Args<'a> {
    /// The directory and the new name (`where`).
    pub location: DirOpArgs<'a>,
    /// What to create.
    pub what: What,
}

wire_fields!(Args<'a> { location, what });

/// `MKNOD3resok`.
pub type Success = Created;

/// `MKNOD3resfail`: the directory before and after (`dir_wcc`).
pub type Failure = WccData;

/// `MKNOD3res`.
pub type Reply = Outcome<Success, Failure>;
