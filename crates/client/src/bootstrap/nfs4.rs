//! The first calls of a mount of version 4: who the server is, a session, and then the path, name
//! by name from the root of all that the server shows to this version. No other program is asked.
//! RFC 8881 s2.10, s7.3
//!
//! A path that may continue below the export is split where the file system begins that its last
//! directory on the way is on.

use std::time::Duration;

use fs::{Attributes, FileHandle, FileKind, Status};
use rpc::reply::{Accept, Body};

use super::{PathKind, Root, connect, refused};
use crate::caller::{self, Caller};
use crate::error::MountError;
use crate::options::{Proto, Remote};
use crate::protocol::nfs4::{self as wire, ClientOwner, Needs, TRANSFER_MIN, Wanted, operations};
use crate::session::{CallError, CreateNumbers, FirstCalls, Making, NewSession, Place, exchange_id};
use crate::settings::Settings;

/// The procedure that does nothing. RFC 8881 s16.1
const NULL: u32 = 0;
/// Calls that a loop may have in flight; a server may allow fewer.
const SLOTS_PER_LOOP: u32 = 256;
/// The most slots that are asked for; the most that Linux takes.
const SLOTS_MAX: u32 = 1024;
/// The lease of a server that does not tell it: the shortest that is in use.
const LEASE_UNTOLD: Duration = Duration::from_secs(15);
/// A page of a directory fits, however short reads and writes are to be.
const PAYLOAD_MIN: u32 = 128 << 10;
/// Transfers are a multiple of this.
const MULTIPLE: u32 = 4096;

/// What a mount begins with.
#[derive(Debug)]
pub(crate) struct Begun {
    pub session: NewSession,
    pub wanted: Wanted,
    /// Where the session was made.
    pub home: Place,
    pub lease: Duration,
}

/// See the module's documentation.
pub(super) fn bootstrap(
    settings: &Settings,
    remote: &Remote,
    kind: PathKind,
    credential: &[u8],
) -> Result<(Root, Begun), MountError> {
    let address = settings.address_of(remote);
    if settings.uses_rdma() {
        caller::require_rdma()?;
    }
    let home =
        Place { local: settings.local_for(address.ip()), remote: address, proto: settings.proto_of(remote) };
    let connect = || at(settings, &home, credential);
    let begun = require_version(&mut connect()?).and_then(|()| begin(settings, &home, connect));
    let started = begun.map_err(not_version_4)?;
    find(settings, kind, started, home).map_err(not_version_4)
}

/// What is wrong with a server that answers something else than version 4 would.
fn not_version_4(error: MountError) -> MountError {
    match error {
        MountError::Protocol { address, reason } => MountError::NoVersion4 { address, reason },
        other => other,
    }
}

fn at(settings: &Settings, place: &Place, credential: &[u8]) -> Result<Caller, MountError> {
    match place.proto {
        Proto::Tcp => connect(settings, place.remote, credential),
        Proto::Rdma => Caller::connect_rdma(place.local, place.remote, credential),
    }
}

/// Asks whether the server has version 4 at all, which says more than a call that it refuses.
fn require_version(caller: &mut Caller) -> Result<(), MountError> {
    let reason = match caller.reply(wire::PROGRAM, NULL, |_| {})?.0 {
        Body::Accepted(Accept::Success) => return Ok(()),
        Body::Accepted(Accept::ProgMismatch { low, high }) if low == high => {
            format!("it serves version {low} only")
        }
        Body::Accepted(Accept::ProgMismatch { low, high }) => format!("it serves versions {low} to {high}"),
        Body::Accepted(Accept::ProgUnavail) => "it does not serve NFS".to_owned(),
        other => format!("{other:?}"),
    };
    Err(caller.protocol(reason))
}

/// A session that was made, and what it was made with.
struct Started {
    calls: FirstCalls,
    client: ClientOwner,
    numbers: CreateNumbers,
    wanted: Wanted,
}

