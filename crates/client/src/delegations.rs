//! Read delegations of a mount of version 4: the server's promise that nobody else changes a file
//! until it has said so. RFC 8881 s10.2, s10.4
//!
//! Only who listens for recalls ([`Mount::on_recall`](crate::Mount::on_recall)) has delegations. An
//! OPEN for reading asks for one, and its compound closes the file again: the delegation outlives
//! the open, and nothing has to be claimed when it is recalled. What is recalled is forgotten here
//! at once, and handed to the listener, who returns it when nothing is cached by it any more.
//!
//! A recall may overtake the reply that grants the delegation. While an OPEN of the file is under
//! way, the recall is kept until its reply has come. So what CB_SEQUENCE says of referring calls
//! need not be looked at: the file says as much. RFC 8881 s2.10.6.3
//!
//! Invariants: at most [`HELD_MAX`] are held, and who uses a file keeps its delegation longest. One
//! of an earlier session is not used: it is returned in the next one. The table's lock is not held
//! while the listener is called.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use ::nfs4::{Stateid, Status as Nfs};
use fs::{Attributes, FileHandle, Status};

use crate::error::{Error, Result};
use crate::mount::Mount;
use crate::operations::Operations;
use crate::protocol::nfs4::delegations::{self as calls, Refusal};
use crate::session::SessionKeeper;

/// Delegations of a mount. A server has room for some thousands of each client.
const HELD_MAX: usize = 1024;
/// Recalls that are kept for a file while OPENs of it are under way: a client has one delegation of
/// a file, and a server may recall it and grant another.
const EARLY_MAX: usize = 8;
/// Delegations that the server recalls, that are not known here, and that are being returned.
const STRAYS_MAX: usize = 64;
/// A server that has granted none so often in a row is not asked for a while.
const REFUSALS_MAX: u32 = 8;
const REFUSED_PAUSE: Duration = Duration::from_secs(60);
/// How long the end of a mount waits for the server to take all delegations back.
const RETURN_TIMEOUT: Duration = Duration::from_secs(1);

/// A delegation that is not used any more and is to be returned: [`Operations::return_delegation`].
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the server waits until the delegation is returned"]
pub struct Recalled {
    /// The file.
    pub file: FileHandle,
    /// Somebody else is about to change it, or may have done so already.
    pub is_about_to_change: bool,
    stateid: Stateid,
    /// It is not known here: a reply that had granted it was lost.
    is_stray: bool,
}

#[derive(Debug)]
struct Held {
    stateid: Stateid,
    /// Tells it from earlier and later ones of the same file.
    grant: u64,
    /// The session in which it was granted.
    generation: u64,
    /// When it was last used, by [`Table::uses`].
    used: u64,
}

/// OPENs of a file that are under way.
#[derive(Debug, Default)]
struct Opening {
    count: u32,
    /// What was recalled meanwhile.
    recalled: Vec<[u8; 12]>,
}

#[derive(Debug, Default)]
struct Table {
    held: HashMap<FileHandle, Held>,
    opening: HashMap<FileHandle, Opening>,
    grants: u64,
    uses: u64,
    strays: usize,
    /// Refusals since the last grant.
    refusals: u32,
    not_before: Option<Instant>,
}

impl Table {
    fn take(&mut self, file: FileHandle, is_about_to_change: bool) -> Option<Recalled> {
        let held = self.held.remove(&file)?;
        Some(Recalled { file, is_about_to_change, stateid: held.stateid, is_stray: false })
    }

    /// Takes those that were used longest ago, until no more than these are held.
    fn keep(&mut self, most: usize, is_about_to_change: bool) -> Vec<Recalled> {
        let mut taken = Vec::new();
        while self.held.len() > most
            && let Some(file) = self.held.iter().min_by_key(|(_, held)| held.used).map(|(file, _)| *file)
        {
            taken.extend(self.take(file, is_about_to_change));
        }
        taken
    }
}

