//! The tree of directories above the exports, so that there is one root for all of them. RFC 8881
//! s7.3, s7.4
//!
//! A client sees the directories that lead to exports which it may use, and nothing else. They have
//! a file system number of their own, and a number and a handle that follow from their path: they
//! are the same after a restart, and in every process that serves the same paths. A handle is no
//! secret, as it names only what its client may see anyway.
//!
//! An export below another one hides what the upper one has at its path: lookups and listings lead
//! to the lower one, and the name cannot be removed, renamed or taken. Where the upper one does not
//! have the directories on the way, they are directories of the tree.

use super::compound::{Compound, Outcome, Place};
use super::status::of_wait;
use crate::client::Client;
use crate::export::Export;
use crate::identity::SquashedCaller;
use fs::FileHandle;
use nfs4::Status;
use siphasher::sip::SipHasher13;
use std::hash::Hasher;
use store::{Caller, ObjectId, Wait};

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
pub(super) fn components(export: &Export) -> impl Iterator<Item = &str> {
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
    pub fn path(self) -> impl Iterator<Item = &'a str> {
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

/// Where a name in a directory of an export leads because of an export below that one.
#[derive(Debug, Clone, Copy)]
pub(super) enum Way<'a> {
    /// To the root of the export that is mounted on the name, whatever the store has there.
    Mount(Place<'a>),
    /// To a directory of the tree, if the store has nothing of that name.
    Through(Place<'a>),
}

/// Where the exports below another one are is found with the rights of the server: each operation
/// checks what the client may do.
const SERVER: Caller<'static> = Caller { uid: 0, gid: 0, gids: &[] };

/// What the store of an export has at a name.
fn look(export: &Export, directory: ObjectId, name: &[u8]) -> Outcome<ObjectId> {
    look_as(SERVER, export, directory, name)
}

/// What the store of an export has at a name that the caller may look up.
fn look_as(caller: Caller<'_>, export: &Export, directory: ObjectId, name: &[u8]) -> Outcome<ObjectId> {
    let (_, found) = export.store.lookup(caller, directory, name, Wait::Allowed).map_err(of_wait)?;
    Ok(found.map_err(Status::from_fs)?.object)
}

/// Whether the store of an export has nothing of a name.
pub(super) fn is_free(export: &Export, directory: ObjectId, name: &[u8]) -> bool {
    look(export, directory, name) == Err(Status::NOENT)
}

/// How many components of the path of an export below another one lead to a directory of that one.
/// With a name, only if the name follows them.
fn depth_within(export: &Export, below: &Export, directory: ObjectId, name: Option<&[u8]>) -> Option<usize> {
    let first = depth_of(export);
    let is_next = |next: &str| name.is_none_or(|name| next.as_bytes() == name);
    if !components(below).skip(first).any(is_next) {
        return None;
    }
    let mut object = export.store.root();
    for (depth, next) in components(below).enumerate().skip(first) {
        if object == directory {
            return is_next(next).then_some(depth);
        }
        object = look(export, object, next.as_bytes()).ok()?;
    }
    None
}

/// The names in a directory of an export that lead to exports below it, each once. With a name,
/// that one only.
pub(super) fn ways<'a>(
    client: &'a Client,
    export: &'a Export,
    directory: ObjectId,
    name: Option<&[u8]>,
) -> Vec<(&'a str, Way<'a>)> {
    let first = depth_of(export);
    let is_below = |other: &Export| depth_of(other) > first && begins_with(other, export, first);
    let mut ways: Vec<(&str, Way<'_>)> = Vec::new();
    for below in admitted(client).filter(|other| is_below(other)) {
        let Some(depth) = depth_within(export, below, directory, name) else { continue };
        let Some(next) = components(below).nth(depth) else { continue };
        let way = if depth_of(below) == depth + 1 {
            Way::Mount(Place::Object(below, below.store.root()))
        } else {
            Way::Through(Place::Pseudo(Node { export: below, depth: depth + 1 }))
        };
        match ways.iter_mut().find(|(other, _)| *other == next) {
            None => ways.push((next, way)),
            Some(known) if matches!(way, Way::Mount(_)) => known.1 = way,
            Some(_) => {}
        }
    }
    ways
}

/// Where a name in a directory of an export leads because of an export below that one.
pub(super) fn way<'a>(
    client: &'a Client,
    export: &'a Export,
    directory: ObjectId,
    name: &[u8],
) -> Option<Way<'a>> {
    ways(client, export, directory, Some(name)).pop().map(|(_, way)| way)
}

/// What such a name leads to, unless the store has something else there.
pub(super) fn leads_away<'a>(
    client: &'a Client,
    export: &'a Export,
    directory: ObjectId,
    name: &[u8],
) -> Option<Place<'a>> {
    match way(client, export, directory, name)? {
        Way::Mount(place) => Some(place),
        Way::Through(place) => is_free(export, directory, name).then_some(place),
    }
}

/// What is above the root of an export.
pub(super) fn above_root<'a>(compound: &Compound<'a>, export: &'a Export) -> Outcome<Place<'a>> {
    above(compound, Node { export, depth: depth_of(export) })
}

/// What is above a directory of the tree: another one, or one of the export that it is below. The
/// way there is looked up as the caller may; one whose credential is not enough for that export
/// asks as the user that it has for nobody in particular, and is told so by whoever asked.
pub(super) fn above<'a>(compound: &Compound<'a>, node: Node<'a>) -> Outcome<Place<'a>> {
    let (client, export) = (compound.request.client, node.export);
    let depth = node.depth.checked_sub(1).ok_or(Status::NOENT)?;
    let upper = admitted(client)
        .filter(|other| depth_of(other) <= depth && begins_with(export, other, depth_of(other)))
        .max_by_key(|other| depth_of(other));
    let Some(upper) = upper else { return Ok(Place::Pseudo(Node { export, depth })) };
    let (mut object, config) = (upper.store.root(), &upper.config);
    let squashed = compound.request.identity.squashed_for(config);
    let nobody = Caller { uid: config.anonuid, gid: config.anongid, gids: &[] };
    let caller = squashed.as_ref().map_or(nobody, SquashedCaller::caller);
    for name in components(export).take(depth).skip(depth_of(upper)) {
        object = match look_as(caller, upper, object, name.as_bytes()) {
            Err(Status::NOENT) => return Ok(Place::Pseudo(Node { export, depth })),
            found => found?,
        };
    }
    Ok(Place::Object(upper, object))
}
