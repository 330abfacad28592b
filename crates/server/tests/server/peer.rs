//! A small client on raw sockets: it sends and receives bytes, which the codecs check.

use drc::machine_name;
use nfs3::{DirOpArgs, FileHandle, Outcome, Procedure, Sattr3, Status, Wire, proc};
use rpc::Xid;
use rpc::auth::AuthSys;
use rpc::reply::{Accept, Body};
use server::{Config, Server};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;
use xdr::{Reader, Writer};

/// Long enough for a machine that is busy with other tests; reached only when a test fails.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A configuration for tests: one node on loopback, one export, and loops that are never considered
/// stalled.
pub fn config() -> Config {
    let mut config = Config::quick(64 << 20, "/export", &["127.0.0.1:0".parse().unwrap()]);
    config.loops = Some(2);
    config.limits.stall_ms_max = 60_000;
    config.exports[0].root_squash = false;
    config
}

pub fn start() -> (Server, SocketAddr) {
    let server = Server::start(config()).unwrap();
    let address = server.addresses()[0];
    (server, address)
}

/// A connection of a user.
pub struct Peer {
    pub stream: TcpStream,
    pub credential: Vec<u8>,
    pub next_xid: u32,
}

/// A credential with its flavor and length.
pub fn credential(stamp: u32, machine: &[u8], uid: u32, gid: u32) -> Vec<u8> {
    let mut out = Vec::new();
    let sys = AuthSys { stamp, machine, uid, gid, gids: [gid].into_iter().collect() };
    sys.encode_opaque(&mut Writer::new(&mut out));
    out
}

/// The credential of one of our own clients.
pub fn own_credential(id: u64) -> Vec<u8> {
    credential(id as u32, &machine_name(id), 0, 0)
}

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

