//! A body shared by the property test and the fuzz target: any bytes of a client.

use crate::{Export, Features, HEADER_BYTES, Handshake, Header, Progress, REQUEST_BYTES_MAX, reply};

/// A whole connection. The first byte says what the export can do.
pub fn connection(bytes: &[u8]) {
    let Some((choice, mut rest)) = bytes.split_first() else { return };
    let features =
        Features { read_only: choice & 1 != 0, trim: choice & 2 != 0, write_zeroes: choice & 4 != 0 };
    let (name, description) = ("disk".to_owned(), "a disk".to_owned());
    let export =
        Export { name, description, bytes: 1 << 30, block_min: 4096, block_preferred: 65536, features };
    let exports = [export];
    let mut out = Vec::new();
    let mut handshake = Handshake::new(&exports, &mut out);
    let structured = loop {
        let before = out.len();
        match handshake.handle(rest, &mut out) {
            Ok(Progress::Needs(wanted)) => {
                assert!(wanted > rest.len(), "more is needed than is there");
                assert!(wanted <= 16 + (64 << 10), "and it is bounded");
                return;
            }
            Ok(Progress::Took(took)) => rest = rest.get(took..).expect("what was there"),
            Ok(Progress::Begins { took, export, structured }) => {
                assert!(export < exports.len());
                rest = rest.get(took..).expect("what was there");
                break structured;
            }
            Ok(Progress::Aborted) | Err(_) => return,
        }
        assert!(out.len() - before <= 16 << 10, "an answer is bounded");
    };
    while let Some(head) = rest.first_chunk::<HEADER_BYTES>() {
        let Ok(header) = Header::decode(head) else { return };
        rest = rest.get(HEADER_BYTES + header.payload_bytes() as usize..).unwrap_or_default();
        let checked = exports.iter().find_map(|export| export.check(&header, structured).ok());
        out.clear();
        match checked {
            Some(command) => {
                let (offset, bytes) = match command {
                    crate::Command::Trim { offset, bytes, .. } => (offset, bytes),
                    _ => (header.offset, header.bytes),
                };
                let end = offset + u64::from(bytes);
                assert!(bytes <= header.bytes && (bytes == 0 || offset >= header.offset));
                assert!(end <= 1 << 30 && end.is_multiple_of(4096), "{command:?} {header:?}");
                assert!(header.payload_bytes() <= REQUEST_BYTES_MAX);
                reply::data(header.cookie, header.offset, header.bytes, structured, &mut out);
            }
            None => reply::failure(header.cookie, crate::Errno::Invalid, structured, "no", &mut out),
        }
        assert!(out.len() <= 64);
    }
}
