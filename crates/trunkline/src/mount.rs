//! `trunkline mount`: mounts an export as a directory; also called as `mount.trunkline` by mount(8)
//! for fstab.
//!
//! There are up to three processes: the one that the user called, which waits until the mount
//! works; the one that serves the mount, in the background unless `-f`; and a [`watcher`], which
//! reports it if the serving process is killed. All of them are this program, and [`Role`] tells
//! them apart. If the server does not answer yet, the serving process tries again, see [`retry`].

pub mod fstab;
mod in_effect;
pub mod registry;
mod retry;
mod statistics;
mod watcher;

use crate::error::Error;
use crate::live::{self, Identity, MetricsArgs, Publication, Watched};
use crate::output;
use clap::Args;
use client::options::{MountOptions, Target, document};
use mount::{MountId, Mounted, Request, Unmounter};
use registry::Registration;
use retry::{Events, RetryPolicy};
use rustix::fs::{Mode, OFlags};
use signal_hook::consts::SIGUSR1;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use watcher::{WATCHER, Watcher};

/// An environment variable with the role of a process of a mount.
const ROLE: &str = "TRUNKLINE_MOUNT_ROLE";
/// An environment variable that tells the serving process that mount(8) called.
const FOR_MOUNT_8: &str = "TRUNKLINE_MOUNT_FOR_MOUNT_8";
/// The serving process prints this once programs can use the directory.
const MOUNTED: &str = "mounted ";
/// The serving process prints this when it keeps trying in the background.
const WAITING: &str = "waiting for ";

/// Mount an export as a directory, over all paths at once (FUSE).
///
/// The command returns once the directory can be used, or with the reason why it cannot, and a
/// process in the background serves the mount. SIGTERM, SIGINT or `trunkline umount DIR` unmounts.
/// SIGUSR1 writes statistics of each path to the log. docs/SEMANTICS.md says what programs may rely
/// on, docs/MOUNT-OPTIONS.md describes the options.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, after_long_help = long_help())]
pub struct MountArgs {
    /// The export: SERVER:/EXPORT or nfs://SERVER/EXPORT.
    #[arg(value_name = "SERVER:/EXPORT")]
    target: String,
    /// The mount point: an existing directory.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Mount options, joined by commas; may be repeated. --help lists them.
    #[arg(short, long = "options", value_name = "OPTIONS")]
    options: Vec<String>,
    /// Stay in the foreground, and log to standard error.
    #[arg(short, long)]
    foreground: bool,
    /// In the background, append log messages to this file [default: the system's log, by
    /// logger(1)].
    #[arg(long, value_name = "FILE", conflicts_with = "foreground")]
    log_file: Option<PathBuf>,
    #[command(flatten)]
    metrics: MetricsArgs,
}

const EXAMPLES: &str = "Examples:\n  \
    trunkline mount 10.0.0.1:/data /mnt -o nconnect=8,remoteports=10.0.0.1-10.0.0.4\n  \
    trunkline mount -f -v nas:/data /mnt -o ro,soft\n\n\
    In /etc/fstab, with a link /sbin/mount.trunkline to this program:\n  \
    nas:/data  /mnt  trunkline  nconnect=8,_netdev,nofail  0 0";

/// The help with the mount options, which `-h` leaves out.
fn long_help() -> String {
    format!("Mount options:\n\n{}\n{EXAMPLES}", document::help())
}

/// The role of a process of a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// The process that the user called.
    Called,
    /// The process that serves the mount in the background.
    Background,
    /// The process that reports it if the serving process is killed; `is_background` is about that
    /// process.
    Watcher { is_background: bool },
}

impl Role {
    fn own() -> Self {
        match std::env::var(ROLE).as_deref() {
            Ok("background") => Self::Background,
            Ok(role) if WATCHER.contains(&role) => Self::Watcher { is_background: role == WATCHER[1] },
            _ => Self::Called,
        }
    }
}

/// Mounts, and serves the mount unless a process in the background does.
pub fn run(args: &MountArgs) -> Result<ExitCode, Error> {
    match Role::own() {
        Role::Watcher { is_background } => {
            watcher::run(args, is_background);
            Ok(ExitCode::SUCCESS)
        }
        Role::Called if !args.foreground => start_in_background(args),
        role => serve(args, role),
    }
}

