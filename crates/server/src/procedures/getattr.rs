//! GETATTR: the attributes of an object. RFC 1813 s3.3.1

use crate::request::Request;
use crate::status;
use nfs3::Outcome;
use nfs3::proc::getattr::{Args, Reply, Success};
use rpc::auth::AuthStat;

#[inline]
pub fn run(request: &Request<'_>, args: &Args) -> Result<Reply, AuthStat> {
    let target = match request.open(&args.object) {
        Ok(target) => target,
        Err(stop) => return stop.reply(()),
    };
    Ok(match target.export.store.attributes(target.object) {
        Ok(attributes) => Outcome::Ok(Success { attributes: target.fattr(&attributes) }),
        Err(error) => Outcome::Fail(status::of_store(error), ()),
    })
}
