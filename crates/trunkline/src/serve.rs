//! `trunkline serve`: runs a node or a whole group of nodes.

mod privileges;
mod statistics;
mod systemd;

use crate::error::Error;
use crate::live::{self, Identity, MetricsArgs, Publication, Watched};
use crate::output;
use crate::service_manager;
use clap::Args;
use server::config::network::{self, Network, NetworkError};
use server::config::size;
use server::{Config, ListenAddress, NfsVersions, NodeId, Server, Statistics, StatisticsReader};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long the server waits for calls in progress after it was asked to end.
const DRAIN: Duration = Duration::from_secs(10);

/// Serve files over NFS version 3, and 4.1 and 4.2 where that is asked for; MOUNT is answered on
/// the same ports.
///
/// The server is configured by a file (docs/SERVE.md) or by "quick" options: one export, in memory
/// (--mem) or of a directory (--dir), and one node for each --listen. The quick export is writable
/// and admits loopback and the subnets of the listeners.
///
/// SIGHUP reads the configuration file again without dropping clients: exports are added and rules
/// changed; what cannot change at run time is reported and stays. SIGTERM and SIGINT answer the
/// calls received so far (10 s at most) and end; a second one ends at once. SIGUSR1 prints
/// statistics to standard error.
///
/// The server notifies a service manager by sd_notify(3), and uses the sockets that it passes on
/// (docs/SERVE.md).
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct ServeArgs {
    /// Configuration file (TOML).
    #[arg(short, long, value_name = "FILE.toml", conflicts_with_all = ["mem", "dir", "state", "export", "listen", "allow", "no_root_squash", "delegations"])]
    config: Option<PathBuf>,
    /// Quick: keep files in memory; data, names and all else take at most this much (2GiB, 512MiB).
    #[arg(long, value_name = "SIZE", value_parser = size::parse_bytes)]
    mem: Option<u64>,
    /// Quick: serve this directory. If root starts the server, callers act as themselves and a
    /// client's root as nobody; otherwise all callers act as the user who started it.
    #[arg(long, value_name = "PATH", conflicts_with = "mem")]
    dir: Option<PathBuf>,
    /// Quick: directory that holds the key of the file handles [default: /var/lib/trunkline for
    /// root, else ~/.local/state/trunkline].
    #[arg(long, value_name = "DIR", requires = "dir", conflicts_with = "mem")]
    state: Option<PathBuf>,
    /// Quick: path that clients mount.
    #[arg(long, value_name = "PATH", default_value = "/export")]
    export: String,
    /// Quick: address on which a node listens, `10.0.0.1:2049` or `[fd00::1]:2049`; each --listen
    /// is a node of the group [default: 127.0.0.1:2049, or the sockets that were passed on]. With
    /// `rdma:` in front (`rdma:10.0.0.1:20049`) the node with that address, else the first node,
    /// listens over RDMA too; MOUNT still needs TCP.
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Vec<ListenAddress>,
    /// Quick: admit this client in addition (10.0.0.7, 10.0.0.0/8, fd00::/8, a host name); may be
    /// repeated.
    #[arg(long, value_name = "CLIENT", value_parser = clients)]
    allow: Vec<Allowed>,
    /// Quick: let a client's root act as root in the export. Without this option such a caller acts
    /// as nobody (--dir, started by root), else as the user who started the server.
    #[arg(long)]
    no_root_squash: bool,
    /// Quick: let clients of NFS version 4 cache files of --dir by delegations. Only if no program
    /// but this server, or its group, changes them: what others change is not seen, and clients
    /// read old data. With --mem they do so without this option.
    #[arg(long)]
    delegations: bool,
    /// Join a group of processes on this host that serve the same directories (--dir, or `dir` in
    /// the file) and share their reply cache, and the opens and locks of NFS version 4, in this
    /// directory, so that each knows what the others have executed, even if they were killed. When
    /// one ends, another listens on its addresses until it is back. Use a directory for this
    /// purpose only, such as /run/trunkline/NAME; it is created if missing.
    #[arg(long, value_name = "DIR", conflicts_with = "mem")]
    group: Option<PathBuf>,
    /// Register by program number, as `showmount` and kernel clients need: answer on port 111 (UDP
    /// and TCP), or register with the rpcbind that has that port. Also answer MOUNT over UDP.
    #[arg(long)]
    rpcbind: bool,
    /// Versions of NFS to serve: 3, 4.1, 4.2 [default: all].
    #[arg(long, value_name = "LIST", value_parser = versions)]
    nfs_versions: Option<NfsVersions>,
    /// Do not lock files for clients of NFS version 3 (NLM and NSM): they mount with nolock then.
    #[arg(long)]
    no_nlm: bool,
    /// TCP congestion control [default: the system's].
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// Number of event loops, each a thread [default: one for each CPU].
    #[arg(long, value_name = "N")]
    loops: Option<usize>,
    #[command(flatten)]
    metrics: MetricsArgs,
}

