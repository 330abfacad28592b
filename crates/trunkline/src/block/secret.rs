//! Secrets of hosts and controllers (`DHHC-1:...`), as configuration files have them.
//! What is said of them never shows a part of one.

use initiator::secret_file;
use std::fmt;
use target::Secret;

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
        secret_file::parse(&self.0)
    }
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

    const SECRET: &str = "DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:";

    #[test]
    fn what_is_quoted_shows_no_secret() {
        let text = format!("expected a string, found \"{SECRET}\" and {SECRET}, DHHC-1 alone");
        let clean = without_secrets(&text);
        let hidden = "DHHC-1:...";
        assert_eq!(clean, format!("expected a string, found \"{hidden}\" and {hidden}, {hidden} alone"));
        assert_eq!(without_secrets("nothing"), "nothing");
    }
}
