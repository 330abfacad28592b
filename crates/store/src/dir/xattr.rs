//! Extended attributes of users: the file system's own, under the caller's identity. RFC 8276

use super::Shared;
use super::fault::{OrStatus, status};
use super::identity::prepare_thread;
use super::node::READ;
use crate::interface::{
    Caller, Effect, ObjectId, Result, SetXattr, Status, XATTR_VALUE_BYTES_MAX, user_name, xattr_cookie,
    xattr_name,
};
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use std::os::fd::BorrowedFd;

/// The longest list of names that the kernel gives (`XATTR_LIST_MAX`).
const LIST_BYTES_MAX: usize = 64 << 10;

/// Whether the file system of a directory has extended attributes of users.
pub(super) fn are_supported(directory: BorrowedFd<'_>) -> bool {
    !matches!(rustix::fs::fgetxattr(directory, c"user.trunkline", &mut [0; 0]), Err(Errno::OPNOTSUPP))
}

fn fault(errno: Errno) -> Status {
    match errno {
        Errno::NODATA => Status::NoXattr,
        Errno::TOOBIG | Errno::RANGE => Status::XattrTooBig,
        other => status(other),
    }
}

impl Shared {
    pub fn value_of_xattr(
        &self,
        caller: Caller<'_>,
        object: ObjectId,
        name: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let called = xattr_name(name)?;
        let node = self.get(object)?;
        node.stat()?;
        let mut value = vec![0; XATTR_VALUE_BYTES_MAX];
        let len = {
            let _impersonation = self.identity.impersonate(caller)?;
            rustix::fs::getxattr(node.own_path(), &called, &mut value[..]).map_err(fault)?
        };
        out.extend_from_slice(value.get(..len).unwrap_or_default());
        Ok(())
    }

    /// Sets an attribute, or removes it without a value.
    pub fn change_xattr(
        &self,
        caller: Caller<'_>,
        object: ObjectId,
        name: &[u8],
        value: Option<(&[u8], SetXattr)>,
    ) -> (Effect, Result<()>) {
        let node = match self.get(object) {
            Ok(node) => node,
            Err(error) => return (Effect::default(), Err(error)),
        };
        let guard = node.hold();
        let before = match node.stat() {
            Ok(stat) => stat,
            Err(error) => return (Effect::default(), Err(error)),
        };
        let change = || {
            let called = xattr_name(name)?;
            if value.is_some_and(|(value, _)| value.len() > XATTR_VALUE_BYTES_MAX) {
                return Err(Status::XattrTooBig);
            }
            prepare_thread();
            let _impersonation = self.identity.impersonate(caller)?;
            match value {
                Some((value, how)) => {
                    rustix::fs::setxattr(node.own_path(), &called, value, flags(how)).map_err(fault)
                }
                None => rustix::fs::removexattr(node.own_path(), &called).map_err(fault),
            }
        };
        let result = change();
        let effect = node.effect_since(&before);
        drop(guard);
        (effect, result.and_then(|()| self.sync_attributes(&node)))
    }

    pub fn names_of_xattrs(
        &self,
        caller: Caller<'_>,
        object: ObjectId,
        cookie: u64,
        visit: &mut dyn FnMut(&[u8], u64) -> bool,
    ) -> Result<bool> {
        let node = self.get(object)?;
        let stat = node.stat()?;
        // The kernel lists names for everybody who knows the path.
        if node.rights(&self.callers, &self.identity, caller, &stat)? & READ == 0 {
            return Err(Status::Access);
        }
        let mut list = vec![0; LIST_BYTES_MAX];
        let len = rustix::fs::listxattr(node.own_path(), &mut list[..]).or_status()?;
        let listed = list.get(..len).unwrap_or_default();
        let mut names: Vec<(u64, &[u8])> = listed
            .split(|byte| *byte == 0)
            .filter_map(user_name)
            .map(|name| (xattr_cookie(name), name))
            .filter(|(place, _)| *place > cookie)
            .collect();
        names.sort_unstable();
        Ok(names.into_iter().all(|(place, name)| visit(name, place)))
    }
}

const fn flags(how: SetXattr) -> XattrFlags {
    match how {
        SetXattr::Either => XattrFlags::empty(),
        SetXattr::Create => XattrFlags::CREATE,
        SetXattr::Replace => XattrFlags::REPLACE,
    }
}
