//! A host with two paths to a subsystem, one to each node, whose connections break, fall silent
//! and deliver late, while host and target stand still for a while or the host starts again. The
//! host recovers by the protocol only: it connects again, has lost controllers ended by End
//! Controller or Cross-Controller Reset, and waits for the safe time where nobody answers.
//!
//! Fences and controllers are the real ones ([`nvme::host::Fences`], [`nvme::controller`]). When
//! the host takes a path for lost is modelled after the loop of an attachment; the target executes
//! commands of the same blocks in any order, so that nothing but the fences protects them.
//!
//! The nodes are of one process, or of two, which ask each other to end controllers.
//!
//! What holds after each step: the blocks of the volume never go back to an older write
//! ([`user`]); each command is completed once, and no other; the target executes nothing of a
//! controller that it reported as finished ([`Server`]). When faults have stopped, all commands
//! complete within [`RECOVERY`].

mod host;
mod network;
mod user;

use crate::Link;
use crate::server::Server;
use fastrand::Rng;
use host::{Host, Knows, Traits};
use network::{Delivery, Direction, Network};
use nvme::pdu::Digests;
use std::collections::BTreeSet;
use std::time::Duration;

/// How long a history has faults.
const FAULTY: Duration = Duration::from_secs(40);

/// Within which time all commands complete when the faults are over: the safe time of three
/// keep-alive timeouts, and a few seconds to connect again.
const RECOVERY: Duration = Duration::from_secs(25);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Counts what the histories have shown, so that one without faults does not pass for one.
#[derive(Debug, Default)]
struct Seen {
    reads: u64,
    writes: u64,
    breaks: u64,
    holds: u64,
    host_stalls: u64,
    target_stalls: u64,
    restarts: u64,
    lost: u64,
    fenced: u64,
    by_answer: u64,
    by_time: u64,
    waited_most: Duration,
    recovered_in: Duration,
}

/// Which faults there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mix {
    /// All, mostly on one path, so that the target can be asked on the other one.
    Any,
    /// Both paths hold what the host sends for about the safe time, so that time decides; beside
    /// that, the target stands still for less time than ends its connections.
    NobodyAnswers,
    /// One path holds what the host sends for up to the safe time, and the target cannot be asked.
    NobodyKnows,
}

/// An end that stands still, and what arrives for it meanwhile.
#[derive(Debug, Default)]
struct Stall {
    since: Duration,
    until: Duration,
    inbox: Vec<Delivery>,
}

struct World {
    mix: Mix,
    now: Duration,
    random: Rng,
    host: Host,
    target: Server,
    network: Network,
    host_stall: Option<Stall>,
    target_stall: Option<Stall>,
    /// The connections that an end has given up.
    gone_at_host: BTreeSet<Link>,
    gone_at_target: BTreeSet<Link>,
    next_io: Duration,
    next_fault: Duration,
    seen: Seen,
}

impl World {
    fn new(seed: u64, mix: Mix) -> Self {
        let mut random = Rng::with_seed(seed);
        let digests = Digests { header: seed & 4 != 0, data: seed & 8 != 0 };
        let target_knows = match seed % 4 {
            _ if mix == Mix::NobodyKnows => Knows::Nothing,
            0 => Knows::CrossReset,
            1 if mix == Mix::Any => Knows::Nothing,
            _ => Knows::EndController,
        };
        let traits = Traits { digests, flow_control: seed & 16 != 0, target_knows };
        let mut target = Server::new(Duration::ZERO, seed & 32 != 0);
        target.forgives_stalls = target_knows != Knows::Nothing;
        target.latency_ms = [20, 500, 3000][random.usize(..3)];
        Self {
            mix,
            now: Duration::ZERO,
            random,
            host: Host::new(traits),
            target,
            network: Network::default(),
            host_stall: None,
            target_stall: None,
            gone_at_host: BTreeSet::new(),
            gone_at_target: BTreeSet::new(),
            next_io: Duration::ZERO,
            next_fault: ms(500),
            seen: Seen::default(),
        }
    }

    fn step(&mut self) {
        let is_busy = self.network.has_ready() && self.random.u8(..4) != 0;
        let most = if is_busy { 300 } else { 10_000 };
        self.now += Duration::from_micros(self.random.u64(..most));
        self.network.release(self.now, &mut self.random);
        self.resume();
        if self.host_stall.is_none() {
            self.host.tick(self.now);
            self.host.dispatch(self.now, &mut self.random);
        }
        if self.target_stall.is_none() {
            self.target.work(self.now, &mut self.random);
            for (start, data) in std::mem::take(&mut self.target.written) {
                self.host.user.executed(start, &data);
            }
        }
        self.send();
        for to in [Direction::ToTarget, Direction::ToHost] {
            for _ in 0..self.random.u8(1..4) {
                if let Some(delivery) = self.network.deliver(to, &mut self.random) {
                    self.deliver(to, delivery);
                }
            }
        }
    }

