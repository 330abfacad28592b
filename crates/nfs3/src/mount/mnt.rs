//! MNT: returns the handle of an export's root. RFC 1813 s5.2.1

use crate::CALL_TEXT_BYTES_MAX;
use crate::{FileHandle, Outcome, Wire};
use smallvec::SmallVec;
use xdr::{Reader, Result, Writer};

/// The maximum number of flavors that decode. RFC 1813 s5.2.1 sets no bound; about a dozen exist.
pub const FLAVORS_MAX: u32 = 32;

/// `dirpath`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Args<'a> {
    /// The path: any bytes. One above [`PATH_BYTES_MAX`](super::PATH_BYTES_MAX) is answered
    /// with MNT3ERR_NAMETOOLONG.
    pub path: &'a [u8],
}

impl<'a> Wire<'a> for Args<'a> {
    fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        Ok(Self { path: reader.opaque(CALL_TEXT_BYTES_MAX)? })
    }

    fn encode(&self, writer: &mut Writer<'_>) {
        writer.opaque(self.path);
    }
}

/// `mountres3_ok`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Success {
    /// The root (`fhandle`).
    pub root: FileHandle,
    /// The flavors of credential that the export accepts, in order of preference (`auth_flavors`).
    pub flavors: SmallVec<[u32; 8]>,
}

impl<'a> Wire<'a> for Success {
    fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        let root = Wire::decode(reader)?;
        let count = reader.length(FLAVORS_MAX)?;
        let flavors = (0..count).map(|_| reader.u32()).collect::<Result<_>>()?;
        Ok(Self { root, flavors })
    }

    fn encode(&self, writer: &mut Writer<'_>) {
        self.root.encode(writer);
        writer.u32(u32::try_from(self.flavors.len()).expect("a few flavors"));
        self.flavors.iter().for_each(|flavor| writer.u32(*flavor));
    }
}

/// A failure carries nothing.
pub type Failure = ();

/// `mountres3`. Its status is one of `mountstat3`, which is a subset of [`crate::Status`]. RFC 1813
/// s5.1.5
pub type Reply = Outcome<Success, Failure>;
