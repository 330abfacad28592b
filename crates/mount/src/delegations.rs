//! Files that the server has delegated to this mount: until it recalls one, nobody else changes it.
//! RFC 8881 s10.4
//!
//! While a file is delegated its attributes, the rights of users and the kernel's pages are valid
//! without a question to the server, so that opening and closing it again takes no call. Asked for
//! is a delegation when a file is opened for reading a second time, and not written here, nor
//! recalled a moment ago.
//!
//! A recall ends that at once: the next question goes to the server. The kernel drops what it has,
//! and only then is the delegation returned, which is what another client's change waits for.
//! Changes from here recall nothing; they invalidate attributes as they do without a delegation.

use crate::caller::Credential;
use crate::core::Core;
use crate::inode::{Inode, State, ValidAttributes};
use client::Recalled;
use fs::{FileHandle, FileKind, Rights};
use fuser::Errno;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

/// Users of a file whose rights are remembered.
const USERS_MAX: usize = 16;
/// A file whose delegation was recalled is not asked for again for so long: who wants to change it
/// may come again only after 5 s, as Linux does by version 3.
const RECALLED_PAUSE: Duration = Duration::from_secs(6);

/// What is known of a file that is valid for as long as it is delegated.
#[derive(Debug, Default)]
pub(crate) struct Delegated {
    /// How often the file was opened for reading.
    opens: u32,
    /// When a delegation was recalled last.
    recalled_at: Option<Instant>,
    /// Open handles that may write.
    pub writers: u32,
    /// The delegation under which the rights were granted.
    rights_under: Option<u64>,
    /// What was asked for, and what of that was granted.
    rights: Vec<(Credential, Rights, Rights)>,
}

impl Delegated {
    /// The rights that a user is known to have, of those that are wanted.
    fn rights(&self, under: u64, caller: &Credential, wanted: Rights) -> Option<Rights> {
        if self.rights_under != Some(under) {
            return None;
        }
        let knows = |(who, asked, _): &&(Credential, Rights, Rights)| {
            who == caller && wanted.without(*asked).is_empty()
        };
        let (_, asked, granted) = self.rights.iter().find(knows)?;
        Some(wanted.without(asked.without(*granted)))
    }

    fn note_rights(&mut self, under: u64, caller: &Credential, asked: Rights, granted: Rights) {
        if self.rights_under != Some(under) || self.rights.len() >= USERS_MAX {
            self.rights.clear();
        }
        self.rights_under = Some(under);
        self.rights.retain(|(who, ..)| who != caller);
        self.rights.push((caller.clone(), asked, granted));
    }

    /// The object was changed from here, and rights with it perhaps.
    pub(crate) fn forget_rights(&mut self) {
        self.rights_under = None;
        self.rights.clear();
    }
}

impl State {
    /// Counts an open for reading. Returns whether it is worth having the file delegated.
    fn is_worth_delegating(&mut self, now: Instant) -> bool {
        let delegated = &mut self.delegated;
        delegated.opens = delegated.opens.saturating_add(1);
        let was_recalled = delegated.recalled_at.is_some_and(|at| now.duration_since(at) < RECALLED_PAUSE);
        delegated.opens > 1 && !was_recalled && delegated.writers == 0 && self.dirty.is_clean()
    }
}

impl Core {
    /// Attributes that nobody else can have changed.
    pub(crate) fn delegated_attributes(&self, inode: &Inode) -> Option<ValidAttributes> {
        let delegation = self.mount.delegation(inode.handle)?;
        inode.attributes_under(delegation, &self.policy)
    }

    /// The rights of a user who opens a file, of those that are wanted.
    pub(crate) async fn rights_to_open(
        &self,
        caller: &Credential,
        inode: &Inode,
        wanted: Rights,
    ) -> Result<Rights, Errno> {
        let delegation = self.mount.delegation(inode.handle);
        if let Some(under) = delegation
            && let Some(granted) = inode.lock().delegated.rights(under, caller, wanted)
        {
            return Ok(granted);
        }
        let changes = inode.changes();
        let granted = self.call_access(caller, inode.handle, wanted).await?;
        if let Some(under) = delegation.filter(|_| self.mount.delegation(inode.handle) == delegation) {
            let mut state = inode.lock();
            if state.changes() == changes {
                state.delegated.note_rights(under, caller, wanted, granted);
            }
        }
        Ok(granted)
    }

    /// The attributes of a file that is opened. A file that is opened for reading again and again
    /// is delegated, if the server does that.
    pub(crate) async fn attributes_at_open(
        self: &Arc<Self>,
        caller: &Credential,
        inode: &Arc<Inode>,
        reads_only: bool,
    ) -> Result<ValidAttributes, Errno> {
        let may_ask = reads_only
            && inode.kind == FileKind::Regular
            && self.policy.delegates()
            && inode.lock().is_worth_delegating(Instant::now())
            && self.mount.delegation(inode.handle).is_none()
            && self.mount.may_be_delegated();
        if may_ask && let Some(known) = self.open_delegated(caller, inode).await {
            return Ok(known);
        }
        self.attributes(caller, inode).await
    }

