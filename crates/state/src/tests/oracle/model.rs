//! The naive model: who has what, in lists.

use super::{BYTES, CLIENTS, FILES, NLM_HOSTS, OWNERS};
use crate::{Error, READ, StateId, WRITE};
use std::collections::{BTreeMap, BTreeSet};

const LEASE: u64 = 90_000;
const MARGIN: u64 = 250;
/// How long a client may take to return what it is asked for.
const PATIENCE: u64 = 10_000;
/// How often a client is kept anew from a file of which it has lost a delegation.
const HELD_ANEW: u32 = 8;
/// How long a client gets no delegation that has lost one.
const DISTRUST: u64 = 10 * LEASE;

/// For each byte of a file, and for all behind them: whether it is locked, and exclusively.
type Cells = [Option<bool>; BYTES as usize + 1];

/// Who holds a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Party {
    Client(usize),
    Nlm(usize),
}

/// What an operation must give.
#[derive(Debug)]
pub enum Expected {
    Done,
    Version(u32),
    /// Denied because of one of these.
    Denied(Vec<(Party, usize)>),
    Refused(Error),
}

#[derive(Debug)]
struct Open {
    id: StateId,
    version: u32,
    pairs: Vec<(u8, u8)>,
}

impl Open {
    fn union(&self) -> (u8, u8) {
        self.pairs.iter().fold((0, 0), |sum, pair| (sum.0 | pair.0, sum.1 | pair.1))
    }
}

#[derive(Debug)]
struct Lock {
    id: StateId,
    version: u32,
    cells: Cells,
}

#[derive(Debug)]
struct Delegation {
    id: StateId,
    recalled: Option<u64>,
    is_revoked: bool,
    held: Held,
}

/// How a client is kept from a file of which it has lost a delegation, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Held {
    NotYet,
    Since { first: u64, last: u64, times: u32 },
    LetGo,
}

#[derive(Debug, Default)]
struct Client {
    renewed: u64,
    opens: BTreeMap<(usize, usize), Open>,
    /// By lock owner, file, and the owner of the open.
    locks: BTreeMap<(usize, usize, usize), Lock>,
    delegations: BTreeMap<usize, Delegation>,
    /// No delegations before that, because one was revoked.
    distrusted_until: u64,
}

impl Client {
    /// Unlocks what a lock owner has by any open.
    fn clear(&mut self, locker: usize, file: usize, range: (u64, u64)) {
        let its = self.locks.range_mut((locker, file, 0)..=(locker, file, usize::MAX));
        its.for_each(|(_, lock)| set(&mut lock.cells, range, None));
    }
}

#[derive(Debug)]
pub struct Model {
    /// Milliseconds.
    pub now: u64,
    clients: Vec<Option<Client>>,
    nlm: BTreeMap<(usize, usize), [Cells; FILES]>,
    /// No delegations of each file before that, because one was in the way.
    shared_until: [u64; FILES],
    may: BTreeSet<usize>,
    must: BTreeSet<usize>,
}

fn covers((offset, length): (u64, u64), cell: usize) -> bool {
    let cell = cell as u64;
    cell >= offset && (length == u64::MAX || cell < offset + length)
}

fn set(cells: &mut Cells, range: (u64, u64), to: Option<bool>) {
    for (cell, is) in cells.iter_mut().enumerate() {
        if covers(range, cell) {
            *is = to;
        }
    }
}

fn meets(cells: &Cells, (range, exclusive): ((u64, u64), bool)) -> bool {
    let conflicts = |is: Option<bool>| is.is_some_and(|is| is || exclusive);
    cells.iter().enumerate().any(|(cell, is)| covers(range, cell) && conflicts(*is))
}

const fn denies(one: (u8, u8), other: (u8, u8)) -> bool {
    one.0 & other.1 != 0 || one.1 & other.0 != 0
}

impl Model {
    pub fn new() -> Self {
        Self {
            now: 1_000_000,
            clients: std::iter::repeat_with(|| None).take(CLIENTS).collect(),
            nlm: BTreeMap::new(),
            shared_until: [0; FILES],
            may: BTreeSet::new(),
            must: BTreeSet::new(),
        }
    }

    pub fn joined(&mut self, client: usize) {
        self.clients[client] = Some(Client { renewed: self.now, ..Client::default() });
    }

    pub fn left(&mut self, client: usize) {
        self.clients[client] = None;
    }

    pub fn renewed(&mut self, client: usize) {
        let now = self.now;
        let its = self.clients[client].as_mut().expect("joined");
        if now >= its.renewed + MARGIN {
            its.renewed = now;
        }
    }

