//! A cluster file system, OCFS2, on one volume in two virtual machines: its files and locks are
//! seen by both, and a machine that stood still and was fenced meanwhile writes nothing when it
//! goes on. `cargo xtask test vm-ocfs2` runs this test.

#[path = "support/cluster.rs"]
#[allow(dead_code, reason = "the other cluster file system uses the rest")]
mod cluster;
#[path = "support/cluster_load.rs"]
mod cluster_load;
#[path = "support/guest.rs"]
#[allow(dead_code, reason = "the other programs with virtual machines use the rest")]
mod guest;
#[path = "vm_ocfs2/o2cb.rs"]
mod o2cb;

use cluster::{Cluster, TIMEOUT, sh, wait_until};
use cluster_load::once;
use lab::vm::{Error, Guest};
use testkit::Deadline;

#[test]
fn what_a_fenced_member_of_a_cluster_had_queued_never_lands() {
    let cluster = Cluster::start(&["debugfs.ocfs2", "fsck.ocfs2", "mkfs.ocfs2", "o2cb"]);
    o2cb::mount(&cluster);
    let (server, client) = (cluster.server(), cluster.client());
    cluster.shares_files_and_locks();

    let load = cluster.load();
    let heartbeat = o2cb::heartbeat_of_the_client(&cluster);
    cluster.writes_what_was_queued_without_a_fence();
    wait_until("its next heartbeat", || (o2cb::heartbeat_of_the_client(&cluster) != heartbeat).then_some(()));

    let queued = cluster.pause_with_queued_writes();
    assert_eq!(cluster.refusals(), 0, "nobody was refused yet");
    o2cb::fence(&cluster);
    assert!(!o2cb::has_lost_the_client(&cluster), "the fence came before the cluster noticed");
    assert_eq!(cluster.content(), queued, "a fence changes nothing");

    // The lock, and the files that the client was writing, are free when the cluster has given the
    // client up.
    sh(server, &once("server"));
    assert!(o2cb::has_lost_the_client(&cluster), "{}", sh(server, "dmesg | tail -50"));
    let written = cluster.content();
    assert!(written.is_of("server"), "{written}");
    let heartbeat = o2cb::heartbeat_of_the_client(&cluster);

    client.resume().expect("the client goes on");
    wait_until("the target to refuse the fenced host", || (cluster.refusals() > 0).then_some(()));
    ends_itself(client);
    drop(load);
    assert_eq!(cluster.content(), written, "what the client had queued has landed");
    assert_eq!(o2cb::heartbeat_of_the_client(&cluster), heartbeat, "the client has written its heartbeat");
    println!("the fenced host was refused {} times", cluster.refusals());
    o2cb::is_clean_after_unmount(&cluster);
}

/// The client finds that its heartbeat does not reach the volume any more, and o2cb ends it: it is
/// started again, which for a guest is its end.
fn ends_itself(client: &Guest) {
    Deadline::wait_until("the fenced host to end itself", TIMEOUT, || client.has_ended().then_some(()));
    let Err(Error::Gone { message, .. }) = client.sh("true") else { panic!("it has ended") };
    assert!(message.contains("sorry to be fencing this system"), "{message}");
}
