//! `trunkline block list`, `map`, `hosts` and `dump`: what a running server serves, and to whom.

use super::document::{Controller, Server, Volume, Which};
use super::serve;
use crate::error::Error;
use crate::output;
use crate::table::lay_out;
use clap::Args;
use serde::Serialize;
use server::config::size;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::process::ExitCode;

/// List the volumes of a server: size, owner, who sees them, and what was read and written.
#[derive(Debug, Args)]
pub struct ListArgs {
    #[command(flatten)]
    which: Which,
    /// Print JSON: an array with one object for each volume. Sizes are in bytes.
    #[arg(long)]
    json: bool,
}

/// Show which host sees which volumes, and what to type there to connect.
#[derive(Debug, Args)]
pub struct MapArgs {
    #[command(flatten)]
    which: Which,
    /// Only the host with this NQN.
    #[arg(value_name = "HOSTNQN")]
    host: Option<String>,
    /// Print JSON: an object with the NSIDs that each host sees; "any" is every host.
    #[arg(long)]
    json: bool,
    /// Print the NQNs of the hosts and nothing else.
    #[arg(long, conflicts_with_all = ["json", "host"])]
    names: bool,
}

/// List the hosts that are connected: to which node, from where, and with how many queues.
#[derive(Debug, Args)]
pub struct HostsArgs {
    #[command(flatten)]
    which: Which,
    /// Print JSON: an array with one object for each controller.
    #[arg(long)]
    json: bool,
}

/// Print all that is known of a server, as JSON: for a report of a problem.
#[derive(Debug, Args)]
pub struct DumpArgs {
    #[command(flatten)]
    which: Which,
}

const VOLUMES: [&str; 9] = ["nsid", "volume", "owner", "state", "hosts", "size", "block", "read", "written"];
const HOSTS: [&str; 7] = ["host", "host id", "node", "from", "namespaces", "queues", "keep-alive s"];
/// How every host is named.
const ANY: &str = "any";

pub fn list(args: &ListArgs) -> Result<ExitCode, Error> {
    let server = args.which.server()?;
    print(if args.json { json(&server.volumes) } else { volumes(&server) })
}

pub fn map(args: &MapArgs) -> Result<ExitCode, Error> {
    let server = args.which.server()?;
    let mut map = map_of(&server);
    if let Some(host) = &args.host {
        let all = map.remove(ANY);
        let seen = map.remove(host).or(all).filter(|seen| !seen.is_empty());
        let Some(seen) = seen else {
            return Err(Error::Refused {
                sentence: format!("{host} sees nothing"),
                cause: "no volume names it, and none is for any host".to_owned(),
                advice:
                    "trunkline block map        to see which hosts see something; the host's own NQN is in \
                         /etc/nvme/hostnqn there"
                        .to_owned(),
            });
        };
        map = BTreeMap::from([(host.clone(), seen)]);
    }
    if args.names {
        return print(map.keys().filter(|host| *host != ANY).map(|host| format!("{host}\n")).collect());
    }
    print(if args.json { json(&map) } else { mapped(&server, &map) })
}

pub fn hosts(args: &HostsArgs) -> Result<ExitCode, Error> {
    let server = args.which.server()?;
    print(if args.json { json(&server.controllers) } else { connected(&server) })
}

pub fn dump(args: &DumpArgs) -> Result<ExitCode, Error> {
    print(json(&args.which.server()?))
}

fn print(text: String) -> Result<ExitCode, Error> {
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn json(value: &impl Serialize) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default() + "\n"
}

fn volumes(server: &Server) -> String {
    let mut rows = vec![VOLUMES.map(str::to_owned)];
    for volume in &server.volumes {
        let hosts = match &volume.hosts {
            None => ANY.to_owned(),
            Some(hosts) => hosts.len().to_string(),
        };
        rows.push([
            volume.nsid.to_string(),
            volume.source.clone(),
            volume.owner.clone(),
            volume.reach.clone(),
            hosts,
            size::in_words(volume.bytes),
            volume.block_bytes.to_string(),
            crate::table::bytes(volume.reads.bytes),
            crate::table::bytes(volume.writes.bytes),
        ]);
    }
    let mut text = format!("{}\n", server.subsystem);
    lay_out(&mut text, &rows, 4);
    if let Some(lone) = server.lone() {
        let (what, start) = if lone.has_other {
            ("does not answer", String::new())
        } else {
            ("does not run", format!(": {}", lone.start_of_other()))
        };
        // Writing to a string does not fail.
        let _ = writeln!(text, "node {} of the pair {what}{start}", lone.other);
    }
    if !server.differences.is_empty() {
        text.push_str("the nodes of the pair are not configured alike: trunkline block check\n");
    }
    text
}