/// What has become of delegations so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DelegationCounts {
    /// Held now.
    pub held: u64,
    /// Granted so far.
    pub granted: u64,
    /// Recalled by the server so far.
    pub recalled: u64,
}

type Listener = Box<dyn Fn(Recalled) + Send + Sync>;

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct Delegations {
    table: Mutex<Table>,
    listener: OnceLock<Listener>,
    /// How many are held, without the table's lock.
    held: AtomicUsize,
    granted: AtomicU64,
    recalled: AtomicU64,
    /// The server says that it has revoked some.
    is_revoking: AtomicBool,
}

impl std::fmt::Debug for Delegations {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Delegations").field("table", &self.table).finish_non_exhaustive()
    }
}

/// An OPEN that may bring a delegation; its end is noted when this is dropped.
#[derive(Debug)]
struct OpenGuard<'a> {
    of: &'a Delegations,
    file: FileHandle,
}

impl Drop for OpenGuard<'_> {
    fn drop(&mut self) {
        let mut table = self.of.lock();
        if let Some(opening) = table.opening.get_mut(&self.file) {
            opening.count -= 1;
            if opening.count == 0 {
                table.opening.remove(&self.file);
            }
        }
    }
}

impl Delegations {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has `listener` called with each delegation that is to be returned. There is one listener.
    pub(crate) fn listen(&self, listener: impl Fn(Recalled) + Send + Sync + 'static) {
        _ = self.listener.set(Box::new(listener));
    }

    fn hand_out(&self, recalled: impl IntoIterator<Item = Recalled>) {
        if let Some(listener) = self.listener.get() {
            recalled.into_iter().for_each(listener);
        }
    }

    /// Changes the table, and hands out what the change has taken from it.
    fn change<T>(&self, change: impl FnOnce(&mut Table) -> (T, Vec<Recalled>)) -> T {
        let mut table = self.lock();
        let (outcome, taken) = change(&mut table);
        self.held.store(table.held.len(), Ordering::Release);
        drop(table);
        self.hand_out(taken);
        outcome
    }

    /// CB_RECALL. RFC 8881 s20.2
    ///
    /// # Errors
    /// What it is answered with.
    pub(crate) fn recall(&self, stateid: Stateid, file: FileHandle) -> std::result::Result<(), Nfs> {
        if self.listener.get().is_none() {
            return Err(Nfs::BAD_STATEID);
        }
        self.change(|table| {
            let is_it = |held: &Held| held.stateid.other == stateid.other;
            if table.held.get(&file).is_some_and(is_it) {
                self.recalled.fetch_add(1, Ordering::Relaxed);
                return (Ok(()), table.take(file, true).into_iter().collect());
            }
            if let Some(opening) = table.opening.get_mut(&file) {
                if opening.recalled.len() == EARLY_MAX {
                    return (Err(Nfs::DELAY), Vec::new());
                }
                opening.recalled.push(stateid.other);
                return (Ok(()), Vec::new());
            }
            if table.strays == STRAYS_MAX {
                return (Err(Nfs::BAD_STATEID), Vec::new());
            }
            table.strays += 1;
            (Ok(()), vec![Recalled { file, is_about_to_change: true, stateid, is_stray: true }])
        })
    }

    /// CB_RECALL_ANY: those that were used longest ago are returned, until no more than these are
    /// held. RFC 8881 s20.6
    pub(crate) fn keep(&self, most: u32) {
        self.change(|table| {
            let taken = table.keep(most as usize, false);
            self.recalled.fetch_add(taken.len() as u64, Ordering::Relaxed);
            ((), taken)
        });
    }

    /// None is valid any more: the session or the state is lost. They are returned if the server
    /// still has them.
    pub(crate) fn drop_all(&self) {
        self.change(|table| ((), table.keep(0, true)));
    }

    /// The server says whether it has revoked delegations that were not returned in time.
    pub(crate) fn told_revoked(&self, is_revoking: bool) {
        self.is_revoking.store(is_revoking, Ordering::Release);
        if is_revoking {
            self.drop_all();
        }
    }

