//! SYMLINK: creates a symbolic link. RFC 1813 s3.3.10

use super::attributes::set_attributes;
use super::creation::create_object;
use super::request::{HandlerError, Request};
use nfs3::proc::symlink::{Args, Reply};
use nfs3::{Outcome, WccData};
use store::NewObject;

pub fn run(request: &Request<'_>, args: &Args<'_>) -> Result<Reply, HandlerError> {
    match set_attributes(&args.attributes) {
        Ok(set) => create_object(request, &args.location, NewObject::Symlink(set, args.target)),
        Err(status) => Ok(Outcome::Fail(status, WccData::default())),
    }
}
