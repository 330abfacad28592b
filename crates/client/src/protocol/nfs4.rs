//! NFS version 4.1 and 4.2 (RFC 8881, RFC 7862), as the client uses them.
//!
//! A call is one compound. In a session it begins with SEQUENCE, which names the slot of the call:
//! a [`Request`](super::Request) has the operations after that, and SEQUENCE is written when the
//! call has its slot. No opens are kept: READ and WRITE use the anonymous stateid, and a regular
//! file is created, or delegated, by one compound that opens and closes it. RFC 8881 s8.2.3
//!
//! The results of an operation are kept as one word with the status of the compound, and the
//! results that follow that of SEQUENCE, which the session has read ([`reply`]).

mod convert;
pub(crate) mod copying;
mod data;
pub(crate) mod delegations;
mod describe;
mod identity;
pub(crate) mod locks;
pub(crate) mod operations;
mod reconcile;
mod reply;
pub(crate) mod space;
pub(crate) mod xattrs;

use ::nfs4::Operation;
use ::nfs4::compound::{RequestReader, RequestWriter};
use ::nfs4::op::{Args, Fore, handles, open, sequence};
use fs::{FileHandle, Status};
use xdr::{Reader, Writer};

use crate::caller::Program;

pub(crate) use convert::{DIRECTORY_BYTES, status};
pub(crate) use data::OPERATIONS as DATA_OPERATIONS;
pub(crate) use data::{
    decode_commit, decode_read, decode_root, decode_write, encode_commit, encode_read, encode_write,
};
pub(crate) use describe::describe;
pub(crate) use identity::{
    Asked, ClientOwner, Exchanged, Granted, Needs, TRANSFER_MIN, Wanted, bind, bound, client_destroyed,
    create_session, destroy_client, destroy_session, exchange_id, exchanged, session_created,
    session_destroyed,
};
pub(crate) use reconcile::reconcile;
pub(crate) use reply::{Opened, SlotRefusal, open as open_reply};

/// NFS version 4, with all its minor versions.
pub(crate) const PROGRAM: Program = Program { number: nfs3::PROGRAM, version: 4 };
/// The minor versions that are asked for.
pub(crate) const MINOR_VERSIONS: [u32; 3] = [0, 1, 2];
/// The procedure that carries all operations. RFC 8881 s16.2
pub(crate) const COMPOUND: u32 = ::nfs4::PROCEDURE_COMPOUND;
/// The status of a COMPOUND of a minor version that the server has not, whatever is in it.
/// RFC 8881 s15.1.3.1
const MINOR_VERS_MISMATCH: u32 = ::nfs4::Status::MINOR_VERS_MISMATCH.0;

/// The longest accepted text of a symbolic link, and room for the rest.
const LINK_BYTES: u32 = 8 << 10;
/// A handle and attributes with owners of usual length, beside what every reply has; also what OPEN
/// returns. Together with [`crate::call`]'s share this is more than what a peer over RDMA must
/// accept inline, so memory is offered for it.
const OBJECT_BYTES: u32 = 1024;

/// The longest value of an extended attribute that Linux has.
const XATTR_BYTES: u32 = 64 << 10;

/// The longest owner and scope of a server, and its program.
const IDENTITY_BYTES: u32 = 2 * ::nfs4::OWNER_BYTES_MAX + 512;

/// The slot of a call, and the number of the call in it. RFC 8881 s2.10.6.1
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SlotUse {
    /// The session, counted from 0 for the first session of a mount.
    pub generation: u64,
    pub session: ::nfs4::SessionId,
    pub slot: u32,
    pub sequence: u32,
    pub highest_slot: u32,
}

/// Bytes of a compound before its operations: an empty tag, the minor version, and the number of
/// operations. RFC 8881 s16.2.1
const HEAD_BYTES: usize = 12;

