//! Records of ONC RPC over a stream, whole and as they came, for proxies that look into them.

use std::io::Read;

/// Longer records are nobody's in a test.
const RECORD_BYTES_MAX: usize = 4 << 20;

/// One record with its marks; none at the stream's end, or where no record can be read. RFC 5531
/// s11
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

/// A word of a record's first fragment, counted from its xid; 0 where it is shorter.
#[must_use]
pub fn word(record: &[u8], index: usize) -> u32 {
    let bytes = record.get(4 + 4 * index..).and_then(<[u8]>::first_chunk);
    bytes.map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

/// What a call is for: program, version and procedure. RFC 5531 s9
#[must_use]
pub fn called(record: &[u8]) -> (u32, u32, u32) {
    (word(record, 3), word(record, 4), word(record, 5))
}
