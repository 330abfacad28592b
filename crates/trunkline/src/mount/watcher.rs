//! The watcher of a mount: a process of its own that learns when the serving process was killed,
//! and says so.
//!
//! It is started before the mount and has none of its descriptors, so it keeps nothing alive. It
//! reads from a pipe that the serving process alone can write to: first which mount it is, then a
//! goodbye. Where the pipe ends without one, the serving process was killed or has crashed. Its
//! directory then stays mounted and answers ENOTCONN: programs must not take the directory beneath
//! for it, and fill the local disk. With `auto_unmount` the watcher unmounts it, and no other
//! mount.

use super::{MountArgs, ROLE, fstab, leave_terminal, this_program};
use client::options::Target;
use mount::MountId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Its role, and the same where the mount is served in the background.
pub const WATCHER: [&str; 2] = ["watcher", "background watcher"];
/// What it reads when the mount ends as it should.
const GOODBYE: &str = "bye";

/// The serving process's side.
#[derive(Debug)]
pub struct Watcher {
    // Without one a mount works, but nobody says that it was killed.
    running: Option<(Child, ChildStdin)>,
}

impl Watcher {
    /// Starts it, before there is a mount. What it logs goes where the serving process logs.
    pub fn start(args: &MountArgs, is_background: bool) -> Self {
        let given = match fstab::arguments(std::env::args_os().collect()) {
            fstab::Call::Ours(given) => given,
            fstab::Call::Nothing => Vec::new(),
        };
        // In the background it must not keep what the caller waits for the end of, unless the
        // caller has asked for that.
        let keeps_errors = !is_background || args.log_file.as_deref() == Some(Path::new("/dev/stderr"));
        let spawned = this_program()
            .args(fstab::own_arguments(args, given))
            .env(ROLE, WATCHER[usize::from(is_background)])
            // From its first moment: who kills our group, or interrupts it at a terminal, means us.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(if keeps_errors { Stdio::inherit() } else { Stdio::null() })
            .spawn();
        let running = match spawned {
            Ok(mut child) => child.stdin.take().map(|stdin| (child, stdin)),
            Err(error) => {
                tracing::warn!(%error, "nobody will say so should this process be killed");
                None
            }
        };
        Self { running }
    }

    /// Tells it which mount it watches. Until then it removes what a try to mount may leave.
    pub fn watch(&mut self, mount: MountId) {
        self.tell(&mount.to_string());
    }

    /// Lets it go.
    pub fn dismiss(mut self) {
        self.tell(GOODBYE);
        if let Some((mut child, stdin)) = self.running.take() {
            drop(stdin);
            let _ = child.wait();
        }
    }

    /// Leaves it as if this process was killed: it learns of our end when there is nothing of us
    /// any more.
    pub fn leave(self) {
        std::mem::forget(self);
    }

    fn tell(&mut self, line: &str) {
        if let Some((_, stdin)) = &mut self.running {
            // One that is gone already needs no telling.
            let _ = stdin.write_all(format!("{line}\n").as_bytes());
        }
    }
}

/// What the watcher does.
pub fn run(args: &MountArgs, is_background: bool) {
    let Ok(directory) = std::path::absolute(&args.directory) else { return };
    let directory = mount::hold_mount_point(&directory).unwrap_or(directory);
    // A dead mount that was there before stays where a try to replace it has come to nothing.
    let before = mount::uppermost(&directory);
    let _ = rustix::process::chdir("/");
    let ignored = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        // What ends the mount ends us after it.
        let _ = signal_hook::flag::register(signal, Arc::clone(&ignored));
    }
    let mut said = String::new();
    if io::stdin().read_to_string(&mut said).is_err() || said.lines().any(|line| line == GOODBYE) {
        return;
    }
    let Some(mount) = said.lines().next().and_then(|line| line.parse::<MountId>().ok()) else {
        // Nobody was told of a mount yet. What was begun nevertheless is of no use.
        let _ = mount::unmount_dead(&directory, before);
        return;
    };
    if is_background {
        leave_terminal(args.log_file.as_deref(), Some(mount));
    }
    tell_of_death(mount, &directory, is_auto_unmount(args));
}

fn tell_of_death(mount: MountId, directory: &Path, auto_unmount: bool) {
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
