//! FSINFO: the sizes that the server accepts, and the features that it supports. RFC 1813 s3.3.19

use super::request::{HandlerError, Request};
use super::status;
use crate::program::IO_BYTES_MAX;
use nfs3::proc::fsinfo::{Args, CAN_SET_TIME, HOMOGENEOUS, LINK, Reply, SYMLINK, Success};
use nfs3::{NfsTime, Outcome};

/// The preferred size of a listing: a few hundred entries with attributes.
const DIRECTORY_BYTES_PREFERRED: u32 = 64 << 10;
/// The page size: data aligned to pages are written without reading the rest of a page.
const MULTIPLE: u32 = 4096;

pub fn run(request: &Request<'_>, args: &Args) -> Result<Reply, HandlerError> {
    let target = match request.open(&args.root) {
        Ok(target) => target,
        Err(error) => return error.reply(None),
    };
    let capabilities = target.export.store.capabilities();
    Ok(match target.attributes()? {
        Ok(attributes) => Outcome::Ok(Success {
            attributes: Some(target.fattr(&attributes)),
            read_max: IO_BYTES_MAX,
            read_preferred: IO_BYTES_MAX,
            read_multiple: MULTIPLE,
            write_max: IO_BYTES_MAX,
            write_preferred: IO_BYTES_MAX,
            write_multiple: MULTIPLE,
            directory_preferred: DIRECTORY_BYTES_PREFERRED,
            file_bytes_max: capabilities.file_bytes_max,
            time_delta: NfsTime { seconds: 0, nanoseconds: capabilities.time_delta.subsec_nanos() },
            properties: LINK | SYMLINK | HOMOGENEOUS | CAN_SET_TIME,
        }),
        Err(error) => Outcome::Fail(status::of_store(error), None),
    })
}
