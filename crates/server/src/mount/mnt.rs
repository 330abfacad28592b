//! MNT: the handle of an export's root, or of a directory below it. RFC 1813 s5.2.1
//!
//! A client that no export admits gets the same answer for every path.

use crate::client::Client;
use crate::export::{Export, Exports};
use crate::group::Group;
use crate::nfs3::status;
use crate::request::HandlerError;
use fs::FileKind;
use nfs3::mount::PATH_BYTES_MAX;
use nfs3::mount::mnt::{Args, Reply, Success};
use nfs3::{FileHandle, Outcome, Status};
use rpc::auth::{AUTH_NONE, AUTH_SYS};
use store::{Attempt, Caller, Wait};

/// The path is resolved with the rights of the server: each call checks what the client may do
/// there.
const SERVER: Caller<'static> = Caller { uid: 0, gid: 0, gids: &[] };

/// Answers MNT, and logs who mounted what or why not.
pub fn run(group: &Group, client: &Client, args: &Args<'_>, wait: Wait<'_>) -> Result<Reply, HandlerError> {
    let reply = mount(group, client, args, wait)?;
    let path = super::logged_path(args.path);
    let peer = client.peer;
    match &reply {
        Outcome::Ok(_) => tracing::info!(%peer, %path, "mounted"),
        Outcome::Fail(Status::ACCES, ()) if client.admitted.is_empty() => {
            tracing::info!(%peer, %path, "mount refused: no export admits this address in `allow`");
        }
        Outcome::Fail(Status::ACCES, ()) => {
            tracing::info!(%peer, %path, "mount refused: the export's `allow` or `secure` does not admit this client");
        }
        Outcome::Fail(status, ()) => tracing::info!(%peer, %path, ?status, "mount refused"),
    }
    Ok(reply)
}

fn mount(group: &Group, client: &Client, args: &Args<'_>, wait: Wait<'_>) -> Result<Reply, HandlerError> {
    if client.admitted.is_empty() {
        return Ok(Outcome::Fail(Status::ACCES, ()));
    }
    if args.path.len() > PATH_BYTES_MAX as usize {
        return Ok(Outcome::Fail(Status::NAMETOOLONG, ()));
    }
    let Some((index, export, rest)) = find(&client.exports, args.path) else {
        return Ok(Outcome::Fail(Status::NOENT, ()));
    };
    if !client.admitted.contains(index) {
        return Ok(Outcome::Fail(Status::ACCES, ()));
    }
    Ok(match walk(export, rest, wait)? {
        Ok(root) => {
            group.mounts.add(client.peer.ip(), &export.config.path);
            let mut flavors = smallvec::smallvec![AUTH_SYS];
            if export.config.all_squash {
                flavors.push(AUTH_NONE);
            }
            Outcome::Ok(Success { root, flavors })
        }
        Err(status) => Outcome::Fail(status, ()),
    })
}

/// The export with the longest path that is a prefix of `path`, and the rest of `path`.
fn find<'e, 'p>(exports: &'e Exports, path: &'p [u8]) -> Option<(usize, &'e Export, &'p [u8])> {
    let below = |export: &Export| {
        let prefix = export.config.path.trim_end_matches('/').as_bytes();
        let rest = path.strip_prefix(prefix)?;
        (rest.is_empty() && !path.is_empty() || rest.first() == Some(&b'/')).then_some(rest)
    };
    let found = exports.iter().filter_map(|(index, export)| below(export).map(|rest| (index, export, rest)));
    found.min_by_key(|(_, _, rest)| rest.len())
}

fn walk(export: &Export, rest: &[u8], wait: Wait<'_>) -> Attempt<Result<FileHandle, Status>> {
    let mut object = export.store.root();
    for name in rest.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".") {
        if name == b".." {
            return Ok(Err(Status::NOENT));
        }
        object = match export.store.lookup(SERVER, object, name, wait)?.1 {
            Ok(found) if found.attributes.kind == FileKind::Directory => found.object,
            Ok(_) => return Ok(Err(Status::NOTDIR)),
            Err(error) => return Ok(Err(status::of_store(error))),
        };
    }
    Ok(Ok(export.handle(object)))
}