    /// Asks for a delegation and for attributes with it. `None` if the server does not open the
    /// file: it may still tell its attributes.
    async fn open_delegated(
        self: &Arc<Self>,
        caller: &Credential,
        inode: &Arc<Inode>,
    ) -> Option<ValidAttributes> {
        let (core, caller, inode) = (Arc::clone(self), caller.clone(), Arc::clone(inode));
        // A delegation is granted, and must be known, also if the program is killed meanwhile.
        let work = async move {
            // Before there is one, so that its recall finds the file.
            core.inodes.may_be_delegated(&inode);
            let requested_after = inode.changes();
            let opened = core.operations(&caller).open_delegated(inode.handle).await;
            Ok(opened.ok().and_then(|(attributes, delegation)| {
                let attributes = crate::attributes::usable(attributes).ok()?;
                Some(inode.update_delegated(attributes, requested_after, delegation, &core.policy))
            }))
        };
        self.run_to_completion(work).await.ok().flatten()
    }

    /// Gives up the delegation of what a name stands for: the name is about to stand for something
    /// else, and the server would keep a removed file for as long as it is delegated.
    pub(crate) async fn give_up_delegation_of(
        &self,
        caller: &Credential,
        (directory, name): (FileHandle, &[u8]),
    ) {
        if self.mount.has_delegations()
            && let Ok((handle, _)) = self.call_lookup(caller, directory, name).await
        {
            self.mount.give_up_delegation(handle);
        }
    }

    /// Returns a delegation, once nothing is cached by it any more.
    pub(crate) fn return_delegation(self: &Arc<Self>, recalled: Recalled) {
        let core = Arc::clone(self);
        self.executor.spawn(async move {
            // Not on the thread that tells of the recall, which is a connection's.
            yield_once().await;
            if recalled.is_about_to_change
                && let Some(inode) = core.inodes.find_delegated(recalled.file)
            {
                inode.lock().delegated.recalled_at = Some(Instant::now());
                inode.expire_attributes();
                core.invalidations.request(inode.ino);
                core.invalidations.completed(inode.ino).await;
            }
            if let Err(error) = core.mount.operations(None).return_delegation(recalled).await {
                tracing::debug!(%error, "a delegation is left to the server, which will revoke it");
            }
        });
    }
}

/// Lets a worker go on.
async fn yield_once() {
    let mut has_yielded = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::Caller;

    fn user(uid: u32) -> Credential {
        Some(Arc::new(Caller { uid, gid: 0, gids: Vec::new() }))
    }

    #[test]
    fn rights_are_those_of_the_user_who_asked_and_of_the_delegation_under_which_they_were_granted() {
        let mut delegated = Delegated::default();
        let (read, execute) = (Rights::READ, Rights::EXECUTE);
        delegated.note_rights(1, &user(7), read | execute, read);
        assert_eq!(delegated.rights(1, &user(7), read | execute), Some(read));
        assert_eq!(delegated.rights(1, &user(7), execute), Some(Rights::NONE));
        assert_eq!(delegated.rights(1, &user(7), read | Rights::MODIFY), None, "that was not asked");
        assert_eq!(delegated.rights(1, &user(8), read), None, "another user");
        assert_eq!(delegated.rights(2, &user(7), read), None, "another delegation");
        delegated.note_rights(2, &user(8), read, read);
        assert_eq!((delegated.rights(2, &user(7), read), delegated.rights(1, &user(7), read)), (None, None));
        delegated.forget_rights();
        assert_eq!(delegated.rights(2, &user(8), read), None);
    }

    #[test]
    fn the_rights_of_few_users_are_remembered() {
        let mut delegated = Delegated::default();
        for uid in 0..1000 {
            delegated.note_rights(1, &user(uid), Rights::READ, Rights::READ);
        }
        assert!(delegated.rights.len() <= USERS_MAX);
        assert_eq!(delegated.rights(1, &user(999), Rights::READ), Some(Rights::READ));
    }

    #[test]
    fn a_file_is_worth_it_when_it_is_opened_again_and_not_written_here() {
        let (mut state, now) = (State::default(), Instant::now());
        assert!(!state.is_worth_delegating(now), "once");
        assert!(state.is_worth_delegating(now));
        state.delegated.writers = 1;
        assert!(!state.is_worth_delegating(now));
        state.delegated.writers = 0;
        state.delegated.recalled_at = Some(now);
        assert!(!state.is_worth_delegating(now + RECALLED_PAUSE / 2), "others want to change it");
        assert!(state.is_worth_delegating(now + RECALLED_PAUSE));
    }
}
