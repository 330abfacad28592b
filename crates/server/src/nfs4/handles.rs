//! PUTFH, PUTROOTFH, PUTPUBFH, GETFH, SAVEFH, RESTOREFH: the current and the saved object. RFC 8881
//! s18.8, s18.19 to s18.21, s18.27, s18.28

use super::compound::{Compound, Outcome, Place};
use super::pseudo;
use super::status::of_target;
use crate::handle::FileHandle as SealedHandle;
use nfs4::Status;
use nfs4::op::handles::{GetSuccess, PutArgs};

/// PUTFH. A handle is checked; whether its object is still there is found by the next operation.
pub(super) fn put(compound: &mut Compound<'_>, args: &PutArgs) -> Outcome<()> {
    let handle = args.handle.as_slice();
    if pseudo::is_handle(handle) {
        let node = pseudo::open(compound.request.client, handle)?;
        compound.set(Place::Pseudo(node));
        return Ok(());
    }
    let sealed = SealedHandle::new(handle).ok_or(Status::BADHANDLE)?;
    let target = compound.request.open_nonblocking(&sealed).map_err(of_target)?;
    compound.set(Place::Object(target.export, target.object));
    Ok(())
}

/// PUTROOTFH, and PUTPUBFH: the public object is the root.
pub(super) fn put_root(compound: &mut Compound<'_>) -> Outcome<()> {
    let root = pseudo::root(compound.request.client).ok_or(Status::ACCESS)?;
    compound.set(root);
    Ok(())
}

/// GETFH.
pub(super) fn get(compound: &Compound<'_>) -> Outcome<GetSuccess> {
    Ok(GetSuccess { handle: pseudo::handle_of(compound.place()?)? })
}

/// SAVEFH.
pub(super) fn save(compound: &mut Compound<'_>) -> Outcome<()> {
    compound.place()?;
    compound.saved = compound.current;
    Ok(())
}

/// RESTOREFH.
pub(super) fn restore(compound: &mut Compound<'_>) -> Outcome<()> {
    compound.current = Some(compound.saved.ok_or(Status::NOFILEHANDLE)?);
    Ok(())
}
