//! COPY within a server, the COMMIT that makes it stable, and the end of a copy that a server has
//! begun on its own terms. RFC 7862 s15.2, s15.8
//!
//! No open is kept, so the stateids are the anonymous one, as in READ and WRITE. RFC 8881 s8.2.3

use ::nfs4::op::copy::{Args as CopyArgs, Reply as Copied};
use ::nfs4::op::{Args, commit, kind, offload};
use ::nfs4::{Array, Operation as Nfs, Stateid};
use fs::{FileHandle, Stability, Verifier};

use super::operations::{operation, read_put};
use super::reply::{done, expect};
use super::{on, put};
use crate::protocol::Operation;

/// What a server has copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CopyDone {
    /// So many bytes, from the first one on.
    Now { count: u64, stability: Stability, verifier: Verifier },
    /// The copy of this name is still under way, although the call has asked for one that is done.
    UnderWay(Stateid),
}

/// Copies `count` bytes, which is not 0: in order, and before the answer. RFC 7862 s15.2.3
pub(crate) fn copy(
    minor: u32,
    from: (FileHandle, u64),
    to: (FileHandle, u64),
    count: u64,
) -> Operation<CopyDone> {
    let args = on(minor, from.0, |compound| {
        compound.push(&Args::SaveFh(())).push(&put(to.0));
        compound.push(&Args::Copy(CopyArgs {
            source: Stateid::ANONYMOUS,
            target: Stateid::ANONYMOUS,
            source_offset: from.1,
            target_offset: to.1,
            count,
            consecutive: true,
            synchronous: true,
            source_servers: Array::from(&[]),
        }));
    });
    operation(Nfs::Copy, args, |reader| {
        read_put(reader)?;
        done(expect::<kind::SaveFh>(reader)?)?;
        read_put(reader)?;
        let copied = match expect::<kind::Copy>(reader)? {
            Copied::Done(copied, _) => copied,
            failed @ (Copied::CannotMeet(_) | Copied::Failed(_)) => return done(Err(failed.status())),
        };
        Ok(match copied.callback_id {
            Some(copy) => CopyDone::UnderWay(copy),
            None => {
                CopyDone::Now { count: copied.count, stability: copied.committed, verifier: copied.verifier }
            }
        })
    })
}

/// Makes what was written to a file stable. RFC 8881 s18.3
pub(crate) fn commit(minor: u32, file: FileHandle) -> Operation<Verifier> {
    let args = on(minor, file, |to| _ = to.push(&Args::Commit(commit::Args { offset: 0, count: 0 })));
    operation(Nfs::Commit, args, |reader| {
        read_put(reader)?;
        Ok(done(expect::<kind::Commit>(reader)?)?.verifier)
    })
}

/// Ends a copy that is under way. RFC 7862 s15.8
pub(crate) fn cancel(minor: u32, file: FileHandle, copy: Stateid) -> Operation<()> {
    let args = on(minor, file, |to| _ = to.push(&Args::OffloadCancel(offload::CancelArgs { copy })));
    operation(Nfs::OffloadCancel, args, |reader| {
        read_put(reader)?;
        done(expect::<kind::OffloadCancel>(reader)?)
    })
}
