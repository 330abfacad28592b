//! Which of our own clients has which windows in the file.
//!
//! A client's windows stay as long as any process holds them or they were used recently. A process
//! cannot ask which windows others hold, so every process notes the time for the windows that it
//! holds; windows without a note for [`HELD_FOR`] are held by no process. The bounds are those of
//! [`drc::Windows`].

use super::file::GroupFile;
use super::layout::{CLIENT_WORDS, CLIENTS_AT, window_at};
use crate::address::network_of;
use drc::shared::{PreOpState, SharedBegin, SharedWindow, Start, WINDOW_WORDS};
use drc::{ADDRESS_WINDOWS_MAX, CLIENT_WINDOWS_MAX, Outcome, WINDOW_IDLE_MIN};
use rpc::Xid;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long after the last note a window may be held. Six times [`super::UPKEEP`]: a process that
/// notes nothing for this long was stopped, and resets its connections when it continues.
const HELD_FOR: Duration = Duration::from_secs(30);

/// How far a use just noted by another process may seem to lie in the future.
const CLOCK_ROUNDING_S: u64 = 2;

const ID: usize = 0;
const STATE: usize = 1;
const USED: usize = 2;
const ADDRESS: usize = 3;
/// The state of an entry whose windows belong to a client. Any other value means a free entry.
const LIVE: u64 = 1;

/// One of our own clients.
#[derive(Debug)]
pub(crate) struct SharedClient {
    file: Arc<GroupFile>,
    id: u64,
    slot: usize,
}

impl SharedClient {
    /// The id of the client.
    pub const fn id(&self) -> u64 {
        self.id
    }

    fn window(&self) -> SharedWindow<'_> {
        let at = window_at(self.slot);
        let words = self.file.words().get(at..at + WINDOW_WORDS).unwrap_or_default();
        // A process that was stopped for long may find that the windows of its client now belong to
        // another client.
        if self.is_current() { SharedWindow::new(words, self.id) } else { SharedWindow::new(&[], self.id) }
    }

    /// Whether the windows in this entry still belong to the client.
    pub fn is_current(&self) -> bool {
        let entry = ClientEntry { file: &self.file, slot: self.slot };
        entry.get(STATE) == LIVE && entry.get(ID) == self.id
    }

    fn touch(&self, now: Duration) {
        if self.is_current() {
            ClientEntry { file: &self.file, slot: self.slot }.touch(now);
        }
    }

    pub fn begin(&self, xid: Xid, now: Duration) -> SharedBegin {
        self.touch(now);
        self.window().begin(&*self.file, xid)
    }

    pub fn start(&self, xid: Xid) -> Start {
        self.window().start(&*self.file, xid)
    }

    pub fn cancel_start(&self, xid: Xid) {
        self.window().cancel_start(&*self.file, xid);
    }

    pub fn finish(&self, xid: Xid, outcome: Outcome<'_>) {
        self.window().finish(&*self.file, xid, outcome);
    }

    pub fn record_pre_op(&self, xid: Xid, seen: PreOpState) {
        self.window().record_pre_op(xid, seen);
    }

    pub fn pre_op(&self, xid: Xid) -> Option<PreOpState> {
        self.window().pre_op(xid)
    }
}

/// The entry of one client in the file.
#[derive(Clone, Copy)]
struct ClientEntry<'a> {
    file: &'a GroupFile,
    slot: usize,
}

impl ClientEntry<'_> {
    fn word(&self, word: usize) -> Option<&AtomicU64> {
        self.file.words().get(CLIENTS_AT + self.slot * CLIENT_WORDS + word)
    }

    fn get(&self, word: usize) -> u64 {
        self.word(word).map_or(0, |word| word.load(Ordering::SeqCst))
    }

    fn set(&self, word: usize, value: u64) {
        if let Some(word) = self.word(word) {
            word.store(value, Ordering::SeqCst);
        }
    }

    /// Written once a second, not for each call.
    fn touch(&self, now: Duration) {
        if let Some(used) = self.word(USED)
            && used.load(Ordering::Relaxed) != now.as_secs()
        {
            used.store(now.as_secs(), Ordering::Relaxed);
        }
    }

    /// A use in the future does not count: all processes of a host have the same clock.
    fn idle(&self, now: Duration) -> Duration {
        let used = self.get(USED);
        let ahead = used > now.as_secs().saturating_add(CLOCK_ROUNDING_S);
        if ahead { Duration::MAX } else { Duration::from_secs(now.as_secs().saturating_sub(used)) }
    }

    fn address(&self) -> [u64; 2] {
        [self.get(ADDRESS), self.get(ADDRESS + 1)]
    }
}

