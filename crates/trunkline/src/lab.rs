//! `trunkline lab`: test networks and machines without hardware.

mod vm;

use crate::error::Error;
use crate::output;
use ::lab::net::{self, Layout, Rate, Spec, State};
use clap::{Args, Subcommand};
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode, ExitStatus};
use std::time::Duration;

/// Create test networks with slow, cut and silent links (needs root), and virtual machines, without
/// hardware.
#[derive(Debug, Args)]
pub struct LabArgs {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Debug, Subcommand)]
enum LabCommand {
    Net(NetArgs),
    Cut(CutArgs),
    Restore(RestoreArgs),
    /// List the running labs, their links and the state of each link.
    List,
    Exec(ExecArgs),
    Vm(vm::VmArgs),
    /// The agent in a guest of `lab vm`; do not use it elsewhere.
    #[command(hide = true)]
    Guest,
}

/// Create a client, nodes and a shaped link to each, run a command as the client, and clean up.
///
/// The command gets the addresses in TRUNKLINE_LAB_NODES and TRUNKLINE_LAB_CLIENT (and the IPv6
/// addresses in the same names with _V6), joined by commas. Node n is 10.77.n.2 and `fd77:n::2`,
/// and its link is `n<n>`. The exit status is that of the command.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
struct NetArgs {
    /// Number of nodes, each with its own link.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=i64::from(net::NODES_MAX)))]
    nodes: u8,
    /// Speed of each link in each direction (1gbit, 500mbit) [default: unlimited].
    #[arg(long, value_name = "RATE", value_parser = rate)]
    rate: Option<Rate>,
    /// Delay of a packet in each direction (5ms, 200us) [default: none].
    #[arg(long, value_name = "TIME", value_parser = delay)]
    delay: Option<Duration>,
    /// Create a namespace for each node (node1, node2, ...) instead of one for all (nodes); each
    /// node reaches all addresses of the client.
    #[arg(long)]
    apart: bool,
    /// Run this shell command line in the nodes' namespace first, and wait until it prints `ready`;
    /// $TRUNKLINE_LAB_LISTEN contains --listen ADDR:2049 for each of its addresses.
    #[arg(long, value_name = "LINE")]
    serve: Option<String>,
    /// Command to run in the client's namespace [default: a shell].
    #[arg(value_name = "COMMAND", last = true)]
    command: Vec<OsString>,
}

const EXAMPLES: &str = "Examples:\n  \
    trunkline lab net --nodes 4 --rate 1gbit \\\n    \
      --serve 'exec trunkline serve --mem 2GiB $TRUNKLINE_LAB_LISTEN' -- COMMAND\n  \
    trunkline lab cut n2        from another terminal, while it runs\n  \
    trunkline lab restore n2";

/// Cut a link of a running lab, or make it silent.
#[derive(Debug, Args)]
struct CutArgs {
    /// Name of the link: n1, n2, ...
    link: String,
    /// Keep the carrier but lose every packet, as when a switch in between fails.
    #[arg(long)]
    silent: bool,
    #[command(flatten)]
    which: WhichArgs,
}

/// Restore a link that was cut or made silent.
#[derive(Debug, Args)]
struct RestoreArgs {
    /// Name of the link: n1, n2, ...
    link: String,
    #[command(flatten)]
    which: WhichArgs,
}

/// Run a command in a namespace of a running lab.
#[derive(Debug, Args)]
struct ExecArgs {
    /// Namespace: client, nodes, or node1, node2, ...
    namespace: String,
    #[command(flatten)]
    which: WhichArgs,
    /// Command to run.
    #[arg(value_name = "COMMAND", last = true, required = true)]
    command: Vec<OsString>,
}

#[derive(Debug, Args)]
struct WhichArgs {
    /// Name of the lab in `trunkline lab list` [default: the lab that the command runs in, or the
    /// only one].
    #[arg(long, value_name = "ID")]
    lab: Option<String>,
}

impl WhichArgs {
    fn find(&self) -> Result<State, Error> {
        Ok(net::find(self.lab.as_deref())?)
    }
}

fn rate(text: &str) -> Result<Rate, net::Error> {
    text.parse()
}

