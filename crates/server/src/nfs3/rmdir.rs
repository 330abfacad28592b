//! RMDIR: removes an empty directory. RFC 1813 s3.3.13

use super::request::{HandlerError, Request};
use super::status;
use nfs3::proc::rmdir::{Args, Reply};
use nfs3::{Outcome, Status, WccData};

pub fn run(request: &Request<'_>, args: &Args<'_>) -> Result<Reply, HandlerError> {
    let target = match request.open_for_change(&args.object.directory) {
        Ok(target) => target,
        Err(error) => return error.reply(WccData::default()),
    };
    // RFC 1813 s3.3.13: "." is NFS3ERR_INVAL and ".." is NFS3ERR_EXIST, whatever the directory
    // contains.
    match args.object.name {
        b"." => return Ok(Outcome::Fail(Status::INVAL, WccData::default())),
        b".." => return Ok(Outcome::Fail(Status::EXIST, WccData::default())),
        _ => {}
    }
    let (effect, result) =
        target.export.store.remove_directory(target.squashed.caller(), target.object, args.object.name);
    Ok(match result {
        Ok(()) => Outcome::Ok(target.wcc(&effect)),
        Err(error) => Outcome::Fail(status::of_store(error), target.wcc(&effect)),
    })
}
