//! CREATE: creates a regular file. RFC 1813 s3.3.8

use super::attributes::set_attributes;
use super::creation::create_object;
use super::request::{Request, Unanswered};
use nfs3::proc::create::{Args, How, Reply};
use nfs3::{Outcome, WccData};
use store::NewObject;

pub fn run(request: &Request<'_>, args: &Args<'_>) -> Result<Reply, Unanswered> {
    let new = match &args.how {
        How::Unchecked(attributes) => set_attributes(attributes).map(NewObject::File),
        How::Guarded(attributes) => set_attributes(attributes).map(NewObject::FileGuarded),
        How::Exclusive(verifier) => Ok(NewObject::FileExclusive(*verifier)),
    };
    match new {
        Ok(new) => create_object(request, &args.location, new),
        Err(status) => Ok(Outcome::Fail(status, WccData::default())),
    }
}
