//! The entries of READDIR: of a directory of an export, with the exports that are mounted in it,
//! and of a directory above the exports. RFC 8881 s18.23
//!
//! Cookies 0, 1 and 2 are kept by the standard. Stores may use 1 and 2, as file systems do for `.`
//! and `..`, and some of them for files: these two are sent as other numbers. Names that lead to
//! exports below, and that the store does not have, come after all of the store's.

use super::attributes::{Describer, of_place, supported};
use super::compound::{Compound, Outcome, Place};
use super::pseudo::{self, Node, Way};
use crate::config::EXPORTS_MAX;
use crate::export::Export;
use nfs4::op::readdir::{Args, EntryWriter};
use nfs4::types::attributes::number;
use nfs4::{Attributes, Bitmap, Status};
use store::Found;

/// The first cookie of a directory above the exports.
const FIRST_COOKIE: u64 = 3;

/// Cookies that no file system is known to use, and that are positive for clients that want them
/// so: those of ext4 below its last one are smaller, those of others much smaller.
const OWN_COOKIES: u64 = 0x7fff_ffff_0000_0000;
/// The first cookie of names that the store does not have.
const MOUNT_COOKIES: u64 = OWN_COOKIES + 0x1_0000;
const MOUNT_COOKIES_END: u64 = MOUNT_COOKIES + EXPORTS_MAX as u64;

/// The cookie on the wire for a store's.
const fn to_wire(cookie: u64) -> u64 {
    if matches!(cookie, 1 | 2) { OWN_COOKIES + cookie } else { cookie }
}

/// The inverse of [`to_wire`].
const fn of_wire(cookie: u64) -> u64 {
    if matches!(cookie.wrapping_sub(OWN_COOKIES), 1 | 2) { cookie - OWN_COOKIES } else { cookie }
}

/// The attributes of an entry that leads out of the directory's file system. If they cannot be had,
/// the entry says so, or the listing fails if its client did not ask to be told. RFC 8881 s18.23.3
fn of_entry(compound: &Compound<'_>, place: Place<'_>, wanted: Bitmap) -> Outcome<Attributes<'static>> {
    let found = compound.check_flavor(place).and_then(|()| of_place(compound, place, wanted));
    match found {
        Err(status) if wanted.contains(number::RDATTR_ERROR) => Ok(Describer::failed(status)),
        // READDIR itself is never refused for the credential. RFC 8881 s2.6.3.1.1.7
        Err(Status::WRONGSEC) => Err(Status::ACCESS),
        found => found,
    }
}

/// Lists names that lead out of a directory, with their cookies.
fn list_places<'a>(
    compound: &Compound<'_>,
    args: &Args,
    places: impl Iterator<Item = (u64, (&'a str, Place<'a>))>,
    mut entries: EntryWriter<'_>,
) -> Status {
    let wanted = args.wanted & supported(compound.minor);
    for (cookie, (name, place)) in places {
        let attributes = match of_entry(compound, place, wanted) {
            Ok(attributes) => attributes,
            Err(status) => return entries.fail(status),
        };
        if !entries.add(cookie, name.as_bytes(), &attributes, wanted) {
            return entries.finish(false);
        }
    }
    entries.finish(true)
}

/// A directory above the exports.
pub(super) fn list_node(
    compound: &Compound<'_>,
    node: Node<'_>,
    args: &Args,
    entries: EntryWriter<'_>,
) -> Status {
    let children = (FIRST_COOKIE..).zip(node.children(compound.request.client));
    list_places(compound, args, children.filter(|(cookie, _)| *cookie > args.cookie), entries)
}

/// The attributes of an entry that the store has.
fn of_found(
    compound: &Compound<'_>,
    export: &Export,
    describer: &Describer<'_>,
    found: &Found,
) -> Outcome<Attributes<'static>> {
    match compound.knows_of_loss(export, found.object) {
        Ok(()) => Ok(describer.object(found.object, &found.attributes)),
        Err(status) if describer.wanted().contains(number::RDATTR_ERROR) => Ok(Describer::failed(status)),
        Err(status) => Err(status),
    }
}

/// A directory of an export.
pub(super) fn list_object(compound: &Compound<'_>, args: &Args, mut entries: EntryWriter<'_>) -> Status {
    let target = match compound.object_or(Status::NOTDIR) {
        Ok(target) => target,
        Err(status) => return entries.fail(status),
    };
    let (caller, export) = (target.squashed.caller(), target.export);
    let ways = pseudo::ways(compound.request.client, export, target.object, None);
    let is_past = (MOUNT_COOKIES..MOUNT_COOKIES_END).contains(&args.cookie);
    if !is_past {
        let describer = Describer::new(compound, Some(export), args.wanted);
        let mut failed = None;
        let end = export.store.read_directory(caller, target.object, of_wire(args.cookie), &mut |entry| {
            // The directory itself and the one above are for the client to know.
            if matches!(entry.name, b"." | b"..") {
                return true;
            }
            let mount = ways.iter().find_map(|(name, way)| match way {
                Way::Mount(place) if name.as_bytes() == entry.name => Some(*place),
                _ => None,
            });
            let attributes = match mount {
                None => of_found(compound, export, &describer, entry.found),
                Some(place) => of_entry(compound, place, describer.wanted()),
            };
            match attributes {
                Ok(attributes) => {
                    entries.add(to_wire(entry.cookie), entry.name, &attributes, describer.wanted())
                }
                Err(status) => {
                    failed = Some(status);
                    false
                }
            }
        });
        match (end.map_err(Status::from_fs), failed) {
            (Err(status), _) | (Ok(_), Some(status)) => return entries.fail(status),
            (Ok(end), None) if !end.eof => return entries.finish(false),
            (Ok(_), None) => {}
        }
    }
    let places = ways.into_iter().map(|(name, way)| match way {
        Way::Mount(place) | Way::Through(place) => (name, place),
    });
    let places = (MOUNT_COOKIES..).zip(places).filter(|(cookie, (name, _))| {
        // What the store has was listed with it.
        (!is_past || *cookie > args.cookie) && pseudo::is_free(export, target.object, name.as_bytes())
    });
    list_places(compound, args, places, entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 8881 s18.23.3
    #[test]
    fn no_cookie_on_the_wire_is_reserved_and_each_leads_back() {
        for cookie in (0..10).chain([OWN_COOKIES - 1, u64::MAX >> 1]) {
            let sent = to_wire(cookie);
            assert!(!matches!(sent, 1 | 2));
            assert!(!(MOUNT_COOKIES..MOUNT_COOKIES_END).contains(&sent));
            assert_eq!(of_wire(sent), cookie);
        }
    }
}
