//! Extended attributes. Over NFS there are those of users alone (`user.`), whose names travel
//! without the prefix. RFC 8276 s8.2
//!
//! What the kernel asks about other names is answered here, without a call: before a write it asks
//! whether the file has capabilities (`security.capability`).

use crate::caller::Credential;
use crate::core::Core;
use crate::inode::Inode;
use crate::unsupported::{Feature, NOT_SUPPORTED, is_not_supported};
use client::SetXattr;
use fuser::Errno;
use std::sync::Arc;

const PREFIX: &[u8] = b"user.";
/// What a program that is executed may do. Over NFS no file has any.
const CAPABILITY: &[u8] = b"security.capability";

/// The name on the wire, or what the answer to a question for another name is.
pub(crate) fn wire_name(name: &[u8]) -> Result<&[u8], Errno> {
    match name.strip_prefix(PREFIX) {
        Some(b"") => Err(Errno::EINVAL),
        Some(name) => Ok(name),
        None => Err(Errno::from_i32(NOT_SUPPORTED)),
    }
}

/// The same for a question for a value.
pub(crate) fn wire_name_to_read(name: &[u8]) -> Result<&[u8], Errno> {
    if name == CAPABILITY { Err(Errno::from_i32(libc::ENODATA)) } else { wire_name(name) }
}

/// The answer to a question for something of unknown length.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// The question was for the length alone.
    Length(u32),
    Content(Vec<u8>),
}

impl Asked {
    /// `room` is the longest content that the program takes, or 0 for the length alone.
    fn new(content: Vec<u8>, room: u32) -> Result<Self, Errno> {
        let len = u32::try_from(content.len()).map_err(|_| Errno::from_i32(libc::E2BIG))?;
        match room {
            0 => Ok(Self::Length(len)),
            room if len <= room => Ok(Self::Content(content)),
            _ => Err(Errno::ERANGE),
        }
    }
}

/// The flags of setxattr(2).
pub(crate) fn how_to_set(flags: u32) -> Result<SetXattr, Errno> {
    const CREATE: u32 = libc::XATTR_CREATE.cast_unsigned();
    const REPLACE: u32 = libc::XATTR_REPLACE.cast_unsigned();
    match flags {
        0 => Ok(SetXattr::Either),
        CREATE => Ok(SetXattr::Create),
        REPLACE => Ok(SetXattr::Replace),
        _ => Err(Errno::EINVAL),
    }
}

impl Core {
    /// getxattr(2) for a name as it is on the wire.
    pub(crate) async fn xattr(
        &self,
        caller: &Credential,
        ino: u64,
        (name, room): (&[u8], u32),
    ) -> Result<Asked, Errno> {
        let inode = self.inode(ino)?;
        self.unsupported.check(Feature::Xattrs, inode.fsid)?;
        let value = self.operations(caller).xattr(inode.handle, name).await;
        Asked::new(self.learn_xattrs(caller, &inode, value).await?, room)
    }

    /// listxattr(2).
    pub(crate) async fn xattrs(&self, caller: &Credential, ino: u64, room: u32) -> Result<Asked, Errno> {
        let inode = self.inode(ino)?;
        self.unsupported.check(Feature::Xattrs, inode.fsid)?;
        let names = self.operations(caller).xattrs(inode.handle).await;
        let mut list = Vec::new();
        for name in self.learn_xattrs(caller, &inode, names).await? {
            list.extend_from_slice(PREFIX);
            list.extend_from_slice(&name);
            list.push(0);
        }
        Asked::new(list, room)
    }

    /// setxattr(2), or removexattr(2) without a value.
    pub(crate) async fn change_xattr(
        self: &Arc<Self>,
        caller: Credential,
        ino: u64,
        name: Vec<u8>,
        value: Option<(Vec<u8>, SetXattr)>,
    ) -> Result<(), Errno> {
        let inode = self.inode(ino)?;
        self.unsupported.check(Feature::Xattrs, inode.fsid)?;
        let core = Arc::clone(self);
        self.run_to_completion(async move {
            let (object, operations) = (inode.handle, core.operations(&caller));
            let changed = match value {
                Some((value, how)) => operations.set_xattr(object, &name, &value, how).await,
                None => operations.remove_xattr(object, &name).await,
            };
            inode.changed();
            core.learn_xattrs(&caller, &inode, changed).await
        })
        .await
    }

    /// Learns what an outcome says about a file system. Servers also answer that they do not
    /// support attributes for single objects, such as symbolic links, so they are asked about all
    /// of it.
    async fn learn_xattrs<T>(
        &self,
        caller: &Credential,
        inode: &Inode,
        outcome: client::Result<T>,
    ) -> Result<T, Errno> {
        if is_not_supported(&outcome)
            && let Ok(false) = self.operations(caller).has_xattrs(inode.handle).await
        {
            return self.unsupported.learn(Feature::Xattrs, inode.fsid, outcome);
        }
        self.unsupported.ask_again(Feature::Xattrs, inode.fsid, outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 8276 s8.2
    #[test]
    fn only_names_of_users_are_asked_of_the_server() {
        assert_eq!(wire_name(b"user.a.b"), Ok(&b"a.b"[..]));
        assert_eq!(wire_name_to_read(b"user.security.capability"), Ok(&b"security.capability"[..]));
        assert_eq!(wire_name(b"user."), Err(Errno::EINVAL));
        let not_supported = Err(Errno::from_i32(NOT_SUPPORTED));
        for name in [&b"trusted.a"[..], b"security.selinux", b"system.posix_acl_access", b"user", b""] {
            assert_eq!((wire_name(name), wire_name_to_read(name)), (not_supported, not_supported));
        }
        assert_eq!(wire_name(CAPABILITY), not_supported);
        assert_eq!(wire_name_to_read(CAPABILITY), Err(Errno::from_i32(libc::ENODATA)));
    }

    #[test]
    fn a_program_gets_a_length_or_what_fits_its_room() {
        assert_eq!(Asked::new(vec![1; 3], 0), Ok(Asked::Length(3)));
        assert_eq!(Asked::new(vec![1; 3], 3), Ok(Asked::Content(vec![1; 3])));
        assert_eq!(Asked::new(vec![1; 3], 2), Err(Errno::ERANGE));
        assert_eq!(Asked::new(Vec::new(), 1), Ok(Asked::Content(Vec::new())));
    }

    #[test]
    fn an_attribute_cannot_both_exist_and_not_exist() {
        assert_eq!(how_to_set(0), Ok(SetXattr::Either));
        assert_eq!(how_to_set(1), Ok(SetXattr::Create));
        assert_eq!(how_to_set(2), Ok(SetXattr::Replace));
        assert_eq!(how_to_set(3), Err(Errno::EINVAL));
    }
}
