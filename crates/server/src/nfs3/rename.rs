//! RENAME: gives an object another name, and replaces an object that has that name. RFC 1813
//! s3.3.14

use super::request::{HandlerError, Request};
use super::status;
use nfs3::proc::rename::{Args, Reply, Success};
use nfs3::{Outcome, Status};

pub fn run(request: &Request<'_>, args: &Args<'_>) -> Result<Reply, HandlerError> {
    let from = match request.open_for_change(&args.from.directory) {
        Ok(target) => target,
        Err(error) => return error.reply(Success::default()),
    };
    let to = match request.open_for_change(&args.to.directory) {
        Ok(target) => target,
        Err(error) => return error.reply(Success::default()),
    };
    if !std::ptr::eq(from.export, to.export) {
        return Ok(Outcome::Fail(Status::XDEV, Success::default()));
    }
    let moved = request.begin_change_named(&from, args.from.name);
    let begun = moved.and_then(|moved| Ok((moved, request.begin_change_named(&to, args.to.name)?)));
    let _changes = match begun {
        Ok(changes) => changes,
        Err(status) => return Ok(Outcome::Fail(status::of_store(status), Success::default())),
    };
    let _held = request.hold_if_open(&to, args.to.name);
    let (source, place) = ((from.object, args.from.name), (to.object, args.to.name));
    let (left, moved, result) = from.export.store.rename(from.squashed.caller(), source, place);
    let both = Success { from: from.wcc(&left), to: to.wcc(&moved) };
    Ok(match result {
        Ok(()) => Outcome::Ok(both),
        Err(error) => Outcome::Fail(status::of_store(error), both),
    })
}
