//! Attributes of files as text and as JSON. Owners are numbers: NFS version 3 has no names for them.

use nfs3::{Fattr3, FileType, NfsTime};
use serde_json::{Map, Value, json};

/// The type in a word.
pub const fn type_name(file_type: FileType) -> &'static str {
    match file_type {
        FileType::Regular => "file",
        FileType::Directory => "directory",
        FileType::BlockDevice => "block device",
        FileType::CharacterDevice => "character device",
        FileType::Symlink => "symbolic link",
        FileType::Socket => "socket",
        FileType::Fifo => "named pipe",
    }
}

/// Type and permissions in ten letters, as ls has them.
pub fn mode_text(file_type: FileType, mode: u32) -> String {
    let letter = match file_type {
        FileType::Regular => '-',
        FileType::Directory => 'd',
        FileType::BlockDevice => 'b',
        FileType::CharacterDevice => 'c',
        FileType::Symlink => 'l',
        FileType::Socket => 's',
        FileType::Fifo => 'p',
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

/// A time to the second, UTC.
pub fn time_text(time: NfsTime) -> String {
    record::rfc3339(u64::from(time.seconds))
}

/// A time with all its digits, UTC.
pub fn exact_time_text(time: NfsTime) -> String {
    let text = time_text(time);
    format!("{}.{:09}Z", text.trim_end_matches('Z'), time.nanoseconds)
}

/// Puts all attributes into a JSON object.
pub fn put(object: &mut Map<String, Value>, attributes: &Fattr3) {
    let fields = json!({
        "type": type_name(attributes.file_type),
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
        for (file_type, mode, text) in [
            (FileType::Regular, 0o644, "-rw-r--r--"),
            (FileType::Directory, 0o1777, "drwxrwxrwt"),
            (FileType::Regular, 0o6755, "-rwsr-sr-x"),
            (FileType::Regular, 0o7000, "---S--S--T"),
            (FileType::Symlink, 0o777, "lrwxrwxrwx"),
            (FileType::Fifo, 0, "p---------"),
        ] {
            assert_eq!(mode_text(file_type, mode), text);
        }
    }

    #[test]
    fn times_have_all_their_digits() {
        let time = NfsTime { seconds: 951_782_400, nanoseconds: 7 };
        assert_eq!(exact_time_text(time), "2000-02-29T00:00:00.000000007Z");
    }
}
