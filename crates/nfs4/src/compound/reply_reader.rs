//! Reads a reply, result by result, and checks that each belongs to the operation that was asked.

use super::{OPERATIONS_MAX, Parts, Payload, TAG_BYTES_MAX};
use crate::op::{Fore, Reply, read};
use crate::table::{Family, Kind, Outcome};
use crate::{ILLEGAL, Status, Wire};
use std::marker::PhantomData;

/// Why a reply cannot be used. Always the server's fault, except for [`ReplyError::Ended`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    /// The reply does not decode.
    #[error(transparent)]
    Xdr(#[from] xdr::Error),
    /// A result of another operation than the one that was asked.
    #[error("result {index} is of operation {got} instead of {expected}")]
    WrongOperation {
        /// Which result, from 0.
        index: u32,
        /// The number of the operation that was asked.
        expected: u32,
        /// The number of the result.
        got: u32,
    },
    /// The compound ended before this operation, with this status.
    #[error("the compound ended with {0} after {1} results")]
    Ended(Status, u32),
    /// More results than operations, or another status than that of the last result.
    #[error("the results of the compound contradict its head")]
    Contradiction,
}

/// Reads `COMPOUND4res` or `CB_COMPOUND4res`. RFC 8881 s16.2, s19.2
#[derive(Debug, Clone)]
pub struct ReplyReader<'a, F> {
    /// The status of the last operation that was run.
    pub status: Status,
    /// The tag of the request.
    pub tag: &'a [u8],
    /// The number of results.
    pub results: u32,
    next: u32,
    last: Status,
    parts: Parts<'a>,
    family: PhantomData<F>,
}

impl<'a, F: Family> ReplyReader<'a, F> {
    /// Reads what precedes the results.
    ///
    /// # Errors
    /// A message that does not decode.
    pub fn new(message: &'a [u8]) -> Result<Self, ReplyError> {
        Self::of(Parts::whole(message))
    }

    /// The same for a message whose payload has been received elsewhere: the bytes before it, and
    /// those after it, which begin with its padding.
    ///
    /// # Errors
    /// As [`ReplyReader::new`].
    pub fn with_payload_beside(before: &'a [u8], after: &'a [u8]) -> Result<Self, ReplyError> {
        Self::of(Parts::split(before, after))
    }

    fn of(mut parts: Parts<'a>) -> Result<Self, ReplyError> {
        let reader = &mut parts.reader;
        let status = Status::decode(reader)?;
        let tag = reader.opaque(TAG_BYTES_MAX)?;
        let results = reader.u32()?;
        let family = PhantomData;
        Ok(Self { status, tag, results, next: 0, last: status, parts, family })
    }

    fn begin(&mut self) -> Result<u32, ReplyError> {
        if self.next >= self.results.min(OPERATIONS_MAX) {
            return Err(ReplyError::Ended(self.status, self.next));
        }
        let number = self.parts.reader.u32()?;
        self.next += 1;
        Ok(number)
    }

    /// The result of the next operation, which is `K`. A server that does not know the operation
    /// answers with OP_ILLEGAL, which is a failure of `K` here.
    ///
    /// # Errors
    /// A compound that ended before, a result of another operation, or one that does not decode.
    pub fn expect<K: Kind<Family = F>>(&mut self) -> Result<K::Reply<'a>, ReplyError> {
        let index = self.next;
        let got = self.begin()?;
        let expected = F::number(K::OPERATION);
        let reply = if got == expected {
            K::Reply::decode(&mut self.parts.reader)?
        } else if got == ILLEGAL {
            let status = Status::decode(&mut self.parts.reader)?;
            K::Reply::failed(if status == Status::OK { Status::OP_ILLEGAL } else { status })
        } else {
            return Err(ReplyError::WrongOperation { index, expected, got });
        };
        self.last = reply.status();
        Ok(reply)
    }

    /// The data that follow the head of a READ, and their padding.
    ///
    /// # Errors
    /// Data that are missing.
    pub fn data(&mut self, head: &read::ReplyHead) -> Result<Payload<'a>, ReplyError> {
        Ok(self.parts.payload(head.count)?)
    }

    /// The next result, of whatever operation, with the data of a READ; `None` after the last one.
    ///
    /// # Errors
    /// A result that does not decode, or of an operation for which there are no types here.
    pub fn next_result(&mut self, minor: u32) -> Option<Result<(F::Reply<'a>, Payload<'a>), ReplyError>> {
        (self.next < self.results.min(OPERATIONS_MAX)).then(|| self.any_result(minor))
    }

    fn any_result(&mut self, minor: u32) -> Result<(F::Reply<'a>, Payload<'a>), ReplyError> {
        let index = self.next;
        let got = self.begin()?;
        let unknown = ReplyError::WrongOperation { index, expected: ILLEGAL, got };
        let operation = F::lookup(got, minor).ok_or(unknown)?;
        let reply = F::decode_reply(operation, &mut self.parts.reader)?.ok_or(unknown)?;
        self.last = F::status(&reply);
        let payload = match F::reply_payload(&reply) {
            None => Payload::None,
            Some(len) => self.parts.payload(len)?,
        };
        Ok((reply, payload))
    }

    /// Ends the reply: all results have been read, the status is that of the last one, and nothing
    /// follows.
    ///
    /// # Errors
    /// [`ReplyError::Contradiction`], or bytes that follow.
    pub fn finish(self) -> Result<(), ReplyError> {
        if self.next != self.results || self.last != self.status {
            return Err(ReplyError::Contradiction);
        }
        match self.parts.remaining() {
            0 => Ok(()),
            more => Err(ReplyError::Xdr(xdr::Error::Trailing(more))),
        }
    }
}

/// Where the data of a READ are in a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadPlace {
    /// Which result the READ is.
    pub index: u32,
    /// The offset of the data's first byte in `COMPOUND4res`.
    pub at: usize,
    /// The READ; [`read::ReplyHead::count`] bytes of data follow.
    pub read: read::ReplyHead,
}

/// Finds the first READ that succeeded in the beginning of a reply of which not all has been
/// received. `None` if there is none, if it has not been received yet up to its data, or if
/// something before it cannot be decoded: then the reply is received whole.
#[must_use]
pub fn find_read(beginning: &[u8], minor: u32) -> Option<ReadPlace> {
    let mut reader = ReplyReader::<Fore>::new(beginning).ok()?;
    while reader.next < reader.results.min(OPERATIONS_MAX) {
        let index = reader.next;
        let operation = Fore::lookup(reader.begin().ok()?, minor)?;
        let reply = Fore::decode_reply(operation, &mut reader.parts.reader).ok()??;
        match reply {
            Reply::Read(Ok(read)) => {
                return Some(ReadPlace { index, at: beginning.len() - reader.parts.remaining(), read });
            }
            other if other.status() != Status::OK => return None,
            _ => {}
        }
    }
    None
}
