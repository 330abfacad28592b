//! A mount in the guest under a load that accounts for every block and name. These are the lines
//! that drive it:
//!
//! - `goes on`: calls that were made after the line have been answered.
//! - `breaks`: calls were moved from a connection after the line.
//! - `loses N`: no loop uses path N any more.
//! - `regains N`: all loops use path N, and calls made after the line were answered on it.
//! - `end`: nothing was lost, nothing is wrong, and no RDMA object is left in the process.

use crate::driver::Driver;
use crate::guest::again;
use crate::history::Store;
use crate::load::Load;
use crate::pair::TIMEOUT;
use client::{Mount, PathStatistics};
use std::sync::Arc;
use testkit::Deadline;
use verbs::{Alive, alive};

const OPTIONS: &str = "TRUNKLINE_TROUBLE_OPTIONS";
const STORE: &str = "TRUNKLINE_TROUBLE_STORE";
/// More calls than are in flight at a time.
const GOES_ON: u64 = 100;
/// The first connection over a new device may find no route in time.
const MOUNT_ATTEMPTS: usize = 5;

/// Runs this test, which must [`run_commands`], in the guest, and waits until its load has begun.
#[track_caller]
pub fn start(test: &str, options: &str, store: Store) -> Driver {
    let mut command = again(test);
    command.env(OPTIONS, options).env(STORE, format!("{store:?}"));
    Driver::start(&command)
}

/// The work of the client in the guest.
pub fn run_commands() {
    let given = |name: &str| std::env::var(name).expect("the variable is set");
    let store = if given(STORE) == format!("{:?}", Store::Whole) { Store::Whole } else { Store::ByParts };
    let mount = Arc::new(mounted(&given(OPTIONS)));
    let load = Load::start(&mount, "trouble", store, 7);
    wait_for_progress(&mount);
    println!("\nunder load");
    for line in std::io::stdin().lines() {
        let line = line.expect("the line is UTF-8");
        match line.split_once(' ') {
            Some(("goes", "on")) => wait_for_progress(&mount),
            None if line == "breaks" => breaks(&mount),
            Some(("loses", path)) => loses(&mount, path.parse().expect("a number")),
            Some(("regains", path)) => regains(&mount, path.parse().expect("a number")),
            None if line == "end" => break,
            _ => panic!("{line:?} is nothing to wait for"),
        }
        println!("done: {line}");
    }
    let outcome = load.stop();
    assert_eq!(outcome.failed, [""; 0], "calls failed");
    assert!(outcome.wrong.is_empty(), "{:?}", outcome.wrong);
    // A killed server may or may not have executed the calls that it had begun. The client says for
    // how many calls it cannot tell.
    let undecided = if store == Store::ByParts { outcome.undecided } else { 0 };
    assert!(outcome.doubled.len() as u64 <= undecided, "done twice or not at all: {:?}", outcome.doubled);
    drop(mount);
    assert_eq!(alive(), Alive::default());
    println!("{} calls, and nothing was lost\ndone: end", outcome.calls);
}

fn mounted(options: &str) -> Mount {
    for _ in 1..MOUNT_ATTEMPTS {
        match Mount::connect("10.77.1.2:/export", options) {
            Ok(mount) => return mount,
            Err(error) => println!("\nnot mounted yet: {error}"),
        }
    }
    Mount::connect("10.77.1.2:/export", options).expect("the client mounts")
}

/// The paths as all loops report them. A loop that is busy for a second reports nothing, and is
/// asked again.
fn paths_of(mount: &Mount) -> Vec<PathStatistics> {
    Deadline::wait_until("all loops to report their paths", TIMEOUT, || {
        let paths = mount.statistics().paths;
        paths.iter().all(|path| path.status.len() == mount.loops()).then_some(paths)
    })
}

fn answered(path: &PathStatistics) -> u64 {
    path.counters.read.calls + path.counters.write.calls + path.counters.metadata.calls
}

/// The state in each loop, with the names that records use.
fn states(path: &PathStatistics) -> impl Iterator<Item = &'static str> {
    path.status.iter().map(|status| status.state.name())
}

fn wait_for_progress(mount: &Mount) {
    let all = || paths_of(mount).iter().map(answered).sum::<u64>();
    let before = all();
    Deadline::wait_until("calls to go on", TIMEOUT, || (all() >= before + GOES_ON).then_some(()));
}

fn breaks(mount: &Mount) {
    let all =
        || paths_of(mount).iter().flat_map(|path| &path.status).map(|status| status.failovers).sum::<u64>();
    let before = all();
    Deadline::wait_until("a connection to break", TIMEOUT, || (all() > before).then_some(()));
}

fn loses(mount: &Mount, path: usize) {
    Deadline::wait_until("the path to be down", TIMEOUT, || {
        let paths = paths_of(mount);
        states(&paths[path]).all(|state| matches!(state, "down" | "probing")).then_some(())
    });
    wait_for_progress(mount);
}

fn regains(mount: &Mount, path: usize) {
    let before = answered(&paths_of(mount)[path]);
    Deadline::wait_until("the path to be up", TIMEOUT, || {
        let path = &paths_of(mount)[path];
        (states(path).all(|state| state == "up") && answered(path) >= before + GOES_ON).then_some(())
    });
}
