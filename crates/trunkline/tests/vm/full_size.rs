//! The kernel's client on trees and directories of a size that takes an emulated machine minutes.

use crate::alone;
use crate::kernel_client::{Mounted, a_tree_is_copied_in, each_name_is_listed_once};

/// In each of eight directories.
const FILES: u32 = 400;
const NAMES: u32 = 10_000;

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
    each_name_is_listed_once(Mounted::new("full-names", 12056, "nconnect=1").directory(), NAMES);
}

#[test]
fn ten_thousand_names_are_listed_once_over_rdma() {
    let _turn = alone();
    each_name_is_listed_once(Mounted::over_rdma("full-rdma-names", 12067, "nconnect=1").directory(), NAMES);
}
