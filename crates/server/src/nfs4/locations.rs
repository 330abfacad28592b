//! `fs_locations`: the addresses at which the group serves a file system besides the one that the
//! client has connected to. RFC 8881 s11.16
//!
//! All of them are the same server, with the same sessions. So a client that tries them finds that
//! they belong together (RFC 8881 s2.10.5), and uses all: Linux from 5.18 does with the mount
//! option `trunkdiscovery`, and takes the port of the mount for each.

use super::compound::{Compound, Place};
use super::pseudo;
use nfs4::types::attributes::number;
use nfs4::{Array, Attributes, Bitmap, Location, Locations};

/// The servers of one location: Linux uses no more.
const SERVERS_MAX: usize = 10;

/// Calls `with` with the attributes of a place, and with `fs_locations` if that is wanted.
pub(super) fn with_locations<T>(
    compound: &Compound<'_>,
    place: Place<'_>,
    wanted: Bitmap,
    attributes: &Attributes<'_>,
    with: impl FnOnce(&Attributes<'_>) -> T,
) -> T {
    if !wanted.contains(number::FS_LOCATIONS) {
        return with(attributes);
    }
    let (root, servers): (Vec<_>, _) = match place {
        // Nobody looks elsewhere for the directories above the exports.
        Place::Pseudo(node) => (node.path().map(str::as_bytes).collect(), Vec::new()),
        Place::Object(export, _) => {
            let local = compound.request.client.local;
            let servers = compound.group.addresses.besides(local, compound.protocol);
            (pseudo::components(export).map(str::as_bytes).collect(), servers)
        }
    };
    let servers: Vec<_> = servers.iter().map(ToString::to_string).collect();
    let servers: Vec<_> = servers.iter().map(String::as_bytes).collect();
    let root = Array::from(&*root);
    let at = |servers| Location { servers: Array::from(servers), root };
    let locations: Vec<_> = servers.chunks(SERVERS_MAX).map(at).collect();
    let fs_locations = Some(Locations { root, locations: Array::from(&*locations) });
    with(&Attributes { fs_locations, ..*attributes })
}
