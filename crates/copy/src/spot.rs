//! Where a copy comes from and where it goes, as a command line names it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use std::sync::Arc;

use client::{Mount, names_a_directory};
use fs::{FileHandle, FileKind};

use crate::backend::{Folder, Identity};
use crate::entry::{Entry, attributes_of};
use crate::error::{Error, Result};
use crate::local::LocalFolder;
use crate::remote::RemoteFolder;
use crate::stream::Stream;

/// A file or directory to be copied.
#[derive(Debug)]
pub struct Origin {
    pub(crate) folder: Arc<dyn Folder>,
    pub(crate) entry: Entry,
    /// What it is called in a directory that it is copied into; empty where its contents go there
    /// themselves.
    pub(crate) name: Vec<u8>,
    pub(crate) place: String,
    /// What it is read from where that is no file; then `entry` stands for what is not known of it.
    pub(crate) stream: Option<Stream>,
}

impl Origin {
    /// A stream of this machine; `name` is what it is called in a directory, if anything.
    #[must_use]
    pub fn stream(stream: &Stream, name: Option<&OsStr>) -> Self {
        Self {
            folder: Arc::new(LocalFolder::new(Path::new("."))),
            entry: Entry::of_stream(),
            name: name.map_or_else(Vec::new, |name| name.as_bytes().to_vec()),
            place: stream.place().to_owned(),
            stream: Some(stream.clone()),
        }
    }

    /// One of this machine; with `follow` a symbolic link stands for what it points to, and a pipe
    /// or a device for what can be read from it.
    ///
    /// # Errors
    /// What the system says.
    pub fn local(path: &Path, follow: bool) -> Result<Self> {
        if follow && let Some(stream) = Stream::named_source(path) {
            return Ok(Self::stream(&stream, path.file_name()));
        }
        let examined = if follow { rustix::fs::stat(path) } else { rustix::fs::lstat(path) };
        let stat = examined.map_err(|errno| Error::local("cannot examine it")(errno.into()))?;
        let attributes = attributes_of(&stat);
        let written = path;
        // A link that is followed, as `link/` is too, is opened as what it points to.
        let follow = follow || ends_with(path, b"/");
        let path = if follow { std::fs::canonicalize(path).ok() } else { None };
        let path = path.unwrap_or_else(|| written.to_owned());
        Ok(match (path.file_name(), written.file_name(), written.components().next_back()) {
            (Some(of_entry), Some(name), Some(Component::Normal(_))) if !ends_with_dot(written) => {
                let parent = path.parent().unwrap_or(Path::new("."));
                let entry = Entry { name: of_entry.as_bytes().to_vec(), attributes, handle: None };
                Self {
                    folder: Arc::new(LocalFolder::new(parent)),
                    entry,
                    name: name.as_bytes().to_vec(),
                    place: path.display().to_string(),
                    stream: None,
                }
            }
            _ => {
                let entry = Entry { name: Vec::new(), attributes, handle: None };
                Self {
                    folder: Arc::new(LocalFolder::new(&path)),
                    entry,
                    name: Vec::new(),
                    place: path.display().to_string(),
                    stream: None,
                }
            }
        })
    }

    /// One of a server; `path` is below the export.
    ///
    /// # Errors
    /// What the server says.
    pub fn remote(mount: &Mount, path: &[u8], place: &str, follow: bool) -> Result<Self> {
        let (trail, attributes) = mount.resolve_trail(path, follow)?;
        let handle = last(mount, &trail);
        let parent = trail.len().checked_sub(2).and_then(|at| trail.get(at)).copied().unwrap_or(handle);
        let written = path.split(|byte| *byte == b'/').rfind(|name| !name.is_empty()).unwrap_or_default();
        let name = match written {
            b"." | b".." => Vec::new(),
            // The export itself is called as the export is.
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
        let base = place.trim_end_matches('/');
        let above = base.strip_suffix(&*String::from_utf8_lossy(written)).unwrap_or(base);
        let (above, entry_name) = if written.is_empty() || name.is_empty() {
            (base, Vec::new())
        } else {
            (above, written.to_vec())
        };
        Ok(Self {
            folder: Arc::new(RemoteFolder::new(mount, parent, above)),
            entry: Entry { name: entry_name, attributes, handle: Some(handle) },
            name,
            place: place.to_owned(),
            stream: None,
        })
    }

    /// What it is.
    #[must_use]
    pub const fn kind(&self) -> FileKind {
        self.entry.attributes.kind
    }

    /// Whether it is a stream, whose length nobody knows.
    #[must_use]
    pub const fn is_stream(&self) -> bool {
        self.stream.is_some()
    }

    /// Its length, where it is a file.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.entry.attributes.size
    }

    /// Where it is, for people.
    #[must_use]
    pub fn place(&self) -> &str {
        &self.place
    }
}

fn ends_with(path: &Path, end: &[u8]) -> bool {
    path.as_os_str().as_bytes().ends_with(end)
}

/// `dir/.` means what is in the directory.
fn ends_with_dot(path: &Path) -> bool {
    ends_with(path, b"/.") || ends_with(path, b"/./")
}

fn last(mount: &Mount, trail: &[FileHandle]) -> FileHandle {
    trail.last().copied().unwrap_or_else(|| mount.root())
}

/// Where something is copied to.
#[derive(Debug)]
pub struct Destination {
    pub(crate) folder: Arc<dyn Folder>,
    /// What it will be called there; none where it keeps its name.
    pub(crate) name: Option<Vec<u8>>,
    /// The name was written with a slash behind it: only a directory may have it.
    directories_only: bool,
    /// The directories from the top down to `folder`.
    pub(crate) trail: Vec<Identity>,
}

impl Destination {
    /// Whether it is an existing directory.
    #[must_use]
    pub const fn is_directory(&self) -> bool {
        self.name.is_none()
    }

    /// What a source will be called there.
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

    /// A place on this machine: an existing directory, or a name in one. What is no file there is
    /// [`crate::pour`]'s.
    ///
    /// # Errors
    /// What the system says.
    pub fn local(path: &Path) -> Result<Self> {
        if Stream::named(path).is_some() {
            return Err(Error::Conflict("no file can replace it".to_owned()));
        }
        let at = |folder: &Path, name| Self {
            folder: Arc::new(LocalFolder::new(folder)),
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

    /// A place on a server; `path` is below the export.
    ///
    /// # Errors
    /// What the server says.
    pub fn remote(mount: &Mount, path: &[u8], place: &str) -> Result<Self> {
        let at = |trail: Vec<FileHandle>, place: &str, name| {
            let folder: Arc<dyn Folder> = Arc::new(RemoteFolder::new(mount, last(mount, &trail), place));
            let identity = |handle| Identity::Remote(mount.addresses(), mount.port(), handle);
            let trail = trail.into_iter().map(identity).collect();
            Self { folder, name, directories_only: names_a_directory(path), trail }
        };
        match mount.resolve_trail(path, true) {
            Ok((trail, attributes)) if attributes.kind == FileKind::Directory => {
                return Ok(at(trail, place, None));
            }
            Ok(_) => {}
            Err(error) if error.status() == Some(fs::Status::NotFound) => {}
            // With a slash behind its name; what is copied there decides.
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
        let place = place.trim_end_matches('/');
        let place = place.rsplit_once('/').map_or(place, |(above, _)| above);
        Ok(at(trail, place, Some(name.to_vec())))
    }
}
