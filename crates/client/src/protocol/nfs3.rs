//! NFS version 3 and MOUNT version 3 (RFC 1813), as the client uses them.

mod convert;
mod data;
mod describe;
mod exports;
pub(super) mod operations;
mod reconcile;

use fs::Status;
use nfs3::Procedure as Nfs;

#[cfg(test)]
pub(crate) use data::root_reply;
pub(crate) use data::{
    decode_commit, decode_read, decode_root, decode_write, encode_commit, encode_read, encode_write,
};
pub(crate) use describe::describe;
pub(crate) use exports::{exports, mnt};
pub(crate) use reconcile::reconcile;

use crate::caller::Program;

/// The NFS program.
pub(crate) const NFS: Program = Program { number: nfs3::PROGRAM, version: nfs3::VERSION };
/// The MOUNT program, which returns the handles of exports.
pub(crate) const MOUNT_PROGRAM: Program = Program { number: nfs3::mount::PROGRAM, version: 3 };

/// The longest accepted text of a symbolic link, and room for the rest.
const LINK_BYTES: u32 = 8 << 10;
/// The largest listing that is requested.
const LISTING_BYTES_MAX: u32 = 1 << 20;

/// Whether a call that the server executes late undoes newer changes.
pub(crate) fn may_undo(procedure: Nfs) -> bool {
    matches!(procedure.description().effect, nfs3::Effect::Repeatable)
}

/// Whether a call carries data, which RDMA may transfer separately.
pub(crate) fn sends_data(procedure: Nfs) -> bool {
    procedure.eligible() == nfs3::Eligible::Argument
}

/// The error status at the beginning of the results of a call; `None` if the call succeeded or
/// there is no status.
pub(crate) fn status_of(results: &[u8]) -> Option<Status> {
    let number = results.first_chunk().map(|status| nfs3::Status(u32::from_be_bytes(*status)))?;
    (number != nfs3::Status::OK).then(|| convert::status(number))
}

/// How much longer than other replies the reply to a call may be.
pub(crate) fn reply_bytes_max(procedure: Nfs, args: &[u8]) -> u32 {
    match procedure {
        Nfs::ReadDir | Nfs::ReadDirPlus => {
            // The maximum size is the last of the arguments. RFC 1813 s3.3.16, s3.3.17
            let count = args.last_chunk().map_or(LISTING_BYTES_MAX, |bytes| u32::from_be_bytes(*bytes));
            count.min(LISTING_BYTES_MAX)
        }
        Nfs::ReadLink => LINK_BYTES,
        _ => 0,
    }
}
