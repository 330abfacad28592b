//! Two guests joined by a link, with a server in one of them.

use lab::vm::{Accel, Guest, Guests, Running, Spec, Vm};
use rustix::process::Signal;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use testkit::{Deadline, require_program};

/// The longest time that anything may take in an emulated machine on a busy host.
pub const TIMEOUT: Duration = Duration::from_secs(600);

/// The guests that all cases share; they end with the test program.
pub fn pair() -> &'static Vm {
    static PAIR: OnceLock<Vm> = OnceLock::new();
    PAIR.get_or_init(|| {
        for program in [
            "busybox",
            "fio",
            "ibv_devinfo",
            "mount.nfs",
            "nft",
            "nvme",
            "ping",
            "qemu-system-x86_64",
            "rdma",
            "setpriv",
        ] {
            let _ = require_program(program);
        }
        // Emulated everywhere, so that the suite behaves the same on each machine.
        let spec = Spec {
            accel: Accel::Tcg,
            guests: Guests::Two,
            memory_mib: 2048,
            ..Spec::new(env!("CARGO_BIN_EXE_trunkline"))
        };
        match Vm::start(&spec) {
            Ok(vm) => vm,
            Err(error) => panic!("cannot start two guests: {error}"),
        }
    })
}

/// Runs one case at a time.
pub fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a shell script in a guest, which must succeed; returns its output.
#[track_caller]
pub fn sh(guest: &Guest, script: &str) -> String {
    crate::guest::sh(guest, &format!("set -e\n{script}"))
}

/// The state of a guest's devices and of our threads in it, to find out why a test failed.
pub fn state_of(guest: &Guest) -> String {
    let script = "rdma link; rdma resource; nft list ruleset
        for task in /proc/[0-9]*/task/*; do
          case $(cat $task/comm) in tl-*|trunkline|vm_rdma*|rdma) echo \"$task: $(cat $task/comm $task/wchan)\"
            grep ^State $task/status; cat $task/stack;; esac
        done 2>&1";
    guest
        .sh(script)
        .map_or_else(|error| error.to_string(), |output| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Waits until the kernel of a guest has no queue pair, no memory region and no completion queue of
/// a program.
#[track_caller]
pub fn wait_until_nothing_is_left(guest: &Guest) {
    let mut last = String::new();
    let ours = || {
        // The objects of the kernel itself have a name in brackets. Protection domains are left
        // out: the library of the connection manager has one for each listener.
        let kinds = ["qp type RC", "mr", "cq"];
        let said = sh(guest, &kinds.map(|kind| format!("rdma resource show {kind}")).join("\n"));
        said.lines()
            .filter(|line| !line.contains("comm ["))
            .map(|line| format!("{line}\n"))
            .collect::<String>()
    };
    let what = format!("queue pairs, memory and completion queues of the guest {} to go", guest.name());
    let gone = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        Deadline::wait_until(&what, TIMEOUT, || {
            last = ours();
            last.is_empty().then_some(())
        });
    }));
    assert!(gone.is_ok(), "{what}:\n{last}");
}

/// Waits until neither guest holds anything of programs that have ended.
#[track_caller]
pub fn nothing_is_left() {
    wait_until_nothing_is_left(pair().client());
    wait_until_nothing_is_left(pair().server());
}

/// A server of ours in a guest, until dropped.
pub struct GuestServer(Running);

impl GuestServer {
    /// Serves memory over TCP and RDMA.
    pub fn start() -> Self {
        let listen = ["--listen", "10.77.1.2:2049", "--listen", "rdma:10.77.1.2:20049"];
        Self::with(&[&["--export", "/export", "--mem", "512MiB"], &listen[..]].concat())
    }

    /// Starts a server of files with these arguments in the guest `server`.
    pub fn with(arguments: &[&str]) -> Self {
        Self::on(pair().server(), &[&["serve"], arguments].concat())
    }

    /// Runs our program with these arguments, which says when it is ready.
    pub fn on(guest: &Guest, arguments: &[&str]) -> Self {
        let mut serve = Command::new(env!("CARGO_BIN_EXE_trunkline"));
        let mut process = guest.spawn(serve.args(arguments).current_dir("/")).expect("the guest runs");
        process.wait_for_line("ready", TIMEOUT).expect("the server is ready");
        Self(process)
    }
}

impl Drop for GuestServer {
    fn drop(&mut self) {
        self.0.signal(Signal::KILL);
        let _ = self.0.wait(drop);
    }
}
