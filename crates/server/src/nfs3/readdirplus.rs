//! READDIRPLUS: the names in a directory, with attributes and handles. RFC 1813 s3.3.17

use super::request::{HandlerError, Request};
use super::status;
use super::{COOKIE_VERIFIER, DIRECTORY_BYTES_MAX};
use nfs3::proc::readdirplus::{Args, Entry, EntryWriter};
use nfs3::{Outcome, PostOpAttr, Status, Wire};
use xdr::Writer;

/// Appends the whole reply, and returns its status.
pub fn run(request: &Request<'_>, args: &Args, out: &mut Vec<u8>) -> Result<Status, HandlerError> {
    let target = match request.open(&args.directory) {
        Ok(target) => target,
        Err(error) => {
            let reply: Outcome<(), PostOpAttr> = error.reply(None)?;
            reply.encode(&mut Writer::new(out));
            return Ok(reply.status());
        }
    };
    let maxcount = args.maxcount.min(DIRECTORY_BYTES_MAX);
    let mut entries = EntryWriter::new(out, COOKIE_VERIFIER, args.dircount, maxcount);
    let caller = target.squashed.caller();
    let end = target.export.store.read_directory(caller, target.object, args.cookie, &mut |entry| {
        let object = entry.found.object;
        entries.add(&Entry {
            fileid: object.fileid,
            name: entry.name,
            cookie: entry.cookie,
            attributes: Some(target.fattr(&entry.found.attributes)),
            handle: Some(target.export.handle(object)),
        })
    });
    Ok(match end {
        Ok(end) => entries.finish(end.eof, Some(target.fattr(&end.attributes))),
        Err(error) => entries.fail(status::of_store(error), target.post_op()),
    })
}
