//! LOOKUP: finds the object of a name in a directory. RFC 1813 s3.3.3

use super::request::{HandlerError, Request};
use super::status;
use nfs3::Outcome;
use nfs3::proc::lookup::{Args, Reply, Success};

pub fn run(request: &Request<'_>, args: &Args<'_>) -> Result<Reply, HandlerError> {
    let target = match request.open_nonblocking(&args.what.directory) {
        Ok(target) => target,
        Err(error) => return error.reply(None),
    };
    let (directory, result) = target.lookup(args.what.name)?;
    let directory = directory.map(|directory| target.fattr(&directory));
    Ok(match result {
        Ok(found) => Outcome::Ok(Success {
            object: target.export.handle(found.object),
            attributes: Some(target.fattr(&found.attributes)),
            directory,
        }),
        Err(error) => Outcome::Fail(status::of_store(error), directory),
    })
}