    fn is_expired(&self, client: usize) -> bool {
        self.clients[client].as_ref().is_some_and(|its| self.now > its.renewed + LEASE + MARGIN)
    }

    pub fn may_have_dropped(&self, client: usize) -> bool {
        self.may.contains(&client) || self.must.contains(&client)
    }

    pub fn must_have_dropped(&self, client: usize) -> bool {
        self.must.contains(&client)
    }

    pub fn settled(&mut self) {
        self.may.clear();
        self.must.clear();
    }

    /// Divides clients in the way into those that live and those that give way. If any live, some
    /// of the others may have been dropped; if none does, all others are.
    fn settle(&mut self, in_the_way: BTreeSet<usize>) -> bool {
        let (silent, live): (BTreeSet<_>, BTreeSet<_>) =
            in_the_way.into_iter().partition(|client| self.is_expired(*client));
        if live.is_empty() {
            self.must.extend(silent);
        } else {
            self.may.extend(silent);
        }
        live.is_empty()
    }

    fn opens_of(&self, file: usize) -> impl Iterator<Item = (usize, usize, &Open)> {
        self.clients.iter().enumerate().flat_map(move |(client, its)| {
            let opens = its.iter().flat_map(|its| &its.opens);
            opens
                .filter(move |((_, of), _)| *of == file)
                .map(move |((owner, _), open)| (client, *owner, open))
        })
    }

    fn settle_shares(&mut self, own: Option<(usize, usize)>, file: usize, asked: (u8, u8)) -> bool {
        let conflicting = self
            .opens_of(file)
            .filter(|(client, owner, open)| Some((*client, *owner)) != own && denies(open.union(), asked));
        let in_the_way = conflicting.map(|(client, ..)| client).collect();
        self.settle(in_the_way)
    }

    /// Recalls the delegations of a file that others have. Returns whether there are none left.
    fn recall(&mut self, file: usize, except: Option<usize>) -> bool {
        let (now, mut is_clear) = (self.now, true);
        for client in 0..CLIENTS {
            let is_expired = self.is_expired(client);
            let Some(its) = &mut self.clients[client] else { continue };
            let Some(delegation) = its.delegations.get_mut(&file) else { continue };
            if Some(client) == except || delegation.is_revoked || self.must.contains(&client) {
                continue;
            }
            self.shared_until[file] = now + LEASE;
            if is_expired {
                // It loses that, and nothing else.
                delegation.is_revoked = true;
                its.distrusted_until = now + DISTRUST;
                continue;
            }
            is_clear = false;
            delegation.recalled.get_or_insert(now);
        }
        is_clear
    }

    pub fn open(
        &mut self,
        client: usize,
        owner: usize,
        file: usize,
        asked: (u8, u8),
        done: Option<&Option<StateId>>,
    ) -> Expected {
        if !self.settle_shares(Some((client, owner)), file, asked) {
            return Expected::Refused(Error::ShareDenied);
        }
        let changes = asked.0 & WRITE != 0 || asked.1 & READ != 0;
        if changes && !self.recall(file, Some(client)) {
            return Expected::Refused(Error::Delay);
        }
        let id = done.copied().flatten().unwrap_or(StateId::ANONYMOUS);
        let its = self.clients[client].as_mut().expect("joined");
        let open = its.opens.entry((owner, file)).or_insert(Open { id, version: 0, pairs: Vec::new() });
        open.id = id;
        open.version += 1;
        open.pairs.push(asked);
        Expected::Version(open.version)
    }

    pub fn any_open(&self, client: usize, number: u64) -> Option<(usize, usize, StateId)> {
        let opens = &self.clients[client].as_ref()?.opens;
        let at = number as usize % opens.len().max(1);
        opens.iter().nth(at).map(|((owner, file), open)| (*owner, *file, open.id))
    }

    pub fn close(&mut self, client: usize, owner: usize, file: usize) {
        let its = self.clients[client].as_mut().expect("joined");
        its.opens.remove(&(owner, file));
        its.locks.retain(|(_, of, by), _| !(*of == file && *by == owner));
    }

    pub fn downgrade(
        &mut self,
        client: usize,
        key: (usize, usize),
        to: (u8, u8),
        done: Option<&Option<StateId>>,
    ) -> Expected {
        let its = self.clients[client].as_mut().expect("joined");
        let open = its.opens.get_mut(&key).expect("open");
        let is_within = |pair: &(u8, u8)| pair.0 & !to.0 == 0 && pair.1 & !to.1 == 0;
        let left: Vec<_> = open.pairs.iter().copied().filter(is_within).collect();
        let downgraded = Open { id: open.id, version: open.version + 1, pairs: left };
        if downgraded.pairs.is_empty() || downgraded.union() != to {
            return Expected::Refused(Error::Invalid("no opens have this access and deny"));
        }
        *open = downgraded;
        open.id = done.copied().flatten().unwrap_or(open.id);
        Expected::Version(open.version)
    }

