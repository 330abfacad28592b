//! Our client on our own group over RDMA: one connection, and several to each node.

use crate::kernel_client::started;
use crate::{alone, sh, trunkline};

/// Stamped blocks of three sizes, each read checked, and all files compared in the end: a wrong block fails the record.
const EXPERIMENT: &str = r#"
name = "a group of ours"
repeats = 1
window_ms = 200

[target]
server = "10.77.1.2:/export"

[[route]]
name = "rdma"
options = "proto=rdma,mountport=12070,nconnect=1"

[[route]]
name = "rdma-mp"
options = "proto=rdma,mountport=12070,nconnect=4,remoteports=10.77.1.1~10.77.1.2,spread_reads,spread_writes"

[[workload]]
name = "random-4k"
pattern = "random"
block = "4KiB"
depth = 2
readers = 1
writers = 1
file = "128KiB"

[[workload]]
name = "sequential-64k"
pattern = "sequential"
block = "64KiB"
depth = 2
readers = 1
writers = 1
file = "512KiB"

[[workload]]
name = "sequential-1m"
pattern = "sequential"
block = "1MiB"
depth = 2
readers = 1
writers = 1
file = "2MiB"
"#;

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
    let experiment = EXPERIMENT.replace("nconnect=", "port=20070,nconnect=");
    let program = trunkline().display();
    let said = sh(&format!(
        "cat > /root/both-ends.toml <<'END'
{experiment}
END
         {program} bench --no-report --record /root/both-ends.json /root/both-ends.toml
         rdma='proto=rdma,port=20070,mountport=12070,nconnect=4,remoteports=10.77.1.1~10.77.1.2'
         mkdir /root/ours; cd /root/ours
         for size in 0 1 4097 65537 3000001; do head -c $size /dev/urandom > f-$size; done
         {program} cp -r -o $rdma /root/ours nfs://10.77.1.2/export/ours
         {program} cp -r -o $rdma nfs://10.77.1.2/export/ours /root/ours-back
         diff -r /root/ours /root/ours-back"
    ));
    assert!(said.contains("rdma-mp") && !said.contains("skipped"), "both were measured: {said}");
    server.signal(rustix::process::Signal::KILL);
    drop(server);
    // What a mount of another case still has may go meanwhile; nothing of a program may be new.
    testkit::Deadline::wait_until("the kernel to let go", std::time::Duration::from_secs(120), || {
        let now = sh("rdma resource show qp type RC; rdma resource show mr");
        let mut of_programs = now.lines().filter(|line| !line.contains("comm ["));
        of_programs.all(|line| before.contains(line)).then_some(())
    });
}
