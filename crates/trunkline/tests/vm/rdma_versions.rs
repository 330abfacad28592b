//! Counts what READ and WRITE of 1 MiB and 4 KiB cost over RDMA by version 4.1, beside version 3:
//! as many messages and RDMA operations, and as few bytes copied. Both ends are in one process in
//! the guest; the test runs itself there.

use crate::guest::{is_in_guest, passes_in};
use crate::rdma_counts::{OPERATIONS, SPARE, TURNS, since, work_of};
use crate::{alone, lab};
use client::{File, Mount};
use server::{Config, Server};
use transport::rdma::Counters;
use verbs::{Alive, alive};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
/// Name, bytes, and whether it writes.
const CASES: [(&str, usize, bool); 4] = [
    ("READ 1 MiB", MIB, false),
    ("WRITE 1 MiB", MIB, true),
    ("READ 4 KiB", 4 * KIB, false),
    ("WRITE 4 KiB", 4 * KIB, true),
];

#[test]
fn version_4_1_costs_as_many_rdma_operations_as_version_3() {
    if is_in_guest() {
        compared();
        return assert_eq!(alive(), Alive::default());
    }
    let _turn = alone();
    passes_in(lab().client(), "rdma_versions::version_4_1_costs_as_many_rdma_operations_as_version_3");
}

fn compared() {
    let mut config = Config::quick(32 << 20, "/export", &["10.77.1.2:12083".parse().expect("an address")]);
    config.add_rdma(&["10.77.1.2:20083".parse().expect("an address")]);
    config.versions = "3,4.1,4.2".parse().expect("versions");
    let server = Server::start(config).expect("the guest has a device");
    println!("for each operation: messages sent by client, server; RDMA writes, reads; bytes copied by both");
    for (name, bytes, writes) in CASES {
        let [three, four] = ["vers=3,mountport=12083", "vers=4.1"].map(|version| {
            let options = format!("{version},proto=rdma,port=20083,nconnect=1");
            let mount = Mount::connect("10.77.1.2:/export", &options).expect("the server answers");
            let file = mount.create_file(b"/counted", 0o644).expect("the export is writable");
            file.write_all_at(&vec![7; MIB], 0).expect("the file was written");
            let ends = least(&server, &mount, &file, bytes, writes);
            println!("{name} by {}: {}", &version[..6], described(&ends));
            ends
        });
        for (end, (three, four)) in ["client", "server"].into_iter().zip(three.iter().zip(&four)) {
            let counts = |of: &Counters| {
                [of.sends, of.writes, of.reads, of.written_bytes, of.read_bytes, of.copied_bytes, of.lent]
            };
            assert_eq!(counts(three), counts(four), "{name}, {end}: {three:?}, {four:?}");
            let beyond = four.completions.saturating_sub(three.completions);
            assert!(beyond <= SPARE, "{name}, {end}: {three:?}, {four:?}");
        }
        assert_eq!(four[0].sends, OPERATIONS, "one message for a call: {four:?}");
        assert_eq!(four[1].sends, OPERATIONS, "one message for a reply: {four:?}");
    }
}

/// The counters of client and server of that turn which cost the least. The first one registers
/// memory, and is not counted.
fn least(server: &Server, mount: &Mount, file: &File, bytes: usize, writes: bool) -> [Counters; 2] {
    operate(mount, file, bytes, writes);
    let now = || [mount.statistics().rdma, work_of(server)];
    let turns = (0..TURNS).filter_map(|_| {
        let before = now();
        operate(mount, file, bytes, writes);
        let after = now();
        Some([since(&after[0], &before[0])?, since(&after[1], &before[1])?])
    });
    turns.min_by_key(|ends| ends.iter().map(Counters::work).sum::<u64>()).expect("there was a turn")
}

/// All operations of a turn, one after the other, in memory that the client may lend.
fn operate(mount: &Mount, file: &File, bytes: usize, writes: bool) {
    for _ in 0..OPERATIONS {
        let buffer = mount.buffer(bytes);
        let pending = if writes { file.write_at(buffer, 0) } else { file.read_at(buffer, 0) };
        pending.wait().result.expect("the operation succeeds");
    }
}

fn described([client, server]: &[Counters; 2]) -> String {
    let each = |count: u64| count as f64 / OPERATIONS as f64;
    let counts = [client.sends, server.sends, server.writes, server.reads];
    let copied = [client.copied_bytes, server.copied_bytes, client.completions, server.completions];
    format!("{:?}; copied and completions {:?}", counts.map(each), copied.map(each))
}
