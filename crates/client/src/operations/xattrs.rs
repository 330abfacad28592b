//! Extended attributes: a user's own ones, which have no prefix here. RFC 8276

use ::nfs4::Status as Nfs;
use ::nfs4::op::xattr::SetOption;
use fs::{FileHandle, Status};

use super::Operations;
use crate::error::{Error, Result};
use crate::protocol::nfs4::xattrs::{self, NamesPage};

/// The longest value that Linux has, in bytes. XATTR_SIZE_MAX
pub const XATTR_BYTES_MAX: usize = 64 << 10;
/// The longest name that Linux has, in bytes, with its prefix. XATTR_NAME_MAX
const NAME_BYTES_MAX: usize = 255;
/// The most bytes of all names of an object together, with their prefixes. XATTR_LIST_MAX
const NAMES_BYTES_MAX: usize = 64 << 10;
/// What Linux has before each name, and the zero byte behind it.
const BESIDE_NAME_BYTES: usize = b"user.".len() + 1;
/// The most parts of a list. The longest list has fewer, even in replies of 1 KiB.
const PARTS_MAX: usize = 256;

const LIST: &str = "LISTXATTRS";

/// Whether an attribute that is set may exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetXattr {
    /// It is made or replaced.
    Either,
    /// It must not exist.
    Create,
    /// It must exist.
    Replace,
}

/// What is too long for a session's calls is too long for an attribute.
fn too_big(error: Error) -> Error {
    const TOO_BIG: [Nfs; 3] = [Nfs::REQ_TOO_BIG, Nfs::REP_TOO_BIG, Nfs::REP_TOO_BIG_TO_CACHE];
    match error {
        Error::Status { operation, status: Status::Other(number) } if TOO_BIG.contains(&Nfs(number)) => {
            Error::Status { operation, status: Status::XattrTooBig }
        }
        error => error,
    }
}

impl Operations<'_> {
    /// The value of an attribute; [`Status::NoXattr`] if there is none of this name.
    ///
    /// # Errors
    /// Those of the server and of the mount; [`Status::NotSupported`] before version 4.2.
    pub async fn xattr(&self, object: FileHandle, name: &[u8]) -> Result<Vec<u8>> {
        const GET: &str = "GETXATTR";
        let minor = self.version_4_2(GET)?;
        let value = self.run(xattrs::value(minor, object, name)).await.map_err(too_big)?;
        if value.len() > XATTR_BYTES_MAX {
            return Err(Error::Status { operation: GET, status: Status::XattrTooBig });
        }
        Ok(value)
    }

    /// Sets an attribute. [`Status::Exists`] and [`Status::NoXattr`] as `how` says;
    /// [`Status::XattrTooBig`] also for what does not fit a WRITE of the mount.
    ///
    /// # Errors
    /// Those of the server and of the mount; [`Status::NotSupported`] before version 4.2.
    pub async fn set_xattr(
        &self,
        object: FileHandle,
        name: &[u8],
        value: &[u8],
        how: SetXattr,
    ) -> Result<()> {
        const SET: &str = "SETXATTR";
        let minor = self.version_4_2(SET)?;
        let room = (self.mount.transfer_sizes().1 as usize).min(XATTR_BYTES_MAX + NAME_BYTES_MAX);
        if value.len() > XATTR_BYTES_MAX || name.len() + value.len() > room {
            return Err(Error::Status { operation: SET, status: Status::XattrTooBig });
        }
        let option = match how {
            SetXattr::Either => SetOption::Either,
            SetXattr::Create => SetOption::Create,
            SetXattr::Replace => SetOption::Replace,
        };
        self.run(xattrs::set(minor, object, (name, value), option)).await.map_err(too_big)
    }

    /// Removes an attribute; [`Status::NoXattr`] if there is none of this name.
    ///
    /// # Errors
    /// Those of the server and of the mount; [`Status::NotSupported`] before version 4.2.
    pub async fn remove_xattr(&self, object: FileHandle, name: &[u8]) -> Result<()> {
        let minor = self.version_4_2("REMOVEXATTR")?;
        self.run(xattrs::remove(minor, object, name)).await
    }

    /// The names of all attributes; [`Status::XattrTooBig`] if they are more than Linux shows.
    ///
    /// # Errors
    /// Those of the server and of the mount; [`Status::NotSupported`] before version 4.2.
    pub async fn xattrs(&self, object: FileHandle) -> Result<Vec<Vec<u8>>> {
        let minor = self.version_4_2(LIST)?;
        let count_max = self.protocol().page_bytes();
        let mut names = Names::default();
        loop {
            let from = (names.cookie, count_max);
            let page = self.run(xattrs::list(minor, object, from)).await.map_err(too_big)?;
            if names.add(page)? {
                return Ok(names.all);
            }
        }
    }

    /// Whether the file system that has an object has extended attributes, as the server says
    /// (`xattr_support`). RFC 8276 s8.2.1
    ///
    /// # Errors
    /// Those of the server and of the mount; [`Status::NotSupported`] before version 4.2.
    pub async fn has_xattrs(&self, object: FileHandle) -> Result<bool> {
        let minor = self.version_4_2("GETATTR")?;
        self.run(xattrs::support(minor, object)).await
    }
}

