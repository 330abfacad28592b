//! The common part of CREATE, MKDIR, SYMLINK and MKNOD. RFC 1813 s3.3.8 to s3.3.11

use super::request::{HandlerError, Request};
use super::status;
use nfs3::{Created, DirOpArgs, Outcome, WccData};
use store::NewObject;

/// Creates an object and builds the reply.
pub fn create_object(
    request: &Request<'_>,
    location: &DirOpArgs<'_>,
    new: NewObject<'_>,
) -> Result<Outcome<Created, WccData>, HandlerError> {
    let target = match request.open_for_change(&location.directory) {
        Ok(target) => target,
        Err(error) => return error.reply(WccData::default()),
    };
    let (effect, result) =
        target.export.store.create(target.squashed.caller(), target.object, location.name, new);
    let directory = target.wcc(&effect);
    Ok(match result {
        Ok(created) => Outcome::Ok(Created {
            object: Some(target.export.handle(created.object)),
            attributes: Some(target.fattr(&created.attributes)),
            directory,
        }),
        Err(error) => Outcome::Fail(status::of_store(error), directory),
    })
}
