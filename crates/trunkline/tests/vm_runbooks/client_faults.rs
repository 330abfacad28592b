//! Faults of a client of NFS between the two machines, made one by one: what is mounted against the
//! plan of a cluster, connections of the kernel's client, and a server without MOUNT. `trunkline
//! check` finds each by its rule.

use crate::host_faults::checked;
use crate::pair::alone;
use crate::{client, prepare, server, sh};

/// The other machine stands for two nodes of a cluster.
const SITE: &str = r#"
name = "cluster"

[powerscale]
name = "nas"
onefs = "9.8"
administrator = "admin"
prefix_length = 24
nodes = [
    { lnn = 1, interface = "100gige-1", address = "10.77.1.2" },
    { lnn = 2, interface = "100gige-1", address = "10.77.1.3" },
]
export = "/ifs/data/bench"
user = "bench"
uid = 2010

[hosts]
os = "debian12"
interface = "n1"

[[host]]
name = "client"
address = "10.77.1.1"
"#;

const PLAN: &str = "--plan /dev/shm/cluster.toml";
/// The kernel's server gives a machine of this size no transfers of 1 MiB.
const SMALL_MOUNT: &str = "warn nfs.transfer-size";
const SMALL_SERVER: &str = "warn server.export";

#[test]
fn check_finds_each_fault_of_a_client_of_nfs_and_of_a_server_without_mount() {
    let _turn = alone();
    prepare();
    sh(
        server(),
        "mkdir -p /ifs; mount -t tmpfs ifs /ifs; mkdir -p /ifs/data/bench /ifs/data/other
         mount -t tmpfs state /var/lib/nfs; touch /var/lib/nfs/etab /var/lib/nfs/rmtab
         modprobe -a nfsd rpcrdma; mount -t nfsd nfsd /proc/fs/nfsd; rpcbind -w
         exportfs -o rw,no_root_squash,fsid=1 10.77.0.0/16:/ifs/data/bench
         exportfs -o rw,no_root_squash,fsid=2 10.77.0.0/16:/ifs/data/other
         rpc.nfsd 4; echo 'rdma 20049' > /proc/fs/nfsd/portlist; rpc.mountd",
    );
    sh(
        client(),
        &format!(
            "cat > /dev/shm/cluster.toml <<'END'\n{SITE}END
             mkdir -p /mnt/nas/tcp /mnt/nas/rdma; cp -p /etc/passwd /dev/shm/passwd"
        ),
    );
    the_account();
    what_is_mounted();
    connections_of_the_kernels_client();
    a_server_without_mount();
    sh(client(), "cp -p /dev/shm/passwd /etc/passwd; rm -r /mnt/nas");
    sh(
        server(),
        "rpc.nfsd 0; exportfs -ua; pkill -x rpc.mountd; pkill -x rpcbind
         for attempt in $(seq 300); do pgrep -x rpc.mountd || pgrep -x rpcbind || break; sleep 0.2; done
         umount /proc/fs/nfsd; umount /var/lib/nfs; umount /ifs; rmdir /ifs",
    );
}

/// The accounts of the client are those of `lines`, beside its own.
#[track_caller]
fn with_accounts(lines: &[&str], expected: &[&str]) {
    let lines: String = lines.iter().map(|line| format!("{line}::/home/x:/bin/sh\n")).collect();
    sh(client(), &format!("cp -p /dev/shm/passwd /etc/passwd\ncat >> /etc/passwd <<'END'\n{lines}END"));
    assert_eq!(checked("", PLAN), expected, "{lines}");
}

fn the_account() {
    with_accounts(&[], &["warn nfs.account"]);
    with_accounts(&["bench:x:2011:2011"], &["fail nfs.account"]);
    with_accounts(&["other:x:2010:2010"], &["fail nfs.account"]);
    with_accounts(&["bench:x:2010:2010", "other:x:2010:2010"], &["warn nfs.account"]);
    with_accounts(&["bench:x:2010:2010"], &[]);
    sh(client(), "rmmod rpcrdma");
    assert_eq!(checked("", PLAN), ["warn nfs.modules"], "without rpcrdma");
    sh(client(), "modprobe rpcrdma");
}

