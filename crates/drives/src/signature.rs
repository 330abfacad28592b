//! What is on a file or device already: file systems, partition tables, LVM, md, LUKS, swap.
//!
//! util-linux knows hundreds of formats; its `wipefs` is asked, which lists them and changes
//! nothing unless it is told to. Where it is missing, nothing is taken for empty.

use crate::error::{Error, Result};
use std::fmt;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::Path;
use std::process::{Command, Stdio};

/// Where the program is, also for users whose search path has no system programs.
const PROGRAMS: [&str; 3] = ["wipefs", "/usr/sbin/wipefs", "/sbin/wipefs"];

/// Something that was recognized.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    /// What it is, such as `ext4`, `gpt` or `LVM2_member`.
    pub kind: String,
    /// Its name, if it has one.
    pub label: Option<String>,
    /// Where it was found.
    pub offset: String,
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind)?;
        if let Some(label) = &self.label {
            write!(f, " named {label:?}")?;
        }
        write!(f, " at {}", self.offset)
    }
}

/// Everything that is recognized on an open file or device.
pub(crate) fn probe(path: &Path, file: BorrowedFd<'_>) -> Result<Vec<Signature>> {
    let failed = |reason: String| Error::NotProbed { path: path.to_owned(), reason };
    // The open file itself, not what its name leads to by now.
    let opened = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    let mut missing = None;
    for program in PROGRAMS {
        let mut command = Command::new(program);
        command.args(["--no-act", "--json", &opened]).env("LC_ALL", "C").stdin(Stdio::null());
        match command.output() {
            Ok(output) if output.status.success() => return parse(&output.stdout).map_err(failed),
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                return Err(failed(format!("{program} failed ({}): {said}", output.status)));
            }
            Err(error) => missing = Some(format!("{program} cannot be run ({error})")),
        }
    }
    Err(failed(missing.unwrap_or_default()))
}

/// Reads what the program prints. Anything unexpected is an error: it may hide a signature.
fn parse(printed: &[u8]) -> std::result::Result<Vec<Signature>, String> {
    // It prints nothing at all, or an empty list, if it finds nothing.
    if printed.iter().all(u8::is_ascii_whitespace) {
        return Ok(Vec::new());
    }
    let value: serde_json::Value =
        serde_json::from_slice(printed).map_err(|error| format!("wipefs printed no JSON: {error}"))?;
    let list = value.get("signatures").and_then(serde_json::Value::as_array);
    let list = list.ok_or("wipefs printed no list of signatures")?;
    let signature = |one: &serde_json::Value| {
        let text = |name| one.get(name).and_then(serde_json::Value::as_str).map(str::to_owned);
        let kind = text("type").ok_or("wipefs printed a signature without a type")?;
        Ok(Signature { kind, label: text("label"), offset: text("offset").unwrap_or_default() })
    };
    list.iter().map(signature).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_program_prints_is_read_and_nothing_is_taken_for_empty_by_mistake() {
        let printed = br#"{"signatures": [{"device":"loop0","offset":"0x438","type":"ext4",
            "uuid":"6887201b","label":"data"}, {"type":"dos","offset":"0x1fe","label":null}]}"#;
        let found = parse(printed).unwrap();
        let shown: Vec<_> = found.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["ext4 named \"data\" at 0x438", "dos at 0x1fe"]);
        assert_eq!(parse(b"{\n \"signatures\": [\n\n ]\n}\n"), Ok(vec![]));
        assert_eq!(parse(b"\n"), Ok(vec![]));
        for wrong in [&b"DEVICE OFFSET TYPE"[..], b"{}", b"[]", br#"{"signatures": [{"offset": "0x0"}]}"#] {
            assert!(parse(wrong).is_err());
        }
    }

    #[test]
    fn a_swap_area_is_recognized_through_the_open_file() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        let made = Command::new("wipefs").arg("--version").output();
        let probed = probe(file.path(), std::os::fd::AsFd::as_fd(file.as_file()));
        if made.is_err() && !Path::new(PROGRAMS[1]).exists() && !Path::new(PROGRAMS[2]).exists() {
            assert!(probed.unwrap_err().to_string().contains("install util-linux"));
            return;
        }
        assert_eq!(probed.unwrap(), []);
        use std::io::{Seek, SeekFrom, Write};
        // A header of version 1 with 255 pages, and the mark at the end of its page.
        file.seek(SeekFrom::Start(1024)).unwrap();
        file.write_all(&[1_u32.to_ne_bytes(), 255_u32.to_ne_bytes(), 0_u32.to_ne_bytes()].concat()).unwrap();
        file.seek(SeekFrom::Start(4086)).unwrap();
        file.write_all(b"SWAPSPACE2").unwrap();
        let found = probe(file.path(), std::os::fd::AsFd::as_fd(file.as_file())).unwrap();
        assert_eq!(found.iter().map(|one| one.kind.as_str()).collect::<Vec<_>>(), ["swap"]);
    }
}
