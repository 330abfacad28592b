//! A lab around a command: what `trunkline lab net` and `trunkline lab exec` do.

use super::{Error, Net, Spec, State, system};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// How long a server in a lab may take until it says `ready`.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// Builds a lab, runs a command in its client's namespace, removes the lab, and gives how the
/// command ended.
///
/// `serve`, where given, is a shell command line that runs beside it in the nodes' namespace (in
/// each, where they are apart) and must print a line that begins with `ready` first. It finds
/// `--listen ADDRESS:2049` for each of its addresses in `$TRUNKLINE_LAB_LISTEN`.
///
/// Signals (interrupt, terminate, hang-up) end the command, and with it the lab: the first asks,
/// the second kills.
///
/// # Errors
/// A lab that cannot be built, a command that cannot be started, a server that is not ready in
/// time.
pub fn run(spec: &Spec, serve: Option<&str>, command: &Command) -> Result<ExitStatus, Error> {
    // Before the lab, so that no signal can end us between its first namespace and its last.
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
    let status = attend(net.exec_in("client", command)?, &mut signals);
    // What the servers still say is passed on until the lab's end ends them.
    let stopped = net.stop();
    for mut server in servers {
        let _ = server.wait();
    }
    let status = status?;
    stopped.map(|()| status)
}

/// Runs a command in a namespace of a lab that is running: `client`, `nodes`, or `node1` and so on.
///
/// # Errors
/// No such namespace, or a command that cannot be started.
pub fn exec(lab: &State, namespace: &str, command: &Command) -> Result<ExitStatus, Error> {
    system::require_root()?;
    let mut signals =
        Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(Error::io("catch signals".to_owned()))?;
    attend(lab.exec_in(namespace, command)?, &mut signals)
}

/// Waits for a command; signals that come for us end it.
fn attend(mut command: Command, signals: &mut Signals) -> Result<ExitStatus, Error> {
    let mut child = command.spawn().map_err(Error::io("run the command in its namespace".to_owned()))?;
    let (pid, handle) = (Pid::from_child(&child), signals.handle());
    let waited = std::thread::scope(|scope| {
        scope.spawn(|| pass_signals_on(pid, signals));
        let waited = child.wait();
        Handle::close(&handle);
        waited
    });
    waited.map_err(Error::io("wait for the command".to_owned()))
}

fn pass_signals_on(pid: Pid, signals: &mut Signals) {
    let mut asked = false;
    for _ in signals.forever() {
        // An error means that the command has just ended.
        let _ = kill_process(pid, if asked { Signal::KILL } else { Signal::TERM });
        asked = true;
    }
}

/// Starts the servers' command line in each namespace on the nodes' side and waits until all are
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

/// Passes the server's output on, and returns once it has said `ready`.
fn wait_until_ready(server: &mut Child, line: &str) -> Result<(), Error> {
    let Some(output) = server.stdout.take() else { return Ok(()) };
    let (tell, told) = channel();
    std::thread::spawn(move || {
        for said in BufReader::new(output).lines().map_while(Result::ok) {
            // A terminal that is gone must not hold the server up.
            let _ = writeln!(std::io::stderr(), "{said}");
            if said.starts_with("ready") {
                let _ = tell.send(());
            }
        }
    });
    told.recv_timeout(READY_WITHIN).map_err(|error| match error {
        RecvTimeoutError::Timeout => {
            Error::Timeout(format!("`{line}` was not ready within {READY_WITHIN:?}"))
        }
        RecvTimeoutError::Disconnected => Error::Misuse(format!("`{line}` ended before it was ready")),
    })
}
