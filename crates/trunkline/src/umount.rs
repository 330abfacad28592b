//! `trunkline umount`: ends a mount of ours, and no other.

use crate::error::Error;
use clap::Args;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The type that mounts of ours show.
const OURS: &[u8] = b"fuse.trunkline";

/// Unmount a directory that `trunkline mount` mounted.
///
/// What programs have written and closed is on the server by then.
#[derive(Debug, Args)]
pub struct UmountArgs {
    /// The directory.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Even if it is in use: it disappears at once, and ends when nobody uses it any more.
    #[arg(short, long)]
    lazy: bool,
}

/// Unmounts.
pub fn run(args: &UmountArgs) -> Result<ExitCode, Error> {
    // proc(5). Where it cannot be read, the system says what it says.
    if let Ok(table) = std::fs::read("/proc/self/mountinfo") {
        hold_ours(&table, &args.directory)?;
    }
    mount::unmount(&args.directory, args.lazy)?;
    Ok(ExitCode::SUCCESS)
}

/// Holds that what is mounted there is ours.
fn hold_ours(table: &[u8], directory: &Path) -> Result<(), Error> {
    let refused = |cause: String, advice: String| {
        let sentence = format!("cannot unmount {}", directory.display());
        Err(Error::Unmountable { sentence, cause, advice })
    };
    match mounted_at(table, &place_of(directory)) {
        Some(entry) if entry.kind == OURS => Ok(()),
        Some(entry) => refused(
            format!("{} is mounted there, not fuse.trunkline", String::from_utf8_lossy(entry.kind)),
            format!("umount {}", directory.display()),
        ),
        None => refused(
            "it is not mounted".to_owned(),
            "findmnt -t fuse.trunkline        to see what is mounted".to_owned(),
        ),
    }
}

/// A directory as the system's table names it. Its last part is not looked at: nobody may serve it any more.
fn place_of(directory: &Path) -> PathBuf {
    let absolute = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
    let resolved = match (absolute.parent(), absolute.file_name()) {
        (Some(parent), Some(name)) => parent.canonicalize().map(|parent| parent.join(name)),
        _ => absolute.canonicalize(),
    };
    resolved.unwrap_or(absolute)
}

/// A line of /proc/self/mountinfo.
#[derive(Debug, Clone, Copy)]
struct Entry<'a> {
    id: &'a [u8],
    parent: &'a [u8],
    kind: &'a [u8],
}

/// What is mounted there; of several on top of each other the uppermost.
fn mounted_at<'a>(table: &'a [u8], place: &Path) -> Option<Entry<'a>> {
    let lines = table.split(|byte| *byte == b'\n');
    let here: Vec<Entry<'_>> = lines.filter_map(|line| entry_at(line, place)).collect();
    here.iter().copied().find(|entry| here.iter().all(|other| other.parent != entry.id))
}

/// The entry of a line, where it is of this place: `36 35 98:0 /root /place options tag:1 - type source options`.
fn entry_at<'a>(line: &'a [u8], place: &Path) -> Option<Entry<'a>> {
    let mut fields = line.split(|byte| *byte == b' ');
    let (id, parent) = (fields.next()?, fields.next()?);
    let is_here = Path::new(OsStr::from_bytes(&unescaped(fields.nth(2)?))) == place;
    // There may be any number of tags before the dash.
    let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
    is_here.then_some(Entry { id, parent, kind })
}

/// Blanks, line ends and backslashes stand as a backslash and three octal digits.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let octal =
            after.get(..3).filter(|_| *first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                out.push(byte);
                rest = after.get(3..).unwrap_or_default();
            }
            None => {
                out.push(*first);
                rest = after;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"\
        22 1 0:21 / / rw,relatime shared:1 - ext4 /dev/vda1 rw\n\
        30 22 0:30 / /a\\040b\\134c rw,nosuid - fuse.trunkline nas:/data rw,user_id=0\n\
        31 22 0:31 / /tmp rw shared:2 master:3 - tmpfs tmpfs rw\n\
        33 32 0:33 / /stack rw - fuse.trunkline nas:/data rw\n\
        32 22 0:32 / /stack rw - tmpfs tmpfs rw\n";

    fn kind(place: &str) -> Option<&'static [u8]> {
        mounted_at(TABLE, Path::new(place)).map(|entry| entry.kind)
    }

    #[test]
    fn the_table_says_what_is_mounted_where() {
        assert_eq!(kind("/a b\\c"), Some(OURS));
        assert_eq!(kind("/tmp"), Some(&b"tmpfs"[..]));
        assert_eq!(kind("/stack"), Some(OURS), "the uppermost, wherever it stands");
        assert_eq!(kind("/a"), None);
        assert_eq!(mounted_at(b"\n1 2\nnonsense", Path::new("/")).map(|entry| entry.kind), None);
    }

    #[test]
    fn a_directory_is_named_as_the_table_names_it() {
        assert_eq!(place_of(Path::new("/tmp/../proc/")), Path::new("/proc"));
        assert_eq!(place_of(Path::new("/proc/.")), Path::new("/proc"));
        assert_eq!(place_of(Path::new("/proc/..")), Path::new("/"));
        assert_eq!(place_of(Path::new("/absent/dir")), Path::new("/absent/dir"));
    }
}
