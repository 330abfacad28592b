//! A cluster file system, GFS2, on one volume in two virtual machines: its files and locks are seen
//! by both, and a machine that stands still is fenced by the cluster with our fence agent, before
//! the other one goes on. It writes nothing when it goes on. `cargo xtask test vm-gfs2` runs this
//! test.

#[path = "support/cluster.rs"]
#[allow(dead_code, reason = "the other cluster file system uses the rest")]
mod cluster;
#[path = "support/cluster_load.rs"]
mod cluster_load;
#[path = "vm_gfs2/dlm.rs"]
mod dlm;
#[path = "support/guest.rs"]
#[allow(dead_code, reason = "the other programs with virtual machines use the rest")]
mod guest;

use cluster::{Cluster, TIMEOUT, host, sh, start, wait_until, waits};
use cluster_load::once;

#[test]
fn what_a_fenced_member_of_a_cluster_had_queued_never_lands() {
    let cluster = Cluster::start(&["corosync", "dlm_controld", "fsck.gfs2", "mkfs.gfs2", "perl"]);
    dlm::mount(&cluster);
    let (server, client) = (cluster.server(), cluster.client());
    cluster.shares_files_and_locks();
    shares_locks_of_ranges(&cluster);

    let load = cluster.load();
    cluster.writes_what_was_queued_without_a_fence();

    let queued = cluster.pause_with_queued_writes();
    let mut once = start(server, &once("server"));
    once.end_input();
    wait_until("the cluster to ask for a fence", || dlm::has_asked_for_a_fence(server).then_some(()));
    // The lock, and the files that the client was writing, are not free before it is fenced.
    waits(&mut once);
    assert_eq!(cluster.fenced(), "");
    assert_eq!(cluster.content(), queued, "nobody writes");
    assert_eq!(cluster.refusals(), 0, "nobody was refused yet");
    dlm::let_the_agent_fence(server);
    let done = once.output().expect("the guest runs");
    assert!(done.status.success(), "{done:?}");
    let fenced = cluster.fenced();
    assert!(fenced.contains(&host("client")) && !fenced.contains(&host("server")), "{fenced}");
    assert!(dlm::has_replayed_the_journal_of_the_client(server), "{}", sh(server, "dmesg | tail -50"));
    let written = cluster.content();
    assert!(written.is_of("server"), "{written}");

    client.resume().expect("the client goes on");
    wait_until("the target to refuse the fenced host", || (cluster.refusals() > 0).then_some(()));
    wait_until("the cluster to put the fenced host out", || dlm::is_put_out(client).then_some(()));
    assert!(!dlm::has_asked_for_a_fence(client), "the fenced host fences nobody");
    drop(load);
    assert_eq!(cluster.content(), written, "what the client had queued has landed");
    println!("the fenced host was refused {} times", cluster.refusals());
    sh(server, "echo of the server alone > /mnt/volume/word");
    dlm::is_clean_after_unmount(server);
}

/// A lock of a range that one member has (fcntl) makes the other wait, and a lock of another range
/// does not.
fn shares_locks_of_ranges(cluster: &Cluster) {
    /// Locks the byte of this number, says so, and has the lock until the end of its input.
    const LOCK: &str = r#"perl -MFcntl -e '
        open(my $file, "+>>", "/mnt/volume/ranges") or die "open: $!";
        my $lock = pack("s s x4 q q i x4", F_WRLCK, 0, $ARGV[0], 1, 0);
        fcntl($file, F_SETLKW, $lock) or die "lock: $!";
        $| = 1; print "locked\n"; <STDIN>' "#;
    let mut holder = start(cluster.client(), &format!("{LOCK} 7"));
    holder.wait_for_line("locked", TIMEOUT).expect("a lock");
    let mut other = start(cluster.server(), &format!("{LOCK} 8"));
    other.wait_for_line("locked", TIMEOUT).expect("a lock of another byte");
    let mut waiting = start(cluster.server(), &format!("{LOCK} 7"));
    waits(&mut waiting);
    holder.end_input();
    waiting.wait_for_line("locked", TIMEOUT).expect("the lock, once it is free");
    other.end_input();
    waiting.end_input();
}
