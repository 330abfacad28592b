//! The state of a directory export that is kept outside the directory: the secret of its handles,
//! and a count of possible data losses.
//!
//! One directory for each exported directory (0700), named by a hash of its path:
//!
//! - `key`: 16 random bytes, made once; without it all handles that clients have are stale.
//! - `losses`: a count of failed syncs, shared by all processes that serve the export through a
//!   mapping.
//! - `changes`: the last change attribute that was made from the clock (`changes`), shared
//!   likewise.
//! - `map`: where objects lie, where the kernel's handles cannot be opened (`map`).
//! - `path`: which directory this belongs to, for people.
//!
//! The write verifier is derived from the boot identity and the count. Written data survive the end
//! of a process, because the kernel has them in memory, but not the end of the kernel, nor a failed
//! write-back. RFC 1813 s3.3.7, s3.3.21

#![allow(unsafe_code)]

use rustix::fs::{Mode, OFlags};
use rustix::mm::{MapFlags, ProtFlags};
use siphasher::sip::SipHasher24;
use std::fs;
use std::hash::Hasher;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// Where state is kept by default: the system's place for root, the user's own place for others.
pub(super) fn default_base() -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Some("/var/lib/trunkline".into());
    }
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
    Some(state.join("trunkline"))
}

/// A mapped number that all processes of the host share.
pub(super) struct SharedNumber(NonNull<AtomicU64>);

// SAFETY: the mapping consists of an atomic, and stays mapped as long as `self` lives.
unsafe impl Send for SharedNumber {}
// SAFETY: as above.
unsafe impl Sync for SharedNumber {}

impl SharedNumber {
    const BYTES: usize = size_of::<u64>();

    /// Opens the number in a file, which is made with zero if it is not there.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mode = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = rustix::fs::open(path, mode, Mode::RUSR | Mode::WUSR)?;
        if rustix::fs::fstat(&file)?.st_size < Self::BYTES as i64 {
            // Zeros are written instead of only extending the file: a store to a page without space
            // on a full disk would end the process. Two processes may both write zeros at once,
            // because neither has mapped the file yet.
            rustix::io::pwrite(&file, &[0; Self::BYTES], 0)?;
            rustix::fs::fsync(&file)?;
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses touches no other memory. The
        // file is ours (0600, in a directory of 0700) and never shrinks.
        let start = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                Self::BYTES,
                protection,
                MapFlags::SHARED,
                file.as_fd(),
                0,
            )?
        };
        NonNull::new(start.cast()).map(Self).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    pub fn number(&self) -> &AtomicU64 {
        // SAFETY: the mapping starts at a page, is as long as the number, and lives as long as
        // `self`.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for SharedNumber {
    fn drop(&mut self) {
        // SAFETY: mapped by `open`, and no reference to the mapping can exist any more.
        let _ = unsafe { rustix::mm::munmap(self.0.as_ptr().cast(), Self::BYTES) };
    }
}

/// See the module's documentation.
pub(super) struct State {
    pub directory: PathBuf,
    pub secret: [u8; 16],
    losses: SharedNumber,
    boot: SipHasher24,
}

impl State {
    /// Opens the state of the exported directory `root`, under `base`, and creates the state if
    /// necessary.
    pub fn open(base: &Path, root: &Path) -> io::Result<Self> {
        let mut name = SipHasher24::new();
        name.write(root.as_os_str().as_bytes());
        let directory = base.join(format!("{:016x}", name.finish()));
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        check_owner(base, true)?;
        check_owner(&directory, false)?;
        let secret = secret(&directory)?;
        let path = directory.join("path");
        if !path.exists() {
            fs::write(path, root.as_os_str().as_bytes())?;
        }
        let losses = SharedNumber::open(&directory.join("losses"))?;
        let mut boot = SipHasher24::new_with_key(&secret);
        boot.write(&fs::read("/proc/sys/kernel/random/boot_id")?);
        Ok(Self { directory, secret, losses, boot })
    }

    /// The current write verifier.
    pub fn verifier(&self) -> u64 {
        let mut hasher = self.boot;
        hasher.write_u64(self.losses.number().load(Ordering::Acquire));
        hasher.finish()
    }

    /// Counts a possible loss of data: clients that have unstable data must write them again.
    pub fn lost(&self) {
        self.losses.number().fetch_add(1, Ordering::AcqRel);
    }
}

