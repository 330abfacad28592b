//! GETATTR: the attributes of an object. RFC 1813 s3.3.1

use super::request::{HandlerError, Request};
use super::status;
use nfs3::Outcome;
use nfs3::proc::getattr::{Args, Reply, Success};

#[inline]
pub fn run(request: &Request<'_>, args: &Args) -> Result<Reply, HandlerError> {
    let target = match request.open_nonblocking(&args.object) {
        Ok(target) => target,
        Err(error) => return error.reply(()),
    };
    Ok(match target.attributes()? {
        Ok(attributes) => Outcome::Ok(Success { attributes: target.fattr(&attributes) }),
        Err(error) => Outcome::Fail(status::of_store(error), ()),
    })
}