/// Writes a compound of the operations that are pushed, without SEQUENCE.
fn compound(minor: u32, push: impl FnOnce(&mut RequestWriter<'_, Fore>)) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    let mut writer = RequestWriter::new(&mut out, b"", minor, 0);
    push(&mut writer);
    writer.finish();
    out
}

/// Writes a compound on one object, without SEQUENCE: PUTFH and what is pushed.
fn on(minor: u32, object: FileHandle, push: impl FnOnce(&mut RequestWriter<'_, Fore>)) -> Vec<u8> {
    compound(minor, |writer| {
        writer.push(&put(object));
        push(writer);
    })
}

const fn put(object: FileHandle) -> Args<'static> {
    Args::PutFh(handles::PutArgs { handle: object })
}

/// Writes the beginning of a compound of so many operations, of which SEQUENCE is the first.
fn begin(writer: &mut Writer<'_>, minor: u32, operations: u32, slot: &SlotUse, operation: Operation) {
    writer.opaque(b"");
    writer.u32(minor);
    writer.u32(operations);
    writer.u32(Operation::Sequence.number());
    let sequence = sequence::Args {
        session: slot.session,
        sequence: slot.sequence,
        slot: slot.slot,
        highest_slot: slot.highest_slot,
        // A reply that is not kept cannot be told from a lost one: what changes something must not
        // be in doubt.
        cache: operation.changes(),
    };
    ::nfs4::Wire::encode(&sequence, writer);
}

/// Writes a compound, with SEQUENCE before its operations if the call has a slot.
pub(crate) fn encode_request(
    writer: &mut Writer<'_>,
    operation: Operation,
    compound: &[u8],
    slot: Option<&SlotUse>,
) {
    let (Some(slot), Some((head, operations))) = (slot, compound.split_at_checked(HEAD_BYTES)) else {
        writer.bytes(compound);
        return;
    };
    let mut reader = Reader::new(head);
    let words = [reader.u32(), reader.u32(), reader.u32()].map(|word| word.unwrap_or(0));
    let [_tag, minor, count] = words;
    begin(writer, minor, count + 1, slot, operation);
    writer.bytes(operations);
}

/// The number of operations of a compound without SEQUENCE.
pub(crate) fn operations_of(compound: &[u8]) -> u32 {
    compound.get(8..HEAD_BYTES).and_then(|count| Reader::new(count).u32().ok()).unwrap_or(0)
}

/// Whether a compound opens a file that it may have to create.
pub(crate) fn may_create(compound: &[u8]) -> bool {
    let Ok(mut requests) = RequestReader::<Fore>::new(compound) else { return true };
    let all = std::iter::from_fn(|| requests.next_operation());
    !all.flatten()
        .any(|request| matches!(request.args, Args::Open(open::Args { how: open::How::NoCreate, .. })))
}

/// How much longer than other replies the reply to a call may be.
pub(crate) const fn reply_bytes_max(operation: Operation) -> u32 {
    match operation {
        Operation::ReadDir | Operation::ListXattrs => convert::DIRECTORY_BYTES + OBJECT_BYTES,
        Operation::GetXattr => XATTR_BYTES + OBJECT_BYTES,
        Operation::ReadLink => LINK_BYTES,
        Operation::ExchangeId => IDENTITY_BYTES,
        Operation::Read | Operation::Write | Operation::Commit | Operation::Sequence => 0,
        _ => OBJECT_BYTES,
    }
}

/// The error status at the beginning of kept results.
pub(crate) fn status_of(operation: Operation, results: &[u8]) -> Option<Status> {
    let number = results.first_chunk().map(|status| ::nfs4::Status(u32::from_be_bytes(*status)))?;
    (number != ::nfs4::Status::OK).then(|| convert::failure(operation, number))
}

/// COMPOUND without a tag and without operations, which changes no state. A server that has the
/// minor version returns NFS4_OK, or says that something should be in it. RFC 8881 s16.2.1
pub(crate) fn encode_empty_compound(args: &mut Writer<'_>, minor: u32) {
    args.bytes(&compound(minor, |_| {}));
}

/// Whether the results of a COMPOUND are those of a server that has the minor version.
pub(crate) fn has_minor_version(results: &[u8]) -> xdr::Result<bool> {
    Ok(Reader::new(results).u32()? != MINOR_VERS_MISMATCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 8881 s16.2.1, s15.1.3.1
    #[test]
    fn an_empty_compound_is_a_tag_a_minor_version_and_a_count() {
        let mut bytes = Vec::new();
        encode_empty_compound(&mut Writer::new(&mut bytes), 2);
        assert_eq!(bytes, [0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0]);
        assert_eq!(has_minor_version(&[0, 0, 0, 0]), Ok(true));
        // NFS4ERR_OP_NOT_IN_SESSION, of a server that wants an operation
        assert_eq!(has_minor_version(&10_071_u32.to_be_bytes()), Ok(true));
        assert_eq!(has_minor_version(&10_021_u32.to_be_bytes()), Ok(false));
        assert!(has_minor_version(&[0, 0]).is_err());
    }
}
