//! The first calls of a mount: MNT, then GETATTR and FSINFO of the root. They block, each with a
//! deadline. Those of version 4 are in [`nfs4`].
//!
//! A path that may continue below the export (`nfs://host/export/file`) is split here: at the
//! longest listed export that is a prefix of the path or, if there is none or the server lists
//! nothing, at the longest prefix of the path that the server mounts. A directory that the caller
//! may not reach by LOOKUP is also requested here ([`directory`]), so that whatever can be mounted
//! can be walked to.

mod addresses;
pub(crate) mod nfs4;

use std::net::SocketAddr;

use fs::{Attributes, FileHandle, FileSystemInfo, Status};

pub(crate) use addresses::{bootstrap_at_any_address, first_asked};

use crate::caller::{self, Caller};
use crate::error::{Error, MountError};
use crate::options::{Proto, Remote, Version};
use crate::protocol::{MOUNT_PROGRAM, NFS3, Operation, Procedure, Protocol, exports, mnt};
use crate::rpcbind::{self, PortError};
use crate::settings::Settings;

/// Number of exports that an error lists.
const EXPORTS_SHOWN_MAX: usize = 10;
/// Number of prefixes of a path that are tried if the server does not list its exports.
const BEGINNINGS_MAX: usize = 64;

/// The root of a mount.
#[derive(Debug, Clone)]
pub(crate) struct Root {
    /// The export that was mounted, and the part of the path below it.
    pub export: Vec<u8>,
    pub below: Vec<u8>,
    pub handle: FileHandle,
    pub attributes: Attributes,
    pub info: FileSystemInfo,
    /// Where NFS was found, if rpcbind was asked for its port.
    pub found: Option<SocketAddr>,
}

/// Whether the path is an export, or may continue below one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PathKind {
    Export,
    Below,
}

/// Finds the root of a mount, and begins a session if its version has them.
fn bootstrap(
    settings: &Settings,
    remote: &Remote,
    kind: PathKind,
    credential: &[u8],
) -> Result<(Root, Option<nfs4::Begun>), MountError> {
    match settings.version {
        Version::V3 => bootstrap_nfs3(settings, remote, kind, credential).map(|root| (root, None)),
        Version::V4(_) => {
            let (root, begun) = nfs4::bootstrap(settings, remote, kind, credential)?;
            Ok((root, Some(begun)))
        }
    }
}

/// Asks the MOUNT program for the export's root, and NFS for its attributes and limits.
fn bootstrap_nfs3(
    settings: &Settings,
    remote: &Remote,
    kind: PathKind,
    credential: &[u8],
) -> Result<Root, MountError> {
    let nfs = settings.address_of(remote);
    let over_rdma = settings.proto_of(remote) == Proto::Rdma;
    if settings.uses_rdma() {
        // First of all: on a machine without RDMA there is nothing to ask for.
        caller::require_rdma()?;
    }
    let find = |caller: &mut Caller| find(caller, settings, kind, credential);
    let (mut caller, found) = at_mount(settings, remote, credential, find)?;
    let mut by_rpcbind = None;
    if over_rdma {
        caller = Caller::connect_rdma(settings.local_for(nfs.ip()), nfs, credential)?;
    } else if caller.address() != nfs {
        (caller, by_rpcbind) = at_nfs(settings, remote, credential)?;
    }
    let attributes = ask(&mut caller, Protocol::NFS3.getattr(found.handle))?;
    let info = ask(&mut caller, Protocol::NFS3.fsinfo(found.handle))?;
    Ok(Root {
        export: found.export,
        below: found.below,
        handle: found.handle,
        attributes,
        info,
        found: by_rpcbind,
    })
}

/// Connects over TCP, as the options say.
fn connect(settings: &Settings, address: SocketAddr, credential: &[u8]) -> Result<Caller, MountError> {
    Caller::connect(settings.local_for(address.ip()), address, credential, settings.reserved_port)
}

/// The port of NFS on a remote where nothing listens at the usual one, as its rpcbind knows it.
pub(crate) fn find_port(settings: &Settings, remote: &Remote) -> Option<u16> {
    let rpcbind = settings.nfs_rpcbind_port?;
    match connect(settings, settings.address_of(remote), &[]) {
        Err(error) if error.is_refused() => {
            rpcbind::port_of(remote.address.with_port(rpcbind), NFS3, "NFS").ok()
        }
        _ => None,
    }
}

