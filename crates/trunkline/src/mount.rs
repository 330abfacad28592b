//! `trunkline mount`: an export as an ordinary directory; also as `mount.trunkline`, for mount(8)
//! and fstab.
//!
//! Up to three processes: the one that was called, which waits until the mount answers; the one
//! that serves it, in the background unless `-f`; and a [`watcher`], which says so when the serving
//! one was killed. They are all this program: [`Role`] tells them apart. Where the server is not
//! there yet the serving process goes on trying, as [`retry`] has it.

pub mod fstab;
mod retry;
mod statistics;
mod watcher;

use crate::error::Error;
use crate::output;
use clap::Args;
use client::options::{MountOptions, Target, document};
use mount::{MountId, Mounted, Request, Unmounter};
use retry::{Events, Patience};
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

/// Tells the processes of a mount apart.
const ROLE: &str = "TRUNKLINE_MOUNT_ROLE";
/// Says that mount(8) called, to the process that serves.
const FOR_MOUNT_8: &str = "TRUNKLINE_MOUNT_FOR_MOUNT_8";
/// What the serving process says once programs can use the directory.
const MOUNTED: &str = "mounted ";
/// What it says when it goes on trying and nobody need wait for it.
const WAITING: &str = "waiting for ";

/// Mount an export as a directory, over all paths at once (FUSE).
///
/// In the background: it returns once the directory can be used, or with what stands in the way.
/// SIGTERM and SIGINT to the process that serves it unmount; so does `trunkline umount DIR`.
/// SIGUSR1 writes statistics of each path to its log. What programs may rely on is in
/// docs/SEMANTICS.md, the options in docs/MOUNT-OPTIONS.md.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, after_long_help = long_help())]
pub struct MountArgs {
    /// What to mount: SERVER:/EXPORT or nfs://SERVER/EXPORT.
    #[arg(value_name = "SERVER:/EXPORT")]
    target: String,
    /// Where: an existing directory.
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
}

const EXAMPLES: &str = "Examples:\n  \
    trunkline mount 10.0.0.1:/data /mnt -o nconnect=8,remoteports=10.0.0.1-10.0.0.4\n  \
    trunkline mount -f -v nas:/data /mnt -o ro,soft\n\n\
    In /etc/fstab, with a link /sbin/mount.trunkline to this program:\n  \
    nas:/data  /mnt  trunkline  nconnect=8,_netdev,nofail  0 0";

/// With the mount options, which `-h` leaves out.
fn long_help() -> String {
    format!("Mount options:\n\n{}\n{EXAMPLES}", document::help())
}

/// Which of the processes this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// The one that the user called.
    Called,
    /// The one that serves the mount in the background.
    Background,
    /// The one that says so when that one was killed; it may be served in the background.
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

/// Mounts, and serves unless that is done in the background.
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

/// Serves the mount in this process until it is unmounted.
fn serve(args: &MountArgs, role: Role) -> Result<ExitCode, Error> {
    // Before anything is mounted, so that no signal finds us unprepared.
    let events = Events::catch()?;
    let options = args.options();
    let target = Target::parse(&args.target).map_err(client::Error::from)?;
    let parsed = target.mount_options(&options).map_err(client::Error::from)?;
    tell_what_is_idle(&parsed);
    let patience = Patience::new(&parsed, is_for_mount_8());
    let directory = hold_directory(&args.directory, patience.is_background())?;
    if role == Role::Background {
        // Out of the caller's session and directory. A process that leads one already stays where
        // it is.
        let _ = rustix::process::setsid();
        let _ = rustix::process::chdir("/");
        events.watch_caller();
    }
    let request = Request { source: args.target.clone(), options: parsed, directory: directory.clone() };
    // Before the mount: it must not have the mount's own descriptors.
    let mut watcher = Watcher::start(args, role == Role::Background);
    client::raise_descriptor_limit();
    let attempt = move || {
        let settings = client::Settings::from_options(&request.source, &options)?;
        let mount = client::Mount::with_settings(mount::settings(settings))?;
        Ok(Mounted::start(mount, &request)?)
    };
    let leaves = role == Role::Background && patience.is_background();
    let mut has_left = false;
    let mounted = events.persist(patience, attempt, |told| {
        output::tell(told);
        if leaves {
            output::print(&format!("{WAITING}{}\n", args.target))?;
            leave_terminal(args.log_file.as_deref(), None);
            has_left = true;
        }
        Ok(!leaves)
    });
    let mounted = match mounted {
        Ok(mounted) => mounted,
        Err(error @ Error::Interrupted { .. }) => {
            // A try may be about to mount. So it learns of our end as of any other, and looks at
            // what we leave.
            watcher.leave();
            return Err(error);
        }
        Err(error) => {
            watcher.dismiss();
            return Err(error);
        }
    };
    watcher.watch(mounted.id());
    if let Err(error) = output::print(&format!("{MOUNTED}{} on {}\n", args.target, directory.display())) {
        // Whoever called is gone, and will never learn of this mount.
        let _ = mounted.unmounter().unmount();
        watcher.dismiss();
        return Err(error);
    }
    if role == Role::Background && !has_left {
        leave_terminal(args.log_file.as_deref(), Some(mounted.id()));
    }
    serve_until_unmounted(mounted, events, watcher)
}

