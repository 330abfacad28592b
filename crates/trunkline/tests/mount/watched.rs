//! Tests that others can watch a mount: `trunkline top` and its metrics address.

use crate::fixture::{MOUNT_TIMEOUT, Server, text, unmount_all_below};
use metrics::{Dimension, Snapshot};
use std::process::{Command, Output};
use testkit::Deadline;

fn trunkline(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_trunkline")).args(arguments).output().unwrap()
}

/// Operations and bytes sent by WRITE.
fn writes(snapshot: &Snapshot) -> (u64, u64) {
    let total = snapshot.operations.by(&[], &[(Dimension::Operation, "WRITE".to_owned())]).total();
    (total.count, total.sent_bytes)
}

#[test]
fn a_mount_in_the_background_is_watched_by_top_and_answers_on_its_metrics_address() {
    let server = Server::start(2);
    let directory = server.mount_point("mnt");
    let name = directory.to_str().unwrap();
    let address = format!("127.0.0.1:{}", testkit::free_port());
    // As in /etc/fstab.
    let options = server.options(&format!("nolock,nconnect=2,wsize=65536,metrics={address}"));
    let mounted = trunkline(&["mount", "-o", &options, "127.0.0.1:/export", name]);
    assert!(mounted.status.success(), "{mounted:?}");
    std::fs::write(directory.join("f"), vec![1; 1 << 20]).unwrap();
    let asked = trunkline(&["top", &address, "--batch", "0", "--json"]);
    assert!(asked.status.success(), "{asked:?}");
    let snapshot = Snapshot::from_json(&asked.stdout).unwrap();
    assert_eq!(writes(&snapshot), (16, 1 << 20));
    assert_eq!(snapshot.process.name, format!("127.0.0.1:/export on {name}"));
    let states: Vec<_> = snapshot.paths.iter().map(|path| path.state.as_str()).collect();
    assert_eq!(states, ["up", "up"]);
    let found = trunkline(&["top", &snapshot.process.pid.to_string(), "--batch", "0", "--json"]);
    assert_eq!(writes(&Snapshot::from_json(&found.stdout).unwrap()), (16, 1 << 20));
    let shown = text(&trunkline(&["top", &address, "--batch", "0"]).stdout);
    assert!(shown.contains("WRITE") && shown.contains("failovers"), "{shown}");
    unmount_all_below(&directory);
    Deadline::wait_until("the mount to be gone", MOUNT_TIMEOUT, || {
        (!trunkline(&["top", &address, "--batch", "0"]).status.success()).then_some(())
    });
}

#[test]
fn a_metrics_address_in_use_is_an_error_and_nothing_stays_mounted() {
    let server = Server::start(1);
    let directory = server.mount_point("mnt");
    let name = directory.to_str().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let options = server.options("nolock");
    let refused = trunkline(&["mount", "--metrics", &address, "-o", &options, "127.0.0.1:/export", name]);
    let said = text(&refused.stderr);
    assert!(!refused.status.success() && said.contains("cannot answer on the metrics address"), "{said}");
    assert!(trunkline(&["status", name]).status.code() != Some(0), "it is not mounted");
    for (option, cause) in [
        ("metrics=9101", "it is no address with a port"),
        ("metricstoken=/etc/hostname", "there is no metrics address to show it to"),
    ] {
        let options = server.options(&format!("nolock,{option}"));
        let refused = trunkline(&["mount", "-o", &options, "127.0.0.1:/export", name]);
        let said = text(&refused.stderr);
        assert!(!refused.status.success() && said.contains(cause), "{said}");
        assert!(trunkline(&["status", name]).status.code() != Some(0), "it is not mounted");
    }
}
