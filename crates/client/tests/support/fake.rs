//! A server that a test plays: it answers the calls with which a mount begins, and hands every
//! other call to the test, which answers the call when and as it likes.
#![allow(dead_code, reason = "each test uses its part")]

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use client::{FileRef, Mount, Op, Settings};
use nfs3::proc::write::{self, Stable};
use nfs3::proc::{commit, fsinfo, getattr, read};
use nfs3::{Fattr3, FileHandle, FileType, NfsTime, Outcome, Procedure, SpecData, Status, WccData, Wire};
use rpc::Xid;
use xdr::{Reader, Writer};

/// No wait in these tests takes this long.
pub const TIMEOUT: Duration = Duration::from_secs(120);

/// Attributes of the root, or of a file.
pub fn attributes(file_type: FileType) -> Fattr3 {
    let time = NfsTime { seconds: 1, nanoseconds: 0 };
    Fattr3 {
        file_type,
        mode: 0o755,
        nlink: 1,
        uid: 0,
        gid: 0,
        size: 1 << 30,
        used: 0,
        rdev: SpecData { major: 0, minor: 0 },
        fsid: 7,
        fileid: 1,
        atime: time,
        mtime: time,
        ctime: time,
    }
}

pub fn encoded<'a>(value: &impl Wire<'a>) -> Vec<u8> {
    let mut out = Vec::new();
    value.encode(&mut Writer::new(&mut out));
    out
}

/// A successful reply with these results, as a record.
pub fn reply_record(xid: u32, results: &[u8]) -> Vec<u8> {
    let mut out = vec![0; 4];
    rpc::reply::encode_success(&mut Writer::new(&mut out), Xid(xid));
    out.extend_from_slice(results);
    let mark = rpc::record_marking::Mark { last: true, len: u32::try_from(out.len() - 4).unwrap() };
    out[..4].copy_from_slice(&mark.encode());
    out
}

/// A call that waits for the test's reply.
#[derive(Debug)]
pub struct Request {
    /// The node that received the call.
    pub node: usize,
    pub xid: u32,
    /// The identity of the client, as a reply cache sees it.
    pub client_id: Option<u64>,
    pub procedure: Procedure,
    pub args: Vec<u8>,
    stream: TcpStream,
    given_up: Arc<AtomicBool>,
}

impl Request {
    /// Replies with these results.
    pub fn reply(&self, results: &[u8]) {
        self.raw(&reply_record(self.xid, results));
    }

    /// Sends arbitrary bytes. The connection may be gone.
    pub fn raw(&self, bytes: &[u8]) {
        let _ = (&self.stream).write_all(bytes);
    }

    /// Sends a byte of urgent data, which is not part of the stream.
    pub fn urgent(&self) {
        rustix::net::send(&self.stream, b"!", rustix::net::SendFlags::OOB).unwrap();
    }

    /// Ends the connection.
    pub fn cut(&self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Reads nothing more from the connection, not even what the client has already sent. The fake
    /// must be paused, or one more call may be in flight.
    pub fn give_up(&self) {
        self.given_up.store(true, Ordering::SeqCst);
    }

    /// Whether both calls arrived on the same connection.
    pub fn is_beside(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.given_up, &other.given_up)
    }

    pub fn write(&self) -> write::ArgsHead {
        assert_eq!(self.procedure, Procedure::Write, "{self:?}");
        write::ArgsHead::decode(&mut Reader::new(&self.args)).unwrap()
    }

    pub fn data(&self) -> &[u8] {
        let head = self.write();
        let start = encoded(&head).len();
        &self.args[start..start + head.count as usize]
    }

    pub fn read(&self) -> read::Args {
        assert_eq!(self.procedure, Procedure::Read, "{self:?}");
        read::Args::decode(&mut Reader::new(&self.args)).unwrap()
    }

    /// Answers a WRITE.
    pub fn written(&self, count: u32, committed: Stable, verifier: u8) {
        self.written_with(WccData::default(), count, committed, verifier);
    }

    /// Answers a WRITE with the attributes of the file before and after it.
    pub fn written_with(&self, file: WccData, count: u32, committed: Stable, verifier: u8) {
        let success = write::Success { file, count, committed, verifier: [verifier; 8] };
        self.reply(&encoded(&write::Reply::Ok(success)));
    }

    /// Answers a WRITE as requested.
    pub fn written_as_asked(&self, verifier: u8) {
        let head = self.write();
        self.written(head.count, head.stable, verifier);
    }

