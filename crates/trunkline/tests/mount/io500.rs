//! `trunkline bench --io500` mounts servers and embedded groups for its run. A small script stands
//! for io500: it writes to the mount, and a result of one phase.

use crate::fixture::{Server, text};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

const PROGRAM: &str = r#"#!/bin/sh
get() { sed -n "s/^$1 = //p" "$2"; }
data=$(get datadir "$1"); results=$(get resultdir "$1")
head -c 3000000 /dev/zero > "$data/file" || exit 1
grep "$(dirname "$data") " /proc/mounts
{
  echo '[RESULT]       ior-easy-write        1.500000 GiB/s : time 301.000 seconds'
  echo '[SCORE ] Bandwidth 1.500000 GiB/s : IOPS 0.000000 kiops : TOTAL 0.000000'
} > "$results/result_summary.txt"
"#;

#[test]
fn io500_runs_on_mounts_that_end_with_it() {
    let server = Server::start(2);
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("io500");
    std::fs::write(&program, PROGRAM).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let options = server.options("").replace(',', "&");
    let output = Command::new(env!("CARGO_BIN_EXE_trunkline"))
        .args(["bench", "--io500", "--suite-dir", ".", "--io500-results", "results"])
        .arg(format!("nfs://127.0.0.1:{}/export?{options}", server.port))
        .args(["group:2?nconnect=2", "nfs://127.0.0.1:1/nobody?retry=0&soft&timeo=10&retrans=0"])
        .current_dir(directory.path())
        .output()
        .unwrap();
    let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("FAILED: 127.0.0.1:1: cannot mount"), "{said}");
    for route in [format!("127.0.0.1:{}", server.port), "group".to_owned()] {
        assert!(said.contains(&format!("  {route}\n")), "{route}: {said}");
        let output = directory.path().join("results").join(route).join("output.txt");
        let seen = std::fs::read_to_string(output).unwrap();
        assert!(seen.contains("trunkline-bench-mount-") && seen.contains("fuse"), "{seen}");
        let place = seen.split(' ').nth(1).unwrap();
        assert!(!std::path::Path::new(place).exists(), "{place} is unmounted and removed");
    }
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
    assert!(!mounts.contains("trunkline-bench-mount-"), "{mounts}");
}