/// Parses a time such as `5ms`, `200us` or `0.1s`.
fn delay(text: &str) -> Result<Duration, String> {
    let wrong = || "write a time like 5ms, 200us or 0.1s".to_owned();
    let units = [("ms", 1e-3), ("us", 1e-6), ("s", 1.0)];
    let (number, unit) =
        units.iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, unit))).ok_or_else(wrong)?;
    let number: f64 = number.trim_end().parse().map_err(|_| wrong())?;
    Duration::try_from_secs_f64(number * unit).map_err(|_| wrong())
}

/// Runs a subcommand of `trunkline lab`.
pub fn run(args: LabArgs) -> Result<ExitCode, Error> {
    match args.command {
        LabCommand::Net(args) => run_net(args),
        LabCommand::Cut(CutArgs { link, silent, which }) => {
            let lab = which.find()?;
            if silent {
                lab.drop_silently(&link)?
            } else {
                lab.cut(&link)?
            }
            Ok(ExitCode::SUCCESS)
        }
        LabCommand::Restore(RestoreArgs { link, which }) => {
            which.find()?.restore(&link)?;
            Ok(ExitCode::SUCCESS)
        }
        LabCommand::List => list(),
        LabCommand::Exec(ExecArgs { namespace, which, command }) => {
            let status = net::exec(&which.find()?, &namespace, &command_of(command))?;
            Ok(exit_code_of(status))
        }
        LabCommand::Vm(args) => vm::run(args),
        LabCommand::Guest => {
            ::lab::vm::serve_as_guest()?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn run_net(args: NetArgs) -> Result<ExitCode, Error> {
    let layout = if args.apart { Layout::Apart } else { Layout::Together };
    let spec = Spec { nodes: args.nodes, rate: args.rate, delay: args.delay, layout };
    let status = net::run(&spec, args.serve.as_deref(), &command_of(args.command))?;
    Ok(exit_code_of(status))
}

/// The command of these words; without words, the user's shell.
fn command_of(words: Vec<OsString>) -> Command {
    let mut words = words.into_iter();
    let shell = || std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into());
    let mut command = Command::new(words.next().unwrap_or_else(shell));
    command.args(words);
    command
}

/// The exit status of a command, as a shell reports it.
fn exit_code_of(status: ExitStatus) -> ExitCode {
    let signal = || status.signal().map(|signal| 128 + signal);
    let code = status.code().or_else(signal).and_then(|code| u8::try_from(code).ok());
    ExitCode::from(code.unwrap_or(1))
}

fn list() -> Result<ExitCode, Error> {
    let labs = net::list()?;
    let mut text = String::new();
    for lab in &labs {
        let rate = lab.rate().map_or_else(|| "unshaped".to_owned(), |rate| rate.to_string());
        let delay = lab.delay().map_or_else(String::new, |delay| format!(", {delay:?} each way"));
        text.push_str(&format!("{}  {} links, {rate}{delay}\n", lab.id(), lab.links().len()));
        for link in lab.links() {
            let condition = lab.condition(&link.name)?.name();
            text.push_str(&format!(
                "  {:4} {condition:6}  client {} {}  {} {} {}\n",
                link.name, link.client, link.client_v6, link.node_namespace, link.node, link.node_v6
            ));
        }
    }
    if labs.is_empty() {
        text.push_str("no lab is running; start one with: trunkline lab net -- COMMAND\n");
    }
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_people_write_them() {
        assert_eq!(delay("5ms"), Ok(Duration::from_millis(5)));
        assert_eq!(delay("200 us"), Ok(Duration::from_micros(200)));
        assert_eq!(delay("0.1s"), Ok(Duration::from_millis(100)));
        for wrong in ["5", "ms", "-1s", "1h", "nan s"] {
            assert!(delay(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_end_of_a_command_is_told_as_a_shell_does() {
        let ended = |script: &str| {
            let command = command_of(["sh", "-c", script].map(OsString::from).to_vec());
            exit_code_of({ command }.status().expect("a shell"))
        };
        assert_eq!(format!("{:?}", ended("exit 7")), format!("{:?}", ExitCode::from(7)));
        assert_eq!(format!("{:?}", ended("kill -TERM $$")), format!("{:?}", ExitCode::from(143)));
    }
}
