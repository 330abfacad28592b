//! A small host that locks by NLM: it calls the server, and a thread answers the server's calls as
//! the host's rpcbind, lock manager and status monitor.

use crate::peer::{PATIENCE, Peer, config};
use nlm::proc::{cancel, free_all, lock, share, test, unlock};
use nlm::{Lock, NetObj, Procedure, Status, Text, Wire, nsm};
use rpc::portmap;
use rpc::record_marking::Mark;
use rpc::reply::{Accept, Body};
use server::{Config, Server};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;
use xdr::{Reader, Writer};

/// How often the thread looks whether it is over.
const LOOK: Duration = Duration::from_millis(20);

/// A call of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Called {
    pub program: u32,
    pub procedure: u32,
    pub args: Vec<u8>,
    pub over_tcp: bool,
}

/// What the server can call: see the module's documentation.
pub struct Services {
    /// The port of rpcbind, and over UDP of the others too.
    pub port: u16,
    pub calls: mpsc::Receiver<Called>,
    answer: Arc<AtomicU32>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Does not answer at all.
const SILENT: u32 = u32::MAX;

struct Answering {
    socket: UdpSocket,
    listener: Option<TcpListener>,
    calls: mpsc::Sender<Called>,
    answer: Arc<AtomicU32>,
    over: Arc<AtomicBool>,
}

impl Services {
    /// Over UDP, and if `over_tcp` the lock manager also over TCP.
    pub fn start(over_tcp: bool) -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.set_read_timeout(Some(LOOK)).unwrap();
        let listener = over_tcp.then(|| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
        if let Some(listener) = &listener {
            listener.set_nonblocking(true).unwrap();
        }
        let port = socket.local_addr().unwrap().port();
        let (sender, calls) = mpsc::channel();
        let (answer, over) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
        let serving = Answering {
            socket,
            listener,
            calls: sender,
            answer: Arc::clone(&answer),
            over: Arc::clone(&over),
        };
        let thread = Some(std::thread::spawn(move || serving.run()));
        Self { port, calls, answer, over, thread }
    }

    /// From now on GRANTED is answered so.
    pub fn answer(&self, status: Status) {
        self.answer.store(status.0, Ordering::SeqCst);
    }

    /// From now on nothing is answered.
    pub fn fall_silent(&self) {
        self.answer.store(SILENT, Ordering::SeqCst);
    }

    /// The next call of the server.
    pub fn next(&self) -> Called {
        self.calls.recv_timeout(PATIENCE).expect("the server calls")
    }
}

impl Drop for Services {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || std::thread::panicking());
    }
}

impl Answering {
    fn run(self) {
        while !self.over.load(Ordering::SeqCst) {
            let mut bytes = [0; 4096];
            match self.socket.recv_from(&mut bytes) {
                Ok((len, from)) => {
                    if let Some(reply) = self.reply(&bytes[..len], false) {
                        self.socket.send_to(&reply, from).unwrap();
                    }
                }
                Err(error) => assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)),
            }
            let Some(Ok((mut stream, _))) = self.listener.as_ref().map(TcpListener::accept) else { continue };
            stream.set_nonblocking(false).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut mark = [0; 4];
            stream.read_exact(&mut mark).unwrap();
            let mut call = vec![0; Mark::decode(mark).len as usize];
            stream.read_exact(&mut call).unwrap();
            if let Some(reply) = self.reply(&call, true) {
                stream
                    .write_all(&[&Mark::whole(reply.len()).unwrap().encode()[..], &reply].concat())
                    .unwrap();
            }
        }
    }

    fn reply(&self, call: &[u8], over_tcp: bool) -> Option<Vec<u8>> {
        let answer = self.answer.load(Ordering::SeqCst);
        if answer == SILENT {
            return None;
        }
        let mut reader = Reader::new(call);
        let header = rpc::call::decode(&mut reader).unwrap();
        let mut reply = Vec::new();
        let mut writer = Writer::new(&mut reply);
        rpc::reply::encode_success(&mut writer, header.xid);
        if header.program == portmap::PROGRAM {
            assert_eq!((header.version, header.procedure), (2, portmap::GET));
            let words: Vec<_> = std::iter::from_fn(|| reader.u32().ok()).collect();
            let is_known = match words[0] {
                nlm::PROGRAM => words[1] == nlm::VERSION,
                nsm::PROGRAM => words[1] == nsm::VERSION,
                _ => false,
            };
            let by_udp = u32::from(self.socket.local_addr().unwrap().port());
            let by_tcp = || self.listener.as_ref().map(|listener| listener.local_addr().unwrap().port());
            writer.u32(match (is_known, words[2]) {
                (true, 17) => by_udp,
                (true, 6) if words[0] == nlm::PROGRAM => by_tcp().map_or(0, u32::from),
                _ => 0,
            });
            return Some(reply);
        }
        let (program, procedure, args) = (header.program, header.procedure, reader.rest().to_vec());
        if (program, procedure) == (nlm::PROGRAM, Procedure::Granted.number()) {
            let granted = test::Args::decode(&mut reader).unwrap();
            nlm::proc::Reply { cookie: granted.cookie, status: Status(answer) }.encode(&mut writer);
        }
        // The test may have ended.
        let _ = self.calls.send(Called { program, procedure, args, over_tcp });
        Some(reply)
    }
}

