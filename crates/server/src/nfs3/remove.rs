//! REMOVE: removes a name of anything but a directory. RFC 1813 s3.3.12

use super::request::{HandlerError, Request};
use super::status;
use nfs3::proc::remove::{Args, Reply};
use nfs3::{Outcome, WccData};

pub fn run(request: &Request<'_>, args: &Args<'_>) -> Result<Reply, HandlerError> {
    let target = match request.open_for_change(&args.object.directory) {
        Ok(target) => target,
        Err(error) => return error.reply(WccData::default()),
    };
    let _change = match request.begin_change_named(&target, args.object.name) {
        Ok(change) => change,
        Err(status) => return Ok(Outcome::Fail(status::of_store(status), WccData::default())),
    };
    let _held = request.hold_if_open(&target, args.object.name);
    let (effect, result) =
        target.export.store.remove(target.squashed.caller(), target.object, args.object.name);
    Ok(match result {
        Ok(()) => Outcome::Ok(target.wcc(&effect)),
        Err(error) => Outcome::Fail(status::of_store(error), target.wcc(&effect)),
    })
}
