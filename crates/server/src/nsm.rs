//! NSM: by NOTIFY other hosts say that they have restarted, so that their locks are freed. XNFS s11
//!
//! This status monitor monitors hosts for the locks of this server, and for no other program: MON
//! and STAT are answered so, and SIMU_CRASH does nothing. How hosts are told of a restart of this
//! server is in `nlm_hosts`.

use crate::group::Group;
use crate::nlm::args;
use crate::program::{Answered, Call, PlacedWrite, Program};
use crate::statistics::Names;
use nlm::Wire;
use nlm::nsm::{self, Procedure, monitor, notify, stat};
use rpc::portmap::Protocol;
use rpc::reply::{Accept, encode_success};
use std::ops::RangeInclusive;
use xdr::Writer;

/// The names of the procedures in statistics, by number.
const NAMES: [&str; Procedure::ALL.len()] =
    ["NSM NULL", "NSM STAT", "NSM MON", "NSM UNMON", "NSM UNMON_ALL", "NSM SIMU_CRASH", "NSM NOTIFY"];

/// See the module's documentation.
pub(crate) struct Nsm;

impl Program for Nsm {
    fn number(&self) -> u32 {
        nsm::PROGRAM
    }

    fn versions(&self) -> RangeInclusive<u32> {
        nsm::VERSION..=nsm::VERSION
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

fn try_serve(mut call: Call<'_, '_>) -> Result<Answered, Answered> {
    let procedure = Procedure::try_from(call.header.procedure);
    let procedure = procedure.map_err(|_| Answered::Accept(Accept::ProcUnavail))?;
    let shared = call.group.nfs4.as_ref().ok_or(Answered::Accept(Accept::ProgUnavail))?;
    let state = shared.nsm_state;
    let mut results = Vec::new();
    let out = &mut Writer::new(&mut results);
    let refusal = stat::Reply { answer: stat::Answer::Failure, state };
    match procedure {
        Procedure::Null | Procedure::SimuCrash => args::<()>(&mut call.reader)?,
        Procedure::Stat => {
            args::<stat::Args<'_>>(&mut call.reader)?;
            refusal.encode(out);
        }
        Procedure::Mon => {
            args::<monitor::Args<'_>>(&mut call.reader)?;
            refusal.encode(out);
        }
        Procedure::Unmon => {
            args::<monitor::Id<'_>>(&mut call.reader)?;
            nsm::State { state }.encode(out);
        }
        Procedure::UnmonAll => {
            args::<monitor::Caller<'_>>(&mut call.reader)?;
            nsm::State { state }.encode(out);
        }
        Procedure::Notify => {
            let args = args::<notify::Args<'_>>(&mut call.reader)?;
            shared.nlm_forget(call.times.now, call.client.peer.ip(), args.name.0, "has restarted");
        }
    }
    encode_success(&mut Writer::new(call.out), call.header.xid);
    call.out.extend_from_slice(&results);
    Ok(Answered::reply(false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_call_procedures_as_the_standard_does() {
        assert_eq!(Procedure::ALL.map(|procedure| format!("NSM {}", procedure.name())), NAMES);
    }
}
