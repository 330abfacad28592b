//! An experiment whose clients are agents in two machines, over TCP and over RDMA.

use crate::guest::sh;
use crate::pair::{GuestServer, alone, pair};
use lab::vm::Guest;
use record::{Half, Record};

const EXPERIMENT: &str = r#"
repeats = 2
window_ms = 1000
target.server = "10.77.1.2:/export"
clients = ["near=10.77.1.2", "far=10.77.1.1"]
[[client_group]]
name = "other machine"
clients = ["far"]
[[route]]
name = "tcp"
options = "nconnect=1"
[[route]]
name = "rdma"
options = "proto=rdma,nconnect=1"
clients = "other machine"
[[workload]]
name = "read-64k"
block = "64KiB"
depth = 2
readers = 1
file = "1MiB"
"#;

/// An agent in a guest.
fn agent(guest: &Guest, address: &str) -> GuestServer {
    sh(guest, "umask 077; echo 0123456789abcdef0123456789abcdef > /tmp/bench.key");
    GuestServer::on(guest, &["agent", "--listen", address, "--key", "/tmp/bench.key"])
}

#[test]
fn agents_in_two_machines_share_an_experiment_over_tcp_and_rdma() {
    let _alone = alone();
    let (near, far) = (pair().server(), pair().client());
    let _server = GuestServer::start();
    let _agents = [agent(near, "10.77.1.2"), agent(far, "10.77.1.1")];
    let program = env!("CARGO_BIN_EXE_trunkline");
    let script = format!(
        "cat > /tmp/many.toml <<'END'\n{EXPERIMENT}\nEND\n\
         {program} bench /tmp/many.toml --client-key /tmp/bench.key --record -"
    );
    let output = near.sh(&script).expect("the guest runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    let record = Record::read(&text).unwrap_or_else(|error| panic!("{error}: {text}{complained}"));
    // On emulated processors a start may be later than the warm-up.
    let failed: Vec<&String> = record.failed.iter().filter(|it| !it.contains("warm-up")).collect();
    assert!(failed.is_empty(), "{failed:?}");
    let clients = |route: &str| -> Vec<(String, bool)> {
        let workload = record.route(route).expect(route).workload("read-64k", Half::Raw).expect(route);
        workload.clients.iter().map(|client| (client.name.clone(), client.ops > 0)).collect()
    };
    assert_eq!(clients("tcp"), [("near".to_owned(), true), ("far".to_owned(), true)]);
    assert_eq!(clients("rdma"), [("far".to_owned(), true)]);
    let counters = &record.route("rdma").expect("the route").workloads[0].counters.client;
    assert!(counters.get("rdma_work_requests").is_some_and(|count| *count > 0), "{counters:?}");
    assert_eq!(sh(near, &format!("{program} ls nfs://10.77.1.2/export")), "", "nothing is left");
}
