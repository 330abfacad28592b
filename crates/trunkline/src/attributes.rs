//! Formats attributes of files as text and as JSON. Owners are numbers, because NFS version 3 has
//! no names for them.

use fs::{Attributes, FileKind, Time};
use serde_json::{Map, Value, json};

/// The name of a type.
pub const fn type_name(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Regular => "file",
        FileKind::Directory => "directory",
        FileKind::BlockDevice => "block device",
        FileKind::CharacterDevice => "character device",
        FileKind::Symlink => "symbolic link",
        FileKind::Socket => "socket",
        FileKind::Fifo => "named pipe",
    }
}

/// The type and permissions in ten characters, as printed by ls.
pub fn mode_text(kind: FileKind, mode: u32) -> String {
    let letter = match kind {
        FileKind::Regular => '-',
        FileKind::Directory => 'd',
        FileKind::BlockDevice => 'b',
        FileKind::CharacterDevice => 'c',
        FileKind::Symlink => 'l',
        FileKind::Socket => 's',
        FileKind::Fifo => 'p',
    };
    let mut text = String::from(letter);
    for (shift, special, set, set_and_x) in
        [(6, 0o4000, 'S', 's'), (3, 0o2000, 'S', 's'), (0, 0o1000, 'T', 't')]
    {
        let bits = mode >> shift;
        text.push(if bits & 4 == 0 { '-' } else { 'r' });
        text.push(if bits & 2 == 0 { '-' } else { 'w' });
        text.push(match (mode & special != 0, bits & 1 != 0) {
            (false, false) => '-',
            (false, true) => 'x',
            (true, false) => set,
            (true, true) => set_and_x,
        });
    }
    text
}

/// A time in UTC, in whole seconds.
pub fn time_text(time: Time) -> String {
    record::rfc3339(u64::try_from(time.seconds).unwrap_or_default())
}

/// A time in UTC, in nanoseconds.
pub fn exact_time_text(time: Time) -> String {
    let text = time_text(time);
    format!("{}.{:09}Z", text.trim_end_matches('Z'), time.nanoseconds)
}

/// Adds all attributes to a JSON object.
pub fn put(object: &mut Map<String, Value>, attributes: &Attributes) {
    let fields = json!({
        "type": type_name(attributes.kind),
        "mode": format!("{:04o}", attributes.mode & 0o7777),
        "links": attributes.nlink,
        "uid": attributes.uid,
        "gid": attributes.gid,
        "size_bytes": attributes.size,
        "used_bytes": attributes.used,
        "device": [attributes.rdev.major, attributes.rdev.minor],
        "fsid": attributes.fsid,
        "fileid": attributes.fileid,
        "atime": exact_time_text(attributes.atime),
        "mtime": exact_time_text(attributes.mtime),
        "ctime": exact_time_text(attributes.ctime),
    });
    if let Value::Object(fields) = fields {
        object.extend(fields);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_read_as_ls_writes_them() {
        for (kind, mode, text) in [
            (FileKind::Regular, 0o644, "-rw-r--r--"),
            (FileKind::Directory, 0o1777, "drwxrwxrwt"),
            (FileKind::Regular, 0o6755, "-rwsr-sr-x"),
            (FileKind::Regular, 0o7000, "---S--S--T"),
            (FileKind::Symlink, 0o777, "lrwxrwxrwx"),
            (FileKind::Fifo, 0, "p---------"),
        ] {
            assert_eq!(mode_text(kind, mode), text);
        }
    }

    #[test]
    fn times_have_all_their_digits() {
        let time = Time { seconds: 951_782_400, nanoseconds: 7 };
        assert_eq!(exact_time_text(time), "2000-02-29T00:00:00.000000007Z");
    }
}
