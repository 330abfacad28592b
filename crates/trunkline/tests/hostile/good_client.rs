//! A client that does a fixed amount of work, checks every result, and keeps how long calls took.

use crate::peer::{Peer, encoded, getattr_args};
use crate::target::BLOCK;
use nfs3::{DirOpArgs, FileHandle, Outcome, Procedure, Sattr3, Wire, proc};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use xdr::Reader;

/// How long calls took, by their kind.
#[derive(Debug, Clone, Default)]
pub struct Latencies {
    /// CREATE, COMMIT, GETATTR, REMOVE.
    pub short: Vec<Duration>,
    /// WRITEs of the largest size.
    pub writes: Vec<Duration>,
    /// READs of the largest size.
    pub reads: Vec<Duration>,
}

/// One connection of a good client.
pub struct GoodClient {
    peer: Peer,
    root: FileHandle,
    xid: u32,
    pub latencies: Latencies,
}

/// The arguments of a WRITE with their data.
pub fn write_args(file: FileHandle, offset: u64, data: &[u8]) -> Vec<u8> {
    let count = u32::try_from(data.len()).expect("short");
    let stable = proc::write::Stable::Unstable;
    let mut args = encoded(&proc::write::ArgsHead { file, offset, count, stable, data_len: count });
    args.extend_from_slice(data);
    args.resize(args.len().next_multiple_of(4), 0);
    args
}

fn decoded<'a, T: Wire<'a>>(results: &'a [u8]) -> T {
    T::decode(&mut Reader::new(results)).expect("a sound reply")
}

impl GoodClient {
    /// Connects and mounts an export.
    pub fn new(address: SocketAddr, export: &str) -> Self {
        let mut peer = Peer::foreign(address);
        let root = peer.mount(export);
        Self { peer, root, xid: 100, latencies: Latencies::default() }
    }

    pub fn root(&self) -> FileHandle {
        self.root
    }

    /// Makes one call. Its reply must come on this connection.
    fn call(&mut self, procedure: Procedure, args: &[u8]) -> Vec<u8> {
        self.xid += 1;
        let began = Instant::now();
        let results = self.peer.exchange(self.xid, procedure, args);
        let kind = match procedure {
            Procedure::Write => &mut self.latencies.writes,
            Procedure::Read => &mut self.latencies.reads,
            _ => &mut self.latencies.short,
        };
        kind.push(began.elapsed());
        results
    }

    /// Creates a file of some blocks, and returns its handle.
    pub fn create(&mut self, name: &str, blocks: u8) -> FileHandle {
        let how = proc::create::How::Unchecked(Sattr3 { mode: Some(0o644), ..Sattr3::default() });
        let location = DirOpArgs { directory: self.root, name: name.as_bytes() };
        let results = self.call(Procedure::Create, &encoded(&proc::create::Args { location, how }));
        let created = decoded::<proc::create::Reply>(&results).into_result().expect("created");
        let file = created.object.expect("a handle");
        for block in 0..blocks {
            self.write(file, block);
        }
        file
    }

    /// Writes a block, each of whose bytes is its number.
    fn write(&mut self, file: FileHandle, block: u8) -> [u8; 8] {
        let args = write_args(file, u64::from(block) * u64::from(BLOCK), &vec![block; BLOCK as usize]);
        let results = self.call(Procedure::Write, &args);
        let written = decoded::<proc::write::Reply>(&results).into_result();
        let written = written.unwrap_or_else(|(status, _)| panic!("a WRITE fails: {status:?}"));
        assert_eq!(written.count, BLOCK);
        written.verifier
    }

    /// Reads a block. Without memory, the server answers a READ with fewer bytes than asked for.
    fn read(&mut self, file: FileHandle, block: u8) {
        let mut read = 0;
        while read < BLOCK {
            let offset = u64::from(block) * u64::from(BLOCK) + u64::from(read);
            let args = proc::read::Args { file, offset, count: BLOCK - read };
            let results = self.call(Procedure::Read, &encoded(&args));
            let mut reader = Reader::new(&results);
            let Ok(Outcome::Ok(head)) = proc::read::Reply::decode(&mut reader) else {
                panic!("a READ fails")
            };
            let data = reader.bytes(head.count as usize).expect("the data");
            assert!(!data.is_empty() && data.iter().all(|byte| *byte == block), "the data of {offset}");
            read += head.count;
        }
    }

    /// One round of work: a file of two blocks is made, written, committed, read and removed.
    pub fn work(&mut self, name: &str) {
        let file = self.create(name, 0);
        let verifiers = [1, 2].map(|block| self.write(file, block));
        let args = encoded(&proc::commit::Args { file, offset: 0, count: 0 });
        let results = self.call(Procedure::Commit, &args);
        let committed = decoded::<proc::commit::Reply>(&results).into_result().expect("committed");
        assert_eq!(verifiers, [committed.verifier; 2], "nothing that was written is lost");
        [1, 2].iter().for_each(|block| self.read(file, *block));
        let results = self.call(Procedure::GetAttr, &getattr_args(file));
        let attributes = decoded::<proc::getattr::Reply>(&results).into_result().expect("attributes");
        assert_eq!(attributes.attributes.size, 3 * u64::from(BLOCK));
        let object = DirOpArgs { directory: self.root, name: name.as_bytes() };
        let results = self.call(Procedure::Remove, &encoded(&proc::remove::Args { object }));
        assert!(decoded::<proc::remove::Reply>(&results).into_result().is_ok());
    }
}
