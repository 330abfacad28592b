//! Tests the kernel's client on trees and directories of a size that takes an emulated machine
//! minutes.

use crate::kernel_client::{Mounted, a_tree_is_copied_in};
use crate::{alone, sh, trunkline};

/// The number of files in each of eight directories.
const FILES: u32 = 250;
const NAMES: &str = "10000";

#[test]
fn thousands_of_files_are_copied_in_and_compared_over_tcp() {
    let _turn = alone();
    a_tree_is_copied_in(Mounted::new("full-tree", 12055, "nconnect=4").directory(), FILES);
}

#[test]
fn thousands_of_files_are_copied_in_and_compared_over_rdma() {
    let _turn = alone();
    a_tree_is_copied_in(Mounted::over_rdma("full-rdma-tree", 12066, "nconnect=4").directory(), FILES);
}

#[test]
fn ten_thousand_names_are_listed_once_over_tcp() {
    let _turn = alone();
    each_name_is_listed_once(&Mounted::new("full-names", 12056, "nconnect=1"), 12056);
}

#[test]
fn ten_thousand_names_are_listed_once_over_rdma() {
    let _turn = alone();
    each_name_is_listed_once(&Mounted::over_rdma("full-rdma-names", 12067, "nconnect=1"), 12067);
}

/// Our own client creates the names, which takes it seconds, and the kernel's client minutes.
#[track_caller]
fn each_name_is_listed_once(mounted: &Mounted, port: u16) {
    let (directory, program) = (mounted.directory(), trunkline().display());
    let said = sh(&format!(
        "rm -rf /tmp/many; mkdir /tmp/many; (cd /tmp/many; seq -f name-%05g {NAMES} | xargs touch)
         {program} cp -r -o port={port},mountport={port} /tmp/many nfs://10.77.1.2/export/many >&2
         ls -f {directory}/many | grep -c name-; ls {directory}/many | sort -u | wc -l"
    ));
    let lines: Vec<_> = said.lines().map(str::trim).collect();
    assert_eq!(lines, [NAMES, NAMES], "each name once");
}
