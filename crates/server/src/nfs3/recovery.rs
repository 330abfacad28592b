//! Resolves a call that a process of the group may have executed before it ended.
//!
//! Before a process executes such a call, it notes what the name in question refers to
//! ([`Recover::pre_op_state`]). A process that finds the call in doubt compares that note with the
//! present state ([`Recover::recover`]): an object that was to be removed and is gone was removed
//! by this call, and an object that did not exist and now does was created by it. So the call is
//! neither executed twice, nor answered with an error that its own first execution caused. Other
//! clients may have changed the same name between the note and the end of that process; then the
//! answer fits an order in which their changes came first or last; `docs/decisions/0008-group.md`.

use super::attributes::{set_attributes, time_from_wire};
use super::request::{HandlerError, Request, Target};
use super::status;
use drc::shared::PreOpState;
use fs::{FileKind, SetTime};
use nfs3::proc::{create, link, mkdir, mknod, remove, rename, rmdir, setattr, symlink};
use nfs3::{Created, DirOpArgs, Outcome, Sattr3, Status, WccData};
use store::Found;

/// What a handler returns.
type HandlerResult<S, F> = Result<Outcome<S, F>, HandlerError>;

/// A changing call whose execution may be in doubt.
pub(crate) trait Recover<S, F> {
    /// Notes the state before the call is executed, if that will tell whether it was executed.
    fn pre_op_state(&self, request: &Request<'_>) -> Option<PreOpState>;

    /// The answer to a call that was executed, judged by the state noted before; `None` if the call
    /// was not executed, or if executing it again does no harm.
    fn recover(&self, request: &Request<'_>, before: Option<PreOpState>) -> Option<HandlerResult<S, F>>;
}

/// The present object of a name in a directory, and its note. `None` if that is unknown.
fn find<'a>(request: &Request<'a>, what: &DirOpArgs<'_>) -> Option<(Target<'a>, PreOpState, Option<Found>)> {
    let target = request.open_for_change(&what.directory).ok()?;
    let (now, found) = target.find(what.name)?;
    Some((target, now, found))
}

fn pre_op_state(request: &Request<'_>, what: &DirOpArgs<'_>) -> Option<PreOpState> {
    find(request, what).map(|(_, now, _)| now)
}

/// Makes changes of a directory durable that another process may not have synced before it ended.
/// RFC 1813 s4.8
fn sync_names(target: &Target<'_>) -> Result<(), Status> {
    target.export.store.sync_names(target.object).map_err(status::of_store)
}

/// `Some` if the object noted under a name is no longer there, removed by this call or later.
fn removed(
    request: &Request<'_>,
    what: &DirOpArgs<'_>,
    before: Option<PreOpState>,
) -> Option<Result<(), Status>> {
    let before = before.filter(|before| matches!(before, PreOpState::Object(..)))?;
    let (target, now, _) = find(request, what)?;
    (now != before).then(|| sync_names(&target))
}

/// The object that now has a name which was free before.
fn created<'a>(
    request: &Request<'a>,
    what: &DirOpArgs<'_>,
    before: Option<PreOpState>,
) -> Option<(Target<'a>, Found)> {
    let (target, _, found) = find(request, what).filter(|_| before == Some(PreOpState::Absent))?;
    found.map(|found| (target, found))
}

/// The answer to a call that created an object which satisfies `is`, with the `wanted` attributes.
fn created_reply(
    request: &Request<'_>,
    location: &DirOpArgs<'_>,
    before: Option<PreOpState>,
    wanted: &Sattr3,
    is: impl FnOnce(&Target<'_>, &Found) -> bool,
) -> Option<HandlerResult<Created, WccData>> {
    let (target, found) = created(request, location, before).filter(|(target, found)| is(target, found))?;
    if let Err(status) = sync_names(&target) {
        return Some(Ok(Outcome::Fail(status, WccData::default())));
    }
    let attributes = match set_attributes(wanted) {
        Ok(set) => {
            let change = request.go_on_with_change(&target, found.object);
            target.complete_attributes(&found, &set, change)
        }
        Err(_) => found.attributes,
    };
    Some(Ok(Outcome::Ok(Created {
        object: Some(target.export.handle(found.object)),
        attributes: Some(target.fattr(&attributes)),
        directory: WccData::default(),
    })))
}

/// The answer to a call of which only the completion is known.
fn done<T: Default>(done: Result<(), Status>) -> HandlerResult<T, T> {
    Ok(match done {
        Ok(()) => Outcome::Ok(T::default()),
        Err(status) => Outcome::Fail(status, T::default()),
    })
}

impl Recover<Created, WccData> for create::Args<'_> {
    fn pre_op_state(&self, request: &Request<'_>) -> Option<PreOpState> {
        pre_op_state(request, &self.location)
    }

    fn recover(
        &self,
        request: &Request<'_>,
        before: Option<PreOpState>,
    ) -> Option<HandlerResult<Created, WccData>> {
        match self.how {
            // A second execution finds its own file by the verifier. RFC 1813 s3.3.8
            create::How::Exclusive(_) => None,
            create::How::Unchecked(wanted) | create::How::Guarded(wanted) => {
                created_reply(request, &self.location, before, &wanted, |_, found| {
                    found.attributes.kind == FileKind::Regular
                })
            }
        }
    }
}