    /// Puts on the network what both ends have for it.
    fn send(&mut self) {
        for (link, bytes) in self.host.take_sent() {
            self.network.send(Direction::ToTarget, link, &bytes);
        }
        for link in self.host.take_closed() {
            self.gone_at_host.insert(link);
            self.network.close(Direction::ToTarget, link);
        }
        for (link, bytes) in self.target.take_sent() {
            self.network.send(Direction::ToHost, link, &bytes);
        }
        for link in self.target.take_closed() {
            self.close_at_target(link);
        }
    }

    fn close_at_target(&mut self, link: Link) {
        self.target.break_link(self.now, link);
        if self.gone_at_target.insert(link) {
            self.network.close(Direction::ToHost, link);
        }
    }

    fn deliver(&mut self, to: Direction, delivery: Delivery) {
        let stall = match to {
            Direction::ToTarget => &mut self.target_stall,
            Direction::ToHost => &mut self.host_stall,
        };
        if let Some(stall) = stall {
            return stall.inbox.push(delivery);
        }
        match (to, delivery) {
            // An end that has given a connection up says so to whom sends on it.
            (Direction::ToTarget, Delivery::Bytes(link, _)) if self.gone_at_target.contains(&link) => {
                self.network.close(Direction::ToHost, link);
            }
            (Direction::ToHost, Delivery::Bytes(link, _)) if self.gone_at_host.contains(&link) => {
                self.network.close(Direction::ToTarget, link);
            }
            (Direction::ToTarget, Delivery::Bytes(link, bytes)) => {
                self.target.receive(self.now, link, &bytes, &mut self.random, 0);
            }
            (Direction::ToHost, Delivery::Bytes(link, bytes)) => self.host.receive(self.now, link, &bytes),
            (Direction::ToTarget, Delivery::End(link)) => self.close_at_target(link),
            (Direction::ToHost, Delivery::End(link)) => self.host.ended(self.now, link),
        }
    }

    /// Lets the ends go on whose stall is over.
    fn resume(&mut self) {
        let now = self.now;
        if let Some(stall) = self.host_stall.take_if(|stall| now >= stall.until) {
            // It looks at the time before it looks at its connections, or after.
            if self.random.bool() {
                self.host.tick(now);
            }
            stall.inbox.into_iter().for_each(|delivery| self.deliver(Direction::ToHost, delivery));
        }
        if let Some(stall) = self.target_stall.take_if(|stall| now >= stall.until) {
            for link in self.target.resume(now, now - stall.since) {
                self.close_at_target(link);
            }
            stall.inbox.into_iter().for_each(|delivery| self.deliver(Direction::ToTarget, delivery));
        }
    }

    /// A time below one of these.
    fn random_ms(&mut self, most: [u64; 3]) -> Duration {
        let most = most[self.random.usize(..3)];
        ms(self.random.u64(..most))
    }

    fn user_begins(&mut self) {
        if self.now >= self.next_io && self.host_stall.is_none() {
            self.next_io = self.now + ms(self.random.u64(..60));
            (0..self.random.u8(1..4)).for_each(|_| self.host.begin(&mut self.random));
        }
    }

    fn fault(&mut self) {
        if self.now < self.next_fault {
            return;
        }
        match self.mix {
            Mix::Any => {
                self.next_fault = self.now + self.random_ms([300, 3_000, 12_000]);
                self.any_fault();
            }
            Mix::NobodyAnswers => {
                self.next_fault = self.now + self.random_ms([300, 1_000, 4_000]);
                self.silence();
            }
            Mix::NobodyKnows => {
                self.next_fault = self.now + ms(1_000);
                if self.network.is_calm() {
                    self.seen.holds += 1;
                    let until = self.now + ms(self.random.u64(4_000..16_000));
                    self.network.hold(self.random.usize(..2), Direction::ToTarget, until, true);
                }
            }
        }
    }

    fn any_fault(&mut self) {
        match self.random.u8(..20) {
            0..4 => {
                let Some(link) = self.random.choice(self.host.links()) else { return };
                self.seen.breaks += 1;
                self.host.ended(self.now, link);
            }
            4..8 => {
                let Some(link) = self.random.choice(self.target.links()) else { return };
                self.seen.breaks += 1;
                self.close_at_target(link);
            }
            8..13 => {
                let path = self.random.usize(..2);
                self.hold(path);
            }
            13..15 => (0..2).for_each(|path| self.hold(path)),
            15..17 if self.target_stall.is_none() => {
                self.seen.target_stalls += 1;
                self.target_stall = Some(self.stall());
            }
            17..19 if self.host_stall.is_none() => {
                self.seen.host_stalls += 1;
                self.host_stall = Some(self.stall());
            }
            // Which controllers an earlier process has left, time would have to decide.
            19 if self.host_stall.is_none() && self.host.traits.target_knows != Knows::Nothing => {
                self.seen.restarts += 1;
                self.host.restart(self.now);
            }
            _ => {}
        }
    }