/// The names of an object's attributes so far.
#[derive(Debug, Default)]
struct Names {
    all: Vec<Vec<u8>>,
    bytes: usize,
    parts: usize,
    /// Where the next part begins.
    cookie: u64,
}

impl Names {
    /// Adds a part of the list. Returns whether it is the last.
    fn add(&mut self, page: NamesPage) -> Result<bool> {
        let misbehaved = |reason: String| Err(Error::PeerMisbehaved { operation: LIST, reason });
        self.parts += 1;
        let before = std::mem::replace(&mut self.cookie, page.cookie);
        if !page.eof {
            if page.names.is_empty() {
                return misbehaved("a part of the list without names that is not the last".to_owned());
            }
            if page.cookie == before {
                return misbehaved("the next part of the list begins where this one does".to_owned());
            }
            if self.parts == PARTS_MAX {
                return misbehaved(format!("a list has not ended after {PARTS_MAX} parts"));
            }
        }
        for name in page.names {
            if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains(&0) {
                return misbehaved(format!("\"{}\" cannot be an attribute's name", name.escape_ascii()));
            }
            self.bytes += name.len() + BESIDE_NAME_BYTES;
            if self.bytes > NAMES_BYTES_MAX {
                return Err(Error::Status { operation: LIST, status: Status::XattrTooBig });
            }
            self.all.push(name);
        }
        Ok(page.eof)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page_to(cookie: u64, names: &[&[u8]], eof: bool) -> NamesPage {
        NamesPage { names: names.iter().map(|name| name.to_vec()).collect(), cookie, eof }
    }

    fn page(names: &[&[u8]], eof: bool) -> NamesPage {
        page_to(1, names, eof)
    }

    // RFC 8276 s8.4.3
    #[test]
    fn a_list_ends_where_the_server_says_and_never_grows_without_bound() {
        let mut names = Names::default();
        assert!(!names.add(page(&[b"a", b"b"], false)).unwrap());
        assert!(names.add(page(&[], true)).unwrap());
        assert_eq!(names.all, [b"a", b"b"]);
        assert!(matches!(names.add(page(&[], false)), Err(Error::PeerMisbehaved { .. })));
        for wrong in [&b""[..], b"a\0b", &[b'x'; NAME_BYTES_MAX + 1]] {
            assert!(matches!(names.add(page(&[wrong], true)), Err(Error::PeerMisbehaved { .. })));
        }
        let long = [b'x'; NAME_BYTES_MAX];
        let mut names = Names::default();
        let all: Vec<&[u8]> = vec![&long; NAMES_BYTES_MAX / (NAME_BYTES_MAX + BESIDE_NAME_BYTES)];
        assert!(!names.add(page(&all, false)).unwrap());
        let refused = names.add(page_to(2, &[&long], true)).err();
        assert_eq!(refused.and_then(|error| error.status()), Some(Status::XattrTooBig));
    }

    #[test]
    fn a_list_that_makes_no_progress_ends() {
        let is_refused = |outcome| matches!(outcome, Err(Error::PeerMisbehaved { .. }));
        let mut names = Names::default();
        assert!(!names.add(page_to(7, &[b"a"], false)).unwrap());
        assert!(is_refused(names.add(page_to(7, &[b"b"], false))), "the same part again");
        let mut names = Names::default();
        for cookie in 1..PARTS_MAX as u64 {
            assert!(!names.add(page_to(cookie, &[b"a"], false)).unwrap());
        }
        assert!(is_refused(names.add(page_to(u64::MAX, &[b"a"], false))));
        assert_eq!(names.parts, PARTS_MAX);
    }
}
