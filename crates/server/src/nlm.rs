//! NLM version 4: locks of clients of NFS version 3, in the same table as those of version 4. RFC
//! 1813 s6
//!
//! Who may use an export may lock its files, by whatever user: a client's lock manager does not
//! call in the name of the user that locks, and a lock is advice. A host is monitored before it has
//! its first lock: after a restart of this server it is told, and may reclaim (`nsm`, `nlm_hosts`).
//! It has its locks until it unlocks them, or is known to have restarted.
//!
//! SHARE and UNSHARE are refused: a reservation of the state belongs to an open of a session, which
//! a client of version 3 does not have.

mod cancel;
mod free_all;
mod lock;
mod request;
mod share;
mod status;
mod test;
mod unlock;

use crate::group::Group;
use crate::program::{Answered, Call, Mode, PlacedWrite, Program};
use crate::request::HandlerError;
use crate::statistics::Names;
use nlm::{Form, Procedure, Status, Wire};
use request::NlmRequest;
use rpc::auth::AuthStat;
use rpc::portmap::Protocol;
use rpc::reply::{Accept, Reject, encode_success};
use std::ops::RangeInclusive;
use xdr::{Reader, Writer};

/// The names of the procedures in statistics, by number. RFC 1813 s6.3
const NAMES: [&str; 24] = [
    "NLM NULL",
    "NLM TEST",
    "NLM LOCK",
    "NLM CANCEL",
    "NLM UNLOCK",
    "NLM GRANTED",
    "NLM TEST_MSG",
    "NLM LOCK_MSG",
    "NLM CANCEL_MSG",
    "NLM UNLOCK_MSG",
    "NLM GRANTED_MSG",
    "NLM TEST_RES",
    "NLM LOCK_RES",
    "NLM CANCEL_RES",
    "NLM UNLOCK_RES",
    "NLM GRANTED_RES",
    // These have no procedure.
    "NLM 16",
    "NLM 17",
    "NLM 18",
    "NLM 19",
    "NLM SHARE",
    "NLM UNSHARE",
    "NLM NM_LOCK",
    "NLM FREE_ALL",
];

/// See the module's documentation.
pub(crate) struct Nlm;

impl Program for Nlm {
    fn number(&self) -> u32 {
        nlm::PROGRAM
    }

    fn versions(&self) -> RangeInclusive<u32> {
        nlm::VERSION..=nlm::VERSION
    }

    fn procedures(&self) -> Names {
        &NAMES
    }

    fn protocols(&self) -> &'static [Protocol] {
        &[Protocol::Tcp, Protocol::Udp]
    }

    fn is_served(&self, group: &Group) -> bool {
        group.serves_nlm()
    }

    fn is_for_locks(&self) -> bool {
        true
    }

    fn needs_identity(&self) -> bool {
        false
    }

    fn serve(&self, call: Call<'_, '_>, _placed: Option<PlacedWrite>) -> Answered {
        try_serve(call).unwrap_or_else(|refused| refused)
    }
}

/// Decodes all arguments of a call of NLM or NSM.
pub(crate) fn args<'r, A: Wire<'r>>(reader: &mut Reader<'r>) -> Result<A, Answered> {
    let args = A::decode(reader).map_err(|_| Answered::Accept(Accept::GarbageArgs))?;
    reader.finish().map_err(|_| Answered::Accept(Accept::GarbageArgs))?;
    Ok(args)
}

fn try_serve(mut call: Call<'_, '_>) -> Result<Answered, Answered> {
    let procedure = Procedure::try_from(call.header.procedure);
    let procedure = procedure.map_err(|_| Answered::Accept(Accept::ProcUnavail))?;
    let shared = call.group.nfs4.as_ref().ok_or(Answered::Accept(Accept::ProgUnavail))?;
    if call.client.admitted.is_empty() {
        return Err(Answered::Reject(Reject::Auth(AuthStat::TOOWEAK)));
    }
    if matches!(call.mode, Mode::Discard) {
        return Ok(Answered::Elsewhere);
    }
    let reader = &mut call.reader;
    let request = NlmRequest::new(shared, call.client, call.times.now, call.mode);
    let mut results = Vec::new();
    let (caller, status) = match procedure {
        Procedure::Null => (&b""[..], Status::GRANTED),
        Procedure::Test | Procedure::TestMsg => {
            let args = args::<nlm::proc::test::Args<'_>>(reader)?;
            (args.lock.caller.0, test::run(&request, &args, &mut results)?)
        }
        Procedure::Lock | Procedure::LockMsg | Procedure::NmLock => {
            let args = args::<nlm::proc::lock::Args<'_>>(reader)?;
            let is_monitored = procedure != Procedure::NmLock;
            let status = lock::run(&request, &args, is_monitored)?;
            (args.lock.caller.0, reply(&mut results, args.cookie, status))
        }
        Procedure::Cancel | Procedure::CancelMsg => {
            let args = args::<nlm::proc::cancel::Args<'_>>(reader)?;
            let status = cancel::run(&request, &args);
            (args.lock.caller.0, reply(&mut results, args.cookie, status))
        }
        Procedure::Unlock | Procedure::UnlockMsg => {
            let args = args::<nlm::proc::unlock::Args<'_>>(reader)?;
            let status = unlock::run(&request, &args);
            (args.lock.caller.0, reply(&mut results, args.cookie, status))
        }
        Procedure::Share | Procedure::Unshare => {
            let args = args::<nlm::proc::share::Args<'_>>(reader)?;
            (args.share.caller.0, share::run(&args, &mut results))
        }
        Procedure::FreeAll => {
            let args = args::<nlm::proc::free_all::Args<'_>>(reader)?;
            free_all::run(&request, &args);
            (args.name.0, Status::GRANTED)
        }
        // What this server calls, it calls for a reply.
        Procedure::TestRes
        | Procedure::LockRes
        | Procedure::CancelRes
        | Procedure::UnlockRes
        | Procedure::GrantedRes => (&b""[..], Status::GRANTED),
        // Only a client waits for locks.
        Procedure::Granted | Procedure::GrantedMsg => return Err(Answered::Accept(Accept::ProcUnavail)),
    };
    encode_success(&mut Writer::new(call.out), call.header.xid);
    match procedure.outcome() {
        Some(outcome) if procedure.form() == Form::Message => {
            shared.host_calls.outcome(request.host(caller), outcome, results);
        }
        _ => call.out.extend_from_slice(&results),
    }
    Ok(Answered::reply(!matches!(status, Status::GRANTED | Status::BLOCKED)))
}

/// Writes results that are a cookie and a status.
fn reply(results: &mut Vec<u8>, cookie: nlm::NetObj<'_>, status: Status) -> Status {
    nlm::proc::Reply { cookie, status }.encode(&mut Writer::new(results));
    status
}

/// What a handler returns.
type HandlerResult<T> = Result<T, HandlerError>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_call_procedures_as_the_standard_does() {
        for procedure in Procedure::ALL {
            assert_eq!(NAMES[procedure.number() as usize], format!("NLM {}", procedure.name()));
        }
    }
}
