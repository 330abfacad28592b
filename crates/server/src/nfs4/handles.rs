//! PUTFH, PUTROOTFH, PUTPUBFH, GETFH, SAVEFH, RESTOREFH: the current and the saved object. RFC 8881
//! s18.8, s18.19 to s18.21, s18.27, s18.28
//!
//! An operation that puts an object is refused with WRONGSEC if the next one uses the object and
//! the credential is not enough for its export; not if the next one puts another, asks which
//! credentials are enough, or goes on to a name, which is checked there. RFC 8881 s2.6.3.1

use super::compound::{Compound, Outcome, Place};
use super::pseudo;
use super::status::of_target;
use crate::handle::FileHandle as SealedHandle;
use nfs4::Status;
use nfs4::compound::RequestReader;
use nfs4::op::handles::{GetSuccess, PutArgs};
use nfs4::op::open::Claim;
use nfs4::op::{Args, Fore};

/// Whether an operation makes an object of its own choice the current one.
pub(super) const fn is_put(args: &Args<'_>) -> bool {
    matches!(args, Args::PutFh(_) | Args::PutPubFh(()) | Args::PutRootFh(()) | Args::RestoreFh(()))
}

/// Whether the operation after one that puts an object leaves the check of the credential to that.
/// RFC 8881 s2.6.3.1.1
pub(super) fn is_used_next(mut following: RequestReader<'_, Fore>) -> bool {
    loop {
        let Some(Ok(next)) = following.next_operation() else { return false };
        return match next.args {
            // What follows it decides.
            Args::SaveFh(()) => continue,
            Args::Lookup(_) | Args::LookupP(()) | Args::SecInfo(_) | Args::SecInfoNoName(_) => false,
            Args::Open(open) => !matches!(
                open.claim,
                Claim::Name(_) | Claim::DelegatedName { .. } | Claim::PreviouslyDelegatedName(_)
            ),
            other => !is_put(&other),
        };
    }
}

/// PUTFH. A handle is checked; whether its object is still there is found by the next operation.
pub(super) fn put(compound: &mut Compound<'_>, args: &PutArgs) -> Outcome<()> {
    let handle = args.handle.as_slice();
    if pseudo::is_handle(handle) {
        let node = pseudo::open(compound.request.client, handle)?;
        compound.set(Place::Pseudo(node));
        return Ok(());
    }
    let sealed = SealedHandle::new(handle).ok_or(Status::BADHANDLE)?;
    let (export, object) = compound.request.find(&sealed).map_err(of_target)?;
    compound.set(Place::Object(export, object));
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
