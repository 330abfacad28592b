//! SEEK, ALLOCATE and DEALLOCATE: the data and the holes of a file. RFC 7862 s15.1, s15.4, s15.11
//!
//! No open is kept, so the stateid is the anonymous one, as in READ and WRITE. RFC 8881 s8.2.3

use ::nfs4::op::{Args, allocate, kind, seek};
use ::nfs4::{Operation as Nfs, Range, Stateid};
use fs::FileHandle;

use super::on;
use super::operations::{operation, read_put};
use super::reply::{done, expect};
use crate::protocol::Operation;

/// What a seek has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    /// There is none up to the end of the file; of a hole: it is the one at the end.
    pub eof: bool,
    pub offset: u64,
}

/// Finds the first data, or the first hole, at an offset or behind it. RFC 7862 s15.11
pub(crate) fn seek(minor: u32, file: FileHandle, offset: u64, what: seek::What) -> Operation<Found> {
    let args = on(minor, file, |to| {
        to.push(&Args::Seek(seek::Args { stateid: Stateid::ANONYMOUS, offset, what }));
    });
    operation(Nfs::Seek, args, |reader| {
        read_put(reader)?;
        let seek::Success { eof, offset } = done(expect::<kind::Seek>(reader)?)?;
        Ok(Found { eof, offset })
    })
}

const fn on_range((offset, length): (u64, u64)) -> allocate::Args {
    allocate::Args { stateid: Stateid::ANONYMOUS, range: Range { offset, length } }
}

/// Reserves storage for a range; a file that ends before becomes longer. RFC 7862 s15.1
pub(crate) fn allocate(minor: u32, file: FileHandle, range: (u64, u64)) -> Operation<()> {
    let args = on(minor, file, |to| _ = to.push(&Args::Allocate(on_range(range))));
    operation(Nfs::Allocate, args, |reader| {
        read_put(reader)?;
        done(expect::<kind::Allocate>(reader)?)
    })
}

/// Makes a range a hole. The size of the file stays. RFC 7862 s15.4
pub(crate) fn deallocate(minor: u32, file: FileHandle, range: (u64, u64)) -> Operation<()> {
    let args = on(minor, file, |to| _ = to.push(&Args::Deallocate(on_range(range))));
    operation(Nfs::Deallocate, args, |reader| {
        read_put(reader)?;
        done(expect::<kind::Deallocate>(reader)?)
    })
}

/// Makes a range a hole, and reserves storage for it: zeros for which there is room. Storage is
/// reserved first for the part that is `within` the file: a server that cannot has changed nothing.
pub(crate) fn zero(minor: u32, file: FileHandle, within: (u64, u64), range: (u64, u64)) -> Operation<()> {
    let args = on(minor, file, |to| {
        to.push(&Args::Allocate(on_range(within)));
        to.push(&Args::Deallocate(on_range(range))).push(&Args::Allocate(on_range(range)));
    });
    operation(Nfs::Allocate, args, |reader| {
        read_put(reader)?;
        done(expect::<kind::Allocate>(reader)?)?;
        done(expect::<kind::Deallocate>(reader)?)?;
        done(expect::<kind::Allocate>(reader)?)
    })
}
