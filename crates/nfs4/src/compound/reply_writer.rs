//! Writes a reply, result by result.

use super::reader::{Refused, number_of};
use super::writer::Finished;
use crate::op::read_plus::DataHead;
use crate::op::readdir::EntryWriter;
use crate::op::{Fore, Operation};
use crate::table::Family;
use crate::{Status, Wire};
use fs::Verifier;
use std::marker::PhantomData;
use xdr::Writer;

/// Writes `COMPOUND4res` or `CB_COMPOUND4res` after the present content of a buffer. RFC 8881
/// s16.2, s19.2
#[derive(Debug)]
pub struct ReplyWriter<'w, F> {
    out: &'w mut Vec<u8>,
    /// The position of the status.
    start: usize,
    /// The position of the number of results.
    count_at: usize,
    count: u32,
    /// The position and the operation of the last result.
    last: Option<(usize, Option<u32>)>,
    /// The status of the last result.
    status: Status,
    payload: Option<BesidePayload>,
    family: PhantomData<F>,
}

/// A payload beside the message.
#[derive(Debug, Clone, Copy)]
struct BesidePayload {
    at: usize,
    len: u32,
}

impl<'w, F: Family> ReplyWriter<'w, F> {
    /// Starts a reply with the request's tag.
    pub fn new(out: &'w mut Vec<u8>, tag: &[u8]) -> Self {
        let start = out.len();
        let mut writer = Writer::new(out);
        Status::OK.encode(&mut writer);
        writer.opaque(tag);
        let count_at = writer.len();
        writer.u32(0);
        Self {
            out,
            start,
            count_at,
            count: 0,
            last: None,
            status: Status::OK,
            payload: None,
            family: PhantomData,
        }
    }

    /// Adds a result. The data of a READ are sent beside the message, so a reply has at most one
    /// payload; [`ReplyWriter::has_payload`] tells. Returns the status of the result; after a
    /// failure the compound ends.
    pub fn push(&mut self, reply: &F::Reply<'_>) -> Status {
        let number = F::number(F::operation_of_reply(reply));
        let mut writer = self.begin(number);
        F::encode_reply(reply, &mut writer);
        if let Some(len) = F::reply_payload(reply) {
            self.place(len);
        }
        self.status = F::status(reply);
        self.status
    }

    fn begin(&mut self, number: u32) -> Writer<'_> {
        debug_assert!(self.status == Status::OK, "nothing follows a failure");
        self.last = Some((self.out.len(), Some(number)));
        self.count += 1;
        let mut writer = Writer::new(self.out);
        writer.u32(number);
        writer
    }

    fn place(&mut self, len: u32) {
        debug_assert!(self.payload.is_none(), "a reply has one payload beside it");
        self.payload = Some(BesidePayload { at: self.out.len(), len });
        Writer::new(self.out).pad(len as usize);
    }

    /// Adds a failure of which nothing but the status is known.
    pub fn fail(&mut self, operation: F::Operation, status: Status) -> Status {
        self.refuse(Refused { operation: Some(operation), status })
    }

    /// Adds the result of an operation that was not run.
    pub fn refuse(&mut self, refused: Refused<F::Operation>) -> Status {
        let mut writer = self.begin(number_of::<F>(refused.operation));
        match refused.operation {
            Some(operation) => F::encode_failure(operation, refused.status, &mut writer),
            None => refused.status.encode(&mut writer),
        }
        self.status = refused.status;
        self.status
    }

    /// Replaces the last result by a failure, because the reply has become too long. Its payload is
    /// gone too; that of an earlier result stays. RFC 8881 s2.10.6.4
    pub fn replace_last(&mut self, operation: F::Operation, status: Status) -> Status {
        if let Some((at, number)) = self.last {
            debug_assert!(number == Some(F::number(operation)), "the last result is of that operation");
            self.out.truncate(at);
            self.count -= 1;
            self.status = Status::OK;
            // An earlier payload without padding has the place where the last result begins.
            self.payload = self.payload.filter(|payload| payload.at <= at);
        }
        self.fail(operation, status)
    }

    /// Adds successful results of earlier operations, as they were written: [`ReplyWriter::since`].
    pub fn restore(&mut self, count: u32, results: &[u8]) {
        self.last = None;
        self.count += count;
        Writer::new(self.out).bytes(results);
    }

    /// Where the next result begins in the message.
    #[must_use]
    pub const fn position(&self) -> usize {
        self.out.len()
    }

    /// The results that were written since a [`ReplyWriter::position`], without a payload beside
    /// the message.
    #[must_use]
    pub fn since(&self, position: usize) -> &[u8] {
        self.out.get(position..).unwrap_or_default()
    }

    /// Whether a payload is sent beside this reply: a second READ must be answered with data in the
    /// message ([`ReplyWriter::read_here`]).
    #[must_use]
    pub const fn has_payload(&self) -> bool {
        self.payload.is_some()
    }

    /// The length of the reply so far, with its payload.
    #[must_use]
    pub fn len(&self) -> usize {
        self.out.len() - self.start + self.payload.map_or(0, |payload| payload.len as usize)
    }

    /// Whether the reply is empty, which it never is.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// The number of results.
    #[must_use]
    pub const fn results(&self) -> u32 {
        self.count
    }

    /// The status of the last result.
    #[must_use]
    pub const fn status(&self) -> Status {
        self.status
    }

    /// Ends the reply with the status of its last result.
    pub fn finish(self) -> Finished {
        let status = self.status;
        self.finish_with(status)
    }

    /// Ends the reply with a status of its own, such as NFS4ERR_MINOR_VERS_MISMATCH of a reply
    /// without results. RFC 8881 s16.2.3
    pub fn finish_with(self, status: Status) -> Finished {
        let (start, count_at, count) = (self.start, self.count_at, self.count);
        let mut writer = Writer::new(self.out);
        writer.set_u32(start, status.0);
        writer.set_u32(count_at, count);
        Finished { len: writer.len(), payload_at: self.payload.map(|payload| payload.at) }
    }
}

impl ReplyWriter<'_, Fore> {
    /// Adds the result of a READDIR: `list` adds the entries, and ends the listing.
    pub fn readdir(
        &mut self,
        verifier: Verifier,
        dircount: u32,
        maxcount: u32,
        list: impl FnOnce(EntryWriter<'_>) -> Status,
    ) -> Status {
        self.begin(Operation::ReadDir.number());
        self.status = list(EntryWriter::new(self.out, verifier, dircount, maxcount));
        self.status
    }

    /// Adds the result of a READ whose data are in the message.
    pub fn read_here<'d>(&mut self, eof: bool, data: impl Iterator<Item = &'d [u8]>) -> Status {
        let mut writer = self.begin(Operation::Read.number());
        Status::OK.encode(&mut writer);
        writer.bool(eof);
        let at = writer.len();
        writer.u32(0);
        data.for_each(|piece| writer.bytes(piece));
        let len = writer.len() - at - 4;
        writer.pad(len);
        // A READ asks for a length of 32 bits.
        writer.set_u32(at, u32::try_from(len).unwrap_or(u32::MAX));
        Status::OK
    }

    /// Adds the result of a READ_PLUS with data beside the message.
    pub fn read_plus(&mut self, head: &DataHead) -> Status {
        let mut writer = self.begin(Operation::ReadPlus.number());
        Status::OK.encode(&mut writer);
        head.encode(&mut writer);
        self.place(head.count);
        Status::OK
    }
}
