//! Simulates a client, a network that duplicates, delays, reorders and loses, and a server, over
//! several connections.
//!
//! The client is our own: it uses [`XidSpace`], moves calls between connections, and sometimes
//! abandons a call. The server asks the reply cache before it executes a call. For every seed, no
//! call is executed twice, every reply is that of the single execution and goes to the connection
//! on which the call arrived last, no call that the client waits for is refused, and in the end
//! every call is answered.

use std::collections::BTreeMap;
use std::time::Duration;

use drc::shared::SingleProcess;
use drc::{
    Begin, CallKey, ClientWindow, ConnectionId, ConnectionTable, ForeignCall, LookupContext, Origin, Outcome,
    Refusal, ReplyTo, Stored, Table, Token, XidClass, XidSpace,
};
use rpc::Xid;
use rpc::call::CallHeader;

const CONNECTIONS: u64 = 5;
const STEPS: u32 = 120_000;
const SEEDS: u64 = 12;
/// The number of late copies that the network keeps to deliver at any time.
const GHOSTS_MAX: usize = 3_000;

/// Pseudo-random numbers from a seed: splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn percent(&mut self, share: u64) -> bool {
        self.next() % 100 < share
    }
}

/// One of the two parts of the cache.
enum Cache {
    Window(ClientWindow),
    Table(Table),
}

impl Cache {
    fn begin(&mut self, xid: Xid, token: Token, now: Duration) -> Begin {
        match self {
            Self::Window(window) => window.begin(xid, token, now),
            Self::Table(table) => table.begin(
                &call(xid),
                token,
                &LookupContext::new(ConnectionTable::new(&[], &SingleProcess), now, now),
            ),
        }
    }

    fn finish(&mut self, xid: Xid, outcome: Outcome<'_>, now: Duration) -> ReplyTo {
        match self {
            Self::Window(window) => window.finish(xid, outcome, now),
            Self::Table(table) => table.finish(&call(xid), outcome, now),
        }
    }
}

/// The client is the only one at its address, and its connections are unknown, so every copy is a
/// retry.
fn call(xid: Xid) -> ForeignCall {
    let header = CallHeader {
        xid,
        program: 100_003,
        version: 3,
        procedure: 8,
        credential_flavor: 1,
        credential_body: b"somebody",
    };
    let key = CallKey::new(&header, 0, [192, 0, 2, 1].into());
    ForeignCall { key, origin: Origin { connection: ConnectionId::NONE, path: 1 } }
}

/// What the run has covered. A simulation in which a case never occurred proves nothing about it.
#[derive(Debug, Default)]
struct Coverage {
    runs: u32,
    replays: u32,
    attached: u32,
    below_window: u32,
    dropped: u32,
    client_waited: u32,
}

struct World {
    random: Random,
    cache: Cache,
    xids: XidSpace,
    /// Calls that the client waits for.
    outstanding: Vec<Xid>,
    /// Messages in flight: the call and the connection, in no order.
    network: Vec<(Xid, Token)>,
    ghosts: Vec<(Xid, Token)>,
    stalled: Option<Token>,
    /// Running calls, and the connection that gets the reply.
    running: Vec<(Xid, Option<Token>)>,
    /// The result of each executed call.
    ended: BTreeMap<u32, Stored>,
    coverage: Coverage,
    now: Duration,
}

impl World {
    fn new(seed: u64, cache: Cache, start: u32) -> Self {
        Self {
            random: Random(seed),
            cache,
            xids: XidSpace::new(start),
            outstanding: Vec::new(),
            network: Vec::new(),
            ghosts: Vec::new(),
            stalled: None,
            running: Vec::new(),
            ended: BTreeMap::new(),
            coverage: Coverage::default(),
            now: Duration::from_secs(1),
        }
    }

    fn step(&mut self) {
        match self.random.below(100) {
            0..40 => self.issue(),
            40..50 => self.send_again(),
            50..51 => self.give_up(),
            51..52 => self.stall_or_revive(),
            52..72 => self.deliver(),
            72..80 => self.deliver_a_late_copy(),
            80..82 => self.lose(),
            _ => self.finish_one(),
        }
    }

    fn connection(&mut self) -> Token {
        Token(self.random.next() % CONNECTIONS)
    }

    fn issue(&mut self) {
        let class = if self.random.percent(60) { XidClass::DoneBit } else { XidClass::WholeReply };
        // Two calls at a time, or the calls would never reach the end of the window.
        for _ in 0..2 {
            let Some(xid) = self.xids.next(class) else {
                self.coverage.client_waited += 1;
                return;
            };
            self.outstanding.push(xid);
            let connection = self.connection();
            self.network.push((xid, connection));
        }
    }

    fn send_again(&mut self) {
        if !self.outstanding.is_empty() {
            let xid = self.outstanding[self.random.below(self.outstanding.len())];
            let connection = self.connection();
            self.network.push((xid, connection));
        }
    }

    /// The timeout of a soft mount. Copies of the call are still in flight.
    fn give_up(&mut self) {
        if !self.outstanding.is_empty() && self.random.percent(20) {
            let at = self.random.below(self.outstanding.len());
            self.complete(at);
        }
    }

    fn complete(&mut self, at: usize) {
        let xid = self.outstanding.swap_remove(at);
        self.xids.complete(xid);
    }

    fn stall_or_revive(&mut self) {
        if self.random.percent(4) {
            self.stalled = match self.stalled {
                Some(_) => None,
                None => Some(self.connection()),
            };
        }
    }

