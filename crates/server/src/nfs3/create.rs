//! CREATE: creates a regular file. RFC 1813 s3.3.8

use super::attributes::set_attributes;
use super::creation::create_object;
use super::request::{HandlerError, Request};
use super::status;
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
    let mode = mode.and_then(|mode| may_truncate(request, args, &mode).map(|()| mode));
    match mode {
        Ok(mode) => create_object(request, &args.location, NewObject::File(mode)),
        Err(status) => Ok(Outcome::Fail(status, WccData::default())),
    }
}

/// Whether an existing file of the name may get another size, which is a write.
fn may_truncate(request: &Request<'_>, args: &Args<'_>, mode: &CreateMode) -> Result<(), Status> {
    let CreateMode::Unchecked(fs::SetAttributes { size: Some(_), .. }) = mode else { return Ok(()) };
    if !request.meets_denials() {
        return Ok(());
    }
    // What cannot be looked up cannot be created either, and that is said there.
    let Ok(directory) = request.open(&args.location.directory) else { return Ok(()) };
    let Ok((_, Ok(found))) = directory.lookup(args.location.name) else { return Ok(()) };
    let Ok(file) = request.target(directory.export, found.object) else { return Ok(()) };
    request.check_denials(&file, state::WRITE).map_err(status::of_store)
}
