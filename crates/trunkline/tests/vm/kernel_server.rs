//! Tests our client on the Linux kernel's NFS server, on two of its addresses, over TCP and over
//! RDMA.

use crate::guest::{is_in_guest, passes_in};
use crate::{alone, lab, measured, sh, trunkline};
use std::sync::OnceLock;
use verbs::{Alive, alive};

/// Starts the server once for all cases: TCP, and RDMA on the usual port.
pub(super) fn served() {
    static SERVED: OnceLock<()> = OnceLock::new();
    SERVED.get_or_init(|| {
        sh("modprobe nfsd; modprobe rpcrdma
            mkdir -p /srv/export
            mount -t tmpfs -o size=256M export /srv/export
            mount -t tmpfs state /var/lib/nfs; touch /var/lib/nfs/etab /var/lib/nfs/rmtab
            mkdir -p /var/lib/nfs/v4recovery
            rpcbind; mount -t nfsd nfsd /proc/fs/nfsd
            exportfs -o rw,no_root_squash,insecure,fsid=1 '*:/srv/export'
            rpc.mountd -p 20048; rpc.nfsd 4
            echo rdma 20049 > /proc/fs/nfsd/portlist");
    });
}

/// Exports `/srv/root4` as the root of version 4: the kernel makes none by itself where that of the
/// host cannot be exported.
pub(super) fn root_exported() {
    sh("mkdir -p /srv/root4; mountpoint -q /srv/root4 || mount -t tmpfs -o size=64M root4 /srv/root4
        exportfs -o rw,no_root_squash,insecure,fsid=0 '*:/srv/root4'");
}

pub(super) fn root_unexported() {
    sh("exportfs -u '*:/srv/root4'");
}

#[test]
fn our_client_reads_what_it_wrote_on_two_addresses_of_the_kernel() {
    let _turn = alone();
    served();
    let two = "nconnect=2,remoteports=10.77.1.1~10.77.1.2,spread_reads,spread_writes";
    let routes =
        [("tcp-mp", format!("port=2049,mountport=20048,{two}")), ("rdma-mp", format!("proto=rdma,{two}"))];
    let said = measured(
        "10.77.1.2:/srv/export",
        2,
        &routes,
        &[("random", "4KiB", "256KiB"), ("sequential", "64KiB", "1MiB")],
    );
    assert!(said.contains("tcp-mp") && said.contains("rdma-mp"), "{said}");
    assert!(!said.contains("skipped"), "both routes were measured: {said}");
    assert!(said.contains("emulated"), "the results are marked as emulated: {said}");
    let left = sh("ls -A /srv/export");
    assert!(!left.contains("trunkline-bench-"), "the files of bench are removed: {left}");
}

/// Sizes that are sent inline and not, and no multiples of four; a listing and a link whose replies
/// need registered memory.
#[test]
fn our_client_copies_trees_to_and_from_the_kernel_over_rdma() {
    let _turn = alone();
    served();
    let program = trunkline().display();
    let said = sh(&format!(
        "rdma='proto=rdma,nconnect=4,remoteports=10.77.1.1~10.77.1.2'
         mkdir /root/tree /root/tree/many; cd /root/tree
         for size in 0 1 3 1023 4095 4097 65535 1048577 3000001; do head -c $size /dev/urandom > f-$size; done
         (cd many; seq -f a-name-of-some-length-%04g 400 | xargs touch)
         ln -s $(seq -s / 300) long-link
         {program} cp -r -o $rdma /root/tree nfs://10.77.1.2/srv/export/tree
         diff -r --no-dereference /root/tree /srv/export/tree
         {program} cp -r -o $rdma nfs://10.77.1.2/srv/export/tree /root/back
         diff -r --no-dereference /root/tree /root/back
         {program} ls -o $rdma nfs://10.77.1.2/srv/export/tree/many | sort -u | wc -l
         {program} cat -o $rdma nfs://10.77.1.2/srv/export/tree/f-3000001 | cmp - /root/tree/f-3000001
         [ \"$(readlink /root/back/long-link)\" = \"$(seq -s / 300)\" ]
         rm -r /srv/export/tree"
    ));
    assert_eq!(said.trim().lines().last(), Some("400"), "{said}");
}

/// Sessions of another server than ours, over both addresses and both transports.
#[test]
fn our_client_speaks_version_4_with_the_kernel() {
    let _turn = alone();
    served();
    root_exported();
    let program = trunkline().display();
    for (index, options) in [
        "vers=4.1,nconnect=2,remoteports=10.77.1.1~10.77.1.2",
        "vers=4.2,nconnect=4,remoteports=10.77.1.1~10.77.1.2",
        "vers=4.2,proto=rdma,nconnect=2,remoteports=10.77.1.1~10.77.1.2",
    ]
    .into_iter()
    .enumerate()
    {
        let said = sh(&format!(
            "o='{options}'; here=/root/v4-{index}; there=nfs://10.77.1.2/v4-{index}
             mkdir $here $here/many; cd $here
             for size in 0 1 3 1023 4095 4097 65535 1048577 3000001; do head -c $size /dev/urandom > f-$size; done
             (cd many; seq -f a-name-of-some-length-%04g 400 | xargs touch)
             ln -s $(seq -s / 300) long-link
             {program} cp -r -o $o $here $there
             diff -r --no-dereference $here /srv/root4/v4-{index}
             {program} cp -r -o $o $there /root/back-{index}
             diff -r --no-dereference $here /root/back-{index}
             {program} cat -o $o $there/f-3000001 | cmp - $here/f-3000001
             fails {program} ls -o $o nfs://10.77.1.2/nothing
             {program} ls -o $o $there/many | sort -u | wc -l
             {program} rm -r -o $o $there; [ ! -e /srv/root4/v4-{index} ]"
        ));
        assert!(said.lines().any(|line| line.trim() == "400"), "{options}: {said}");
    }
    root_unexported();
}

#[test]
fn impossible_rdma_is_an_error_with_its_cause_and_never_becomes_tcp() {
    let _turn = alone();
    served();
    let program = trunkline().display();
    let said = sh(&format!(
        "for target in 127.0.0.1/srv/export?proto=rdma '10.77.1.2/srv/export?proto=rdma,port=20050'; do
           fails {program} ls \"nfs://$target\"
         done"
    ));
    for part in [
        "no connection to 127.0.0.1:20049 over RDMA (looked at: rxe1 ",
        "no RDMA device reaches 127.0.0.1:20049",
        "try:   rdma link ",
        "nobody takes connections over RDMA at 10.77.1.2:20050",
        "try:   echo rdma 20050 > /proc/fs/nfsd/portlist",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let limited = sh(&format!(
        "ulimit -l 16; fails setpriv --bounding-set -ipc_lock {program} ls 'nfs://10.77.1.2/srv/export?proto=rdma'"
    ));
    assert!(limited.contains("cannot register") && limited.contains("try:   ulimit -l"), "{limited}");
}

/// Runs itself in the guest, where it mounts and counts the remaining objects.
#[test]
fn a_mount_over_rdma_frees_every_object() {
    if is_in_guest() {
        let options = "proto=rdma,nconnect=3,remoteports=10.77.1.1~10.77.1.2";
        let mount = client::Mount::connect("10.77.1.2:/srv/export", options).expect("the client mounts");
        for _ in 0..10 {
            mount.attributes(mount.root()).expect("the server answers");
        }
        // One connection for each of three slots.
        assert_eq!(alive().queue_pairs, 3);
        drop(mount);
        assert_eq!(alive(), Alive::default());
        return;
    }
    let _turn = alone();
    served();
    passes_in(lab().client(), "kernel_server::a_mount_over_rdma_frees_every_object");
}
