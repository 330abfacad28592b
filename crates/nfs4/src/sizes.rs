//! How long requests and replies can be, for the limits of a session's channels. RFC 8881 s18.36.3
//!
//! A channel's limits count the RPC header and what precedes and follows a payload, but not the
//! framing of a transport. So a session that is to carry 1 MiB of data must allow for more.

use crate::op::create_session::ChannelAttributes;

/// An RPC call's header, with the longest credential and verifier. RFC 5531 s9, s8.2
pub const CALL_HEADER_BYTES: u32 = 24 + 2 * (8 + rpc::auth::BODY_BYTES_MAX);
/// An RPC reply's header, with the longest verifier. RFC 5531 s9, s8.2
pub const REPLY_HEADER_BYTES: u32 = 24 + rpc::auth::BODY_BYTES_MAX;

/// `COMPOUND4args` without operations and with an empty tag, and the same of `COMPOUND4res`.
const HEAD: u32 = 12;
/// SEQUENCE and its result, with the operation's number. RFC 8881 s18.46
const SEQUENCE_ARGS: u32 = 4 + 32;
const SEQUENCE_REPLY: u32 = 4 + 4 + 36;
/// PUTFH with the longest handle, and its result. RFC 8881 s18.19
const PUTFH_ARGS: u32 = 4 + 4 + 128;
const PUTFH_REPLY: u32 = 4 + 4;
/// WRITE without its data. RFC 8881 s18.32
const WRITE_ARGS: u32 = 4 + 16 + 8 + 4 + 4;
/// READ without its data. RFC 8881 s18.22
const READ_REPLY: u32 = 4 + 4 + 4 + 4;
/// GETATTR with a bitmap of three words. RFC 8881 s18.7
const GETATTR_ARGS: u32 = 4 + 4 + 12;
/// The longest padding.
const PADDING: u32 = 3;

/// The longest request with `payload` bytes of data: SEQUENCE PUTFH WRITE GETATTR.
#[must_use]
pub const fn write_request_bytes(payload: u32) -> u32 {
    payload + PADDING + CALL_HEADER_BYTES + HEAD + SEQUENCE_ARGS + PUTFH_ARGS + WRITE_ARGS + GETATTR_ARGS
}

/// The longest reply with `payload` bytes of data: SEQUENCE PUTFH READ.
#[must_use]
pub const fn read_reply_bytes(payload: u32) -> u32 {
    payload + PADDING + REPLY_HEADER_BYTES + HEAD + SEQUENCE_REPLY + PUTFH_REPLY + READ_REPLY
}

/// Room beside the payload in either direction. A client makes its reads and writes as long as the
/// session allows, less what it needs for the rest; so less than this would make them shorter than
/// the payload.
pub const OVERHEAD_BYTES: u32 = 4096;

const _: () = assert!(write_request_bytes(0) <= OVERHEAD_BYTES && read_reply_bytes(0) <= OVERHEAD_BYTES);

/// The longest reply that a slot keeps. It holds what an OPEN with a delegation returns, with the
/// longest handle and all attributes that clients ask for along with it.
pub const CACHED_REPLY_BYTES: u32 = 2048;

/// The longest callback and its reply. All of them are short, and over RDMA they must fit a
/// message. RFC 8167 s4
pub const CALLBACK_BYTES: u32 = 1024;

