//! Tests the Linux kernel's NFS client on our server, over RDMA.

use crate::kernel_client::{Mounted, fio_finds_what_it_wrote};
use crate::{alone, sh};

/// The blocks and files of fio: fewer than over TCP, because a software device on an emulated
/// machine is slow.
const SIZES: [(&str, &str); 3] = [("4k", "512k"), ("64k", "2m"), ("1m", "8m")];

#[test]
fn the_kernel_reads_what_it_wrote_over_one_rdma_connection() {
    let _turn = alone();
    let mounted = Mounted::over_rdma("rdma-one", 12060, "nconnect=1");
    fio_finds_what_it_wrote(mounted.directory(), &SIZES);
    let mounts = sh("cat /proc/mounts");
    let ours = mounts.lines().find(|line| line.contains("/mnt/rdma-one "));
    assert!(ours.is_some_and(|line| line.contains("proto=rdma")), "{mounts}");
}

#[test]
fn the_kernel_reads_what_it_wrote_over_four_rdma_connections() {
    let _turn = alone();
    let mounted = Mounted::over_rdma("rdma-four", 12061, "nconnect=4");
    fio_finds_what_it_wrote(mounted.directory(), &SIZES);
    let mounts = sh("cat /proc/mounts");
    let ours = mounts.lines().find(|line| line.contains("/mnt/rdma-four "));
    assert!(ours.is_some_and(|line| line.contains("nconnect=4")), "{mounts}");
}

/// Also a link and a listing whose replies need registered memory.
#[test]
fn a_tree_of_small_files_is_copied_in_over_rdma_and_compared() {
    let _turn = alone();
    let mounted = Mounted::over_rdma("rdma-tree", 12062, "nconnect=2");
    let directory = mounted.directory();
    let said = sh(&format!(
        "rm -rf /tmp/rdma-tree; mkdir /tmp/rdma-tree
         for d in 1 2 3 4 5 6 7 8; do
           mkdir -p /tmp/rdma-tree/$d/below
           for f in $(seq 8); do head -c $((f * d * 37)) /dev/urandom > /tmp/rdma-tree/$d/below/file-$f; done
         done
         ln -s $(seq -s / 300) /tmp/rdma-tree/soft
         mkdir /tmp/rdma-tree/many; (cd /tmp/rdma-tree/many; seq -f a-name-of-some-length-%04g 300 | xargs touch)
         cp -a /tmp/rdma-tree {directory}/tree
         echo 3 > /proc/sys/vm/drop_caches
         diff -r --no-dereference /tmp/rdma-tree {directory}/tree
         ls {directory}/tree/many | sort -u | wc -l"
    ));
    assert_eq!(said.trim(), "300", "no difference");
}
