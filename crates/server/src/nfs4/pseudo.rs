//! The tree of directories above the exports, so that there is one root for all of them. RFC 8881
//! s7.3, s7.4
//!
//! A client sees the directories that lead to exports which it may use, and nothing else. They have
//! a file system number of their own, and a number and a handle that follow from their path: they
//! are the same after a restart, and in every process that serves the same paths. A handle is no
//! secret, as it names only what its client may see anyway. An export below another is a directory
//! that leads out of the upper one.

use super::compound::{Compound, Outcome, Place};
use super::status::of_wait;
use crate::client::Client;
use crate::export::Export;
use fs::FileHandle;
use nfs4::Status;
use siphasher::sip::SipHasher13;
use std::hash::Hasher;
use store::{Caller, Wait};

/// How a handle of the tree begins; those of exports begin with a version of 1.
const PREFIX: [u8; 4] = *b"\x02top";
const HANDLE_BYTES: usize = PREFIX.len() + 8;

/// A directory of the tree: the first components of an export's path.
#[derive(Debug, Clone, Copy)]
pub(super) struct Node<'a> {
    export: &'a Export,
    depth: usize,
}

/// The components of an export's path.
fn components(export: &Export) -> impl Iterator<Item = &str> {
    export.config.path.split('/').filter(|name| !name.is_empty())
}

fn depth_of(export: &Export) -> usize {
    components(export).count()
}

/// A number for the beginning of a path.
fn number_of<'a>(path: impl Iterator<Item = &'a str>) -> u64 {
    let mut hasher = SipHasher13::new();
    for name in path {
        hasher.write(b"/");
        hasher.write(name.as_bytes());
    }
    hasher.finish()
}

/// The exports that a client may use.
fn admitted(client: &Client) -> impl Iterator<Item = &Export> {
    client.exports.iter().filter(|(index, _)| client.admitted.contains(*index)).map(|(_, export)| export)
}

/// Whether the path of an export begins with the first components of another's.
fn begins_with(export: &Export, other: &Export, depth: usize) -> bool {
    depth_of(export) >= depth && components(export).zip(components(other)).take(depth).all(|(a, b)| a == b)
}

impl<'a> Node<'a> {
    fn path(self) -> impl Iterator<Item = &'a str> {
        components(self.export).take(self.depth)
    }

    /// The number by which clients see it: never 0, and positive for those that want it so.
    pub fn fileid(self) -> u64 {
        fileid_of(number_of(self.path()))
    }

    fn handle(self) -> [u8; HANDLE_BYTES] {
        let mut handle = [0; HANDLE_BYTES];
        handle[..PREFIX.len()].copy_from_slice(&PREFIX);
        handle[PREFIX.len()..].copy_from_slice(&number_of(self.path()).to_be_bytes());
        handle
    }

    /// What is in the directory: names with what they lead to, each once.
    pub fn children(self, client: &'a Client) -> Vec<(&'a str, Place<'a>)> {
        let mut children: Vec<(&str, Place<'a>)> = Vec::new();
        for export in admitted(client).filter(|export| begins_with(export, self.export, self.depth)) {
            let Some(name) = components(export).nth(self.depth) else { continue };
            let place = if depth_of(export) == self.depth + 1 {
                Place::Object(export, export.store.root())
            } else {
                Place::Pseudo(Node { export, depth: self.depth + 1 })
            };
            match children.iter_mut().find(|(other, _)| *other == name) {
                None => children.push((name, place)),
                // An export hides the directories that lead to those below it.
                Some(child) if matches!(place, Place::Object(..)) => child.1 = place,
                Some(_) => {}
            }
        }
        children
    }

    /// What a name leads to.
    pub fn child(self, client: &'a Client, name: &[u8]) -> Outcome<Place<'a>> {
        let mut children = self.children(client).into_iter();
        let found = children.find(|(other, _)| other.as_bytes() == name);
        found.map(|(_, place)| place).ok_or(Status::NOENT)
    }

    /// The directory above.
    pub fn parent(self) -> Option<Self> {
        self.depth.checked_sub(1).map(|depth| Self { depth, ..self })
    }
}

const fn fileid_of(number: u64) -> u64 {
    number >> 1 | 1
}

/// The number of the directory on which an export is mounted.
pub(super) fn mounted_on(export: &Export) -> u64 {
    fileid_of(number_of(components(export)))
}

/// A number that changes when the exports of a client do.
pub(super) fn generation(client: &Client) -> u64 {
    let mut hasher = SipHasher13::new();
    for export in admitted(client) {
        hasher.write(export.config.path.as_bytes());
        hasher.write(&[0]);
    }
    hasher.finish()
}

/// The root for a client; `None` if no export admits it.
pub(super) fn root(client: &Client) -> Option<Place<'_>> {
    if let Some(export) = admitted(client).find(|export| depth_of(export) == 0) {
        return Some(Place::Object(export, export.store.root()));
    }
    admitted(client).next().map(|export| Place::Pseudo(Node { export, depth: 0 }))
}

