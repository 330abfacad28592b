//! Writes the reply of READDIR and READDIRPLUS entry by entry, within the size that the client asks
//! for. RFC 1813 s3.3.16, s3.3.17
//!
//! An entry is encoded, measured, and removed again if it does not fit. So the sizes are exact
//! without a separate computation. The directory's attributes come before the entries on the wire
//! but are known only after them, so their place is reserved and filled at the end.

use crate::types::opaque_bytes;
use crate::{Fattr3, Outcome, PostOpAttr, Status, Verifier, Wire};
use std::marker::PhantomData;
use xdr::Writer;

/// The attributes and the boolean before them.
const ATTRIBUTES_BYTES: usize = 4 + Fattr3::WIRE_BYTES;
/// The false after the last entry, and `eof`.
const END_BYTES: usize = 8;

/// One of the two procedures, by the type of its entries.
pub trait Kind {
    /// An entry.
    type Entry<'e>: Wire<'e> + Named;
}

/// An entry whose name counts against `dircount`.
pub trait Named {
    /// The entry's name.
    fn name(&self) -> &[u8];
}

/// An unfinished reply of READDIR or READDIRPLUS, in the buffer of the message.
#[derive(Debug)]
pub struct EntryWriter<'w, K> {
    out: &'w mut Vec<u8>,
    /// The position of the status in `out`.
    start: usize,
    /// The maximum size of `READDIR3resok` or `READDIRPLUS3resok`, which is all that follows the
    /// status.
    bytes_max: usize,
    /// How many bytes of names, cookies and file numbers may be added.
    directory_bytes_left: usize,
    entries: usize,
    full: bool,
    kind: PhantomData<K>,
}

impl<'w, K: Kind> EntryWriter<'w, K> {
    /// `dircount` bounds names, cookies and file numbers; `maxcount` bounds the whole result.
    pub(super) fn with_bounds(
        out: &'w mut Vec<u8>,
        verifier: Verifier,
        dircount: u32,
        maxcount: u32,
    ) -> Self {
        let start = out.len();
        Status::OK.encode(&mut Writer::new(out));
        out.resize(out.len() + ATTRIBUTES_BYTES, 0);
        verifier.encode(&mut Writer::new(out));
        Self {
            out,
            start,
            bytes_max: usize::try_from(maxcount).unwrap_or(usize::MAX),
            directory_bytes_left: usize::try_from(dircount).unwrap_or(usize::MAX),
            entries: 0,
            full: false,
            kind: PhantomData,
        }
    }

    /// Adds an entry. Returns false if the entry does not fit; no later entry is accepted then,
    /// because a listing has no gaps. The first entry may exceed `dircount`: otherwise a client
    /// that asks for less than one name could never continue. `maxcount` bounds the reply in any
    /// case.
    pub fn add(&mut self, entry: &K::Entry<'_>) -> bool {
        let directory_bytes = 8 + opaque_bytes(entry.name().len()) + 8;
        if self.full || (self.entries > 0 && directory_bytes > self.directory_bytes_left) {
            self.full = true;
            return false;
        }
        let before = self.out.len();
        let mut writer = Writer::new(self.out);
        writer.bool(true);
        entry.encode(&mut writer);
        if self.result_bytes() > self.bytes_max {
            self.out.truncate(before);
            self.full = true;
            return false;
        }
        self.directory_bytes_left = self.directory_bytes_left.saturating_sub(directory_bytes);
        self.entries += 1;
        true
    }

    /// The size of the result if it ended here.
    fn result_bytes(&self) -> usize {
        self.out.len() - self.start - 4 + END_BYTES
    }

    /// How many entries were accepted.
    #[must_use]
    pub const fn entries(&self) -> usize {
        self.entries
    }

    /// Ends the listing. `eof` says that no entry follows the last accepted one. If not even one
    /// entry fits, the reply becomes NFS3ERR_TOOSMALL. Returns the status of the reply.
    pub fn finish(self, eof: bool, attributes: PostOpAttr) -> Status {
        let stuck = self.entries == 0 && !eof;
        if stuck || self.result_bytes() > self.bytes_max {
            return self.fail(Status::TOOSMALL, attributes);
        }
        let follows = self.start + 4;
        match attributes {
            Some(attributes) => {
                let mut value = [0; ATTRIBUTES_BYTES];
                let (boolean, fields) = value.split_at_mut(4);
                boolean.copy_from_slice(&1_u32.to_be_bytes());
                fields.copy_from_slice(&attributes.to_bytes());
                self.out.splice(follows..follows + ATTRIBUTES_BYTES, value);
            }
            // The remaining zeros are the boolean.
            None => drop(self.out.drain(follows..follows + Fattr3::WIRE_BYTES)),
        }
        let mut writer = Writer::new(self.out);
        writer.bool(false);
        writer.bool(eof);
        Status::OK
    }

    /// Removes everything and turns the reply into a failure, for example because the store failed
    /// midway.
    pub fn fail(self, status: Status, attributes: PostOpAttr) -> Status {
        self.out.truncate(self.start);
        Outcome::<(), PostOpAttr>::Fail(status, attributes).encode(&mut Writer::new(self.out));
        status
    }
}
