//! LINK: gives an object an additional name. RFC 1813 s3.3.15

use super::request::{HandlerError, Request};
use super::status;
use nfs3::proc::link::{Args, Reply, Success};
use nfs3::{Outcome, Status};

pub fn run(request: &Request<'_>, args: &Args<'_>) -> Result<Reply, HandlerError> {
    let file = match request.open_for_change(&args.file) {
        Ok(target) => target,
        Err(error) => return error.reply(Success::default()),
    };
    let directory = match request.open_for_change(&args.link.directory) {
        Ok(target) => target,
        Err(error) => return error.reply(Success::default()),
    };
    if !std::ptr::eq(file.export, directory.export) {
        return Ok(Outcome::Fail(Status::XDEV, Success::default()));
    }
    let _change = match request.begin_change(&file) {
        Ok(change) => change,
        Err(status) => return Ok(Outcome::Fail(status::of_store(status), Success::default())),
    };
    let store = &file.export.store;
    let (attributes, effect, result) =
        store.link(file.squashed.caller(), file.object, directory.object, args.link.name);
    let attributes = attributes.map(|attributes| file.fattr(&attributes));
    let both = Success { attributes, directory: directory.wcc(&effect) };
    Ok(match result {
        Ok(()) => Outcome::Ok(both),
        Err(error) => Outcome::Fail(status::of_store(error), both),
    })
}