impl MountArgs {
    fn options(&self) -> String {
        self.options.join(",")
    }
}

/// Leaves the caller's session and directory.
fn leave_caller(events: &Events<Mounted>) {
    // This fails harmlessly if the process already leads a session.
    let _ = rustix::process::setsid();
    let _ = rustix::process::chdir("/");
    events.watch_caller();
}

/// Serves the mount in this process until it is unmounted.
fn serve(args: &MountArgs, role: Role) -> Result<ExitCode, Error> {
    // Before anything is mounted, so that no signal is missed.
    let events = Events::catch()?;
    let options = args.options();
    let target = Target::parse(&args.target).map_err(client::Error::from)?;
    let parsed = target.mount_options(&options).map_err(client::Error::from)?;
    warn_of_ignored_options(&parsed);
    let (retry_policy, metrics) = (RetryPolicy::new(&parsed, is_for_mount_8()), metrics_of(args, &parsed)?);
    let directory = resolve_directory(&args.directory, retry_policy.is_background())?;
    if role == Role::Background {
        leave_caller(&events);
    }
    let registration = Arc::new(Registration::register(&args.target, &directory, &options));
    let request = Request { source: args.target.clone(), options: parsed, directory: directory.clone() };
    // Started before the mount, so that the watcher does not inherit the mount's descriptors.
    let mut watcher = Watcher::start(args, &directory, role == Role::Background);
    client::raise_descriptor_limit();
    let entry = Arc::clone(&registration);
    let attempt = move || {
        let try_once = || {
            let settings = client::Settings::from_options(&request.source, &options)?;
            let mount = client::Mount::with_settings(mount::settings(settings))?;
            let options = in_effect::options(mount.settings(), mount.transfer_sizes(), &request.options);
            entry.in_effect(options, &request.options.without_effect());
            Ok(Mounted::start(mount, &request)?)
        };
        try_once().inspect_err(|error: &Error| entry.failed(&error.one_line()))
    };
    let detaches = role == Role::Background && retry_policy.is_background();
    let mut is_detached = false;
    let mounted = events.retry(retry_policy, attempt, |message| {
        output::print_to_stderr(message);
        if detaches {
            output::print(&format!("{WAITING}{}\n", args.target))?;
            detach_from_terminal(args.log_file.as_deref(), None);
            is_detached = true;
        }
        Ok(!detaches)
    });
    let mounted = match mounted {
        Ok(mounted) => mounted,
        Err(error @ Error::Interrupted { .. }) => {
            // A try may be about to mount. The watcher is left to detect the end of this process,
            // and removes what the try may leave.
            watcher.abandon();
            return Err(error);
        }
        Err(error) => {
            watcher.stop();
            return Err(error);
        }
    };
    watcher.watch(mounted.id());
    registration.mounted(mounted.unmounter());
    let _published = publish(args, &metrics, &directory, mounted.unmounter())?;
    if let Err(error) = output::print(&format!("{MOUNTED}{} on {}\n", args.target, directory.display())) {
        // The caller is gone and will never learn of this mount.
        let _ = mounted.unmounter().unmount();
        watcher.stop();
        return Err(error);
    }
    if role == Role::Background && !is_detached {
        detach_from_terminal(args.log_file.as_deref(), Some(mounted.id()));
    }
    serve_until_unmounted(mounted, events, watcher)
}

/// How the mount is watched, by the command line or its mount options. A file is found from the
/// directory of the caller.
fn metrics_of(args: &MountArgs, options: &MountOptions) -> Result<MetricsArgs, Error> {
    let option = |name: &str| options.noted.get(name).and_then(Option::as_deref);
    let address = option("metrics").map(|text| {
        client::parse_with_port(text).map_err(|error| Error::Usage {
            sentence: format!("invalid mount option metrics={text}"),
            cause: error.to_string(),
            advice: "metrics=127.0.0.1:9101, or metrics=[::1]:9101".to_owned(),
        })
    });
    let token = option("metricstoken").map(std::path::absolute).transpose();
    let token = token.map_err(|error| Error::Usage {
        sentence: "invalid mount option metricstoken=".to_owned(),
        cause: error.to_string(),
        advice: "metricstoken=FILE with the name of a file".to_owned(),
    })?;
    args.metrics.or(address.transpose()?, token.as_deref())
}

