//! Our client on the Linux kernel's NFS server, on two of its addresses, over TCP.

use crate::{alone, sh, trunkline};

/// Stamped blocks, each read checked, and all files compared in the end: a wrong block fails the record.
const EXPERIMENT: &str = r#"
name = "the kernel's server"
repeats = 2
window_ms = 200

[target]
server = "10.77.1.2:/srv/export"

[[route]]
name = "tcp-mp"
options = "nconnect=2,port=2049,mountport=20048,remoteports=10.77.1.1~10.77.1.2,spread_reads,spread_writes"

[[workload]]
name = "random-4k"
pattern = "random"
block = "4KiB"
depth = 2
readers = 1
writers = 1
file = "256KiB"

[[workload]]
name = "sequential-64k"
pattern = "sequential"
block = "64KiB"
depth = 1
readers = 1
writers = 1
file = "1MiB"
"#;

#[test]
fn our_client_finds_what_it_wrote_on_two_addresses_of_the_kernel() {
    let _turn = alone();
    let program = trunkline().display();
    let said = sh(&format!(
        "modprobe nfsd
         mkdir -p /srv/export
         mount -t tmpfs -o size=256M export /srv/export
         mount -t tmpfs state /var/lib/nfs; touch /var/lib/nfs/etab /var/lib/nfs/rmtab
         mkdir -p /var/lib/nfs/v4recovery
         rpcbind; mount -t nfsd nfsd /proc/fs/nfsd
         exportfs -o rw,no_root_squash,insecure,fsid=1 '*:/srv/export'
         rpc.mountd -p 20048; rpc.nfsd 4
         cat > /root/experiment.toml <<'END'
{EXPERIMENT}
END
         {program} bench --no-report --record /root/record.json /root/experiment.toml
         ls -A /srv/export"
    ));
    assert!(said.contains("tcp-mp"), "{said}");
    assert!(!said.contains("trunkline-bench-"), "its files are removed: {said}");
}
