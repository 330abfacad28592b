//! Reads a discovery log in parts. NVMe Base, "Discovery (Log Page Identifier 70h)".
//!
//! The log may change while it is read: the head is read again at the end, and if its generation is
//! another one, everything is.

use crate::log_page::{
    DISCOVERY_ENTRY_BYTES, DISCOVERY_HEAD_BYTES, DiscoveryEntry, DiscoveryHead, DiscoveryLog, GetLogPage,
};

/// How many bytes are read at a time.
const PART_BYTES: u64 = 4096;

/// How many entries a log may have.
const ENTRIES_MAX: u64 = 4096;

/// How often the reading may begin again.
const ATTEMPTS_MAX: u32 = 8;

/// What comes next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading {
    /// Read this part, then call [`DiscoveryReader::handle_part`].
    Read(GetLogPage),
    /// The log is whole.
    Complete(DiscoveryLog),
}

/// Why a log was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DiscoveryError {
    /// A part has fewer bytes than were asked for.
    #[error("a part of the discovery log is too short")]
    Short,
    /// The log has more entries than anybody needs.
    #[error("the discovery log has {0} entries, at most {ENTRIES_MAX} are read")]
    TooMany(u64),
    /// The entries have a format that is not known here.
    #[error("the discovery log has the unknown format {0}")]
    Format(u16),
    /// The log changed again and again.
    #[error("the discovery log changed {ATTEMPTS_MAX} times while it was read")]
    Unsteady,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Head,
    Entries,
    /// The head once more.
    Check,
}

/// The reading of one discovery log.
#[derive(Debug)]
pub struct DiscoveryReader {
    step: Step,
    attempts: u32,
    expected: u64,
    log: DiscoveryLog,
}

impl DiscoveryReader {
    /// Begins, with the first part to read.
    #[must_use]
    pub fn new() -> (Self, GetLogPage) {
        let reader = Self { step: Step::Head, attempts: 0, expected: 0, log: DiscoveryLog::default() };
        (reader, head())
    }

    /// A part was read; empty if the controller refused to read it.
    ///
    /// # Errors
    /// [`DiscoveryError`]: the reading is over.
    pub fn handle_part(&mut self, data: &[u8]) -> Result<Reading, DiscoveryError> {
        match self.step {
            Step::Head => self.begin(data),
            Step::Entries => {
                let left = usize::try_from(self.expected).unwrap_or(usize::MAX) - self.log.entries.len();
                let whole = data.chunks_exact(DISCOVERY_ENTRY_BYTES).take(left);
                let before = self.log.entries.len();
                self.log.entries.extend(whole.filter_map(|entry| DiscoveryEntry::decode(entry).ok()));
                // The log may have become shorter; then its generation is another one.
                if self.log.entries.len() == before {
                    self.step = Step::Check;
                    return Ok(Reading::Read(head()));
                }
                Ok(self.next())
            }
            Step::Check => {
                let generation = DiscoveryHead::decode(data).map_err(|_| DiscoveryError::Short)?.generation;
                if generation != self.log.generation {
                    return self.begin(data);
                }
                if self.log.entries.len() as u64 != self.expected {
                    return Err(DiscoveryError::Short);
                }
                Ok(Reading::Complete(std::mem::take(&mut self.log)))
            }
        }
    }

    fn begin(&mut self, data: &[u8]) -> Result<Reading, DiscoveryError> {
        let head = DiscoveryHead::decode(data).map_err(|_| DiscoveryError::Short)?;
        if head.format != 0 {
            return Err(DiscoveryError::Format(head.format));
        }
        if head.entries > ENTRIES_MAX {
            return Err(DiscoveryError::TooMany(head.entries));
        }
        if self.attempts == ATTEMPTS_MAX {
            return Err(DiscoveryError::Unsteady);
        }
        self.attempts += 1;
        self.expected = head.entries;
        self.log = DiscoveryLog { generation: head.generation, entries: Vec::new() };
        self.step = Step::Entries;
        Ok(self.next())
    }

    fn next(&mut self) -> Reading {
        let read = self.log.entries.len() as u64;
        if read == self.expected {
            self.step = Step::Check;
            return Reading::Read(head());
        }
        let left = (self.expected - read) * DISCOVERY_ENTRY_BYTES as u64;
        let offset = DISCOVERY_HEAD_BYTES as u64 + read * DISCOVERY_ENTRY_BYTES as u64;
        Reading::Read(DiscoveryLog::read(offset, left.min(PART_BYTES)))
    }
}

const fn head() -> GetLogPage {
    DiscoveryLog::read(0, DISCOVERY_HEAD_BYTES as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(generation: u64, entries: u16) -> DiscoveryLog {
        let entry = |port| DiscoveryEntry { port, ..DiscoveryEntry::default() };
        DiscoveryLog { generation, entries: (1..=entries).map(entry).collect() }
    }

    /// Reads; the log at the nth read is what the function says.
    fn read(log_at: impl Fn(usize) -> DiscoveryLog) -> Result<DiscoveryLog, DiscoveryError> {
        let (mut reader, mut part) = DiscoveryReader::new();
        for at in 0.. {
            let bytes = log_at(at).encode();
            match reader.handle_part(&part.part(&bytes).unwrap_or_default())? {
                Reading::Read(next) => part = next,
                Reading::Complete(log) => return Ok(log),
            }
        }
        unreachable!("it ends")
    }

    #[test]
    fn logs_of_any_length_are_read_whole() {
        for entries in 0..=200 {
            assert_eq!(read(|_| log(1, entries)), Ok(log(1, entries)));
        }
    }

    #[test]
    fn a_log_that_changes_meanwhile_is_read_again() {
        // The head, three parts, and the head again.
        for change in 0..5 {
            for entries in [0, 3, 20] {
                let read = read(|at| if at < change { log(1, 9) } else { log(2, entries) });
                assert_eq!(read, Ok(log(2, entries)), "{change}");
            }
        }
        assert_eq!(read(|at| if at < 5 { log(1, 9) } else { log(2, 3) }), Ok(log(1, 9)));
    }

    #[test]
    fn a_log_that_ends_before_its_last_entry_is_short() {
        let mut bytes = log(1, 3).encode();
        bytes[8] = 9;
        let (mut reader, mut part) = DiscoveryReader::new();
        let error = loop {
            match reader.handle_part(&part.part(&bytes).unwrap_or_default()) {
                Ok(Reading::Read(next)) => part = next,
                Ok(Reading::Complete(log)) => panic!("{log:?}"),
                Err(error) => break error,
            }
        };
        assert_eq!(error, DiscoveryError::Short);
    }

    #[test]
    fn a_log_that_always_changes_is_given_up() {
        assert_eq!(read(|at| log(at as u64, 1)), Err(DiscoveryError::Unsteady));
    }

    #[test]
    fn a_count_near_2_to_the_64_takes_no_memory() {
        let mut bytes = log(1, 1).encode();
        bytes[8..16].copy_from_slice(&u64::MAX.to_le_bytes());
        let (mut reader, part) = DiscoveryReader::new();
        let read = reader.handle_part(&part.part(&bytes).expect("the head"));
        assert_eq!(read, Err(DiscoveryError::TooMany(u64::MAX)));
        bytes[16] = 1;
        let (mut reader, part) = DiscoveryReader::new();
        let read = reader.handle_part(&part.part(&bytes).expect("the head"));
        assert_eq!(read, Err(DiscoveryError::Format(1)));
    }
}
