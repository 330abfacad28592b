//! Common parts of the commands on servers: places in the form that users write them, and mounting
//! them.

use crate::error::Error;
use clap::Args;
use client::{Mount, options::Target};
use fs::FileHandle;

/// The help about places, for every command that accepts them.
pub const LOCATION_HELP: &str = "A place on a server is nfs://HOST[:PORT]/EXPORT/PATH[?OPTIONS], where bytes other than \
    letters may be written as %XX, or HOST:/EXPORT/PATH. The server is asked where the export ends and the path \
    below it begins. Mount options (docs/MOUNT-OPTIONS.md) follow the ?, or are given with -o.";

/// Mount options for all places of a command.
#[derive(Debug, Args)]
pub struct MountArgs {
    /// Mount options as for mount(8), for all servers of this command; may be repeated.
    #[arg(short = 'o', long, value_name = "OPTIONS")]
    pub options: Vec<String>,
}

impl MountArgs {
    /// All options as one list.
    pub fn joined(&self) -> String {
        self.options.join(",")
    }
}

/// A place on a mounted server.
#[derive(Debug)]
pub struct Location {
    /// The place as the user wrote it, without the part after the question mark.
    pub name: String,
    /// The export.
    pub mount: Mount,
    /// The path below the export.
    pub path: Vec<u8>,
}

impl Location {
    /// Mounts the export that contains a place.
    pub fn open(target: &str, options: &str) -> Result<Self, Error> {
        let (mount, path) = Mount::connect_below(target, options)?;
        let name = target.split_once('?').filter(|_| target.starts_with("nfs://"));
        Ok(Self { name: name.map_or(target, |(name, _)| name).to_owned(), mount, path })
    }

    /// Wraps an error at this place.
    pub fn cannot(&self, what: &str) -> impl Fn(client::Error) -> Error + use<> {
        let sentence = format!("cannot {what} {}", self.name);
        move |cause| Error::Remote { sentence: sentence.clone(), cause: Box::new(cause) }
    }
}

/// The last name of a place, for a command that creates or removes it.
#[derive(Debug)]
pub struct LastName {
    /// The directories from the export's root down to the one that has the name.
    pub trail: Vec<FileHandle>,
    pub name: Vec<u8>,
    /// The path ends with a slash.
    pub must_be_directory: bool,
}

impl LastName {
    /// Finds the directory that has the name. The outer error refuses an export's root, `.` and
    /// `..`; the inner error is the server's.
    pub fn of(location: &Location, what: &str) -> Result<client::Result<Self>, Error> {
        let refused = |cause: &str| {
            Err(Error::Refused {
                sentence: format!("cannot {what} {}", location.name),
                cause: cause.to_owned(),
                advice: "a name below the export's root".to_owned(),
            })
        };
        let end = location.path.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
        let (path, slashes) = location.path.split_at_checked(end).unwrap_or((&[], &[]));
        let start = path.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
        let (above, name) = path.split_at_checked(start).unwrap_or((&[], path));
        match name {
            b"" => return refused("it is the root of what the server exports"),
            b"." | b".." => return refused("its last name is . or .."),
            _ => {}
        }
        let found = location.mount.resolve_trail(above, true);
        Ok(found.map(|(trail, _)| Self {
            trail: if trail.is_empty() { vec![location.mount.root()] } else { trail },
            name: name.to_vec(),
            must_be_directory: !slashes.is_empty(),
        }))
    }

    /// The directory that has the name.
    pub fn directory(&self) -> FileHandle {
        self.trail.last().copied().unwrap_or(FileHandle::EMPTY)
    }
}

/// Whether an argument is a place on a server. As in scp, a local file with a colon in its name is
/// written with its directory, as in `./a:/b`.
pub fn is_remote(argument: &str) -> bool {
    argument.starts_with("nfs://")
        || argument.find(":/").is_some_and(|at| !argument.get(..at).is_some_and(|host| host.contains('/')))
            && Target::parse(argument).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_told_from_a_place_on_a_server() {
        for remote in ["nfs://h/x", "nfs://", "h:/x", "[::1]:/x", "10.0.0.1:/a:/b"] {
            assert!(is_remote(remote), "{remote}");
        }
        for local in ["x", "./a:/b", "/a:/b", "a:b", "", "a b:/c", "-", ":/"] {
            assert!(!is_remote(local), "{local}");
        }
    }
}
