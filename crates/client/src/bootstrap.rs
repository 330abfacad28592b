//! The first calls of a mount: MNT, then GETATTR and FSINFO of the root. They block, each with a deadline.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use nfs3::mount::mnt;
use nfs3::proc::{fsinfo, getattr};
use nfs3::{Fattr3, FileHandle, Wire};
use rpc::Xid;
use rpc::record::{Assembler, Mark};
use rpc::reply::{Accept, Body};
use xdr::{Reader, Writer};

use crate::error::MountError;

/// An address that does not accept within this time is given up.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// An address that accepts and stays silent this long is given up.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// MNT, GETATTR and FSINFO have short replies.
const REPLY_BYTES_MAX: usize = 64 << 10;

/// What a mount begins with.
#[derive(Debug, Clone)]
pub(crate) struct Root {
    pub handle: FileHandle,
    pub attributes: Fattr3,
    pub info: fsinfo::Success,
}

/// One connection that makes one call at a time.
struct Caller {
    address: SocketAddr,
    stream: TcpStream,
    credential: Vec<u8>,
    next_xid: u32,
}

impl Caller {
    fn connect(address: SocketAddr, credential: &[u8]) -> Result<Self, MountError> {
        let stream = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT)
            .map_err(|source| MountError::Connect { address, source })?;
        stream
            .set_write_timeout(Some(ANSWER_TIMEOUT))
            .map_err(|source| MountError::Connect { address, source })?;
        Ok(Self { address, stream, credential: credential.to_vec(), next_xid: crate::random_u64() as u32 })
    }

    /// Makes a call and gives the bytes of its results.
    fn call(
        &mut self,
        program: u32,
        procedure: u32,
        args: impl FnOnce(&mut Writer<'_>),
    ) -> Result<Vec<u8>, MountError> {
        let xid = Xid(self.next_xid);
        self.next_xid = self.next_xid.wrapping_add(1);
        let mut record = Vec::new();
        let mut writer = Writer::new(&mut record);
        rpc::call::encode(&mut writer, xid, program, 3, procedure, &self.credential);
        args(&mut writer);
        let reply = self.exchange(&record).map_err(|source| match source.kind() {
            std::io::ErrorKind::InvalidData => self.protocol(source.to_string()),
            _ => MountError::Silent { address: self.address, source },
        })?;
        let mut reader = Reader::new(&reply);
        let head = rpc::reply::decode(&mut reader).map_err(|error| self.protocol(error.to_string()))?;
        match head.body {
            Body::Accepted(Accept::Success) if head.xid == xid => Ok(reader.rest().to_vec()),
            Body::Accepted(Accept::Success) => Err(self.protocol("an answer to no call of ours".into())),
            other => Err(self.protocol(format!("{other:?}"))),
        }
    }

    fn protocol(&self, reason: String) -> MountError {
        MountError::Protocol { address: self.address, reason }
    }

    fn exchange(&mut self, record: &[u8]) -> std::io::Result<Vec<u8>> {
        let invalid = |error: String| std::io::Error::new(std::io::ErrorKind::InvalidData, error);
        let mark = Mark::whole(record.len()).ok_or_else(|| invalid("call too long".into()))?;
        self.stream.write_all(&[&mark.encode()[..], record].concat())?;
        let mut assembler = Assembler::new(REPLY_BYTES_MAX);
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        loop {
            // One deadline for the whole answer: it may come byte by byte.
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(std::io::ErrorKind::TimedOut.into());
            }
            self.stream.set_read_timeout(Some(left))?;
            let mut chunk = [0; 4096];
            let got = self.stream.read(&mut chunk)?;
            if got == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            let mut rest = chunk.get(..got).unwrap_or_default();
            if let Some(reply) = assembler.feed(&mut rest).map_err(|error| invalid(error.to_string()))? {
                return Ok(reply.to_vec());
            }
        }
    }
}

/// Asks the MOUNT program for the export's root, and NFS for what it is.
pub(crate) fn bootstrap(
    mount: SocketAddr,
    nfs: SocketAddr,
    export: &[u8],
    credential: &[u8],
) -> Result<Root, MountError> {
    let mut caller = Caller::connect(mount, credential)?;
    let mnt_number = nfs3::mount::Procedure::Mnt.number();
    let results = caller.call(nfs3::mount::PROGRAM, mnt_number, |writer| {
        mnt::Args { path: export }.encode(writer);
    })?;
    let reply =
        mnt::Reply::decode(&mut Reader::new(&results)).map_err(|error| caller.protocol(error.to_string()))?;
    let handle = match reply.into_result() {
        Ok(success) => success.root,
        Err((status, ())) => {
            let reason = status.to_string();
            return Err(MountError::Refused {
                address: mount,
                export: String::from_utf8_lossy(export).into_owned(),
                reason,
            });
        }
    };
    if nfs != mount {
        caller = Caller::connect(nfs, credential)?;
    }
    let results = caller.call(nfs3::PROGRAM, nfs3::Procedure::GetAttr.number(), |writer| {
        getattr::Args { object: handle }.encode(writer);
    })?;
    let attributes = getattr::Reply::decode(&mut Reader::new(&results))
        .map_err(|error| caller.protocol(error.to_string()))?
        .into_result()
        .map_err(|(status, ())| caller.protocol(format!("GETATTR of the root: {status}")))?
        .attributes;
    let results = caller.call(nfs3::PROGRAM, nfs3::Procedure::FsInfo.number(), |writer| {
        fsinfo::Args { root: handle }.encode(writer);
    })?;
    let info = fsinfo::Reply::decode(&mut Reader::new(&results))
        .map_err(|error| caller.protocol(error.to_string()))?
        .into_result()
        .map_err(|(status, _)| caller.protocol(format!("FSINFO of the root: {status}")))?;
    Ok(Root { handle, attributes, info })
}