/// Connects to NFS over TCP. If the user gave no port and nothing listens at the usual one, rpcbind
/// knows the port, which is returned then.
fn at_nfs(
    settings: &Settings,
    remote: &Remote,
    credential: &[u8],
) -> Result<(Caller, Option<SocketAddr>), MountError> {
    let at = |address| connect(settings, address, credential);
    let refused = match (at(settings.address_of(remote)), settings.nfs_rpcbind_port) {
        (Err(error), Some(rpcbind)) if remote.port.is_none() && error.is_refused() => (error, rpcbind),
        (other, _) => return Ok((other?, None)),
    };
    let (error, rpcbind) = refused;
    match rpcbind::port_of(remote.address.with_port(rpcbind), NFS3, "NFS") {
        Ok(port) => {
            let found = remote.address.with_port(port);
            Ok((at(found)?, Some(found)))
        }
        Err(_) => Err(error),
    }
}

/// Calls an operation on the root.
fn ask<T>(caller: &mut Caller, operation: Operation<T>) -> Result<T, MountError> {
    let (request, reading) = operation.into_parts();
    let Procedure::Nfs3(procedure) = request.procedure() else {
        return Err(caller.protocol("a call of another version".to_owned()));
    };
    let results = caller.call(NFS3, procedure.number(), |writer| writer.bytes(request.args()))?;
    reading.read(&results).map_err(|error| {
        caller.protocol(match error {
            Error::Status { operation, status } => format!("{operation} of the root: {status}"),
            Error::PeerMisbehaved { reason, .. } => reason,
            other => other.to_string(),
        })
    })
}

/// The handle that MOUNT returns for a directory, or its refusal.
pub(crate) fn directory(
    settings: &Settings,
    remote: &Remote,
    path: &[u8],
    credential: &[u8],
) -> Result<Result<FileHandle, Status>, MountError> {
    Ok(at_mount(settings, remote, credential, |caller| mnt(caller, path))?.1)
}

struct Found {
    export: Vec<u8>,
    below: Vec<u8>,
    handle: FileHandle,
}

/// Finds the MOUNT program and calls it. Trunkline's server answers MOUNT at the port of NFS; for
/// other servers rpcbind knows the port. RFC 1813 s5.1
pub(crate) fn at_mount<T>(
    settings: &Settings,
    remote: &Remote,
    credential: &[u8],
    ask: impl Fn(&mut Caller) -> Result<T, MountError>,
) -> Result<(Caller, T), MountError> {
    let address = remote.address;
    let at_port = |port| {
        let mut caller = connect(settings, address.with_port(port), credential)?;
        let answer = ask(&mut caller)?;
        Ok((caller, answer))
    };
    // Over RDMA the port of NFS says nothing about TCP: if nothing answers at the usual port,
    // rpcbind knows more. So does it if the user gave no port.
    let elsewhere = |error: &MountError| match error {
        MountError::Protocol { .. } | MountError::Silent { .. } => true,
        MountError::Connect { .. } => {
            settings.uses_rdma() || settings.nfs_rpcbind_port.is_some() && error.is_refused()
        }
        _ => false,
    };
    let error = match (at_port(settings.mount_port), settings.rpcbind_port) {
        (Err(error), Some(rpcbind)) if elsewhere(&error) => {
            match rpcbind::port_of(address.with_port(rpcbind), MOUNT_PROGRAM, "MOUNT") {
                Ok(port) => return at_port(port),
                // Nothing of NFS runs at the address: the port of NFS is what the user knows.
                Err(PortError::Away(_)) if error.is_refused() && !settings.uses_rdma() => error,
                Err(reason) => MountError::NoMountProgram {
                    address: address.with_port(settings.mount_port),
                    here: error.to_string(),
                    reason: reason.to_string(),
                },
            }
        }
        (other, _) => return other,
    };
    Err(error)
}

