//! `trunkline plan limits`: the throughput of each stage, the stage that binds, and how that
//! changes as parts are added.

use crate::error::Error;
use crate::output;
use ::plan::limits::{self, Clients, Controller, Drives, Raid, Server, Switch, Topology};
use ::plan::link::Link;
use ::plan::show;
use clap::Args;
use std::path::PathBuf;

/// Compute the throughput of each stage between drive and client, the stage that binds, and how
/// many parts a need takes.
///
/// The topology comes from a file, a preset, options, or options that override a file or preset.
/// Stages that are not given are no limit; a server's link and a client are required.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct LimitsArgs {
    /// Topology file (docs/MODEL.md).
    #[arg(value_name = "TOPOLOGY.toml")]
    file: Option<PathBuf>,
    /// Predefined topology: ef600-ddp24, ef600-raid6-20, powerscale-f200-25gbe,
    /// powerscale-f210-100gbe, sun-7410-ddr.
    #[arg(long, value_name = "NAME", conflicts_with = "file")]
    preset: Option<String>,
    /// Show the limit as these are added: clients, drives, paths, tasks or nodes.
    #[arg(long, value_name = "WHAT")]
    curve: Option<String>,
    /// End of the curve.
    #[arg(long, value_name = "N", requires = "curve")]
    to: Option<u32>,
    /// Compute how many parts of each stage carry this read throughput, in GB/s.
    #[arg(long, value_name = "GB/S", allow_negative_numbers = true)]
    need_read_gbytes: Option<f64>,
    /// Compute how many parts of each stage carry this write throughput, in GB/s.
    #[arg(long, value_name = "GB/S", allow_negative_numbers = true)]
    need_write_gbytes: Option<f64>,
    /// Draw the curve into an SVG file; - is standard output.
    #[arg(long, value_name = "FILE", requires = "curve")]
    svg: Option<PathBuf>,
    /// Print the topology as TOML instead, as a start for your own file.
    #[arg(long, conflicts_with_all = ["json", "svg", "curve"])]
    toml: bool,
    /// Print JSON.
    #[arg(long, conflicts_with = "svg")]
    json: bool,
    #[command(flatten)]
    stages: StageArgs,
}

/// Options that describe the stages.
#[derive(Debug, Args)]
#[command(next_help_heading = "Stages")]
struct StageArgs {
    /// Number of drives of each array or node.
    #[arg(long, value_name = "N")]
    drives: Option<u32>,
    /// Read throughput of a drive, in GB/s [default: 3.5, a PM1725b].
    #[arg(long, value_name = "GB/S", allow_negative_numbers = true)]
    drive_read_gbytes: Option<f64>,
    /// Write throughput of a drive, in GB/s [default: 2.0, a PM1725b].
    #[arg(long, value_name = "GB/S", allow_negative_numbers = true)]
    drive_write_gbytes: Option<f64>,
    /// Protection of the drives: ddp, raid6, raid1, K+M.
    #[arg(long, value_name = "SCHEME")]
    scheme: Option<String>,
    /// Largest request of the hosts in KiB, for full stripes [default: 1024].
    #[arg(long, value_name = "KIB")]
    request_kib: Option<u32>,
    /// Segment size in KiB [default: as chosen by plan layout].
    #[arg(long, value_name = "KIB")]
    segment_kib: Option<u32>,
    /// Serve each volume group by one controller only, which leaves PCIe paths unused.
    #[arg(long)]
    one_controller: bool,
    /// Controllers of the array: ef600.
    #[arg(long, value_name = "MODEL")]
    controller: Option<String>,
    /// Number of arrays or nodes.
    #[arg(long, value_name = "N")]
    nodes: Option<u32>,
    /// Number of ports of each array or node.
    #[arg(long, value_name = "N")]
    server_ports: Option<u32>,
    /// Kind of those ports: 25GbE, 100GbE, EDR, HDR, ...
    #[arg(long, value_name = "LINK")]
    server_link: Option<String>,
    /// Measured throughput of one node's processors, in GB/s.
    #[arg(long, value_name = "GB/S", allow_negative_numbers = true)]
    server_cpu_gbytes: Option<f64>,
    /// Throughput of the narrowest point between servers and clients, in Gbit/s.
    #[arg(long, value_name = "GBIT/S", allow_negative_numbers = true)]
    switch_gbit: Option<f64>,
    /// Number of clients.
    #[arg(long, value_name = "N")]
    clients: Option<u32>,
    /// Number of ports of each client.
    #[arg(long, value_name = "N")]
    client_ports: Option<u32>,
    /// Kind of those ports [default: as the server's].
    #[arg(long, value_name = "LINK")]
    client_link: Option<String>,
    /// Measured throughput of one client's processors, in GB/s.
    #[arg(long, value_name = "GB/S", allow_negative_numbers = true)]
    client_cpu_gbytes: Option<f64>,
    /// Number of server ports in use [default: all].
    #[arg(long, value_name = "N")]
    paths: Option<u32>,
    /// Number of tasks of each client that read or write at once.
    #[arg(long, value_name = "N")]
    tasks: Option<u32>,
    /// Transport: tcp, tcp-ipv6, roce, infiniband or ipoib [default: tcp on Ethernet, infiniband on
    /// InfiniBand].
    #[arg(long, value_name = "TRANSPORT")]
    transport: Option<String>,
    /// MTU; for roce that of Ethernet [default: 1500, 4096 for infiniband, 2044 for ipoib].
    #[arg(long, value_name = "BYTES")]
    mtu: Option<u32>,
}

