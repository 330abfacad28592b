//! RENAME: gives an object another name, and replaces an object that has that name. RFC 1813
//! s3.3.14

use super::request::{Request, Unanswered};
use super::status;
use nfs3::proc::rename::{Args, Reply, Success};
use nfs3::{Outcome, Status};

pub fn run(request: &Request<'_>, args: &Args<'_>) -> Result<Reply, Unanswered> {
    let from = match request.open_for_change(&args.from.directory) {
        Ok(target) => target,
        Err(stop) => return stop.reply(Success::default()),
    };
    let to = match request.open_for_change(&args.to.directory) {
        Ok(target) => target,
        Err(stop) => return stop.reply(Success::default()),
    };
    if !std::ptr::eq(from.export, to.export) {
        return Ok(Outcome::Fail(Status::XDEV, Success::default()));
    }
    let (source, place) = ((from.object, args.from.name), (to.object, args.to.name));
    let (left, came, result) = from.export.store.rename(from.who.caller(), source, place);
    let both = Success { from: from.wcc(&left), to: to.wcc(&came) };
    Ok(match result {
        Ok(()) => Outcome::Ok(both),
        Err(error) => Outcome::Fail(status::of_store(error), both),
    })
}
