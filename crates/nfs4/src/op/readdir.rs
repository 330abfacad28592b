//! READDIR: lists the current directory, with attributes. RFC 8881 s18.23
//!
//! The server writes the reply with an [`EntryWriter`]; the client reads [`Success::entries`].

use crate::wire::wire_fields;
use crate::{Attributes, Bitmap, Fattr, Status, Wire};
use fs::Verifier;
use std::fmt;
use xdr::{Reader, Writer};

/// `READDIR4args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Args {
    /// Where to continue: the cookie of the last entry seen; 0 for the start. 1 and 2 are reserved.
    pub cookie: u64,
    /// The verifier returned with that entry; zero for the start.
    pub verifier: Verifier,
    /// A hint: how many bytes of names and cookies to return; 0 for no hint.
    pub dircount: u32,
    /// The maximum size of `READDIR4resok`, in bytes.
    pub maxcount: u32,
    /// The attributes of the entries.
    pub wanted: Bitmap,
}

wire_fields!(Args { cookie, verifier, dircount, maxcount, wanted });

/// `entry4` without the pointer to the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The position after this entry.
    pub cookie: u64,
    /// The name: any bytes.
    pub name: &'a [u8],
    /// The attributes.
    pub attributes: Fattr<'a>,
}

wire_fields!(Entry<'a> { cookie, name, attributes });

/// A received list of entries, each of which has been checked. Its size is bounded by the message
/// that it borrows from.
#[derive(Clone, Copy, Default)]
pub struct Entries<'a> {
    bytes: &'a [u8],
}

impl<'a> Entries<'a> {
    /// The entries, in order.
    pub fn iter(&self) -> impl Iterator<Item = Entry<'a>> + use<'a> {
        let mut reader = Reader::new(self.bytes);
        // Every entry was decoded once when the list was read, so an error here can only mean the
        // end of the list.
        std::iter::from_fn(move || match reader.bool() {
            Ok(true) => Entry::decode(&mut reader).ok(),
            _ => None,
        })
    }
}

impl PartialEq for Entries<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Entries<'_> {}

impl fmt::Debug for Entries<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.iter()).finish()
    }
}

impl<'a> Wire<'a> for Entries<'a> {
    fn decode(reader: &mut Reader<'a>) -> xdr::Result<Self> {
        let start = reader.rest();
        while reader.bool()? {
            Entry::decode(reader)?;
        }
        let taken = start.len().saturating_sub(reader.remaining());
        Ok(Self { bytes: start.get(..taken).unwrap_or_default() })
    }

    fn encode(&self, writer: &mut Writer<'_>) {
        for entry in self.iter() {
            writer.bool(true);
            entry.encode(writer);
        }
        writer.bool(false);
    }
}

/// `READDIR4resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Success<'a> {
    /// The verifier of the cookies (`cookieverf`).
    pub verifier: Verifier,
    /// The entries.
    pub entries: Entries<'a>,
    /// Whether the directory ends with these entries.
    pub eof: bool,
}

wire_fields!(Success<'a> { verifier, entries, eof });

/// `READDIR4res`.
pub type Reply<'a> = Result<Success<'a>, Status>;

/// The false after the last entry, and `eof`.
const END_BYTES: usize = 8;

/// An unfinished `READDIR4res` at the end of a buffer. An entry is encoded, measured, and removed
/// again if it does not fit. So the sizes are exact without a separate computation.
#[derive(Debug)]
pub struct EntryWriter<'w> {
    out: &'w mut Vec<u8>,
    /// The position of the status in `out`.
    start: usize,
    /// The maximum size of `READDIR4resok`, which is all that follows the status.
    bytes_max: usize,
    /// How many bytes of names and cookies may be added.
    names_left: usize,
    entries: usize,
    full: bool,
}

impl<'w> EntryWriter<'w> {
    /// Starts a reply after the present content of `out`. `maxcount` is that of the call, or less;
    /// `dircount` is a hint, and 0 is none.
    pub fn new(out: &'w mut Vec<u8>, verifier: Verifier, dircount: u32, maxcount: u32) -> Self {
        let start = out.len();
        let mut writer = Writer::new(out);
        Status::OK.encode(&mut writer);
        verifier.encode(&mut writer);
        let names_left = if dircount == 0 { u32::MAX } else { dircount };
        Self {
            out,
            start,
            bytes_max: maxcount as usize,
            names_left: names_left as usize,
            entries: 0,
            full: false,
        }
    }

