//! `trunkline block check`: what a running server, its volumes and its hosts lack.

use super::document::{Controller, NodeProcess, Server, Volume, Which};
use crate::check::{findings_json, findings_table};
use crate::error::Error;
use crate::output;
use ::check::{Finding, Status, worst};
use clap::Args;
use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

/// Check a running server: volumes that nobody sees or that have failed commands, drives that may
/// lose data, a node of a pair that does not run or is configured otherwise, hosts with a single
/// path, hosts without keep-alive.
///
/// The status is 1 if something fails, and 0 otherwise.
#[derive(Debug, Args)]
pub struct CheckArgs {
    #[command(flatten)]
    which: Which,
    /// Print JSON: an object with the findings.
    #[arg(long)]
    json: bool,
}

pub fn run(args: &CheckArgs) -> Result<ExitCode, Error> {
    let findings = findings(&args.which.server()?);
    let text = if args.json { findings_json(&findings) } else { findings_table(&findings) };
    output::print(&text)?;
    let failed = worst(&findings) == Status::Fail;
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

const LIST: &str = "trunkline block list";
const HOSTS: &str = "trunkline block hosts";
const CONNECT: &str = "nvme connect-all on the host; trunkline block map prints the commands";

fn findings(server: &Server) -> Vec<Finding> {
    let mut all: Vec<Finding> = server.volumes.iter().flat_map(of_volume).collect();
    all.extend(server.volumes.iter().filter_map(|volume| authentication(server, volume)));
    all.extend(pair(server));
    all.extend(configuration(server));
    all.push(addresses(server));
    all.extend(server.fenced.iter().map(|host| {
        Finding::ok("block.fenced", "trunkline block map", format!("{host} is fenced"))
            .warn("it cannot connect", "trunkline block unfence, once the host has been started again")
    }));
    all.extend(of_hosts(server));
    all
}

fn of_volume(volume: &Volume) -> Vec<Finding> {
    let name = format!("namespace {} ({})", volume.nsid, volume.source);
    let mut all = Vec::new();
    let seen = Finding::ok("block.reach", LIST, format!("{name} is {}", volume.reach));
    all.push(match &*volume.reach {
        "serving" => seen,
        "moving" => seen.warn("its commands wait until the move is over", "wait, and check again"),
        _ => seen.fail("hosts cannot use it", "the log of the server says why its owner does not serve it"),
    });
    let seen = match &volume.hosts {
        None => format!("{name} is seen by any host"),
        Some(hosts) => format!("{name} is seen by {} hosts", hosts.len()),
    };
    let sees = Finding::ok("block.hosts", LIST, seen);
    all.push(if volume.hosts.as_ref().is_some_and(Vec::is_empty) {
        sees.warn("nobody can use it", "name hosts: --allow HOSTNQN, or `hosts` in the configuration file")
    } else {
        sees
    });
    let errors = volume.reads.errors + volume.writes.errors + volume.others.errors;
    let counted = Finding::ok("block.errors", LIST, format!("{name}: {errors} commands failed"));
    all.push(if errors == 0 {
        counted
    } else {
        counted.warn(
            "the drive has failed commands, or hosts have sent some that are not allowed",
            "the log of the server, dmesg, and smartctl -a of the drive",
        )
    });
    all.extend(volume.warnings.iter().map(|warning| {
        Finding::ok("block.drive", volume.source.clone(), format!("{name}: {warning}")).warn(
            "data may be lost with the power",
            "another drive or array for this volume, if that matters",
        )
    }));
    all
}

/// Where some hosts must prove who they are, whether others can take their volumes by another name.
fn authentication(server: &Server, volume: &Volume) -> Option<Finding> {
    let must = |host: &String| server.authenticated.contains(host);
    let name = format!("namespace {} ({})", volume.nsid, volume.source);
    let of = |seen| Finding::ok("block.authentication", "trunkline block map", seen);
    let (sentence, advice) =
        ("a name without a secret is no proof", "a secret for each [[host]] that sees it");
    match &volume.hosts {
        _ if server.authenticated.is_empty() => None,
        None => Some(of(format!("{name} is seen by any host, also without a secret")).warn(sentence, advice)),
        Some(hosts) if !hosts.iter().any(must) => None,
        Some(hosts) if hosts.iter().all(must) => {
            Some(of(format!("{name} is seen by hosts that authenticate, and by no others")))
        }
        Some(_) => {
            let seen = format!("{name} is seen by hosts that authenticate, and by others that need not");
            Some(of(seen).warn(sentence, advice))
        }
    }
}

/// Whether both processes of a pair run, if its nodes are processes.
fn pair(server: &Server) -> Option<Finding> {
    let of = |seen| Finding::ok("block.pair", LIST, seen);
    let Some(lone) = server.lone() else {
        let [one, next] = &*server.processes else { return None };
        let (a, b) = (&one.node, &next.node);
        return Some(of(format!("node {a} runs in process {}, node {b} in process {}", one.pid, next.pid)));
    };
    let runs = format!("node {} runs in process {}", lone.node, lone.pid);
    Some(if lone.has_other {
        of(format!("{runs}; node {} runs, and does not answer", lone.other)).warn(
            "what it knows is missing here",
            "check again, with the rights and the XDG_RUNTIME_DIR of its user",
        )
    } else {
        of(format!("{runs}; node {} does not run", lone.other))
            .warn("no node takes the volumes over if this one ends", lone.start_of_other())
    })
}

/// Whether both processes of a pair were told the same.
fn configuration(server: &Server) -> Vec<Finding> {
    let [one, next] = &*server.processes else { return Vec::new() };
    let of = |seen| Finding::ok("block.configuration", "trunkline block dump", seen);
    if server.differences.is_empty() {
        return vec![of("both nodes serve the same volumes to the same hosts".to_owned())];
    }
    let (a, b) = (&one.node, &next.node);
    let files = format!(
        "the same file for both (node {a} has read {}, node {b} {})",
        one.config.display(),
        next.config.display()
    );
    let differences = server.differences.iter().map(|difference| {
        let mend = if difference.needs_start {
            format!("{files}; then start both again, one after the other")
        } else {
            format!("{files}; then kill -HUP {} {}", one.pid, next.pid)
        };
        of(difference.seen.clone()).warn("the nodes are not configured alike", mend)
    });
    differences.collect()
}

fn addresses(server: &Server) -> Finding {
    let nodes: BTreeSet<&str> = server.addresses.iter().map(|address| &*address.node).collect();
    let of = |nodes| {
        let seen = format!("{} addresses on {nodes} nodes", server.addresses.len());
        Finding::ok("block.addresses", "trunkline block map", seen)
    };
    if let Some(lone) = server.lone() {
        let why = format!("it is not known that hosts have a way by node {}", lone.other);
        return of(format!("{} of {}", nodes.len(), server.nodes().len())).warn(why, see_pair(lone));
    }
    let found = of(nodes.len().to_string());
    if server.addresses.len() > 1 {
        found
    } else {
        found.warn("hosts have one way to the volumes", "another --listen on another network card and switch")
    }
}

/// What to do first about paths to a node whose process has not answered.
fn see_pair(lone: &NodeProcess) -> String {
    if lone.has_other {
        "as block.pair says".to_owned()
    } else {
        format!("start node {}, as block.pair says, and check again", lone.other)
    }
}

fn of_hosts(server: &Server) -> Vec<Finding> {
    let mut hosts: BTreeMap<&str, Vec<&Controller>> = BTreeMap::new();
    for controller in server.io_controllers() {
        hosts.entry(&controller.host).or_default().push(controller);
    }
    let (nodes, lone) = (server.nodes(), server.lone());
    let mut all = Vec::new();
    for (host, controllers) in hosts {
        let to: BTreeSet<&str> = controllers.iter().map(|controller| &*controller.node).collect();
        let seen =
            format!("{host} has {} paths, to {} of {} nodes", controllers.len(), to.len(), nodes.len());
        let paths = Finding::ok("block.paths", HOSTS, seen);
        let has_all = to.len() == nodes.len() && controllers.len() > 1;
        let is_all_there_is = has_all || lone.is_none() && server.addresses.len() == 1;
        all.push(if is_all_there_is {
            paths
        } else {
            paths.warn(
                "the host has no other way to its volumes, or not the best one, when a path is lost",
                lone.map_or_else(|| CONNECT.to_owned(), see_pair),
            )
        });
        let silent = controllers.iter().filter(|controller| controller.keep_alive_ms == 0).count();
        let alive =
            Finding::ok("block.keep-alive", HOSTS, format!("{host}: {silent} paths without keep-alive"));
        all.push(if silent == 0 {
            alive
        } else {
            alive.warn(
                "the server keeps the controllers of a host that has died, and their commands, until TCP gives up",
                "nvme connect --keep-alive-tmo=5 on the host",
            )
        });
    }
    let absent = server.volumes.iter().filter_map(|volume| volume.hosts.as_ref()).flatten();
    let connected: BTreeSet<&str> = server.io_controllers().map(|one| &*one.host).collect();
    let absent: BTreeSet<&String> = absent.filter(|host| !connected.contains(host.as_str())).collect();
    all.extend(absent.into_iter().map(|host| {
        Finding::ok("block.connected", HOSTS, format!("{host} may connect, and is not connected"))
    }));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::difference;
    use crate::block::document::{Address, Count, FORMAT};

    fn server(nodes: &[&str]) -> Server {
        let addresses = nodes.iter().enumerate().map(|(at, node)| Address {
            address: ([10, 0, 0, at as u8], 4420).into(),
            transport: "tcp".to_owned(),
            node: (*node).to_owned(),
        });
        Server {
            format: FORMAT,
            pid: 1,
            version: String::new(),
            subsystem: "nqn.2026-11.test:s".to_owned(),
            serial: String::new(),
            state: "/state".into(),
            fenced: Vec::new(),
            named: Vec::new(),
            authenticated: Vec::new(),
            finishing: false,
            processes: Vec::new(),
            differences: Vec::new(),
            addresses: addresses.collect(),
            volumes: vec![volume()],
            controllers: Vec::new(),
        }
    }

    fn volume() -> Volume {
        Volume {
            nsid: 1,
            source: "/v".to_owned(),
            uuid: String::new(),
            bytes: 1 << 20,
            block_bytes: 4096,
            owner: "A".to_owned(),
            reach: "serving".to_owned(),
            volatile_cache: false,
            hosts: Some(vec!["h".to_owned()]),
            warnings: Vec::new(),
            commands: 0,
            reads: Count::default(),
            writes: Count::default(),
            others: Count::default(),
        }
    }

    fn controller(node: &str, keep_alive_ms: u64) -> Controller {
        Controller {
            cntlid: 1,
            for_discovery: false,
            host: "h".to_owned(),
            host_id: String::new(),
            node: node.to_owned(),
            peer: None,
            is_ready: true,
            io_queues: 1,
            keep_alive_ms,
            namespaces: vec![1],
        }
    }

    fn status(server: &Server, rule: &str) -> Vec<Status> {
        findings(server).iter().filter(|found| found.rule == rule).map(|found| found.status).collect()
    }

    #[test]
    fn what_is_as_it_should_be_is_ok() {
        let mut sound = server(&["A", "B"]);
        sound.controllers = vec![controller("A", 5000), controller("B", 5000)];
        assert_eq!(worst(&findings(&sound)), Status::Ok, "{:?}", findings(&sound));
        // One address cannot have two paths; that is said once.
        let mut single = server(&["A"]);
        single.controllers = vec![controller("A", 5000)];
        assert_eq!(status(&single, "block.addresses"), [Status::Warn]);
        assert_eq!(status(&single, "block.paths"), [Status::Ok]);
    }

    fn process(node: &str, other: &str, has_other: bool) -> NodeProcess {
        NodeProcess {
            node: node.to_owned(),
            pid: 1,
            config: "/etc/block.toml".into(),
            host_ids: BTreeMap::new(),
            other: other.to_owned(),
            has_other,
        }
    }

    #[test]
    fn a_node_without_its_partner_is_not_well_however_many_addresses_and_paths_it_has() {
        for addresses in [&["B"][..], &["B", "B"]] {
            let mut lone = server(addresses);
            lone.controllers = addresses.iter().map(|_| controller("B", 5000)).collect();
            lone.processes = vec![process("B", "A", false)];
            for rule in ["block.pair", "block.addresses", "block.paths"] {
                let found: Vec<Finding> =
                    findings(&lone).into_iter().filter(|found| found.rule == rule).collect();
                assert_eq!(
                    found.iter().map(|found| found.status).collect::<Vec<_>>(),
                    [Status::Warn],
                    "{rule}"
                );
                let mend = &found[0].mend;
                let is_that = mend.contains("start node A") || mend.ends_with("-c /etc/block.toml --node A");
                assert!(is_that, "{rule}: {mend}");
            }
            // It runs, and only its document is missing.
            lone.processes = vec![process("B", "A", true)];
            let all = findings(&lone);
            assert_eq!(status(&lone, "block.pair"), [Status::Warn]);
            assert!(all.iter().all(|found| !found.mend.contains("serve")), "{all:?}");
        }
        let mut both = server(&["A", "B"]);
        both.controllers = vec![controller("A", 5000), controller("B", 5000)];
        assert_eq!(status(&both, "block.pair"), [], "both nodes are this process");
        both.processes = vec![process("A", "B", true), process("B", "A", true)];
        assert_eq!(status(&both, "block.pair"), [Status::Ok]);
        assert_eq!(worst(&findings(&both)), Status::Ok);
    }

    #[test]
    fn what_the_nodes_of_a_pair_do_not_do_alike_is_named() {
        let of = |node, other| {
            let mut one = server(&[node]);
            one.processes = vec![process(node, other, true)];
            one
        };
        let (first, mut second) = (of("A", "B"), of("B", "A"));
        assert_eq!(difference::between(&first, &second), []);
        second.volumes[0].hosts = Some(vec!["h".to_owned(), "i".to_owned()]);
        second.volumes.push(Volume { nsid: 2, ..volume() });
        second.authenticated = vec!["i".to_owned()];
        second.processes[0].host_ids = BTreeMap::from([("h".to_owned(), "7".to_owned())]);
        let expected = [
            ("namespace 1 is seen at node B alone by i", false),
            ("namespace 2 (/v) is known to node B alone, and is lost with it", true),
            ("i must authenticate at node B alone", false),
            ("h must have the host identifier 7 at node B alone", false),
        ];
        for all in [difference::between(&first, &second), difference::between(&second, &first)] {
            let all: Vec<(&str, bool)> = all.iter().map(|one| (&*one.seen, one.needs_start)).collect();
            assert_eq!(all, expected);
        }
        second.volumes[0].hosts = None;
        second.volumes[1].nsid = 1;
        second.volumes[1].uuid = "other".to_owned();
        let all = difference::between(&first, &second);
        assert_eq!(all[0].seen, "namespace 1 is /v at node A, and /v at node B");
        second.volumes.pop();
        let all = difference::between(&first, &second);
        assert_eq!(all[0].seen, "any host sees namespace 1 at node B alone");

        // The reader of both documents finds it.
        let mut joined = of("A", "B");
        joined.processes.extend(second.processes);
        assert_eq!(status(&joined, "block.configuration"), [Status::Ok]);
        joined.differences = all;
        assert_eq!(status(&joined, "block.configuration"), [Status::Warn; 3]);
        assert_eq!(status(&first, "block.configuration"), []);
    }

    #[test]
    fn each_fault_is_found() {
        let mut faulty = server(&["A", "B"]);
        faulty.controllers = vec![controller("A", 0)];
        assert_eq!(status(&faulty, "block.paths"), [Status::Warn]);
        assert_eq!(status(&faulty, "block.keep-alive"), [Status::Warn]);
        assert_eq!(status(&faulty, "block.connected"), []);
        faulty.volumes[0].hosts = Some(Vec::new());
        faulty.volumes[0].warnings = vec!["write hole".to_owned()];
        faulty.volumes[0].writes.errors = 1;
        faulty.volumes[0].reach = "lost".to_owned();
        for (rule, expected) in [
            ("block.hosts", Status::Warn),
            ("block.drive", Status::Warn),
            ("block.errors", Status::Warn),
            ("block.reach", Status::Fail),
        ] {
            assert_eq!(status(&faulty, rule), [expected], "{rule}");
        }
        faulty.authenticated = vec!["h".to_owned()];
        for (hosts, expected) in [
            (Some(&["h"][..]), vec![Status::Ok]),
            (Some(&["h", "i"]), vec![Status::Warn]),
            (Some(&["i"]), vec![]),
            (None, vec![Status::Warn]),
        ] {
            let named = |hosts: &[&str]| hosts.iter().map(|host| (*host).to_owned()).collect();
            faulty.volumes[0].hosts = hosts.map(named);
            assert_eq!(status(&faulty, "block.authentication"), expected, "{hosts:?}");
        }
        faulty.fenced = vec!["h".to_owned()];
        assert_eq!(status(&faulty, "block.fenced"), [Status::Warn]);
        faulty.volumes[0].hosts = Some(vec!["other".to_owned()]);
        assert_eq!(status(&faulty, "block.connected"), [Status::Ok]);
    }
}
