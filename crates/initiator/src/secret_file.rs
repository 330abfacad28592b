//! Files with secrets of hosts and controllers (`DHHC-1:...`). What is said of them never shows a
//! part of one.

use chap::Secret;
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// A longer file is something else.
const FILE_BYTES_MAX: u64 = 4096;

/// What to do where there is no usable secret.
const MAKE: &str = "make one: (umask 077; nvme gen-dhchap-key > FILE)";

/// The secret that is written in a text, or which rule it breaks.
///
/// # Errors
/// What is wrong with it.
pub fn parse(text: &str) -> Result<Secret, String> {
    text.trim().parse().map_err(|error| format!("{error}; `nvme gen-dhchap-key` prints a secret"))
}

/// The secret in a file, which others must not be able to read.
///
/// # Errors
/// What is wrong with the file, and what to do about it.
pub fn read(file: &Path) -> Result<Secret, String> {
    let named = |cause: String| format!("{}: {cause}", file.display());
    let unreadable = |error: std::io::Error| named(format!("{error}; {MAKE}"));
    let opened = File::open(file).map_err(unreadable)?;
    if is_open(&opened.metadata().map_err(unreadable)?) {
        return Err(named(format!("others than its owner may read or write it; {}", close(file))));
    }
    let mut text = String::new();
    opened.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(unreadable)?;
    parse(&text).map_err(named)
}

/// Whether others than its owner may read or write a file.
#[must_use]
pub fn is_open(metadata: &Metadata) -> bool {
    metadata.mode() & 0o077 != 0
}

/// What to do about a file that others may read.
#[must_use]
pub fn close(file: &Path) -> String {
    format!("chmod 600 {}, if nobody has read it, else new secrets", file.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    const SECRET: &str = "DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:";

    #[test]
    fn a_file_with_a_secret_is_its_owners_alone() {
        let directory = testkit::temp_dir("secret");
        let file = directory.path().join("secret");
        for (text, mode, expected) in [
            (format!("{SECRET}\n"), 0o600, None),
            (SECRET.to_owned(), 0o400, None),
            (SECRET.to_owned(), 0o640, Some("chmod 600")),
            (SECRET.to_owned(), 0o602, Some("chmod 600")),
            (SECRET.replace("ia6z", "ia6y"), 0o600, Some("CRC")),
            (String::new(), 0o600, Some("gen-dhchap-key")),
        ] {
            std::fs::write(&file, text).unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
            let error = read(&file).err();
            assert_eq!(error.is_some(), expected.is_some(), "{error:?}");
            let error = error.unwrap_or_default();
            assert!(error.contains(expected.unwrap_or_default()) && !error.contains("6aQ2n"), "{error}");
        }
        assert!(read(&directory.path().join("none")).unwrap_err().contains("umask 077"));
    }
}