/// Makes a session of the first minor version that the server has.
fn begin(
    settings: &Settings,
    home: &Place,
    connect: impl Fn() -> Result<Caller, MountError>,
) -> Result<Started, MountError> {
    let loops = u32::try_from(settings.loops.clamp(1, usize::from(settings.nconnect.max(1)))).unwrap_or(1);
    let slots = loops.saturating_mul(SLOTS_PER_LOOP).min(SLOTS_MAX);
    let payload = settings.rsize.max(settings.wsize).max(PAYLOAD_MIN);
    let call_backs = settings.call_backs;
    let mut last = None;
    for &minor in settings.version.minors() {
        // A client of its own for each attempt: who ends one does not end another.
        let (client, wanted) = (ClientOwner::random(), Wanted { minor, slots, payload, call_backs });
        let mut caller = connect()?;
        let server = match exchange_id(&mut caller, minor, &client) {
            Ok(server) => server,
            Err(CallError::Mount(error @ MountError::NoMinorVersion { .. })) => {
                last = Some(error);
                continue;
            }
            Err(CallError::Mount(error)) => return Err(error),
            Err(CallError::Failed(status)) => return Err(refused(&caller, &settings.export, status)),
        };
        let mut numbers = CreateNumbers::default();
        let (numbers_of, needs) = (&mut numbers, Needs::LEAST);
        let making = Making { generation: 0, wanted, needs, numbers: numbers_of, old: None, reclaim: None };
        let calls = FirstCalls::create(caller, server, making)?;
        return Ok(Started { calls, client, numbers, wanted });
    }
    Err(last.unwrap_or(MountError::NoMinorVersion { address: home.remote, minor: 0 }))
}

/// An object on the way, and where its name ends in the path.
struct Step {
    end: usize,
    handle: FileHandle,
    attributes: Attributes,
}

/// Where the names of a path are.
fn names(path: &[u8]) -> Vec<std::ops::Range<usize>> {
    let mut names = Vec::new();
    let mut start = None;
    for (at, byte) in path.iter().chain(b"/").enumerate() {
        match (byte, start) {
            (b'/', Some(from)) => {
                names.push(from..at);
                start = None;
            }
            (b'/', None) | (_, Some(_)) => {}
            (_, None) => start = Some(at),
        }
    }
    names
}

/// Finds the export's root, and asks for what a mount needs to know of it.
fn find(
    settings: &Settings,
    kind: PathKind,
    started: Started,
    home: Place,
) -> Result<(Root, Begun), MountError> {
    let Started { mut calls, client, numbers, wanted } = started;
    let found = walk(&mut calls, wanted.minor, &settings.export, kind);
    let asked = found.and_then(|found| {
        let (minor, handle) = (wanted.minor, found.handle);
        let info = of_root(&mut calls, operations::fsinfo(minor, handle))?;
        let lease = of_root(&mut calls, operations::lease_seconds(minor, handle))?;
        Ok((found, info, lease))
    });
    let (read_max, write_max) = calls.session().granted.payload();
    let session = NewSession::new(calls, client, numbers);
    // Without an export, the session is ended here.
    let (found, mut info, lease) = asked?;
    info.read.max = transfer_max(info.read.max, read_max);
    info.write.max = transfer_max(info.write.max, write_max);
    let (export, below) = settings.export.split_at_checked(found.end).unwrap_or((&settings.export, &[]));
    let export = match (kind, export) {
        (PathKind::Export, _) => settings.export.clone(),
        (PathKind::Below, []) => b"/".to_vec(),
        (PathKind::Below, export) => export.to_vec(),
    };
    let below = if kind == PathKind::Below { below.to_vec() } else { Vec::new() };
    let root = Root { export, below, handle: found.handle, attributes: found.attributes, info, found: None };
    let lease = lease.map_or(LEASE_UNTOLD, |seconds| Duration::from_secs(seconds.max(1).into()));
    Ok((root, Begun { session, wanted, home, lease }))
}