    /// Gives up the delegation of a file, if there is one.
    pub(crate) fn give_up(&self, file: FileHandle) {
        if self.held() > 0 {
            self.change(|table| ((), table.take(file, false).into_iter().collect()));
        }
    }

    /// Takes all that are held, which the listener is not told of.
    fn take_all(&self) -> Vec<Recalled> {
        let mut table = self.lock();
        self.held.store(0, Ordering::Release);
        table.keep(0, false)
    }

    fn held(&self) -> usize {
        self.held.load(Ordering::Acquire)
    }

    /// The delegation of a file that was granted in this session, if there is one.
    fn of(&self, file: FileHandle, generation: u64) -> Option<u64> {
        if self.held() == 0 || self.is_revoking.load(Ordering::Acquire) {
            return None;
        }
        let mut table = self.lock();
        table.uses += 1;
        let uses = table.uses;
        let held = table.held.get_mut(&file).filter(|held| held.generation == generation)?;
        held.used = uses;
        Some(held.grant)
    }

    /// Whether it is worth asking for one.
    fn may_ask(&self) -> bool {
        self.listener.get().is_some()
            && !self.is_revoking.load(Ordering::Acquire)
            && self.lock().not_before.is_none_or(|then| Instant::now() >= then)
    }

    fn begin_open(&self, file: FileHandle) -> OpenGuard<'_> {
        self.lock().opening.entry(file).or_default().count += 1;
        OpenGuard { of: self, file }
    }

    /// An OPEN was granted this delegation. Returns its number, unless it is recalled already or no
    /// more than that it was ever granted is known of it.
    fn granted(&self, file: FileHandle, stateid: Stateid, is_valid: bool, generation: u64) -> Option<u64> {
        self.granted.fetch_add(1, Ordering::Relaxed);
        self.change(|table| {
            (table.refusals, table.not_before) = (0, None);
            let opening = table.opening.get(&file);
            let is_early = opening.is_some_and(|opening| opening.recalled.contains(&stateid.other));
            if is_early {
                self.recalled.fetch_add(1, Ordering::Relaxed);
            }
            if is_early || !is_valid {
                return (None, vec![Recalled { file, is_about_to_change: true, stateid, is_stray: false }]);
            }
            // Two OPENs may bring the same one; another one takes its place.
            let is_other = table.held.get(&file).is_some_and(|held| held.stateid.other != stateid.other);
            let mut taken: Vec<_> = is_other.then(|| table.take(file, true)).flatten().into_iter().collect();
            if !table.held.contains_key(&file) {
                taken.extend(table.keep(HELD_MAX - 1, false));
            }
            table.grants += 1;
            table.uses += 1;
            let (grant, used) = (table.grants, table.uses);
            table.held.insert(file, Held { stateid, grant, generation, used });
            (Some(grant), taken)
        })
    }

    /// An OPEN was granted none.
    fn refused(&self, why: Refusal) {
        if why == Refusal::Now {
            return;
        }
        let mut table = self.lock();
        table.refusals += 1;
        if table.refusals >= REFUSALS_MAX {
            table.not_before = Some(Instant::now() + REFUSED_PAUSE);
            table.refusals = 0;
        }
    }

    fn returned(&self, recalled: &Recalled) {
        if recalled.is_stray {
            self.lock().strays -= 1;
        }
    }

    pub(crate) fn counts(&self) -> DelegationCounts {
        DelegationCounts {
            held: self.held() as u64,
            granted: self.granted.load(Ordering::Relaxed),
            recalled: self.recalled.load(Ordering::Relaxed),
        }
    }
}

impl Mount {
    fn delegated_by(&self) -> Option<(&SessionKeeper, &Delegations)> {
        let keeper = self.session_keeper()?;
        Some((keeper, keeper.call_backs().delegations()))
    }
}

