//! The guests as members of o2cb, OCFS2's own cluster stack.

use crate::cluster::{AGENT, Cluster, PROGRAM, host, sh};

/// Both members, in the guest that a shell script runs in. The server is number 0, because of two
/// members that only lose each other, o2cb lets the one with the lower number go on. A member that
/// is silent for 30 seconds is given up: long enough for a busy machine, and half the default.
const MEMBERS: &str = "
    mkdir -p /etc/ocfs2
    {
        printf 'cluster:\\n\\tname = volumes\\n\\tnode_count = 2\\n\\theartbeat_mode = local\\n\\n'
        for member in '0 server 10.77.1.2' '1 client 10.77.1.1'; do
            set -- $member
            printf 'node:\\n\\tcluster = volumes\\n\\tnumber = %s\\n\\tname = %s\\n' $1 $2
            printf '\\tip_address = %s\\n\\tip_port = 7777\\n\\n' $3
        done
    } > /etc/ocfs2/cluster.conf
    modprobe configfs
    mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config
    modprobe ocfs2; modprobe ocfs2_stack_o2cb
    o2cb register-cluster volumes
    echo 16 > /sys/kernel/config/cluster/volumes/heartbeat/dead_threshold";

/// Makes the file system, and mounts it in both.
pub(super) fn mount(cluster: &Cluster) {
    for guest in cluster.both() {
        sh(guest, MEMBERS);
    }
    sh(
        cluster.server(),
        "mkfs.ocfs2 -b 4096 -C 4096 -N 2 -J size=8M --cluster-stack=o2cb --cluster-name=volumes /dev/nvme0n1 \
             < /dev/null 2>&1",
    );
    for guest in cluster.both() {
        sh(
            guest,
            "mkdir -p /mnt/volume; mount -t ocfs2 /dev/nvme0n1 /mnt/volume || { dmesg | tail -50; exit 1; }",
        );
    }
}

/// Has the target refuse the client, as a cluster does.
pub(super) fn fence(cluster: &Cluster) {
    let host = host("client");
    let said = sh(
        cluster.server(),
        &format!(
            "printf 'action=off\\nplug={host}\\nprogram={PROGRAM}\\n' | {AGENT} >&2
             {PROGRAM} block fenced; {PROGRAM} block hosts"
        ),
    );
    let lines = said.lines().filter(|line| line.contains(&host)).count();
    assert_eq!(lines, 1, "it is fenced, and not connected: {said}");
}

/// Whether the server has done the work that the client has left in its journal.
pub(super) fn has_lost_the_client(cluster: &Cluster) -> bool {
    sh(cluster.server(), "dmesg").contains("End replay journal (node 1")
}

/// The number of the client's last heartbeat on the volume.
pub(super) fn heartbeat_of_the_client(cluster: &Cluster) -> String {
    sh(cluster.server(), "debugfs.ocfs2 -R hb /dev/nvme0n1 | grep ' 1: '")
}

/// Unmounts the volume, and looks at all of it.
pub(super) fn is_clean_after_unmount(cluster: &Cluster) {
    let said = sh(cluster.server(), "umount /mnt/volume; sync; fsck.ocfs2 -fn /dev/nvme0n1 2>&1");
    assert!(said.contains("All passes succeeded."), "{said}");
}
