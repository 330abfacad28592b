//! What the server of the runbook serves, used from the other machine.

use crate::host_faults::bad;
use crate::{TRUNKLINE, client, server, sh};

/// Data of a size that is no multiple of a page.
const DATA: &str = "head -c 3000001 /dev/urandom > /dev/shm/data";

/// The kernel's NFS server over TCP and over RDMA, by the kernel's client, and what `check` says.
pub fn by_the_kernel() {
    for (proto, options) in [("tcp", "proto=tcp"), ("rdma", "proto=rdma,port=20049")] {
        let mount = format!("mount -t nfs -o vers=3,nolock,{options} 10.77.1.2:/srv/nfs /mnt/book");
        sh(
            client(),
            &format!(
                "{DATA}
                 {mount}; grep ' /mnt/book nfs ' /proc/mounts | grep -q 'proto={proto},'
                 cp /dev/shm/data /mnt/book/{proto}; umount /mnt/book
                 {mount}; cmp /dev/shm/data /mnt/book/{proto}; umount /mnt/book"
            ),
        );
        let [ours, theirs] = [
            sh(client(), "sha256sum < /dev/shm/data"),
            sh(server(), &format!("sha256sum < /srv/nfs/{proto}")),
        ];
        assert_eq!(ours, theirs, "over {proto}");
    }
    for options in ["proto=tcp", "proto=rdma"] {
        let target = format!("--write -o {options} 10.77.1.2:/srv/nfs");
        assert_eq!(bad(&target), [SMALL_SERVER], "a sound server, {options}");
    }
    let closed = "exportfs -u 10.77.0.0/16:/srv/nfs; exportfs -o rw,fsid=1 10.99.0.0/16:/srv/nfs";
    sh(server(), closed);
    let found = bad("-o proto=tcp 10.77.1.2:/srv/nfs");
    // The server reads the runbook's exports again.
    sh(server(), "exportfs -u 10.99.0.0/16:/srv/nfs; exportfs -r");
    assert_eq!(found, ["fail server.export"], "after: {closed}");
    // Debian's kernel 6.1 opens one connection for version 4 over RDMA, whatever nconnect asks for,
    // and does not show what that was. The root file system of these machines cannot be exported,
    // and version 4 begins at the root.
    sh(server(), "exportfs -o rw,no_root_squash,fsid=0 10.77.0.0/16:/srv");
    sh(client(), "mount -t nfs -o vers=4.1,nconnect=4,proto=rdma,port=20049 10.77.1.2:/ /mnt/book");
    let found = bad("");
    sh(client(), "umount /mnt/book");
    sh(server(), "exportfs -u 10.77.0.0/16:/srv");
    assert_eq!(found, [SMALL_MOUNT]);
    sh(server(), "rm /srv/nfs/tcp /srv/nfs/rdma");
}

/// The kernel's server gives a machine of this size no transfers of 1 MiB. `server.export` says so
/// of our mount, `nfs.transfer-size` of the kernel's.
const SMALL_SERVER: &str = "warn server.export";
const SMALL_MOUNT: &str = "warn nfs.transfer-size";

/// Trunkline's own server: its directory over TCP and over RDMA, its memory, and both its nodes.
pub fn by_trunkline() {
    let tcp = "port=12049,mountport=12049";
    let rdma = "proto=rdma,port=12050,mountport=12049";
    for (address, options) in
        [("10.77.1.2", tcp), ("10.77.2.2", tcp), ("10.77.1.2", rdma), ("10.77.2.2", rdma)]
    {
        for export in ["data", "scratch"] {
            let file = format!("nfs://{address}/{export}/file");
            sh(
                client(),
                &format!(
                    "{DATA}; {TRUNKLINE} cp -o {options} /dev/shm/data {file}
                     {TRUNKLINE} cat -o {options} {file} | cmp - /dev/shm/data"
                ),
            );
            if export == "data" {
                let ours = sh(client(), "sha256sum < /dev/shm/data");
                assert_eq!(ours, sh(server(), "sha256sum < /srv/data/file"), "{address} {options}");
            }
            sh(client(), &format!("{TRUNKLINE} rm -o {options} {file}"));
        }
    }
    assert_eq!(bad(&format!("--write -o {tcp} 10.77.1.2:/data")), [""; 0], "a sound server");
}
