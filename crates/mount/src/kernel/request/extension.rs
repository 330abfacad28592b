//! The layout of requests for what only NFS version 4.2 can serve: extended attributes, holes,
//! reserved storage, copies on the server.

use super::{Fields, Operation};
use crate::copying::CopyRange;

/// The part of `enum fuse_opcode` that is served there.
mod opcode {
    pub(super) const SETXATTR: u32 = 21;
    pub(super) const GETXATTR: u32 = 22;
    pub(super) const LISTXATTR: u32 = 23;
    pub(super) const REMOVEXATTR: u32 = 24;
    pub(super) const FALLOCATE: u32 = 43;
    pub(super) const LSEEK: u32 = 46;
    pub(super) const COPY_FILE_RANGE: u32 = 47;
    /// The same with a longer count in the reply. Linux 6.18
    pub(super) const COPY_FILE_RANGE_64: u32 = 53;
}

/// See the module's documentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extension<'a> {
    /// The value of an extended attribute, or with `room` 0 its length.
    GetXattr {
        name: &'a [u8],
        room: u32,
    },
    /// The names of all extended attributes, or with `room` 0 their length.
    ListXattrs {
        room: u32,
    },
    /// Sets an extended attribute, with the flags of setxattr(2).
    SetXattr {
        name: &'a [u8],
        value: &'a [u8],
        flags: u32,
    },
    RemoveXattr {
        name: &'a [u8],
    },
    /// SEEK_DATA or SEEK_HOLE.
    Seek {
        handle: u64,
        offset: u64,
        whence: i32,
    },
    /// With the mode of fallocate(2).
    Allocate {
        handle: u64,
        offset: u64,
        length: u64,
        mode: u32,
    },
    /// `is_long`: the count in the reply has 64 bits.
    Copy {
        range: CopyRange,
        flags: u64,
        is_long: bool,
    },
}

/// Parses such a request, or one that is not served at all.
pub(super) fn extension<'a>(opcode: u32, fields: &mut Fields<'a>) -> Option<Operation<'a>> {
    Some(Operation::Extension(match opcode {
        opcode::GETXATTR => {
            let room = room(fields)?;
            Extension::GetXattr { name: fields.name()?, room }
        }
        opcode::LISTXATTR => Extension::ListXattrs { room: room(fields)? },
        opcode::SETXATTR => {
            let (len, flags, name) = (fields.u32()?, fields.u32()?, fields.name()?);
            Extension::SetXattr { name, value: fields.bytes(len as usize)?, flags }
        }
        opcode::REMOVEXATTR => Extension::RemoveXattr { name: fields.name()? },
        opcode::LSEEK => {
            let (handle, offset) = (fields.u64()?, fields.u64()?);
            Extension::Seek { handle, offset, whence: fields.i32()? }
        }
        opcode::FALLOCATE => {
            let (handle, offset, length) = (fields.u64()?, fields.u64()?, fields.u64()?);
            Extension::Allocate { handle, offset, length, mode: fields.u32()? }
        }
        opcode::COPY_FILE_RANGE | opcode::COPY_FILE_RANGE_64 => {
            let is_long = opcode == opcode::COPY_FILE_RANGE_64;
            let (range, flags) = copy_range(fields)?;
            Extension::Copy { range, flags, is_long }
        }
        _ => return Some(Operation::Other),
    }))
}

/// `struct fuse_getxattr_in`: the room for the reply.
fn room(fields: &mut Fields<'_>) -> Option<u32> {
    let room = fields.u32()?;
    fields.skip(4)?;
    Some(room)
}

/// `struct fuse_copy_file_range_in`: the range and the flags.
fn copy_range(fields: &mut Fields<'_>) -> Option<(CopyRange, u64)> {
    let source = (fields.u64()?, fields.u64()?);
    // Skip the number of the target, which its handle knows.
    fields.skip(8)?;
    let target = (fields.u64()?, fields.u64()?);
    Some((CopyRange { source, target, count: fields.u64()? }, fields.u64()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(opcode: u32, args: &[u8]) -> Option<Operation<'_>> {
        extension(opcode, &mut Fields(args))
    }

    #[test]
    fn the_value_of_an_attribute_follows_its_name_and_its_length_is_told() {
        let sizes = [3_u32.to_ne_bytes(), 1_u32.to_ne_bytes()].concat();
        let set = [&sizes, &b"user.a\0"[..], b"x\0y"].concat();
        let expected = Extension::SetXattr { name: b"user.a", value: b"x\0y", flags: 1 };
        assert_eq!(parsed(opcode::SETXATTR, &set), Some(Operation::Extension(expected)));
        assert_eq!(parsed(opcode::SETXATTR, &set[..set.len() - 1]), None);
        let get = [&sizes, &b"user.a\0"[..]].concat();
        let expected = Extension::GetXattr { name: b"user.a", room: 3 };
        assert_eq!(parsed(opcode::GETXATTR, &get), Some(Operation::Extension(expected)));
    }

    #[test]
    fn a_copy_has_two_handles_with_an_offset_each() {
        let numbers: Vec<u8> = [1_u64, 10, 77, 2, 20, 5, 0].iter().flat_map(|n| n.to_ne_bytes()).collect();
        let range = CopyRange { source: (1, 10), target: (2, 20), count: 5 };
        for (opcode, is_long) in [(opcode::COPY_FILE_RANGE, false), (opcode::COPY_FILE_RANGE_64, true)] {
            let expected = Extension::Copy { range, flags: 0, is_long };
            assert_eq!(parsed(opcode, &numbers), Some(Operation::Extension(expected)));
        }
    }

    #[test]
    fn what_lacks_arguments_is_refused() {
        let fixed = [
            (opcode::SETXATTR, 9),
            (opcode::GETXATTR, 9),
            (opcode::LISTXATTR, 8),
            (opcode::REMOVEXATTR, 1),
            (opcode::LSEEK, 20),
            (opcode::FALLOCATE, 28),
            (opcode::COPY_FILE_RANGE, 56),
            (opcode::COPY_FILE_RANGE_64, 56),
        ];
        for (opcode, len) in fixed {
            let whole = vec![0; len];
            assert!(matches!(parsed(opcode, &whole), Some(Operation::Extension(_))), "{opcode}");
            assert_eq!(parsed(opcode, &whole[1..]), None, "{opcode}");
        }
        assert_eq!(parsed(4000, &[]), Some(Operation::Other));
    }
}
