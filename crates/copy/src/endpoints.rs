//! The sources and the destination of a copy, as named on a command line.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use std::sync::Arc;

use client::{Mount, names_a_directory};
use fs::{FileHandle, FileKind};

use crate::backend::{Directory, Identity};
use crate::entry::{Entry, attributes_of};
use crate::error::{Error, Result};
use crate::local::LocalDirectory;
use crate::remote::RemoteDirectory;
use crate::stream::Stream;

/// A source: a file or directory to copy.
#[derive(Debug)]
pub struct Origin {
    pub(crate) directory: Arc<dyn Directory>,
    pub(crate) entry: Entry,
    /// The name of the copy in an existing directory; empty if the contents of the source go into
    /// that directory.
    pub(crate) name: Vec<u8>,
    pub(crate) display_name: String,
    /// The stream that the source is, if it is not a file. `entry` is then a placeholder.
    pub(crate) stream: Option<Stream>,
}

impl Origin {
    /// A local stream; `name` is the name of the copy in a directory, if there is one.
    #[must_use]
    pub fn stream(stream: &Stream, name: Option<&OsStr>) -> Self {
        Self {
            directory: Arc::new(LocalDirectory::new(Path::new("."))),
            entry: Entry::of_stream(),
            name: name.map_or_else(Vec::new, |name| name.as_bytes().to_vec()),
            display_name: stream.display_name().to_owned(),
            stream: Some(stream.clone()),
        }
    }

    /// A local source. With `follow`, a symbolic link stands for its target, and a pipe or device
    /// for the data read from it.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn local(path: &Path, follow: bool) -> Result<Self> {
        if follow && let Some(stream) = Stream::named_source(path) {
            return Ok(Self::stream(&stream, path.file_name()));
        }
        let examined = if follow { rustix::fs::stat(path) } else { rustix::fs::lstat(path) };
        let stat = examined.map_err(|errno| Error::local("cannot examine it")(errno.into()))?;
        let attributes = attributes_of(&stat);
        let written = path;
        // A link that is followed (also one written as `link/`) is opened as its target.
        let follow = follow || ends_with(path, b"/");
        let path = if follow { std::fs::canonicalize(path).ok() } else { None };
        let path = path.unwrap_or_else(|| written.to_owned());
        Ok(match (path.file_name(), written.file_name(), written.components().next_back()) {
            (Some(of_entry), Some(name), Some(Component::Normal(_))) if !ends_with_dot(written) => {
                let parent = path.parent().unwrap_or(Path::new("."));
                let entry = Entry { name: of_entry.as_bytes().to_vec(), attributes, handle: None };
                Self {
                    directory: Arc::new(LocalDirectory::new(parent)),
                    entry,
                    name: name.as_bytes().to_vec(),
                    display_name: path.display().to_string(),
                    stream: None,
                }
            }
            _ => {
                let entry = Entry { name: Vec::new(), attributes, handle: None };
                Self {
                    directory: Arc::new(LocalDirectory::new(&path)),
                    entry,
                    name: Vec::new(),
                    display_name: path.display().to_string(),
                    stream: None,
                }
            }
        })
    }

    /// A source on a server; `path` is below the export.
    ///
    /// # Errors
    /// Errors of the server.
    pub fn remote(mount: &Mount, path: &[u8], display_name: &str, follow: bool) -> Result<Self> {
        let (trail, attributes) = mount.resolve_trail(path, follow)?;
        let handle = last(mount, &trail);
        let parent = trail.len().checked_sub(2).and_then(|at| trail.get(at)).copied().unwrap_or(handle);
        let written = path.split(|byte| *byte == b'/').rfind(|name| !name.is_empty()).unwrap_or_default();
        let name = match written {
            b"." | b".." => Vec::new(),
            // The export itself takes the last name of its path.
            b"" => {
                let export = mount.name();
                export
                    .rsplit('/')
                    .find(|name| !name.is_empty() && !name.contains(':'))
                    .unwrap_or_default()
                    .into()
            }
            name => name.to_vec(),
        };
        let base = display_name.trim_end_matches('/');
        let above = base.strip_suffix(&*String::from_utf8_lossy(written)).unwrap_or(base);
        let (above, entry_name) = if written.is_empty() || name.is_empty() {
            (base, Vec::new())
        } else {
            (above, written.to_vec())
        };
        Ok(Self {
            directory: Arc::new(RemoteDirectory::new(mount, parent, above)),
            entry: Entry { name: entry_name, attributes, handle: Some(handle) },
            name,
            display_name: display_name.to_owned(),
            stream: None,
        })
    }

    /// The kind of the source.
    #[must_use]
    pub const fn kind(&self) -> FileKind {
        self.entry.attributes.kind
    }

    /// Whether the source is a stream, whose length is unknown.
    #[must_use]
    pub const fn is_stream(&self) -> bool {
        self.stream.is_some()
    }

    /// The length, if the source is a file.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.entry.attributes.size
    }

    /// The name of the source in messages.
    #[must_use]
    pub fn display_name(&self) -> &str {
        &self.display_name
    }
}

