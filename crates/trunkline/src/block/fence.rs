//! `trunkline block fence` and `unfence`: refuse a host at all servers of this host, for clusters.

use super::document::{self, FENCE, Server, UNFENCE, Which};
use super::show::json;
use crate::error::Error;
use crate::output;
use clap::Args;
use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// So many names of hosts are listed in a message.
const NAMES_MAX: usize = 16;
/// How long a server may take to start before it is let in again there.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often it is asked whether the host's controllers have ended.
const LOOK: Duration = Duration::from_millis(100);

/// Refuse a host, and end its connections, until `trunkline block unfence`.
///
/// Succeeds only when the refusal is on disk, where it survives restarts, and when nothing that the
/// host has sent can have an effect any more. All servers of block volumes of this user on this
/// host refuse it (as root: of all users), unless --pid names one. fence_trunkline does this for
/// Pacemaker and the like.
///
/// Of these servers one must know the host, or nothing is done (--force): it is named in their
/// options or files, has connected to a volume, or is fenced already. A name that only `any` admits
/// is fenced with a warning.
#[derive(Debug, Args)]
pub struct FenceArgs {
    /// The NQN of the host, which is in /etc/nvme/hostnqn there.
    #[arg(value_name = "HOSTNQN")]
    host: String,
    /// Give up after so many seconds, if commands of the host do not end; it stays refused.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=3600))]
    timeout: u32,
    /// Fence a host that no server knows too: it is refused if it is admitted later.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    which: Which,
}

/// Let a host connect again that was fenced.
#[derive(Debug, Args)]
pub struct UnfenceArgs {
    /// The NQN of the host.
    #[arg(value_name = "HOSTNQN")]
    host: String,
    #[command(flatten)]
    which: Which,
}

/// List the hosts that are fenced at all servers of this host, a line for each.
///
/// These are all servers of block volumes of this user (as root: of all users), or the one that
/// --pid names. A host that only some of them refuse may write at the others: it is not in the
/// list, and standard error says which ones refuse it.
#[derive(Debug, Args)]
pub struct FencedArgs {
    #[command(flatten)]
    which: Which,
    /// Print JSON: an array with the NQN of each host of the list.
    #[arg(long)]
    json: bool,
}

pub fn fenced(args: &FencedArgs) -> Result<ExitCode, Error> {
    let servers = args.which.all()?;
    let (everywhere, elsewhere) = fenced_at(&servers);
    for (host, pids) in elsewhere {
        let pids: Vec<String> = pids.iter().map(|pid| format!("--pid {pid}")).collect();
        output::print_to_stderr(&format!(
            "note: {host} is not fenced at all servers: {} alone\n",
            pids.join(", ")
        ));
    }
    let lines = || everywhere.iter().map(|host| format!("{host}\n")).collect();
    output::print(&if args.json { json(&everywhere) } else { lines() })?;
    Ok(ExitCode::SUCCESS)
}

/// The hosts that all servers refuse, and those that some refuse, with the processes that do.
fn fenced_at(servers: &[Server]) -> (Vec<&str>, BTreeMap<&str, Vec<u32>>) {
    let mut hosts: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    for server in servers {
        for host in &server.fenced {
            hosts.entry(host).or_default().push(server.pid);
        }
    }
    let everywhere = hosts.iter().filter(|(_, pids)| pids.len() == servers.len()).map(|(host, _)| *host);
    let everywhere = everywhere.collect();
    hosts.retain(|_, pids| pids.len() < servers.len());
    (everywhere, hosts)
}

