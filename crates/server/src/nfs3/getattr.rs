//! GETATTR: the attributes of an object. RFC 1813 s3.3.1

use super::request::{Request, Unanswered};
use super::status;
use nfs3::Outcome;
use nfs3::proc::getattr::{Args, Reply, Success};

#[inline]
pub fn run(request: &Request<'_>, args: &Args) -> Result<Reply, Unanswered> {
    let target = match request.open_at_once(&args.object) {
        Ok(target) => target,
        Err(stop) => return stop.reply(()),
    };
    Ok(match target.attributes()? {
        Ok(attributes) => Outcome::Ok(Success { attributes: target.fattr(&attributes) }),
        Err(error) => Outcome::Fail(status::of_store(error), ()),
    })
}
