//! The MOUNT program: the handle of an export, and the list of exports. RFC 1813 s5

use fs::{FileHandle, Status};
use nfs3::Wire;
use nfs3::mount::{Procedure, export, mnt};
use xdr::Reader;

use super::{MOUNT_PROGRAM, convert};
use crate::caller::Caller;
use crate::error::MountError;

/// The handle that MOUNT returns for a directory, or its refusal.
pub(crate) fn mnt(caller: &mut Caller, path: &[u8]) -> Result<Result<FileHandle, Status>, MountError> {
    let number = Procedure::Mnt.number();
    let results = caller.call(MOUNT_PROGRAM, number, |writer| mnt::Args { path }.encode(writer))?;
    let reply =
        mnt::Reply::decode(&mut Reader::new(&results)).map_err(|error| caller.protocol(error.to_string()))?;
    Ok(match reply.into_result() {
        Ok(success) => Ok(convert::handle(success.root)),
        Err((status, ())) => Err(convert::status(nfs3::Status(status.0))),
    })
}

/// The exports that the server lists; empty if it lists none.
pub(crate) fn exports(caller: &mut Caller) -> Result<Vec<Vec<u8>>, MountError> {
    let results = caller.call(MOUNT_PROGRAM, Procedure::Export.number(), |_| ())?;
    let list = export::Reply::decode(&mut Reader::new(&results));
    Ok(list.map_or_else(|_| Vec::new(), |list| list.iter().map(|entry| entry.directory.to_vec()).collect()))
}