fn find(
    caller: &mut Caller,
    settings: &Settings,
    kind: PathKind,
    credential: &[u8],
) -> Result<Found, MountError> {
    let path = settings.export.as_slice();
    if kind == PathKind::Export {
        return match mnt(caller, path)? {
            Ok(handle) => Ok(Found { export: path.to_vec(), below: Vec::new(), handle }),
            Err(status) => Err(refused(caller, path, status)),
        };
    }
    let listed = match exports(caller) {
        // A server that does not list its exports may still mount them; the connection may not
        // survive the refusal.
        Err(MountError::Protocol { .. }) => {
            *caller = connect(settings, caller.address(), credential)?;
            Vec::new()
        }
        other => other?,
    };
    let is_listed = |length: &usize| path.get(..*length).is_some_and(|start| lists(&listed, start));
    // Listed exports come first: links and `..` in the rest of the path are then resolved from the
    // export's root.
    let (mut tried, others): (Vec<usize>, Vec<usize>) = beginnings(path).into_iter().partition(is_listed);
    let listed_count = tried.len();
    tried.extend(others.into_iter().take(BEGINNINGS_MAX));
    let mut denied = None;
    for (at, length) in tried.into_iter().enumerate() {
        let (start, below) = path.split_at_checked(length).unwrap_or((path, &[]));
        let start = if start.is_empty() { b"/" } else { start };
        match mnt(caller, start)? {
            Ok(handle) => return Ok(Found { export: start.to_vec(), below: below.to_vec(), handle }),
            Err(Status::NotFound | Status::NotDirectory | Status::Invalid) => {}
            // A server that lists its exports has no reason to deny another prefix of the path.
            Err(status) if at < listed_count || listed.is_empty() => {
                denied.get_or_insert_with(|| refused(caller, start, status));
            }
            Err(_) => {}
        }
    }
    Err(denied.unwrap_or_else(|| no_export(caller, path, &listed)))
}

/// Whether a path is in the list; the root of everything is listed as a slash.
fn lists(listed: &[Vec<u8>], start: &[u8]) -> bool {
    listed.iter().any(|export| trimmed(export) == trimmed(start))
}

fn trimmed(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
    path.get(..end).unwrap_or_default()
}

/// Where the prefixes of a path end, the longest first: at its end, and before each slash.
fn beginnings(path: &[u8]) -> Vec<usize> {
    let mut ends = vec![trimmed(path).len()];
    ends.extend(
        (0..path.len())
            .rev()
            .filter(|at| path.get(*at) == Some(&b'/') && (*at == 0 || path.get(at - 1) != Some(&b'/'))),
    );
    ends.dedup();
    ends
}

fn refused(caller: &Caller, export: &[u8], status: Status) -> MountError {
    let reason = match status {
        Status::NotFound => "there is no such export".to_owned(),
        Status::Access | Status::NotPermitted => format!("this host or user may not mount it ({status})"),
        other => format!("{} ({other})", crate::error::status_words(other)),
    };
    MountError::Refused {
        address: caller.address(),
        export: String::from_utf8_lossy(export).into_owned(),
        reason,
    }
}

fn no_export(caller: &Caller, path: &[u8], listed: &[Vec<u8>]) -> MountError {
    let shown = listed.iter().take(EXPORTS_SHOWN_MAX).map(|export| String::from_utf8_lossy(export));
    let mut exports = shown.collect::<Vec<_>>().join(", ");
    if listed.len() > EXPORTS_SHOWN_MAX {
        exports.push_str(", ...");
    }
    if exports.is_empty() {
        exports.push_str("nothing that it lists for this host");
    }
    let path = String::from_utf8_lossy(path).into_owned();
    MountError::NoExport { address: caller.address(), path, exports }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginnings_of_a_path_are_the_path_and_each_part_before_a_slash() {
        let shown = |path: &str| {
            let ends = beginnings(path.as_bytes());
            ends.into_iter().map(|end| path[..end].to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(shown("/export/a/b"), ["/export/a/b", "/export/a", "/export", ""]);
        assert_eq!(shown("/export//a/"), ["/export//a", "/export", ""]);
        assert_eq!(shown("/"), [""]);
    }

    #[test]
    fn the_root_directory_is_listed_as_a_slash() {
        assert!(lists(&[b"/".to_vec()], b""));
        assert!(lists(&[b"/export/".to_vec()], b"/export"));
        assert!(!lists(&[b"/export".to_vec()], b"/exp"));
    }
}
