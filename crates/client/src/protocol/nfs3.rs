//! NFS version 3 and MOUNT version 3 (RFC 1813), as the client uses them.

mod convert;
mod data;
mod describe;
mod exports;
mod operations;
mod reconcile;

use drc::XidClass;
use fs::Status;
use nfs3::Procedure as Nfs;
use rpc::Xid;

use xdr::Writer;

#[cfg(test)]
pub(crate) use data::root_reply;
pub(crate) use data::{
    decode_commit, decode_read, decode_root, decode_write, encode_commit, encode_read, encode_root,
    encode_write,
};
pub(crate) use describe::describe;
pub(crate) use exports::{exports, mnt};
pub(crate) use nfs3::Procedure;
pub use operations::Protocol;
pub(crate) use reconcile::reconcile;

use crate::caller::Program;

/// The NFS program.
pub(crate) const NFS: Program = Program { number: nfs3::PROGRAM, version: nfs3::VERSION };
/// The MOUNT program, which returns the handles of exports.
pub(crate) const MOUNT_PROGRAM: Program = Program { number: nfs3::mount::PROGRAM, version: 3 };

pub(crate) const READ: Procedure = Nfs::Read;
pub(crate) const WRITE: Procedure = Nfs::Write;
pub(crate) const COMMIT: Procedure = Nfs::Commit;
pub(crate) const GETATTR: Procedure = Nfs::GetAttr;

/// The longest accepted text of a symbolic link, and room for the rest.
const LINK_BYTES: u32 = 8 << 10;
/// The largest listing that is requested.
const LISTING_BYTES_MAX: u32 = 1 << 20;

/// Whether a server may run a procedure twice, which determines the class of its xid.
pub(crate) fn xid_class(procedure: Procedure) -> XidClass {
    procedure.xid_class()
}

/// Whether a call that the server executes late undoes newer changes.
pub(crate) fn may_undo(procedure: Procedure) -> bool {
    matches!(procedure.description().effect, nfs3::Effect::Repeatable)
}

/// Whether a call carries data, which RDMA may transfer separately.
pub(crate) fn sends_data(procedure: Procedure) -> bool {
    procedure.eligible() == nfs3::Eligible::Argument
}

/// Writes the header of a call; its arguments follow.
pub(crate) fn encode_call(writer: &mut Writer<'_>, xid: Xid, procedure: Procedure, credential: &[u8]) {
    rpc::call::encode(writer, xid, NFS.number, NFS.version, procedure.number(), credential);
}

/// Writes a NULL call, which a server answers without accessing a file.
pub(crate) fn encode_null(writer: &mut Writer<'_>, xid: Xid) {
    let mut credential = Vec::new();
    rpc::auth::encode_none(&mut Writer::new(&mut credential));
    encode_call(writer, xid, Nfs::Null, &credential);
}

/// The error status at the beginning of the results of a call; `None` if the call succeeded or
/// there is no status.
pub(crate) fn status_of(results: &[u8]) -> Option<Status> {
    let number = results.first_chunk().map(|status| nfs3::Status(u32::from_be_bytes(*status)))?;
    (number != nfs3::Status::OK).then(|| convert::status(number))
}

/// How much longer than other replies the reply to a call may be.
pub(crate) fn reply_bytes_max(procedure: Procedure, args: &[u8]) -> u32 {
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