    /// The stateid of a lock owner's locks on a file by the first of its opens from `by` on, and
    /// that open's owner.
    pub fn lock_id(&self, client: usize, locker: usize, file: usize, by: usize) -> Option<(usize, StateId)> {
        let locks = &self.clients[client].as_ref()?.locks;
        let its = locks.range((locker, file, by)..=(locker, file, usize::MAX)).next();
        its.map(|((_, _, by), lock)| (*by, lock.id))
    }

    fn holders(&self, file: usize) -> Vec<((Party, usize), &Cells)> {
        let mut holders = Vec::new();
        for (client, its) in self.clients.iter().enumerate() {
            for ((locker, of, _), lock) in its.iter().flat_map(|its| &its.locks) {
                if *of == file {
                    holders.push(((Party::Client(client), *locker), &lock.cells));
                }
            }
        }
        for number in 0..NLM_HOSTS {
            for owner in 0..OWNERS {
                if let Some(cells) = self.nlm.get(&(number, owner)) {
                    holders.push(((Party::Nlm(number), owner), &cells[file]));
                }
            }
        }
        holders
    }

    /// Whether a lock would be granted.
    pub fn conflicts(&mut self, asker: (Party, usize), file: usize, wanted: ((u64, u64), bool)) -> Expected {
        let holders = self.holders(file);
        let in_the_way: Vec<_> = holders
            .into_iter()
            .filter(|(who, cells)| *who != asker && meets(cells, wanted))
            .map(|(who, _)| who)
            .collect();
        let silent = |who: &(Party, usize)| match who.0 {
            Party::Client(client) => self.is_expired(client),
            Party::Nlm(_) => false,
        };
        let (silent, live): (Vec<_>, Vec<_>) = in_the_way.into_iter().partition(silent);
        let silent = silent.into_iter().filter_map(|(party, _)| match party {
            Party::Client(client) => Some(client),
            Party::Nlm(_) => None,
        });
        if live.is_empty() {
            self.must.extend(silent);
            return Expected::Done;
        }
        self.may.extend(silent);
        Expected::Denied(live)
    }

    pub fn lock(
        &mut self,
        client: usize,
        (locker, file, by): (usize, usize, usize),
        wanted: ((u64, u64), bool),
        done: Option<&Option<StateId>>,
    ) -> Expected {
        let its = self.clients[client].as_ref().expect("joined");
        let access = its.opens.get(&(by, file)).expect("open").union().0;
        if access & (if wanted.1 { WRITE } else { READ }) == 0 {
            return Expected::Refused(Error::OpenMode);
        }
        if let Expected::Denied(by) = self.conflicts((Party::Client(client), locker), file, wanted) {
            return Expected::Denied(by);
        }
        let id = done.copied().flatten().unwrap_or(StateId::ANONYMOUS);
        let its = self.clients[client].as_mut().expect("joined");
        its.clear(locker, file, wanted.0);
        let new = Lock { id, version: 0, cells: Cells::default() };
        let lock = its.locks.entry((locker, file, by)).or_insert(new);
        set(&mut lock.cells, wanted.0, Some(wanted.1));
        lock.id = id;
        lock.version += 1;
        Expected::Version(lock.version)
    }

    pub fn unlock(
        &mut self,
        client: usize,
        key: (usize, usize, usize),
        range: (u64, u64),
        done: Option<&Option<StateId>>,
    ) -> Expected {
        let its = self.clients[client].as_mut().expect("joined");
        its.clear(key.0, key.1, range);
        let lock = its.locks.get_mut(&key).expect("a lock");
        lock.id = done.copied().flatten().unwrap_or(lock.id);
        lock.version += 1;
        Expected::Version(lock.version)
    }

    pub fn free_lock(&mut self, client: usize, key: (usize, usize, usize)) -> Expected {
        let its = self.clients[client].as_mut().expect("joined");
        if its.locks[&key].cells.iter().any(Option::is_some) {
            return Expected::Refused(Error::LocksHeld);
        }
        its.locks.remove(&key);
        Expected::Done
    }

    pub fn nlm_set(&mut self, key: (usize, usize), file: usize, range: (u64, u64), to: Option<bool>) {
        set(&mut self.nlm.entry(key).or_default()[file], range, to);
    }

    pub fn forget(&mut self, number: usize) {
        self.nlm.retain(|(host, _), _| *host != number);
    }

