//! SECINFO and SECINFO_NO_NAME: which credentials an object wants. RFC 8881 s18.29, s18.45
//!
//! Neither is refused for the credential: a caller whose own is not enough asks as the user that
//! the export has for nobody in particular. RFC 8881 s2.6.3.1.1.5

use super::compound::{Compound, Outcome, Place, Replies};
use super::status::of_wait;
use super::{names, pseudo};
use nfs4::op::Reply;
use nfs4::op::secinfo::{Flavor, Style};
use nfs4::{Array, Operation, Status};
use rpc::auth::{AUTH_NONE, AUTH_SYS};
use store::{Caller, Wait};

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

/// What a name leads to, for a caller that the current export does not know.
fn find_for_nobody<'a>(compound: &Compound<'a>, name: &[u8]) -> Outcome<Place<'a>> {
    let Place::Object(export, directory) = compound.place()? else { return Err(Status::NOENT) };
    if let Some(place) = pseudo::leads_away(compound.request.client, export, directory, name) {
        return Ok(place);
    }
    let caller = Caller { uid: export.config.anonuid, gid: export.config.anongid, gids: &[] };
    let (_, found) = export.store.lookup(caller, directory, name, Wait::Allowed).map_err(of_wait)?;
    Ok(Place::Object(export, found.map_err(Status::from_fs)?.object))
}

/// SECINFO.
pub(super) fn by_name(compound: &mut Compound<'_>, name: &[u8], out: &mut Replies<'_>) -> Status {
    let found = match names::find(compound, name) {
        Err(Status::WRONGSEC) => find_for_nobody(compound, name),
        found => found,
    };
    answer(compound, found, Operation::SecInfo, out)
}

/// SECINFO_NO_NAME.
pub(super) fn by_style(compound: &mut Compound<'_>, style: Style, out: &mut Replies<'_>) -> Status {
    let found = match style {
        Style::Current => compound.place(),
        Style::Parent => match names::parent(compound) {
            Err(Status::WRONGSEC) => find_for_nobody(compound, b".."),
            found => found,
        },
    };
    answer(compound, found, Operation::SecInfoNoName, out)
}
