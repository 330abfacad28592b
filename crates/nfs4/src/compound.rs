//! Compounds, RFC 8881 s16.2 and s19.2: requests and replies of several operations.
//!
//! - A server reads a request with a [`RequestReader`], one operation at a time: an operation is
//!   decoded when its turn comes, and nothing is read after the first failure. It writes the reply
//!   with a [`ReplyWriter`].
//! - A client writes a request with a [`RequestWriter`] and reads the reply with a [`ReplyReader`],
//!   which checks that each result belongs to the operation that was asked.
//!
//! The payload of one WRITE or READ may travel beside the message. [`find_write`] and [`find_read`]
//! say where it begins when only the beginning of a message has been received. The message is then
//! in two parts, before and after the payload; the second one begins with the payload's padding.
//!
//! All four are generic over the direction: requests of clients ([`Fore`](crate::op::Fore)) or
//! callbacks ([`Back`](crate::cb::Back)).

mod reader;
mod reply_reader;
mod reply_writer;
pub mod shapes;
mod writer;

pub use reader::{Decoded, Refused, Request, RequestReader, WritePlace, find_write};
pub use reply_reader::{ReadPlace, ReplyError, ReplyReader, find_read};
pub use reply_writer::ReplyWriter;
pub use writer::{Finished, RequestWriter};

/// The longest tag that is accepted. The standard has no bound; Linux sends none, and no server
/// returns a longer one gladly. RFC 8881 s16.2.3
pub const TAG_BYTES_MAX: u32 = 1024;

/// The most operations of a compound that are read. A session allows fewer: Linux asks for 8, test
/// suites send some dozens.
pub const OPERATIONS_MAX: u32 = 128;

/// The data of a READ or a WRITE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Payload<'a> {
    /// The operation has none.
    None,
    /// In the message.
    Here(&'a [u8]),
    /// Beside the message, where it was received in place.
    Beside,
}

/// The bytes of a message: whole, or in two parts before and after a payload.
#[derive(Debug, Clone, Copy)]
struct Parts<'a> {
    reader: xdr::Reader<'a>,
    after: Option<&'a [u8]>,
}

impl<'a> Parts<'a> {
    const fn whole(bytes: &'a [u8]) -> Self {
        Self { reader: xdr::Reader::new(bytes), after: None }
    }

    const fn split(before: &'a [u8], after: &'a [u8]) -> Self {
        Self { reader: xdr::Reader::new(before), after: Some(after) }
    }

    /// Takes `len` bytes of payload and their padding. The payload is beside the message if the
    /// first part ends here.
    fn payload(&mut self, len: u32) -> xdr::Result<Payload<'a>> {
        let len = len as usize;
        if self.reader.remaining() == 0
            && let Some(after) = self.after.take()
        {
            self.reader = xdr::Reader::new(after);
            self.reader.bytes(xdr::padding(len))?;
            return Ok(Payload::Beside);
        }
        let bytes = self.reader.bytes(len)?;
        self.reader.bytes(xdr::padding(len))?;
        Ok(Payload::Here(bytes))
    }

    fn remaining(&self) -> usize {
        self.reader.remaining() + self.after.map_or(0, <[u8]>::len)
    }
}

#[cfg(test)]
mod tests;
