//! SETATTR: sets attributes, if the guard still matches the object. RFC 1813 s3.3.2

use super::attributes::{set_attributes, time_from_wire};
use super::request::{HandlerError, Request};
use super::status;
use nfs3::proc::setattr::{Args, Reply};
use nfs3::{Outcome, WccData};

pub fn run(request: &Request<'_>, args: &Args) -> Result<Reply, HandlerError> {
    let target = match request.open_for_change(&args.object) {
        Ok(target) => target,
        Err(error) => return error.reply(WccData::default()),
    };
    let set = set_attributes(&args.new_attributes);
    let guard = args.guard.map(time_from_wire).transpose();
    let (set, guard) = match (set, guard) {
        (Ok(set), Ok(guard)) => (set, guard),
        (Err(status), _) | (_, Err(status)) => return Ok(Outcome::Fail(status, WccData::default())),
    };
    // A change of the size is a write.
    let begun = if set.size.is_some() { request.begin_write(&target) } else { request.begin_change(&target) };
    let _change = match begun {
        Ok(change) => change,
        Err(status) => return Ok(Outcome::Fail(status::of_store(status), WccData::default())),
    };
    let (effect, result) =
        target.export.store.set_attributes(target.squashed.caller(), target.object, &set, guard);
    Ok(match result {
        Ok(()) => Outcome::Ok(target.wcc(&effect)),
        Err(error) => Outcome::Fail(status::of_store(error), target.wcc(&effect)),
    })
}
