//! Secrets of hosts and controllers (`DHHC-1:...`), as files and configuration files have them.
//! What is said of them never shows a part of one.

use std::fmt;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use target::Secret;

/// A longer file is something else.
const FILE_BYTES_MAX: u64 = 4096;

/// What to do where there is no usable secret.
pub const MAKE: &str = "make one: (umask 077; nvme gen-dhchap-key > FILE)";

/// A secret as it is written. `Debug` shows nothing of it.
#[derive(Clone, serde::Deserialize)]
#[serde(transparent)]
pub struct Written(String);

impl fmt::Debug for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Written(..)")
    }
}

impl Written {
    /// The secret, or which rule it breaks.
    pub fn secret(&self) -> Result<Secret, String> {
        read_text(&self.0)
    }
}

fn read_text(text: &str) -> Result<Secret, String> {
    text.trim().parse().map_err(|error| format!("{error}; `nvme gen-dhchap-key` prints a secret"))
}

/// The secret in a file, which others must not be able to read.
pub fn read(file: &Path) -> Result<Secret, String> {
    let named = |cause: String| format!("{}: {cause}", file.display());
    let unreadable = |error: std::io::Error| named(format!("{error}; {MAKE}"));
    let opened = std::fs::File::open(file).map_err(unreadable)?;
    if is_open(&opened.metadata().map_err(unreadable)?) {
        return Err(named(format!("others than its owner may read or write it; {}", close(file))));
    }
    let mut text = String::new();
    std::io::Read::read_to_string(&mut std::io::Read::take(opened, FILE_BYTES_MAX), &mut text)
        .map_err(unreadable)?;
    read_text(&text).map_err(named)
}

/// Whether others than its owner may read or write a file.
pub fn is_open(metadata: &std::fs::Metadata) -> bool {
    metadata.mode() & 0o077 != 0
}

/// What to do about a file that others may read.
pub fn close(file: &Path) -> String {
    format!("chmod 600 {}, if nobody has read it, else new secrets", file.display())
}

/// The text without what may be a secret: errors of a parser quote what they do not understand.
pub fn without_secrets(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("DHHC-1") {
        let (before, secret) = rest.split_at(at);
        let is_part = |one: char| one.is_ascii_alphanumeric() || "+/=:-".contains(one);
        clean.push_str(before);
        clean.push_str("DHHC-1:...");
        rest = secret.trim_start_matches(is_part);
    }
    clean + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    const SECRET: &str = "DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:";

    #[test]
    fn a_file_with_a_secret_is_its_owners_alone() {
        let directory = tempfile::TempDir::new().unwrap();
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

    #[test]
    fn what_is_quoted_shows_no_secret() {
        let text = format!("expected a string, found \"{SECRET}\" and {SECRET}, DHHC-1 alone");
        let clean = without_secrets(&text);
        let hidden = "DHHC-1:...";
        assert_eq!(clean, format!("expected a string, found \"{hidden}\" and {hidden}, {hidden} alone"));
        assert_eq!(without_secrets("nothing"), "nothing");
    }
}
