//! ACCESS: which of the requested rights the caller has. RFC 1813 s3.3.4

use super::request::{HandlerError, Request};
use super::status;
use fs::Rights;
use nfs3::Outcome;
use nfs3::proc::access::{ALL, Args, DELETE, EXTEND, MODIFY, Reply, Success};

pub fn run(request: &Request<'_>, args: &Args) -> Result<Reply, HandlerError> {
    let target = match request.open_nonblocking(&args.object) {
        Ok(target) => target,
        Err(error) => return error.reply(None),
    };
    let refused = if target.export.config.read_only { MODIFY | EXTEND | DELETE } else { 0 };
    let wanted = args.access & ALL & !refused;
    Ok(match target.access(Rights(wanted))? {
        Ok((rights, attributes)) => {
            Outcome::Ok(Success { attributes: Some(target.fattr(&attributes)), access: rights.0 & wanted })
        }
        Err(error) => Outcome::Fail(status::of_store(error), target.post_op()),
    })
}
