//! Both ends against each other in a network with a virtual clock: bring-up, reads and writes of
//! all lengths with and without digests, changes of namespaces, spoiled data, and connections that
//! break at any byte. What is read must be what was written, and nothing may be left of what has
//! ended. `multipath` has a host with two paths, and a network that also holds and loses.
//!
//! The last seed that is printed is the one that failed; pass it to `run` to repeat the failure.

mod client;
mod multipath;
mod server;

use client::Client;
use fastrand::Rng;
use nvme::pdu::Digests;
use server::Server;
use std::collections::BTreeMap;
use std::time::Duration;

/// A number that identifies a connection at both ends.
pub type Link = u32;

/// The path of a connection, which is also the node that it goes to.
const fn path_of(link: Link) -> usize {
    (link >> 24) as usize
}

/// What may go wrong, in a thousand steps.
#[derive(Debug, Clone, Copy)]
struct Faults {
    breaks: u64,
    spoils: u64,
    changes: u64,
}

/// The bytes under way, in both directions.
#[derive(Default)]
struct Network {
    to_server: BTreeMap<Link, Vec<u8>>,
    to_client: BTreeMap<Link, Vec<u8>>,
}

impl Network {
    fn is_empty(&self) -> bool {
        self.to_server.values().chain(self.to_client.values()).all(Vec::is_empty)
    }
}

/// Takes some bytes from the front of one of the streams.
fn some(streams: &mut BTreeMap<Link, Vec<u8>>, random: &mut Rng) -> Option<(Link, Vec<u8>)> {
    let ready: Vec<Link> =
        streams.iter().filter(|(_, bytes)| !bytes.is_empty()).map(|(link, _)| *link).collect();
    let link = *ready.get(random.u64(..ready.len().max(1) as u64) as usize)?;
    Some((link, some_bytes(streams.get_mut(&link)?, random)))
}

/// Takes some bytes, at least one, from the front of a stream that has some.
fn some_bytes(stream: &mut Vec<u8>, random: &mut Rng) -> Vec<u8> {
    let most = if random.u64(..1000) < 200 { 9 } else { stream.len() as u64 };
    let length = (1 + random.u64(..most) as usize).min(stream.len());
    stream.drain(..length).collect()
}

/// Counts what the runs have shown, so that a run without faults or data does not pass for one.
#[derive(Debug, Default)]
struct Seen {
    reads: u64,
    writes: u64,
    breaks: u64,
    retries: u64,
    changes: u64,
}

fn run(seed: u64, digests: Digests, flow_control: bool, faults: Faults, seen: &mut Seen) {
    println!("seed {seed}");
    let mut random = Rng::with_seed(seed);
    let mut now = Duration::ZERO;
    let mut server = Server::new(now, false);
    let mut network = Network::default();
    let mut client = Client::new(now, digests, flow_control);
    for _ in 0..3000 {
        now += Duration::from_micros(random.u64(..2000));
        if (random.u64(..1000) < faults.changes) && client.is_live() {
            server.change_namespaces();
            seen.changes += 1;
        }
        step(now, &mut client, &mut server, &mut network, &mut random, faults, seen);
    }
    // No more faults: everything that was begun ends, and the last state is known.
    let calm = Faults { breaks: 0, spoils: 0, changes: 0 };
    client.stop();
    for _ in 0..200_000 {
        // An event may be under way to a host that only waits.
        if client.is_idle() && network.is_empty() && !server.has_to_send() {
            break;
        }
        now += Duration::from_micros(random.u64(..2000));
        step(now, &mut client, &mut server, &mut network, &mut random, calm, seen);
    }
    assert!(client.is_idle(), "everything ends");
    assert_eq!(client.namespaces, server.namespaces(), "the host knows what there is");
    client.compare(server.content());
    server.break_all(now);
    server.finish(now, &mut random);
    assert_eq!(server.controllers(), 0, "no controller is left");
    seen.reads += client.reads;
    seen.writes += client.writes;
    seen.retries += client.retries;
}

fn step(
    now: Duration,
    client: &mut Client,
    server: &mut Server,
    network: &mut Network,
    random: &mut Rng,
    faults: Faults,
    seen: &mut Seen,
) {
    client.work(now, random);
    for (link, bytes) in client.take_sent() {
        network.to_server.entry(link).or_default().extend(bytes);
    }
    if let Some((link, bytes)) = some(&mut network.to_server, random) {
        server.receive(now, link, &bytes, random, faults.spoils);
    }
    server.work(now, random);
    for (link, bytes) in server.take_sent() {
        network.to_client.entry(link).or_default().extend(bytes);
    }
    if let Some((link, bytes)) = some(&mut network.to_client, random) {
        client.receive(now, link, &bytes, random, faults.spoils);
    }
    let links: Vec<Link> = client.links();
    let broken = if links.is_empty() || random.u64(..1000) >= faults.breaks { None } else { links.first() };
    for link in server.take_closed().into_iter().chain(broken.copied()) {
        seen.breaks += 1;
        network.to_server.remove(&link);
        network.to_client.remove(&link);
        server.break_link(now, link);
        client.lost(link);
    }
    // A host that lost a connection gives up the controller and begins anew, but sends nothing
    // again before the old controller is gone.
    if client.has_lost() {
        for link in client.links() {
            network.to_server.remove(&link);
            network.to_client.remove(&link);
            server.break_link(now, link);
        }
        if server.controllers() == 0 {
            client.begin_again(now);
        }
    }
}

const NO_FAULTS: Faults = Faults { breaks: 0, spoils: 0, changes: 0 };

fn campaign(seeds: std::ops::Range<u64>, faults: Faults) -> Seen {
    let mut seen = Seen::default();
    for seed in seeds {
        let digests = Digests { header: seed & 1 != 0, data: seed & 2 != 0 };
        run(seed, digests, seed & 4 != 0, faults, &mut seen);
    }
    println!("{seen:?}");
    seen
}

#[test]
fn what_was_written_is_read() {
    let seen = campaign(0..24, NO_FAULTS);
    assert!(seen.reads > 1000 && seen.writes > 1000 && seen.breaks == 0 && seen.retries == 0);
}

#[test]
fn connections_that_break_leave_old_or_new_data_and_nothing_else() {
    let seen = campaign(100..140, Faults { breaks: 2, ..NO_FAULTS });
    assert!(seen.breaks > 50 && seen.writes > 1000);
}

#[test]
fn spoiled_data_are_found_by_their_digests_and_sent_again() {
    let mut seen = Seen::default();
    for seed in 200..216 {
        let digests = Digests { header: true, data: true };
        run(seed, digests, seed & 1 != 0, Faults { spoils: 20, ..NO_FAULTS }, &mut seen);
    }
    println!("{seen:?}");
    assert!(seen.retries > 100 && seen.breaks == 0);
}

#[test]
fn namespaces_that_come_and_go_are_noticed() {
    let seen = campaign(300..312, Faults { changes: 5, ..NO_FAULTS });
    assert!(seen.changes > 50);
}

#[test]
fn everything_at_once() {
    campaign(400..440, Faults { breaks: 2, spoils: 0, changes: 5 });
}
