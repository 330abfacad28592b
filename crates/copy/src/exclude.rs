//! Patterns of names that a copy leaves out.
//!
//! A pattern without a slash is compared with each name. A pattern with a slash is compared with
//! the path below the source, and its wildcards match no slash, except `**`. With a slash at its
//! end, a pattern is for directories only. A directory that is left out is not listed.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use fs::FileKind;
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use crate::entry::Entry;

/// Patterns for one kind of object.
#[derive(Debug, Clone, Default)]
struct Patterns {
    names: GlobSet,
    paths: GlobSet,
}

/// See the module's documentation.
#[derive(Debug, Clone, Default)]
pub struct Exclude {
    all: Patterns,
    directories: Patterns,
}

impl Exclude {
    /// Reads patterns: `*`, `?`, `[...]`, `{...,...}`, and `**` for any number of directories.
    ///
    /// # Errors
    /// A sentence about the first pattern that is invalid.
    pub fn new<'a>(patterns: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let mut builders = [(); 4].map(|()| GlobSetBuilder::new());
        for pattern in patterns {
            let (rest, is_for_directories) = match pattern.strip_suffix('/') {
                Some(rest) => (rest, true),
                None => (pattern, false),
            };
            let is_path = rest.contains('/');
            let rest = rest.strip_prefix('/').unwrap_or(rest);
            if rest.is_empty() {
                return Err(format!("the pattern \"{pattern}\" has no name"));
            }
            let glob = GlobBuilder::new(rest).literal_separator(true).backslash_escape(true).build();
            let glob =
                glob.map_err(|error| format!("the pattern \"{pattern}\" is invalid: {}", error.kind()))?;
            let [names, paths, directory_names, directory_paths] = &mut builders;
            let builder = match (is_for_directories, is_path) {
                (false, false) => names,
                (false, true) => paths,
                (true, false) => directory_names,
                (true, true) => directory_paths,
            };
            builder.add(glob);
        }
        let [names, paths, directory_names, directory_paths] =
            builders.map(|builder| builder.build().map_err(|error| error.to_string()));
        Ok(Self {
            all: Patterns { names: names?, paths: paths? },
            directories: Patterns { names: directory_names?, paths: directory_paths? },
        })
    }

    /// Whether an object is left out; `path` is its path below the source.
    pub(crate) fn matches(&self, path: &[u8], entry: &Entry) -> bool {
        let text = |bytes| Path::new(OsStr::from_bytes(bytes));
        let matches = |patterns: &Patterns| {
            !patterns.names.is_empty() && patterns.names.is_match(text(&entry.name))
                || !patterns.paths.is_empty() && patterns.paths.is_match(text(path))
        };
        matches(&self.all) || entry.attributes.kind == FileKind::Directory && matches(&self.directories)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fs::Attributes;

    fn is_excluded(pattern: &str, path: &[u8], kind: FileKind) -> bool {
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap().to_vec();
        let entry = Entry { name, attributes: Attributes::of(kind), handle: None };
        Exclude::new([pattern]).unwrap().matches(path, &entry)
    }

    #[test]
    fn patterns_match_names_or_paths() {
        use FileKind::{Directory, Regular};
        for (pattern, path, kind, excluded) in [
            ("*.o", &b"a/b/x.o"[..], Regular, true),
            ("*.o", b"x.o.c", Regular, false),
            ("*", b"a/.hidden", Regular, true),
            ("[ab]?", b"b1", Regular, true),
            ("*.{o,a}", b"lib/x.a", Regular, true),
            (r"\*", b"*", Regular, true),
            (r"\*", b"x", Regular, false),
            ("*.o", b"a/\xff\xfe.o", Regular, true),
            ("cache/", b"a/cache", Directory, true),
            ("cache/", b"a/cache", Regular, false),
            ("/cache", b"cache", Regular, true),
            ("/cache", b"a/cache", Regular, false),
            ("a/*", b"a/b", Regular, true),
            ("a/*", b"a/b/c", Regular, false),
            ("a/*", b"b/a/c", Regular, false),
            ("**/a/*", b"b/a/c", Regular, true),
            ("a/**", b"a/b/c", Regular, true),
            ("a/b/", b"a/b", Directory, true),
            ("a/b/", b"a/b", Regular, false),
        ] {
            let name = String::from_utf8_lossy(path);
            assert_eq!(is_excluded(pattern, path, kind), excluded, "{pattern} {name}");
        }
    }

    #[test]
    fn an_invalid_pattern_is_named() {
        for pattern in ["[a", "{a", "", "/", "//"] {
            let error = Exclude::new([pattern]).expect_err(pattern);
            assert!(error.contains(&format!("\"{pattern}\"")), "{error}");
        }
    }
}
