//! Reads a request, operation by operation.

use super::{OPERATIONS_MAX, Parts, Payload, TAG_BYTES_MAX};
use crate::op::{Args, Fore, sequence, write};
use crate::table::Family;
use crate::{ILLEGAL, MINOR_VERSIONS, Operation, Status};
use fs::FileHandle;
use std::marker::PhantomData;
use xdr::Result;

/// An operation that cannot be run; the result that answers it. The compound ends with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused<O> {
    /// The operation, or `None` if the minor version does not have its number: the result then has
    /// the number of OP_ILLEGAL. RFC 8881 s18.52
    pub operation: Option<O>,
    /// OP_ILLEGAL; NOTSUPP for an operation that nobody here supports; BADXDR for arguments that do
    /// not decode; TOO_MANY_OPS beyond [`OPERATIONS_MAX`].
    pub status: Status,
}

/// An operation of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request<'a, A> {
    /// Its place in the compound, from 0.
    pub index: u32,
    /// Its arguments.
    pub args: A,
    /// The data of a WRITE.
    pub payload: Payload<'a>,
}

/// An operation, or the result of one that cannot be run.
pub type Decoded<'a, F> =
    std::result::Result<Request<'a, <F as Family>::Args<'a>>, Refused<<F as Family>::Operation>>;

/// Reads `COMPOUND4args` or `CB_COMPOUND4args`. RFC 8881 s16.2, s19.2
#[derive(Debug, Clone)]
pub struct RequestReader<'a, F> {
    /// The tag, which the reply repeats.
    pub tag: &'a [u8],
    /// The minor version.
    pub minor: u32,
    /// Of a callback: `callback_ident`, which has no meaning in a session.
    pub callback_ident: u32,
    /// The number of operations, as far as the sender says. More of them than a session allows are
    /// refused as the result of SEQUENCE, before any is run. RFC 8881 s18.36.3
    pub operations: u32,
    next: u32,
    ended: bool,
    parts: Parts<'a>,
    family: PhantomData<F>,
}

impl<'a, F: Family> RequestReader<'a, F> {
    /// Reads what precedes the operations.
    ///
    /// # Errors
    /// A message that does not decode, or a tag above [`TAG_BYTES_MAX`]: the answer is
    /// GARBAGE_ARGS.
    pub fn new(message: &'a [u8]) -> Result<Self> {
        Self::of(Parts::whole(message))
    }

    /// The same for a message whose payload has been received elsewhere: the bytes before it, and
    /// those after it, which begin with its padding.
    ///
    /// # Errors
    /// As [`RequestReader::new`].
    pub fn with_payload_beside(before: &'a [u8], after: &'a [u8]) -> Result<Self> {
        Self::of(Parts::split(before, after))
    }

    fn of(mut parts: Parts<'a>) -> Result<Self> {
        let reader = &mut parts.reader;
        let tag = reader.opaque(TAG_BYTES_MAX)?;
        let minor = reader.u32()?;
        let callback_ident = if F::IS_CALLBACK { reader.u32()? } else { 0 };
        let operations = reader.u32()?;
        let family = PhantomData;
        Ok(Self { tag, minor, callback_ident, operations, next: 0, ended: false, parts, family })
    }

    /// Checks the minor version.
    ///
    /// # Errors
    /// NFS4ERR_MINOR_VERS_MISMATCH, which a reply without results answers. RFC 8881 s16.2.3
    pub fn check_minor(&self) -> std::result::Result<(), Status> {
        if MINOR_VERSIONS.contains(&self.minor) { Ok(()) } else { Err(Status::MINOR_VERS_MISMATCH) }
    }

    /// The next operation; `None` after the last one. Decodes its arguments and nothing beyond.
    pub fn next_operation(&mut self) -> Option<Decoded<'a, F>> {
        if self.ended || self.next == self.operations {
            return None;
        }
        let request = self.decode();
        self.ended = request.is_err();
        self.next += 1;
        Some(request)
    }

    fn decode(&mut self) -> Decoded<'a, F> {
        let refused = |operation, status| Refused { operation, status };
        let number = self.parts.reader.u32().map_err(|_| refused(None, Status::BADXDR))?;
        let operation = F::lookup(number, self.minor).ok_or_else(|| refused(None, Status::OP_ILLEGAL))?;
        if self.next >= OPERATIONS_MAX {
            return Err(refused(Some(operation), Status::TOO_MANY_OPS));
        }
        let bad = |_: xdr::Error| refused(Some(operation), Status::BADXDR);
        let args = F::decode_args(operation, &mut self.parts.reader).map_err(bad)?;
        let args = args.ok_or_else(|| refused(Some(operation), Status::NOTSUPP))?;
        let payload = match F::args_payload(&args) {
            None => Payload::None,
            Some(len) => self.parts.payload(len).map_err(bad)?,
        };
        Ok(Request { index: self.next, args, payload })
    }

    /// The index of the next operation.
    #[must_use]
    pub const fn index(&self) -> u32 {
        self.next
    }

    /// How many bytes have not been read; 0 after the last operation of a sound request.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.parts.remaining()
    }
}

/// Where the data of a WRITE are in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WritePlace {
    /// Which operation the WRITE is.
    pub index: u32,
    /// The offset of the data's first byte in `COMPOUND4args`.
    pub at: usize,
    /// The WRITE; [`write::ArgsHead::count`] bytes of data follow.
    pub write: write::ArgsHead,
    /// The file, if a PUTFH right before the WRITE says so.
    pub file: Option<FileHandle>,
    /// The slot, if the request has one.
    pub sequence: Option<sequence::Args>,
}

/// Finds the first WRITE in the beginning of a request of which not all has been received. `None`
/// if there is none, if it has not been received yet up to its data, or if something before it
/// cannot be decoded: then the request is received whole, and answered as it deserves.
#[must_use]
pub fn find_write(beginning: &[u8]) -> Option<WritePlace> {
    let mut reader = RequestReader::<Fore>::new(beginning).ok()?;
    reader.check_minor().ok()?;
    let (mut file, mut sequence) = (None, None);
    while reader.next < reader.operations.min(OPERATIONS_MAX) {
        let index = reader.next;
        let operation = Operation::of(reader.parts.reader.u32().ok()?, reader.minor)?;
        let args = Fore::decode_args(operation, &mut reader.parts.reader).ok()??;
        let next = match args {
            Args::Write(write) => {
                let at = beginning.len() - reader.remaining();
                return Some(WritePlace { index, at, write, file, sequence });
            }
            Args::PutFh(put) => Some(put.handle),
            Args::Sequence(args) => {
                sequence = Some(args);
                None
            }
            _ => None,
        };
        file = next;
        reader.next += 1;
    }
    None
}

/// The number that a result has.
pub(super) fn number_of<F: Family>(operation: Option<F::Operation>) -> u32 {
    operation.map_or(ILLEGAL, F::number)
}
