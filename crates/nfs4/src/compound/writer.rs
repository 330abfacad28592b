//! Writes a request, operation by operation.

use crate::Wire;
use crate::table::Family;
use std::marker::PhantomData;
use xdr::Writer;

/// What a finished message looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finished {
    /// The length of the buffer with the message, without a payload beside it.
    pub len: usize,
    /// Where in the buffer the payload belongs, if there is one beside the message: the bytes
    /// before this offset, the payload, and the bytes from this offset on, which begin with the
    /// payload's padding.
    pub payload_at: Option<usize>,
}

/// Writes `COMPOUND4args` or `CB_COMPOUND4args` after the present content of a buffer. RFC 8881
/// s16.2, s19.2
#[derive(Debug)]
pub struct RequestWriter<'w, F> {
    writer: Writer<'w>,
    /// The position of the number of operations.
    count_at: usize,
    count: u32,
    payload_at: Option<usize>,
    family: PhantomData<F>,
}

impl<'w, F: Family> RequestWriter<'w, F> {
    /// Starts a request. `callback_ident` is written in a callback only.
    pub fn new(out: &'w mut Vec<u8>, tag: &[u8], minor: u32, callback_ident: u32) -> Self {
        let mut writer = Writer::new(out);
        writer.opaque(tag);
        writer.u32(minor);
        if F::IS_CALLBACK {
            writer.u32(callback_ident);
        }
        let count_at = writer.len();
        writer.u32(0);
        Self { writer, count_at, count: 0, payload_at: None, family: PhantomData }
    }

    /// Adds an operation. The data of a WRITE are sent beside the message, so a request has at most
    /// one WRITE.
    pub fn push(&mut self, args: &F::Args<'_>) -> &mut Self {
        F::number(F::operation_of_args(args)).encode(&mut self.writer);
        F::encode_args(args, &mut self.writer);
        if let Some(len) = F::args_payload(args) {
            debug_assert!(self.payload_at.is_none(), "a request has one payload beside it");
            self.payload_at = Some(self.writer.len());
            self.writer.pad(len as usize);
        }
        self.count += 1;
        self
    }

    /// How many operations have been added.
    #[must_use]
    pub const fn operations(&self) -> u32 {
        self.count
    }

    /// Ends the request.
    pub fn finish(mut self) -> Finished {
        self.writer.set_u32(self.count_at, self.count);
        Finished { len: self.writer.len(), payload_at: self.payload_at }
    }
}
