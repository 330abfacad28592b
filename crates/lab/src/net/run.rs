//! Runs a command in a lab, for `trunkline lab net` and `trunkline lab exec`.

use super::{Error, Net, Spec, State, system};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// How long a server in a lab may take until it prints `ready`.
const READY_TIMEOUT: Duration = Duration::from_secs(30);

/// Creates a lab, runs a command in its client's namespace, removes the lab, and returns the
/// command's exit status.
///
/// `serve`, if given, is a shell command line. It runs meanwhile in the nodes' namespace (in each
/// one, if nodes are apart), and must first print a line that begins with `ready`.
/// `$TRUNKLINE_LAB_LISTEN` contains `--listen ADDRESS:2049` for each of its addresses.
///
/// Signals (SIGINT, SIGTERM, SIGHUP) end the command, and with it the lab: the first one sends
/// SIGTERM, the second one SIGKILL.
///
/// # Errors
/// If the lab cannot be created, the command cannot be started, or a server is not ready in time.
pub fn run(spec: &Spec, serve: Option<&str>, command: &Command) -> Result<ExitStatus, Error> {
    // Before the lab is created, so that no signal can end this process with a part of a lab left.
    let mut signals =
        Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(Error::io("catch signals".to_owned()))?;
    let net = Net::start(spec)?;
    let servers = match serve {
        Some(line) => start_servers(&net, line)?,
        None => Vec::new(),
    };
    let caught = signals.pending().next().is_some();
    if caught {
        return Err(Error::Misuse("interrupted before the command was started".to_owned()));
    }
    let status = supervise(net.exec_in("client", command)?, &mut signals);
    // The servers' output is passed on until the end of the lab ends them.
    let stopped = net.stop();
    for mut server in servers {
        let _ = server.wait();
    }
    let status = status?;
    stopped.map(|()| status)
}

/// Runs a command in a namespace of a running lab: `client`, `nodes`, or `node1` and so on.
///
/// # Errors
/// If there is no such namespace, or the command cannot be started.
pub fn exec(lab: &State, namespace: &str, command: &Command) -> Result<ExitStatus, Error> {
    system::require_root()?;
    let mut signals =
        Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(Error::io("catch signals".to_owned()))?;
    supervise(lab.exec_in(namespace, command)?, &mut signals)
}

/// Waits for a command. Signals to this process end the command.
fn supervise(mut command: Command, signals: &mut Signals) -> Result<ExitStatus, Error> {
    let mut child = command.spawn().map_err(Error::io("run the command in its namespace".to_owned()))?;
    let (pid, handle) = (Pid::from_child(&child), signals.handle());
    let waited = std::thread::scope(|scope| {
        scope.spawn(|| forward_signals(pid, signals));
        let waited = child.wait();
        Handle::close(&handle);
        waited
    });
    waited.map_err(Error::io("wait for the command".to_owned()))
}

fn forward_signals(pid: Pid, signals: &mut Signals) {
    let mut signalled = false;
    for _ in signals.forever() {
        // An error means that the command has just ended.
        let _ = kill_process(pid, if signalled { Signal::KILL } else { Signal::TERM });
        signalled = true;
    }
}

/// Starts the server's command line in each namespace of the nodes, and waits until all servers are
/// ready.
fn start_servers(net: &Net, line: &str) -> Result<Vec<Child>, Error> {
    let mut namespaces: Vec<_> = net.links().iter().map(|link| link.node_namespace.as_str()).collect();
    namespaces.dedup();
    let mut servers = Vec::new();
    for namespace in namespaces {
        let here = net.links().iter().filter(|link| link.node_namespace == namespace);
        let listen: Vec<_> = here.map(|link| format!("--listen {}:2049", link.node)).collect();
        let mut shell = Command::new("sh");
        shell.args(["-c", line]).env("TRUNKLINE_LAB_LISTEN", listen.join(" "));
        let mut shell = net.exec_in(namespace, &shell)?;
        let started = shell.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut server = started.map_err(Error::io(format!("run `{line}`")))?;
        wait_until_ready(&mut server, line)?;
        servers.push(server);
    }
    Ok(servers)
}

/// Passes the server's output on, and returns once the server has printed `ready`.
fn wait_until_ready(server: &mut Child, line: &str) -> Result<(), Error> {
    let Some(output) = server.stdout.take() else { return Ok(()) };
    let (sender, messages) = channel();
    std::thread::spawn(move || {
        for message in BufReader::new(output).lines().map_while(Result::ok) {
            // A closed terminal must not block the server.
            let _ = writeln!(std::io::stderr(), "{message}");
            if message.starts_with("ready") {
                let _ = sender.send(());
            }
        }
    });
    messages.recv_timeout(READY_TIMEOUT).map_err(|error| match error {
        RecvTimeoutError::Timeout => {
            Error::Timeout(format!("`{line}` was not ready within {READY_TIMEOUT:?}"))
        }
        RecvTimeoutError::Disconnected => Error::Misuse(format!("`{line}` ended before it was ready")),
    })
}
