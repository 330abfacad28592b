//! The calls that the engine makes itself: READ, WRITE and COMMIT, whose payload is carried
//! separately, and the GETATTR that validates a connection.

use fs::{Attributes, FileHandle, Stability, Verifier};
use nfs3::proc::{commit, getattr, read, write};
use nfs3::{Outcome, Wire};
use xdr::{Reader, Writer};

use super::convert;
use crate::protocol::{Answered, ReadHead, Written};

pub(crate) fn encode_read(writer: &mut Writer<'_>, file: FileHandle, offset: u64, count: u32) {
    read::Args { file: convert::to_handle(file), offset, count }.encode(writer);
}

pub(crate) fn encode_write(
    writer: &mut Writer<'_>,
    file: FileHandle,
    offset: u64,
    count: u32,
    stability: Stability,
) {
    let (file, stable) = (convert::to_handle(file), convert::to_stable(stability));
    write::ArgsHead { file, offset, count, stable, data_len: count }.encode(writer);
}

/// Commits the whole file.
pub(crate) fn encode_commit(writer: &mut Writer<'_>, file: FileHandle) {
    commit::Args { file: convert::to_handle(file), offset: 0, count: 0 }.encode(writer);
}

/// Leaves `reader` at the data of the READ.
pub(crate) fn decode_read(reader: &mut Reader<'_>) -> Answered<ReadHead> {
    Ok(match read::Reply::decode(reader)? {
        Outcome::Ok(head) => Ok(ReadHead { count: head.count, eof: head.eof }),
        Outcome::Fail(status, _) => Err(convert::status(status)),
    })
}

pub(crate) fn decode_write(reader: &mut Reader<'_>) -> Answered<Written> {
    Ok(match write::Reply::decode(reader)? {
        Outcome::Ok(success) => Ok(Written {
            change: convert::change(&success.file),
            count: success.count,
            stability: convert::stability(success.committed),
            verifier: success.verifier,
        }),
        Outcome::Fail(status, _) => Err(convert::status(status)),
    })
}

pub(crate) fn decode_commit(reader: &mut Reader<'_>) -> Answered<Verifier> {
    Ok(match commit::Reply::decode(reader)? {
        Outcome::Ok(success) => Ok(success.verifier),
        Outcome::Fail(status, _) => Err(convert::status(status)),
    })
}

pub(crate) fn decode_root(reader: &mut Reader<'_>) -> Answered<Attributes> {
    Ok(match getattr::Reply::decode(reader)? {
        Outcome::Ok(success) => Ok(convert::attributes(&success.attributes)),
        Outcome::Fail(status, ()) => Err(convert::status(status)),
    })
}

/// The reply of a server to the path validation.
#[cfg(test)]
pub(crate) fn root_reply(fsid: u64, fileid: u64) -> Vec<u8> {
    let (time, rdev) = (nfs3::NfsTime::default(), nfs3::SpecData::default());
    let attributes = nfs3::Fattr3 {
        file_type: nfs3::FileType::Directory,
        mode: 0o755,
        nlink: 1,
        uid: 0,
        gid: 0,
        size: 0,
        used: 0,
        rdev,
        fsid,
        fileid,
        atime: time,
        mtime: time,
        ctime: time,
    };
    let mut results = Vec::new();
    getattr::Reply::Ok(getattr::Success { attributes }).encode(&mut Writer::new(&mut results));
    results
}
