//! Tests our NVMe/RDMA host (`block attach`) over Soft-RoCE, on our pair: what it finds is what it
//! wrote last, whatever becomes of a path. The load runs in the guest, where both ends are.

use crate::attached::{HOST, SOCKET, attached, held, run, settle, started, wait_for_paths};
use crate::disk_load::DiskLoad;
use crate::guest::{is_in_guest, passes_in};
use crate::kernel_target::TIMEOUT;
use crate::nbd_client::Client;
use crate::{alone, lab, trunkline};
use record::{Half, Record};
use rustix::process::Signal;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use testkit::Deadline;

pub(super) const SUBSYSTEM: &str = "nqn.2026-11.org.trunkline:over-rdma";
/// Where both targets have their volume.
pub(super) const STORE: &str = "/dev/ram0";

#[track_caller]
pub(super) fn compare_with_device(content: &[(u64, Vec<u8>)]) {
    let store = File::open(STORE).expect("the device");
    for (offset, expected) in content {
        let mut found = vec![0; expected.len()];
        store.read_exact_at(&mut found, *offset).expect("its blocks");
        assert!(&found == expected, "the device holds something else at {offset}");
    }
}

/// The longest transfer, which is several commands, and one that ends within a block of memory.
#[track_caller]
pub(super) fn long_transfers_are_whole() {
    let mut client = Client::begin(Path::new(SOCKET));
    for (offset, bytes) in [(16 << 20, 4 << 20), (24 << 20, (1 << 20) + 4096), (28 << 20, 1 << 20)] {
        let data: Vec<u8> = (0..bytes).map(|at: u32| (at / 512) as u8 ^ (at % 251) as u8).collect();
        client.write(offset, &data);
        assert!(client.read(offset, bytes) == data, "{bytes} bytes at {offset}");
    }
}

#[test]
fn our_host_over_rdma_loses_nothing_when_a_node_of_our_pair_is_killed_or_stands_still() {
    const NAME: &str = "block_over_rdma::\
         our_host_over_rdma_loses_nothing_when_a_node_of_our_pair_is_killed_or_stands_still";
    if is_in_guest() {
        return on_our_pair();
    }
    let _turn = alone();
    passes_in(lab().server(), NAME);
}

fn on_our_pair() {
    const PORTS: [&str; 2] = ["rdma:10.77.1.2:12450", "rdma:10.77.1.2:12451"];
    let before = held();
    run(&format!(
        "modprobe brd rd_nr=1 rd_size=65536; dd if=/dev/zero of={STORE} bs=1M count=64 2>/dev/null; rm -rf /run/over-rdma
         cat > /run/over-rdma.toml << END
nqn = \"{SUBSYSTEM}\"
state = \"/run/over-rdma\"
allow = [\"{HOST}\"]
listen = [\"{}\", \"{}\"]
[[volume]]
source = \"{STORE}\"
owner = \"A\"
END",
        PORTS[0], PORTS[1]
    ));
    let node = |name: &str| started(&format!("block serve -c /run/over-rdma.toml --node {name}"), "ready");
    let [mut a, mut b] = ["A", "B"].map(node);
    let list = |host: &str| {
        run(&format!(
            "{} block attach --connect {} --hostnqn {host} 2>&1 || true",
            trunkline().display(),
            PORTS[1]
        ))
    };
    let found = list(HOST);
    assert!(PORTS.iter().all(|port| found.contains(&format!("--connect {port}"))), "{found}");
    let refused = list("nqn.2026-11.org.trunkline:other");
    assert!(refused.contains("there is no subsystem"), "{refused}");

    let mut attached = attached(SUBSYSTEM, &PORTS, "");
    wait_for_paths(2, None);
    long_transfers_are_whole();
    let load = DiskLoad::start(Path::new(SOCKET), 7);
    load.wait_for_all();
    a.signal(Signal::KILL);
    load.wait_for_all();
    a = node("A");
    wait_for_paths(2, None);
    load.wait_for_all();
    // It owns the volume now. The other one ends it, which is not for long: it is killed then.
    b.signal(Signal::STOP);
    load.wait_for_all();
    b.signal(Signal::KILL);
    b = node("B");
    wait_for_paths(2, None);
    load.wait_for_all();
    let content = settle("our pair", load);
    assert!(attached.terminate(TIMEOUT).success());
    assert!(a.terminate(TIMEOUT).success() && b.terminate(TIMEOUT).success());
    compare_with_device(&content);
    Deadline::wait_until("everything to be freed", TIMEOUT, || (held() == before).then_some(()));
}

#[test]
fn a_volume_is_measured_over_rdma_and_beside_tcp() {
    const NAME: &str = "block_over_rdma::a_volume_is_measured_over_rdma_and_beside_tcp";
    if is_in_guest() {
        return measured();
    }
    let _turn = alone();
    passes_in(lab().server(), NAME);
}

fn measured() {
    let mut target = started(
        &format!(
            "block serve --volume mem:16MiB --listen rdma:10.77.1.2:12460 --listen 10.77.1.2:12461 \
             --nqn {SUBSYSTEM} --state /run/measured --allow any"
        ),
        "ready",
    );
    run(&format!(
        "cd /root; cat > rdma.toml << END
repeats = 1
window_ms = 300
[[workload]]
name = \"mixed\"
block = \"64KiB\"
depth = 4
readers = 1
writers = 1
file = \"2MiB\"
[[route]]
name = \"embedded\"
target = \"volume:?rdma,queues=1\"
[[route]]
name = \"both\"
target = \"nvme-rdma://10.77.1.2:12460/{SUBSYSTEM}?connect=tcp:10.77.1.2:12461,queues=1,overwrite\"
END
         {} bench rdma.toml --record rdma.json --no-report --force",
        trunkline().display()
    ));
    let record = std::fs::read_to_string("/root/rdma.json").expect("a record");
    let record = Record::read(&record).expect("a record");
    assert!(record.failed.is_empty(), "{:?}", record.failed);
    let both = "NVMe/TCP and NVMe/RDMA, by our host";
    for (name, access) in [("embedded", "NVMe/RDMA, by our host"), ("both", both)] {
        let route = record.route(name).expect("the route");
        assert_eq!(route.access.as_deref(), Some(access));
        let mixed = route.workload("mixed", Half::Raw).expect("the workload");
        assert!(mixed.cells().count() == 2 && mixed.cells().all(|(_, cell)| cell.ops > 0), "{mixed:?}");
        assert!(mixed.verified.is_some_and(|it| it.stamps > 0 && it.wrong == 0), "{mixed:?}");
    }
    let mixed = record.route("both").and_then(|route| route.workload("mixed", Half::Raw));
    let paths = &mixed.expect("the workload").paths;
    let paths: Vec<(&str, bool)> = paths.iter().map(|it| (it.path.as_str(), it.bytes > 0)).collect();
    // The second address is that of node B, which does not own the volume.
    assert_eq!(paths, [("rdma:10.77.1.2", true), ("10.77.1.2", false)]);
    let limit = record.limits.iter().find(|it| it.route.as_deref() == Some("nvme-rdma"));
    assert!(limit.is_some_and(|limit| limit.gbytes_per_s > 0.0), "{:?}", record.limits);
    assert!(target.terminate(TIMEOUT).success());
}
