//! A client that sends single calls, for tests that control what is on the wire and when.

#![allow(dead_code, reason = "each test program uses a part of it")]

use drc::machine_name;
use nfs3::{FileHandle, Procedure, Wire, proc};
use rpc::Xid;
use rpc::auth::AuthSys;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;
use xdr::{Reader, Writer};

/// Every expected event happens within this time, on a machine of any speed.
pub const SOON: Duration = Duration::from_secs(60);

/// One connection of a client.
pub struct Peer {
    pub stream: TcpStream,
    credential: Vec<u8>,
}

pub fn encoded<'a>(args: &impl Wire<'a>) -> Vec<u8> {
    let mut out = Vec::new();
    args.encode(&mut Writer::new(&mut out));
    out
}

fn credential(stamp: u32, machine: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let sys = AuthSys { stamp, machine, uid: 0, gid: 0, gids: [0].into_iter().collect() };
    sys.encode_opaque(&mut Writer::new(&mut out));
    out
}

impl Peer {
    /// One of our own clients, which the reply cache knows by its number.
    pub fn of_ours(address: SocketAddr, id: u64) -> Self {
        Self::over(TcpStream::connect(address).unwrap(), id as u32, &machine_name(id))
    }

    /// A foreign client.
    pub fn foreign(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).unwrap(), 7, b"elsewhere")
    }

    pub fn over(stream: TcpStream, stamp: u32, machine: &[u8]) -> Self {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        Self { stream, credential: credential(stamp, machine) }
    }

    pub fn record(&self, xid: u32, program: u32, procedure: u32, args: &[u8]) -> Vec<u8> {
        self.record_of(xid, (program, 3), procedure, args)
    }

    pub fn record_of(
        &self,
        xid: u32,
        (program, version): (u32, u32),
        procedure: u32,
        args: &[u8],
    ) -> Vec<u8> {
        let mut out = vec![0; 4];
        let mut writer = Writer::new(&mut out);
        rpc::call::encode(&mut writer, Xid(xid), program, version, procedure, &self.credential);
        out.extend_from_slice(args);
        let mark = rpc::record_marking::Mark { last: true, len: u32::try_from(out.len() - 4).unwrap() };
        out[..4].copy_from_slice(&mark.encode());
        out
    }

    pub fn call(&mut self, xid: u32, procedure: Procedure, args: &[u8]) {
        let record = self.record(xid, nfs3::PROGRAM, procedure.number(), args);
        self.stream.write_all(&record).unwrap();
    }

    /// The next reply, or `None` when the connection has ended.
    pub fn try_receive(&mut self) -> Option<Vec<u8>> {
        let mut mark = [0; 4];
        self.stream.read_exact(&mut mark).ok()?;
        let mut reply = vec![0; rpc::record_marking::Mark::decode(mark).len as usize];
        self.stream.read_exact(&mut reply).ok()?;
        Some(reply)
    }

    /// The xid of the next reply, and its results.
    pub fn receive(&mut self) -> (u32, Vec<u8>) {
        let reply = self.try_receive().expect("a reply");
        let xid = u32::from_be_bytes(reply[..4].try_into().unwrap());
        assert_eq!(reply[20..24], [0; 4], "an accepted call");
        (xid, reply[rpc::reply::SUCCESS_BYTES..].to_vec())
    }

    pub fn exchange(&mut self, xid: u32, procedure: Procedure, args: &[u8]) -> Vec<u8> {
        self.call(xid, procedure, args);
        let (answered, results) = self.receive();
        assert_eq!(answered, xid);
        results
    }

    /// Closes the connection with a reset, which tells the server that nothing more is received.
    pub fn reset(self) {
        transport::socket::reset_on_close(self.stream.as_fd()).unwrap();
    }

    /// Returns when the server has processed everything that was sent before.
    pub fn null(&mut self) {
        assert!(self.exchange(1, Procedure::Null, &[]).is_empty());
    }

    pub fn mount(&mut self, path: &str) -> FileHandle {
        let args = encoded(&nfs3::mount::mnt::Args { path: path.as_bytes() });
        let record = self.record(2, nfs3::mount::PROGRAM, 1, &args);
        self.stream.write_all(&record).unwrap();
        let (_, results) = self.receive();
        nfs3::mount::mnt::Reply::decode(&mut Reader::new(&results)).unwrap().into_result().unwrap().root
    }
}

pub fn create_args(directory: FileHandle, name: &[u8]) -> Vec<u8> {
    let how = proc::create::How::Guarded(nfs3::Sattr3::default());
    encoded(&proc::create::Args { location: nfs3::DirOpArgs { directory, name }, how })
}

pub fn getattr_args(object: FileHandle) -> Vec<u8> {
    encoded(&proc::getattr::Args { object })
}
