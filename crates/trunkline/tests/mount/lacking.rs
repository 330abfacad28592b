//! A server of version 4.2 that lacks operations, or does not end them: a proxy in front of one of
//! our servers. It makes an operation that our server does not support of those that it shall lack,
//! and keeps the calls that shall not end.

use crate::fixture::{MOUNT_TIMEOUT, Mounted, Server};
use crate::semantics::pattern;
use crate::version_4_2::{copied, data_at, hole_at, open};
use nfs4::Operation;
use nfs4::compound::RequestReader;
use nfs4::op::Fore;
use rustix::fs::{FallocateFlags, XattrFlags, fallocate, getxattr, listxattr, setxattr};
use rustix::io::Errno;
use rustix::process::Signal;
use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use testkit::records::read_record;
use testkit::{Deadline, Process};

/// Answered with NFS4ERR_NOTSUPP by our server.
const UNSUPPORTED: Operation = Operation::GetDirDelegation;

#[derive(Default)]
struct State {
    lacks: Vec<Operation>,
    keeps: Vec<Operation>,
    /// The operations that were lacking or kept, in order.
    seen: Vec<Operation>,
    streams: Vec<TcpStream>,
    ended: bool,
}

struct Lacking {
    state: Arc<Mutex<State>>,
    port: u16,
}

impl Lacking {
    fn start(server: &Server) -> Self {
        let to = server.port;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::<Mutex<State>>::default();
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, to)) else { continue };
                let mut locked = lock(&shared);
                if locked.ended {
                    return;
                }
                locked.streams.extend([&client, &server].map(|stream| stream.try_clone().unwrap()));
                drop(locked);
                forward(client, server, &shared);
            }
        });
        Self { state, port }
    }

    /// From now on the server lacks these operations.
    fn lack(&self, operations: &[Operation]) {
        lock(&self.state).lacks = operations.to_vec();
    }

    /// From now on calls with these operations are not answered.
    fn keep(&self, operations: &[Operation]) {
        lock(&self.state).keeps = operations.to_vec();
    }

    /// The operations that were lacking or kept since this was asked last.
    fn seen(&self) -> Vec<Operation> {
        std::mem::take(&mut lock(&self.state).seen)
    }

    fn mount(&self, server: &Server, name: &str) -> Mounted {
        let options = format!("vers=4.2,port={},nconnect=1,nolock", self.port);
        Mounted::start("127.0.0.1:/export", server.mount_point(name), &options)
    }
}

impl Drop for Lacking {
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        state.ended = true;
        for stream in state.streams.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
        drop(state);
        // Ends the thread that accepts.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The first of these operations in a call, and where in the record its number is.
fn place_of(record: &[u8], wanted: &[Operation]) -> Option<(Operation, usize)> {
    let mut reader = xdr::Reader::new(record.get(4..)?);
    let head = rpc::call::decode(&mut reader).ok()?;
    if head.procedure == nfs4::PROCEDURE_NULL {
        return None;
    }
    let mut requests = RequestReader::<Fore>::new(reader.rest()).ok()?;
    loop {
        let at = record.len() - requests.remaining();
        let operation = requests.next_operation()?.ok()?.args.operation();
        if wanted.contains(&operation) {
            return Some((operation, at));
        }
    }
}

fn forward(client: TcpStream, server: TcpStream, state: &Arc<Mutex<State>>) {
    let (mut from_client, mut to_client) = (client.try_clone().unwrap(), client);
    let (mut from_server, mut to_server) = (server.try_clone().unwrap(), server);
    let state = Arc::clone(state);
    std::thread::spawn(move || {
        while let Some(mut record) = read_record(&mut from_client) {
            let mut state = lock(&state);
            if let Some((operation, _)) = place_of(&record, &state.keeps) {
                state.seen.push(operation);
                continue;
            }
            if let Some((operation, at)) = place_of(&record, &state.lacks) {
                state.seen.push(operation);
                record[at..at + 4].copy_from_slice(&UNSUPPORTED.number().to_be_bytes());
            }
            drop(state);
            if to_server.write_all(&record).is_err() {
                break;
            }
        }
        let _ = to_server.shutdown(Shutdown::Both);
    });
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut from_server, &mut to_client);
        let _ = to_client.shutdown(Shutdown::Both);
    });
}