/// What the plan says, against /proc/self/mountstats.
fn what_is_mounted() {
    let mounted = |options: &str, source: &str, at: &str, expected: &[&str]| {
        sh(client(), &format!("mount -t nfs -o vers=3,nolock,{options} {source} /mnt/nas/{at}"));
        let found = checked("", PLAN);
        sh(client(), &format!("umount /mnt/nas/{at}"));
        assert_eq!(found, expected, "{source} at {at}, {options}");
    };
    let rdma = "proto=rdma,port=20049";
    mounted(rdma, "10.77.1.2:/ifs/data/bench", "rdma", &[SMALL_MOUNT]);
    let wrong = ["fail nfs.plan", SMALL_MOUNT];
    mounted("proto=tcp", "10.77.1.2:/ifs/data/other", "tcp", &wrong);
    mounted("proto=tcp", "10.77.2.2:/ifs/data/bench", "tcp", &wrong);
    mounted("proto=tcp", "10.77.1.2:/ifs/data/bench", "rdma", &wrong);
}

/// One connection that was taken away, and one of two that does no work, as its packets are
/// dropped: the kernel passes over the one on which calls wait.
fn connections_of_the_kernels_client() {
    let mount = |count: u8| {
        let options = format!("vers=3,nolock,proto=tcp,nconnect={count}");
        sh(client(), &format!("mount -t nfs -o {options} 10.77.1.2:/ifs/data/bench /mnt/nas/tcp"));
        assert_eq!(checked("", PLAN), [SMALL_MOUNT], "{count} connections");
    };
    const OTHER: &str =
        "at=$(grep -l main_xprt=0 /sys/kernel/sunrpc/xprt-switches/*/xprt-*/xprt_info | head -n 1)
        at=${at%/*}; [ -n \"$at\" ]";
    mount(3);
    sh(
        client(),
        &format!("{OTHER}; echo offline > $at/xprt_state; echo remove > $at/xprt_state; [ ! -e $at ]"),
    );
    let found = checked("", PLAN);
    sh(client(), "umount /mnt/nas/tcp");
    assert_eq!(found, ["warn nfs.connections", SMALL_MOUNT], "a connection less than asked for");

    mount(2);
    sh(
        client(),
        &format!(
            "{OTHER}; port=$(sed -n s/src_port=//p $at/xprt_info)
             nft \"add table ip cut; add chain ip cut out {{ type filter hook output priority 0; }}
                  add rule ip cut out tcp sport $port drop\"
             for call in 1 2; do (stat -f /mnt/nas/tcp </dev/null >/dev/null 2>&1 &) ; done
             for attempt in $(seq 300); do ! grep -q 'pending_q_len=[1-9]' $at/xprt_info || break; sleep 0.2; done
             dd if=/dev/zero of=/mnt/nas/tcp/file bs=4k count=1200 oflag=direct status=none"
        ),
    );
    let found = checked("", PLAN);
    sh(
        client(),
        "nft 'delete table ip cut'; for attempt in $(seq 300); do pgrep -x stat || break; sleep 0.2; done
         rm /mnt/nas/tcp/file; umount /mnt/nas/tcp",
    );
    assert_eq!(found, ["warn nfs.balance", SMALL_MOUNT], "one of two connections is silent");
}

/// Without MOUNT no export can be mounted by version 3, so `server.export` fails beside it.
fn a_server_without_mount() {
    let missing = ["fail server.export", "fail server.mount"];
    for options in ["proto=tcp", "proto=rdma"] {
        let target = format!("{PLAN} -o {options} 10.77.1.2:/ifs/data/bench");
        assert_eq!(checked("", &target), [SMALL_SERVER], "a sound server, {options}");
        sh(server(), "pkill -STOP -x rpc.mountd");
        let silent = checked("", &target);
        sh(server(), "pkill -CONT -x rpc.mountd");
        assert_eq!(silent, missing, "MOUNT does not answer, {options}");
        sh(
            server(),
            "pkill -x rpc.mountd; for attempt in $(seq 300); do pgrep -x rpc.mountd || break; sleep 0.2; done",
        );
        let gone = checked("", &target);
        sh(server(), "rpc.mountd");
        assert_eq!(gone, missing, "MOUNT is not there, {options}");
    }
}