    fn deliver(&mut self) {
        for _ in 0..4 {
            if self.network.is_empty() {
                return;
            }
            let at = self.random.below(self.network.len());
            let (xid, token) = self.network[at];
            if Some(token) == self.stalled {
                continue;
            }
            self.network.swap_remove(at);
            if self.random.percent(10) {
                if self.ghosts.len() == GHOSTS_MAX {
                    let oldest = self.random.below(GHOSTS_MAX);
                    self.ghosts.swap_remove(oldest);
                }
                self.ghosts.push((xid, token));
            }
            self.arrive(xid, token);
        }
    }

    fn deliver_a_late_copy(&mut self) {
        if !self.ghosts.is_empty() {
            let (xid, token) = self.ghosts[self.random.below(self.ghosts.len())];
            self.arrive(xid, token);
        }
    }

    fn lose(&mut self) {
        if !self.network.is_empty() {
            let at = self.random.below(self.network.len());
            self.network.swap_remove(at);
        }
    }

    fn arrive(&mut self, xid: Xid, token: Token) {
        let running = self.running.iter_mut().find(|(running, _)| *running == xid);
        match self.cache.begin(xid, token, self.now) {
            Begin::Run => {
                assert!(running.is_none(), "{xid} is executed while it runs");
                assert!(!self.ended.contains_key(&xid.0), "{xid} is executed twice");
                self.coverage.runs += 1;
                self.running.push((xid, None));
            }
            Begin::Attached => {
                running.expect("attached to a call that runs").1 = Some(token);
                self.coverage.attached += 1;
            }
            Begin::Replay(stored) => {
                assert_eq!(
                    Some(&stored),
                    self.ended.get(&xid.0),
                    "the reply to {xid} is that of its execution"
                );
                self.coverage.replays += 1;
                self.answer(xid);
            }
            Begin::Refused(Refusal::BelowWindow) => {
                assert!(!self.outstanding.contains(&xid), "{xid} is refused while the client waits for it");
                self.coverage.below_window += 1;
            }
            Begin::Refused(refusal) => panic!("{xid} is refused: {refusal:?}"),
            Begin::Defer => panic!("{xid} belongs to no neighbour"),
        }
    }

    fn finish_one(&mut self) {
        for _ in 0..3 {
            if self.running.is_empty() {
                return;
            }
            let at = self.random.below(self.running.len());
            let (xid, to) = self.running.swap_remove(at);
            self.end(xid, to);
        }
    }

    fn end(&mut self, xid: Xid, to: Option<Token>) {
        let body = xid.0.to_be_bytes();
        let stored = match XidClass::of(xid) {
            Some(XidClass::WholeReply) => Stored::Reply(body.into()),
            _ if self.random.percent(20) => Stored::Failed(1 + xid.0 % 10_008),
            _ => Stored::Done,
        };
        let outcome = match &stored {
            _ if self.random.percent(1) => Outcome::Dropped,
            Stored::Reply(bytes) => Outcome::Reply(bytes),
            Stored::Failed(status) => Outcome::Failed(*status),
            Stored::Done => Outcome::Done,
        };
        let answer = self.cache.finish(xid, outcome, self.now);
        assert_eq!(
            answer.waiter, to,
            "the reply to {xid} goes to the connection where the call arrived last"
        );
        if outcome == Outcome::Dropped {
            self.coverage.dropped += 1;
            return;
        }
        self.ended.insert(xid.0, stored);
        self.answer(xid);
    }

    /// Delivers a reply, or loses it.
    fn answer(&mut self, xid: Xid) {
        if self.random.percent(90)
            && let Some(at) = self.outstanding.iter().position(|outstanding| *outstanding == xid)
        {
            self.complete(at);
        }
    }

    /// Makes no new calls, and sends each outstanding call until it is answered.
    fn settle(&mut self) {
        self.stalled = None;
        for _ in 0..100 {
            for xid in self.outstanding.clone() {
                let connection = self.connection();
                self.network.push((xid, connection));
            }
            while let Some((xid, token)) = self.network.pop() {
                self.arrive(xid, token);
            }
            while let Some((xid, to)) = self.running.pop() {
                self.end(xid, to);
            }
        }
        assert!(self.outstanding.is_empty(), "never answered: {:?}", self.outstanding);
    }

    fn run(mut self, steps: u32) -> Coverage {
        for _ in 0..steps {
            self.step();
        }
        self.settle();
        self.coverage
    }
}

#[test]
fn no_call_of_our_client_is_executed_twice_or_refused_while_it_waits() {
    for seed in 0..SEEDS {
        // Half of the runs pass the end of the counters.
        let start = if seed % 2 == 0 { u32::MAX - 5_000 } else { Random(seed).next() as u32 };
        let window = ClientWindow::new(seed, [10, 0, 0, 1].into(), Duration::ZERO);
        let coverage = World::new(seed, Cache::Window(window), start).run(STEPS);
        let all = [
            coverage.runs,
            coverage.replays,
            coverage.attached,
            coverage.below_window,
            coverage.dropped,
            coverage.client_waited,
        ];
        assert!(all.into_iter().all(|count| count > 10), "seed {seed} covered too little: {coverage:?}");
    }
}

#[test]
fn no_call_of_another_client_is_executed_twice_while_the_table_has_it() {
    for seed in 0..4 {
        let table = Table::new(STEPS as usize);
        let coverage = World::new(seed, Cache::Table(table), 0).run(STEPS / 4);
        assert_eq!(coverage.below_window, 0);
        let all = [coverage.runs, coverage.replays, coverage.attached, coverage.dropped];
        assert!(all.into_iter().all(|count| count > 10), "seed {seed} covered too little: {coverage:?}");
    }
}