    /// Answers a COMMIT.
    pub fn committed(&self, verifier: u8) {
        assert_eq!(self.procedure, Procedure::Commit, "{self:?}");
        let success = commit::Success { file: WccData::default(), verifier: [verifier; 8] };
        self.reply(&encoded(&commit::Reply::Ok(success)));
    }

    /// Answers a WRITE or a COMMIT with an error.
    pub fn failed(&self, status: Status) {
        self.reply(&encoded(&write::Reply::Fail(status, WccData::default())));
    }

    /// Answers a READ with these data, whatever was requested.
    pub fn data_read(&self, data: &[u8]) {
        self.reply(&read_results(data));
    }
}

pub fn read_results(data: &[u8]) -> Vec<u8> {
    read_results_with(data, false)
}

/// The results of a READ, and whether the file ends with the data.
pub fn read_results_with(data: &[u8], eof: bool) -> Vec<u8> {
    let count = u32::try_from(data.len()).unwrap();
    let mut results = encoded(&read::Reply::Ok(read::ReplyHead { attributes: None, count, eof }));
    results.extend_from_slice(data);
    results.resize(results.len().next_multiple_of(4), 0);
    results
}

#[derive(Debug, Default)]
struct Shared {
    /// The accepted connections with their nodes.
    connections: Mutex<Vec<(usize, TcpStream)>>,
    down: Mutex<Vec<bool>>,
    paused: Mutex<bool>,
    resumed: Condvar,
    ended: AtomicBool,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Fake {
    shared: Arc<Shared>,
    requests: Receiver<Request>,
    addresses: Vec<SocketAddr>,
}

impl Fake {
    /// Listens on this many addresses of one port.
    pub fn start(nodes: u8) -> Self {
        let listeners = (0..20).find_map(|_| listen(nodes)).expect("a port that is free on all addresses");
        let addresses = listeners.iter().map(|listener| listener.local_addr().unwrap()).collect();
        let shared = Arc::new(Shared { down: Mutex::new(vec![false; nodes.into()]), ..Shared::default() });
        let (sender, requests) = channel();
        for (node, listener) in listeners.into_iter().enumerate() {
            let (shared, sender) = (Arc::clone(&shared), sender.clone());
            std::thread::spawn(move || accept(node, &listener, &shared, &sender));
        }
        Self { shared, requests, addresses }
    }

    pub fn settings(&self, nconnect: u16) -> Settings {
        let first = self.addresses[0];
        let remotes = self.addresses.iter().map(|address| address.ip().into()).collect();
        Settings { remotes, nconnect, loops: 1, ..Settings::new(first.ip(), first.port(), "/export") }
    }

    pub fn mount(&self) -> Mount {
        Mount::with_settings(self.settings(u16::try_from(self.addresses.len()).unwrap())).unwrap()
    }

    /// The next call that the test has to answer.
    pub fn next(&self) -> Request {
        self.requests.recv_timeout(TIMEOUT).expect("the client makes another call")
    }

    /// The next call, if one arrives within this time.
    pub fn next_within(&self, time: Duration) -> Option<Request> {
        self.requests.recv_timeout(time).ok()
    }

    /// The next `count` calls, in the order of their offsets.
    pub fn next_writes(&self, count: usize) -> Vec<Request> {
        let mut writes: Vec<Request> = (0..count).map(|_| self.next()).collect();
        writes.sort_by_key(|request| request.write().offset);
        writes
    }

    pub fn nothing_more(&self) {
        assert!(self.requests.try_recv().is_err(), "no other call");
    }

    /// Reads one more call from each connection, and then nothing.
    pub fn pause(&self) {
        *self.shared.paused.lock().unwrap() = true;
    }

    pub fn resume(&self) {
        *self.shared.paused.lock().unwrap() = false;
        self.shared.resumed.notify_all();
    }

