//! Replies. What is appended is all that stands before the data of a read, which follow.

use crate::Errno;

const SIMPLE: u32 = 0x6744_6698;
const STRUCTURED: u32 = 0x668e_33ef;
const DONE: u16 = 1 << 0;
const NONE: u16 = 0;
const OFFSET_DATA: u16 = 1;
const ERROR: u16 = 1 << 15 | 1;

/// A request succeeded that reads nothing.
pub fn success(cookie: u64, out: &mut Vec<u8>) {
    simple(cookie, 0, out);
}

/// A request failed.
pub fn failure(cookie: u64, errno: Errno, structured: bool, text: &str, out: &mut Vec<u8>) {
    if !structured {
        return simple(cookie, errno as u32, out);
    }
    // For people, and bounded.
    let end = (0..=text.len().min(1024)).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let text = text.get(..end).unwrap_or_default();
    chunk(ERROR, cookie, 6 + text.len() as u32, out);
    out.extend((errno as u32).to_be_bytes());
    out.extend((text.len() as u16).to_be_bytes());
    out.extend(text.as_bytes());
}

/// A read succeeded: its data follow, all of them. (A chunk of no data is not allowed.)
pub fn data(cookie: u64, offset: u64, bytes: u32, structured: bool, out: &mut Vec<u8>) {
    if !structured {
        return simple(cookie, 0, out);
    }
    if bytes == 0 {
        return chunk(NONE, cookie, 0, out);
    }
    chunk(OFFSET_DATA, cookie, 8 + bytes, out);
    out.extend(offset.to_be_bytes());
}

fn simple(cookie: u64, error: u32, out: &mut Vec<u8>) {
    out.extend(SIMPLE.to_be_bytes());
    out.extend(error.to_be_bytes());
    out.extend(cookie.to_be_bytes());
}

/// The only chunk of a reply.
fn chunk(kind: u16, cookie: u64, bytes: u32, out: &mut Vec<u8>) {
    out.extend(STRUCTURED.to_be_bytes());
    out.extend(DONE.to_be_bytes());
    out.extend(kind.to_be_bytes());
    out.extend(cookie.to_be_bytes());
    out.extend(bytes.to_be_bytes());
}