impl Mount {
    /// Has `listener` called with each delegation that is to be returned because the server recalls
    /// it, or because it is not valid any more. It is called on a loop or another thread of the
    /// mount, must not wait, and is set once. Without it, no file is delegated. Needs
    /// [`Settings::call_backs`](crate::Settings::call_backs).
    pub fn on_recall(&self, listener: impl Fn(Recalled) + Send + Sync + 'static) {
        if let Some((_, delegations)) = self.delegated_by() {
            delegations.listen(listener);
        }
    }

    /// The number of the delegation by which nobody else changes a file, until it is recalled;
    /// `None` if there is none, or the server has not been heard for so long that it may have been
    /// revoked. RFC 8881 s10.2.1
    #[must_use]
    #[inline]
    pub fn delegation(&self, file: FileHandle) -> Option<u64> {
        let (keeper, delegations) = self.delegated_by()?;
        if delegations.held() == 0 {
            return None;
        }
        let generation = keeper.generation();
        let is_good = !keeper.is_lost(generation) && keeper.is_within_lease();
        delegations.of(file, generation).filter(|_| is_good)
    }

    /// Whether any file is delegated to the mount.
    #[must_use]
    #[inline]
    pub fn has_delegations(&self) -> bool {
        self.delegated_by().is_some_and(|(_, delegations)| delegations.held() > 0)
    }

    /// Whether [`Operations::open_delegated`] may bring a delegation.
    #[must_use]
    pub fn may_be_delegated(&self) -> bool {
        self.delegated_by()
            .is_some_and(|(keeper, delegations)| keeper.has_back_connection() && delegations.may_ask())
    }

    /// Gives up the delegation of a file, which is returned by who listens for recalls.
    pub fn give_up_delegation(&self, file: FileHandle) {
        if let Some((_, delegations)) = self.delegated_by() {
            delegations.give_up(file);
        }
    }

    /// Returns all that is delegated, as far as the server answers soon: it forgets no client that
    /// has something. RFC 8881 s18.50.3
    pub(crate) fn return_delegations(&self) {
        let Some((_, delegations)) = self.delegated_by() else { return };
        let (minor, deadline) = (self.protocol().minor(), Instant::now() + RETURN_TIMEOUT);
        let all = delegations.take_all().into_iter();
        let returns: Vec<_> =
            all.map(|one| self.submit(calls::give_back(minor, one.file, one.stateid).into())).collect();
        for one in returns {
            if one.wait_until(deadline).is_none() {
                break;
            }
        }
    }

    pub(crate) fn delegation_counts(&self) -> DelegationCounts {
        self.delegated_by().map(|(_, delegations)| delegations.counts()).unwrap_or_default()
    }
}

impl Operations<'_> {
    /// Opens a file for reading, and closes it, so that the server may delegate it. Returns the
    /// attributes, and the number of the delegation if there is one. What was asked must be waited
    /// for: of a delegation that is granted to nobody the server has to be told when it recalls it.
    ///
    /// # Errors
    /// Those of the server. It is not asked again if it wants to be asked later.
    pub async fn open_delegated(&self, file: FileHandle) -> Result<(Attributes, Option<u64>)> {
        let mount = self.mount();
        let Some((keeper, delegations)) = mount.delegated_by() else {
            return Ok((self.getattr(file).await?, None));
        };
        let generation = keeper.generation();
        let opening = delegations.begin_open(file);
        let told = self.run(calls::open(mount.protocol().minor(), file)).await?;
        let grant = match (told.delegation, told.refusal) {
            (Some(delegation), _) => {
                let is_valid =
                    delegation.is_for_reading && !delegation.is_recalled && keeper.generation() == generation;
                delegations.granted(file, delegation.stateid, is_valid, generation)
            }
            (None, why) => {
                delegations.refused(why);
                None
            }
        };
        drop(opening);
        match told.attributes {
            Some(attributes) => Ok((attributes, grant)),
            None => Ok((self.getattr(file).await?, grant)),
        }
    }

    /// Returns a delegation: nothing is cached by it any more. One that the server has revoked is
    /// forgotten there. RFC 8881 s18.6, s18.38
    ///
    /// # Errors
    /// Those of the server, other than that there is no such delegation.
    pub async fn return_delegation(&self, recalled: Recalled) -> Result<()> {
        let minor = self.mount().protocol().minor();
        let mut outcome = self.run(calls::give_back(minor, recalled.file, recalled.stateid)).await;
        if outcome.as_ref().is_err_and(is_revoked) {
            outcome = self.run(crate::protocol::nfs4::locks::free(minor, recalled.stateid)).await;
        }
        if let Some((_, delegations)) = self.mount().delegated_by() {
            delegations.returned(&recalled);
        }
        match outcome {
            Err(error) if is_unknown(&error) => Ok(()),
            outcome => outcome,
        }
    }
}

