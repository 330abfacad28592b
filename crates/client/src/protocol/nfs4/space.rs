//! SEEK, ALLOCATE and DEALLOCATE: the data and the holes of a file. RFC 7862 s15.1, s15.4, s15.11
//!
//! What ends with COMMIT is stable: one instance of the server executes all of a compound.
//!
//! No open is kept, so the stateid is the anonymous one, as in READ and WRITE. RFC 8881 s8.2.3

use ::nfs4::op::{Args, allocate, commit, kind, seek};
use ::nfs4::{Operation as Nfs, Range, Stateid};
use fs::FileHandle;
use xdr::Reader;

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

/// Of all of a file. RFC 8881 s18.3.3
const COMMIT: Args<'static> = Args::Commit(commit::Args { offset: 0, count: 0 });

/// Reserves storage for a range; a file that ends before becomes longer. RFC 7862 s15.1
pub(crate) fn allocate(minor: u32, file: FileHandle, range: (u64, u64)) -> Operation<()> {
    let args = on(minor, file, |to| _ = to.push(&Args::Allocate(on_range(range))));
    operation(Nfs::Allocate, args, |reader| {
        read_put(reader)?;
        done(expect::<kind::Allocate>(reader)?)
    })
}

/// Makes a range a hole, stable if it is to be. The size of the file stays. RFC 7862 s15.4
pub(crate) fn deallocate(minor: u32, file: FileHandle, range: (u64, u64), stable: bool) -> Operation<()> {
    let args = on(minor, file, |to| {
        to.push(&Args::Deallocate(on_range(range)));
        if stable {
            to.push(&COMMIT);
        }
    });
    let read_stable = |reader: &mut Reader<'_>| read_hole(reader).and_then(|()| read_commit(reader));
    operation(Nfs::Deallocate, args, if stable { read_stable } else { read_hole })
}

fn read_hole(reader: &mut Reader<'_>) -> xdr::Result<()> {
    read_put(reader)?;
    done(expect::<kind::Deallocate>(reader)?)
}

/// The verifier says nothing: one instance of the server has executed all of the compound.
fn read_commit(reader: &mut Reader<'_>) -> xdr::Result<()> {
    done(expect::<kind::Commit>(reader)?).map(drop)
}

/// Makes a range a hole, and reserves storage for it: zeros for which there is room, stable if they
/// are to be. Storage is reserved first for the part that is `within` the file: a server that
/// cannot has changed nothing.
pub(crate) fn zero(
    minor: u32,
    file: FileHandle,
    within: (u64, u64),
    range: (u64, u64),
    stable: bool,
) -> Operation<()> {
    let args = on(minor, file, |to| {
        to.push(&Args::Allocate(on_range(within)));
        to.push(&Args::Deallocate(on_range(range))).push(&Args::Allocate(on_range(range)));
        if stable {
            to.push(&COMMIT);
        }
    });
    let read_stable = |reader: &mut Reader<'_>| read_zero(reader).and_then(|()| read_commit(reader));
    operation(Nfs::Allocate, args, if stable { read_stable } else { read_zero })
}

fn read_zero(reader: &mut Reader<'_>) -> xdr::Result<()> {
    read_put(reader)?;
    done(expect::<kind::Allocate>(reader)?)?;
    done(expect::<kind::Deallocate>(reader)?)?;
    done(expect::<kind::Allocate>(reader)?)
}
