//! ACCESS: which of some rights the caller has. RFC 1813 s3.3.4

use crate::request::Request;
use crate::status;
use nfs3::Outcome;
use nfs3::proc::access::{ALL, Args, DELETE, EXTEND, MODIFY, Reply, Success};
use rpc::auth::AuthStat;

pub fn run(request: &Request<'_>, args: &Args) -> Result<Reply, AuthStat> {
    let target = match request.open(&args.object) {
        Ok(target) => target,
        Err(stop) => return stop.reply(None),
    };
    let refused = if target.export.config.read_only { MODIFY | EXTEND | DELETE } else { 0 };
    let wanted = args.access & ALL & !refused;
    Ok(match target.export.store.access(target.who.caller(), target.object, wanted) {
        Ok((access, attributes)) => {
            Outcome::Ok(Success { attributes: Some(target.fattr(&attributes)), access: access & wanted })
        }
        Err(error) => Outcome::Fail(status::of_store(error), target.post_op()),
    })
}
