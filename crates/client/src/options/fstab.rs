//! Lines that describe a mount: of fstab(5) and /proc/mounts, as mount(8) prints them, and as one
//! types them.

use super::{LineError, MountOptions, OptionError, Target, Version};

/// One mount, as a line of text describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FstabLine {
    /// What is mounted.
    pub target: Target,
    /// Where.
    pub directory: String,
    /// The type of file system: `nfs`, `nfs4` or `trunkline`.
    pub fstype: String,
    /// The options as they stand there; see [`FstabLine::mount_options`].
    pub options: String,
}

impl FstabLine {
    /// Reads a line of one of these forms:
    ///
    /// ```text
    /// SOURCE DIR TYPE OPTIONS [FREQ [PASS]]            fstab, /proc/mounts, /etc/mtab
    /// SOURCE on DIR type TYPE (OPTIONS)                what mount(8) prints
    /// [sudo] mount [-t TYPE] [-o OPTIONS] SOURCE DIR   what one types
    /// ```
    ///
    /// # Errors
    ///
    /// What the line lacks, or that it is of another file system.
    pub fn parse(line: &str) -> Result<Self, LineError> {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            return Err(LineError::Nothing);
        }
        let fields: Vec<&str> = line.split_whitespace().collect();
        match fields.as_slice() {
            ["sudo", "mount", rest @ ..] | ["mount", rest @ ..] => Self::parse_command(rest),
            [source, "on", directory, "type", fstype, options @ ..] => {
                // Printed lines are often wrapped, so there may be blanks between the options.
                let options = options.concat();
                Self::new(source, directory, fstype, options.trim_start_matches('(').trim_end_matches(')'))
            }
            [source, directory, fstype, options, ..] => Self::new(source, directory, fstype, options),
            // fstab(5) lets the options be absent.
            [source, directory, fstype] => Self::new(source, directory, fstype, ""),
            [_, _] => Err(LineError::Missing("file system type")),
            _ => Err(LineError::Missing("directory")),
        }
    }

    /// Its options.
    ///
    /// # Errors
    ///
    /// What is wrong with them. `nfs4` asks for version 4, so they may not ask for version 3.
    pub fn mount_options(&self) -> Result<MountOptions, OptionError> {
        if self.fstype != "nfs4" {
            return self.target.mount_options(&self.options);
        }
        let options = self.target.mount_options(&format!("vers=4,{}", self.options))?;
        match options.version {
            Version::V4(_) => Ok(options),
            Version::V3 => Err(OptionError::Contradiction {
                first: "file system type nfs4".to_owned(),
                second: "vers=3".to_owned(),
                why: "nfs4 is version 4",
            }),
        }
    }

    fn new(source: &str, directory: &str, fstype: &str, options: &str) -> Result<Self, LineError> {
        // FUSE mounts stand as fuse.SUBTYPE in /proc/mounts.
        let fstype = fstype.strip_prefix("fuse.").unwrap_or(fstype);
        if !["nfs", "nfs4", "trunkline"].contains(&fstype) {
            return Err(LineError::NotNfs(fstype.to_owned()));
        }
        Ok(Self {
            target: Target::parse(&unescape(source))?,
            directory: unescape(directory),
            fstype: fstype.to_owned(),
            options: unescape(options),
        })
    }

    fn parse_command(words: &[&str]) -> Result<Self, LineError> {
        let (mut fstype, mut options, mut places) = ("nfs", Vec::new(), Vec::new());
        let mut words = words.iter();
        while let Some(&word) = words.next() {
            match word {
                "-t" | "--types" => fstype = words.next().ok_or(LineError::Missing("file system type"))?,
                "-o" | "--options" => options.push(*words.next().ok_or(LineError::Missing("options"))?),
                "-r" | "--read-only" => options.push("ro"),
                "-w" | "--rw" => options.push("rw"),
                _ if word.starts_with('-') => {}
                _ => places.push(word),
            }
        }
        match places.as_slice() {
            [source, directory] => Self::new(source, directory, fstype, &options.join(",")),
            _ => Err(LineError::Missing("source and directory")),
        }
    }
}

/// fstab(5) and /proc/mounts write blanks and such as a backslash and three octal digits.
fn unescape(field: &str) -> String {
    let mut out = String::with_capacity(field.len());
    let mut rest = field;
    while let Some((before, after)) = rest.split_once('\\') {
        out.push_str(before);
        let octal = after.get(..3).filter(|digits| digits.bytes().all(|byte| (b'0'..=b'7').contains(&byte)));
        // Only ASCII is written so; anything else stands as it is.
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()).filter(u8::is_ascii) {
            Some(byte) => {
                out.push(char::from(byte));
                rest = after.get(3..).unwrap_or_default();
            }
            None => {
                out.push('\\');
                rest = after;
            }
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_forms_say_the_same() {
        let lines = [
            "10.0.0.1:/a\\040b /mnt nfs ro,nconnect=4 0 0",
            "10.0.0.1:/a\\040b on /mnt type nfs (ro,\n   nconnect=4)",
            "sudo mount -v -t nfs -o ro -o nconnect=4 10.0.0.1:/a\\040b /mnt",
        ];
        for line in lines {
            let parsed = FstabLine::parse(line).unwrap();
            assert_eq!(parsed.target.path, b"/a b", "{line}");
            assert_eq!((parsed.directory.as_str(), parsed.fstype.as_str()), ("/mnt", "nfs"));
            assert_eq!(parsed.mount_options().unwrap().to_string(), "nconnect=4,ro");
        }
    }

    #[test]
    fn lines_that_are_no_nfs_mount_are_refused() {
        let refused = |line: &str| FstabLine::parse(line).unwrap_err();
        assert_eq!(refused("  # comment"), LineError::Nothing);
        assert_eq!(refused(""), LineError::Nothing);
        assert_eq!(refused("/dev/sda1 / ext4 defaults 0 1"), LineError::NotNfs("ext4".to_owned()));
        assert_eq!(refused("server:/x /mnt"), LineError::Missing("file system type"));
        assert_eq!(refused("mount -t"), LineError::Missing("file system type"));
        assert!(matches!(refused("server /mnt nfs ro"), LineError::Target(_)));
        let options = |line: &str| FstabLine::parse(line).unwrap().mount_options();
        let version = |line: &str| options(line).unwrap().version;
        assert_eq!(version("server:/ /mnt nfs4 nconnect=4"), Version::V4(None));
        assert_eq!(version("server:/ /mnt nfs4 vers=4.1"), Version::V4(Some(1)));
        assert_eq!(version("server:/ /mnt nfs vers=4.2"), Version::V4(Some(2)));
        assert!(matches!(options("server:/ /mnt nfs4 vers=3"), Err(OptionError::Contradiction { .. })));
    }

    #[test]
    fn octal_escapes_are_decoded_and_other_text_is_kept() {
        assert_eq!(unescape("a\\040b\\011\\134x\\9\\"), "a b\t\\x\\9\\");
        assert_eq!(unescape("\\303\\251é"), "\\303\\251é");
    }
}
