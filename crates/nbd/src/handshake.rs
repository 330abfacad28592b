//! The fixed newstyle handshake: options are haggled over until the client names an export.

use crate::export::Export;
use crate::request::REQUEST_BYTES_MAX;
use crate::{Reader, Violation};

const NBDMAGIC: u64 = u64::from_be_bytes(*b"NBDMAGIC");
const IHAVEOPT: u64 = u64::from_be_bytes(*b"IHAVEOPT");
const REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;

const FIXED_NEWSTYLE: u16 = 1 << 0;
const NO_ZEROES: u16 = 1 << 1;

const EXPORT_NAME: u32 = 1;
const ABORT: u32 = 2;
const LIST: u32 = 3;
const INFO: u32 = 6;
const GO: u32 = 7;
const STRUCTURED_REPLY: u32 = 8;

const REP_ACK: u32 = 1;
const REP_SERVER: u32 = 2;
const REP_INFO: u32 = 3;
const ERR_UNSUPPORTED: u32 = 1 << 31 | 1;
const ERR_INVALID: u32 = 1 << 31 | 3;
const ERR_UNKNOWN: u32 = 1 << 31 | 6;
const ERR_TOO_BIG: u32 = 1 << 31 | 9;

const INFO_EXPORT: u16 = 0;
const INFO_NAME: u16 = 1;
const INFO_DESCRIPTION: u16 = 2;
const INFO_BLOCK_SIZE: u16 = 3;

/// The longest name of an export.
pub const NAME_BYTES_MAX: usize = 4096;

/// The longest option that is read; longer ones are refused.
pub const OPTION_BYTES_MAX: usize = 8192;

/// The longest option that is received at all, in order to refuse it.
const OPTION_SKIPPED_MAX: u32 = 64 << 10;

/// Before the data of an option: magic, option, length.
const OPTION_HEAD_BYTES: usize = 16;

/// What the bytes at the front of the stream were.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Nothing yet: the message has this many bytes.
    Needs(usize),
    /// A message of this many bytes. Send what was appended, and go on.
    Took(usize),
    /// Likewise, and requests for this export follow.
    Begins {
        /// The length of the message.
        took: usize,
        /// The export.
        export: usize,
        /// Whether reads are answered by structured replies.
        structured: bool,
    },
    /// Likewise, and the client ends the connection.
    Aborted,
}

/// The server's end of a handshake.
#[derive(Debug)]
pub struct Handshake<'a> {
    exports: &'a [Export],
    has_flags: bool,
    no_zeroes: bool,
    structured: bool,
}

impl<'a> Handshake<'a> {
    /// Begins: appends the greeting.
    #[must_use]
    pub fn new(exports: &'a [Export], out: &mut Vec<u8>) -> Self {
        out.extend(NBDMAGIC.to_be_bytes());
        out.extend(IHAVEOPT.to_be_bytes());
        out.extend((FIXED_NEWSTYLE | NO_ZEROES).to_be_bytes());
        Self { exports, has_flags: false, no_zeroes: false, structured: false }
    }

    /// Takes one message from the front of what was received, and appends the answer.
    ///
    /// # Errors
    /// [`Violation`]: the connection ends.
    pub fn handle(&mut self, received: &[u8], out: &mut Vec<u8>) -> Result<Progress, Violation> {
        if !self.has_flags {
            return self.take_flags(received);
        }
        let mut reader = Reader(received);
        let Some(magic) = reader.u64() else { return Ok(Progress::Needs(OPTION_HEAD_BYTES)) };
        if magic != IHAVEOPT {
            return Err(Violation::Magic(magic));
        }
        let (Some(option), Some(bytes)) = (reader.u32(), reader.u32()) else {
            return Ok(Progress::Needs(OPTION_HEAD_BYTES));
        };
        if bytes > OPTION_SKIPPED_MAX {
            return Err(Violation::OptionTooLong(bytes));
        }
        let took = OPTION_HEAD_BYTES + bytes as usize;
        let Some(data) = reader.bytes(bytes as usize) else { return Ok(Progress::Needs(took)) };
        if data.len() > OPTION_BYTES_MAX {
            answer(option, ERR_TOO_BIG, b"the option is too long", out);
            return Ok(Progress::Took(took));
        }
        self.take_option(option, data, took, out)
    }

    fn take_flags(&mut self, received: &[u8]) -> Result<Progress, Violation> {
        let Some(flags) = Reader(received).u32() else { return Ok(Progress::Needs(4)) };
        if flags & !u32::from(FIXED_NEWSTYLE | NO_ZEROES) != 0 {
            return Err(Violation::Flags(flags));
        }
        self.has_flags = true;
        self.no_zeroes = flags & u32::from(NO_ZEROES) != 0;
        Ok(Progress::Took(4))
    }

