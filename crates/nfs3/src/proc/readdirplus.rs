//! READDIRPLUS: lists the names in a directory, with attributes and handles. RFC 1813 s3.3.17
//!
//! The server writes the reply with an [`EntryWriter`]; the client reads [`Success::entries`], an
//! iterator over the message.

use super::entry_writer::{self, Kind, Named};
use crate::wire::wire_fields;
use crate::{FileHandle, List, NAME_WIRE_BYTES_MAX, Outcome, PostOpAttr, Verifier, Wire};
use xdr::{Reader, Result, Writer};

/// `READDIRPLUS3args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Args {
    /// The directory.
    pub directory: FileHandle,
    /// Where to continue: the cookie of the last entry seen; 0 for the start.
    pub cookie: u64,
    /// The verifier returned with that entry; zero for the start.
    pub verifier: Verifier,
    /// The maximum size of names, cookies and file numbers, in bytes.
    pub dircount: u32,
    /// The maximum size of `READDIRPLUS3resok`, in bytes.
    pub maxcount: u32,
}

wire_fields!(Args { directory, cookie, verifier, dircount, maxcount });

/// `entryplus3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The object's number.
    pub fileid: u64,
    /// The name: any bytes.
    pub name: &'a [u8],
    /// The position after this entry.
    pub cookie: u64,
    /// The object's attributes (`name_attributes`).
    pub attributes: PostOpAttr,
    /// The object's handle (`name_handle`).
    pub handle: Option<FileHandle>,
}

impl<'a> Wire<'a> for Entry<'a> {
    #[inline]
    fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        Ok(Self {
            fileid: reader.u64()?,
            name: reader.opaque(NAME_WIRE_BYTES_MAX)?,
            cookie: reader.u64()?,
            attributes: Wire::decode(reader)?,
            handle: Wire::decode(reader)?,
        })
    }

    #[inline]
    fn encode(&self, writer: &mut Writer<'_>) {
        writer.u64(self.fileid);
        writer.opaque(self.name);
        writer.u64(self.cookie);
        self.attributes.encode(writer);
        self.handle.encode(writer);
    }
}

/// `READDIRPLUS3resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Success<'a> {
    /// The directory's attributes (`dir_attributes`).
    pub attributes: PostOpAttr,
    /// The verifier of the cookies (`cookieverf`).
    pub verifier: Verifier,
    /// The entries.
    pub entries: List<'a, Entry<'a>>,
    /// Whether the directory ends with these entries.
    pub eof: bool,
}

wire_fields!(Success<'a> { attributes, verifier, entries, eof });

/// `READDIRPLUS3resfail`: the directory's attributes.
pub type Failure = PostOpAttr;

/// `READDIRPLUS3res`.
pub type Reply<'a> = Outcome<Success<'a>, Failure>;

/// The entries of READDIRPLUS.
#[derive(Debug)]
pub enum Plus {}

impl Kind for Plus {
    type Entry<'e> = Entry<'e>;
}

impl Named for Entry<'_> {
    fn name(&self) -> &[u8] {
        self.name
    }
}

/// Writes `READDIRPLUS3res`, including the status.
pub type EntryWriter<'w> = entry_writer::EntryWriter<'w, Plus>;

impl<'w> EntryWriter<'w> {
    /// Starts a reply after the present content of `out`; `dircount` and `maxcount` are those of
    /// the call, or less.
    pub fn new(out: &'w mut Vec<u8>, verifier: Verifier, dircount: u32, maxcount: u32) -> Self {
        Self::with_bounds(out, verifier, dircount, maxcount)
    }
}