const EXAMPLES: &str = "Examples:\n  \
    trunkline serve --mem 2GiB --listen 127.0.0.1:2049 --listen 127.0.0.2:2049\n  \
    trunkline serve --mem 2GiB --listen 10.0.0.1:2049 --listen rdma:10.0.0.1:20049\n  \
    trunkline serve --dir /srv/data --export /data --listen 10.0.0.1:2049 --allow 10.0.0.0/8\n  \
    trunkline serve --dir /srv/data --group /run/trunkline/data --listen 10.0.0.1:2049 &\n  \
    trunkline serve --dir /srv/data --group /run/trunkline/data --listen 10.0.0.2:2049 &\n  \
    mount -t nfs -o vers=3,proto=tcp,port=2049,mountport=2049,nolock 127.0.0.1:/export /mnt";

/// The clients of one `--allow`.
type Allowed = std::sync::Arc<[Network]>;

fn clients(text: &str) -> Result<Allowed, NetworkError> {
    network::clients(text).map(Into::into)
}

fn versions(text: &str) -> Result<NfsVersions, String> {
    text.parse()
}

/// The default address of a quick node.
const QUICK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 2049);

impl ServeArgs {
    /// The configuration. `passed` are the addresses of sockets that a service manager passed on.
    fn config(&self, passed: &[SocketAddr]) -> Result<Config, Error> {
        let tcp: Vec<_> = self.listen.iter().filter_map(|listen| listen.tcp()).collect();
        let rdma: Vec<_> = self.listen.iter().filter_map(|listen| listen.rdma()).collect();
        let listen = match (tcp.as_slice(), passed) {
            // RDMA without TCP is refused later, because MOUNT needs TCP.
            ([], []) if !rdma.is_empty() => &[][..],
            ([], []) => &[QUICK],
            ([], passed) => passed,
            (listen, _) => listen,
        };
        let mut config = match (&self.config, &self.dir, self.mem) {
            (Some(file), _, _) => Config::from_file(file)?,
            (None, Some(dir), _) => Config::quick_dir(dir, self.state.as_deref(), &self.export, listen),
            (None, None, Some(bytes)) => Config::quick(bytes, &self.export, listen),
            (None, None, None) => {
                return Err(Error::Usage {
                    sentence: "there is nothing to serve".to_owned(),
                    cause: "neither a directory, nor memory, nor a configuration file was given".to_owned(),
                    advice: "--dir /srv/data, --mem 2GiB, or -c FILE.toml".to_owned(),
                });
            }
        };
        if let Some(export) = config.exports.first_mut() {
            // There is no `--allow` if the configuration is a file.
            export.allow.extend(self.allow.iter().flat_map(|allowed| allowed.iter().copied()));
            export.root_squash &= !self.no_root_squash;
            if self.delegations {
                export.delegations = true;
            }
        }
        if self.rpcbind {
            config.rpcbind = Some(server::RPCBIND_PORT);
        }
        config.group = self.group.clone().or(config.group);
        if self.config.is_none() {
            config.add_rdma(&rdma);
        }
        if let Some(versions) = self.nfs_versions {
            (config.versions, config.may_leave_v4) = (versions, false);
        }
        config.nlm &= !self.no_nlm;
        config.congestion = self.congestion.clone().or(config.congestion);
        config.loops = self.loops.or(config.loops);
        Ok(config)
    }

    /// Why the server does not start. A setting that was given by an option, or could have been if
    /// there is no file, is named as the option.
    fn explain(&self, error: &server::Error) -> Error {
        let quick = self.config.is_none();
        let mut text = error.to_string();
        for (key, is_option) in [
            ("dir", quick),
            ("mem", quick),
            ("state", quick),
            ("listen", quick),
            ("rpcbind", quick || self.rpcbind),
            ("group", quick || self.group.is_some()),
            ("congestion", quick || self.congestion.is_some()),
            ("loops", quick || self.loops.is_some()),
        ] {
            if is_option {
                text = text.replace(&format!("`{key}`"), &format!("--{key}"));
            }
        }
        Error::Serve(text)
    }
}