fn serve_until_unmounted(
    mounted: Mounted,
    events: Events<Mounted>,
    watcher: Watcher,
) -> Result<ExitCode, Error> {
    let ended_by = Arc::new(AtomicU8::new(0));
    let attending = events.at_signals(attend_to(mounted.unmounter(), Arc::clone(&ended_by)));
    let outcome = mounted.wait();
    attending.end();
    if let Err(error) = outcome {
        // It stays mounted though nobody serves it any more, as after a kill.
        watcher.leave();
        return Err(error.into());
    }
    watcher.dismiss();
    Ok(match ended_by.load(Ordering::Acquire) {
        0 => ExitCode::SUCCESS,
        signal => ExitCode::from(128 + signal),
    })
}

/// Unmounts at the first signal, and at the second without waiting for the server: notes that one.
/// SIGUSR1 asks for statistics.
fn attend_to(unmounter: Unmounter, ended_by: Arc<AtomicU8>) -> impl FnMut(i32) + Send + 'static {
    let unmounting = Arc::new(AtomicBool::new(false));
    move |signal| {
        if signal == SIGUSR1 {
            output::tell(&statistics::table(&unmounter.statistics(), &unmounter.gauges()));
            return;
        }
        if unmounting.swap(true, Ordering::AcqRel) {
            ended_by.store(u8::try_from(signal).unwrap_or_default(), Ordering::Release);
            if let Err(error) = unmounter.give_up() {
                tracing::error!("it is left as it is: {}", Error::from(error).in_a_line());
            }
            return;
        }
        let (unmounter, unmounting) = (unmounter.clone(), Arc::clone(&unmounting));
        std::thread::spawn(move || {
            if let Err(error) = unmounter.unmount() {
                tracing::error!("it stays mounted: {}", Error::from(error).in_a_line());
                unmounting.store(false, Ordering::Release);
            }
        });
    }
}

/// Nobody should believe in an option that does nothing.
fn tell_what_is_idle(options: &MountOptions) {
    let idle = options.without_effect();
    if !idle.is_empty() {
        tracing::warn!(options = idle.join(","), "some mount options have no effect here");
    }
}

/// Whether mount(8) called, this process or the one that started it.
fn is_for_mount_8() -> bool {
    std::env::var_os(FOR_MOUNT_8).is_some() || fstab::is_helper()
}

/// The directory's path, without symbolic links. What is wrong with the directory is told before a
/// server is waited for, unless that is done in the background, where the directory may come later.
fn hold_directory(directory: &Path, may_come_later: bool) -> Result<PathBuf, Error> {
    let failed = |source| Error::Mount(mount::Error::Fuse { directory: directory.to_owned(), source });
    let absolute = std::path::absolute(directory).map_err(failed)?;
    match mount::hold_mount_point(&absolute) {
        Ok(place) => Ok(place),
        Err(error) if !may_come_later => Err(failed(error)),
        Err(_) => Ok(absolute),
    }
}

/// Starts the serving process, and waits until it has mounted or failed, or goes on trying without
/// us. It tells errors itself: it has our standard error until then.
fn start_in_background(args: &MountArgs) -> Result<ExitCode, Error> {
    let arguments = match fstab::arguments(std::env::args_os().collect()) {
        fstab::Call::Ours(arguments) => arguments,
        fstab::Call::Nothing => Vec::new(),
    };
    hold_log_file(args.log_file.as_deref())?;
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
    let mut said = String::new();
    if let Some(mut stdout) = child.stdout.take() {
        let mut byte = [0];
        // It keeps its end open, so there is no end to wait for after the line.
        while !said.ends_with('\n') && stdout.read(&mut byte).map_err(Error::Background)? == 1 {
            said.push(char::from(byte[0]));
        }
    }
    if said.starts_with(MOUNTED) || said.starts_with(WAITING) {
        return Ok(ExitCode::SUCCESS);
    }
    let status = child.wait().map_err(Error::Background)?;
    match status.code().and_then(|code| u8::try_from(code).ok()) {
        Some(code) if code > 0 => Ok(ExitCode::from(fstab::status(code))),
        _ => Err(Error::Background(io::Error::other(format!("it ended with {status}")))),
    }
}

/// This program, whatever has become of its file, under the name by which people look for it.
fn this_program() -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("trunkline");
    command
}

/// Standard output is nobody's once the mount is in the background.
fn hold_log_file(log_file: Option<&Path>) -> Result<(), Error> {
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

/// Log messages go elsewhere from here on: whoever called us need not keep their end open.
fn leave_terminal(log_file: Option<&Path>, mounted: Option<MountId>) {
    let null = || rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).ok();
    if let Some(null) = null() {
        let _ = rustix::stdio::dup2_stdout(&null);
    }
    let log: Option<OwnedFd> = match log_file {
        Some(file) => match open_log(file) {
            // A message that waits to be written to it would wait for itself.
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

/// Opens a file for log messages. A pipe that nobody reads neither keeps the mount waiting nor
/// loses its place: what does not fit is dropped.
fn open_log(file: &Path) -> io::Result<std::fs::File> {
    let is_pipe = std::fs::metadata(file).is_ok_and(|of| of.file_type().is_fifo());
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let mut options = std::fs::OpenOptions::new();
    options.append(true).create(true);
    if is_pipe {
        // Reading too, so that it need not have a reader yet.
        options.read(true).custom_flags(flags);
    }
    options.open(file)
}

/// The system's log, where there is one; it ends with us.
fn start_logger() -> Option<OwnedFd> {
    let mut logger = Command::new("logger");
    logger.args(["-t", "trunkline", "-p", "daemon.notice"]).env_remove(ROLE);
    let child = logger.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    child.ok()?.stdin.map(OwnedFd::from)
}
