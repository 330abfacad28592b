//! RENAME: the one operation that changes the shape of the tree.
//!
//! One lock serialises renames, so that the ancestors of a directory do not move while a rename
//! examines them, and so that two directories can be locked in the order of the tree.

use std::sync::PoisonError;

use smallvec::SmallVec;

use super::directory::{Purpose, check_name, is_dots};
use super::inode::{Body, EXECUTE, Inode, WRITE};
use super::remove::may_take;
use super::table::{Number, WriteGuard};
use super::{LINKS_MAX, MemStore};
use crate::interface::{Caller, Effect, ObjectId, Result, Status};

/// A directory and all above it, itself first.
type Ancestors = SmallVec<[ObjectId; 16]>;

/// The two directories of a rename, which may be one.
struct LockedParents<'a> {
    from: WriteGuard<'a>,
    to: Option<WriteGuard<'a>>,
}

impl LockedParents<'_> {
    fn to(&self) -> &Inode {
        self.to.as_ref().map_or(&*self.from, |to| to)
    }

    fn to_mut(&mut self) -> &mut Inode {
        self.to.as_mut().map_or(&mut *self.from, |to| to)
    }
}

impl MemStore {
    pub(super) fn move_name(
        &self,
        caller: Caller<'_>,
        from: (ObjectId, &[u8]),
        to: (ObjectId, &[u8]),
    ) -> (Effect, Effect, Result<()>) {
        let turn = self.renames.lock().unwrap_or_else(PoisonError::into_inner);
        let above = self.ancestors(from.0).and_then(|above_from| Ok((above_from, self.ancestors(to.0)?)));
        let locked = above.and_then(|(above_from, above_to)| {
            let parents = self.lock_parents(from.0, to.0, &above_from)?;
            Ok((parents, above_from, above_to))
        });
        let (mut parents, above_from, above_to) = match locked {
            Ok(locked) => locked,
            Err(error) => return (self.unchanged(from.0), self.unchanged(to.0), Err(error)),
        };
        let before = (parents.from.version(), parents.to().version());
        let gone = self.move_in(caller, &mut parents, (from.1, &above_from), (to.1, &above_to));
        let changes = (parents.from.effect_since(before.0), parents.to().effect_since(before.1));
        drop(parents);
        drop(turn);
        (changes.0, changes.1, gone.map(|gone| gone.into_iter().for_each(|inode| self.dispose(inode))))
    }

    /// The effect on an object that an operation did not change.
    fn unchanged(&self, object: ObjectId) -> Effect {
        self.table.read(object).map_or(Effect::default(), |inode| inode.no_effect())
    }

    fn ancestors(&self, directory: ObjectId) -> Result<Ancestors> {
        let mut above = Ancestors::new();
        let mut next = directory;
        loop {
            above.push(next);
            let parent = self.table.read(next)?.directory()?.parent();
            if parent == next {
                return Ok(above);
            }
            next = parent;
        }
    }