/// The limits of a fore channel for `payload` bytes of data.
#[must_use]
pub const fn fore_channel(payload: u32, slots: u32, operations: u32) -> ChannelAttributes {
    ChannelAttributes {
        header_pad: 0,
        request_max: payload + OVERHEAD_BYTES,
        reply_max: payload + OVERHEAD_BYTES,
        cached_reply_max: CACHED_REPLY_BYTES,
        operations_max: operations,
        requests_max: slots,
        rdma_ird: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compound::{ReplyWriter, shapes};
    use crate::op::{self, Fore};
    use crate::{Ace, Attributes, Bitmap, ChangeInfo, Fattr, Owner, Range, Reply, SessionId, Stateid};
    use fs::{FileHandle, Rights, Stability};

    #[test]
    fn a_write_is_as_long_as_computed() {
        let sequence = op::sequence::Args {
            session: SessionId([1; 16]),
            sequence: 1,
            slot: 1,
            highest_slot: 1,
            cache: true,
        };
        let write = op::write::ArgsHead {
            stateid: Stateid::ANONYMOUS,
            offset: 0,
            stable: Stability::Unstable,
            count: 1025,
        };
        let mut out = Vec::new();
        let mut writer = shapes::on(&mut out, 2, &sequence, FileHandle::new(&[9; 128]).unwrap());
        writer.write(write, Bitmap::of(&[3, 82]));
        let len = writer.finish().len as u32 + 1025;
        assert_eq!(write_request_bytes(1025), len + CALL_HEADER_BYTES);
    }

    #[test]
    fn a_read_is_as_long_as_computed() {
        let data_at = shapes::READ_DATA_AT as u32;
        assert_eq!(read_reply_bytes(1), data_at + 1 + 3 + REPLY_HEADER_BYTES);
    }

    /// The longest reply that must be kept: OPEN with a delegation for writing, GETFH, ACCESS and
    /// GETATTR.
    #[test]
    fn an_open_with_a_delegation_fits_what_a_slot_keeps() {
        let handle = FileHandle::new(&[9; 128]).unwrap();
        let owner = Owner::Name(&[b'n'; 255]);
        let object = fs::Attributes::of(fs::FileKind::Regular);
        let attributes = Attributes {
            owner: Some(owner),
            owner_group: Some(owner),
            filehandle: Some(handle),
            change: Some(1),
            mounted_on_fileid: Some(1),
            ..Attributes::of_object(&object)
        };
        let delegation = op::open::Delegation::Write {
            stateid: Stateid::default(),
            recall: false,
            limit: op::open::SpaceLimit::Blocks { count: 1, bytes: 1 },
            permissions: Ace { who: &[b'w'; 255], ..Ace::default() },
            with_times: true,
        };
        let open = op::open::Success {
            stateid: Stateid::default(),
            directory: ChangeInfo::default(),
            flags: 0,
            set: Bitmap::of(&[82]),
            delegation,
        };
        let mut out = Vec::new();
        let mut writer = ReplyWriter::<Fore>::new(&mut out, b"");
        let rights = op::access::Success { supported: Rights(0x3f), access: Rights(0x3f) };
        writer.push(&Reply::Open(Ok(open)));
        writer.push(&Reply::GetFh(Ok(op::handles::GetSuccess { handle })));
        writer.push(&Reply::Access(Ok(rights)));
        writer.push(&Reply::GetAttr(Ok(op::getattr::Success { attributes: Fattr::all(&attributes) })));
        let len = writer.finish().len as u32 + SEQUENCE_REPLY + PUTFH_REPLY + REPLY_HEADER_BYTES;
        assert!(len <= CACHED_REPLY_BYTES, "{len} bytes");
    }

    #[test]
    fn the_longest_callback_fits() {
        // CB_SEQUENCE without referring calls, and CB_LAYOUTRECALL of a file, or CB_RECALL.
        let recall = crate::cb::layout::RecallArgs {
            layout_type: 1,
            mode: op::layout::IoMode::Any,
            changed: true,
            recalled: crate::cb::layout::Recalled::File {
                file: FileHandle::new(&[9; 128]).unwrap(),
                range: Range { offset: 0, length: Range::TO_THE_END },
                stateid: Stateid::default(),
            },
        };
        let sequence = crate::cb::sequence::Args {
            session: SessionId([1; 16]),
            sequence: 1,
            slot: 0,
            highest_slot: 0,
            cache: false,
            referring: crate::Array::default(),
        };
        let mut out = Vec::new();
        let mut writer = crate::compound::RequestWriter::<crate::cb::Back>::new(&mut out, b"", 1, 0);
        writer.push(&crate::cb::Args::Sequence(sequence));
        writer.push(&crate::cb::Args::LayoutRecall(recall));
        // Callbacks have the credential that the client named: AUTH_SYS or none. RFC 5531 appendix
        // A
        let credential_max = 8 + 20 + 256 + 16 * 4;
        let len = writer.finish().len as u32 + 24 + credential_max + 8;
        assert!(len <= CALLBACK_BYTES, "{len} bytes");
    }
}