/// Serves until a signal ends the server.
pub fn run(args: ServeArgs) -> Result<ExitCode, Error> {
    server::map_large_allocations();
    let sockets = systemd::sockets();
    let passed: Vec<SocketAddr> = sockets.iter().filter_map(|socket| socket.local_addr().ok()).collect();
    let config = args.config(&passed)?;
    let exports: Vec<&str> = config.exports.iter().map(|export| export.path.as_str()).collect();
    let exports = exports.join(" ");
    let names: Vec<String> = config.nodes.iter().map(|node| node.name.clone()).collect();
    // Before any thread starts, because each has its own capabilities.
    let (listen, token) = config.metrics.clone().map_or((None, None), |it| (Some(it.listen), it.token));
    let metrics = args.metrics.or(listen, token.as_deref())?;
    if let Err(error) = privileges::drop_unneeded(config.congestion.is_some()) {
        tracing::warn!(%error, "the server keeps capabilities that it does not need");
    }
    // Before the start, so that a signal during the start is not lost.
    let signals = Signals::new([SIGTERM, SIGINT, SIGUSR1, SIGHUP]).map_err(Error::Signals)?;
    let (wants_nlm, wants_v4) = (config.nlm && config.versions.has_v3(), config.versions.has_v4());
    let server = Server::start_on(config, sockets).map_err(|error| args.explain(&error))?;
    let mut text = String::new();
    for (index, name) in names.iter().enumerate() {
        for address in server.node_addresses(NodeId(index)) {
            text.push_str(&format!("listening on {address} (node {name})\n"));
        }
        for address in server.node_rdma_addresses(NodeId(index)) {
            text.push_str(&format!("listening on {address} over RDMA (node {name})\n"));
        }
    }
    if server.is_registered() == Some(false) {
        text.push_str(
            "another process of the group is found by program number; this one will be when that ends\n",
        );
    }
    if wants_v4 && !server.versions().has_v4() {
        text.push_str("NFS version 4 is not served: the log says why\n");
    }
    if wants_nlm && !server.serves_nlm() {
        text.push_str("files are not locked for clients of NFS version 3: the log says why\n");
    }
    // Before it says that it is ready, so that an address that is in use ends it.
    let is_ready = Arc::new(AtomicBool::new(true));
    let published = publish(&metrics, server.statistics_reader(), Arc::clone(&is_ready), &exports)?;
    text.push_str("ready\n");
    output::print(&text)?;
    service_manager::ready("serving");
    let server = Arc::new(Mutex::new(Some(server)));
    systemd::watch(&server);
    Ok(handle_signals(&server, signals, &args, || {
        is_ready.store(false, Ordering::Release);
        published.count();
    }))
}

/// Lets others watch the server.
fn publish(
    args: &MetricsArgs,
    counters: StatisticsReader,
    is_ready: Arc<AtomicBool>,
    exports: &str,
) -> Result<Publication, Error> {
    let identity = Identity::new(metrics::Kind::Serve, exports);
    // The last counts of all loops stay when the loops end, one after another.
    let last = Mutex::new(Statistics::default());
    let read = Arc::new(move |by_file| {
        let now = counters.read_by_file(by_file);
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(now) = now.filter(|now| now.loops.len() >= last.loops.len()) {
            *last = now;
        }
        live::serve::snapshot(&identity, &last)
    });
    let by_file = Arc::clone(&read);
    let watched = Watched {
        snapshot: Arc::new(move || read(None)),
        is_ready: Arc::new(move || is_ready.load(Ordering::Acquire)),
        by_file: Some(Arc::new(move |time| by_file(Some(time)))),
    };
    let published = Publication::new(args, watched)?;
    if let Some(address) = published.address {
        output::print(&format!("metrics on http://{address}/metrics\n"))?;
    }
    Ok(published)
}

/// Reads the configuration file again.
fn reload(server: &Server, args: &ServeArgs) {
    let Some(file) = &args.config else {
        tracing::warn!(
            "asked to read the configuration again, and there is no file: it was given by options"
        );
        return;
    };
    // A pipe has been read already, and could block this thread.
    if output::stream(file).is_some() {
        tracing::error!(
            "the configuration stays as it was: {} is no file that can be read again",
            file.display()
        );
        return;
    }
    service_manager::reloading();
    let text = args.config(&[]).and_then(|config| Ok(server.reload(config)?));
    match text {
        Err(error) => tracing::error!("the configuration stays as it was: {error}"),
        Ok(text) => {
            text.refused.iter().for_each(|refused| tracing::warn!("not taken over: {refused}"));
            text.changed.iter().for_each(|changed| tracing::info!("{changed}"));
            let (changed, refused) = (text.changed.len(), text.refused.len());
            output::print_to_stderr(&format!("reloaded: {changed} changed, {refused} not taken over\n"));
        }
    }
    service_manager::ready("serving");
}

/// Handles signals until the server has ended. `before_drain` is called before each attempt to end.
fn handle_signals(
    server: &systemd::Shared,
    mut signals: Signals,
    args: &ServeArgs,
    before_drain: impl Fn(),
) -> ExitCode {
    let handle = signals.handle();
    let lock = || server.lock().unwrap_or_else(PoisonError::into_inner);
    for signal in signals.forever() {
        if signal == SIGUSR1 || signal == SIGHUP {
            match &*lock() {
                Some(server) if signal == SIGHUP => reload(server, args),
                Some(server) => output::print_to_stderr(&statistics::table(&server.statistics())),
                None => output::print_to_stderr("draining: no statistics and no configuration any more\n"),
            }
            continue;
        }
        before_drain();
        let server = lock().take();
        let Some(server) = server else {
            // The second signal. The status is that of a shell for a signal.
            return ExitCode::from(u8::try_from(128 + signal).unwrap_or(u8::MAX));
        };
        service_manager::stopping();
        tracing::info!("draining: what has been received is answered, within {DRAIN:?}");
        let handle = handle.clone();
        std::thread::spawn(move || {
            server.drain(DRAIN);
            // Ends the loop over signals, and with it the program.
            handle.close();
        });
    }
    ExitCode::SUCCESS
}