/// Whether a handle is one of the tree.
pub(super) fn is_handle(handle: &[u8]) -> bool {
    handle.starts_with(&PREFIX)
}

/// The directory of a handle, if there is one for this client.
pub(super) fn open<'a>(client: &'a Client, handle: &[u8]) -> Outcome<Node<'a>> {
    if handle.len() != HANDLE_BYTES {
        return Err(Status::BADHANDLE);
    }
    let nodes =
        admitted(client).flat_map(|export| (0..depth_of(export)).map(move |depth| Node { export, depth }));
    let mut found = nodes.filter(|node| node.handle() == handle);
    found.next().ok_or(Status::STALE)
}

/// The handle of an object.
pub(super) fn handle_of(place: Place<'_>) -> Outcome<FileHandle> {
    let handle = match place {
        Place::Pseudo(node) => FileHandle::new(&node.handle()),
        Place::Object(export, object) => FileHandle::new(export.handle(object).as_slice()),
    };
    handle.ok_or(Status::SERVERFAULT)
}

/// The export that a name in a directory of another export leads to, if it leads out of that.
pub(super) fn below<'a>(
    client: &'a Client,
    export: &Export,
    directory: store::ObjectId,
    name: &[u8],
) -> Option<Place<'a>> {
    let depth = depth_of(export);
    let mut nested = admitted(client)
        .filter(|other| depth_of(other) > depth && begins_with(other, export, depth))
        .peekable();
    nested.peek()?;
    let path = if directory == export.store.root() { Vec::new() } else { export.store.path_of(directory)? };
    let inside = || path.split(|byte| *byte == b'/').filter(|part| !part.is_empty());
    let wanted = || inside().chain(std::iter::once(name));
    let found = nested.find(|other| components(other).skip(depth).map(str::as_bytes).eq(wanted()));
    found.map(|export| Place::Object(export, export.store.root()))
}

/// What is above the root of an export: a directory of the tree, or one of the export that this one
/// is below.
pub(super) fn above<'a>(compound: &Compound<'a>, export: &'a Export) -> Outcome<Place<'a>> {
    let client = compound.request.client;
    let depth = depth_of(export).checked_sub(1).ok_or(Status::NOENT)?;
    let upper = admitted(client)
        .filter(|other| depth_of(other) <= depth && begins_with(export, other, depth_of(other)))
        .max_by_key(|other| depth_of(other));
    let Some(upper) = upper else { return Ok(Place::Pseudo(Node { export, depth })) };
    // The path is resolved with the rights of the server: each operation checks what the client may
    // do there.
    let server = Caller { uid: 0, gid: 0, gids: &[] };
    let mut object = upper.store.root();
    for name in components(export).take(depth).skip(depth_of(upper)) {
        let (_, found) =
            upper.store.lookup(server, object, name.as_bytes(), Wait::Allowed).map_err(of_wait)?;
        object = found.map_err(Status::from_fs)?.object;
    }
    Ok(Place::Object(upper, object))
}
