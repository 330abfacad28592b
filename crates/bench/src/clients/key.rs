//! The key that agents share with the coordinator, and the proofs that both make with it.

use std::fmt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// A shorter key could be guessed.
const KEY_BYTES_MIN: usize = 16;
/// A longer file is something else.
const KEY_BYTES_MAX: u64 = 4096;
/// The length of a proof: of HMAC-SHA-256.
pub(super) const PROOF_BYTES: usize = 32;

/// A shared key.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(Vec<u8>);

impl fmt::Debug for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Key(..)")
    }
}

impl Key {
    /// The key in a file: its text without the space around it, at least 16 bytes.
    ///
    /// # Errors
    /// The cause, and what to do.
    pub fn from_file(path: &Path) -> Result<Self, (String, String)> {
        let make = format!("(umask 077; head -c 32 /dev/urandom | base64 > {})", path.display());
        let metadata = std::fs::metadata(path).map_err(|error| (error.to_string(), make.clone()))?;
        if metadata.permissions().mode() & 0o077 != 0 {
            let cause = "other users may read or change the key".to_owned();
            return Err((
                cause,
                format!("chmod 600 {}, if nobody has read it; else a new key", path.display()),
            ));
        }
        if metadata.len() > KEY_BYTES_MAX {
            return Err((format!("it is longer than {KEY_BYTES_MAX} bytes"), make));
        }
        let text = std::fs::read(path).map_err(|error| (error.to_string(), make.clone()))?;
        let key = text.trim_ascii();
        match key.len() < KEY_BYTES_MIN {
            true => Err((format!("it is shorter than {KEY_BYTES_MIN} bytes"), make)),
            false => Ok(Self(key.to_owned())),
        }
    }

    /// The key of a connection that is trusted already: the pipe of ssh.
    #[must_use]
    pub(super) fn of_pipe() -> Self {
        Self(Vec::new())
    }

    /// The proof that the holder of the key has seen these parts.
    pub(super) fn prove(&self, parts: &[&[u8]]) -> [u8; PROOF_BYTES] {
        self.hmac(parts).finalize().into_bytes().into()
    }

    /// Whether a proof is right. Takes the same time wherever it is wrong.
    pub(super) fn verifies(&self, parts: &[&[u8]], proof: &[u8]) -> bool {
        self.hmac(parts).verify_slice(proof).is_ok()
    }

    /// A key that is derived from this one.
    pub(super) fn derive(&self, parts: &[&[u8]]) -> Self {
        Self(self.prove(parts).to_vec())
    }

    fn hmac(&self, parts: &[&[u8]]) -> Hmac<Sha256> {
        // HMAC takes keys of any length.
        let mut hmac = Hmac::<Sha256>::new_from_slice(&self.0).expect("a key of any length");
        for part in parts {
            // Lengths keep the parts apart.
            hmac.update(&(part.len() as u64).to_be_bytes());
            hmac.update(part);
        }
        hmac
    }
}

/// Bytes as hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of hexadecimal digits.
pub(super) fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let hexadecimal = digits.iter().all(u8::is_ascii_hexdigit) && digits.len().is_multiple_of(2);
    hexadecimal.then(|| digits.chunks(2).map(byte).collect())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str, mode: u32) -> (tempfile::TempDir, Result<Key, (String, String)>) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        let key = Key::from_file(&path);
        (directory, key)
    }

    #[test]
    fn a_key_file_is_long_enough_and_closed_to_others() {
        assert_eq!(file(" 0123456789abcdef\n", 0o600).1, Ok(Key(b"0123456789abcdef".to_vec())));
        let (cause, advice) = file("0123456789abcdef", 0o640).1.unwrap_err();
        assert!(cause.contains("other users") && advice.contains("chmod 600"), "{cause} {advice}");
        assert!(file("  short  ", 0o600).1.unwrap_err().0.contains("shorter than 16"));
        assert!(file(&"x".repeat(5000), 0o600).1.unwrap_err().0.contains("longer"));
        let missing = Key::from_file(Path::new("/nonexistent/key")).unwrap_err();
        assert!(missing.1.contains("head -c 32"), "{missing:?}");
        assert!(!format!("{:?}", Key(b"secret".to_vec())).contains("secret"));
    }

    #[test]
    fn a_proof_depends_on_the_key_and_on_each_part() {
        let (key, other) = (Key(b"one".to_vec()), Key(b"two".to_vec()));
        let proof = key.prove(&[b"ab", b"c"]);
        assert!(key.verifies(&[b"ab", b"c"], &proof));
        assert!(!key.verifies(&[b"a", b"bc"], &proof), "the parts are kept apart");
        assert!(!other.verifies(&[b"ab", b"c"], &proof));
        assert!(!key.verifies(&[b"ab", b"c"], &proof[..31]));
        // RFC 4231, test case 2, through one part: HMAC of its length and its bytes.
        assert_ne!(Key(b"Jefe".to_vec()).prove(&[b"x"]), Key(b"Jefe".to_vec()).prove(&[b"y"]));
    }

    #[test]
    fn hexadecimal_digits_are_read_as_they_are_written() {
        assert_eq!(unhex(&hex(&[0, 0xab, 255])), Some(vec![0, 0xab, 255]));
        for wrong in ["0", "zz", "+1", "0é"] {
            assert_eq!(unhex(wrong), None, "{wrong}");
        }
    }
}
