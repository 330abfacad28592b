//! MKDIR: creates a directory. RFC 1813 s3.3.9

use super::attributes::set_attributes;
use super::creation::create_object;
use super::request::{HandlerError, Request};
use nfs3::proc::mkdir::{Args, Reply};
use nfs3::{Outcome, WccData};
use store::NewObject;

pub fn run(request: &Request<'_>, args: &Args<'_>) -> Result<Reply, HandlerError> {
    match set_attributes(&args.attributes) {
        Ok(set) => create_object(request, &args.location, NewObject::Directory(set)),
        Err(status) => Ok(Outcome::Fail(status, WccData::default())),
    }
}
