//! CREATE: creates a regular file. RFC 1813 s3.3.8

use super::attributes::set_attributes;
use super::creation::create_object;
use super::request::{HandlerError, Request};
use super::status;
use crate::nfs4_state::Change;
use fs::CreateMode;
use nfs3::proc::create::{Args, How, Reply};
use nfs3::{Outcome, Status, WccData};
use store::NewObject;

pub fn run(request: &Request<'_>, args: &Args<'_>) -> Result<Reply, HandlerError> {
    let mode = match &args.how {
        How::Unchecked(attributes) => set_attributes(attributes).map(CreateMode::Unchecked),
        How::Guarded(attributes) => set_attributes(attributes).map(CreateMode::Guarded),
        How::Exclusive(verifier) => Ok(CreateMode::Exclusive(*verifier)),
    };
    let begun = mode.and_then(|mode| Ok((begin_truncation(request, args, &mode)?, mode)));
    match begun {
        // The change is under way until the file is there.
        Ok((_change, mode)) => create_object(request, &args.location, NewObject::File(mode)),
        Err(status) => Ok(Outcome::Fail(status, WccData::default())),
    }
}

/// An existing file of the name may get another size, which is a write.
fn begin_truncation<'a>(
    request: &Request<'a>,
    args: &Args<'_>,
    mode: &CreateMode,
) -> Result<Option<Change<'a>>, Status> {
    let CreateMode::Unchecked(fs::SetAttributes { size: Some(_), .. }) = mode else { return Ok(None) };
    // What cannot be looked up cannot be created either, and that is said there.
    let Ok(directory) = request.open(&args.location.directory) else { return Ok(None) };
    if !request.heeds_opens_in(directory.export) {
        return Ok(None);
    }
    let Ok((_, Ok(found))) = directory.lookup(args.location.name) else { return Ok(None) };
    let Ok(file) = request.target(directory.export, found.object) else { return Ok(None) };
    request.begin_write(&file).map_err(status::of_store)
}