/// Lets others watch the mount, which is ready while a path answers. If that fails, the mount ends.
fn publish(
    args: &MountArgs,
    metrics: &MetricsArgs,
    directory: &Path,
    mounted: Unmounter,
) -> Result<Publication, Error> {
    let name = format!("{} on {}", args.target, directory.display());
    let identity = Identity::new(metrics::Kind::Mount, &name);
    let failed = mounted.clone();
    // As of the last snapshot, so that whoever asks makes no event loop work. A mount begins ready.
    let has_path = Arc::new(AtomicBool::new(true));
    let found = Arc::clone(&has_path);
    let snapshot = move || {
        let statistics = mounted.statistics();
        found.store(live::mount::has_path(&statistics), Ordering::Release);
        live::mount::snapshot(&identity, &statistics, Some(&mounted.gauges()))
    };
    let is_ready = move || has_path.load(Ordering::Acquire);
    let watched = Watched { snapshot: Arc::new(snapshot), is_ready: Arc::new(is_ready), by_file: None };
    Publication::new(metrics, watched).inspect_err(|_| {
        // The error that is reported says why there is no mount.
        let _ = failed.unmount();
    })
}

fn serve_until_unmounted(
    mounted: Mounted,
    events: Events<Mounted>,
    watcher: Watcher,
) -> Result<ExitCode, Error> {
    let ended_by = Arc::new(AtomicU8::new(0));
    let signal_thread = events.handle_signals(signal_handler(mounted.unmounter(), Arc::clone(&ended_by)));
    let outcome = mounted.wait();
    signal_thread.end();
    if let Err(error) = outcome {
        // The directory stays mounted although no process serves it any more, as after a kill.
        watcher.abandon();
        return Err(error.into());
    }
    watcher.stop();
    Ok(match ended_by.load(Ordering::Acquire) {
        0 => ExitCode::SUCCESS,
        signal => ExitCode::from(128 + signal),
    })
}

/// The handler of signals. The first one unmounts; the second one unmounts without waiting for the
/// server, and is recorded. SIGUSR1 prints statistics.
fn signal_handler(unmounter: Unmounter, ended_by: Arc<AtomicU8>) -> impl FnMut(i32) + Send + 'static {
    let unmounting = Arc::new(AtomicBool::new(false));
    move |signal| {
        if signal == SIGUSR1 {
            output::print_to_stderr(&statistics::table(&unmounter.statistics(), &unmounter.gauges()));
            return;
        }
        if unmounting.swap(true, Ordering::AcqRel) {
            ended_by.store(u8::try_from(signal).unwrap_or_default(), Ordering::Release);
            if let Err(error) = unmounter.give_up() {
                tracing::error!("it is left as it is: {}", Error::from(error).one_line());
            }
            return;
        }
        let (unmounter, unmounting) = (unmounter.clone(), Arc::clone(&unmounting));
        std::thread::spawn(move || {
            if let Err(error) = unmounter.unmount() {
                tracing::error!("it stays mounted: {}", Error::from(error).one_line());
                unmounting.store(false, Ordering::Release);
            }
        });
    }
}

/// Warns about options that have no effect.
fn warn_of_ignored_options(options: &MountOptions) {
    let ignored = options.without_effect();
    if !ignored.is_empty() {
        tracing::warn!(options = ignored.join(","), "some mount options have no effect here");
    }
}

/// Whether mount(8) called this process or its parent.
fn is_for_mount_8() -> bool {
    std::env::var_os(FOR_MOUNT_8).is_some() || fstab::is_helper()
}

/// The directory's path, without symbolic links. Errors of the directory are reported before the
/// server is contacted, unless the mount is in the background, where the directory may appear
/// later.
fn resolve_directory(directory: &Path, may_appear_later: bool) -> Result<PathBuf, Error> {
    let failed = |source| Error::Mount(mount::Error::Fuse { directory: directory.to_owned(), source });
    let absolute = std::path::absolute(directory).map_err(failed)?;
    match mount::resolve_mount_point(&absolute) {
        Ok(place) => Ok(place),
        Err(error) if !may_appear_later => Err(failed(error)),
        Err(_) => Ok(absolute),
    }
}

