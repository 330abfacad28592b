//! The guests as members of a corosync cluster with DLM, whose daemon dlm_controld fences members
//! by our fence agent.

use crate::cluster::{AGENT, Cluster, PROGRAM, host, sh};
use lab::vm::Guest;

/// How both members see each other. A member that is silent for 30 seconds is lost: long enough for
/// a busy machine, and for a pause without consequences.
const COROSYNC: &str = "
totem {
    version: 2
    cluster_name: volumes
    transport: udpu
    token: 30000
}
nodelist {
    node {
        nodeid: 1
        name: server
        ring0_addr: 10.77.1.2
    }
    node {
        nodeid: 2
        name: client
        ring0_addr: 10.77.1.1
    }
}
quorum {
    provider: corosync_votequorum
    two_node: 1
    wait_for_all: 0
}
logging {
    to_syslog: no
    to_logfile: yes
    logfile: /run/corosync.log
}
";

/// The agent that dlm_controld runs. It says that it was asked, waits until the test lets it go on,
/// and is then our fence agent.
const WAITING_AGENT: &str = "/run/waiting_agent";

/// Makes the file system, and mounts it in both.
pub(super) fn mount(cluster: &Cluster) {
    for guest in cluster.both() {
        start_corosync(guest);
    }
    // Together, because each fences a member that does not follow within 30 seconds.
    for guest in cluster.both() {
        sh(guest, "dlm_controld");
    }
    sh(cluster.server(), "mkfs.gfs2 -q -O -p lock_dlm -t volumes:files -j 2 -J 8 /dev/nvme0n1");
    for guest in cluster.both() {
        sh(
            guest,
            "mkdir -p /mnt/volume; mount -t gfs2 /dev/nvme0n1 /mnt/volume || { dmesg | tail -50; exit 1; }",
        );
    }
}

fn start_corosync(guest: &Guest) {
    let (server, client) = (host("server"), host("client"));
    sh(
        guest,
        &format!(
            "mkdir -p /etc/corosync /etc/dlm /var/lib/corosync /dev/misc
             echo '{COROSYNC}' > /etc/corosync/corosync.conf
             cat > /etc/dlm/dlm.conf <<'END'
device trunkline {WAITING_AGENT} program={PROGRAM}
connect trunkline node=1 plug={server}
connect trunkline node=2 plug={client}
END
             cat > {WAITING_AGENT} <<'END'
#!/bin/sh
touch /run/asked
until [ -e /run/may_fence ]; do sleep 0.2; done
exec {AGENT}
END
             chmod +x {WAITING_AGENT}
             modprobe configfs
             mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config
             modprobe -a dlm gfs2
             # As udev does, which does not run here.
             for device in dlm-control dlm-monitor dlm_plock; do ln -sf ../$device /dev/misc/$device; done
             corosync || {{ cat /run/corosync.log; exit 1; }}"
        ),
    );
}

/// Whether dlm_controld of this member has run its agent.
pub(super) fn has_asked_for_a_fence(guest: &Guest) -> bool {
    sh(guest, "[ ! -e /run/asked ] || echo asked") == "asked\n"
}

/// Lets the agent of this member go on.
pub(super) fn let_the_agent_fence(guest: &Guest) {
    sh(guest, "touch /run/may_fence");
}

/// Whether the server has done the work that the client has left in its journal.
pub(super) fn has_replayed_the_journal_of_the_client(server: &Guest) -> bool {
    sh(server, "dmesg").contains("jid=1: Journal replayed")
}

/// Whether the others have ended corosync of this member, and with it dlm_controld.
pub(super) fn is_put_out(guest: &Guest) -> bool {
    let said = sh(
        guest,
        "corosync-quorumtool -s > /dev/null 2>&1 || grep 'Killed by node' /run/corosync.log || true",
    );
    !said.is_empty()
}

/// Unmounts the volume, and looks at all of it.
pub(super) fn is_clean_after_unmount(server: &Guest) {
    let said = sh(server, "umount /mnt/volume; sync; fsck.gfs2 -n /dev/nvme0n1 2>&1");
    assert!(said.contains("fsck.gfs2 complete"), "{said}");
}
