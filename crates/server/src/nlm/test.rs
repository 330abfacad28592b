//! TEST: whether a lock would be granted, and which one is in the way. RFC 1813 s6.3.1

use super::HandlerResult;
use super::request::NlmRequest;
use super::status::of_state;
use crate::nlm_hosts::decode_owner;
use nlm::proc::test::{Args, Outcome, Reply};
use nlm::{Holder, NET_OBJECT_BYTES_MAX, NetObj, Status, Wire};
use state::Error;
use xdr::Writer;

/// Writes the results.
pub(super) fn run(request: &NlmRequest<'_>, args: &Args<'_>, results: &mut Vec<u8>) -> HandlerResult<Status> {
    let tested = match request.named_file(&args.lock, args.exclusive)? {
        Ok(named) => {
            let shared = request.shared;
            shared.state.nlm_test(shared.host(), request.now, &named.lock())
        }
        Err(status) => {
            write(results, args, Outcome::Other(status));
            return Ok(status);
        }
    };
    Ok(match tested {
        Ok(()) => write(results, args, Outcome::Other(Status::GRANTED)),
        Err(Error::Denied(holder)) => {
            // A client of version 4 has no process number.
            let (svid, owner) =
                if holder.is_nlm { decode_owner(&holder.owner) } else { (0, holder.owner.as_slice()) };
            let owner = owner.get(..NET_OBJECT_BYTES_MAX as usize).unwrap_or(owner);
            let (offset, exclusive) = (holder.offset, holder.exclusive);
            let length = if holder.length == u64::MAX { 0 } else { holder.length };
            let held = Holder { exclusive, svid, owner: NetObj(owner), offset, length };
            write(results, args, Outcome::Denied(held))
        }
        Err(error) => write(results, args, Outcome::Other(of_state(&error))),
    })
}

fn write(results: &mut Vec<u8>, args: &Args<'_>, outcome: Outcome<'_>) -> Status {
    Reply { cookie: args.cookie, outcome }.encode(&mut Writer::new(results));
    match outcome {
        Outcome::Denied(_) => Status::DENIED,
        Outcome::Other(status) => status,
    }
}
