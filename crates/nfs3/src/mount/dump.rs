//! DUMP: lists which client has mounted which path, as far as the server knows. RFC 1813 s5.2.2

use super::{NAME_BYTES_MAX, PATH_BYTES_MAX};
use crate::{List, Wire};
use xdr::{Reader, Result, Writer};

/// Void.
pub type Args = ();

/// `mountbody`: one mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The client (`ml_hostname`).
    pub host: &'a [u8],
    /// The path (`ml_directory`).
    pub directory: &'a [u8],
}

impl<'a> Wire<'a> for Entry<'a> {
    fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        Ok(Self { host: reader.opaque(NAME_BYTES_MAX)?, directory: reader.opaque(PATH_BYTES_MAX)? })
    }

    fn encode(&self, writer: &mut Writer<'_>) {
        writer.opaque(self.host);
        writer.opaque(self.directory);
    }
}

/// `mountlist`: all mounts; write it with [`List::encode_items`].
pub type Reply<'a> = List<'a, Entry<'a>>;
