//! EXPORT: lists the exports and the clients that may mount them. RFC 1813 s5.2.5

use super::{NAME_BYTES_MAX, PATH_BYTES_MAX};
use crate::{List, Wire};
use xdr::{Reader, Result, Writer};

/// Void.
pub type Args = ();

/// `groupnode`: clients that may mount: a network, a host or a group's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Group<'a> {
    /// The name (`gr_name`).
    pub name: &'a [u8],
}

impl<'a> Wire<'a> for Group<'a> {
    fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        Ok(Self { name: reader.opaque(NAME_BYTES_MAX)? })
    }

    fn encode(&self, writer: &mut Writer<'_>) {
        writer.opaque(self.name);
    }
}

/// `exportnode`: one export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The path (`ex_dir`).
    pub directory: &'a [u8],
    /// The clients that may mount the export (`ex_groups`); everyone if empty.
    pub groups: List<'a, Group<'a>>,
}

impl<'a> Wire<'a> for Entry<'a> {
    fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        Ok(Self { directory: reader.opaque(PATH_BYTES_MAX)?, groups: Wire::decode(reader)? })
    }

    fn encode(&self, writer: &mut Writer<'_>) {
        writer.opaque(self.directory);
        self.groups.encode(writer);
    }
}

/// `exports`: all exports.
pub type Reply<'a> = List<'a, Entry<'a>>;

/// Writes a [`Reply`] on the server, which has no encoded list to borrow from.
#[derive(Debug)]
pub struct ReplyWriter<'w, 'v> {
    writer: &'w mut Writer<'v>,
}

impl<'w, 'v> ReplyWriter<'w, 'v> {
    /// Starts the list.
    pub const fn new(writer: &'w mut Writer<'v>) -> Self {
        Self { writer }
    }

    /// Adds an export and the clients that may mount it.
    pub fn add<'g>(&mut self, directory: &[u8], groups: impl IntoIterator<Item = &'g [u8]>) {
        self.writer.bool(true);
        self.writer.opaque(directory);
        List::encode_items(groups.into_iter().map(|name| Group { name }), self.writer);
    }

    /// Ends the list.
    pub fn finish(self) {
        self.writer.bool(false);
    }
}
