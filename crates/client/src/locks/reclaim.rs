//! What a mount had before its server restarted, reclaimed in the first session after that.
//! RFC 8881 s8.4.2

use std::sync::{Arc, PoisonError};

use ::nfs4::Stateid;
use fs::{FileHandle, Status};

use super::{FileLocks, Held, LockOwner, Locks, opener};
use crate::call::Caller;
use crate::error::MountError;
use crate::protocol::nfs4::locks::{self as calls, Locked, LockerOf, When};
use crate::session::{CallError, FirstCalls};

/// What became of an owner's locks.
struct Reclaimed {
    file: FileHandle,
    owner: LockOwner,
    /// Of those that the server has.
    stateid: Option<Stateid>,
    /// Whether it has all.
    is_whole: bool,
}

impl Locks {
    /// Reclaims all locks. The server does not know the session of any other call.
    ///
    /// # Errors
    /// The connection failed; then it is not known what the server has.
    pub(crate) fn reclaim(&self, calls: &mut FirstCalls) -> Result<(), MountError> {
        let before: Vec<(FileHandle, FileLocks)> = {
            let mut table = self.lock();
            // From here on, nothing is entered that was done before.
            table.epoch += 1;
            // What nobody has a lock by need not be open.
            table.files.values_mut().for_each(FileLocks::keep_what_holds);
            table.files.iter().map(|(handle, locks)| (*handle, locks.clone())).collect()
        };
        let mut reclaimed = Vec::new();
        for (file, locks) in &before {
            for open in &locks.opens {
                let owners = locks
                    .owners
                    .iter()
                    .filter(|one| opener(one.caller.as_ref()) == opener(open.caller.as_ref()));
                let caller = open.caller.as_ref();
                let by = (open.access, &*opener(caller));
                let minor = calls.minor();
                let opened = calls.call_as(caller, calls::open(minor, *file, by, When::Reclaim));
                let opened = kept(calls, opened)?;
                for one in owners.filter(|one| !one.is_lost) {
                    let (stateid, is_whole) = match opened {
                        Some(opened) => reclaim_owner(calls, *file, opened, (caller, one.owner, &one.held))?,
                        None => (None, one.held.is_empty()),
                    };
                    reclaimed.push(Reclaimed { file: *file, owner: one.owner, stateid, is_whole });
                }
                let mut table = self.lock();
                let Some(now) = table.files.get_mut(file) else { continue };
                match (opened, now.open_of(caller)) {
                    (Some(stateid), Some(open)) => open.stateid = stateid,
                    _ => now.opens.retain(|open| opener(open.caller.as_ref()) != opener(caller)),
                }
            }
        }
        self.enter(&reclaimed);
        let client = calls.session().server.client;
        *self.reclaimed_for.lock().unwrap_or_else(PoisonError::into_inner) = Some(client);
        Ok(())
    }

    /// Enters what was reclaimed. What was not is lost.
    fn enter(&self, reclaimed: &[Reclaimed]) {
        let mut table = self.lock();
        table.epoch += 1;
        for (file, locks) in &mut table.files {
            for one in &mut locks.owners {
                let found = reclaimed.iter().find(|found| found.file == *file && found.owner == one.owner);
                one.stateid = found.and_then(|found| found.stateid);
                if found.is_none_or(|found| !found.is_whole) {
                    self.lose(*file, one);
                }
            }
        }
    }
}

impl FileLocks {
    /// Forgets the stateids of owners without locks, and the opens of those.
    fn keep_what_holds(&mut self) {
        for one in self.owners.iter_mut().filter(|one| one.held.is_empty()) {
            one.stateid = None;
        }
        let held: Vec<Vec<u8>> = (self.owners.iter().filter(|one| !one.held.is_empty()))
            .map(|one| opener(one.caller.as_ref()))
            .collect();
        self.opens.retain(|open| held.contains(&opener(open.caller.as_ref())));
    }
}

/// Reclaims the locks of an owner. Returns the stateid of those that the server has, and whether it
/// has all.
fn reclaim_owner(
    calls: &mut FirstCalls,
    file: FileHandle,
    open: Stateid,
    (caller, owner, held): (Option<&Arc<Caller>>, LockOwner, &Held),
) -> Result<(Option<Stateid>, bool), MountError> {
    let (mut locks, name) = (None, owner.name());
    for of in held.iter() {
        let by = locks.map_or(LockerOf::Open(open, &name), LockerOf::Locks);
        let minor = calls.minor();
        let locked = calls.call_as(caller, calls::lock(minor, file, of, by, When::Reclaim));
        match kept(calls, locked)? {
            Some(Locked::Granted(stateid)) => locks = Some(stateid),
            Some(Locked::Denied) | None => return Ok((locks, false)),
        }
    }
    Ok((locks, true))
}

/// `None` if the server has refused it. One that asks to come later, for longer than is waited
/// here, has not.
fn kept<T>(calls: &FirstCalls, outcome: Result<T, CallError>) -> Result<Option<T>, MountError> {
    match outcome {
        Ok(done) => Ok(Some(done)),
        Err(CallError::Failed(Status::Later)) => {
            Err(calls.caller().protocol("it does not let its clients reclaim yet".to_owned()))
        }
        Err(CallError::Failed(status)) => {
            tracing::debug!(%status, "an open or a lock is not reclaimed");
            Ok(None)
        }
        Err(CallError::Mount(error)) => Err(error),
    }
}