/// The most bytes that a READ or a WRITE may have. What a server tells of a file system may be of
/// no use and is ignored then; what the session allows is not.
fn transfer_max(told: u32, allowed: u32) -> u32 {
    let allowed = whole(allowed);
    if told < TRANSFER_MIN { allowed } else { told.min(allowed) }
}

/// So many bytes, without what would make transfers odd.
const fn whole(bytes: u32) -> u32 {
    if bytes > MULTIPLE { bytes - bytes % MULTIPLE } else { bytes }
}

fn of_root<T>(calls: &mut FirstCalls, operation: crate::protocol::Operation<T>) -> Result<T, MountError> {
    calls.call(operation).map_err(|error| match error {
        CallError::Failed(status) => calls.caller().protocol(format!("GETATTR of the root: {status}")),
        CallError::Mount(error) => error,
    })
}

/// Goes along the path. An export must be there to its last name; otherwise the walk ends at the
/// first name that is no directory, and the export is where the last file system on it begins.
fn walk(calls: &mut FirstCalls, minor: u32, path: &[u8], kind: PathKind) -> Result<Step, MountError> {
    let failed = |calls: &FirstCalls, status| refused_by(calls, path, status);
    let (handle, attributes) = calls.call(operations::root(minor)).map_err(|error| match error {
        CallError::Failed(status) => failed(calls, status),
        CallError::Mount(error) => error,
    })?;
    let mut here = Step { end: 0, handle, attributes };
    let mut export = Step { ..here };
    for range in names(path) {
        let end = range.end;
        let name = path.get(range).unwrap_or_default();
        let step = if name == b".." && kind == PathKind::Below {
            // Who walks on below the export resolves it.
            break;
        } else {
            calls.call(operations::lookup(minor, here.handle, name))
        };
        let (handle, attributes) = match step {
            Ok((handle, Some(attributes))) => (handle, attributes),
            Ok((_, None)) => break,
            Err(CallError::Mount(error)) => return Err(error),
            Err(CallError::Failed(status)) if kind == PathKind::Export => return Err(failed(calls, status)),
            Err(CallError::Failed(_)) => break,
        };
        if attributes.kind == FileKind::Symlink && kind == PathKind::Export {
            // Who asked resolves it, and asks again.
            return Err(failed(calls, Status::Invalid));
        }
        let is_other = attributes.fsid != here.attributes.fsid;
        here = Step { end, handle, attributes };
        if is_other && attributes.kind == FileKind::Directory {
            export = Step { ..here };
        }
        if attributes.kind != FileKind::Directory && kind == PathKind::Below {
            break;
        }
    }
    Ok(if kind == PathKind::Export { here } else { export })
}

fn refused_by(calls: &FirstCalls, path: &[u8], status: Status) -> MountError {
    refused(calls.caller(), path, status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_a_path_are_what_stands_between_slashes() {
        let of = |path: &str| -> Vec<String> {
            names(path.as_bytes()).into_iter().map(|range| path[range].to_owned()).collect()
        };
        assert_eq!(of("/export//a/"), ["export", "a"]);
        assert!(of("/").is_empty() && of("").is_empty());
        assert_eq!(of("a"), ["a"]);
    }

    #[test]
    fn transfers_are_whole_pages_where_the_session_has_room_for_one() {
        assert_eq!([whole(1 << 20), whole((1 << 20) - 1), whole(4095)], [1 << 20, (1 << 20) - 4096, 4095]);
    }

    #[test]
    fn no_transfer_is_longer_than_the_session_allows_whatever_is_told_of_the_file_system() {
        assert_eq!([transfer_max(1 << 20, 65536), transfer_max(32768, 65536)], [65536, 32768]);
        for useless in [0, 1, TRANSFER_MIN - 1] {
            assert_eq!([transfer_max(useless, 65536), transfer_max(useless, 1500)], [65536, 1500]);
        }
    }
}
