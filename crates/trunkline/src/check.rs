//! `trunkline check`: whether this host, or one whose output was captured, is ready for network
//! storage. The crate `check` has the rules; this module captures, asks the server, and shows.

mod capture;
mod plan;
mod program;
mod server;
mod show;

pub use show::{findings_json, findings_table};

use crate::error::Error;
use crate::output;
use ::check::{Expected, Status, is_judged, worst};
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

/// Check whether a host is ready for network storage, and say what would mend it.
///
/// Looks at RDMA devices, interfaces, routing, limits, kernel mounts, NVMe paths, multipath, block
/// devices and the clock. With a server: which versions of NFS it offers over TCP and RDMA, whether
/// frames of the full size reach it, whether the export admits this host, and what this user may do
/// there. Nothing is changed, unless --write is given.
///
/// The exit status is 1 if something fails or nothing could be judged, else 0.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, group = clap::ArgGroup::new("mtu_expected").multiple(true))]
pub struct CheckArgs {
    /// An export to check too: HOST:/EXPORT or nfs://HOST/EXPORT?OPTIONS.
    #[arg(value_name = "SERVER:/EXPORT", conflicts_with = "from")]
    target: Option<String>,
    /// Mount options for the server, as for mount(8).
    #[arg(short = 'o', long, value_name = "OPTIONS", requires = "target")]
    options: Option<String>,
    /// Also make a file in the export, compare its time with this host's clock, and remove it.
    #[arg(long, requires = "target")]
    write: bool,
    /// Read captured output from this directory instead of looking at this host: a file per
    /// command, with the names that --captures lists. Files that are not there are not checked.
    #[arg(long, value_name = "DIR")]
    from: Option<PathBuf>,
    /// Also keep what was captured in this new directory, for --from on another host.
    #[arg(long, value_name = "DIR", conflicts_with = "from")]
    save: Option<PathBuf>,
    /// List the captures: their file names, and the commands that make them. Nothing is checked.
    #[arg(long, exclusive = true)]
    captures: bool,
    /// Expect what this site file plans for a host: the paths to its NVMe targets and the layer
    /// that joins them, its NQN, its address and interface, the MTU, the size of requests, the
    /// volumes, and for a client of a PowerScale cluster its nodes, pool, export, mounts and
    /// account. --paths, --mtu, --interface and --stripe-kib take precedence. docs/RUNBOOKS.md
    /// describes site files.
    #[arg(long, value_name = "SITE.toml", group = "mtu_expected")]
    plan: Option<PathBuf>,
    /// The host of the site file [default: the one with this host's name, or the only one].
    #[arg(long, value_name = "NAME", requires = "plan")]
    host: Option<String>,
    /// Expect this many paths of each NVMe namespace, subsystem and multipath device; with --plan
    /// only of those behind its NVMe targets.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    paths: Option<u16>,
    /// Judge the MTU of this interface; may be repeated [default: interfaces of RDMA ports that
    /// have an address].
    #[arg(long, value_name = "NAME", requires = "mtu_expected")]
    interface: Vec<String>,
    /// Expect this MTU of interfaces that carry storage, and on the way to the server.
    #[arg(long, value_name = "BYTES", group = "mtu_expected", value_parser = clap::value_parser!(u32).range(576..=65_535))]
    mtu: Option<u32>,
    /// Expect requests of block devices to carry a full stripe of this many KiB [default: what each
    /// device calls its optimal size].
    #[arg(long, value_name = "KIB", value_parser = clap::value_parser!(u32).range(1..))]
    stripe_kib: Option<u32>,
    /// Show only what is not ok.
    #[arg(short, long, conflicts_with = "json")]
    quiet: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "Examples:\n  \
    trunkline check\n  \
    trunkline check nas:/data -o proto=rdma --mtu 9000 --write\n  \
    trunkline check --paths 8 --stripe-kib 2048 --quiet\n  \
    trunkline check --plan site.toml --host cmp01\n  \
    trunkline check --save host7    # then, elsewhere: trunkline check --from host7\n  \
    trunkline check --captures";

/// Checks, and shows what was found.
pub fn run(args: &CheckArgs) -> Result<ExitCode, Error> {
    if args.captures {
        output::print(&show::captures())?;
        return Ok(ExitCode::SUCCESS);
    }
    let expected = expected(args)?;
    let evidence = match &args.from {
        Some(directory) => capture::read(directory)?,
        None => capture::of_this_host(expected.cluster.as_ref()),
    };
    if let Some(directory) = &args.save {
        capture::save(&evidence, directory)?;
    }
    let mut findings = ::check::check(&evidence, &expected);
    if let Some(target) = &args.target {
        let options = args.options.as_deref().unwrap_or_default();
        findings.extend(server::check(target, options, &expected, args.write)?);
    }
    let is_judged = is_judged(&evidence, &findings);
    let text = if args.json {
        show::json(&findings, &evidence, args.from.is_none())
    } else {
        show::table(&findings, &evidence, args.quiet, args.from.is_none())
    };
    output::print(&text)?;
    // What judged nothing must not look like a check that passed.
    let is_bad = worst(&findings) == Status::Fail || !is_judged;
    Ok(if is_bad { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// What is expected of the host: the plan, and over it the options.
fn expected(args: &CheckArgs) -> Result<Expected, Error> {
    let plan = match &args.plan {
        Some(site) => plan::expected(site, args.host.as_deref(), args.from.is_none())?,
        None => Expected::default(),
    };
    let stripe_bytes = args.stripe_kib.map(|kib| u64::from(kib) << 10);
    Ok(Expected {
        paths: args.paths.map(usize::from).or(plan.paths),
        mtu: args.mtu.or(plan.mtu),
        stripe_bytes: stripe_bytes.or(plan.stripe_bytes),
        interfaces: if args.interface.is_empty() { plan.interfaces } else { args.interface.clone() },
        ..plan
    })
}
