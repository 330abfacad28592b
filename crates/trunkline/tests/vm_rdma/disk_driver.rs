//! Our host in the guest, attached by both links, under a load that accounts for every block. These
//! are the lines that drive it:
//!
//! - `goes on`: every worker has begun and ended requests after the line.
//! - `regains`: the host has connected again since the line before, and has both paths.
//! - `end`: nothing was lost, nothing is wrong, and a host that is attached anew finds the same.

use crate::attached::{SOCKET, attached, settle, wait_for_paths};
use crate::disk_load::DiskLoad;
use crate::driver::Driver;
use crate::guest::again;
use crate::nbd_client::Client;
use crate::pair::TIMEOUT;
use std::path::Path;
use testkit::{Deadline, Process};

pub const SUBSYSTEM: &str = "nqn.2026-11.org.trunkline:links";
/// By the link that is disturbed, and by the other one.
pub const ADDRESSES: [&str; 2] = ["rdma:10.77.2.2:4420", "rdma:10.77.1.2:4420"];

/// Runs this test, which must [`run_commands`], in the guest, and waits until its load has begun.
#[track_caller]
pub fn start(test: &str) -> Driver {
    Driver::start(&again(test))
}

/// How often the host has connected to a controller.
fn connections(host: &Process) -> usize {
    host.all_output().matches("controller connected").count()
}

/// The work of the host in the guest.
pub fn run_commands() {
    // It says when it has connected.
    let mut host = attached(SUBSYSTEM, &ADDRESSES, "--verbose");
    wait_for_paths(ADDRESSES.len(), None);
    let load = DiskLoad::start(Path::new(SOCKET), 9);
    load.wait_for_all();
    println!("\nunder load");
    let mut connected = connections(&host);
    assert!(connected >= ADDRESSES.len(), "{}", host.all_output());
    for line in std::io::stdin().lines() {
        let line = line.expect("the line is UTF-8");
        match line.as_str() {
            "goes on" => load.wait_for_all(),
            "regains" => {
                Deadline::wait_until("another connection", TIMEOUT, || {
                    (connections(&host) > connected).then_some(())
                });
                wait_for_paths(ADDRESSES.len(), None);
                connected = connections(&host);
            }
            "end" => break,
            _ => panic!("{line:?} is nothing to wait for"),
        }
        println!("done: {line}");
    }
    println!("{}", host.all_output());
    let content = settle("with links that were lost", load);
    assert!(host.terminate(TIMEOUT).success());
    let mut host = attached(SUBSYSTEM, &ADDRESSES, "");
    let mut client = Client::begin(Path::new(SOCKET));
    for (offset, expected) in content {
        let found = client.read(offset, expected.len() as u32);
        assert!(found == expected, "the volume holds something else at {offset}");
    }
    drop(client);
    assert!(host.terminate(TIMEOUT).success());
    println!("done: end");
}
