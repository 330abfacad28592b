//! The watcher of a mount: a separate process that reports it if the serving process is killed.
//!
//! The watcher is started before the mount and has none of its descriptors, so it keeps nothing
//! alive. Nor does it look at the directory while the mount is there: for that moment the mount
//! would be in use, and an unmount would fail. It is told which directory it is. It reads from a
//! pipe to which only the serving process can write: first the identity of the mount, then a
//! goodbye. If the pipe ends without a goodbye, the serving process was killed or has crashed. The
//! directory then stays mounted and answers ENOTCONN, because programs must not write to the
//! directory beneath and fill the local disk. With `auto_unmount` the watcher unmounts this mount,
//! and no other.

use super::{MountArgs, ROLE, detach_from_terminal, fstab, this_program};
use client::options::Target;
use mount::MountId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The role of a watcher, and that of a watcher of a mount in the background.
pub const WATCHER: [&str; 2] = ["watcher", "background watcher"];
/// Environment variables of a watcher: the directory, and the mount that was on it before, if any.
const DIRECTORY: &str = "TRUNKLINE_MOUNT_DIRECTORY";
const BEFORE: &str = "TRUNKLINE_MOUNT_BEFORE";
/// The goodbye, written when the mount ends normally.
const GOODBYE: &str = "bye";

/// The serving process's handle of the watcher.
#[derive(Debug)]
pub struct Watcher {
    // Without a watcher the mount works, but a kill is not reported.
    process: Option<(Child, ChildStdin)>,
}

impl Watcher {
    /// Starts the watcher of a directory, before the mount exists. Its log messages go where those
    /// of the serving process go.
    pub fn start(args: &MountArgs, directory: &Path, is_background: bool) -> Self {
        let arguments = match fstab::arguments(std::env::args_os().collect()) {
            fstab::Call::Ours(arguments) => arguments,
            fstab::Call::Nothing => Vec::new(),
        };
        // In the background, the watcher must not keep standard error open, whose end the caller
        // may wait for, unless the caller asked for that.
        let keeps_errors = !is_background || args.log_file.as_deref() == Some(Path::new("/dev/stderr"));
        let spawned = this_program()
            .args(fstab::own_arguments(args, arguments))
            .env(ROLE, WATCHER[usize::from(is_background)])
            .env(DIRECTORY, directory)
            .env(BEFORE, mount::uppermost(directory).map(|before| before.to_string()).unwrap_or_default())
            // From its first moment: a signal to this process's group, as from a terminal, must not
            // end the watcher.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(if keeps_errors { Stdio::inherit() } else { Stdio::null() })
            .spawn();
        let process = match spawned {
            Ok(mut child) => child.stdin.take().map(|stdin| (child, stdin)),
            Err(error) => {
                tracing::warn!(%error, "nobody will say so should this process be killed");
                None
            }
        };
        Self { process }
    }

    /// Tells the watcher which mount it watches. Until then, it removes what a failed try may have
    /// left.
    pub fn watch(&mut self, mount: MountId) {
        self.send(&mount.to_string());
    }

    /// Ends the watcher.
    pub fn stop(mut self) {
        self.send(GOODBYE);
        if let Some((mut child, stdin)) = self.process.take() {
            drop(stdin);
            let _ = child.wait();
        }
    }

    /// Leaves the watcher as if this process was killed: it detects the end of this process.
    pub fn abandon(self) {
        std::mem::forget(self);
    }

    fn send(&mut self, line: &str) {
        if let Some((_, stdin)) = &mut self.process {
            // An error means that the watcher is gone.
            let _ = stdin.write_all(format!("{line}\n").as_bytes());
        }
    }
}

/// Runs the watcher.
pub fn run(args: &MountArgs, is_background: bool) {
    let Some(directory) = std::env::var_os(DIRECTORY).map(PathBuf::from) else { return };
    // A dead mount that existed before is kept if a try to replace it failed.
    let before = std::env::var(BEFORE).ok().and_then(|before| before.parse().ok());
    let _ = rustix::process::chdir("/");
    let ignored = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        // A signal that ends the mount is ignored here; the watcher ends after the mount.
        let _ = signal_hook::flag::register(signal, Arc::clone(&ignored));
    }
    let mut input = String::new();
    if io::stdin().read_to_string(&mut input).is_err() || input.lines().any(|line| line == GOODBYE) {
        return;
    }
    let Some(mount) = input.lines().next().and_then(|line| line.parse::<MountId>().ok()) else {
        // No mount was reported yet, so a mount that was begun is useless.
        let _ = mount::unmount_dead(&directory, before);
        return;
    };
    if is_background {
        detach_from_terminal(args.log_file.as_deref(), Some(mount));
    }
    report_death(mount, &directory, is_auto_unmount(args));
}

fn report_death(mount: MountId, directory: &Path, auto_unmount: bool) {
    let at = directory.display();
    let killed = format!("the process that served {at} was killed or has crashed");
    if !auto_unmount {
        tracing::error!("{killed}; {at} answers ENOTCONN; `trunkline mount` again or `umount {at}`");
        return;
    }
    match mount.unmount_dead(directory) {
        Ok(true) => tracing::error!("{killed}; {at} was unmounted, as auto_unmount asks for"),
        Ok(false) => tracing::error!("{killed}; it is unmounted already"),
        Err(error) => tracing::error!(%error, "{killed}; {at} answers ENOTCONN, and cannot be unmounted"),
    }
}

fn is_auto_unmount(args: &MountArgs) -> bool {
    let target = Target::parse(&args.target).ok();
    let options = target.and_then(|target| target.mount_options(&args.options()).ok());
    options.is_some_and(|options| options.noted.contains_key("auto_unmount"))
}
