//! PATHCONF: limits of names and links. RFC 1813 s3.3.20

use super::request::{HandlerError, Request};
use super::status;
use nfs3::Outcome;
use nfs3::proc::pathconf::{Args, Reply, Success};

pub fn run(request: &Request<'_>, args: &Args) -> Result<Reply, HandlerError> {
    let target = match request.open(&args.object) {
        Ok(target) => target,
        Err(error) => return error.reply(None),
    };
    let limits = target.export.store.capabilities().limits;
    Ok(match target.attributes()? {
        Ok(attributes) => Outcome::Ok(Success {
            attributes: Some(target.fattr(&attributes)),
            links_max: limits.links_max,
            name_bytes_max: limits.name_bytes_max,
            no_truncation: limits.no_truncation,
            chown_restricted: limits.chown_restricted,
            case_insensitive: limits.case_insensitive,
            case_preserving: limits.case_preserving,
        }),
        Err(error) => Outcome::Fail(status::of_store(error), None),
    })
}
