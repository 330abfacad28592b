//! COMMIT: makes unstable data durable. RFC 1813 s3.3.21

use super::request::{HandlerError, Request};
use super::status;
use nfs3::proc::commit::{Args, Reply, Success};
use nfs3::{Outcome, WccData};

pub fn run(request: &Request<'_>, args: &Args) -> Result<Reply, HandlerError> {
    let target = match request.open_for_change_nonblocking(&args.file) {
        Ok(target) => target,
        Err(error) => return error.reply(WccData::default()),
    };
    let (effect, result) = target.commit(args.offset, args.count)?;
    let file = target.wcc(&effect);
    Ok(match result {
        Ok(verifier) => Outcome::Ok(Success { file, verifier: verifier.to_be_bytes() }),
        Err(error) => Outcome::Fail(status::of_store(error), file),
    })
}
