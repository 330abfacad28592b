//! READ, WRITE, COMMIT: the data of files. RFC 8881 s18.3, s18.22, s18.32; READ_PLUS, RFC 7862
//! s15.10

use super::compound::{Compound, Outcome, Place, Replies};
use super::status::{of_handler, of_state};
use crate::client::CallSubject;
use crate::nfs4_state::{Change, file_name};
use crate::program::IO_BYTES_MAX;
use crate::replies::Payload;
use crate::request::Target;
use fs::FileKind;
use nfs4::compound::Payload as Data;
use nfs4::op::commit::{Args as CommitArgs, Success as Committed};
use nfs4::op::read::{Args as ReadArgs, ReplyHead};
use nfs4::op::read_plus::{Args as ReadPlusArgs, DataHead, Segment as PlusSegment, Success as PlusSuccess};
use nfs4::op::write::{ArgsHead, Success as Written};
use nfs4::op::{Operation, Reply};
use nfs4::{Array, Stateid, Status};
use state::StateId;
use std::ops::Deref;
use store::Segment;

/// Whether a stateid allows the caller to read or write a file.
pub(super) fn check(compound: &Compound<'_>, target: &Target<'_>, id: StateId, access: u8) -> Outcome<()> {
    let (file, client) = (file_name(target.export, target.object), compound.client()?);
    let checked =
        compound.shared.state.check_state_io(compound.shared.host(), compound.now, client, id, &file, access);
    checked.map_err(|error| match error {
        // RFC 8881 s18.22.4, s18.32.4: what is denied to an OPEN is locked to READ and WRITE.
        state::Error::ShareDenied => Status::LOCKED,
        other => of_state(&other),
    })
}

/// The status for an object that is no regular file. RFC 8881 s18.22.3
pub(super) const fn of_kind(kind: FileKind) -> Outcome<()> {
    match kind {
        FileKind::Regular => Ok(()),
        FileKind::Directory => Err(Status::ISDIR),
        FileKind::Symlink => Err(Status::SYMLINK),
        FileKind::BlockDevice | FileKind::CharacterDevice | FileKind::Socket | FileKind::Fifo => {
            Err(Status::WRONG_TYPE)
        }
    }
}

/// The status of a failed operation on data: stores do not tell kinds of objects apart.
pub(super) fn of_data(target: &Target<'_>, status: fs::Status) -> Status {
    if matches!(status, fs::Status::Invalid | fs::Status::IsDirectory)
        && let Ok(Ok(attributes)) = target.attributes()
        && let Err(kind) = of_kind(attributes.kind)
    {
        return kind;
    }
    Status::from_fs(status)
}

/// The attributes of an object, which must be a regular file.
pub(super) fn require_file(target: &Target<'_>) -> Outcome<fs::Attributes> {
    let attributes = target.attributes().map_err(of_handler)?.map_err(Status::from_fs)?;
    of_kind(attributes.kind)?;
    Ok(attributes)
}

/// The current object, which is to be read.
pub(super) fn readable<'a>(compound: &Compound<'a>, asked: Stateid) -> Outcome<Target<'a>> {
    let target = compound.object_or(Status::ISDIR)?;
    let id = compound.stateid(asked)?;
    check(compound, &target, id, state::READ)?;
    compound.knows_of_loss(target.export, target.object)?;
    Ok(target)
}

/// An object whose data are being changed: until this is dropped, nobody gets a delegation of it.
pub(super) struct Writable<'a> {
    target: Target<'a>,
    _change: Option<Change<'a>>,
}

impl<'a> Deref for Writable<'a> {
    type Target = Target<'a>;

    fn deref(&self) -> &Target<'a> {
        &self.target
    }
}

/// The current object, whose data are to be changed.
pub(super) fn writable<'a>(compound: &Compound<'a>, asked: Stateid) -> Outcome<Writable<'a>> {
    let target = match compound.place()? {
        Place::Pseudo(_) => return Err(Status::ISDIR),
        place => compound.changeable(place)?,
    };
    let id = compound.stateid(asked)?;
    check(compound, &target, id, state::WRITE)?;
    // Also with an open: it may end before the change does, and another client get a delegation.
    let change = compound.begin_change(target.export, target.object)?;
    Ok(Writable { target, _change: change })
}

/// What a READ or READ_PLUS has read.
struct Fetched {
    head: ReplyHead,
    /// The data, if they go into the message; otherwise they travel beside it.
    here: Option<Payload>,
}