const EXAMPLES: &str = "Examples:\n  \
    trunkline plan limits --preset ef600-ddp24\n  \
    trunkline plan limits --preset ef600-raid6-20 --curve clients --svg clients.svg\n  \
    trunkline plan limits --preset ef600-ddp24 --need-read-gbytes 120 --need-write-gbytes 60\n  \
    trunkline plan limits --nodes 4 --server-link 100GbE --clients 1 --transport roce --mtu 9000 --curve paths\n  \
    trunkline plan limits --preset ef600-ddp24 --toml > mine.toml; trunkline plan limits mine.toml\n\
    docs/MODEL.md lists the sources of the constants, and where the model is wrong.";

/// Computes the limits.
pub fn run(args: &LimitsArgs) -> Result<(), Error> {
    let base = super::topology(args.file.as_deref(), args.preset.as_deref())?;
    let has_base = base.is_some();
    let base = base.unwrap_or_else(|| Topology {
        name: "topology from the command line".to_owned(),
        ..Topology::default()
    });
    let mut topology = args.stages.over(base.clone())?;
    if has_base && topology != base {
        topology.name.push_str(", changed by options");
    }
    let found = limits::limits(&topology)?;
    if args.toml {
        return output::print(&topology.to_toml());
    }
    let curve = match &args.curve {
        Some(axis) => Some(limits::curve(&topology, axis.parse()?, args.to)?),
        None => None,
    };
    let has_need = args.need_read_gbytes.or(args.need_write_gbytes).is_some();
    let stage_needs = has_need
        .then(|| limits::stage_needs(&found, args.need_read_gbytes, args.need_write_gbytes))
        .transpose()?;
    if let (Some(file), Some(curve)) = (&args.svg, &curve) {
        output::write(file, &show::svg(&found, curve))?;
        if output::is_stdout(file) {
            return Ok(());
        }
    }
    if args.json {
        return output::print(&show::json(&show::Planned {
            limits: &found,
            curve: curve.as_ref(),
            enough: stage_needs.as_deref(),
        }));
    }
    let mut text = show::limits(&found, output::stdout_columns());
    text.push_str(&curve.as_ref().map_or_else(String::new, show::curve));
    text.push_str(&stage_needs.as_deref().map_or_else(String::new, show::stage_needs));
    output::print(&text)
}

fn link(text: Option<&String>) -> Result<Option<Link>, Error> {
    Ok(text.map(|text| text.parse()).transpose()?)
}

impl StageArgs {
    /// The topology, with the options of the command line on top.
    fn over(&self, mut topology: Topology) -> Result<Topology, Error> {
        self.over_storage(&mut topology)?;
        self.over_server(&mut topology)?;
        self.over_clients(&mut topology)?;
        if let Some(gbit_per_s) = self.switch_gbit {
            topology.switch = Some(Switch { gbit_per_s });
        }
        if let Some(text) = &self.transport {
            topology.transport = Some(text.parse()?);
        }
        topology.mtu = self.mtu.or(topology.mtu);
        Ok(topology)
    }

