//! Which arguments and results of NFS version 3 may be moved by RDMA: RFC 8267 s4. MOUNT has none.

const PROGRAM: u32 = 100_003;
const VERSION: u32 = 3;

const READLINK: u32 = 5;
const READ: u32 = 6;
const WRITE: u32 = 7;
const SYMLINK: u32 = 10;

/// What of a call may travel in a chunk of its own. In version 3 it is always the last item of its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Eligible {
    /// Nothing.
    Nothing,
    /// The last argument: what WRITE writes, what SYMLINK points to.
    Argument,
    /// The last result: what READ reads, what READLINK points to.
    Result,
}

/// By the numbers in the call's header. RFC 8267 s4
#[must_use]
pub const fn eligible(program: u32, version: u32, procedure: u32) -> Eligible {
    if program != PROGRAM || version != VERSION {
        return Eligible::Nothing;
    }
    match procedure {
        WRITE | SYMLINK => Eligible::Argument,
        READ | READLINK => Eligible::Result,
        _ => Eligible::Nothing,
    }
}

/// Whether a chunk of so many bytes holds an argument whose length the message tells: all of it, with or without the
/// bytes that pad it to four. RFC 8166 s3.4.5.2
#[must_use]
pub const fn holds(chunk_bytes: u32, argument_bytes: u32) -> bool {
    let padding = argument_bytes.wrapping_neg() % 4;
    chunk_bytes == argument_bytes || chunk_bytes == argument_bytes.saturating_add(padding)
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 8267 s4
    #[test]
    fn four_procedures_of_version_3_have_something_to_move() {
        let of = |procedure| eligible(100_003, 3, procedure);
        assert_eq!([of(7), of(10)], [Eligible::Argument; 2]);
        assert_eq!([of(6), of(5)], [Eligible::Result; 2]);
        let rest = (0..=30).filter(|procedure| ![5, 6, 7, 10].contains(procedure));
        assert!(rest.map(of).all(|what| what == Eligible::Nothing));
        assert_eq!(eligible(100_005, 3, 6), Eligible::Nothing, "MOUNT");
        assert_eq!(eligible(100_003, 4, 6), Eligible::Nothing, "another version has another binding");
    }

    // RFC 8166 s3.4.5.2
    #[test]
    fn the_padding_of_a_chunk_is_there_or_not() {
        assert!(holds(5, 5) && holds(8, 5) && holds(8, 8) && holds(0, 0));
        assert!(!holds(6, 5) && !holds(4, 5) && !holds(12, 8));
        assert!(!holds(0, u32::MAX));
    }
}