    /// Both paths hold what is sent to the target, which stands still now and then meanwhile.
    fn silence(&mut self) {
        if self.network.is_calm() {
            self.seen.holds += 2;
            // The first to return is asked for what the other one still holds.
            let first = self.random.usize(..2);
            let mut until = self.now + ms(self.random.u64(12_000..18_000));
            self.network.hold(first, Direction::ToTarget, until, true);
            until += ms(self.random.u64(..6_000));
            self.network.hold(1 - first, Direction::ToTarget, until, true);
        } else if self.target_stall.is_none() {
            self.seen.target_stalls += 1;
            let until = self.now + ms(self.random.u64(..4_000));
            self.target_stall = Some(Stall { since: self.now, until, inbox: Vec::new() });
        }
    }

    /// Directions of a path deliver nothing for a while.
    fn hold(&mut self, path: usize) {
        self.seen.holds += 1;
        let until = self.now + self.random_ms([500, 5_000, 25_000]);
        let keeps = self.random.bool();
        let which = self.random.u8(1..4);
        for to in [Direction::ToTarget, Direction::ToHost] {
            if which & (1 << to as u8) != 0 {
                self.network.hold(path, to, until, keeps);
            }
        }
    }

    fn stall(&mut self) -> Stall {
        let until = self.now + self.random_ms([800, 4_000, 12_000]);
        Stall { since: self.now, until, inbox: Vec::new() }
    }

    /// No more faults: everything that was begun completes.
    fn recover(&mut self) {
        let calm_from = self.now;
        self.network.release_all(&mut self.random);
        for stall in [&mut self.host_stall, &mut self.target_stall].into_iter().flatten() {
            stall.until = calm_from;
        }
        while !(self.host.is_idle() && self.network.is_calm()) {
            assert!(self.now < calm_from + RECOVERY, "all commands complete");
            self.step();
        }
        self.seen.recovered_in = self.now - calm_from;
    }
}

/// Names the seed of a history that fails.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {0}; run it alone with SIM_SEED={0}", self.0);
        }
    }
}

fn run(seed: u64, mix: Mix, all: &mut Seen) {
    let _seed = Seed(seed);
    let mut world = World::new(seed, mix);
    while world.now < FAULTY {
        world.user_begins();
        world.fault();
        world.step();
    }
    world.recover();
    let (host, seen) = (&world.host, &world.seen);
    all.reads += host.user.reads;
    all.writes += host.user.writes;
    all.breaks += seen.breaks;
    all.holds += seen.holds;
    all.host_stalls += seen.host_stalls;
    all.target_stalls += seen.target_stalls;
    all.restarts += seen.restarts;
    all.lost += host.lost;
    all.fenced += host.fenced;
    all.by_answer += host.lifted_by_answer;
    all.by_time += host.lifted_by_time;
    all.waited_most = all.waited_most.max(host.waited_most);
    all.recovered_in = all.recovered_in.max(seen.recovered_in);
}

/// Runs histories; `None` if the environment chose one, which alone need not show everything.
fn campaign(seeds: std::ops::Range<u64>, mix: Mix) -> Option<Seen> {
    let chosen: Option<u64> = std::env::var("SIM_SEED").ok().and_then(|seed| seed.parse().ok());
    let mut seen = Seen::default();
    chosen.map_or(seeds, |seed| seed..seed + 1).for_each(|seed| run(seed, mix, &mut seen));
    println!("{seen:?}");
    chosen.is_none().then_some(seen)
}

#[test]
fn no_late_original_lands_whatever_breaks_stalls_or_is_late() {
    let Some(seen) = campaign(0..60, Mix::Any) else { return };
    assert!(seen.reads > 10_000 && seen.writes > 10_000 && seen.breaks > 200 && seen.holds > 200);
    assert!(seen.host_stalls > 50 && seen.target_stalls > 50 && seen.restarts > 20, "{seen:?}");
    assert!(seen.by_answer > 100 && seen.by_time > 20, "{seen:?}");
}

// Seed 20: a fence was lifted by time while nobody could be asked, and the target had not counted
// the time in which it stood still.
#[test]
fn no_late_original_lands_although_nobody_answers_for_the_safe_time() {
    let Some(seen) = campaign(0..60, Mix::NobodyAnswers) else { return };
    assert!(seen.holds > 200 && seen.target_stalls > 200 && seen.by_answer > 100, "{seen:?}");
}

#[test]
fn no_late_original_lands_although_only_time_decides() {
    let Some(seen) = campaign(0..60, Mix::NobodyKnows) else { return };
    assert!(seen.holds > 200 && seen.by_answer == 0 && seen.by_time > 100, "{seen:?}");
}
