//! MKNOD: creates a device, a socket or a named pipe. RFC 1813 s3.3.11

use super::attributes::set_attributes;
use super::creation::create_object;
use super::request::{HandlerError, Request};
use fs::{Device, Special};
use nfs3::proc::mknod::{Args, Reply, What};
use nfs3::{Outcome, SpecData, Status, WccData};
use store::NewObject;

pub fn run(request: &Request<'_>, args: &Args<'_>) -> Result<Reply, HandlerError> {
    let number = |device: &SpecData| Device { major: device.major, minor: device.minor };
    let (attributes, special) = match &args.what {
        What::CharacterDevice(set, device) => (set, Special::CharacterDevice(number(device))),
        What::BlockDevice(set, device) => (set, Special::BlockDevice(number(device))),
        What::Socket(set) => (set, Special::Socket),
        What::Fifo(set) => (set, Special::Fifo),
        // RFC 1813 s3.3.11: other procedures create regular files, directories and links.
        What::Other(_) => return Ok(Outcome::Fail(Status::BADTYPE, WccData::default())),
    };
    match set_attributes(attributes) {
        Ok(set) => create_object(request, &args.location, NewObject::Special(set, special)),
        Err(status) => Ok(Outcome::Fail(status, WccData::default())),
    }
}
