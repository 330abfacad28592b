//! Attributes of `fs` and those of this protocol, both ways.

use super::{Attributes, Fsid, Owner, SetTime};
use fs::SetAttributes;

/// The user and the group of an object whose owner is not known: nobody, and never root.
const NOBODY: u32 = 65_534;

impl Attributes<'_> {
    /// The attributes of an object as its file system has them. `change`, `mounted_on_fileid`,
    /// handles and everything about the file system as a whole are for the caller to add.
    #[must_use]
    pub fn of_object(object: &fs::Attributes) -> Self {
        Self {
            file_type: Some(object.kind.into()),
            change: Some(object.change),
            size: Some(object.size),
            fsid: Some(Fsid { major: object.fsid, minor: 0 }),
            fileid: Some(object.fileid),
            mode: Some(object.mode & 0o7777),
            numlinks: Some(object.nlink),
            owner: Some(Owner::Id(object.uid)),
            owner_group: Some(Owner::Id(object.gid)),
            rawdev: Some(object.rdev),
            space_used: Some(object.used),
            time_access: Some(object.atime),
            time_metadata: Some(object.ctime),
            time_modify: Some(object.mtime),
            ..Self::default()
        }
    }

    /// What the attributes say about an object, in the language of a file system. An owner that is
    /// not a number, or is left out, is nobody: 65534. Whatever else the peer left out is as in
    /// [`fs::Attributes::of`]; `None` without the type. `domain` is that of owners written as
    /// "1000@domain".
    #[must_use]
    pub fn object(&self, domain: &[u8]) -> Option<fs::Attributes> {
        let id = |owner: Owner<'_>| owner.id(domain);
        self.object_of(id, id)
    }

    /// The same, where a service of names says which numbers users and groups have.
    #[must_use]
    pub fn object_of(
        &self,
        user: impl FnOnce(Owner<'_>) -> Option<u32>,
        group: impl FnOnce(Owner<'_>) -> Option<u32>,
    ) -> Option<fs::Attributes> {
        let plain = fs::Attributes::of(self.file_type?.kind());
        Some(fs::Attributes {
            mode: self.mode.unwrap_or(plain.mode) & 0o7777,
            nlink: self.numlinks.unwrap_or(plain.nlink),
            uid: self.owner.and_then(user).unwrap_or(NOBODY),
            gid: self.owner_group.and_then(group).unwrap_or(NOBODY),
            size: self.size.unwrap_or(plain.size),
            used: self.space_used.unwrap_or(plain.used),
            rdev: self.rawdev.unwrap_or(plain.rdev),
            fsid: self.fsid.map_or(plain.fsid, Fsid::folded),
            fileid: self.fileid.unwrap_or(plain.fileid),
            atime: self.time_access.unwrap_or(plain.atime),
            mtime: self.time_modify.unwrap_or(plain.mtime),
            ctime: self.time_metadata.unwrap_or(plain.ctime),
            change: self.change.unwrap_or(plain.change),
            ..plain
        })
    }

    /// The attributes that a client sets.
    #[must_use]
    pub fn of_set(set: &SetAttributes) -> Self {
        Self {
            size: set.size,
            mode: set.mode,
            owner: set.uid.map(Owner::Id),
            owner_group: set.gid.map(Owner::Id),
            time_access_set: SetTime::from_fs(set.atime),
            time_modify_set: SetTime::from_fs(set.mtime),
            ..Self::default()
        }
    }

    /// What a client wants to set, in the language of a file system. Attributes that `fs` does not
    /// have are not looked at: a server that does not support them refuses them when it parses.
    ///
    /// # Errors
    /// [`Status::BADOWNER`](crate::Status::BADOWNER) for an owner that is not a number of this
    /// `domain`. RFC 8881 s15.1.15.2
    pub fn to_set(&self, domain: &[u8]) -> Result<SetAttributes, crate::Status> {
        let id = |owner: Option<Owner<'_>>| match owner {
            None => Ok(None),
            Some(owner) => owner.id(domain).map(Some).ok_or(crate::Status::BADOWNER),
        };
        Ok(SetAttributes {
            mode: self.mode,
            uid: id(self.owner)?,
            gid: id(self.owner_group)?,
            size: self.size,
            atime: SetTime::to_fs(self.time_access_set),
            mtime: SetTime::to_fs(self.time_modify_set),
        })
    }
}
