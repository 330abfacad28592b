//! `trunkline agent`: takes part in experiments that `trunkline bench` on another machine runs.

use crate::bench::{publish, remains_after};
use crate::error::Error;
use crate::live::{self, Identity, MetricsArgs};
use crate::output;
use crate::signals::SignalWatch;
use ::bench::clients::{AGENT_PORT, AllowedDirectories, Key, agent};
use ::bench::{Stop, Watch, Watcher};
use clap::Args;
use client::{Address, AddressError};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

/// Take part in an experiment with many clients, as one of them.
///
/// `trunkline bench --client HOST,...` on another machine asks the agents to make load on the
/// server under test, all at the same time. An agent does nothing else: it runs no commands, and
/// opens and writes no files here, except in directories that --allow-dir names. But it mounts the
/// server, export and options that bench names, from here and with the rights of this process.
/// Nothing listens unless --listen says so, and only who has the key of --key can ask.
///
/// The load and its results are not secret: they are sent as they are.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct AgentArgs {
    /// Listen at this address, on port 7411 if none is given.
    #[arg(long, value_name = "ADDR[:PORT]", value_parser = address, conflicts_with = "stdio")]
    #[arg(required_unless_present = "stdio", requires = "key")]
    listen: Option<SocketAddr>,
    /// The file with the key that bench must have: at least 16 bytes, closed to other users.
    #[arg(long, value_name = "FILE", conflicts_with = "stdio")]
    key: Option<PathBuf>,
    /// Let bench measure this directory and those below it, with the rights of this process:
    /// files are made in a new directory there, and removed at the end. May be given several
    /// times; without it, none.
    #[arg(long, value_name = "DIR")]
    allow_dir: Vec<PathBuf>,
    /// End after one experiment in which the agent took part.
    #[arg(long, conflicts_with = "stdio")]
    once: bool,
    /// Talk to bench through standard input and output, for `bench --client ssh:HOST`.
    #[arg(long)]
    stdio: bool,
    #[command(flatten)]
    metrics: MetricsArgs,
}

const EXAMPLES: &str = "Examples:\n  \
    (umask 077; head -c 32 /dev/urandom | base64 > bench.key)    # the same file on all machines\n  \
    trunkline agent --listen 10.0.0.11 --key bench.key\n  \
    trunkline bench --client 10.0.0.11,10.0.0.12 --client-key bench.key many.toml\n  \
    trunkline bench --client ssh:host1,ssh:host2 many.toml       # starts the agents itself\n  \
    trunkline agent --listen 10.0.0.11 --key bench.key --allow-dir /mnt/tcp\n  \
    trunkline bench --client 10.0.0.11,10.0.0.12 --client-key bench.key /mnt/tcp";

fn address(text: &str) -> Result<SocketAddr, String> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    match (bare.parse::<Address>(), client::parse_with_port(text)) {
        (Ok(address), _) => Ok(address.with_port(AGENT_PORT)),
        (_, Ok(address)) => Ok(address),
        (Err(AddressError::NotAnAddress(_)), Err(AddressError::NotASocketAddress(_))) => {
            Err("an address of this machine, as in 10.0.0.11, 0.0.0.0:7411 or [::]:7411".to_owned())
        }
        (Err(AddressError::NotAnAddress(_)), Err(error)) | (Err(error), _) => Err(error.to_string()),
    }
}

/// Takes part in experiments until a signal, or in one.
pub fn run(args: &AgentArgs) -> Result<ExitCode, Error> {
    let allowed = AllowedDirectories::new(&args.allow_dir).map_err(|(path, error)| Error::Refused {
        sentence: format!("cannot allow {}", path.display()),
        cause: error.to_string(),
        advice: "--allow-dir with a directory of this machine".to_owned(),
    })?;
    let stop = Stop::default();
    if args.stdio {
        let _signals = watch_signals(&stop)?;
        let counts = counts("started by bench");
        let _published = publish(&args.metrics, Arc::clone(&counts))?;
        agent::on_standard_streams(&allowed, &stop, &Watch::by(counts as Arc<dyn Watcher>))
            .map_err(|error| refused("cannot talk to bench", &error))?;
        return Ok(ExitCode::SUCCESS);
    }
    // clap has checked that both are given.
    let (Some(address), Some(file)) = (args.listen, &args.key) else { return Ok(ExitCode::from(2)) };
    let key = Key::from_file(file).map_err(|(cause, advice)| Error::Refused {
        sentence: format!("cannot use the key {}", file.display()),
        cause,
        advice,
    })?;
    let listener = TcpListener::bind(address)
        .map_err(|error| refused(&format!("cannot listen on {address}"), &error))?;
    let address = listener.local_addr().unwrap_or(address);
    let counts = counts(&address.to_string());
    let _published = publish(&args.metrics, Arc::clone(&counts))?;
    let signals = watch_signals(&stop)?;
    output::print(&format!("ready on {address}\n"))?;
    let report = |line: &str| {
        // Who does not read what happens is not told.
        let _ = output::print(&format!("{line}\n"));
    };
    let watch = Watch::by(counts as Arc<dyn Watcher>);
    let ended = agent::listen(&listener, &key, &allowed, args.once, &stop, &watch, &report);
    signals.end();
    ended.map_err(|error| refused("cannot accept connections any more", &error))?;
    Ok(ExitCode::SUCCESS)
}

/// What this agent counts. `name` is its address.
fn counts(name: &str) -> Arc<live::bench::Counts> {
    Arc::new(live::bench::Counts::new(Identity::new(metrics::Kind::Agent, name)))
}

/// Has the first signal end the agent, and with it the experiment. The second ends it at once.
fn watch_signals(stop: &Stop) -> Result<SignalWatch, Error> {
    let (first, remains) = (stop.clone(), stop.remains().clone());
    let sentence = "error: the agent is ended at once by a second signal\n";
    SignalWatch::with_hangup(move || first.request(), move |_| remains_after(sentence, &remains.list()))
}

fn refused(sentence: &str, error: &io::Error) -> Error {
    let advice = match error.kind() {
        io::ErrorKind::AddrInUse => "another port, or `ss -ltnp` to see which program has that one",
        io::ErrorKind::AddrNotAvailable => "an address of this machine, as `ip addr` shows them",
        io::ErrorKind::PermissionDenied => "a port above 1023",
        _ => "the same again with -v",
    };
    Error::Refused { sentence: sentence.to_owned(), cause: error.to_string(), advice: advice.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_lack_its_port() {
        for (text, shown) in [
            ("10.0.0.11", "10.0.0.11:7411"),
            ("10.0.0.11:99", "10.0.0.11:99"),
            ("::1", "[::1]:7411"),
            ("[::]", "[::]:7411"),
            ("[::1]:99", "[::1]:99"),
            ("fe80::1%lo", "[fe80::1%1]:7411"),
            ("[fe80::1%1]", "[fe80::1%1]:7411"),
            ("[fe80::1%lo]:99", "[fe80::1%1]:99"),
        ] {
            assert_eq!(address(text).unwrap().to_string(), shown);
        }
        for text in ["", "host1", ":7411", "10.0.0.11:99999", "[10.0.0.11", "10.0.0.11%lo"] {
            assert!(address(text).is_err(), "{text}");
        }
        for text in ["fe80::1", "[fe80::1]", "[fe80::1]:99"] {
            assert!(address(text).unwrap_err().contains("name its interface"), "{text}");
        }
    }
}