/// Reads the secret, or creates it: complete and on disk before it has its name, and created by
/// only one of several processes.
fn secret(directory: &Path) -> io::Result<[u8; 16]> {
    let path = directory.join("key");
    if !path.exists() {
        let mut fresh = [0; 16];
        getrandom::fill(&mut fresh).map_err(io::Error::other)?;
        let draft = directory.join(format!("key.{}", std::process::id()));
        let _ = fs::remove_file(&draft);
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        file.write_all(&fresh)?;
        file.sync_all()?;
        match fs::hard_link(&draft, &path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => fs::remove_file(&draft)?,
        }
        fs::File::open(directory)?.sync_all()?;
    }
    let bytes = fs::read(&path)?;
    bytes
        .try_into()
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "the file `key` is not 16 bytes long"))
}

/// Another user with write access here could replace our key, and forge handles with it. The parent
/// directory may belong to root, or be one like /tmp, where users cannot remove files of others.
fn check_owner(directory: &Path, above: bool) -> io::Result<()> {
    const OTHERS_WRITE: u32 = 0o022;
    const STICKY: u32 = 0o1000;
    let fault = |cause: String| Err(io::Error::new(io::ErrorKind::PermissionDenied, cause));
    let found = if above { fs::metadata(directory)? } else { fs::symlink_metadata(directory)? };
    let user = rustix::process::geteuid().as_raw();
    if !found.is_dir() {
        return fault(format!("{} is no directory", directory.display()));
    }
    if found.uid() != user && !(above && found.uid() == 0) {
        let (owner, at) = (found.uid(), directory.display());
        return fault(format!("{at} belongs to user {owner}, and this server runs as user {user}"));
    }
    if found.mode() & OTHERS_WRITE != 0 && !(above && found.mode() & STICKY != 0) {
        let (mode, at) = (found.mode() & 0o7777, directory.display());
        return fault(format!("{at} may be changed by others: its mode is {mode:04o}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn secret_and_verifier_outlive_the_process_and_a_loss_shows_in_all() {
        let base = tempfile::tempdir().unwrap();
        let first = State::open(base.path(), Path::new("/srv/a")).unwrap();
        let again = State::open(base.path(), Path::new("/srv/a")).unwrap();
        let other = State::open(base.path(), Path::new("/srv/b")).unwrap();
        assert_eq!((first.secret, first.verifier()), (again.secret, again.verifier()));
        assert_ne!(first.secret, other.secret);
        let before = first.verifier();
        again.lost();
        assert_ne!(first.verifier(), before, "a neighbour's loss counts");
        assert_eq!(first.verifier(), again.verifier());
        drop((first, again));
        let later = State::open(base.path(), Path::new("/srv/a")).unwrap();
        assert_ne!(later.verifier(), before, "a loss is not forgotten");
    }

    #[test]
    fn a_directory_that_others_can_change_keeps_no_key() {
        let chmod = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        let base = tempfile::tempdir().unwrap();
        let (within, open) = (base.path().join("state"), |at: &Path| State::open(at, Path::new("/srv/a")));
        drop(open(&within).unwrap());
        chmod(&within, 0o775);
        assert!(open(&within).err().unwrap().to_string().contains("its mode is 0775"));
        chmod(&within, 0o1777);
        assert!(open(&within).is_ok(), "nobody takes away what is another's there");
        let inner = fs::read_dir(&within).unwrap().next().unwrap().unwrap().path();
        chmod(&inner, 0o722);
        assert!(open(&within).err().unwrap().to_string().contains("may be changed by others"));
        chmod(&inner, 0o700);
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&inner, Some(5), None).unwrap();
            assert!(open(&within).err().unwrap().to_string().contains("belongs to user 5"));
            std::os::unix::fs::chown(&within, Some(5), None).unwrap();
            assert!(open(&within).err().unwrap().to_string().contains("belongs to user 5"));
            std::os::unix::fs::chown(&within, Some(0), None).unwrap();
        }
        let moved = base.path().join("moved");
        fs::rename(&inner, &moved).unwrap();
        std::os::unix::fs::symlink(&moved, &inner).unwrap();
        assert!(open(&within).is_err(), "a link in its place");
    }

    #[test]
    fn a_key_cut_short_is_an_error_and_not_another_key() {
        let base = tempfile::tempdir().unwrap();
        let state = State::open(base.path(), Path::new("/srv/a")).unwrap();
        fs::write(state.directory.join("key"), [1; 5]).unwrap();
        assert!(State::open(base.path(), Path::new("/srv/a")).is_err());
    }
}
