//! The procedures, one file each: from checked arguments to a reply, by way of the store.
//!
//! `run` opens the handles, asks the store on behalf of the squashed caller, and maps what it says: attributes
//! and weak cache consistency data (RFC 1813 s2.6) on success and on failure. An `Err` is a credential that is
//! too weak, or a store that would have to wait where nothing may: then nothing was done. What surrounds a call (header, reply cache, counters) is [`crate::service`]'s.

pub mod access;
pub mod commit;
pub mod create;
pub mod fsinfo;
pub mod fsstat;
pub mod getattr;
pub mod link;
pub mod lookup;
pub mod mkdir;
pub mod mknod;
pub mod mount;
pub mod pathconf;
pub mod read;
pub mod readdir;
pub mod readdirplus;
pub mod readlink;
pub mod remove;
pub mod rename;
pub mod rmdir;
pub mod setattr;
mod settle;
pub mod symlink;
pub mod write;

use crate::request::{Request, Unanswered};
use crate::status;
use nfs3::{Created, DirOpArgs, Outcome, Verifier, WccData};
pub(crate) use settle::Settle;
use store::NewObject;

/// The most bytes of one listing, whatever the client has room for: some thousand entries.
const DIRECTORY_BYTES_MAX: u32 = 256 << 10;
/// Cookies stay good while names come and go, so that there is nothing to verify.
const COOKIE_VERIFIER: Verifier = [0; 8];

/// What CREATE, MKDIR, SYMLINK and MKNOD have in common.
fn create_object(
    request: &Request<'_>,
    location: &DirOpArgs<'_>,
    new: NewObject<'_>,
) -> Result<Outcome<Created, WccData>, Unanswered> {
    let target = match request.open_for_change(&location.directory) {
        Ok(target) => target,
        Err(stop) => return stop.reply(WccData::default()),
    };
    let (change, result) = target.export.store.create(target.who.caller(), target.object, location.name, new);
    let directory = target.wcc(&change);
    Ok(match result {
        Ok(created) => Outcome::Ok(Created {
            object: Some(target.export.handle(created.object)),
            attributes: Some(target.fattr(&created)),
            directory,
        }),
        Err(error) => Outcome::Fail(status::of_store(error), directory),
    })
}