    fn take_option(
        &mut self,
        option: u32,
        data: &[u8],
        took: usize,
        out: &mut Vec<u8>,
    ) -> Result<Progress, Violation> {
        match option {
            EXPORT_NAME => {
                let export = self.find(data).ok_or(Violation::NoExport)?;
                return Ok(self.begin(export, took, out));
            }
            INFO | GO => {
                if let Some(export) = self.inform(option, data, out) {
                    return Ok(Progress::Begins { took, export, structured: self.structured });
                }
            }
            ABORT => {
                answer(option, REP_ACK, &[], out);
                return Ok(Progress::Aborted);
            }
            LIST | STRUCTURED_REPLY if !data.is_empty() => {
                answer(option, ERR_INVALID, b"the option has no data", out);
            }
            LIST => {
                for export in self.exports {
                    let name = export.name.as_bytes();
                    let entry = [&(name.len() as u32).to_be_bytes(), name].concat();
                    answer(option, REP_SERVER, &entry, out);
                }
                answer(option, REP_ACK, &[], out);
            }
            STRUCTURED_REPLY => {
                self.structured = true;
                answer(option, REP_ACK, &[], out);
            }
            _ => answer(option, ERR_UNSUPPORTED, b"not supported", out),
        }
        Ok(Progress::Took(took))
    }

    fn find(&self, name: &[u8]) -> Option<usize> {
        if name.is_empty() && !self.exports.is_empty() {
            return Some(0);
        }
        self.exports.iter().position(|export| export.name.as_bytes() == name)
    }

    /// The answer to EXPORT_NAME has no head.
    fn begin(&self, at: usize, took: usize, out: &mut Vec<u8>) -> Progress {
        if let Some(export) = self.exports.get(at) {
            out.extend(export.bytes.to_be_bytes());
            out.extend(export.flags(self.structured).to_be_bytes());
            if !self.no_zeroes {
                out.extend([0; 124]);
            }
        }
        Progress::Begins { took, export: at, structured: self.structured }
    }

    /// INFO and GO. Returns the export if the haggling is over.
    fn inform(&self, option: u32, data: &[u8], out: &mut Vec<u8>) -> Option<usize> {
        let Some((name, wanted)) = info_request(data) else {
            answer(option, ERR_INVALID, b"malformed", out);
            return None;
        };
        let found = self.find(name).and_then(|at| Some((at, self.exports.get(at)?)));
        let Some((at, export)) = found else {
            answer(option, ERR_UNKNOWN, b"there is no export of that name", out);
            return None;
        };
        let mut info = INFO_EXPORT.to_be_bytes().to_vec();
        info.extend(export.bytes.to_be_bytes());
        info.extend(export.flags(self.structured).to_be_bytes());
        answer(option, REP_INFO, &info, out);
        for (kind, text) in [(INFO_NAME, &export.name), (INFO_DESCRIPTION, &export.description)] {
            if wanted.contains(&kind) {
                answer(option, REP_INFO, &[&kind.to_be_bytes(), text.as_bytes()].concat(), out);
            }
        }
        // Also to those who have not asked: smaller requests are refused.
        let mut sizes = INFO_BLOCK_SIZE.to_be_bytes().to_vec();
        for size in [export.block_min, export.block_preferred, REQUEST_BYTES_MAX] {
            sizes.extend(size.to_be_bytes());
        }
        answer(option, REP_INFO, &sizes, out);
        answer(option, REP_ACK, &[], out);
        (option == GO).then_some(at)
    }
}

/// The data of INFO and GO: a name, and what is wanted to be known.
fn info_request(data: &[u8]) -> Option<(&[u8], Vec<u16>)> {
    let mut reader = Reader(data);
    let bytes = reader.u32()? as usize;
    let name = reader.bytes(bytes).filter(|name| name.len() <= NAME_BYTES_MAX)?;
    let count = reader.u16()?;
    let wanted: Option<Vec<u16>> = (0..count).map(|_| reader.u16()).collect();
    reader.0.is_empty().then_some((name, wanted?))
}

fn answer(option: u32, kind: u32, data: &[u8], out: &mut Vec<u8>) {
    out.extend(REPLY_MAGIC.to_be_bytes());
    out.extend(option.to_be_bytes());
    out.extend(kind.to_be_bytes());
    out.extend((data.len() as u32).to_be_bytes());
    out.extend(data);
}