/// Starts the serving process, and waits until it has mounted, has failed, or keeps trying in the
/// background. That process reports errors itself: until then it shares standard error.
fn start_in_background(args: &MountArgs) -> Result<ExitCode, Error> {
    let arguments = match fstab::arguments(std::env::args_os().collect()) {
        fstab::Call::Ours(arguments) => arguments,
        fstab::Call::Nothing => Vec::new(),
    };
    check_log_file(args.log_file.as_deref())?;
    let mut command = this_program();
    if fstab::is_helper() {
        command.env(FOR_MOUNT_8, "yes");
    }
    let mut child = command
        .args(fstab::own_arguments(args, arguments))
        .env(ROLE, "background")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(Error::Background)?;
    let mut output_line = String::new();
    if let Some(mut stdout) = child.stdout.take() {
        let mut byte = [0];
        // The serving process keeps its end open, so there is no end of file after the line.
        while !output_line.ends_with('\n') && stdout.read(&mut byte).map_err(Error::Background)? == 1 {
            output_line.push(char::from(byte[0]));
        }
    }
    if output_line.starts_with(MOUNTED) || output_line.starts_with(WAITING) {
        return Ok(ExitCode::SUCCESS);
    }
    let status = child.wait().map_err(Error::Background)?;
    match status.code().and_then(|code| u8::try_from(code).ok()) {
        Some(code) if code > 0 => Ok(ExitCode::from(fstab::status(code))),
        _ => Err(Error::Background(io::Error::other(format!("it ended with {status}")))),
    }
}

/// This program, even if its file was replaced, with its usual name.
fn this_program() -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("trunkline");
    command
}

/// Standard output cannot be the log file, because it is closed once the mount is in the
/// background.
fn check_log_file(log_file: Option<&Path>) -> Result<(), Error> {
    let is_output =
        |file: &Path| ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"].map(Path::new).contains(&file);
    match log_file.filter(|file| is_output(file)) {
        Some(file) => Err(Error::Usage {
            sentence: format!("a mount in the background cannot log to {}", file.display()),
            cause: "standard output ends when the directory is mounted".to_owned(),
            advice: "--log-file FILE, or -f to mount in the foreground".to_owned(),
        }),
        None => Ok(()),
    }
}

/// Redirects log messages, so that the caller's standard output and error can be closed.
fn detach_from_terminal(log_file: Option<&Path>, mounted: Option<MountId>) {
    let null = || rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).ok();
    if let Some(null) = null() {
        let _ = rustix::stdio::dup2_stdout(&null);
    }
    let log: Option<OwnedFd> = match log_file {
        Some(file) => match open_log(file) {
            // A message that is written to the mount itself could deadlock.
            Ok(opened) if mounted.is_some_and(|mount| mount.has(&opened)) => {
                tracing::warn!(file = %file.display(), "no log file: it lies in the directory that this process serves");
                None
            }
            Ok(opened) => Some(opened.into()),
            Err(error) => {
                tracing::warn!(file = %file.display(), %error, "no log file");
                None
            }
        },
        None => start_logger(),
    };
    if let Some(log) = log.or_else(null) {
        let _ = rustix::stdio::dup2_stderr(&log);
    }
}

/// Opens a file for log messages. A pipe without a reader neither blocks the mount nor is closed:
/// what does not fit is dropped.
fn open_log(file: &Path) -> io::Result<std::fs::File> {
    let is_pipe = std::fs::metadata(file).is_ok_and(|of| of.file_type().is_fifo());
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let mut options = std::fs::OpenOptions::new();
    options.append(true).create(true);
    if is_pipe {
        // Opened for reading too, so that the pipe need not have a reader yet.
        options.read(true).custom_flags(flags);
    }
    options.open(file)
}

/// Starts logger(1), if it exists; it ends with this process.
fn start_logger() -> Option<OwnedFd> {
    let mut logger = Command::new("logger");
    logger.args(["-t", "trunkline", "-p", "daemon.notice"]).env_remove(ROLE);
    let child = logger.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    child.ok()?.stdin.map(OwnedFd::from)
}
