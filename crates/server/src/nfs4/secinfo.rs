//! SECINFO and SECINFO_NO_NAME: which credentials an object wants. RFC 8881 s18.29, s18.45

use super::compound::{Compound, Outcome, Place, Replies};
use super::names;
use nfs4::op::Reply;
use nfs4::op::secinfo::{Flavor, Style};
use nfs4::{Array, Operation, Status};
use rpc::auth::{AUTH_NONE, AUTH_SYS};

/// AUTH_SYS, and AUTH_NONE where nobody in particular may call.
fn flavors(place: Place<'_>) -> &'static [Flavor<'static>] {
    const BOTH: &[Flavor<'static>] = &[Flavor::Plain(AUTH_SYS), Flavor::Plain(AUTH_NONE)];
    match place {
        Place::Object(export, _) if !export.config.all_squash => BOTH.split_at(1).0,
        Place::Object(..) | Place::Pseudo(_) => BOTH,
    }
}

/// Adds the result, and takes the current object away. RFC 8881 s2.6.3.1.1.8
fn answer(
    compound: &mut Compound<'_>,
    found: Outcome<Place<'_>>,
    operation: Operation,
    out: &mut Replies<'_>,
) -> Status {
    let flavors = match found {
        Ok(place) => Array::from(flavors(place)),
        Err(status) => return out.fail(operation, status),
    };
    compound.current = None;
    match operation {
        Operation::SecInfo => out.push(&Reply::SecInfo(Ok(flavors))),
        _ => out.push(&Reply::SecInfoNoName(Ok(flavors))),
    }
}

/// SECINFO.
pub(super) fn by_name(compound: &mut Compound<'_>, name: &[u8], out: &mut Replies<'_>) -> Status {
    let found = names::find(compound, name);
    answer(compound, found, Operation::SecInfo, out)
}

/// SECINFO_NO_NAME.
pub(super) fn by_style(compound: &mut Compound<'_>, style: Style, out: &mut Replies<'_>) -> Status {
    let found = match style {
        Style::Current => compound.place(),
        Style::Parent => names::parent(compound),
    };
    answer(compound, found, Operation::SecInfoNoName, out)
}
