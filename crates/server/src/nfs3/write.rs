//! WRITE: writes data that were received into memory of the store, or else are a slice of the
//! record. RFC 1813 s3.3.7

use super::request::{HandlerError, Request};
use super::status;
use crate::program::{IO_BYTES_MAX, WriteHead};
use fs::{FileHandle, Stability};
use nfs3::proc::write::{ArgsHead, Reply, Stable, Success};
use nfs3::{Outcome, WccData};
use store::ReceiveBuffer;

/// The data of a WRITE.
pub enum Data<'a> {
    /// Received with the record.
    Slice(&'a [u8]),
    /// Received in place. The buffer stays here after a store had to wait.
    InPlace(Option<ReceiveBuffer>),
}

/// Decoded arguments in the types of `fs`.
#[inline]
pub fn head(args: &ArgsHead) -> WriteHead {
    let ArgsHead { file, offset, count, stable, data_len: _ } = *args;
    // A handle of NFS version 3 is shorter than the longest.
    let file = FileHandle::new(file.as_slice()).unwrap_or(FileHandle::EMPTY);
    WriteHead { file, offset, count, stability: stability(stable) }
}

const fn stability(stable: Stable) -> Stability {
    match stable {
        Stable::Unstable => Stability::Unstable,
        Stable::DataSync => Stability::DataSync,
        Stable::FileSync => Stability::FileSync,
    }
}

const fn stable(stability: Stability) -> Stable {
    match stability {
        Stability::Unstable => Stable::Unstable,
        Stability::DataSync => Stable::DataSync,
        Stability::FileSync => Stable::FileSync,
    }
}

#[inline]
pub fn run(request: &Request<'_>, head: &WriteHead, data: &mut Data<'_>) -> Result<Reply, HandlerError> {
    let target = match request.open_for_change_nonblocking(&head.file) {
        Ok(target) => target,
        Err(error) => return error.reply(WccData::default()),
    };
    let _change = match request.begin_write(&target) {
        Ok(change) => change,
        Err(status) => return Ok(Outcome::Fail(status::of_store(status), WccData::default())),
    };
    let how = head.stability;
    let (effect, result) = match data {
        // More than FSINFO's wtmax: a part is written, and the client goes on from there.
        Data::Slice(bytes) => {
            let bytes = bytes.get(..IO_BYTES_MAX as usize).unwrap_or(bytes);
            target.write(head.offset, bytes, how)?
        }
        Data::InPlace(receive_buffer) => target.write_received(receive_buffer, how)?,
    };
    let file = target.wcc(&effect);
    Ok(match result {
        Ok(written) => Outcome::Ok(Success {
            file,
            count: written.count,
            committed: stable(written.committed),
            verifier: written.verifier.to_be_bytes(),
        }),
        Err(error) => Outcome::Fail(status::of_store(error), file),
    })
}

/// The reply to a WRITE of which only the completion is known: as requested, without attributes.
///
/// Its verifier is that of the store, as long as the store still has the verifier of the server's
/// start: the reply cache began then too, so the verifier covers the write. Later the reply has a
/// verifier that no COMMIT returns, so that the client writes unstable data again.
pub fn replayed(request: &Request<'_>, head: &WriteHead) -> Result<Reply, HandlerError> {
    let target = match request.open_for_change_nonblocking(&head.file) {
        Ok(target) => target,
        Err(error) => return error.reply(WccData::default()),
    };
    let now = target.export.store.verifier();
    let verifier = if now == target.export.first_verifier { now } else { !now };
    let file = WccData::default();
    Ok(Outcome::Ok(Success {
        file,
        count: head.count.min(IO_BYTES_MAX),
        committed: stable(head.stability),
        verifier: verifier.to_be_bytes(),
    }))
}
