//! What the two processes of a pair do not do alike, because they were started with different
//! configuration files, or one has not read its file again: volumes, the hosts that see them, and
//! what is known of these hosts. Secrets are not compared, only who has one.

use super::document::{NodeProcess, Server, Volume};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Something that one node does and the other does not, or does otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// A sentence.
    pub seen: String,
    /// Reading the file again does not change it: only a start does.
    pub needs_start: bool,
}

/// How two servers differ, if they are nodes of a pair.
pub fn between(one: &Server, next: &Server) -> Vec<Difference> {
    let ([process_one], [process_next]) = (&*one.processes, &*next.processes) else { return Vec::new() };
    if process_one.node > process_next.node {
        return between(next, one);
    }
    let nodes = [&*process_one.node, &*process_next.node];
    let mut all = volumes([one, next], nodes);
    let must = [one, next].map(|server| server.authenticated.iter().collect::<BTreeSet<_>>());
    all.extend(
        apart(&must)
            .map(|(host, at)| reload(format!("{host} must authenticate at node {} alone", nodes[at]))),
    );
    all.extend(identifiers([process_one, process_next], nodes));
    all
}

const fn reload(seen: String) -> Difference {
    Difference { seen, needs_start: false }
}

/// What only one of the sets has, and which.
fn apart<'a, T: Ord + Copy + 'a>(sets: &'a [BTreeSet<T>; 2]) -> impl Iterator<Item = (T, usize)> + 'a {
    let [one, next] = sets;
    one.difference(next).map(|it| (*it, 0)).chain(next.difference(one).map(|it| (*it, 1)))
}

fn volumes(servers: [&Server; 2], nodes: [&str; 2]) -> Vec<Difference> {
    let [one, next] = servers.map(|server| {
        server.volumes.iter().map(|volume| (volume.nsid, volume)).collect::<BTreeMap<u32, &Volume>>()
    });
    let nsids: BTreeSet<&u32> = one.keys().chain(next.keys()).collect();
    let mut all = Vec::new();
    for nsid in nsids {
        match (one.get(nsid), next.get(nsid)) {
            (Some(one), Some(next)) if one.uuid != next.uuid => {
                let [a, b] = nodes;
                let (one, next) = (&one.source, &next.source);
                let seen = format!("namespace {nsid} is {one} at node {a}, and {next} at node {b}");
                all.push(Difference { seen, needs_start: true });
            }
            (Some(one), Some(next)) => all.extend(hosts([one, next], nodes).map(reload)),
            (Some(lone), None) => all.push(alone(lone, nodes[0])),
            (None, Some(lone)) => all.push(alone(lone, nodes[1])),
            (None, None) => {}
        }
    }
    all
}

fn alone(Volume { nsid, source, .. }: &Volume, node: &str) -> Difference {
    let seen = format!("namespace {nsid} ({source}) is known to node {node} alone, and is lost with it");
    Difference { seen, needs_start: true }
}

/// Who sees a volume at one node and not at the other.
fn hosts(volumes: [&Volume; 2], nodes: [&str; 2]) -> Option<String> {
    let nsid = volumes[0].nsid;
    let sets = volumes.map(|volume| volume.hosts.as_ref().map(|hosts| hosts.iter().collect::<BTreeSet<_>>()));
    let [one, next] = match sets {
        [Some(one), Some(next)] => [one, next],
        [None, None] => return None,
        [None, Some(_)] => return Some(format!("any host sees namespace {nsid} at node {} alone", nodes[0])),
        [Some(_), None] => return Some(format!("any host sees namespace {nsid} at node {} alone", nodes[1])),
    };
    let mut said = Vec::new();
    for (set, other, node) in [(&one, &next, nodes[0]), (&next, &one, nodes[1])] {
        let more: Vec<&str> = set.difference(other).map(|host| host.as_str()).collect();
        if !more.is_empty() {
            said.push(format!("at node {node} alone by {}", more.join(", ")));
        }
    }
    (!said.is_empty()).then(|| format!("namespace {nsid} is seen {}", said.join(", and ")))
}

/// Hosts whose identifier is fixed, or is another one, at one node alone.
fn identifiers(processes: [&NodeProcess; 2], nodes: [&str; 2]) -> Vec<Difference> {
    let sets = processes.map(|process| process.host_ids.iter().collect::<BTreeSet<_>>());
    let said = apart(&sets).map(|((host, id), at)| {
        reload(format!("{host} must have the host identifier {id} at node {} alone", nodes[at]))
    });
    said.collect()
}