impl Recover<Created, WccData> for mkdir::Args<'_> {
    fn pre_op_state(&self, request: &Request<'_>) -> Option<PreOpState> {
        pre_op_state(request, &self.location)
    }

    fn recover(
        &self,
        request: &Request<'_>,
        before: Option<PreOpState>,
    ) -> Option<HandlerResult<Created, WccData>> {
        created_reply(request, &self.location, before, &self.attributes, |_, found| {
            found.attributes.kind == FileKind::Directory
        })
    }
}

impl Recover<Created, WccData> for symlink::Args<'_> {
    fn pre_op_state(&self, request: &Request<'_>) -> Option<PreOpState> {
        pre_op_state(request, &self.location)
    }

    fn recover(
        &self,
        request: &Request<'_>,
        before: Option<PreOpState>,
    ) -> Option<HandlerResult<Created, WccData>> {
        created_reply(request, &self.location, before, &self.attributes, |target, found| {
            let mut text = Vec::new();
            found.attributes.kind == FileKind::Symlink
                && target.export.store.read_link(found.object, &mut text).is_ok()
                && text == self.target
        })
    }
}

impl Recover<Created, WccData> for mknod::Args<'_> {
    fn pre_op_state(&self, request: &Request<'_>) -> Option<PreOpState> {
        pre_op_state(request, &self.location)
    }

    fn recover(
        &self,
        request: &Request<'_>,
        before: Option<PreOpState>,
    ) -> Option<HandlerResult<Created, WccData>> {
        let wanted = match &self.what {
            mknod::What::CharacterDevice(set, _)
            | mknod::What::BlockDevice(set, _)
            | mknod::What::Socket(set)
            | mknod::What::Fifo(set) => set,
            mknod::What::Other(_) => return None,
        };
        created_reply(request, &self.location, before, wanted, |target, found| {
            target.fattr(&found.attributes).file_type == self.what.file_type()
        })
    }
}

impl Recover<WccData, WccData> for remove::Args<'_> {
    fn pre_op_state(&self, request: &Request<'_>) -> Option<PreOpState> {
        pre_op_state(request, &self.object)
    }

    fn recover(
        &self,
        request: &Request<'_>,
        before: Option<PreOpState>,
    ) -> Option<HandlerResult<WccData, WccData>> {
        removed(request, &self.object, before).map(done)
    }
}

impl Recover<WccData, WccData> for rmdir::Args<'_> {
    fn pre_op_state(&self, request: &Request<'_>) -> Option<PreOpState> {
        pre_op_state(request, &self.object)
    }

    fn recover(
        &self,
        request: &Request<'_>,
        before: Option<PreOpState>,
    ) -> Option<HandlerResult<WccData, WccData>> {
        removed(request, &self.object, before).map(done)
    }
}

impl Recover<rename::Success, rename::Success> for rename::Args<'_> {
    fn pre_op_state(&self, request: &Request<'_>) -> Option<PreOpState> {
        pre_op_state(request, &self.from)
    }

    fn recover(
        &self,
        request: &Request<'_>,
        before: Option<PreOpState>,
    ) -> Option<HandlerResult<rename::Success, rename::Success>> {
        let from = removed(request, &self.from, before)?;
        let to = request.open_for_change(&self.to.directory).ok()?;
        Some(done(from.and_then(|()| sync_names(&to))))
    }
}

impl Recover<link::Success, link::Success> for link::Args<'_> {
    fn pre_op_state(&self, request: &Request<'_>) -> Option<PreOpState> {
        pre_op_state(request, &self.link)
    }

    fn recover(
        &self,
        request: &Request<'_>,
        before: Option<PreOpState>,
    ) -> Option<HandlerResult<link::Success, link::Success>> {
        let (directory, found) = created(request, &self.link, before)?;
        let file = request.open_for_change(&self.file).ok()?;
        let is_same = std::ptr::eq(file.export, directory.export) && file.object == found.object;
        let attributes = Some(directory.fattr(&found.attributes));
        is_same.then(|| {
            Ok(match sync_names(&directory) {
                Ok(()) => Outcome::Ok(link::Success { attributes, directory: WccData::default() }),
                Err(status) => Outcome::Fail(status, link::Success::default()),
            })
        })
    }
}

impl Recover<WccData, WccData> for setattr::Args {
    fn pre_op_state(&self, _request: &Request<'_>) -> Option<PreOpState> {
        None
    }

    /// Only a guard makes the result of a second execution different. RFC 1813 s3.3.2
    fn recover(
        &self,
        request: &Request<'_>,
        _before: Option<PreOpState>,
    ) -> Option<HandlerResult<WccData, WccData>> {
        let guard = time_from_wire(self.guard?).ok()?;
        let set = set_attributes(&self.new_attributes).ok()?;
        let target = request.open_for_change(&self.object).ok()?;
        let now = target.attributes().ok()?.ok()?;
        let is = |wanted: Option<u32>, is: u32| wanted.is_none_or(|wanted| wanted == is);
        let at = |wanted: SetTime, is| !matches!(wanted, SetTime::To(time) if time != is);
        let is_done = is(set.mode, now.mode)
            && is(set.uid, now.uid)
            && is(set.gid, now.gid)
            && set.size.is_none_or(|size| size == now.size)
            && at(set.atime, now.atime)
            && at(set.mtime, now.mtime);
        (now.ctime != guard && is_done).then(|| Ok(Outcome::Ok(WccData::default())))
    }
}
