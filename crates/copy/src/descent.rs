//! Guards the walk of a source against trees without an end: a broken or hostile server may return
//! a directory that contains one of its ancestors, or a new directory at each level.

use fs::FileHandle;

use crate::entry::Entry;
use crate::error::{Error, Result};

/// The longest path below a source, in bytes: PATH_MAX of Linux, beyond which no program can name a
/// file by its path.
const PATH_BYTES_MAX: usize = 4096;

/// What two directories of one source have in common only if they are the same. A server may give
/// the same file number to several directories, as for the roots of subvolumes.
#[derive(Debug, PartialEq, Eq)]
enum Key {
    Local(u64, u64),
    Remote(FileHandle),
}

impl Key {
    fn of(entry: &Entry) -> Self {
        let of = &entry.attributes;
        entry.handle.map_or(Self::Local(of.fsid, of.fileid), Self::Remote)
    }
}

/// The directories from the source down to the one that is being walked.
#[derive(Debug)]
pub(crate) struct Descent {
    /// The length of the path of each directory, and its identity.
    above: Vec<(usize, Key)>,
    /// The path of the lowest directory below the source, which ends with a slash unless it is
    /// empty.
    path: Vec<u8>,
}

impl Descent {
    /// Starts at the source.
    pub(crate) fn new(source: &Entry) -> Self {
        Self { above: vec![(0, Key::of(source))], path: Vec::new() }
    }

    /// The path of an entry of the lowest directory, below the source.
    pub(crate) fn path_of(&self, entry: &Entry) -> Vec<u8> {
        [self.path.as_slice(), &entry.name].concat()
    }

    /// Checks a directory in the lowest directory before it is entered.
    pub(crate) fn check(&self, directory: &Entry) -> Result<()> {
        let key = Key::of(directory);
        if let Some((length, _)) = self.above.iter().find(|(_, above)| *above == key) {
            let path = self.path.get(..*length).unwrap_or_default();
            let path = String::from_utf8_lossy(path).trim_end_matches('/').to_owned();
            return Err(Error::Cycle(if path.is_empty() { ".".to_owned() } else { path }));
        }
        if self.path.len() + directory.name.len() > PATH_BYTES_MAX {
            return Err(Error::TooDeep(PATH_BYTES_MAX));
        }
        Ok(())
    }

    /// Makes a directory in the lowest directory the lowest one.
    pub(crate) fn enter(&mut self, directory: &Entry) {
        self.path.extend_from_slice(&directory.name);
        self.path.push(b'/');
        self.above.push((self.path.len(), Key::of(directory)));
    }

    /// Goes up again.
    pub(crate) fn leave(&mut self) {
        self.above.pop();
        let length = self.above.last().map_or(0, |(length, _)| *length);
        self.path.truncate(length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fs::{Attributes, FileKind};

    fn directory(name: &str, handle: u8) -> Entry {
        let attributes = Attributes::of(FileKind::Directory);
        Entry { name: name.into(), attributes, handle: FileHandle::new(&[handle]) }
    }

    #[test]
    fn a_directory_that_contains_an_ancestor_is_named_with_it() {
        let mut descent = Descent::new(&directory("", 0));
        for (name, handle) in [("a", 1), ("b", 2)] {
            let entry = directory(name, handle);
            descent.check(&entry).unwrap();
            descent.enter(&entry);
        }
        assert_eq!(descent.path_of(&directory("c", 3)), b"a/b/c");
        for (handle, above) in [(0, "."), (1, "a"), (2, "a/b")] {
            let error = descent.check(&directory("c", handle)).unwrap_err();
            assert!(matches!(&error, Error::Cycle(path) if path == above), "{error}");
        }
        // Beside its parent it is not a cycle.
        descent.leave();
        descent.check(&directory("c", 2)).unwrap();
        assert_eq!(descent.path_of(&directory("c", 3)), b"a/c");
    }

    #[test]
    fn a_tree_without_an_end_is_left_at_the_longest_path() {
        let mut descent = Descent::new(&directory("", 0));
        let mut handle = 0_u32;
        let error = loop {
            handle += 1;
            let handle = FileHandle::new(&handle.to_be_bytes());
            let entry = Entry { handle, ..directory("deeper", 0) };
            match descent.check(&entry) {
                Ok(()) => descent.enter(&entry),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, Error::TooDeep(PATH_BYTES_MAX)), "{error}");
        assert!(descent.path.len() <= PATH_BYTES_MAX + 1);
    }
}
