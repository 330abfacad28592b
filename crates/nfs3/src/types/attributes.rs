//! The attributes of an object, RFC 1813 s2.6 (`fattr3`). Most replies have these 84 bytes, so they
//! are encoded and decoded as one array.

use crate::Wire;
use crate::wire::{wire_enum, wire_fields};
use xdr::{Reader, Result, Writer};

/// `post_op_attr`: the attributes after an operation; absent if the server does not provide them.
pub type PostOpAttr = Option<Fattr3>;

/// `ftype3`. RFC 1813 s2.6
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileType {
    /// NF3REG: a regular file.
    Regular,
    /// NF3DIR: a directory.
    Directory,
    /// NF3BLK: a block device.
    BlockDevice,
    /// NF3CHR: a character device.
    CharacterDevice,
    /// NF3LNK: a symbolic link.
    Symlink,
    /// NF3SOCK: a socket.
    Socket,
    /// NF3FIFO: a named pipe.
    Fifo,
}

wire_enum!(FileType {
    Regular = 1,
    Directory = 2,
    BlockDevice = 3,
    CharacterDevice = 4,
    Symlink = 5,
    Socket = 6,
    Fifo = 7,
});

/// `specdata3`: the two numbers of a device, zero for other objects. RFC 1813 s2.6
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct SpecData {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}

wire_fields!(SpecData { major, minor });

/// `nfstime3`: time since 1970-01-01 00:00 UTC. RFC 1813 s2.6
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct NfsTime {
    /// Seconds.
    pub seconds: u32,
    /// Nanoseconds. As received: a peer may have sent a billion or more.
    pub nanoseconds: u32,
}

wire_fields!(NfsTime { seconds, nanoseconds });

/// `fattr3`: the attributes of an object. RFC 1813 s2.6
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fattr3 {
    /// The type of the object (`type`).
    pub file_type: FileType,
    /// Permission bits.
    pub mode: u32,
    /// Hard links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// Bytes of storage used.
    pub used: u64,
    /// The numbers of a device.
    pub rdev: SpecData,
    /// The file system's number.
    pub fsid: u64,
    /// The object's number within the file system.
    pub fileid: u64,
    /// Last access.
    pub atime: NfsTime,
    /// Last change of the content.
    pub mtime: NfsTime,
    /// Last change of the attributes.
    pub ctime: NfsTime,
}

impl Fattr3 {
    /// The encoded size in bytes.
    pub const WIRE_BYTES: usize = 84;

    #[inline]
    fn words(&self) -> [u32; Self::WIRE_BYTES / 4] {
        let (size, used) = (halves(self.size), halves(self.used));
        let (fsid, fileid) = (halves(self.fsid), halves(self.fileid));
        [
            self.file_type.number(),
            self.mode,
            self.nlink,
            self.uid,
            self.gid,
            size.0,
            size.1,
            used.0,
            used.1,
            self.rdev.major,
            self.rdev.minor,
            fsid.0,
            fsid.1,
            fileid.0,
            fileid.1,
            self.atime.seconds,
            self.atime.nanoseconds,
            self.mtime.seconds,
            self.mtime.nanoseconds,
            self.ctime.seconds,
            self.ctime.nanoseconds,
        ]
    }

    /// The encoded bytes.
    #[must_use]
    #[inline]
    pub fn to_bytes(&self) -> [u8; Self::WIRE_BYTES] {
        let mut bytes = [0; Self::WIRE_BYTES];
        for (place, word) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(self.words()) {
            *place = word.to_be_bytes();
        }
        bytes
    }
}

#[inline]
const fn halves(value: u64) -> (u32, u32) {
    // Both halves are kept, so nothing is truncated.
    ((value >> 32) as u32, (value & 0xffff_ffff) as u32)
}

impl<'a> Wire<'a> for Fattr3 {
    #[inline]
    fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        let file_type = FileType::decode(reader)?;
        // The remaining fields have a fixed length, which is checked once.
        let bytes = reader.opaque_fixed::<{ Self::WIRE_BYTES - 4 }>()?;
        let mut rest = Reader::new(&bytes);
        let mut word = || rest.u32();
        Ok(Self {
            file_type,
            mode: word()?,
            nlink: word()?,
            uid: word()?,
            gid: word()?,
            size: joined(word()?, word()?),
            used: joined(word()?, word()?),
            rdev: SpecData { major: word()?, minor: word()? },
            fsid: joined(word()?, word()?),
            fileid: joined(word()?, word()?),
            atime: NfsTime { seconds: word()?, nanoseconds: word()? },
            mtime: NfsTime { seconds: word()?, nanoseconds: word()? },
            ctime: NfsTime { seconds: word()?, nanoseconds: word()? },
        })
    }

    #[inline]
    fn encode(&self, writer: &mut Writer<'_>) {
        writer.bytes(&self.to_bytes());
    }
}

#[inline]
fn joined(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_stand_in_the_order_of_the_standard() {
        // RFC 1813 s2.6 (fattr3): each field holds its own position here.
        let attributes = Fattr3 {
            file_type: FileType::Directory,
            mode: 1,
            nlink: 2,
            uid: 3,
            gid: 4,
            size: 0x0000_0005_0000_0006,
            used: 0x0000_0007_0000_0008,
            rdev: SpecData { major: 9, minor: 10 },
            fsid: 0x0000_000b_0000_000c,
            fileid: 0x0000_000d_0000_000e,
            atime: NfsTime { seconds: 15, nanoseconds: 16 },
            mtime: NfsTime { seconds: 17, nanoseconds: 18 },
            ctime: NfsTime { seconds: 19, nanoseconds: 20 },
        };
        let mut expected = vec![0, 0, 0, 2];
        (1..=20).for_each(|position| expected.extend([0, 0, 0, position]));
        assert_eq!(attributes.to_bytes().to_vec(), expected);
        assert_eq!(Fattr3::decode(&mut Reader::new(&expected)), Ok(attributes));
    }
}
