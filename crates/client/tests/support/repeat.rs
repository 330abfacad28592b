//! Repeats one operation on a loop at a given depth: first to warm up, then to be counted. Nothing
//! in this file allocates from the heap meanwhile.
#![allow(dead_code, reason = "each test uses its part")]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use client::options::Version;
use client::{Answer, Done, File, FileRef, Io, Mount, Op, Request, Settings, Task};
use server::{Config, Server};

/// The operation that is repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    Read(usize),
    Write(usize),
    GetAttr,
}

/// The blocks of the file that the operations cycle through.
const BLOCKS: u64 = 16;

/// A function that is called on the loop when the count begins and when it ends.
pub type Mark = fn();

#[derive(Debug)]
struct Repeat {
    work: Work,
    file: FileRef,
    /// The GETATTR of the file.
    getattr: Request,
    depth: u64,
    submitted: u64,
    finished: u64,
    warm: u64,
    total: u64,
    marks: (Mark, Mark),
    over: Option<Sender<()>>,
}

impl Repeat {
    fn submit(&mut self, io: &mut Io<'_>, token: u64, buffer: Vec<u8>) {
        let file = self.file;
        let block = self.submitted % BLOCKS;
        let op = match self.work {
            Work::Read(len) => Op::Read { file, offset: block * len as u64, buffer: buffer.into() },
            Work::Write(len) => Op::Write { file, offset: block * len as u64, buffer: buffer.into() },
            Work::GetAttr => Op::Call(self.getattr.again(buffer)),
        };
        self.submitted += 1;
        io.submit(op, token);
    }
}

impl Task for Repeat {
    fn start(&mut self, io: &mut Io<'_>) {
        let len = match self.work {
            Work::Read(len) | Work::Write(len) => len,
            Work::GetAttr => 256,
        };
        for token in 0..self.depth {
            self.submit(io, token, vec![7; len]);
        }
    }

    fn finished(&mut self, io: &mut Io<'_>, token: u64, done: Done) {
        self.finished += 1;
        if self.finished == self.warm {
            (self.marks.0)();
        }
        if self.finished == self.total {
            (self.marks.1)();
        }
        let buffer = match (self.work, done.result.expect("an answer")) {
            (Work::Read(len), Answer::Read { count, .. }) => {
                assert_eq!(count as usize, len);
                done.buffer.into_vec()
            }
            (Work::Write(_), Answer::Written) => done.buffer.into_vec(),
            (Work::GetAttr, Answer::Results(results)) => {
                assert_eq!(results[..4], [0; 4]);
                results
            }
            (work, other) => panic!("{work:?}: {other:?}"),
        };
        // Submits some more than are counted, so that the depth is constant to the end of the
        // count.
        if self.submitted < self.total + self.depth {
            self.submit(io, token, buffer);
        } else if self.ended()
            && let Some(over) = self.over.take()
        {
            over.send(()).unwrap();
        }
    }

    fn ended(&self) -> bool {
        self.finished == self.submitted
    }
}

/// A server and a mount in one process, one loop and one connection each.
#[derive(Debug)]
pub struct Bench {
    pub server: Server,
    pub mount: Mount,
    file: File,
}

impl Bench {
    pub fn start(version: Version) -> Self {
        let ip = IpAddr::V4(Ipv4Addr::new(127, 0, 6, 1));
        let port = testkit::free_port_on(ip);
        let mut config = Config::quick(256 << 20, "/export", &[SocketAddr::new(ip, port)]);
        config.loops = Some(1);
        config.versions = "3,4.1,4.2".parse().unwrap();
        // On a busy machine a loop that waits for a processor does not count as stalled.
        config.limits.stall_ms_max = 60_000;
        let server = Server::start(config).unwrap();
        let settings = Settings { loops: 1, version, ..Settings::new(ip, port, "/export") };
        let mount = Mount::with_settings(settings).unwrap();
        let file = mount.create_file(b"/file", 0o644).unwrap();
        let largest = vec![1; usize::try_from(BLOCKS).unwrap() << 20];
        file.write_all_at(&largest, 0).unwrap();
        Self { server, mount, file }
    }

    /// Runs `warm` operations to warm up, then `counted` operations between the two marks.
    pub fn run(&self, work: Work, depth: u64, warm: u64, counted: u64, marks: (Mark, Mark)) {
        let (over, wait) = channel();
        let (file, total) = (self.file.file_ref(), warm + counted);
        let getattr = self.mount.protocol().getattr(file.handle).into_request();
        let (submitted, finished, over) = (0, 0, Some(over));
        let repeat = Repeat { work, file, getattr, depth, submitted, finished, warm, total, marks, over };
        self.mount.spawn(0, Box::new(repeat));
        wait.recv_timeout(Duration::from_secs(300)).expect("the work ends");
    }
}
