//! Our client on our own group over RDMA: one connection, and several to each node.

use crate::kernel_client::started;
use crate::{alone, measured, sh, trunkline};

/// The kernel knows of no queue pair and no memory once both ends are gone.
#[test]
fn our_client_finds_what_it_wrote_on_a_group_of_ours_over_rdma() {
    let _turn = alone();
    let before = sh("rdma resource show qp type RC; rdma resource show mr");
    let serve = [
        "serve --mem 256MiB",
        "--listen 10.77.1.1:12070 --listen rdma:10.77.1.1:20070",
        "--listen 10.77.1.2:12070 --listen rdma:10.77.1.2:20070",
    ];
    let serve: Vec<String> = serve.join(" ").split(' ').map(str::to_owned).collect();
    let server = started(&serve);
    let rdma = "proto=rdma,port=20070,mountport=12070";
    let several = format!("{rdma},nconnect=4,remoteports=10.77.1.1~10.77.1.2");
    let routes = [
        ("rdma", format!("{rdma},nconnect=1")),
        ("rdma-mp", format!("{several},spread_reads,spread_writes")),
    ];
    let workloads =
        [("random", "4KiB", "128KiB"), ("sequential", "64KiB", "512KiB"), ("sequential", "1MiB", "2MiB")];
    let said = measured("10.77.1.2:/export", 1, &routes, &workloads);
    assert!(said.contains("rdma-mp") && !said.contains("skipped"), "both were measured: {said}");
    let program = trunkline().display();
    sh(&format!(
        "mkdir /root/ours; cd /root/ours
         for size in 0 1 4097 65537 3000001; do head -c $size /dev/urandom > f-$size; done
         {program} cp -r -o {several} /root/ours nfs://10.77.1.2/export/ours
         {program} cp -r -o {several} nfs://10.77.1.2/export/ours /root/ours-back
         diff -r /root/ours /root/ours-back"
    ));
    server.signal(rustix::process::Signal::KILL);
    drop(server);
    // What a mount of another case still has may go meanwhile; nothing of a program may be new.
    testkit::Deadline::wait_until("the kernel to let go", std::time::Duration::from_secs(120), || {
        let now = sh("rdma resource show qp type RC; rdma resource show mr");
        let mut of_programs = now.lines().filter(|line| !line.contains("comm ["));
        of_programs.all(|line| before.contains(line)).then_some(())
    });
}