    /// Stops a node: its connections end, and new ones end too.
    pub fn stop_node(&self, node: usize) {
        self.shared.down.lock().unwrap()[node] = true;
        for (of, stream) in self.shared.connections.lock().unwrap().iter() {
            if *of == node {
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
    }

    /// Starts a node that was stopped.
    pub fn start_node(&self, node: usize) {
        self.shared.down.lock().unwrap()[node] = false;
    }

    /// How many connections were accepted.
    pub fn accepted(&self) -> usize {
        self.shared.connections.lock().unwrap().len()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        self.resume();
        for (_, stream) in self.shared.connections.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
        for address in &self.addresses {
            // Ends the thread that accepts.
            let _ = TcpStream::connect(address);
        }
    }
}

fn listen(nodes: u8) -> Option<Vec<TcpListener>> {
    let ip = |node: u8| IpAddr::V4(Ipv4Addr::new(127, 0, 2, node + 1));
    let first = TcpListener::bind((ip(0), 0)).ok()?;
    let port = first.local_addr().ok()?.port();
    let others = (1..nodes).map(|node| TcpListener::bind((ip(node), port)));
    std::iter::once(Ok(first)).chain(others).collect::<Result<_, _>>().ok()
}

fn accept(node: usize, listener: &TcpListener, shared: &Arc<Shared>, sender: &Sender<Request>) {
    while let Ok((stream, _)) = listener.accept() {
        if shared.ended.load(Ordering::SeqCst) {
            return;
        }
        stream.set_nodelay(true).unwrap();
        shared.connections.lock().unwrap().push((node, stream.try_clone().unwrap()));
        if shared.down.lock().unwrap()[node] {
            let _ = stream.shutdown(Shutdown::Both);
            continue;
        }
        let (shared, sender) = (Arc::clone(shared), sender.clone());
        std::thread::spawn(move || serve(node, stream, &shared, &sender));
    }
}

/// Reads the calls of one connection until it ends.
fn serve(node: usize, mut stream: TcpStream, shared: &Shared, sender: &Sender<Request>) {
    let given_up = Arc::new(AtomicBool::new(false));
    while !given_up.load(Ordering::SeqCst) {
        let mut mark = [0; 4];
        if stream.read_exact(&mut mark).is_err() {
            return;
        }
        let mut record = vec![0; rpc::record_marking::Mark::decode(mark).len as usize];
        if stream.read_exact(&mut record).is_err() {
            return;
        }
        let mut reader = Reader::new(&record);
        let head = rpc::call::decode(&mut reader).unwrap();
        let (program, number, xid) = (head.program, head.procedure, head.xid.0);
        let client_id = drc::client_id_of_credential(head.credential_flavor, head.credential_body);
        let args = reader.rest().to_vec();
        if let Some(results) = own_answer(program, number) {
            let _ = stream.write_all(&reply_record(xid, &results));
            continue;
        }
        let (procedure, stream) = (Procedure::try_from(number).unwrap(), stream.try_clone().unwrap());
        let given_up = Arc::clone(&given_up);
        let request = Request { node, xid, client_id, procedure, args, stream, given_up };
        if sender.send(request).is_err() {
            return;
        }
        let mut paused = shared.paused.lock().unwrap();
        while *paused {
            paused = shared.resumed.wait(paused).unwrap();
        }
    }
}

/// Answers the calls with which a mount begins, and those that validate a connection.
fn own_answer(program: u32, procedure: u32) -> Option<Vec<u8>> {
    let root = FileHandle::new(b"root").unwrap();
    if program == nfs3::mount::PROGRAM {
        let success = nfs3::mount::mnt::Success { root, flavors: [1].into_iter().collect() };
        return Some(encoded(&nfs3::mount::mnt::Reply::Ok(success)));
    }
    let attributes = attributes(FileType::Directory);
    match Procedure::try_from(procedure).ok()? {
        Procedure::Null => Some(Vec::new()),
        Procedure::GetAttr => Some(encoded(&getattr::Reply::Ok(getattr::Success { attributes }))),
        Procedure::FsInfo => Some(encoded(&Outcome::<_, nfs3::PostOpAttr>::Ok(fsinfo::Success {
            attributes: None,
            read_max: 1 << 20,
            read_preferred: 1 << 20,
            read_multiple: 4096,
            write_max: 1 << 20,
            write_preferred: 1 << 20,
            write_multiple: 4096,
            directory_preferred: 4096,
            file_bytes_max: u64::MAX,
            time_delta: NfsTime { seconds: 0, nanoseconds: 1 },
            properties: 0x1b,
        }))),
        _ => None,
    }
}

/// A file of the fake server.
pub fn file(mount: &Mount) -> FileRef {
    mount.file_ref(fs::FileHandle::new(b"file").unwrap())
}

/// A write of one block.
pub fn block_write(file: FileRef, block: u64, len: usize) -> Op {
    Op::Write { file, offset: block * len as u64, buffer: vec![(block as u8).wrapping_add(1); len].into() }
}
