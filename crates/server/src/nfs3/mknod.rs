//! MKNOD: creates a device, a socket or a named pipe. RFC 1813 s3.3.11

use super::attributes::set_attributes;
use super::creation::create_object;
use super::request::{Request, Unanswered};
use nfs3::proc::mknod::{Args, Reply, What};
use nfs3::{Outcome, Status, WccData};
use store::{Kind, NewObject};

pub fn run(request: &Request<'_>, args: &Args<'_>) -> Result<Reply, Unanswered> {
    let (attributes, kind) = match &args.what {
        What::CharacterDevice(set, device) => (set, Kind::CharacterDevice(device.major, device.minor)),
        What::BlockDevice(set, device) => (set, Kind::BlockDevice(device.major, device.minor)),
        What::Socket(set) => (set, Kind::Socket),
        What::Fifo(set) => (set, Kind::Fifo),
        // RFC 1813 s3.3.11: other procedures create regular files, directories and links.
        What::Other(_) => return Ok(Outcome::Fail(Status::BADTYPE, WccData::default())),
    };
    match set_attributes(attributes) {
        Ok(set) => create_object(request, &args.location, NewObject::Special(set, kind)),
        Err(status) => Ok(Outcome::Fail(status, WccData::default())),
    }
}
