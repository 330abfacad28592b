//! COPY and CLONE, from the saved file to the current one. RFC 7862 s15.2, s15.13
//!
//! A copy is done before it is answered, and in order. A long one is answered early, and the client
//! goes on from there: so no call takes long, and nothing is left to do without its client. There
//! is no copy that OFFLOAD_STATUS or OFFLOAD_CANCEL could name, so they are not supported, which
//! RFC 7862 s13 leaves to a server of this kind; nor are copies between two servers.

use super::compound::{Compound, Outcome, Place, Replies};
use super::io::{check, of_data, require_file, writable};
use super::status::of_handler;
use crate::replies::Payload;
use crate::request::Target;
use fs::Stability;
use nfs4::op::Reply;
use nfs4::op::copy::{Args, CloneArgs, Reply as Copied, Requirements, WriteResponse};
use nfs4::{Stateid, Status};
use store::{Segment, Written};

/// The most bytes that one compound copies.
const COPY_BYTES_MAX: u32 = 64 << 20;
/// The bytes that are read at a time for a copy into another export.
const PIECE_BYTES: u32 = 1 << 20;

/// The saved object, which is to be read.
fn source<'a>(compound: &Compound<'a>, asked: Stateid) -> Outcome<Target<'a>> {
    let target = match compound.saved_place()? {
        Place::Object(export, object) => compound.target(export, object)?,
        Place::Pseudo(_) => return Err(Status::ISDIR),
    };
    let id = compound.saved_stateid(asked)?;
    check(compound, &target, id, state::READ)?;
    Ok(target)
}

/// COPY.
pub(super) fn copy(compound: &mut Compound<'_>, args: &Args<'_>, out: &mut Replies<'_>) -> Status {
    let copied = try_copy(compound, args);
    if let Ok(written) = &copied {
        compound.copied_bytes = compound.copied_bytes.saturating_add(written.count);
    }
    out.push(&Reply::Copy(match copied {
        Ok(written) => Copied::Done(
            WriteResponse {
                callback_id: None,
                count: written.count.into(),
                committed: written.committed,
                verifier: written.verifier.to_be_bytes(),
            },
            Requirements { consecutive: true, synchronous: true },
        ),
        Err(status) => Copied::Failed(status),
    }))
}

fn try_copy(compound: &Compound<'_>, args: &Args<'_>) -> Outcome<Written> {
    compound.place()?;
    if !args.source_servers.is_empty() {
        return Err(Status::NOTSUPP);
    }
    let from = source(compound, args.source)?;
    let to = writable(compound, args.target)?;
    let size = require_file(&from)?.size;
    require_file(&to)?;
    // RFC 7862 s15.2.3: the range must be within the source; a count of 0 reaches to its end.
    let left = size.checked_sub(args.source_offset).ok_or(Status::INVAL)?;
    let wanted = if args.count == 0 { left } else { args.count };
    if wanted > left {
        return Err(Status::INVAL);
    }
    let is_one_export = std::ptr::eq(from.export, to.export);
    if args.source_offset.abs_diff(args.target_offset) < wanted && is_one_file(&from, &to) {
        return Err(Status::INVAL);
    }
    // A compound of many copies takes no longer than one.
    let room = COPY_BYTES_MAX.saturating_sub(compound.copied_bytes);
    if room == 0 && wanted > 0 {
        return Err(Status::DELAY);
    }
    let count = u32::try_from(wanted).unwrap_or(u32::MAX).min(room);
    if is_one_export {
        let (source, target) = ((from.object, args.source_offset), (to.object, args.target_offset));
        match to.export.store.copy(to.squashed.caller(), source, target, count) {
            // A store that cannot copy can read and write.
            (_, Err(fs::Status::NotSupported)) => {}
            (_, copied) => return copied.map_err(Status::from_fs),
        }
    }
    copy_by_pieces((&from, args.source_offset), (&*to, args.target_offset), count)
}

/// Whether both are the same file, which two exports may have.
fn is_one_file(one: &Target<'_>, other: &Target<'_>) -> bool {
    if std::ptr::eq(one.export, other.export) {
        return one.object == other.object;
    }
    let known = one.export.store.host_file(one.object);
    known.is_some() && known == other.export.store.host_file(other.object)
}

/// Copies by reading and writing, as the caller might: with the rights that the caller has in each
/// export. A failure after the first piece is left to the next call.
fn copy_by_pieces(from: (&Target<'_>, u64), to: (&Target<'_>, u64), count: u32) -> Outcome<Written> {
    // A target that cannot be written is told even if there is nothing to copy. The verifier of
    // the beginning is that of all: if it has changed since, the client copies again.
    let mut all = write(to, &[])?;
    while all.count < count {
        let done = u64::from(all.count);
        let mut read = Payload::new();
        let len = (count - all.count).min(PIECE_BYTES);
        let piece = copy_piece((from.0, from.1 + done), (to.0, to.1.saturating_add(done)), len, &mut read);
        match piece {
            Ok(0) => break,
            Ok(copied) => all.count += copied,
            Err(status) if all.count == 0 => return Err(status),
            Err(_) => break,
        }
    }
    Ok(Written { committed: Stability::Unstable, ..all })
}

/// Copies up to `len` bytes; fewer where the source ends or the target cannot take more.
fn copy_piece(
    from: (&Target<'_>, u64),
    to: (&Target<'_>, u64),
    len: u32,
    read: &mut Payload,
) -> Outcome<u32> {
    let end = from.0.read(from.1, len, read).map_err(of_handler)?;
    end.map_err(|status| of_data(from.0, status))?;
    let mut copied = 0_u32;
    for bytes in read.iter().filter_map(Segment::as_bytes) {
        let mut rest = bytes;
        while !rest.is_empty() {
            match write((to.0, to.1.saturating_add(copied.into())), rest) {
                Ok(Written { count: 0, .. }) => return Ok(copied),
                Ok(written) => {
                    copied += written.count;
                    rest = rest.get(written.count as usize..).unwrap_or_default();
                }
                Err(status) if copied == 0 => return Err(status),
                Err(_) => return Ok(copied),
            }
        }
    }
    Ok(copied)
}

fn write(to: (&Target<'_>, u64), data: &[u8]) -> Outcome<Written> {
    let (_, written) = to.0.write(to.1, data, Stability::Unstable).map_err(of_handler)?;
    written.map_err(|status| of_data(to.0, status))
}

/// CLONE.
pub(super) fn clone(compound: &Compound<'_>, args: &CloneArgs) -> Outcome<()> {
    compound.place()?;
    let from = source(compound, args.source)?;
    let to = writable(compound, args.target)?;
    require_file(&from)?;
    require_file(&to)?;
    if !std::ptr::eq(from.export, to.export) {
        return Err(Status::XDEV);
    }
    let (source, target) = ((from.object, args.source_offset), (to.object, args.target_offset));
    let (_, cloned) = to.export.store.clone_range(to.squashed.caller(), source, target, args.count);
    cloned.map_err(Status::from_fs)
}