/// Reads for a reply. The data of the last operation travel beside it, unless it is kept.
fn fetch(compound: &mut Compound<'_>, args: &ReadArgs, is_last: bool, bytes_max: u32) -> Outcome<Fetched> {
    let mut payload = Payload::new();
    let head = read_into(compound, args, bytes_max, &mut payload)?;
    let is_kept = compound.session.as_ref().is_some_and(|session| session.keep);
    if is_last && !is_kept {
        compound.payload = payload;
        return Ok(Fetched { head, here: None });
    }
    // Only pages that are sent in one go have no bytes, and only calls without waiting get such.
    if payload.iter().any(|segment| segment.as_bytes().is_none()) {
        return Err(Status::SERVERFAULT);
    }
    Ok(Fetched { head, here: Some(payload) })
}

/// READ.
pub(super) fn read(
    compound: &mut Compound<'_>,
    args: &ReadArgs,
    is_last: bool,
    out: &mut Replies<'_>,
) -> Status {
    let bytes_max = compound.bytes_worth_getting(out.len());
    match fetch(compound, args, is_last, bytes_max) {
        Err(status) => out.fail(Operation::Read, status),
        Ok(Fetched { head, here: None }) => out.push(&Reply::Read(Ok(head))),
        Ok(Fetched { head, here: Some(data) }) => {
            out.read_here(head.eof, data.iter().filter_map(Segment::as_bytes))
        }
    }
}

fn read_into(
    compound: &Compound<'_>,
    args: &ReadArgs,
    bytes_max: u32,
    payload: &mut Payload,
) -> Outcome<ReplyHead> {
    let target = readable(compound, args.stateid)?;
    let count = args.count.min(IO_BYTES_MAX).min(compound.payload_bytes_max).min(bytes_max);
    let read = target.read(args.offset, count, payload).map_err(of_handler)?;
    let end = read.map_err(|status| {
        payload.clear();
        of_data(&target, status)
    })?;
    Ok(ReplyHead { eof: end.eof, count: end.count })
}

/// READ_PLUS: as READ, in one segment of data. A client that wants holes finds them by SEEK, once
/// for a file and not for each part of it. RFC 7862 s15.10.3 leaves this to the server.
pub(super) fn read_plus(
    compound: &mut Compound<'_>,
    args: &ReadPlusArgs,
    is_last: bool,
    out: &mut Replies<'_>,
) -> Status {
    let bytes_max = compound.bytes_worth_getting(out.len());
    let ReadPlusArgs { stateid, offset, count } = *args;
    match fetch(compound, &ReadArgs { stateid, offset, count }, is_last, bytes_max) {
        Err(status) => out.fail(Operation::ReadPlus, status),
        Ok(Fetched { head, here: None }) => {
            out.read_plus(&DataHead { eof: head.eof, hole: None, offset, count: head.count })
        }
        Ok(Fetched { head, here: Some(data) }) => {
            let bytes = data.iter().filter_map(Segment::as_bytes).collect::<Vec<_>>().concat();
            let data = [PlusSegment::Data { offset, bytes: &bytes }];
            out.push(&Reply::ReadPlus(Ok(PlusSuccess { eof: head.eof, segments: Array::from(&data) })))
        }
    }
}

/// WRITE.
pub(super) fn write(compound: &mut Compound<'_>, args: &ArgsHead, data: Data<'_>) -> Outcome<Written> {
    let target = writable(compound, args.stateid)?;
    let subject = &compound.request.client.subject;
    subject.set(CallSubject { payload_bytes: args.count, ..subject.get() });
    let written = match data {
        // More than MAXWRITE: a part is written, and the client goes on from there.
        Data::Here(data) => {
            target.write(args.offset, data.get(..IO_BYTES_MAX as usize).unwrap_or(data), args.stable)
        }
        Data::Beside => target.write_received(&mut compound.received, args.stable),
        Data::None => return Err(Status::SERVERFAULT),
    };
    let (_, written) = written.map_err(of_handler)?;
    let written = written.map_err(|status| of_data(&target, status))?;
    Ok(Written {
        count: written.count,
        committed: written.committed,
        verifier: written.verifier.to_be_bytes(),
    })
}

/// COMMIT.
pub(super) fn commit(compound: &Compound<'_>, args: &CommitArgs) -> Outcome<Committed> {
    let target = compound.object_or(Status::ISDIR)?;
    let (_, committed) = target.commit(args.offset, args.count).map_err(of_handler)?;
    let verifier = committed.map_err(|status| of_data(&target, status))?;
    Ok(Committed { verifier: verifier.to_be_bytes() })
}