/// A configuration of version 3 alone, whose clients have their rpcbind at a port.
pub fn config_of(services: &Services) -> Config {
    Config { clients_rpcbind: services.port, ..config() }
}

/// A server of version 3 alone.
pub fn start(services: &Services) -> (Server, SocketAddr) {
    let server = Server::start(config_of(services)).unwrap();
    let address = server.addresses()[0];
    (server, address)
}

/// One host, by its name.
pub struct Host {
    pub peer: Peer,
    pub name: String,
}

/// Bytes of a file, and whether nobody else may lock them.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    pub offset: u64,
    pub length: u64,
    pub exclusive: bool,
}

/// An exclusive lock.
pub const fn bytes(offset: u64, length: u64) -> Wanted {
    Wanted { offset, length, exclusive: true }
}

pub const COOKIE: &[u8] = &[7, 0, 0, 1];

pub fn encoded<'a>(args: &impl Wire<'a>) -> Vec<u8> {
    let mut out = Vec::new();
    args.encode(&mut Writer::new(&mut out));
    out
}

pub fn decoded<'a, T: Wire<'a>>(bytes: &'a [u8]) -> T {
    let mut reader = Reader::new(bytes);
    let value = T::decode(&mut reader).unwrap();
    reader.finish().unwrap();
    value
}

impl Host {
    pub fn new(address: SocketAddr, name: &str) -> Self {
        Self { peer: Peer::new(address), name: name.to_owned() }
    }

    /// A file of the export, which is created if it is missing.
    pub fn file(&mut self, name: &str) -> Vec<u8> {
        let root = self.peer.mnt(b"/export").unwrap();
        self.peer.create(root, name.as_bytes()).object.unwrap().as_slice().to_vec()
    }

    pub fn lock_of<'a>(&'a self, file: &'a [u8], svid: i32, wanted: Wanted) -> Lock<'a> {
        Lock {
            caller: Text(self.name.as_bytes()),
            file: NetObj(file),
            owner: NetObj(b"an owner"),
            svid,
            offset: wanted.offset,
            length: wanted.length,
        }
    }

    pub fn call(&mut self, procedure: Procedure, args: &[u8]) -> Vec<u8> {
        let (body, results) = self.peer.call_any(nlm::PROGRAM, 4, procedure.number(), args);
        assert_eq!(body, Body::Accepted(Accept::Success), "{procedure:?}");
        results
    }

    fn status(&mut self, procedure: Procedure, args: &[u8]) -> Status {
        let results = self.call(procedure, args);
        let reply: nlm::proc::Reply<'_> = decoded(&results);
        assert_eq!(reply.cookie, NetObj(COOKIE));
        reply.status
    }

    pub fn lock_args(&self, file: &[u8], svid: i32, wanted: Wanted, block: bool, reclaim: bool) -> Vec<u8> {
        let (cookie, exclusive) = (NetObj(COOKIE), wanted.exclusive);
        let lock = self.lock_of(file, svid, wanted);
        encoded(&lock::Args { cookie, block, exclusive, lock, reclaim, state: 1 })
    }