    /// Adds an entry with those of the `wanted` attributes that have a value. Returns false if it
    /// does not fit; no later entry is accepted then, because a listing has no gaps. The first
    /// entry may exceed `dircount`, a hint; `maxcount` bounds the reply in any case.
    pub fn add(&mut self, cookie: u64, name: &[u8], attributes: &Attributes<'_>, wanted: Bitmap) -> bool {
        let names = 12 + name.len() + xdr::padding(name.len());
        if self.full || (self.entries > 0 && names > self.names_left) {
            self.full = true;
            return false;
        }
        let before = self.out.len();
        let mut writer = Writer::new(self.out);
        writer.bool(true);
        writer.u64(cookie);
        writer.opaque(name);
        attributes.encode_some(wanted, &mut writer);
        if self.result_bytes() > self.bytes_max {
            self.out.truncate(before);
            self.full = true;
            return false;
        }
        self.names_left = self.names_left.saturating_sub(names);
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
    /// entry fits, the result becomes NFS4ERR_TOOSMALL. Returns the status. RFC 8881 s18.23.4
    pub fn finish(self, eof: bool) -> Status {
        let stuck = self.entries == 0 && !eof;
        if stuck || self.result_bytes() > self.bytes_max {
            return self.fail(Status::TOOSMALL);
        }
        let mut writer = Writer::new(self.out);
        writer.bool(false);
        writer.bool(eof);
        Status::OK
    }

    /// Removes everything and turns the result into a failure, for example because the store failed
    /// midway.
    pub fn fail(self, status: Status) -> Status {
        self.out.truncate(self.start);
        status.encode(&mut Writer::new(self.out));
        status
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(maxcount: u32, dircount: u32, names: &[&[u8]]) -> (Vec<u8>, Status) {
        let mut out = b"head".to_vec();
        let mut writer = EntryWriter::new(&mut out, *b"verifier", dircount, maxcount);
        let attributes = Attributes { fileid: Some(7), ..Attributes::default() };
        let wanted = Bitmap::of(&[20]);
        let all = names.iter().zip(3..).all(|(name, cookie)| writer.add(cookie, name, &attributes, wanted));
        let status = writer.finish(all);
        assert_eq!(out.get(..4), Some(&b"head"[..]));
        (out.split_off(4), status)
    }

    // RFC 8881 s18.23
    #[test]
    fn a_listing_is_as_the_standard_has_it() {
        #[rustfmt::skip]
        let expected = [
            0, 0, 0, 0, // NFS4_OK
            b'v', b'e', b'r', b'i', b'f', b'i', b'e', b'r', // cookieverf
            0, 0, 0, 1, // an entry
            0, 0, 0, 0, 0, 0, 0, 3, // cookie
            0, 0, 0, 1, b'a', 0, 0, 0, // name
            0, 0, 0, 1, 0, 0x10, 0, 0, // attrmask: bit 20 (fileid)
            0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 7, // attr_vals
            0, 0, 0, 0, // no further entry
            0, 0, 0, 1, // eof
        ];
        assert_eq!(listed(4096, 0, &[b"a"]), (expected.to_vec(), Status::OK));
    }

    #[test]
    fn a_listing_keeps_to_maxcount_and_says_that_it_goes_on() {
        // Verifier 8, end 8, each entry 40.
        let (bytes, status) = listed(8 + 8 + 40 + 39, 0, &[b"a", b"b", b"c"]);
        assert_eq!((status, bytes.len()), (Status::OK, 4 + 8 + 8 + 40));
        let reply = Reply::decode(&mut Reader::new(&bytes)).unwrap().unwrap();
        assert_eq!((reply.entries.iter().count(), reply.eof), (1, false));
    }

    #[test]
    fn a_maxcount_without_room_for_an_entry_is_too_small() {
        assert_eq!(listed(16, 0, &[b"a"]), (vec![0, 0, 0x27, 0x15], Status::TOOSMALL));
        assert_eq!(listed(15, 0, &[]).1, Status::TOOSMALL);
        assert_eq!(listed(16, 0, &[]).1, Status::OK);
    }

    #[test]
    fn dircount_bounds_the_names_but_not_the_first() {
        let (bytes, _) = listed(4096, 33, &[b"a", b"b", b"c"]);
        assert_eq!(Reply::decode(&mut Reader::new(&bytes)).unwrap().unwrap().entries.iter().count(), 2);
        let (bytes, _) = listed(4096, 1, &[b"a", b"b", b"c"]);
        assert_eq!(Reply::decode(&mut Reader::new(&bytes)).unwrap().unwrap().entries.iter().count(), 1);
    }
}
