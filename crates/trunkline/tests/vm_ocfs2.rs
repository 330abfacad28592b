//! A cluster file system, OCFS2, on one volume in two virtual machines: its files and locks are
//! seen by both, and a machine that stood still and was fenced meanwhile writes nothing when it
//! goes on. `cargo xtask test vm-ocfs2` runs this test.
//!
//! The guest `server` has the target and is one host of its volume; the guest `client` is the
//! other host, and the one that is paused.

#[path = "vm_ocfs2/cluster.rs"]
mod cluster;
#[path = "support/guest.rs"]
#[allow(dead_code, reason = "the other programs with virtual machines use the rest")]
mod guest;
#[path = "vm_ocfs2/load.rs"]
mod load;

use cluster::Cluster;
use lab::vm::{Error, Guest};
use load::{FILES, once};
use std::process::Command;
use std::time::Duration;
use testkit::Deadline;

/// The longest time that anything may take in an emulated machine on a busy host.
const TIMEOUT: Duration = Duration::from_secs(600);

/// How often is looked whether something has happened in a guest, which costs it a process.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// Runs a shell script in a guest, which must succeed; returns its output.
#[track_caller]
fn sh(guest: &Guest, script: &str) -> String {
    guest::sh(guest, &format!("set -e\n{script}"))
}

/// Waits for something in a guest.
#[track_caller]
fn wait_until<T>(what: &str, mut check: impl FnMut() -> Option<T>) -> T {
    let mut is_first = true;
    Deadline::wait_until(what, TIMEOUT, || {
        if !std::mem::take(&mut is_first) {
            std::thread::sleep(LOOK_INTERVAL);
        }
        check()
    })
}

#[test]
fn what_a_fenced_member_of_a_cluster_had_queued_never_lands() {
    let cluster = Cluster::start();
    let (server, client) = (cluster.server(), cluster.client());
    files_and_locks_are_seen_by_both(server, client);

    let load = cluster.load();
    // What is queued when a host stands still is written when the host goes on, if it may.
    let queued = cluster.pause_with_queued_writes();
    let heartbeat = cluster.heartbeat_of_the_client();
    client.resume().expect("the client goes on");
    wait_until("the queued writes of a host that is not fenced", || {
        let found = cluster.content();
        (0..FILES).all(|file| found.differs_in(&queued, file)).then_some(())
    });
    wait_until("its next heartbeat", || (cluster.heartbeat_of_the_client() != heartbeat).then_some(()));

    let queued = cluster.pause_with_queued_writes();
    assert!(queued.is_of("client"), "{queued}");
    assert_eq!(cluster.refusals(), 0, "nobody was refused yet");
    cluster.fence();
    assert!(!cluster.has_lost_the_client(), "the fence came before the cluster noticed");
    assert_eq!(cluster.content(), queued, "a fence changes nothing");

    // The lock, and the files that the client was writing, are free when the cluster has given the
    // client up.
    sh(server, &once("server"));
    assert!(cluster.has_lost_the_client(), "{}", sh(server, "dmesg | tail -50"));
    let written = cluster.content();
    assert!(written.is_of("server"), "{written}");
    let heartbeat = cluster.heartbeat_of_the_client();

    client.resume().expect("the client goes on");
    wait_until("the target to refuse the fenced host", || (cluster.refusals() > 0).then_some(()));
    ends_itself(client);
    drop(load);
    assert_eq!(cluster.content(), written, "what the client had queued has landed");
    assert_eq!(cluster.heartbeat_of_the_client(), heartbeat, "the client has written its heartbeat");
    println!("the fenced host was refused {} times", cluster.refusals());
    cluster.is_clean_after_unmount();
}

/// A file that one member writes is read by the other, and a lock that one has makes the other
/// wait.
fn files_and_locks_are_seen_by_both(server: &Guest, client: &Guest) {
    sh(client, "echo of the client > /mnt/volume/word");
    assert_eq!(sh(server, "cat /mnt/volume/word"), "of the client\n");
    sh(server, "echo of the server >> /mnt/volume/word; rm -f /mnt/volume/none; mkdir /mnt/volume/more");
    assert_eq!(
        sh(client, "cat /mnt/volume/word; ls /mnt/volume"),
        "of the client\nof the server\nlost+found\nmore\nword\n"
    );

    let mut holder = Command::new("/usr/bin/flock");
    holder.args(["/mnt/volume/lock", "sh", "-c", "echo held; read word"]).current_dir("/");
    let mut holder = client.spawn(&holder).expect("the guest runs");
    holder.wait_for_line("held", TIMEOUT).expect("a lock");
    sh(server, "! flock --nonblock /mnt/volume/lock true");
    let mut waiting = Command::new("/usr/bin/flock");
    waiting.args(["/mnt/volume/lock", "echo", "got"]).current_dir("/");
    let mut waiting = server.spawn(&waiting).expect("the guest runs");
    let early = waiting.next_within(Duration::from_secs(2));
    assert!(matches!(early, Err(Error::Timeout(_))), "{early:?}");
    holder.end_input();
    waiting.wait_for_line("got", TIMEOUT).expect("the lock, once it is free");
}

/// The client finds that its heartbeat does not reach the volume any more, and o2cb ends it: it is
/// started again, which for a guest is its end.
fn ends_itself(client: &Guest) {
    Deadline::wait_until("the fenced host to end itself", TIMEOUT, || client.has_ended().then_some(()));
    let Err(Error::Gone { message, .. }) = client.sh("true") else { panic!("it has ended") };
    assert!(message.contains("sorry to be fencing this system"), "{message}");
}