pub fn fence(args: &FenceArgs) -> Result<ExitCode, Error> {
    let deadline = Instant::now() + Duration::from_secs(args.timeout.into());
    let servers = args.which.all_by(deadline)?;
    let is_certain = args.force || is_known(&args.host, &servers)?;
    let (told, text) = tell_all(&args.which, servers, &format!("{FENCE} {}", args.host), deadline)?;
    if !is_certain {
        output::print_to_stderr(&format!(
            "warning: {} may be mistyped: any host may connect, this one is not connected, and no list \
             names it\n",
            args.host
        ));
    }
    for pid in told {
        wait(pid, &args.host, deadline)?;
    }
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Has these servers refuse a host or let it in, and those that are found after that: whoever comes
/// later reads it before it serves anybody. Returns their processes, and what they say.
fn tell_all(
    which: &Which,
    mut servers: Vec<Server>,
    order: &str,
    deadline: Instant,
) -> Result<(BTreeSet<u32>, String), Error> {
    let (mut told, mut text) = (BTreeSet::new(), String::new());
    while !servers.is_empty() {
        for server in &servers {
            text.push_str(&document::order(server.pid, order)?);
            told.insert(server.pid);
        }
        servers = which.all_by(deadline)?;
        servers.retain(|server| !told.contains(&server.pid));
    }
    Ok((told, text))
}

pub fn unfence(args: &UnfenceArgs) -> Result<ExitCode, Error> {
    let deadline = Instant::now() + PATIENCE;
    let servers = args.which.all_by(deadline)?;
    let fenced: BTreeSet<&String> = servers.iter().flat_map(|server| &server.fenced).collect();
    // It succeeds all the same: a cluster that is not sure asks once more.
    if !fenced.contains(&args.host) {
        let names = listed(&fenced);
        let others = if names.is_empty() { "no host is".to_owned() } else { format!("these are: {names}") };
        output::print_to_stderr(&format!("note: {} was not fenced; {others}\n", args.host));
    }
    let (_, text) = tell_all(&args.which, servers, &format!("{UNFENCE} {}", args.host), deadline)?;
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Names for a message, not more of them than can be read.
fn listed(names: &BTreeSet<&String>) -> String {
    let mut shown: Vec<&str> = names.iter().take(NAMES_MAX).map(|name| name.as_str()).collect();
    let more = format!("and {} more", names.len() - shown.len());
    if names.len() > shown.len() {
        shown.push(&more);
    }
    shown.join(", ")
}

/// Whether the name is certainly that of a host; an error if no server admits it. Who fences a
/// mistyped name takes a host for fenced that goes on writing.
fn is_known(host: &str, servers: &[Server]) -> Result<bool, Error> {
    let named: BTreeSet<&String> = servers.iter().flat_map(named).collect();
    let is_connected = |server: &Server| server.io_controllers().any(|one| one.host == host);
    let is_fenced = |server: &Server| server.fenced.iter().any(|fenced| fenced == host);
    if named.iter().any(|name| *name == host) || servers.iter().any(|it| is_connected(it) || is_fenced(it)) {
        return Ok(true);
    }
    if servers.iter().flat_map(|server| &server.volumes).any(|volume| volume.hosts.is_none()) {
        return Ok(false);
    }
    let names = listed(&named);
    Err(Error::Refused {
        sentence: format!("{host} is not fenced: no server knows this host"),
        cause: "no list of hosts admits it, it is not connected, and it was not fenced before; if it is \
                mistyped, the host that is meant would go on writing"
            .to_owned(),
        advice: if names.is_empty() {
            "name hosts first (--allow, [[host]]), or --force".to_owned()
        } else {
            format!("a host that is named ({names}), or --force")
        },
    })
}

/// The hosts that a server names. An earlier version tells only those of its volumes.
fn named(server: &Server) -> impl Iterator<Item = &String> {
    server.named.iter().chain(server.volumes.iter().filter_map(|volume| volume.hosts.as_ref()).flatten())
}

/// Waits until the host has no controller and all volumes are served: then nothing that it has
/// begun goes on. A node of a pair that cannot be asked may serve it. Controllers of discovery have
/// no data, and stay. A volume whose node has ended or
/// hangs may still be written by the system; it is served when the other node has its lock. What a
/// node has forwarded that has ended since is waited for as well. A server that ends meanwhile says
/// nothing of what its drives still execute, so that is no success.
fn wait(pid: u32, host: &str, deadline: Instant) -> Result<(), Error> {
    loop {
        let now = Which::of(pid).server()?;
        let left = now.io_controllers().filter(|controller| controller.host == host).count();
        let away = now.volumes.iter().filter(|volume| volume.reach != "serving").count();
        let is_fenced = now.fenced.iter().any(|fenced| fenced == host);
        // It may serve the host, and was perhaps not told.
        let unasked = now.lone().filter(|process| process.has_other).map(|process| &process.other);
        if left == 0 && away == 0 && !now.finishing && is_fenced && unasked.is_none() {
            return Ok(());
        }
        if Instant::now() >= deadline {
            let cause = if let Some(node) = unasked {
                format!("node {node} runs, and does not answer")
            } else if is_fenced && left == 0 && away == 0 {
                "what the other node had forwarded is still executed".to_owned()
            } else if is_fenced {
                format!("{left} of its controllers have not ended, and {away} volumes are not served")
            } else {
                "a node of the pair was not told, because it did not answer".to_owned()
            };
            return Err(Error::Refused {
                sentence: format!("it is not known that nothing of {host} goes on"),
                cause,
                advice: "the same again; trunkline block hosts and list show what is left".to_owned(),
            });
        }
        std::thread::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(fenced: &[&str], named: &[&str], connected: &[(&str, bool)]) -> Server {
        let controller = |(host, for_discovery): &(&str, bool)| {
            serde_json::json!({
                "cntlid": 1, "for_discovery": for_discovery, "host": host, "host_id": "", "node": "A",
                "peer": null, "is_ready": true, "io_queues": 1, "keep_alive_ms": 0, "namespaces": [],
            })
        };
        let controllers: Vec<_> = connected.iter().map(controller).collect();
        let document = serde_json::json!({
            "format": document::FORMAT, "pid": 1, "version": "", "subsystem": "", "serial": "", "state": "/",
            "addresses": [], "fenced": fenced, "named": named, "volumes": [], "controllers": controllers,
        });
        serde_json::from_value(document).unwrap()
    }

    #[test]
    fn a_host_that_some_servers_refuse_is_not_fenced_and_is_told_apart() {
        let one = server(&["a", "b"], &[], &[]);
        let two = Server { pid: 2, ..server(&["b", "c"], &[], &[]) };
        let servers = [one, two];
        assert_eq!(fenced_at(&servers), (vec!["b"], BTreeMap::from([("a", vec![1]), ("c", vec![2])])));
        assert_eq!(fenced_at(&servers[..1]), (vec!["a", "b"], BTreeMap::new()));
    }

    #[test]
    fn one_of_the_servers_must_know_the_host() {
        let none = || server(&[], &["a"], &[]);
        let known = |host: &str, other: Server| is_known(host, &[none(), other]).ok();
        assert_eq!(known("a", server(&[], &[], &[])), Some(true));
        assert_eq!(known("b", server(&[], &["b"], &[])), Some(true));
        assert_eq!(known("b", server(&["b"], &[], &[])), Some(true));
        assert_eq!(known("b", server(&[], &[], &[("b", false)])), Some(true));
        // Discovery answers whoever asks.
        assert_eq!(known("b", server(&[], &[], &[("b", true)])), None);
        assert_eq!(known("b", none()), None);
        let names: Vec<String> = (0..=NAMES_MAX).map(|number| format!("n{number:02}")).collect();
        let many = server(&[], &names.iter().map(|name| &**name).collect::<Vec<_>>(), &[]);
        let error = is_known("b", &[many]).unwrap_err().to_string();
        assert!(error.contains("n00, n01") && error.contains("n15, and 1 more), or --force"), "{error}");
    }
}
