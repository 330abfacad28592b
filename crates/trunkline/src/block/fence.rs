//! `trunkline block fence` and `unfence`: refuse a host at all servers of this host, for clusters.

use super::document::{self, FENCE, Server, UNFENCE, Which};
use crate::error::Error;
use crate::output;
use clap::Args;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How often it is asked whether the host's controllers have ended.
const LOOK: Duration = Duration::from_millis(100);

/// Refuse a host, and end its connections, until `trunkline block unfence`.
///
/// Succeeds only when the refusal is on disk, where it survives restarts, and when nothing that the
/// host has sent can have an effect any more. All servers of block volumes of this user on this
/// host refuse it (as root: of all users), unless --pid names one. fence_trunkline does this for
/// Pacemaker and the like.
#[derive(Debug, Args)]
pub struct FenceArgs {
    /// The NQN of the host, which is in /etc/nvme/hostnqn there.
    #[arg(value_name = "HOSTNQN")]
    host: String,
    /// Give up after so many seconds, if commands of the host do not end; it stays refused.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=3600))]
    timeout: u32,
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

/// List the hosts that are fenced at all servers of this host.
#[derive(Debug, Args)]
pub struct FencedArgs {
    #[command(flatten)]
    which: Which,
}

pub fn fenced(args: &FencedArgs) -> Result<ExitCode, Error> {
    let servers = args.which.all()?;
    let refused = |host: &String| servers.iter().all(|server| server.fenced.contains(host));
    let hosts = servers.first().map(|server| server.fenced.iter()).into_iter().flatten();
    let text: String = hosts.filter(|host| refused(host)).map(|host| format!("{host}\n")).collect();
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

pub fn fence(args: &FenceArgs) -> Result<ExitCode, Error> {
    let servers = args.which.all()?;
    let mut text = String::new();
    for server in &servers {
        text.push_str(&document::order(server.pid, &format!("{FENCE} {}", args.host))?);
    }
    let deadline = Instant::now() + Duration::from_secs(args.timeout.into());
    for server in &servers {
        wait(server, &args.host, deadline)?;
    }
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

pub fn unfence(args: &UnfenceArgs) -> Result<ExitCode, Error> {
    let mut text = String::new();
    for server in args.which.all()? {
        text.push_str(&document::order(server.pid, &format!("{UNFENCE} {}", args.host))?);
    }
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Waits until the host has no controller and all volumes are served: then nothing that it has
/// begun goes on. Those of discovery have no data, and stay. A volume whose node has ended or hangs may still be written by the system; it is
/// served when the other node has its lock. What a node has forwarded that has ended since is
/// waited for as well. A server that ends meanwhile says nothing of what its drives still execute,
/// so that is no success.
fn wait(server: &Server, host: &str, deadline: Instant) -> Result<(), Error> {
    loop {
        let now = Which::of(server.pid).server()?;
        let left = now.io_controllers().filter(|controller| controller.host == host).count();
        let away = now.volumes.iter().filter(|volume| volume.reach != "serving").count();
        let is_fenced = now.fenced.iter().any(|fenced| fenced == host);
        if left == 0 && away == 0 && !now.finishing && is_fenced {
            return Ok(());
        }
        if Instant::now() >= deadline {
            let cause = if is_fenced && left == 0 && away == 0 {
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