fn number_of(error: &Error) -> Option<Nfs> {
    match error.status()? {
        Status::Other(number) => Some(Nfs(number)),
        _ => None,
    }
}

fn is_revoked(error: &Error) -> bool {
    matches!(number_of(error), Some(Nfs::DELEG_REVOKED | Nfs::ADMIN_REVOKED | Nfs::EXPIRED))
}

/// Whether there is no such delegation at the server, or no such file.
fn is_unknown(error: &Error) -> bool {
    let is_gone = matches!(error.status(), Some(Status::Stale | Status::BadHandle));
    is_gone || matches!(number_of(error), Some(Nfs::BAD_STATEID | Nfs::STALE_STATEID | Nfs::OLD_STATEID))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, channel};

    fn file(name: &str) -> FileHandle {
        FileHandle::new(name.as_bytes()).unwrap()
    }

    fn stateid(number: u32) -> Stateid {
        let mut other = [0; 12];
        other[..4].copy_from_slice(&number.to_be_bytes());
        Stateid { seqid: 1, other }
    }

    /// A table, and what is to be returned.
    fn table() -> (Delegations, Receiver<Recalled>) {
        let (delegations, (sender, recalled)) = (Delegations::default(), channel());
        delegations.listen(move |one| sender.send(one).unwrap());
        (delegations, recalled)
    }

    /// An OPEN that brings this delegation.
    fn grant(of: &Delegations, name: &str, number: u32) -> Option<u64> {
        let _opening = of.begin_open(file(name));
        of.granted(file(name), stateid(number), true, 0)
    }

    fn taken(recalled: &Receiver<Recalled>) -> Vec<(FileHandle, Stateid)> {
        recalled.try_iter().map(|one| (one.file, one.stateid)).collect()
    }

    // RFC 8881 s20.2
    #[test]
    fn what_is_recalled_is_not_used_any_more_and_is_handed_out_once() {
        let (of, recalled) = table();
        let first = grant(&of, "a", 1).unwrap();
        assert_eq!(of.of(file("a"), 0), Some(first));
        assert_eq!(of.of(file("a"), 1), None, "another session");
        assert_eq!(of.recall(stateid(1), file("a")), Ok(()));
        assert_eq!((of.of(file("a"), 0), of.held()), (None, 0));
        assert_eq!(taken(&recalled), [(file("a"), stateid(1))]);
        let second = grant(&of, "a", 2).unwrap();
        assert_ne!(first, second);
        assert_eq!(of.counts(), DelegationCounts { held: 1, granted: 2, recalled: 1 });
    }

    // RFC 8881 s2.10.6.3
    #[test]
    fn a_recall_that_overtakes_the_reply_with_the_delegation_ends_it() {
        let (of, recalled) = table();
        let opening = of.begin_open(file("a"));
        assert_eq!(of.recall(stateid(1), file("a")), Ok(()));
        assert!(taken(&recalled).is_empty(), "it is not known yet");
        assert_eq!(of.granted(file("a"), stateid(1), true, 0), None);
        assert_eq!(taken(&recalled), [(file("a"), stateid(1))]);
        drop(opening);
        // That of another delegation of the file does not concern it, nor does one of before.
        let opening = of.begin_open(file("a"));
        assert_eq!(of.recall(stateid(1), file("a")), Ok(()));
        assert!(of.granted(file("a"), stateid(2), true, 0).is_some());
        drop(opening);
        assert!(of.lock().opening.is_empty() && taken(&recalled).is_empty());
    }

    #[test]
    fn early_recalls_are_bounded() {
        let (of, _recalled) = table();
        let _opening = of.begin_open(file("a"));
        let recall = |number| of.recall(stateid(number), file("a"));
        let first = u32::try_from(EARLY_MAX).unwrap();
        assert!((0..first).all(|number| recall(number) == Ok(())));
        assert_eq!(recall(first), Err(Nfs::DELAY));
    }

    #[test]
    fn what_is_recalled_and_not_known_is_returned_all_the_same_but_not_without_bound() {
        let (of, recalled) = table();
        let strays = u32::try_from(STRAYS_MAX).unwrap();
        for number in 0..strays {
            assert_eq!(of.recall(stateid(number), file("a")), Ok(()));
        }
        assert_eq!(of.recall(stateid(strays), file("a")), Err(Nfs::BAD_STATEID));
        let one = recalled.try_recv().unwrap();
        assert!(one.is_stray);
        of.returned(&one);
        assert_eq!(of.recall(stateid(strays), file("a")), Ok(()));
    }

    #[test]
    fn nothing_is_known_where_nobody_listens() {
        let of = Delegations::default();
        assert_eq!(of.recall(stateid(1), file("a")), Err(Nfs::BAD_STATEID));
        assert!(!of.may_ask());
    }

    #[test]
    fn so_many_are_held_and_those_that_were_used_longest_ago_are_returned() {
        let (of, recalled) = table();
        let max = u32::try_from(HELD_MAX).unwrap();
        for number in 0..max {
            assert!(grant(&of, &number.to_string(), number).is_some());
        }
        assert!(of.of(file("0"), 0).is_some());
        assert!(grant(&of, "new", max).is_some());
        assert_eq!(taken(&recalled), [(file("1"), stateid(1))]);
        // RFC 8881 s20.6
        of.keep(2);
        assert_eq!(taken(&recalled).len(), HELD_MAX - 2);
        assert!(of.of(file("0"), 0).is_some() && of.of(file("new"), 0).is_some());
        of.drop_all();
        assert_eq!((taken(&recalled).len(), of.held()), (2, 0));
    }

    #[test]
    fn one_that_is_not_valid_when_it_arrives_is_returned() {
        let (of, recalled) = table();
        assert_eq!(of.granted(file("a"), stateid(1), false, 0), None);
        assert_eq!(taken(&recalled), [(file("a"), stateid(1))]);
        // Another one of the same file takes the place of the first.
        assert!(grant(&of, "a", 2).is_some() && grant(&of, "a", 2).is_some());
        assert!(taken(&recalled).is_empty());
        assert!(grant(&of, "a", 3).is_some());
        assert_eq!(taken(&recalled), [(file("a"), stateid(2))]);
    }

    #[test]
    fn a_server_that_revokes_is_not_trusted_until_it_says_that_it_does_not() {
        let (of, recalled) = table();
        assert!(grant(&of, "a", 1).is_some());
        of.told_revoked(true);
        assert_eq!(taken(&recalled).len(), 1);
        assert!(!of.may_ask() && grant(&of, "a", 2).is_some() && of.of(file("a"), 0).is_none());
        of.told_revoked(false);
        assert!(of.may_ask() && of.of(file("a"), 0).is_some());
    }

    #[test]
    fn a_server_that_grants_none_is_left_alone_for_a_while() {
        let (of, _recalled) = table();
        for _ in 0..100 {
            of.refused(Refusal::Now);
        }
        for _ in 1..REFUSALS_MAX {
            of.refused(Refusal::Lasting);
        }
        assert!(of.may_ask());
        of.refused(Refusal::Lasting);
        assert!(!of.may_ask());
        assert!(grant(&of, "a", 1).is_some());
        assert!(of.may_ask(), "it does grant them");
    }
}