impl Peer {
    pub fn new(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, credential: credential(1, b"test", 0, 0), next_xid: 1 }
    }

    pub fn with_credential(address: SocketAddr, credential: Vec<u8>) -> Self {
        Self { credential, ..Self::new(address) }
    }

    /// A call as a record, with its mark.
    pub fn record(&self, xid: u32, program: u32, version: u32, procedure: u32, args: &[u8]) -> Vec<u8> {
        let mut out = vec![0; 4];
        rpc::call::encode(
            &mut Writer::new(&mut out),
            Xid(xid),
            program,
            version,
            procedure,
            &self.credential,
        );
        out.extend_from_slice(args);
        let mark = rpc::record_marking::Mark { last: true, len: u32::try_from(out.len() - 4).unwrap() };
        out[..4].copy_from_slice(&mark.encode());
        out
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// The next record.
    pub fn receive(&mut self) -> Vec<u8> {
        self.try_receive().unwrap()
    }

    pub fn try_receive(&mut self) -> std::io::Result<Vec<u8>> {
        let mut mark = [0; 4];
        self.stream.read_exact(&mut mark)?;
        let mark = rpc::record_marking::Mark::decode(mark);
        assert!(mark.last, "replies are one fragment");
        let mut record = vec![0; usize::try_from(mark.len).unwrap()];
        self.stream.read_exact(&mut record)?;
        Ok(record)
    }

    /// Resets the connection, and opens another.
    pub fn reset(&mut self) {
        let another = Self::with_credential(self.stream.peer_addr().unwrap(), self.credential.clone());
        let before = std::mem::replace(self, another);
        transport::socket::reset_on_close(before.stream.as_fd()).unwrap();
    }

    /// Whether the server closes the connection without another byte.
    pub fn is_closed(&mut self) -> bool {
        let mut byte = [0];
        match self.stream.read(&mut byte) {
            Ok(count) => count == 0,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }

    fn draw(&mut self) -> u32 {
        self.next_xid += 1;
        self.next_xid
    }

    /// Sends a call and returns the reply's body and results.
    pub fn call_any(&mut self, program: u32, version: u32, procedure: u32, args: &[u8]) -> (Body, Vec<u8>) {
        let xid = self.draw();
        let record = self.record(xid, program, version, procedure, args);
        self.send(&record);
        let record = self.receive();
        let mut reader = Reader::new(&record);
        let reply = rpc::reply::decode(&mut reader).unwrap();
        assert_eq!(reply.xid, Xid(xid));
        (reply.body, reader.rest().to_vec())
    }

    /// Sends an NFS call and returns the results.
    pub fn nfs<'a>(&mut self, procedure: Procedure, args: &impl Wire<'a>) -> Vec<u8> {
        let (body, results) = self.call_any(nfs3::PROGRAM, 3, procedure.number(), &encoded(args));
        assert_eq!(body, Body::Accepted(Accept::Success), "{procedure:?}");
        results
    }

    /// Sends a MOUNT call and returns the results.
    pub fn mount(&mut self, procedure: nfs3::mount::Procedure, args: &[u8]) -> Vec<u8> {
        let (body, results) = self.call_any(nfs3::mount::PROGRAM, 3, procedure.number(), args);
        assert_eq!(body, Body::Accepted(Accept::Success), "{procedure:?}");
        results
    }

    pub fn mnt(&mut self, path: &[u8]) -> Result<FileHandle, Status> {
        let results = self.mount(nfs3::mount::Procedure::Mnt, &encoded(&nfs3::mount::mnt::Args { path }));
        let reply: nfs3::mount::mnt::Reply = decoded(&results);
        reply.into_result().map(|success| success.root).map_err(|(status, ())| status)
    }

    pub fn create(&mut self, directory: FileHandle, name: &[u8]) -> nfs3::Created {
        let how = proc::create::How::Unchecked(Sattr3 { mode: Some(0o644), ..Sattr3::default() });
        let args = proc::create::Args { location: DirOpArgs { directory, name }, how };
        let results = self.nfs(Procedure::Create, &args);
        let reply: proc::create::Reply = decoded(&results);
        reply.into_result().unwrap()
    }

    pub fn lookup(&mut self, directory: FileHandle, name: &[u8]) -> proc::lookup::Reply {
        let what = DirOpArgs { directory, name };
        let results = self.nfs(Procedure::Lookup, &proc::lookup::Args { what });
        decoded(&results)
    }

    pub fn getattr(&mut self, object: FileHandle) -> proc::getattr::Reply {
        let results = self.nfs(Procedure::GetAttr, &proc::getattr::Args { object });
        decoded(&results)
    }

    pub fn write(&mut self, file: FileHandle, offset: u64, data: &[u8]) -> proc::write::Reply {
        let args = write_args(file, offset, data);
        let (body, results) = self.call_any(nfs3::PROGRAM, 3, Procedure::Write.number(), &args);
        assert_eq!(body, Body::Accepted(Accept::Success));
        decoded(&results)
    }

    pub fn read(&mut self, file: FileHandle, offset: u64, count: u32) -> Result<(Vec<u8>, bool), Status> {
        let results = self.nfs(Procedure::Read, &proc::read::Args { file, offset, count });
        let mut reader = Reader::new(&results);
        match proc::read::Reply::decode(&mut reader).unwrap() {
            Outcome::Ok(head) => {
                let data = reader.bytes(head.count as usize).unwrap().to_vec();
                reader.bytes(xdr::padding(data.len())).unwrap();
                reader.finish().unwrap();
                Ok((data, head.eof))
            }
            Outcome::Fail(status, _) => Err(status),
        }
    }
}

/// The arguments of a WRITE with their data.
pub fn write_args(file: FileHandle, offset: u64, data: &[u8]) -> Vec<u8> {
    let len = u32::try_from(data.len()).unwrap();
    let stable = proc::write::Stable::Unstable;
    let mut args = encoded(&proc::write::Args { file, offset, count: len, stable, data_len: len });
    args.extend_from_slice(data);
    args.resize(args.len() + xdr::padding(data.len()), 0);
    args
}

/// Waits until `check` holds.
pub fn eventually(what: &str, mut check: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + PATIENCE;
    while !check() {
        assert!(std::time::Instant::now() < deadline, "{what}");
        std::thread::yield_now();
    }
}

pub fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|index| (index.wrapping_mul(31) >> 3) as u8 ^ seed).collect()
}