    /// Locks both directories, an ancestor before its descendant.
    fn lock_parents(
        &self,
        from: ObjectId,
        to: ObjectId,
        above_from: &Ancestors,
    ) -> Result<LockedParents<'_>> {
        if from == to {
            return Ok(LockedParents { from: self.table.write(from)?, to: None });
        }
        // If neither is an ancestor of the other any order will do, because no other operation
        // locks two directories.
        if above_from.contains(&to) {
            let to = self.table.write(to)?;
            Ok(LockedParents { from: self.table.write(from)?, to: Some(to) })
        } else {
            let from = self.table.write(from)?;
            Ok(LockedParents { from, to: Some(self.table.write(to)?) })
        }
    }

    fn move_in(
        &self,
        caller: Caller<'_>,
        parents: &mut LockedParents<'_>,
        (from, above_from): (&[u8], &Ancestors),
        (to, above_to): (&[u8], &Ancestors),
    ) -> Result<Option<Inode>> {
        check_name(from)?;
        check_name(to)?;
        if is_dots(from) || is_dots(to) {
            return Err(Status::Invalid);
        }
        parents.from.require(caller, EXECUTE)?;
        parents.to().require(caller, EXECUTE)?;
        let object = parents.from.directory()?.find(from).ok_or(Status::NotFound)?;
        if above_to.contains(&object) {
            return Err(Status::Invalid);
        }
        let target = parents.to().directory()?.find(to);
        if target.is_some_and(|target| above_from.contains(&target)) {
            return Err(Status::NotEmpty);
        }
        if target == Some(object) {
            return Ok(None);
        }
        let (mut inode, over) = self.lock_both(object, target)?;
        check_move(caller, parents, &inode, over.as_deref())?;
        self.move_text(parents, (from, to), inode.number, over.is_some())?;
        if over.as_ref().is_some_and(|over| over.is_directory()) {
            parents.to_mut().links -= 1;
        }
        if let (Some(parent), Body::Directory(names)) = (&mut parents.to, &mut inode.body) {
            names.set_parent(parent.number);
            parent.links += 1;
            parents.from.links -= 1;
        }
        parents.from.touch_modified();
        if let Some(to) = &mut parents.to {
            to.touch_modified();
        }
        inode.touch_changed();
        Ok(over.and_then(|over| self.drop_link(over)))
    }

    /// Locks the object that moves and the one it replaces. Two files can meet here in either
    /// order, through hard links: the lower number goes first.
    fn lock_both(
        &self,
        object: ObjectId,
        target: Option<ObjectId>,
    ) -> Result<(WriteGuard<'_>, Option<WriteGuard<'_>>)> {
        match target {
            Some(target) if target.fileid < object.fileid => {
                let over = self.table.write(target)?;
                Ok((self.table.write(object)?, Some(over)))
            }
            Some(target) => {
                let inode = self.table.write(object)?;
                Ok((inode, Some(self.table.write(target)?)))
            }
            None => Ok((self.table.write(object)?, None)),
        }
    }

    /// Moves the name. The new one costs, the old one is given back; over an existing name nothing
    /// new is needed.
    fn move_text(
        &self,
        parents: &mut LockedParents<'_>,
        (from, to): (&[u8], &[u8]),
        number: Number,
        over: bool,
    ) -> Result<()> {
        if parents.to.is_none() && !over {
            return parents.from.directory_mut()?.rename(&self.pool, (from, to), number);
        }
        let names = parents.to_mut().directory_mut()?;
        if over {
            names.replace(to, number);
        } else {
            names.make_room(&self.pool, to, Purpose::Move)?;
            names.add(to, number);
        }
        parents.from.directory_mut()?.take(&self.pool, from);
        Ok(())
    }
}

/// Whether the caller may rename and the two objects are compatible, in the order in which Linux
/// checks.
fn check_move(
    caller: Caller<'_>,
    parents: &LockedParents<'_>,
    inode: &Inode,
    over: Option<&Inode>,
) -> Result<()> {
    may_take(&parents.from, inode, caller)?;
    match over {
        Some(over) => {
            may_take(parents.to(), over, caller)?;
            match (inode.is_directory(), over.is_directory()) {
                (true, false) => return Err(Status::NotDirectory),
                (false, true) => return Err(Status::IsDirectory),
                _ => {}
            }
        }
        None => parents.to().require(caller, WRITE | EXECUTE)?,
    }
    if parents.to.is_some() && inode.is_directory() {
        // Its `..` changes.
        inode.require(caller, WRITE)?;
        if over.is_none() && parents.to().links >= LINKS_MAX {
            return Err(Status::TooManyLinks);
        }
    }
    match over {
        Some(Inode { body: Body::Directory(names), .. }) if !names.is_empty() => Err(Status::NotEmpty),
        _ => Ok(()),
    }
}
