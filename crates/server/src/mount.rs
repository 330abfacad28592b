//! MOUNT version 3: passes calls to their handlers. RFC 1813 s5.2

mod dump;
mod export;
mod mnt;
mod umnt;
mod umntall;

use crate::nfs3::call::write;
use crate::program::{Answered, Call, PlacedWrite, Program};
use crate::statistics::Names;
use nfs3::Status;
use nfs3::mount::Procedure;
use nfs3::mount::{mnt as mnt_wire, umnt as umnt_wire};
use rpc::portmap::Protocol;
use rpc::reply::{Accept, encode_success};
use std::ops::RangeInclusive;
use xdr::Writer;

/// The procedure names in statistics, by number. RFC 1813 s5.2
const NAMES: [&str; Procedure::ALL.len()] =
    ["MOUNT NULL", "MOUNT MNT", "MOUNT DUMP", "MOUNT UMNT", "MOUNT UMNTALL", "MOUNT EXPORT"];

/// The most bytes of a client's path that the log shows.
const LOGGED_PATH_BYTES_MAX: usize = 200;

/// The beginning of a client's path, safe to print.
fn logged_path(path: &[u8]) -> std::slice::EscapeAscii<'_> {
    path.get(..LOGGED_PATH_BYTES_MAX).unwrap_or(path).escape_ascii()
}

/// See the module's documentation.
pub(crate) struct Mount;

impl Program for Mount {
    fn number(&self) -> u32 {
        nfs3::mount::PROGRAM
    }

    fn versions(&self) -> RangeInclusive<u32> {
        nfs3::mount::VERSION..=nfs3::mount::VERSION
    }

    fn procedures(&self) -> Names {
        &NAMES
    }

    fn protocols(&self) -> &'static [Protocol] {
        &[Protocol::Tcp, Protocol::Udp]
    }

    fn serve(&self, call: Call<'_, '_>, _placed: Option<PlacedWrite>) -> Answered {
        try_serve(call).unwrap_or_else(|refused| refused)
    }
}

fn try_serve(mut call: Call<'_, '_>) -> Result<Answered, Answered> {
    let procedure = Procedure::try_from(call.header.procedure);
    let procedure = procedure.map_err(|_| Answered::Accept(Accept::ProcUnavail))?;
    let (group, xid) = (call.group, call.header.xid);
    match procedure {
        Procedure::Mnt => {
            let args = call.args::<mnt_wire::Args<'_>>()?;
            let outcome = mnt::run(group, call.client, &args, call.mode.wait())?;
            return Ok(Answered::reply(write(call.out, xid, &outcome) != Status::OK));
        }
        Procedure::Umnt => {
            let args = call.args::<umnt_wire::Args<'_>>()?;
            umnt::run(group, call.client, &args);
        }
        Procedure::Null | Procedure::Dump | Procedure::UmntAll | Procedure::Export => call.args::<()>()?,
    }
    let mut writer = Writer::new(call.out);
    encode_success(&mut writer, xid);
    match procedure {
        Procedure::Dump => dump::run(group, call.client, &mut writer),
        Procedure::UmntAll => umntall::run(group, call.client),
        Procedure::Export => export::run(call.client, &mut writer),
        Procedure::Null | Procedure::Mnt | Procedure::Umnt => {}
    }
    Ok(Answered::reply(false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_call_procedures_as_the_rfc_does() {
        let names = Procedure::ALL.map(|procedure| format!("MOUNT {}", procedure.name()));
        assert_eq!(names, NAMES);
    }
}