    fn over_storage(&self, topology: &mut Topology) -> Result<(), Error> {
        if let Some(count) = self.drives {
            let drives = Drives { count, read_gbytes_per_s: None, write_gbytes_per_s: None };
            topology.drives.get_or_insert(drives).count = count;
        }
        let speeds = self.drive_read_gbytes.or(self.drive_write_gbytes);
        match (&mut topology.drives, speeds) {
            (Some(drives), _) => {
                drives.read_gbytes_per_s = self.drive_read_gbytes.or(drives.read_gbytes_per_s);
                drives.write_gbytes_per_s = self.drive_write_gbytes.or(drives.write_gbytes_per_s);
            }
            (None, Some(_)) => {
                return Err(needs("--drive-read-gbytes and --drive-write-gbytes", "--drives", "--drives 24"));
            }
            (None, None) => {}
        }
        if let Some(text) = &self.scheme {
            let scheme = text.parse()?;
            topology.raid.get_or_insert_with(|| Raid::new(scheme)).scheme = scheme;
        }
        let stripes = self.request_kib.is_some() || self.segment_kib.is_some() || self.one_controller;
        match &mut topology.raid {
            Some(raid) => {
                raid.request_kib = self.request_kib.or(raid.request_kib);
                raid.segment_kib = self.segment_kib.or(raid.segment_kib);
                if self.one_controller {
                    raid.controllers_per_group = 1;
                }
            }
            None if stripes => {
                return Err(needs(
                    "--request-kib, --segment-kib and --one-controller",
                    "--scheme",
                    "--scheme raid6",
                ));
            }
            None => {}
        }
        if let Some(model) = &self.controller {
            topology.controller.get_or_insert_with(Controller::default).model = Some(model.clone());
        }
        Ok(())
    }

    fn over_server(&self, topology: &mut Topology) -> Result<(), Error> {
        if let Some(link) = link(self.server_link.as_ref())? {
            let server = Server { nodes: 1, ports: 1, link, cpu_gbytes_per_s: None, pcie: None };
            topology.server.get_or_insert(server).link = link;
        }
        let counts = self.nodes.is_some() || self.server_ports.is_some() || self.server_cpu_gbytes.is_some();
        match &mut topology.server {
            Some(server) => {
                server.nodes = self.nodes.unwrap_or(server.nodes);
                server.ports = self.server_ports.unwrap_or(server.ports);
                server.cpu_gbytes_per_s = self.server_cpu_gbytes.or(server.cpu_gbytes_per_s);
                Ok(())
            }
            None if counts => Err(needs(
                "--nodes, --server-ports and --server-cpu-gbytes",
                "--server-link",
                "--server-link 100GbE",
            )),
            None => Ok(()),
        }
    }

    fn over_clients(&self, topology: &mut Topology) -> Result<(), Error> {
        if let Some(count) = self.clients {
            let clients = Clients {
                count,
                ports: 1,
                link: None,
                paths: None,
                tasks: None,
                task_gbytes_per_s: None,
                cpu_gbytes_per_s: None,
                pcie: None,
            };
            topology.clients.get_or_insert(clients).count = count;
        }
        let link = link(self.client_link.as_ref())?;
        let others = [self.client_ports, self.paths, self.tasks].iter().any(Option::is_some);
        match &mut topology.clients {
            Some(clients) => {
                clients.ports = self.client_ports.unwrap_or(clients.ports);
                clients.link = link.or(clients.link);
                clients.paths = self.paths.or(clients.paths);
                clients.tasks = self.tasks.or(clients.tasks);
                clients.cpu_gbytes_per_s = self.client_cpu_gbytes.or(clients.cpu_gbytes_per_s);
                Ok(())
            }
            None if others || link.is_some() || self.client_cpu_gbytes.is_some() => {
                Err(needs("options of clients", "--clients", "--clients 1"))
            }
            None => Ok(()),
        }
    }
}

/// The error for options that have no meaning without another one.
fn needs(what: &str, other: &str, advice: &str) -> Error {
    Error::Usage {
        sentence: "cannot make a topology of that".to_owned(),
        cause: format!("{what} need {other}, or a file or preset that has it"),
        advice: advice.to_owned(),
    }
}