/// The NSIDs that each host sees; those that all hosts see are under [`ANY`], and under each host
/// that is named or connected.
fn map_of(server: &Server) -> BTreeMap<String, BTreeSet<u32>> {
    let named = server.volumes.iter().filter_map(|volume| volume.hosts.as_ref()).flatten().cloned();
    let connected = server.io_controllers().map(|controller| controller.host.clone());
    let mut map: BTreeMap<String, BTreeSet<u32>> =
        named.chain(connected).map(|host| (host, BTreeSet::new())).collect();
    if server.volumes.iter().any(|volume| volume.hosts.is_none()) {
        map.insert(ANY.to_owned(), BTreeSet::new());
    }
    for volume in &server.volumes {
        for (host, seen) in &mut map {
            if volume.hosts.as_ref().is_none_or(|hosts| hosts.contains(host)) {
                seen.insert(volume.nsid);
            }
        }
    }
    map
}

fn mapped(server: &Server, map: &BTreeMap<String, BTreeSet<u32>>) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    for (host, seen) in map {
        let name = if host == ANY { "any host" } else { host };
        let fenced = if server.fenced.contains(host) { " (fenced: it cannot connect)" } else { "" };
        let _ = writeln!(text, "{name}{fenced}");
        for volume in server.volumes.iter().filter(|volume| seen.contains(&volume.nsid)) {
            let Volume { nsid, source, bytes, owner, .. } = volume;
            let owner = if server.is_pair() { format!(", node {owner}") } else { String::new() };
            let _ = writeln!(text, "  namespace {nsid}: {source}, {}{owner}", size::in_words(*bytes));
        }
        if seen.is_empty() {
            let _ = writeln!(text, "  sees nothing");
        }
    }
    if map.is_empty() {
        text.push_str("no host sees a volume: allow some by their NQN (--allow)\n");
    } else {
        text.push_str("on a host, as root:\n");
        text.push_str(&commands(server));
        let secured: Vec<&str> =
            map.keys().filter(|host| server.authenticated.contains(host)).map(String::as_str).collect();
        text.push_str(&serve::advice(secured.iter().copied(), secured.len() == map.len()));
    }
    text
}

/// What to type on a host.
fn commands(server: &Server) -> String {
    let mut text = String::new();
    let transports: BTreeSet<&str> = server.addresses.iter().map(|one| one.transport.as_str()).collect();
    for transport in transports {
        text.push_str(&format!("  modprobe nvme-{transport}\n"));
    }
    for one in &server.addresses {
        let (transport, ip, port) = (&one.transport, one.address.ip(), one.address.port());
        text.push_str(&format!("  nvme connect -t {transport} -a {ip} -s {port} -n {}\n", server.subsystem));
    }
    text
}

fn connected(server: &Server) -> String {
    let mut rows = vec![HOSTS.map(str::to_owned)];
    for controller in &server.controllers {
        let Controller { host, host_id, node, peer, namespaces, io_queues, keep_alive_ms, .. } = controller;
        let peer = peer.map_or_else(|| "-".to_owned(), |peer| peer.to_string());
        let namespaces: Vec<String> = namespaces.iter().map(u32::to_string).collect();
        let namespaces = if controller.for_discovery { "discovery".to_owned() } else { namespaces.join(",") };
        let keep_alive = format!("{:.1}", *keep_alive_ms as f64 / 1000.0);
        rows.push([
            host.clone(),
            host_id.clone(),
            node.clone(),
            peer,
            namespaces,
            io_queues.to_string(),
            keep_alive,
        ]);
    }
    if rows.len() == 1 {
        return "no host is connected\n".to_owned();
    }
    let mut text = String::new();
    lay_out(&mut text, &rows, 5);
    text
}
