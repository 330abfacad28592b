//! READ: data of a file, as pinned views of the store's memory. RFC 1813 s3.3.6

use super::request::{HandlerError, Request};
use super::status;
use crate::program::IO_BYTES_MAX;
use crate::replies::Payload;
use nfs3::Outcome;
use nfs3::proc::read::{Args, Reply, ReplyHead};

/// Appends the data to `payload`, which stays empty on a failure.
#[inline]
pub fn run(request: &Request<'_>, args: &Args, payload: &mut Payload) -> Result<Reply, HandlerError> {
    let target = match request.open_nonblocking(&args.file) {
        Ok(target) => target,
        Err(error) => return error.reply(None),
    };
    if let Err(status) = request.check_denials(&target, state::READ) {
        return Ok(Outcome::Fail(status::of_store(status), target.post_op()));
    }
    // A count above rtmax is reduced to rtmax: a short read, which RFC 1813 s3.3.6 allows.
    let count = args.count.min(IO_BYTES_MAX);
    match target.read(args.offset, count, payload)? {
        Ok(end) => Ok(Outcome::Ok(ReplyHead {
            attributes: Some(target.fattr(&end.attributes)),
            count: end.count,
            eof: end.eof,
        })),
        Err(error) => {
            payload.clear();
            Ok(Outcome::Fail(status::of_store(error), target.post_op()))
        }
    }
}
