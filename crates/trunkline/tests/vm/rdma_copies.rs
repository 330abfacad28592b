//! How often our server and our client copy payload over RDMA: not at all, where memory may be
//! registered; and once, where it may not. The data must be right in all cases.
//!
//! Both ends are in one process in the guest; the tests ask for themselves to be run there.

use crate::guest::{is_in_guest, passes_in};
use crate::{alone, lab};
use client::{File, Mount};
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use server::{Config, Server};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use testkit::Deadline;
use transport::rdma::Counters;
use verbs::{Alive, alive};

const TIMEOUT: Duration = Duration::from_secs(120);
const MIB: usize = 1 << 20;
/// Less than twice an arena of the memory store, of which it may use half, and more than the
/// messages of a few connections.
const LOCKED_BYTES_MAX: u64 = 30 << 20;

const IN_PLACE: &str = "rdma_copies::neither_end_copies_payload_over_rdma";
/// The client may use a quarter of this, which is less than one buffer. The rest is enough for the
/// messages of a connection and one payload at each end.
const LOCKED_BYTES_LEAST: u64 = (4 << 20) - 4096;
/// Less is copied, not lent.
const SHORT_BYTES: usize = 4096;

const CLIENT_THROUGH_POOL: &str =
    "rdma_copies::where_hardly_any_memory_may_be_locked_our_client_copies_payload_once";
const THROUGH_POOL: &str = "rdma_copies::where_memory_may_not_be_locked_our_server_copies_payload_once";

#[test]
fn neither_end_copies_payload_over_rdma() {
    if is_in_guest() {
        println!("memory");
        on_memory(Copies { server: 0, client: 0 });
        println!("a directory");
        return on_a_directory(Copies { server: 0, client: 0 });
    }
    let _turn = alone();
    passes_in(lab().client(), IN_PLACE);
}

#[test]
fn where_memory_may_not_be_locked_our_server_copies_payload_once() {
    if is_in_guest() {
        lock_at_most(LOCKED_BYTES_MAX);
        return on_memory(Copies { server: 1, client: 0 });
    }
    let _turn = alone();
    passes_in(lab().client(), THROUGH_POOL);
}

#[test]
fn where_hardly_any_memory_may_be_locked_our_client_copies_payload_once() {
    if is_in_guest() {
        lock_at_most(LOCKED_BYTES_LEAST);
        return on_memory(Copies { server: 1, client: 1 });
    }
    let _turn = alone();
    passes_in(lab().client(), CLIENT_THROUGH_POOL);
}

/// Limits the memory that this process may lock.
fn lock_at_most(bytes: u64) {
    // This thread begins all others, which are no more able than this one.
    let mut sets = capabilities(None).expect("the system tells");
    sets.effective.remove(CapabilitySet::IPC_LOCK);
    sets.permitted.remove(CapabilitySet::IPC_LOCK);
    set_capabilities(None, sets).expect("less is allowed");
    let limit = Some(bytes);
    setrlimit(Resource::Memlock, Rlimit { current: limit, maximum: limit }).expect("root may set it");
}

/// How often each end copies payload.
#[derive(Clone, Copy)]
struct Copies {
    server: u64,
    client: u64,
}

impl Copies {
    /// Checks what the two ends did for one operation.
    #[track_caller]
    fn check(self, what: &str, server: Counters, client: Counters) {
        let moved = server.written_bytes + server.read_bytes;
        assert_eq!(server.copied_bytes, self.server * moved, "{what}: server {server:?}");
        assert_eq!(client.copied_bytes, self.client * moved, "{what}: client {client:?}");
        assert_eq!(client.lent, 1 - self.client, "{what}: client {client:?}");
    }
}

fn on_memory(copies: Copies) {
    exchange(Config::quick(64 << 20, "/export", &["10.77.1.2:12081".parse().expect("an address")]), copies);
}

fn on_a_directory(copies: Copies) {
    let home = Path::new("/srv/copies");
    fs::create_dir_all(home).expect("it can be made");
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "none"]).arg(home);
    assert!(mount.status().expect("mount runs").success());
    let (data, state) = (home.join("data"), home.join("state"));
    for directory in [&data, &state] {
        fs::create_dir(directory).expect("it can be made");
    }
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    fs::set_permissions(&data, open).expect("it is ours");
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    fs::set_permissions(&state, private).expect("it is ours");
    let listen = ["10.77.1.2:12081".parse().expect("an address")];
    exchange(Config::quick_dir(&data, Some(&state), "/export", &listen), copies);
    assert!(Command::new("umount").arg(home).status().expect("umount runs").success());
}

