//! The compounds that clients send most, as Linux builds them: each begins with SEQUENCE and has at
//! most eight operations.
//!
//! What an operation changes becomes visible only in a result, so GETATTR follows where attributes
//! are wanted. A request has at most one operation that changes something; so a slot's reply
//! answers a retry.

use super::RequestWriter;
use crate::op::handles::PutArgs;
use crate::op::{Args, Fore, copy, getattr, layout, link, open, read, sequence, write};
use crate::{Bitmap, Operation};
use fs::FileHandle;

/// SEQUENCE PUTFH READ.
pub const READ: &[Operation] = &[Operation::Sequence, Operation::PutFh, Operation::Read];

/// The offset of the data in the reply to [`READ`] with an empty tag, from the first byte of
/// `COMPOUND4res`: status, tag and count 12 bytes, SEQUENCE 44, PUTFH 8, and READ with its `eof`
/// and length 16. RFC 8881 s16.2.2, s18.46.2, s18.22.2
pub const READ_DATA_AT: usize = 12 + 44 + 8 + 16;

/// The writer of a client's request.
pub type Writer<'w> = RequestWriter<'w, Fore>;

/// Starts a request on an object: SEQUENCE PUTFH.
pub fn on<'w>(out: &'w mut Vec<u8>, minor: u32, sequence: &sequence::Args, object: FileHandle) -> Writer<'w> {
    let mut writer = Writer::new(out, b"", minor, 0);
    writer.push(&Args::Sequence(*sequence)).push(&Args::PutFh(PutArgs { handle: object }));
    writer
}

/// Starts a request on two objects, the first of which is saved: SEQUENCE PUTFH SAVEFH PUTFH.
pub fn on_two<'w>(
    out: &'w mut Vec<u8>,
    minor: u32,
    sequence: &sequence::Args,
    saved: FileHandle,
    current: FileHandle,
) -> Writer<'w> {
    let mut writer = on(out, minor, sequence, saved);
    writer.push(&Args::SaveFh(())).push(&Args::PutFh(PutArgs { handle: current }));
    writer
}

/// Starts a request on the root: SEQUENCE PUTROOTFH GETFH GETATTR.
pub fn on_root<'w>(
    out: &'w mut Vec<u8>,
    minor: u32,
    sequence: &sequence::Args,
    wanted: Bitmap,
) -> Writer<'w> {
    let mut writer = Writer::new(out, b"", minor, 0);
    writer.push(&Args::Sequence(*sequence)).push(&Args::PutRootFh(()));
    writer.handle_and_attributes(wanted);
    writer
}

impl Writer<'_> {
    /// READ: SEQUENCE PUTFH READ.
    pub fn read(&mut self, args: read::Args) -> &mut Self {
        self.push(&Args::Read(args))
    }

    /// WRITE, and the attributes that it leaves: SEQUENCE PUTFH WRITE \[GETATTR\]. GETATTR is left
    /// out if nothing is wanted.
    pub fn write(&mut self, args: write::ArgsHead, wanted: Bitmap) -> &mut Self {
        self.push(&Args::Write(args)).attributes(wanted)
    }

    /// GETATTR, unless nothing is wanted.
    pub fn attributes(&mut self, wanted: Bitmap) -> &mut Self {
        if wanted.is_empty() { self } else { self.push(&Args::GetAttr(getattr::Args { wanted })) }
    }

    /// GETFH GETATTR, as after LOOKUP and CREATE.
    pub fn handle_and_attributes(&mut self, wanted: Bitmap) -> &mut Self {
        self.push(&Args::GetFh(())).attributes(wanted)
    }

    /// LOOKUP GETFH GETATTR.
    pub fn lookup(&mut self, name: &[u8], wanted: Bitmap) -> &mut Self {
        self.push(&Args::Lookup(crate::op::lookup::Args { name })).handle_and_attributes(wanted)
    }

    /// OPEN GETFH ACCESS GETATTR \[LAYOUTGET\]: the rights are asked for along with the open.
    pub fn open(
        &mut self,
        args: open::Args<'_>,
        access: fs::Rights,
        wanted: Bitmap,
        layout: Option<layout::GetArgs>,
    ) -> &mut Self {
        self.push(&Args::Open(args)).push(&Args::GetFh(()));
        self.push(&Args::Access(crate::op::access::Args { access })).attributes(wanted);
        match layout {
            Some(layout) => self.push(&Args::LayoutGet(layout)),
            None => self,
        }
    }

    /// RENAME from the saved to the current directory: SEQUENCE PUTFH SAVEFH PUTFH RENAME.
    pub fn rename(&mut self, old: &[u8], new: &[u8]) -> &mut Self {
        self.push(&Args::Rename(link::RenameArgs { old, new }))
    }

    /// LINK of the saved object into the current directory, and its attributes afterwards: SEQUENCE
    /// PUTFH SAVEFH PUTFH LINK RESTOREFH GETATTR.
    pub fn link(&mut self, name: &[u8], wanted: Bitmap) -> &mut Self {
        self.push(&Args::Link(link::LinkArgs { name }));
        if wanted.is_empty() { self } else { self.push(&Args::RestoreFh(())).attributes(wanted) }
    }

    /// COPY from the saved to the current file, made stable: SEQUENCE PUTFH SAVEFH PUTFH COPY
    /// COMMIT.
    pub fn copy(&mut self, args: copy::Args<'_>) -> &mut Self {
        let (offset, count) = (args.target_offset, u32::try_from(args.count).unwrap_or(0));
        self.push(&Args::Copy(args)).push(&Args::Commit(crate::op::commit::Args { offset, count }))
    }

    /// CLONE from the saved to the current file: SEQUENCE PUTFH SAVEFH PUTFH CLONE \[GETATTR\].
    pub fn clone_range(&mut self, args: copy::CloneArgs, wanted: Bitmap) -> &mut Self {
        self.push(&Args::Clone(args)).attributes(wanted)
    }
}
