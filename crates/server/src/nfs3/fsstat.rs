//! FSSTAT: space and objects, total and free. RFC 1813 s3.3.18

use super::request::{HandlerError, Request};
use super::status;
use nfs3::Outcome;
use nfs3::proc::fsstat::{Args, Reply, Success};

pub fn run(request: &Request<'_>, args: &Args) -> Result<Reply, HandlerError> {
    let target = match request.open(&args.root) {
        Ok(target) => target,
        Err(error) => return error.reply(None),
    };
    let space = target.export.store.space();
    Ok(match target.attributes()? {
        Ok(attributes) => Outcome::Ok(Success {
            attributes: Some(target.fattr(&attributes)),
            total_bytes: space.total_bytes,
            free_bytes: space.free_bytes,
            available_bytes: space.available_bytes,
            total_files: space.total_files,
            free_files: space.free_files,
            available_files: space.available_files,
            // Any call may change the values.
            invariant_seconds: 0,
        }),
        Err(error) => Outcome::Fail(status::of_store(error), None),
    })
}