/// Bytes that say where they are, and in which round they were written.
fn pattern(bytes: usize, round: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at / 7 + at / 4096 + round * 31) as u8).collect()
}

/// WRITEs and READs of a MiB, at the borders of pages and beside them, over holes too.
fn exchange(mut config: Config, copies: Copies) {
    config.add_rdma(&["10.77.1.2:20081".parse().expect("an address")]);
    let server = Server::start(config).expect("the guest has a device");
    let options = "proto=rdma,port=20081,mountport=12081,nconnect=1";
    let mount = Mount::connect("10.77.1.2:/export", options).expect("the server is there");
    let file = mount.create_file(b"/copied", 0o644).expect("it is writable");
    for (round, offset) in [0, MIB, 5000, 4 * MIB + 1, 3 * MIB - 4096].into_iter().enumerate() {
        let data = pattern(MIB, round);
        let (written, client) = done_by(&server, &mount, [0, MIB as u64], || {
            file.write_all_at(&data, offset as u64).expect("it is written");
        });
        println!("WRITE at {offset}: {written:?}, client {client:?}");
        copies.check("WRITE", written, client);
        let (read, client) = done_by(&server, &mount, [MIB as u64, 0], || {
            assert!(read_at(&file, offset) == data, "the data of round {round} differ");
        });
        println!("READ at {offset}: {read:?}, client {client:?}");
        copies.check("READ", read, client);
    }
    // Between what the last two rounds wrote lies a hole.
    let (read, client) = done_by(&server, &mount, [MIB as u64, 0], || {
        let data = read_at(&file, 3 * MIB + 4096);
        let (written, rest) = data.split_at(MIB - 8192);
        let (hole, written_before) = rest.split_at(4097);
        assert!(written == &pattern(MIB, 4)[8192..], "the data before the hole differ");
        assert!(hole.iter().all(|byte| *byte == 0), "the hole has data");
        assert!(written_before == &pattern(MIB, 3)[..4095], "the data behind the hole differ");
    });
    copies.check("READ of a hole", read, client);
    copied_by_the_client(&mount, &file);
    drop((file, mount, server));
    assert_eq!(alive(), Alive::default(), "no registration is left");
}

/// Payload in memory of the heap is copied, and so is short payload.
fn copied_by_the_client(mount: &Mount, file: &File) {
    for (buffer, copied) in
        [(vec![0; MIB].into(), MIB), (mount.buffer(SHORT_BYTES), SHORT_BYTES), (vec![7; MIB].into(), MIB)]
    {
        let before = mount.statistics().rdma;
        let done = file.read_at(buffer, MIB as u64).wait();
        done.result.expect("it is read");
        let after = mount.statistics().rdma;
        assert_eq!((after.copied_bytes - before.copied_bytes, after.lent), (copied as u64, before.lent));
    }
}

fn read_at(file: &File, offset: usize) -> Vec<u8> {
    let mut data = vec![1; MIB];
    assert_eq!(file.read_all_at(&mut data, offset as u64).expect("it is read"), MIB);
    data
}

/// What the server and the client did for an operation in which the server writes and reads so many
/// bytes of its client. The server's loop may count its last step after the answer.
fn done_by(server: &Server, mount: &Mount, moved: [u64; 2], operate: impl FnOnce()) -> (Counters, Counters) {
    let now = || {
        let mut all = Counters::default();
        server.statistics().nodes.iter().for_each(|node| all.add(&node.rdma));
        all
    };
    let mut before = now();
    Deadline::wait_until("all loops to say what they have done", TIMEOUT, || {
        let again = std::mem::replace(&mut before, now());
        (again == before && before.sends > 0).then_some(())
    });
    let client_before = mount.statistics().rdma;
    operate();
    let client = mount.statistics().rdma;
    let client = Counters {
        copied_bytes: client.copied_bytes - client_before.copied_bytes,
        lent: client.lent - client_before.lent,
        ..Counters::default()
    };
    let server = Deadline::wait_until("the payload to be counted", TIMEOUT, || {
        let after = now();
        let done = Counters {
            written_bytes: after.written_bytes.checked_sub(before.written_bytes)?,
            read_bytes: after.read_bytes.checked_sub(before.read_bytes)?,
            copied_bytes: after.copied_bytes.checked_sub(before.copied_bytes)?,
            writes: after.writes.checked_sub(before.writes)?,
            reads: after.reads.checked_sub(before.reads)?,
            ..Counters::default()
        };
        let [written, read] = moved;
        (done.written_bytes >= written && done.read_bytes >= read && done.written_bytes + done.read_bytes > 0)
            .then_some(done)
    });
    (server, client)
}
