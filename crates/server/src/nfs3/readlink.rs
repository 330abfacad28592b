//! READLINK: the target of a symbolic link. RFC 1813 s3.3.5

use super::request::{HandlerError, Request};
use super::status;
use nfs3::Outcome;
use nfs3::proc::readlink::{Args, Reply, Success};

/// `text` is the buffer for the target.
pub fn run<'t>(request: &Request<'_>, args: &Args, text: &'t mut Vec<u8>) -> Result<Reply<'t>, HandlerError> {
    let target = match request.open(&args.symlink) {
        Ok(target) => target,
        Err(error) => return error.reply(None),
    };
    text.clear();
    Ok(match target.export.store.read_link(target.object, text) {
        Ok(attributes) => Outcome::Ok(Success { attributes: Some(target.fattr(&attributes)), target: text }),
        Err(error) => Outcome::Fail(status::of_store(error), target.post_op()),
    })
}