    pub fn io(&mut self, file: usize, access: u8) -> Expected {
        if !self.settle_shares(None, file, (access, 0)) {
            return Expected::Refused(Error::ShareDenied);
        }
        if access & WRITE != 0 && !self.recall(file, None) {
            return Expected::Refused(Error::Delay);
        }
        Expected::Done
    }

    pub fn change(&mut self, file: usize, by: Option<usize>) -> Expected {
        if self.recall(file, by) { Expected::Done } else { Expected::Refused(Error::Delay) }
    }

    pub fn state_io(&self, client: usize, key: (usize, usize), file: usize, access: u8) -> Expected {
        let open = &self.clients[client].as_ref().expect("joined").opens[&key];
        if key.1 != file {
            return Expected::Refused(Error::BadStateId);
        }
        let may_write = open.union().0 & WRITE != 0;
        if access & WRITE != 0 && !may_write { Expected::Refused(Error::OpenMode) } else { Expected::Done }
    }

    pub fn delegate(&mut self, client: usize, file: usize, granted: Option<StateId>) {
        let is_written = self.opens_of(file).any(|(_, _, open)| open.union().0 & WRITE != 0);
        let has_one = self.delegation(client, file).is_some();
        let is_locked = self.holders(file).iter().any(|(_, cells)| cells.contains(&Some(true)));
        let its = self.clients[client].as_ref().expect("joined");
        let is_slow = its
            .delegations
            .values()
            .any(|its| its.is_revoked || its.recalled.is_some_and(|at| self.now >= at + PATIENCE));
        let is_trusted = !is_slow && self.now >= its.distrusted_until;
        let is_shared = self.now < self.shared_until[file];
        // Files are known by their hash, and opens of clients that were dropped count until they
        // are freed, so a refusal is always right.
        if let Some(id) = granted {
            assert!(!is_written && !has_one && !is_locked, "file {file} was delegated to {client}");
            assert!(!is_shared, "file {file} was delegated, and others wait for it");
            assert!(is_trusted, "{client} does not give back what is delegated");
            let delegation = Delegation { id, recalled: None, is_revoked: false, held: Held::NotYet };
            self.clients[client].as_mut().expect("joined").delegations.insert(file, delegation);
        }
    }

    /// A delegation, and whether it was revoked.
    pub fn delegation(&self, client: usize, file: usize) -> Option<(StateId, bool)> {
        let delegation = self.clients[client].as_ref()?.delegations.get(&file)?;
        Some((delegation.id, delegation.is_revoked))
    }

    /// A client, and a file of which it has lost a delegation.
    pub fn any_revoked(&self, random: u64) -> Option<(usize, usize)> {
        let clients = self.clients.iter().enumerate().filter_map(|(at, its)| Some((at, its.as_ref()?)));
        let all = clients.flat_map(|(at, its)| {
            let lost = its.delegations.iter().filter(|(_, delegation)| delegation.is_revoked);
            lost.map(move |(file, _)| (at, *file))
        });
        let all: Vec<_> = all.collect();
        all.get(usize::try_from(random).unwrap_or(0) % all.len().max(1)).copied()
    }

    /// A client looks at a file.
    pub fn look(&mut self, client: usize, file: usize) -> Expected {
        let now = self.now;
        let its = self.clients[client].as_mut().expect("joined").delegations.get_mut(&file);
        let Some(its) = its.filter(|its| its.is_revoked && its.held != Held::LetGo) else {
            return Expected::Done;
        };
        its.held = match its.held {
            Held::Since { last, times, .. } if now >= last / 1000 * 1000 + LEASE && times < HELD_ANEW => {
                Held::Since { first: now, last: now, times: times + 1 }
            }
            Held::Since { first, .. } if now >= first + LEASE => Held::LetGo,
            Held::Since { first, times, .. } => Held::Since { first, last: now, times },
            _ => Held::Since { first: now, last: now, times: 1 },
        };
        if its.held == Held::LetGo { Expected::Done } else { Expected::Refused(Error::Delay) }
    }

    pub fn returned(&mut self, client: usize, file: usize) {
        self.clients[client].as_mut().expect("joined").delegations.remove(&file);
    }

    pub fn tick(&mut self) {
        for client in 0..CLIENTS {
            let is_expired = self.is_expired(client);
            let Some(its) = &mut self.clients[client] else { continue };
            for delegation in its.delegations.values_mut() {
                let is_late = delegation.recalled.is_some_and(|at| self.now >= at + LEASE);
                if is_late && !delegation.is_revoked {
                    delegation.is_revoked = true;
                    its.distrusted_until = self.now + DISTRUST;
                }
            }
            let has_state = !its.opens.is_empty() || !its.locks.is_empty() || !its.delegations.is_empty();
            if is_expired && !has_state {
                self.must.insert(client);
            }
        }
    }
}