fn ends_with(path: &Path, end: &[u8]) -> bool {
    path.as_os_str().as_bytes().ends_with(end)
}

/// `dir/.` means the contents of the directory.
fn ends_with_dot(path: &Path) -> bool {
    ends_with(path, b"/.") || ends_with(path, b"/./")
}

fn last(mount: &Mount, trail: &[FileHandle]) -> FileHandle {
    trail.last().copied().unwrap_or_else(|| mount.root())
}

/// The destination of a copy.
#[derive(Debug)]
pub struct Destination {
    pub(crate) directory: Arc<dyn Directory>,
    /// The name of the copy in `directory`; `None` if the source's name is kept.
    pub(crate) name: Option<Vec<u8>>,
    /// The name ends in a slash, so only a directory may have it.
    directories_only: bool,
    /// The directories from the root of the tree down to `directory`.
    pub(crate) trail: Vec<Identity>,
}

impl Destination {
    /// Whether the destination is an existing directory.
    #[must_use]
    pub const fn is_directory(&self) -> bool {
        self.name.is_none()
    }

    /// The name of a source's copy.
    pub(crate) fn name_for(&self, from: &Origin) -> Result<Vec<u8>> {
        match &self.name {
            Some(_) if self.directories_only && from.kind() != FileKind::Directory => {
                Err(Error::Conflict("the place that it is copied to is not a directory".to_owned()))
            }
            Some(name) => Ok(name.clone()),
            None if from.is_stream() && from.name.is_empty() => {
                Err(Error::Conflict("it has no name, and neither was one given for the copy".to_owned()))
            }
            None => Ok(from.name.clone()),
        }
    }

    /// A local destination: an existing directory, or a name in one. A name that is not a file's is
    /// copied to by [`crate::copy_to_stream`].
    ///
    /// # Errors
    /// Errors of the system.
    pub fn local(path: &Path) -> Result<Self> {
        if Stream::named(path).is_some() {
            return Err(Error::Conflict("no file can replace it".to_owned()));
        }
        let at = |directory: &Path, name| Self {
            directory: Arc::new(LocalDirectory::new(directory)),
            name,
            directories_only: names_a_directory(path.as_os_str().as_bytes()),
            trail: Vec::new(),
        };
        if path.is_dir() {
            return Ok(at(path, None));
        }
        let name = path.file_name().ok_or_else(|| Error::Conflict("it has no name".to_owned()))?;
        let parent = path.parent().filter(|parent| *parent != OsStr::new("")).unwrap_or(Path::new("."));
        let metadata =
            std::fs::metadata(parent).map_err(Error::local("cannot use the directory above it"))?;
        if !metadata.is_dir() {
            return Err(Error::local("cannot use the directory above it")(
                std::io::ErrorKind::NotADirectory.into(),
            ));
        }
        Ok(at(parent, Some(name.as_bytes().to_vec())))
    }

    /// A destination on a server; `path` is below the export.
    ///
    /// # Errors
    /// Errors of the server.
    pub fn remote(mount: &Mount, path: &[u8], display_name: &str) -> Result<Self> {
        let at = |trail: Vec<FileHandle>, display_name: &str, name| {
            let directory: Arc<dyn Directory> =
                Arc::new(RemoteDirectory::new(mount, last(mount, &trail), display_name));
            let identity = |handle| Identity::Remote(mount.addresses(), mount.port(), handle);
            let trail = trail.into_iter().map(identity).collect();
            Self { directory, name, directories_only: names_a_directory(path), trail }
        };
        match mount.resolve_trail(path, true) {
            Ok((trail, attributes)) if attributes.kind == FileKind::Directory => {
                return Ok(at(trail, display_name, None));
            }
            Ok(_) => {}
            Err(error) if error.status() == Some(fs::Status::NotFound) => {}
            // The name ends in a slash. Whether that is an error depends on the source.
            Err(error) if error.status() == Some(fs::Status::NotDirectory) && names_a_directory(path) => {}
            Err(error) => return Err(error.into()),
        }
        let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
        let path = path.get(..end).unwrap_or_default();
        let cut = path.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
        let (above, name) = path.split_at_checked(cut).unwrap_or((&[], path));
        if matches!(name, b"" | b"." | b"..") {
            return Err(Error::Conflict("it has no name".to_owned()));
        }
        let (trail, attributes) = mount.resolve_trail(above, true)?;
        if attributes.kind != FileKind::Directory {
            return Err(
                client::Error::Status { operation: "LOOKUP", status: fs::Status::NotDirectory }.into()
            );
        }
        let display_name = display_name.trim_end_matches('/');
        let display_name = display_name.rsplit_once('/').map_or(display_name, |(above, _)| above);
        Ok(at(trail, display_name, Some(name.to_vec())))
    }
}
