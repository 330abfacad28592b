//! Whether an arena is consistent: every record that is in use is found where it must be, as often
//! as it must, and none is lost.

use super::*;
use crate::arena::List;
use crate::layout::{Layout, Table, head};
use crate::record::{
    NEXT_FREE, Record, SESSION_CHUNKS_MAX, client, delegation, file, lock, open, owner, peer, range,
    recovery, session, waiter,
};

/// Panics unless the arena is consistent. Nobody may hold the lock.
pub(crate) fn check<W: Words>(state: &State<W>) {
    let arena = &state.arena;
    assert_eq!(arena.words.load(head::UNDO_COUNT), 0, "an undo log is left");
    assert_eq!(arena.words.load(head::CHANGES) % 2, 0, "a change is under way");
    let check = Check { arena };
    for kind in Kind::ALL {
        check.slab(kind);
    }
    check.clients();
    check.sessions();
    check.states();
    check.tables();
    check.strings();
    check.peers();
}

struct Check<'a, W> {
    arena: &'a Arena<W>,
}

impl<W: Words> Check<'_, W> {
    fn ever(&self, kind: Kind) -> impl Iterator<Item = Record> + use<'_, W> {
        let ever = self.arena.words.load(Layout::slab(kind) + 1) as u32;
        (1..=ever).map(move |index| Record { kind, index })
    }

    fn used(&self, kind: Kind) -> Vec<Record> {
        self.ever(kind).filter(|record| self.arena.in_use(*record).expect("in bounds")).collect()
    }

    fn read(&self, record: Record, field: usize) -> u64 {
        self.arena.read(record, field).expect("in bounds")
    }

    fn listed(&self, list: List) -> Vec<Record> {
        let (mut walk, mut records) = (self.arena.walk(list), Vec::new());
        while let Some(record) = walk.next(self.arena).expect("a list with an end") {
            assert!(self.arena.in_use(record).expect("in bounds"), "{record:?} is listed and free");
            records.push(record);
        }
        records
    }

    /// The records in the lists of all records of `of`.
    fn listed_by(&self, of: Kind, head: usize, kind: Kind, link: usize) -> Vec<Record> {
        let lists = self.used(of).into_iter().map(|record| {
            let list = self.arena.list(record, head, kind, link).expect("in bounds");
            self.listed(list)
        });
        lists.flatten().collect()
    }

    fn slab(&self, kind: Kind) {
        let used = self.used(kind).len() as u64;
        assert_eq!(used, self.arena.used(kind), "used {kind:?}");
        let (mut free, mut next) = (0, self.arena.words.load(Layout::slab(kind)));
        while next != 0 {
            let record = Record { kind, index: next as u32 };
            assert!(!self.arena.in_use(record).expect("in bounds"), "{record:?} is free and in use");
            free += 1;
            next = self.read(record, NEXT_FREE);
        }
        assert_eq!(used + free, self.ever(kind).count() as u64, "{kind:?} records are lost");
    }

    /// All records of `kind` are listed, each once.
    fn covers(&self, kind: Kind, listed: Vec<Record>, what: &str) {
        let mut indices: Vec<_> = listed.iter().map(|record| record.index).collect();
        indices.sort_unstable();
        let used: Vec<_> = self.used(kind).iter().map(|record| record.index).collect();
        assert_eq!(indices, used, "{what}");
    }

    fn clients(&self) {
        let dying = self.listed(List { head: head::DYING_CLIENTS, kind: Kind::Client, link: client::QUEUE });
        let ended = self.listed(List { head: head::FORGET, kind: Kind::Client, link: client::QUEUE });
        let dying = [dying, ended].concat();
        let fresh = self.listed(crate::lease::unconfirmed());
        assert_eq!(fresh.len() as u64, self.arena.words.load(head::UNCONFIRMED_COUNT));
        let is_host = |record: &Record| {
            self.read(*record, client::FLAGS) & (client::NLM | client::DYING) == client::NLM
        };
        let hosts = self.used(Kind::Client).into_iter().filter(is_host).count() as u64;
        assert_eq!(hosts, self.arena.words.load(head::NLM_COUNT));
        let due = self.listed(List { head: head::PERSIST, kind: Kind::Client, link: client::QUEUE });
        for record in self.used(Kind::Client) {
            let flags = self.read(record, client::FLAGS);
            assert_eq!(flags & client::DYING != 0, dying.contains(&record), "{record:?} dying");
            let is_fresh = flags & (client::CONFIRMED | client::DYING) == 0;
            assert_eq!(is_fresh, fresh.contains(&record), "{record:?} unconfirmed");
            assert_eq!(flags & client::PERSIST_DUE != 0, due.contains(&record), "{record:?} persist");
            for (list, link, kind, count) in [
                (client::SESSIONS, session::LINK, Kind::Session, client::SESSION_COUNT),
                (client::OPENS, open::BY_CLIENT, Kind::Open, client::OPEN_COUNT),
                (client::OWNERS, owner::LINK, Kind::Owner, client::OWNER_COUNT),
                (client::LOCKS, lock::BY_CLIENT, Kind::Lock, client::LOCK_COUNT),
                (client::DELEGATIONS, delegation::BY_CLIENT, Kind::Delegation, client::DELEGATION_COUNT),
                (client::WAITERS, waiter::BY_CLIENT, Kind::Waiter, client::WAITER_COUNT),
            ] {
                let list = self.arena.list(record, list, kind, link).expect("in bounds");
                assert_eq!(self.listed(list).len() as u64, self.read(record, count), "{kind:?} counted");
            }
        }
        assert_eq!(dying.len() + self.bucketed(Table::ClientById, client::BY_ID).len(), {
            self.used(Kind::Client).len()
        });
    }

    fn sessions(&self) {
        let mut listed = self.listed_by(Kind::Client, client::SESSIONS, Kind::Session, session::LINK);
        listed.extend(self.listed(List {
            head: head::DYING_SESSIONS,
            kind: Kind::Session,
            link: session::LINK,
        }));
        self.covers(Kind::Session, listed, "sessions");
        for record in self.used(Kind::Client) {
            let name = u64::from(self.arena.generation(record).expect("in bounds")) << 32;
            let name = name | u64::from(record.index);
            let sessions = self.used(Kind::Session).into_iter();
            let ended = sessions
                .filter(|of| self.read(*of, session::CLIENT) == name)
                .filter(|of| self.read(*of, session::FLAGS) & session::DYING != 0);
            assert_eq!(ended.count() as u64, self.read(record, client::DYING_SESSION_COUNT), "{record:?}");
        }
        let chunks = self.used(Kind::Session).into_iter().flat_map(|record| {
            let named = |at| self.arena.named(record, session::CHUNKS + at, Kind::Chunk).expect("in bounds");
            (0..SESSION_CHUNKS_MAX).filter_map(named).collect::<Vec<_>>()
        });
        self.covers(Kind::Chunk, chunks.collect(), "blocks of slots");
    }

    fn states(&self) {
        for (of, head, kind, link) in [
            (Kind::Client, client::OPENS, Kind::Open, open::BY_CLIENT),
            (Kind::File, file::OPENS, Kind::Open, open::BY_FILE),
            (Kind::Client, client::LOCKS, Kind::Lock, lock::BY_CLIENT),
            (Kind::File, file::RANGES, Kind::Range, range::BY_FILE),
            (Kind::Lock, lock::RANGES, Kind::Range, range::BY_LOCK),
            (Kind::Client, client::OWNERS, Kind::Owner, owner::LINK),
            (Kind::Client, client::DELEGATIONS, Kind::Delegation, delegation::BY_CLIENT),
            (Kind::File, file::DELEGATIONS, Kind::Delegation, delegation::BY_FILE),
            (Kind::Client, client::WAITERS, Kind::Waiter, waiter::BY_CLIENT),
            (Kind::File, file::WAITERS, Kind::Waiter, waiter::BY_FILE),
        ] {
            self.covers(kind, self.listed_by(of, head, kind, link), kind.name());
        }
        let uses = |kind: Kind, field: usize, named: Record| {
            self.used(kind)
                .into_iter()
                .filter(|record| self.read(*record, field) == u64::from(named.index))
                .count() as u64
        };
        self.delegations();
        for record in self.used(Kind::Owner) {
            let states = uses(Kind::Open, open::OWNER, record)
                + uses(Kind::Lock, lock::OWNER, record)
                + uses(Kind::Waiter, waiter::OWNER, record);
            assert_eq!(states, self.read(record, owner::USES), "uses of {record:?}");
            assert!(states > 0, "{record:?} is kept for nothing");
        }
        for record in self.used(Kind::File) {
            let states = uses(Kind::Open, open::FILE, record)
                + uses(Kind::Lock, lock::FILE, record)
                + uses(Kind::Delegation, delegation::FILE, record)
                + uses(Kind::Waiter, waiter::FILE, record);
            assert_eq!(states, self.read(record, file::USES), "uses of {record:?}");
            let waiters = uses(Kind::Waiter, waiter::FILE, record);
            assert_eq!(waiters, self.read(record, file::WAITER_COUNT), "waiters of {record:?}");
            assert!(states > 0, "{record:?} is kept for nothing");
        }
    }

    /// Recalls are in their queues, and what is counted by hash is what there is.
    fn delegations(&self) {
        // RECALLED and REVOKED.
        let all = self.used(Kind::Delegation);
        let is = |record: &Record, state| self.read(*record, delegation::STATE) == state;
        let mut recalled: Vec<_> = all.iter().copied().filter(|record| is(record, 1)).collect();
        let live: Vec<_> = all.into_iter().filter(|record| !is(record, 2)).collect();
        let queue = |head, link| self.listed(List { head, kind: Kind::Delegation, link });
        let unsent = queue(head::RECALLS, delegation::QUEUE);
        let mut queued = [unsent, queue(head::RECALLS_SENT, delegation::QUEUE)].concat();
        let mut by_age = queue(head::RECALLS_BY_AGE, delegation::BY_AGE);
        for records in [&mut recalled, &mut queued, &mut by_age] {
            records.sort_unstable_by_key(|record| record.index);
        }
        assert_eq!((&queued, &by_age), (&recalled, &recalled), "recalls are queued");
        for record in self.used(Kind::Client) {
            let its = recalled.iter().filter(|of| self.read(**of, delegation::CLIENT) == record.index.into());
            assert_eq!(its.count() as u64, self.read(record, client::RECALLED_COUNT), "{record:?}");
        }
        let mut counted = std::collections::BTreeMap::new();
        let layout = &self.arena.layout;
        for record in self.used(Kind::File) {
            let its = live.iter().filter(|of| self.read(**of, delegation::FILE) == record.index.into());
            let delegated = its.count() as u64;
            assert_eq!(delegated, self.read(record, file::DELEGATED), "delegations of {record:?}");
            let denies = |of: &&Record| self.arena.mode(**of).expect("in bounds").deny != 0;
            let opens = self.used(Kind::Open);
            let its = opens.iter().filter(|of| self.read(**of, open::FILE) == record.index.into());
            let place = layout.shared(self.read(record, file::HASH));
            *counted.entry(place).or_insert(0) += delegated + ((its.filter(denies).count() as u64) << 32);
        }
        for at in layout.all_shared().step_by(crate::layout::shared::WORDS) {
            let expected = counted.get(&at).copied().unwrap_or(0);
            let found = self.arena.words.load(at);
            let is_settled = found == expected || expected as u32 == 0 && found == expected | 1 << 31;
            assert!(is_settled, "counted by hash: {found:#x} instead of {expected:#x}");
        }
    }

    /// What is counted for an address is what its clients and sessions have.
    fn peers(&self) {
        let of = |kind: Kind, owner: Kind, named: usize, link: usize, peer: Record| {
            let its = |record: &Record| {
                let of = self.arena.owning(*record, named, owner).expect("in bounds");
                self.read(of, link) == u64::from(peer.index)
            };
            self.used(kind).iter().filter(|record| its(record)).count() as u64
        };
        for record in self.used(Kind::Peer) {
            let its = |kind: Kind, field: usize| {
                let named = |of: &&Record| self.read(**of, field) == u64::from(record.index);
                self.used(kind).iter().filter(named).copied().collect::<Vec<_>>()
            };
            let (clients, sessions) = (its(Kind::Client, client::PEER), its(Kind::Session, session::PEER));
            let uses = clients.len() + sessions.len();
            assert_eq!(uses as u64, self.read(record, peer::USES), "uses of {record:?}");
            assert!(uses > 0, "{record:?} is kept for nothing");
            let with = |flags| {
                let all = client::CONFIRMED | client::DYING;
                clients.iter().filter(|of| self.read(**of, client::FLAGS) & all == flags).count() as u64
            };
            assert_eq!(with(0), self.read(record, peer::UNCONFIRMED), "unconfirmed of {record:?}");
            let counted = |kind: Kind| self.read(record, peer::COUNTS + kind as usize);
            assert_eq!(with(client::CONFIRMED), counted(Kind::Client), "confirmed clients of {record:?}");
            assert_eq!(sessions.len() as u64, counted(Kind::Session), "sessions of {record:?}");
            let by_client = |kind, named| of(kind, Kind::Client, named, client::PEER, record);
            for (kind, named) in [
                (Kind::Open, open::CLIENT),
                (Kind::Lock, lock::CLIENT),
                (Kind::Delegation, delegation::CLIENT),
                (Kind::Waiter, waiter::CLIENT),
                (Kind::Owner, owner::CLIENT),
            ] {
                assert_eq!(by_client(kind, named), counted(kind), "{kind:?} of {record:?}");
            }
        }
    }

    fn bucketed(&self, table: Table, link: usize) -> Vec<Record> {
        let (base, buckets) = self.arena.layout.table(table);
        let lists = (base..base + buckets).map(|head| List { head, kind: table.kind(), link });
        lists.flat_map(|list| self.listed(list)).collect()
    }

    fn tables(&self) {
        for (table, link) in [
            (Table::Owner, owner::BY_KEY),
            (Table::File, file::BY_KEY),
            (Table::Open, open::BY_KEY),
            (Table::Lock, lock::BY_KEY),
            (Table::Delegation, delegation::BY_KEY),
            (Table::Recovery, recovery::BY_OWNER),
            (Table::Peer, peer::BY_KEY),
        ] {
            self.covers(table.kind(), self.bucketed(table, link), table.kind().name());
        }
    }

    fn strings(&self) {
        let mut blobs = Vec::new();
        for (kind, field) in
            [(Kind::Client, client::OWNER), (Kind::Owner, owner::NAME), (Kind::Recovery, recovery::OWNER)]
        {
            for record in self.used(kind) {
                let mut next = self.arena.named(record, field, Kind::Blob).expect("in bounds");
                while let Some(blob) = next {
                    blobs.push(blob);
                    let index = self.read(blob, 1) as u32;
                    next = (index != 0).then_some(Record { kind: Kind::Blob, index });
                }
            }
        }
        self.covers(Kind::Blob, blobs, "strings");
    }
}
