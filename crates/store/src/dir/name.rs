//! How an object of a directory is named: by the kernel's handle of it, so that the name outlives
//! the process.
//!
//! The first byte says which name it is:
//!
//! - 1: the kernel's handle, its type in the second byte. Most file systems' are 8 to 20 bytes.
//! - 2: a code over the kernel's handle, where that is too long for ours.
//! - 3: the time the object was made, where the file system has no handles.
//!
//! The first can be opened again as it is where the process may (`CAP_DAC_READ_SEARCH`); the
//! others, and all without that right, through the map. Only the store sees these bytes, and only
//! under the server's code.

use super::fault::OrStatus;
use super::find::is_layered;
use super::sys::{self, KernelHandle};
use crate::interface::{NAME_BYTES_MAX, ObjectId, Result, Status};
use rustix::fs::{AtFlags, FsWord, Stat, Statx, StatxFlags};
use rustix::io::Errno;
use siphasher::sip128::{Hasher128, SipHasher24};
use std::ffi::CStr;
use std::hash::Hasher;
use std::os::fd::BorrowedFd;

const KERNEL: u8 = 1;
const CODE: u8 = 2;
const MADE_AT: u8 = 3;

/// How the objects of one export are named.
pub(super) struct Naming {
    /// Whether the file system has handles.
    handles: bool,
    /// Whether they can be opened.
    pub can_open: bool,
    hasher: SipHasher24,
    device: u64,
    /// Whether files may be of other devices than the root, beneath which their numbers are not
    /// theirs alone.
    layered: bool,
    /// The number of the root's mount, where the kernel tells it.
    mount: Option<u64>,
}

/// The kernel's handle behind a name, where it is in there.
pub(super) fn kernel_handle(object: &ObjectId) -> Option<KernelHandle> {
    match object.name() {
        [KERNEL, of_type, handle @ ..] => KernelHandle::new(i32::from(*of_type), handle),
        _ => None,
    }
}

impl Naming {
    /// Finds out what the root's file system and this process can do.
    pub fn probe(root: BorrowedFd<'_>, stat: &Stat, kind: FsWord, secret: &[u8; 16]) -> Self {
        let known = sys::name_to_handle(root, c"");
        let can_open = known.as_ref().is_ok_and(|(handle, _)| sys::open_by_handle(root, handle).is_ok());
        let mount = known.as_ref().map_or_else(
            |_| mount_of(&rustix::fs::statx(root, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).ok()?),
            |(_, mount)| u64::try_from(*mount).ok(),
        );
        Self {
            handles: known.is_ok(),
            can_open,
            hasher: SipHasher24::new_with_key(secret),
            device: stat.st_dev,
            layered: is_layered(kind),
            mount,
        }
    }

    /// What tells an object from others of the export, as long as it lives: its number, together
    /// with its device where that is another than the root's. `None` for one that is not of the
    /// root's file system.
    fn fileid(&self, stat: &Stat) -> Option<u64> {
        const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
        match stat.st_dev == self.device {
            true => Some(stat.st_ino),
            false => self.layered.then(|| stat.st_ino ^ stat.st_dev.wrapping_mul(SPREAD)),
        }
    }

    /// Whether a name can be opened as it is.
    pub fn opens(&self, object: &ObjectId) -> bool {
        self.can_open && matches!(object.name(), [KERNEL, ..])
    }

    /// Names what `name` is in a directory, or what the descriptor is where the name is empty. What
    /// lies on another mount is refused: no export reaches beyond its own.
    pub fn name(&self, at: BorrowedFd<'_>, name: &CStr, stat: &Stat) -> Result<ObjectId> {
        let fileid = self.fileid(stat).ok_or(Status::Access)?;
        if !self.handles {
            return self.made_at(at, name, fileid);
        }
        let (handle, mount) = match sys::name_to_handle(at, name) {
            // Some file systems have handles for some of their objects only.
            Err(Errno::OPNOTSUPP | Errno::OVERFLOW) => return self.made_at(at, name, fileid),
            known => known.or_status()?,
        };
        if u64::try_from(mount).ok() != self.mount {
            return Err(Status::Access);
        }
        let bytes = handle.as_slice();
        let mut named = [0; NAME_BYTES_MAX];
        let of_type = u8::try_from(handle.of_type);
        match (named.get_mut(2..2 + bytes.len()), of_type) {
            (Some(room), Ok(of_type)) => {
                room.copy_from_slice(bytes);
                named[..2].copy_from_slice(&[KERNEL, of_type]);
                let whole = named.get(..2 + bytes.len()).unwrap_or_default();
                ObjectId::named(fileid, whole).ok_or(Status::Io)
            }
            _ => {
                let mut hasher = self.hasher;
                hasher.write(&handle.of_type.to_be_bytes());
                hasher.write(bytes);
                named[0] = CODE;
                named[1..17].copy_from_slice(&hasher.finish128().as_bytes());
                ObjectId::named(fileid, &named[..17]).ok_or(Status::Io)
            }
        }
    }

    fn made_at(&self, at: BorrowedFd<'_>, name: &CStr, fileid: u64) -> Result<ObjectId> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        let flags = if name.is_empty() { flags | AtFlags::EMPTY_PATH } else { flags };
        let known = rustix::fs::statx(at, name, flags, StatxFlags::BTIME | StatxFlags::MNT_ID).or_status()?;
        let elsewhere = match mount_of(&known) {
            Some(mount) => self.mount != Some(mount),
            // Linux before 5.8 does not tell, and the device alone tells nothing here.
            None => self.layered,
        };
        if elsewhere {
            return Err(Status::Access);
        }
        let mut named = [0; 13];
        named[0] = MADE_AT;
        named[1..9].copy_from_slice(&known.stx_btime.tv_sec.to_be_bytes());
        named[9..].copy_from_slice(&known.stx_btime.tv_nsec.to_be_bytes());
        ObjectId::named(fileid, &named).ok_or(Status::Io)
    }
}

/// The number of the mount that something is on, where the kernel tells it.
fn mount_of(known: &Statx) -> Option<u64> {
    StatxFlags::from_bits_retain(known.stx_mask).contains(StatxFlags::MNT_ID).then_some(known.stx_mnt_id)
}
