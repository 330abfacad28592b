//! Our target (`block serve`) at the place of the kernel's, see `kernel_target`: behind the same
//! two links, with a volume on the same device. The first address is that of node A, which owns
//! the volume, and the second one is that of node B.

use crate::kernel_target::{ADDRESSES, HOST, STORE, SUBSYSTEM, TIMEOUT, run, try_to_run};
use crate::trunkline;
use rustix::process::Signal;
use std::process::Command;
use testkit::{Deadline, Process};

const CONFIG: &str = "/run/our-target.toml";

/// The processes, until dropped.
pub(super) struct OurTarget {
    /// What each is told after the configuration.
    arguments: &'static [&'static [&'static str]],
    processes: Vec<Process>,
}

impl OurTarget {
    /// Both nodes in one process.
    pub(super) fn in_one_process() -> Self {
        Self::with(&[&[]])
    }

    /// A node in each of two processes.
    pub(super) fn pair() -> Self {
        Self::with(&[&["--node", "A"], &["--node", "B"]])
    }

    fn with(arguments: &'static [&'static [&'static str]]) -> Self {
        let [a, b] = ADDRESSES;
        run(&format!(
            "store_made; rm -rf /run/our-target
             cat > {CONFIG} << 'END'
nqn = \"{SUBSYSTEM}\"
state = \"/run/our-target\"
allow = [\"{HOST}\"]
listen = [\"{a}\", \"{b}\"]
[[volume]]
source = \"{STORE}\"
owner = \"A\"
END"
        ));
        let processes = arguments.iter().map(|more| started(more)).collect();
        let target = Self { arguments, processes };
        target.wait_for_owner("A");
        target
    }

    /// Waits until this node serves the volume.
    pub(super) fn wait_for_owner(&self, node: &str) {
        let state = format!("^1 +{STORE} +{node} +serving ");
        let list = format!("{} block list | grep -qE '{state}' && echo yes || true", trunkline().display());
        Deadline::wait_until(&format!("the volume at {node}"), TIMEOUT, || {
            (run(&list).trim() == "yes").then_some(())
        });
    }

    /// Has a node own the volume, and waits until it does.
    pub(super) fn give_to(&self, node: &str) {
        run(&format!("{} block own 1 {node}", trunkline().display()));
        self.wait_for_owner(node);
    }

    pub(super) fn signal(&self, process: usize, signal: Signal) {
        self.processes[process].signal(signal);
    }

    /// Starts a process again that is killed, once it is gone.
    pub(super) fn start_again(&mut self, process: usize) {
        assert!(!self.processes[process].wait(TIMEOUT).success());
        self.processes[process] = started(self.arguments[process]);
    }

    /// Ends it, as a user does.
    pub(super) fn end(mut self) {
        for process in &mut self.processes {
            assert!(process.terminate(TIMEOUT).success(), "{}", process.all_output());
        }
    }
}

impl Drop for OurTarget {
    fn drop(&mut self) {
        // Whatever a failed case has left: what the device holds keeps a process from ending.
        try_to_run("dmsetup resume store");
        self.processes.clear();
        try_to_run("store_removed");
    }
}

fn started(more: &[&str]) -> Process {
    let mut serve = Command::new("nsenter");
    serve.args(["--net=/run/netns/far", "--"]).arg(trunkline());
    serve.args(["block", "serve", "-c", CONFIG]).args(more);
    let process = Process::spawn(serve);
    process.wait_for_line("ready", TIMEOUT);
    process
}