    pub fn lock(&mut self, file: &[u8], svid: i32, wanted: Wanted) -> Status {
        let args = self.lock_args(file, svid, wanted, false, false);
        self.status(Procedure::Lock, &args)
    }

    /// Locks without being monitored.
    pub fn nm_lock(&mut self, file: &[u8], svid: i32, wanted: Wanted) -> Status {
        let args = self.lock_args(file, svid, wanted, false, false);
        self.status(Procedure::NmLock, &args)
    }

    /// Locks, or waits.
    pub fn wait(&mut self, file: &[u8], svid: i32, wanted: Wanted) -> Status {
        let args = self.lock_args(file, svid, wanted, true, false);
        self.status(Procedure::Lock, &args)
    }

    pub fn reclaim(&mut self, file: &[u8], svid: i32, wanted: Wanted) -> Status {
        let args = self.lock_args(file, svid, wanted, false, true);
        self.status(Procedure::Lock, &args)
    }

    pub fn unlock(&mut self, file: &[u8], svid: i32, wanted: Wanted) -> Status {
        let args = encoded(&unlock::Args { cookie: NetObj(COOKIE), lock: self.lock_of(file, svid, wanted) });
        self.status(Procedure::Unlock, &args)
    }

    pub fn cancel(&mut self, file: &[u8], svid: i32, wanted: Wanted) -> Status {
        let (cookie, exclusive) = (NetObj(COOKIE), wanted.exclusive);
        let lock = self.lock_of(file, svid, wanted);
        let args = encoded(&cancel::Args { cookie, block: true, exclusive, lock });
        self.status(Procedure::Cancel, &args)
    }

    pub fn test_args(&self, file: &[u8], svid: i32, wanted: Wanted) -> Vec<u8> {
        let (cookie, exclusive) = (NetObj(COOKIE), wanted.exclusive);
        encoded(&test::Args { cookie, exclusive, lock: self.lock_of(file, svid, wanted) })
    }

    /// The process, first byte and length of the lock that is in the way.
    pub fn test(&mut self, file: &[u8], svid: i32, wanted: Wanted) -> Result<(), (i32, u64, u64)> {
        let args = self.test_args(file, svid, wanted);
        let results = self.call(Procedure::Test, &args);
        let reply: test::Reply<'_> = decoded(&results);
        assert_eq!(reply.cookie, NetObj(COOKIE));
        match reply.outcome {
            test::Outcome::Other(Status::GRANTED) => Ok(()),
            test::Outcome::Denied(holder) => Err((holder.svid, holder.offset, holder.length)),
            test::Outcome::Other(other) => panic!("{other}"),
        }
    }

    pub fn share(&mut self, procedure: Procedure, file: &[u8]) -> Status {
        let share = share::Share {
            caller: Text(self.name.as_bytes()),
            file: NetObj(file),
            owner: NetObj(b"an owner"),
            mode: share::Mode::Write,
            access: share::Access::Both,
        };
        let args = encoded(&share::Args { cookie: NetObj(COOKIE), share, reclaim: false });
        let results = self.call(procedure, &args);
        let reply: share::Reply<'_> = decoded(&results);
        assert_eq!(reply.cookie, NetObj(COOKIE));
        reply.status
    }

    /// Says that a host has ended.
    pub fn free_all(&mut self, name: &str) {
        let args = encoded(&free_all::Args { name: Text(name.as_bytes()), state: 3 });
        assert!(self.call(Procedure::FreeAll, &args).is_empty());
    }

    /// Says that a host has restarted.
    pub fn notify(&mut self, name: &str) {
        let args = encoded(&nsm::notify::Args { name: Text(name.as_bytes()), state: 3 });
        let notify = nsm::Procedure::Notify.number();
        let (body, results) = self.peer.call_any(nsm::PROGRAM, nsm::VERSION, notify, &args);
        assert_eq!((body, results.len()), (Body::Accepted(Accept::Success), 0));
    }
}
