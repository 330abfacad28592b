//! CREATE: creates a regular file. RFC 1813 s3.3.8

use super::attributes::set_attributes;
use super::creation::create_object;
use super::request::{HandlerError, Request};
use fs::CreateMode;
use nfs3::proc::create::{Args, How, Reply};
use nfs3::{Outcome, WccData};
use store::NewObject;

pub fn run(request: &Request<'_>, args: &Args<'_>) -> Result<Reply, HandlerError> {
    let mode = match &args.how {
        How::Unchecked(attributes) => set_attributes(attributes).map(CreateMode::Unchecked),
        How::Guarded(attributes) => set_attributes(attributes).map(CreateMode::Guarded),
        How::Exclusive(verifier) => Ok(CreateMode::Exclusive(*verifier)),
    };
    match mode {
        Ok(mode) => create_object(request, &args.location, NewObject::File(mode)),
        Err(status) => Ok(Outcome::Fail(status, WccData::default())),
    }
}
