//! The bytes under way on two paths. Within a connection they arrive in order; between connections
//! in any. Each direction of a path may hold what it has for a while.
//!
//! As long as both ends keep a connection, TCP repeats what was lost, so that a loss is a delay.
//! What an end that gave its connection up had sent is either lost for good, or arrives at once
//! when the hold is over: a *late original*. It comes in one burst: a network that delivers parts
//! of it many seconds apart would defeat the safe time of TP4129, which counts on that it does not.

use crate::{Link, path_of, some_bytes};
use fastrand::Rng;
use std::collections::BTreeMap;
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    ToTarget,
    ToHost,
}

/// What arrives.
#[derive(Debug)]
pub enum Delivery {
    Bytes(Link, Vec<u8>),
    /// The other end is gone.
    End(Link),
}

#[derive(Debug, Default)]
struct Stream {
    bytes: Vec<u8>,
    /// The sender is gone; the receiver sees that after the bytes.
    is_ended: bool,
}

#[derive(Debug, Clone, Copy)]
struct Hold {
    until: Duration,
    /// What was sent before the sender gave up still arrives.
    keeps: bool,
}

#[derive(Debug, Default)]
struct Way {
    hold: Option<Hold>,
    streams: BTreeMap<Link, Stream>,
}

#[derive(Debug, Default)]
pub struct Network {
    /// Of each path, by direction.
    ways: [[Way; 2]; 2],
    /// What is late and arrives now.
    late: [Vec<Delivery>; 2],
}

impl Network {
    fn way(&mut self, link: Link, to: Direction) -> &mut Way {
        &mut self.ways[path_of(link)][to as usize]
    }

    pub fn send(&mut self, to: Direction, link: Link, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.way(link, to).streams.entry(link).or_default().bytes.extend_from_slice(bytes);
        }
    }

    /// The sender gives the connection up.
    pub fn close(&mut self, to: Direction, link: Link) {
        let way = self.way(link, to);
        if way.hold.is_some_and(|hold| !hold.keeps) {
            way.streams.remove(&link);
        } else {
            way.streams.entry(link).or_default().is_ended = true;
        }
    }

    /// A direction of a path delivers nothing until then.
    pub fn hold(&mut self, path: usize, to: Direction, until: Duration, keeps: bool) {
        let way = &mut self.ways[path][to as usize];
        if way.hold.is_none() {
            way.hold = Some(Hold { until, keeps });
            way.streams.retain(|_, stream| keeps || !stream.is_ended);
        }
    }

    /// Ends the holds that are over.
    pub fn release(&mut self, now: Duration, random: &mut Rng) {
        for way in 0..4 {
            let (path, to) = (way / 2, way % 2);
            let way = &mut self.ways[path][to];
            if way.hold.is_none_or(|hold| now < hold.until) {
                continue;
            }
            way.hold = None;
            let mut late: Vec<Link> =
                way.streams.iter().filter(|(_, one)| one.is_ended).map(|(link, _)| *link).collect();
            random.shuffle(&mut late);
            for link in late {
                let stream = way.streams.remove(&link).expect("there");
                self.late[to].push(Delivery::Bytes(link, stream.bytes));
                self.late[to].push(Delivery::End(link));
            }
        }
    }

    pub fn release_all(&mut self, random: &mut Rng) {
        self.release(Duration::MAX, random);
    }

    pub fn is_calm(&self) -> bool {
        self.ways.iter().flatten().all(|way| way.hold.is_none())
    }

    fn ready(&self, to: Direction) -> Vec<Link> {
        let open = self.ways.iter().map(|ways| &ways[to as usize]).filter(|way| way.hold.is_none());
        let streams = open.flat_map(|way| &way.streams);
        streams.filter(|(_, one)| one.is_ended || !one.bytes.is_empty()).map(|(link, _)| *link).collect()
    }

    pub fn has_ready(&self) -> bool {
        [Direction::ToTarget, Direction::ToHost]
            .iter()
            .any(|to| !self.late[*to as usize].is_empty() || !self.ready(*to).is_empty())
    }

    /// What arrives next.
    pub fn deliver(&mut self, to: Direction, random: &mut Rng) -> Option<Delivery> {
        if !self.late[to as usize].is_empty() {
            return Some(self.late[to as usize].remove(0));
        }
        let link = random.choice(self.ready(to))?;
        let streams = &mut self.way(link, to).streams;
        let stream = streams.get_mut(&link)?;
        if stream.bytes.is_empty() {
            streams.remove(&link);
            return Some(Delivery::End(link));
        }
        Some(Delivery::Bytes(link, some_bytes(&mut stream.bytes, random)))
    }
}