#[test]
fn a_server_without_copies_holes_and_storage_is_asked_once_and_used_without_them() {
    use Operation::{Allocate, Copy, Deallocate, Seek};
    let server = Server::start(1);
    let proxy = Lacking::start(&server);
    let mount = proxy.mount(&server, "mnt");
    let data = pattern(300_000, 4);
    let (source, target) = (open(&mount.path("source")), open(&mount.path("target")));
    source.write_all_at(&data, 0).unwrap();
    source.set_len(1 << 20).unwrap();
    proxy.lack(&[Allocate, Copy, Deallocate, Seek]);
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    for expected in [&[Copy, Seek, Allocate, Deallocate][..], &[]] {
        // The kernel reads and writes.
        assert_eq!(copied((&source, 0), (&target, 0), 300_000), Ok(300_000));
        assert!(fs::read(mount.path("target")).unwrap() == data);
        // All is data.
        assert_eq!((data_at(&source, 5), hole_at(&source, 5)), (Ok(5), Ok(1 << 20)));
        assert_eq!(data_at(&source, 500_000), Ok(500_000));
        assert_eq!(
            (data_at(&source, 1 << 20), hole_at(&source, 1 << 20)),
            (Err(Errno::NXIO), Err(Errno::NXIO))
        );
        for mode in [FallocateFlags::empty(), FallocateFlags::KEEP_SIZE, punch, FallocateFlags::ZERO_RANGE] {
            assert_eq!(fallocate(&source, mode, 1000, 4096), Err(Errno::OPNOTSUPP), "{mode:?}");
        }
        assert_eq!(proxy.seen(), expected);
    }
    drop((source, target));
    let other = server.mount("other", "vers=3,nolock");
    let mut all = data;
    all.resize(1 << 20, 0);
    assert!(fs::read(other.path("source")).unwrap() == all, "nothing was changed");
}

#[test]
fn zeros_change_nothing_on_a_server_that_cannot_do_all_of_it() {
    let server = Server::start(1);
    let proxy = Lacking::start(&server);
    let other = server.mount("other", "vers=3,nolock");
    let data = pattern(100_000, 6);
    for (name, lacking) in [("a", Operation::Allocate), ("b", Operation::Deallocate)] {
        let mount = proxy.mount(&server, name);
        let file = open(&mount.path(name));
        file.write_all_at(&data, 0).unwrap();
        proxy.lack(&[lacking]);
        for mode in [FallocateFlags::ZERO_RANGE, FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE] {
            assert_eq!(fallocate(&file, mode, 10_000, 50_000), Err(Errno::OPNOTSUPP), "{lacking:?}");
        }
        assert_eq!(fallocate(&file, FallocateFlags::ZERO_RANGE, 10_000, 500_000), Err(Errno::OPNOTSUPP));
        assert!(fs::read(other.path(name)).unwrap() == data, "{lacking:?}");
        proxy.lack(&[]);
        // What is not supported together may be supported each for itself.
        fallocate(&file, FallocateFlags::ZERO_RANGE, 10_000, 50_000).unwrap();
        let zeros = &fs::read(other.path(name)).unwrap()[10_000..60_000];
        assert!(zeros.iter().all(|byte| *byte == 0), "{lacking:?}");
    }
}

/// The server says that the file system has extended attributes.
#[test]
fn extended_attributes_that_one_file_lacks_are_asked_for_at_the_next() {
    use Operation::{GetXattr, ListXattrs, SetXattr};
    let server = Server::start(1);
    let proxy = Lacking::start(&server);
    let mount = proxy.mount(&server, "mnt");
    fs::write(mount.path("f"), "data").unwrap();
    let path = mount.path("f");
    let mut room = [0; 100];
    let set = || setxattr(&path, "user.a", b"x", XattrFlags::empty());
    proxy.lack(&[GetXattr, ListXattrs, SetXattr]);
    for _ in 0..2 {
        assert_eq!(set(), Err(Errno::OPNOTSUPP));
        assert_eq!(getxattr(&path, "user.a", &mut room), Err(Errno::OPNOTSUPP));
        assert_eq!(listxattr(&path, &mut room), Err(Errno::OPNOTSUPP));
        assert_eq!(proxy.seen(), [SetXattr, GetXattr, ListXattrs]);
    }
    proxy.lack(&[]);
    set().unwrap();
    assert_eq!(getxattr(&path, "user.a", &mut room), Ok(1));
    assert_eq!(listxattr(&path, &mut room), Ok(b"user.a\0".len()));
}

#[test]
fn a_program_that_is_killed_leaves_a_copy_or_a_list_that_does_not_end() {
    let server = Server::start(1);
    let proxy = Lacking::start(&server);
    let mount = proxy.mount(&server, "mnt");
    fs::write(mount.path("f"), pattern(100_000, 1)).unwrap();
    for (operation, program) in
        [(Operation::Copy, &["cp", "f", "copy"][..]), (Operation::ListXattrs, &["getfattr", "-d", "f"])]
    {
        proxy.keep(&[operation]);
        let mut command = Command::new(program[0]);
        command.args(&program[1..]).current_dir(mount.path(""));
        let mut process = Process::spawn(command);
        Deadline::wait_until("the call", MOUNT_TIMEOUT, || (proxy.seen() == [operation]).then_some(()));
        process.signal(Signal::KILL);
        assert!(!process.wait(MOUNT_TIMEOUT).success());
        assert_eq!(fs::read(mount.path("f")).unwrap(), pattern(100_000, 1), "others go on");
    }
}
