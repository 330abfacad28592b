//! Delegations: an OPEN that may bring one, and its return. RFC 8881 s10.4, s18.6, s18.16

use ::nfs4::op::open::{Delegation, NoDelegation, access, deny};
use ::nfs4::op::{Args, close, delegation, kind, open};
use ::nfs4::{ClientId, Operation as Nfs, OwnerId, StateOwner, Stateid};
use fs::{Attributes, FileHandle};
use xdr::Reader;

use super::operations::{
    operation, push_getattr, read_handle_at_end, read_object_at_end, read_put, telling_object,
};
use super::reply::{done, expect};
use super::{convert, on};
use crate::owners::Names;
use crate::protocol::Operation;

/// The owner of these opens, which end with their compound.
const OPEN_OWNER: &[u8] = b"read";

/// A delegation as it is granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Granted {
    pub stateid: Stateid,
    /// It is one for reading, as was wanted.
    pub is_for_reading: bool,
    /// It is being recalled already.
    pub is_recalled: bool,
}

/// Why there is no delegation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Others use the file, now.
    Now,
    /// Most likely there will be none of other files either.
    Lasting,
}

/// What an OPEN has brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Opened {
    /// The attributes, if the server told them.
    pub attributes: Option<Attributes>,
    pub delegation: Option<Granted>,
    pub refusal: Refusal,
}

/// Opens a file for reading and closes it. The attributes are asked for last, so that they are
/// those of a file that nobody else changes.
pub(crate) fn open(minor: u32, file: FileHandle) -> Operation<Opened> {
    let owner = StateOwner { client: ClientId(0), owner: OwnerId::new(OPEN_OWNER).unwrap_or_default() };
    let args = on(minor, file, |to| {
        to.push(&Args::Open(open::Args {
            seqid: 0,
            access: access::READ | access::WANT_READ,
            deny: deny::NONE,
            owner,
            how: open::How::NoCreate,
            claim: open::Claim::Current,
        }));
        to.push(&Args::GetFh(())).push(&Args::Close(close::Args { seqid: 0, open: Stateid::CURRENT }));
        push_getattr(to, convert::OBJECT);
    });
    telling_object(Nfs::Open, args, opened).at_once()
}

fn opened(reader: &mut Reader<'_>, names: &Names<'_>) -> xdr::Result<Opened> {
    read_put(reader)?;
    let (delegation, refusal) = match done(expect::<kind::Open>(reader)?)?.delegation {
        Delegation::None => (None, Refusal::Lasting),
        Delegation::NoneBecause(NoDelegation::Contention(_)) => (None, Refusal::Now),
        Delegation::NoneBecause(_) => (None, Refusal::Lasting),
        Delegation::Read { stateid, recall, .. } => {
            (Some(Granted { stateid, is_for_reading: true, is_recalled: recall }), Refusal::Now)
        }
        Delegation::Write { stateid, recall, .. } => {
            (Some(Granted { stateid, is_for_reading: false, is_recalled: recall }), Refusal::Now)
        }
    };
    let mut attributes = None;
    if read_handle_at_end(reader)?.is_some() {
        let closed = expect::<kind::Close>(reader)?;
        if super::operations::told_at_end(reader, closed)?.is_some() {
            attributes = read_object_at_end(reader, names)?;
        }
    }
    Ok(Opened { attributes, delegation, refusal })
}

/// Returns a delegation. RFC 8881 s18.6
pub(crate) fn give_back(minor: u32, file: FileHandle, stateid: Stateid) -> Operation<()> {
    let args = on(minor, file, |to| {
        to.push(&Args::DelegReturn(delegation::ReturnArgs { delegation: stateid }));
    });
    operation(Nfs::DelegReturn, args, |reader| {
        read_put(reader)?;
        done(expect::<kind::DelegReturn>(reader)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::nfs4::compound::ReplyWriter;
    use ::nfs4::op::{Fore, Reply, getattr, handles};
    use ::nfs4::{Ace, Attributes as Told, Bitmap, ChangeInfo, Fattr, Status};
    use fs::FileKind;

    fn file() -> FileHandle {
        FileHandle::new(b"file").unwrap()
    }

    fn reply_of(delegation: Delegation<'_>, more: &[Reply<'_>]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut writer = ReplyWriter::<Fore>::new(&mut out, b"");
        writer.push(&Reply::PutFh(Ok(())));
        writer.push(&Reply::Open(Ok(open::Success {
            stateid: Stateid { seqid: 1, other: [3; 12] },
            directory: ChangeInfo { atomic: true, before: 1, after: 1 },
            flags: 0,
            set: Bitmap::EMPTY,
            delegation,
        })));
        for reply in more {
            writer.push(reply);
        }
        writer.finish();
        // The status, and after it the results: without the tag and the count.
        [&[0; 4], &out[12..]].concat()
    }

    fn read(results: &[u8]) -> crate::Result<Opened> {
        let (request, reading) = open(1, file()).into_parts();
        assert!(request.is_of_state() && request.is_at_once());
        reading.read(results)
    }

    const STATEID: Stateid = Stateid { seqid: 1, other: [9; 12] };

    fn delegation(recall: bool) -> Delegation<'static> {
        let permissions = Ace { kind: 0, flags: 0, mask: 0, who: b"" };
        Delegation::Read { stateid: STATEID, recall, permissions, with_times: false }
    }

    #[test]
    fn a_delegation_comes_with_the_attributes_and_without_an_open() {
        let object = Attributes { fileid: 5, fsid: 7, ..Attributes::of(FileKind::Regular) };
        let told = Told::of_object(&object);
        let all = [
            Reply::GetFh(Ok(handles::GetSuccess { handle: file() })),
            Reply::Close(Ok(Stateid::INVALID)),
            Reply::GetAttr(Ok(getattr::Success { attributes: Fattr::all(&told) })),
        ];
        let opened = read(&reply_of(delegation(false), &all)).unwrap();
        assert_eq!(opened.attributes.map(|attributes| attributes.fileid), Some(5));
        let granted = Granted { stateid: STATEID, is_for_reading: true, is_recalled: false };
        assert_eq!(opened.delegation, Some(granted));
        assert!(read(&reply_of(delegation(true), &all)).unwrap().delegation.unwrap().is_recalled);
        for (none, refusal) in [
            (Delegation::None, Refusal::Lasting),
            (Delegation::NoneBecause(NoDelegation::Contention(false)), Refusal::Now),
            (Delegation::NoneBecause(NoDelegation::Resource(false)), Refusal::Lasting),
            (Delegation::NoneBecause(NoDelegation::NOT_SUPPORTED), Refusal::Lasting),
        ] {
            let opened = read(&reply_of(none, &all)).unwrap();
            assert_eq!((opened.delegation, opened.refusal), (None, refusal));
        }
    }

    #[test]
    fn a_delegation_is_known_although_something_fails_after_it() {
        let handle = Reply::GetFh(Ok(handles::GetSuccess { handle: file() }));
        for more in [
            &[Reply::GetFh(Err(Status::SERVERFAULT))][..],
            &[handle, Reply::Close(Err(Status::SERVERFAULT))],
            &[handle, Reply::Close(Ok(STATEID)), Reply::GetAttr(Err(Status::DELAY))],
        ] {
            let opened = read(&reply_of(delegation(false), more)).unwrap();
            assert_eq!(
                (opened.delegation.map(|granted| granted.stateid), opened.attributes),
                (Some(STATEID), None)
            );
        }
        assert!(read(&reply_of(delegation(false), &[])).is_err(), "results are missing");
    }
}