fn address_words(address: IpAddr) -> [u64; 2] {
    let bits = match network_of(address) {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => v6.to_bits(),
    };
    [(bits >> 64) as u64, bits as u64]
}

/// The clients that this process knows.
#[derive(Debug)]
pub(super) struct Clients {
    file: Arc<GroupFile>,
    known: Mutex<HashMap<u64, Arc<SharedClient>>>,
}

impl Clients {
    pub fn new(file: Arc<GroupFile>) -> Self {
        Self { file, known: Mutex::default() }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<u64, Arc<SharedClient>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn entries(&self) -> impl Iterator<Item = ClientEntry<'_>> + Clone {
        (0..CLIENT_WINDOWS_MAX).map(|slot| ClientEntry { file: &self.file, slot })
    }

    fn live(&self) -> impl Iterator<Item = ClientEntry<'_>> + Clone {
        self.entries().filter(|entry| entry.get(STATE) == LIVE)
    }

    /// The windows of a client, created if necessary; `None` if no windows may be removed for them.
    pub fn client(&self, id: u64, from: IpAddr, now: Duration) -> Option<Arc<SharedClient>> {
        let mut known = self.known();
        if let Some(client) = known.get(&id).filter(|client| client.is_current()) {
            return Some(Arc::clone(client));
        }
        let _lock = self.file.lock_for_change()?;
        let existing = self.live().find(|entry| entry.get(ID) == id);
        let slot = match existing {
            Some(entry) => {
                entry.touch(now);
                entry.slot
            }
            None => self.create(&known, id, address_words(from), now)?,
        };
        let client = Arc::new(SharedClient { file: Arc::clone(&self.file), id, slot });
        known.insert(id, Arc::clone(&client));
        Some(client)
    }

    /// Creates empty windows for a client, under the change lock. If this process ends in the
    /// middle, the entry is not live, and therefore free.
    fn create(
        &self,
        known: &HashMap<u64, Arc<SharedClient>>,
        id: u64,
        address: [u64; 2],
        now: Duration,
    ) -> Option<usize> {
        let entry = self.find_entry(known, address, now)?;
        entry.set(STATE, 0);
        let at = window_at(entry.slot);
        if let Err(error) = self.file.provide(at, WINDOW_WORDS) {
            tracing::error!(%error, "the group's file cannot grow: a client is turned away");
            return None;
        }
        let words = self.file.words().get(at..at + WINDOW_WORDS).unwrap_or_default();
        words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        entry.set(ID, id);
        entry.set(USED, now.as_secs());
        entry.set(ADDRESS, address[0]);
        entry.set(ADDRESS + 1, address[1]);
        entry.set(STATE, LIVE);
        Some(entry.slot)
    }

    /// Finds a free entry, or an entry whose client may be removed.
    fn find_entry(
        &self,
        known: &HashMap<u64, Arc<SharedClient>>,
        address: [u64; 2],
        now: Duration,
    ) -> Option<ClientEntry<'_>> {
        let is_held = |entry: &ClientEntry<'_>| {
            known.get(&entry.get(ID)).is_some_and(|client| Arc::strong_count(client) > 1)
        };
        let oldest = |of: Option<[u64; 2]>, idle: Duration| {
            self.live()
                .filter(|entry| of.is_none_or(|address| entry.address() == address))
                .filter(|entry| entry.idle(now) > idle && !is_held(entry))
                .max_by_key(|entry| entry.idle(now))
        };
        let own = self.live().filter(|entry| entry.address() == address).count();
        if own >= ADDRESS_WINDOWS_MAX {
            return oldest(Some(address), HELD_FOR);
        }
        let free = self.entries().find(|entry| entry.get(STATE) != LIVE);
        free.or_else(|| oldest(None, WINDOW_IDLE_MIN)).or_else(|| {
            let mut by_address: HashMap<[u64; 2], usize> = HashMap::new();
            self.live().for_each(|entry| *by_address.entry(entry.address()).or_default() += 1);
            let (greediest, most) =
                by_address.into_iter().max_by_key(|(address, count)| (*count, *address))?;
            oldest(Some(if most > own + 1 { greediest } else { address }), HELD_FOR)
        })
    }

    /// Notes which clients this process serves, and forgets clients that are gone.
    pub fn touch(&self, now: Duration) {
        self.known().retain(|_, client| {
            let is_held = Arc::strong_count(client) > 1;
            if is_held {
                client.touch(now);
            }
            is_held
        });
    }
}
