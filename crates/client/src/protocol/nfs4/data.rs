//! The calls that the engine makes itself: READ, WRITE and COMMIT, whose payload is carried
//! separately, and the GETATTR that validates a connection.
//!
//! No open is kept, so all of them use the anonymous stateid. RFC 8881 s8.2.3

use ::nfs4::op::{commit, handles, kind, read, write};
use ::nfs4::{Operation, Stateid, Wire};
use fs::{Attributes, Change, FileHandle, Stability, Verifier};
use xdr::Writer;

use super::reply::{done, expect};
use super::{SlotUse, begin};
use crate::owners::Names;
use crate::protocol::{Answered, ReadHead, Results, Written};

/// PUTFH and one more operation, after SEQUENCE.
pub(crate) const OPERATIONS: u32 = 2;

/// Writes SEQUENCE PUTFH, and the number of the operation that follows.
fn begin_on(writer: &mut Writer<'_>, minor: u32, slot: &SlotUse, file: FileHandle, operation: Operation) {
    begin(writer, minor, OPERATIONS + 1, slot, operation);
    writer.u32(Operation::PutFh.number());
    handles::PutArgs { handle: file }.encode(writer);
    writer.u32(operation.number());
}

pub(crate) fn encode_read(
    writer: &mut Writer<'_>,
    minor: u32,
    slot: &SlotUse,
    file: FileHandle,
    (offset, count): (u64, u32),
) {
    begin_on(writer, minor, slot, file, Operation::Read);
    read::Args { stateid: Stateid::ANONYMOUS, offset, count }.encode(writer);
}

/// WRITE is the last operation, so its payload is the end of the message.
pub(crate) fn encode_write(
    writer: &mut Writer<'_>,
    minor: u32,
    slot: &SlotUse,
    file: FileHandle,
    (offset, count, stable): (u64, u32, Stability),
) {
    begin_on(writer, minor, slot, file, Operation::Write);
    write::ArgsHead { stateid: Stateid::ANONYMOUS, offset, stable, count }.encode(writer);
}

/// Commits the whole file.
pub(crate) fn encode_commit(writer: &mut Writer<'_>, minor: u32, slot: &SlotUse, file: FileHandle) {
    begin_on(writer, minor, slot, file, Operation::Commit);
    commit::Args { offset: 0, count: 0 }.encode(writer);
}

/// Reads the results of a call that the server has executed: PUTFH, and then that of `K`.
macro_rules! after_put {
    ($results:ident, $kind:ty) => {{
        if let Some(status) = $results.status {
            return Ok(Err(status));
        }
        done(expect::<kind::PutFh>(&mut $results.reader)?)?;
        done(expect::<$kind>(&mut $results.reader)?)?
    }};
}

/// Leaves the results at the data of the READ.
pub(crate) fn decode_read(results: &mut Results<'_>) -> Answered<ReadHead> {
    let read = after_put!(results, kind::Read);
    Ok(Ok(ReadHead { count: read.count, eof: read.eof }))
}

/// The reply does not tell how the file was before.
pub(crate) fn decode_write(results: &mut Results<'_>) -> Answered<Written> {
    let write::Success { count, committed, verifier } = after_put!(results, kind::Write);
    Ok(Ok(Written { change: Change::default(), count, stability: committed, verifier }))
}

pub(crate) fn decode_commit(results: &mut Results<'_>) -> Answered<Verifier> {
    Ok(Ok(after_put!(results, kind::Commit).verifier))
}

pub(crate) fn decode_root(results: &mut Results<'_>) -> Answered<Attributes> {
    let told = after_put!(results, kind::GetAttr);
    // Who owns the root says nothing about where a connection leads.
    super::operations::object(&told, &Names::none()).map(Ok)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::nfs4::SessionId;
    use ::nfs4::compound::shapes::{self, READ_DATA_AT};
    use ::nfs4::op::sequence;
    use xdr::Reader;

    const SLOT: SlotUse =
        SlotUse { generation: 0, session: SessionId([7; 16]), slot: 3, sequence: 9, highest_slot: 15 };

    fn sequence(cache: bool) -> sequence::Args {
        sequence::Args { session: SLOT.session, sequence: 9, slot: 3, highest_slot: 15, cache }
    }

    fn file() -> FileHandle {
        FileHandle::new(b"file!").unwrap()
    }

    fn written(encode: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
        let mut out = Vec::new();
        encode(&mut Writer::new(&mut out));
        out
    }

    // RFC 8881 s16.2, s18.22, s18.32
    #[test]
    fn the_calls_of_the_engine_are_the_compounds_that_clients_send() {
        let stateid = Stateid::ANONYMOUS;
        let mut asked = Vec::new();
        let read = read::Args { stateid, offset: 5, count: 4096 };
        shapes::on(&mut asked, 2, &sequence(false), file()).read(read);
        let finished = |mut bytes: Vec<u8>, count: u8| {
            bytes[11] = count;
            bytes
        };
        assert_eq!(written(|to| encode_read(to, 2, &SLOT, file(), (5, 4096))), finished(asked, 3));

        let mut asked = Vec::new();
        let stable = Stability::Unstable;
        let write = write::ArgsHead { stateid, offset: 5, stable, count: 4 };
        shapes::on(&mut asked, 1, &sequence(true), file()).write(write, ::nfs4::Bitmap::EMPTY);
        assert_eq!(written(|to| encode_write(to, 1, &SLOT, file(), (5, 4, stable))), finished(asked, 3));
    }

    #[test]
    fn the_data_of_a_read_are_where_a_reply_has_them() {
        let mut reply = vec![0; READ_DATA_AT];
        // The numbers of the three operations, eof and the length.
        for (at, word) in [(8, 3), (12, 53), (56, 22), (64, 25), (72, 1), (76, 5)] {
            reply[at..at + 4].copy_from_slice(&u32::to_be_bytes(word));
        }
        reply.extend(*b"hello\0\0\0");
        let mut results = Results::for_tests(Reader::new(&reply[56..]));
        let head = decode_read(&mut results).unwrap().unwrap();
        assert_eq!((head.count, head.eof), (5, true));
        assert_eq!(results.reader.rest(), b"hello\0\0\0");
        let mut results = Results::for_tests(Reader::new(&reply[56..]));
        assert!(decode_write(&mut results).is_err(), "another operation");
        for len in 0..READ_DATA_AT - 56 {
            assert!(decode_read(&mut Results::for_tests(Reader::new(&reply[56..56 + len]))).is_err());
        }
    }
}
