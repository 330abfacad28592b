//! SEEK, ALLOCATE, DEALLOCATE, IO_ADVISE: the space of files. RFC 7862 s15.1, s15.4, s15.5, s15.11

use super::compound::{Compound, Outcome};
use super::io::{check, of_data, readable, writable};
use nfs4::op::allocate::Args as RangeArgs;
use nfs4::op::io_advise::{Args as AdviseArgs, Success as Advised};
use nfs4::op::seek::{Args as SeekArgs, Success as Found, What};
use nfs4::{Bitmap, Status};
use store::Seek;

/// SEEK.
pub(super) fn seek(compound: &Compound<'_>, args: &SeekArgs) -> Outcome<Found> {
    let target = readable(compound, args.stateid)?;
    let what = match args.what {
        What::Data => Seek::Data,
        What::Hole => Seek::Hole,
    };
    let caller = target.squashed.caller();
    let found = target.export.store.seek(caller, target.object, args.offset, what);
    let found = found.map_err(|status| of_data(&target, status))?;
    Ok(Found { eof: found.eof, offset: found.offset })
}

/// ALLOCATE.
pub(super) fn allocate(compound: &Compound<'_>, args: &RangeArgs) -> Outcome<()> {
    let target = writable(compound, args.stateid)?;
    let (caller, range) = (target.squashed.caller(), args.range);
    let (_, done) = target.export.store.allocate(caller, target.object, range.offset, range.length);
    done.map_err(|status| of_data(&target, status))
}

/// DEALLOCATE.
pub(super) fn deallocate(compound: &Compound<'_>, args: &RangeArgs) -> Outcome<()> {
    let target = writable(compound, args.stateid)?;
    let (caller, range) = (target.squashed.caller(), args.range);
    let (_, done) = target.export.store.deallocate(caller, target.object, range.offset, range.length);
    done.map_err(|status| of_data(&target, status))
}

/// IO_ADVISE. The kernel below a directory reads ahead by itself, and memory needs no advice: no
/// hint is heeded, which is what an empty answer says. RFC 7862 s15.5.3
pub(super) fn advise(compound: &Compound<'_>, args: &AdviseArgs) -> Outcome<Advised> {
    let target = compound.object_or(Status::ISDIR)?;
    super::io::require_file(&target)?;
    let id = compound.stateid(args.stateid)?;
    check(compound, &target, id, 0)?;
    Ok(Advised { hints: Bitmap::EMPTY })
}
